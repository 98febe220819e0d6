//! Compares the extracted text of real documents with that of `pdftotext`, `pandoc` and LibreOffice.

mod words;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::program::Binary;
use crate::report::{Aim, Report};
use crate::table::{Cell, Table};
use words::{WordCounts, without_markup};

/// Compare the text of real documents with that of `pdftotext`, `pandoc` and LibreOffice
///
/// Downloads the packages in `bench/documents/corpus.txt` from their registries. Needs poppler-utils, pandoc and
/// LibreOffice, but no root.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// The folder of the corpus, which is kept; if it is empty, the corpus is downloaded into it
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
}

/// Documents with fewer words are not compared: a page number would change their score too much.
const LEAST_WORDS: usize = 20;

/// The documents of one format.
#[derive(Default)]
struct FormatScores {
    files: usize,
    refused: usize,
    scores: Vec<f64>,
    own_seconds: f64,
    reference_seconds: f64,
    pages: usize,
}

pub(crate) fn run(options: &Options, binary: &Binary, report: &mut Report) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = options.corpus.clone().unwrap_or_else(|| temporary.path().to_owned());
    if !folder.join("files").is_dir() {
        eprintln!("downloading the corpus …");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("documents/download.sh");
        ensure!(Command::new(script).arg(&folder).status()?.success(), "the corpus could not be downloaded");
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder.join("files"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut formats: BTreeMap<String, FormatScores> = BTreeMap::new();
    let mut table = Table::new(
        "Documents",
        ["file", "format", "why not", "sections", "words", "F1", "CPU s", "reference CPU s"],
    );
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let format = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        eprintln!("{name} …");
        let before = child_seconds()?;
        let own = extract(binary, file, &format)?;
        let own_seconds = child_seconds()? - before;
        let before = child_seconds()?;
        let reference = reference(file, &format, temporary.path())?;
        let reference_seconds = child_seconds()? - before;
        let scores = formats.entry(format.clone()).or_default();
        scores.files += 1;
        let text = match own {
            Ok(text) => text,
            Err(why) => {
                scores.refused += 1;
                table.row([Cell::Text(name), Cell::Text(format), Cell::Text(why)]);
                continue;
            }
        };
        let words = WordCounts::of(&without_markup(&text.text));
        let score = reference.map(|reference| {
            let expected = WordCounts::of(&reference);
            (expected.total() >= LEAST_WORDS).then(|| words.f1(&expected))
        });
        let score = score.flatten();
        scores.scores.extend(score);
        scores.own_seconds += own_seconds;
        scores.reference_seconds += reference_seconds;
        scores.pages += text.sections;
        table.row([
            Cell::Text(name),
            Cell::Text(format),
            Cell::Nothing,
            Cell::Number(text.sections as f64),
            Cell::Number(words.total() as f64),
            score.into(),
            Cell::Number(own_seconds),
            Cell::Number(reference_seconds),
        ]);
    }
    ensure!(files.len() >= 60, "the corpus has only {} documents", files.len());
    report.table(table);
    report.judge("documents in the corpus", files.len() as f64, "", Aim::AtLeast(60.0));
    for (format, scores) in &formats {
        let FormatScores { files, refused, .. } = scores;
        report.add(format!("{format}: documents"), *files as f64, "");
        report.add(format!("{format}: documents without text, each with its reason"), *refused as f64, "");
        if scores.scores.is_empty() {
            continue;
        }
        let mean = scores.scores.iter().sum::<f64>() / scores.scores.len() as f64;
        let aim = match &**format {
            "pdf" => Some(Aim::AtLeast(0.95)),
            "docx" => Some(Aim::AtLeast(0.98)),
            "xlsx" => Some(Aim::AtLeast(1.0)),
            _ => None,
        };
        let name = format!("{format}: mean F1 of words");
        match aim {
            Some(aim) => report.judge(name, mean, "", aim),
            None => report.add(name, mean, ""),
        }
        if format == "pdf" {
            let per_hundred = |seconds: f64| seconds * 100.0 / scores.pages.max(1) as f64;
            report.add("pdf: CPU per 100 pages", per_hundred(scores.own_seconds), "s");
            report.add("pdf: CPU per 100 pages, `pdftotext`", per_hundred(scores.reference_seconds), "s");
        }
    }
    Ok(())
}

