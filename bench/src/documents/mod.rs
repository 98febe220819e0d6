//! Compares the extracted text of real documents with that of `pdftotext`, `pandoc` and LibreOffice.

mod cells;
mod pages;
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
/// LibreOffice, but no root. The largest PDF is also served, to measure reads of its pages.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// The folder of the corpus, which is kept; if it is empty, the corpus is downloaded into it
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
}

/// Documents with fewer words are not compared: a page number would change their score too much.
const LEAST_WORDS: usize = 20;

/// The most seconds of a reference program.
const PATIENCE: &str = "120";

/// The documents of one format.
#[derive(Default)]
struct FormatScores {
    files: usize,
    refused: usize,
    /// The F1 of words, or the share of equal cells of a spreadsheet.
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
    let mut longest: Option<(usize, &Path)> = None;
    let columns = ["file", "format", "note", "sections", "words", "score", "CPU s", "reference CPU s"];
    let mut table = Table::new("Documents", columns);
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let extension = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        let format = usual_extension(&extension);
        eprintln!("{name} …");
        let before = child_seconds()?;
        let own = extract(binary, file, format)?;
        let own_seconds = child_seconds()? - before;
        let scores = formats.entry(format.to_owned()).or_default();
        scores.files += 1;
        let text = match own {
            Ok(text) => text,
            Err(why) => {
                scores.refused += 1;
                table.row([Cell::Text(name), Cell::Text(format.to_owned()), Cell::Text(why)]);
                continue;
            }
        };
        let before = child_seconds()?;
        let score = score(file, format, &text, temporary.path())?;
        let reference_seconds = child_seconds()? - before;
        if format == "pdf" && longest.is_none_or(|(pages, _)| pages < text.sections.len()) {
            longest = Some((text.sections.len(), file));
        }
        let (note, score) = match score {
            Ok(score) => (Cell::Nothing, Some(score)),
            Err(why) => (why.into(), None),
        };
        scores.scores.extend(score);
        // The times are comparable only where both programs extracted the document.
        if score.is_some() {
            scores.own_seconds += own_seconds;
            scores.reference_seconds += reference_seconds;
            scores.pages += text.sections.len();
        }
        table.row([
            Cell::Text(name),
            Cell::Text(format.to_owned()),
            note,
            Cell::Number(text.sections.len() as f64),
            Cell::Number(WordCounts::of(&without_markup(&text.joined())).total() as f64),
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
        let name = match is_spreadsheet(format) {
            true => format!("{format}: mean share of equal cells"),
            false => format!("{format}: mean F1 of words"),
        };
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
    match longest {
        Some((pages, file)) => pages::run(binary, file, pages, report),
        None => Ok(()),
    }
}

/// The usual extension of the format of files with this extension.
fn usual_extension(extension: &str) -> &str {
    match extension {
        "htm" | "xhtml" => "html",
        "ott" => "odt",
        other => other,
    }
}

fn is_spreadsheet(format: &str) -> bool {
    matches!(format, "xlsx" | "xls" | "ods")
}

/// The extracted text of a document.
struct OwnText {
    /// The name and the text of each section.
    sections: Vec<(String, String)>,
}

impl OwnText {
    fn joined(&self) -> String {
        let texts: Vec<&str> = self.sections.iter().map(|(_, text)| text.as_str()).collect();
        texts.join("\n")
    }
}

/// Compares a text with that of the reference program; the inner error says why it cannot be compared.
fn score(file: &Path, format: &str, text: &OwnText, folder: &Path) -> Result<Result<f64, &'static str>> {
    if is_spreadsheet(format) {
        // The names of members are not compressed.
        let data = fs::read(file)?;
        if memchr::memmem::find(&data, b"xl/pivotTables/").is_some() {
            return Ok(Err("LibreOffice lays its pivot tables out anew"));
        }
        let folder = tempfile::tempdir_in(folder)?;
        let sheets = office(file, CSV, folder.path())?;
        return Ok(match sheets.is_empty() {
            true => Err("LibreOffice does not convert it"),
            false => Ok(cells::equal_share(&text.sections, &sheets)),
        });
    }
    let Some(reference) = reference(file, format, folder)? else { return Ok(Err("no reference text")) };
    let expected = WordCounts::of(&reference);
    if expected.total() < LEAST_WORDS {
        return Ok(Err("too few words to compare"));
    }
    Ok(Ok(WordCounts::of(&without_markup(&text.joined())).f1(&expected)))
}

/// Runs the extraction as the server does. The inner error says why the document has no text.
fn extract(binary: &Binary, file: &Path, format: &str) -> Result<Result<OwnText, String>> {
    let data = fs::read(file)?;
    let seconds = |seconds: u64| json!({ "secs": seconds, "nanos": 0 });
    let limits = json!({
        "memory": 512 << 20, "cpu": seconds(60), "wall": seconds(120), "text": 16 << 20, "member": 64 << 20,
        "expanded": 256 << 20,
    });
    let work = json!({ "text": { "format": format, "content": "all", "decoded": false } });
    let request = json!({ "limits": limits, "size": data.len(), "work": work });
    let mut child = Command::new(binary.path())
        .arg("extract-document")
        // As the server does, so that the memory limit applies.
        .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("could not start libris")?;
    let mut input = child.stdin.take().context("no standard input")?;
    let sent = std::thread::spawn(move || {
        let _ = input.write_all(format!("{request}\n").as_bytes()).and_then(|()| input.write_all(&data));
        input
    });
    let output = child.wait_with_output()?;
    // Not before: the extraction ends at the end of its input.
    drop(sent.join());
    if !output.status.success() {
        return Ok(Err(format!("the extraction ended with {}", output.status)));
    }
    let response: Value = serde_json::from_slice(&output.stdout)?;
    let Some(sections) = response["text"]["sections"].as_array() else {
        return Ok(Err(response["failed"].to_string()));
    };
    let text = |section: &Value, key: &str| section[key].as_str().unwrap_or_default().to_owned();
    let sections = sections.iter().map(|section| (text(section, "name"), text(section, "text")));
    Ok(Ok(OwnText { sections: sections.collect() }))
}

/// The text of a document according to the usual program for its format; `None` if there is no program or it fails.
fn reference(file: &Path, format: &str, folder: &Path) -> Result<Option<String>> {
    match format {
        "pdf" => printed(command("pdftotext").arg(file).arg("-")),
        "docx" | "odt" | "epub" | "ipynb" | "rtf" | "html" | "csv" => {
            // The extension need not be that of the format: pandoc knows no `ott`.
            printed(command("pandoc").args(["-f", format, "-t", "plain", "--wrap=none"]).arg(file))
        }
        "pptx" | "odp" => {
            let folder = tempfile::tempdir_in(folder)?;
            match office(file, "pdf", folder.path())?.first() {
                Some(converted) => printed(command("pdftotext").arg(converted).arg("-")),
                None => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// A command that ends after [`PATIENCE`].
fn command(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([PATIENCE, program]);
    command
}

/// What a command prints; `None` if it fails.
fn printed(command: &mut Command) -> Result<Option<String>> {
    let output = command.stderr(Stdio::null()).output().context("could not run the reference program")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(output.status.success().then_some(text))
}

/// Options of LibreOffice's CSV filter: commas, quotes, UTF-8, values as stored, each sheet in a separate file.
const CSV: &str = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false,false,false,-1";

/// Converts a document with LibreOffice. Returns the files that it writes into the folder; none if it fails.
fn office(file: &Path, target: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    // A profile of its own: LibreOffice refuses to start twice with the same one.
    let profile = folder.join("profile");
    let converted = folder.join("converted");
    let done = command("soffice")
        .arg(format!("-env:UserInstallation=file://{}", profile.display()))
        .args(["--headless", "--convert-to", target, "--outdir"])
        .arg(&converted)
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("could not run LibreOffice")?;
    if !done.success() || !converted.is_dir() {
        return Ok(Vec::new());
    }
    fs::read_dir(&converted)?.map(|entry| Ok(entry?.path())).collect()
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