/// The text of a document, and how many sections it has.
struct OwnText {
    text: String,
    sections: usize,
}

/// Runs the extraction as the server does. The inner error says why the document has no text.
fn extract(binary: &Binary, file: &Path, format: &str) -> Result<Result<OwnText, String>> {
    let data = fs::read(file)?;
    let format = match format {
        "htm" | "xhtml" => "html",
        other => other,
    };
    let seconds = |seconds: u64| json!({ "secs": seconds, "nanos": 0 });
    let limits = json!({
        "memory": 512 << 20, "cpu": seconds(60), "wall": seconds(120), "output": 64 << 20, "expanded": 256 << 20,
    });
    let work = json!({ "text": { "format": format, "content": "all", "decoded": false } });
    let request = json!({ "limits": limits, "size": data.len(), "work": work });
    let mut child = Command::new(binary.path())
        .arg("extract-document")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("could not start libris")?;
    let mut input = child.stdin.take().context("no standard input")?;
    let sent = std::thread::spawn(move || {
        input.write_all(format!("{request}\n").as_bytes()).and_then(|()| input.write_all(&data))
    });
    let output = child.wait_with_output()?;
    let _ = sent.join();
    if !output.status.success() {
        return Ok(Err(format!("the extraction ended with {}", output.status)));
    }
    let response: Value = serde_json::from_slice(&output.stdout)?;
    let Some(sections) = response["text"]["sections"].as_array() else {
        return Ok(Err(response["failed"].to_string()));
    };
    let texts: Vec<&str> = sections.iter().filter_map(|section| section["text"].as_str()).collect();
    Ok(Ok(OwnText { text: texts.join("\n"), sections: sections.len() }))
}

/// The text of a document according to the usual program for its format; `None` if there is no program or it fails.
fn reference(file: &Path, format: &str, folder: &Path) -> Result<Option<String>> {
    let printed = |command: &mut Command| -> Result<Option<String>> {
        let output = command.stderr(Stdio::null()).output().context("could not run the reference program")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(output.status.success().then_some(text))
    };
    match format {
        "pdf" => printed(Command::new("pdftotext").arg(file).arg("-")),
        "docx" | "odt" | "epub" | "ipynb" | "rtf" | "html" | "csv" => {
            printed(Command::new("pandoc").args(["-t", "plain", "--wrap=none"]).arg(file))
        }
        "xlsx" | "xls" | "ods" | "pptx" | "odp" => office(file, format, folder),
        _ => Ok(None),
    }
}

/// The text of a document according to LibreOffice: the values of all cells of a spreadsheet, or the text of the slides
/// exported as PDF.
fn office(file: &Path, format: &str, folder: &Path) -> Result<Option<String>> {
    let folder = tempfile::tempdir_in(folder)?;
    let target = match format {
        "pptx" | "odp" => "pdf",
        // Options of the CSV filter: commas, quotes, UTF-8, values as stored, each sheet in a separate file.
        _ => "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false,false,false,-1",
    };
    let done = Command::new("soffice")
        .args(["--headless", "--convert-to", target, "--outdir"])
        .arg(folder.path())
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("could not run LibreOffice")?;
    let mut text = String::new();
    for entry in fs::read_dir(folder.path())? {
        let path = entry?.path();
        match path.extension().is_some_and(|extension| extension == "pdf") {
            true => {
                let output = Command::new("pdftotext").arg(&path).arg("-").output()?;
                text.push_str(&String::from_utf8_lossy(&output.stdout));
            }
            false => text.push_str(&String::from_utf8_lossy(&fs::read(&path)?)),
        }
        text.push('\n');
    }
    Ok((done.success() && !text.trim().is_empty()).then_some(text))
}

/// The processor time of all children that have ended, in seconds.
fn child_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The fields begin after the name in parentheses, which may contain spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        fields.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}
