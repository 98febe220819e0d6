//! Compares the extracted text of real documents with that of `pdftotext`, `pandoc` and LibreOffice.

mod cells;
mod pages;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use libris_core::Client;
use libris_documents::extract::{ExtractOptions, HtmlContent};
use libris_documents::{DocumentReader, ExtractedText, ExtractionError, Format, ReaderConfig};
use tokio::runtime::Runtime;

use crate::program::Binary;
use crate::report::{Aim, Report};
use crate::table::{Cell, Table};
use words::{ScoredText, TextScores, without_markup};

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

/// The formats that must have scores.
const SCORED: [Format; 3] = [Format::Pdf, Format::Docx, Format::Xlsx];

/// The documents of one format.
#[derive(Default)]
struct FormatScores {
    files: usize,
    refused: usize,
    /// The F1 of words, or the share of equal cells of a spreadsheet.
    scores: Vec<f64>,
    /// The share of the word pairs of the reference text that are kept.
    orders: Vec<f64>,
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
    let extraction = Extraction::new(binary)?;
    let mut formats: BTreeMap<Option<Format>, FormatScores> = BTreeMap::new();
    let mut longest: Option<(usize, &Path)> = None;
    let mut crashed = Vec::new();
    let columns =
        ["file", "format", "note", "sections", "words", "score", "order", "CPU s", "reference CPU s"];
    let mut table = Table::new("Documents", columns);
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        eprintln!("{name} …");
        let data = fs::read(file)?;
        let format = Format::of(&name, None, &data);
        let scores = formats.entry(format).or_default();
        scores.files += 1;
        let Some(format) = format else {
            scores.refused += 1;
            table.row([Cell::Text(name), Cell::Nothing, "it is no document".into()]);
            continue;
        };
        let before = child_seconds()?;
        let own = extraction.text(data, format)?;
        let own_seconds = child_seconds()? - before;
        let text = match own {
            Ok(text) => text,
            Err(why) => {
                if matches!(why, ExtractionError::Crashed) {
                    crashed.push(name.clone());
                }
                scores.refused += 1;
                table.row([Cell::Text(name), format.name().into(), Cell::Text(why.to_string())]);
                continue;
            }
        };
        let before = child_seconds()?;
        let score = score(file, format, &text, temporary.path())?;
        let reference_seconds = child_seconds()? - before;
        if format == Format::Pdf && longest.is_none_or(|(pages, _)| pages < text.sections.len()) {
            longest = Some((text.sections.len(), file));
        }
        let (note, score) = match score {
            Ok(score) => (Cell::Nothing, Some(score)),
            Err(why) => (why.into(), None),
        };
        let order = score.and_then(|score| score.order);
        scores.scores.extend(score.map(|score| score.words));
        scores.orders.extend(order);
        // The times are comparable only where both programs extracted the document.
        if score.is_some() {
            scores.own_seconds += own_seconds;
            scores.reference_seconds += reference_seconds;
            scores.pages += text.sections.len();
        }
        table.row([
            Cell::Text(name),
            format.name().into(),
            note,
            Cell::Number(text.sections.len() as f64),
            Cell::Number(ScoredText::of(&without_markup(&joined(&text))).total() as f64),
            score.map(|score| score.words).into(),
            order.into(),
            Cell::Number(own_seconds),
            Cell::Number(reference_seconds),
        ]);
    }
    report.table(table);
    report.table(by_format(&formats));
    report.judge("documents in the corpus", files.len() as f64, "", Aim::AtLeast(60.0));
    judge(&formats, report);
    let longest = longest.filter(|(pages, _)| *pages >= pages::LEAST_PAGES);
    if let Some((pages, file)) = longest {
        pages::run(binary, file, pages, report)?;
    }
    ensure!(longest.is_some(), "the corpus has no PDF with text and {} pages", pages::LEAST_PAGES);
    ensure!(files.len() >= 60, "the corpus has only {} documents", files.len());
    ensure!(crashed.is_empty(), "extractions crashed: {}", crashed.join(", "));
    for format in SCORED {
        let has_scores = formats.get(&Some(format)).is_some_and(|scores| !scores.scores.is_empty());
        ensure!(has_scores, "no document of the format {} was compared", format.name());
    }
    Ok(())
}

/// One row for each format. The numbers of documents add up to all documents.
fn by_format(formats: &BTreeMap<Option<Format>, FormatScores>) -> Table {
    let columns =
        ["format", "documents", "without text", "compared with", "compared", "mean score", "mean order"];
    let mut table = Table::new("Documents by format", columns);
    for (format, scores) in formats {
        table.row([
            format.map_or("no document", Format::name).into(),
            Cell::Number(scores.files as f64),
            Cell::Number(scores.refused as f64),
            format.and_then(reference_name).map_or(Cell::Nothing, Cell::from),
            Cell::Number(scores.scores.len() as f64),
            mean(&scores.scores).into(),
            mean(&scores.orders).into(),
        ]);
    }
    let sum =
        |number: fn(&FormatScores) -> usize| Cell::Number(formats.values().map(number).sum::<usize>() as f64);
    let all = [
        sum(|scores| scores.files),
        sum(|scores| scores.refused),
        Cell::Nothing,
        sum(|scores| scores.scores.len()),
        Cell::Nothing,
        Cell::Nothing,
    ];
    table.row([Cell::from("all")].into_iter().chain(all));
    table
}

/// Adds the scores of the formats that have targets, and the processor time of PDF.
fn judge(formats: &BTreeMap<Option<Format>, FormatScores>, report: &mut Report) {
    for (format, scores) in formats {
        let Some(format) = format else { continue };
        let Some(score) = mean(&scores.scores) else { continue };
        let name = format.name();
        let aim = match format {
            Format::Pdf => Aim::AtLeast(0.95),
            Format::Docx => Aim::AtLeast(0.98),
            Format::Xlsx => Aim::AtLeast(1.0),
            _ => continue,
        };
        let measure = if is_spreadsheet(*format) { "share of equal cells" } else { "F1 of words" };
        report.judge(format!("{name}: mean {measure}"), score, "", aim);
        if let Some(order) = mean(&scores.orders) {
            report.add(format!("{name}: mean share of word pairs kept"), order, "");
        }
        if *format == Format::Pdf {
            let per_hundred = |seconds: f64| seconds * 100.0 / scores.pages.max(1) as f64;
            report.add("pdf: CPU per 100 pages", per_hundred(scores.own_seconds), "s");
            report.add("pdf: CPU per 100 pages, `pdftotext`", per_hundred(scores.reference_seconds), "s");
        }
    }
}

/// `None` if there are no numbers.
fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

fn is_spreadsheet(format: Format) -> bool {
    matches!(format, Format::Xlsx | Format::Xls | Format::Ods)
}

/// The program whose output a text is compared with.
fn reference_name(format: Format) -> Option<&'static str> {
    Some(match format {
        Format::Pdf => "`pdftotext`",
        Format::Pptx | Format::Odp => "LibreOffice as PDF",
        format if is_spreadsheet(format) => "LibreOffice",
        format => pandoc_format(format).map(|_| "`pandoc`")?,
    })
}

/// The name of a format in the options of `pandoc`.
fn pandoc_format(format: Format) -> Option<&'static str> {
    let formats =
        [Format::Docx, Format::Odt, Format::Epub, Format::Ipynb, Format::Rtf, Format::Html, Format::Csv];
    formats.contains(&format).then(|| format.name())
}

/// Extracts documents as the server does: the same code, limits and child processes.
struct Extraction {
    reader: DocumentReader,
    runtime: Runtime,
}

impl Extraction {
    fn new(binary: &Binary) -> Result<Self> {
        let config =
            ReaderConfig { cache_bytes: 0, ..ReaderConfig::new(binary.path(), ["extract-document"]) };
        Ok(Self { reader: DocumentReader::new(config), runtime: crate::runtime()? })
    }

    /// The inner error says why the document has no text.
    fn text(
        &self,
        data: Vec<u8>,
        format: Format,
    ) -> Result<Result<std::sync::Arc<ExtractedText>, ExtractionError>> {
        let options = ExtractOptions { format, content: HtmlContent::All, decoded: false };
        let text = self.runtime.block_on(self.reader.text(&data.into(), options, Client::default()));
        match text {
            Err(ExtractionError::Failed(cause)) => Err(cause).context("could not run the extraction"),
            text => Ok(text),
        }
    }
}

fn joined(text: &ExtractedText) -> String {
    let texts: Vec<&str> = text.sections.iter().map(|section| section.text.as_str()).collect();
    texts.join("\n")
}

/// Compares a text with that of the reference program; the inner error says why it cannot be compared.
fn score(
    file: &Path,
    format: Format,
    text: &ExtractedText,
    folder: &Path,
) -> Result<Result<TextScores, &'static str>> {
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
            false => Ok(TextScores { words: cells::equal_share(&text.sections, &sheets), order: None }),
        });
    }
    let Some(reference) = reference(file, format, folder)? else { return Ok(Err("no reference text")) };
    let expected = ScoredText::of(&reference);
    if expected.total() < LEAST_WORDS {
        return Ok(Err("too few words to compare"));
    }
    Ok(Ok(ScoredText::of(&without_markup(&joined(text))).scores(&expected)))
}

/// The text of a document according to the usual program for its format; `None` if there is no program or it fails.
fn reference(file: &Path, format: Format, folder: &Path) -> Result<Option<String>> {
    match format {
        Format::Pdf => printed(command("pdftotext").arg(file).arg("-")),
        Format::Pptx | Format::Odp => {
            let folder = tempfile::tempdir_in(folder)?;
            match office(file, "pdf", folder.path())?.first() {
                Some(converted) => printed(command("pdftotext").arg(converted).arg("-")),
                None => Ok(None),
            }
        }
        _ => match pandoc_format(format) {
            // The extension need not be that of the format: pandoc knows no `ott`.
            Some(name) => {
                printed(command("pandoc").args(["-f", name, "-t", "plain", "--wrap=none"]).arg(file))
            }
            None => Ok(None),
        },
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::Command;

    #[test]
    fn a_corpus_that_lacks_a_package_or_its_files_is_no_corpus() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("documents/download.sh");
        fs::copy(script, here.join("download.sh")).unwrap();
        // A registry that has the package `good` only.
        let npm = "#!/bin/sh\n[ \"$3\" = good ] && echo text >a.pdf && tar czf good.tgz a.pdf && rm a.pdf\n";
        fs::create_dir(here.join("bin")).unwrap();
        fs::write(here.join("bin/npm"), npm).unwrap();
        fs::set_permissions(here.join("bin/npm"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", here.join("bin").display(), std::env::var("PATH").unwrap());
        let download = |corpus: &str| {
            fs::write(here.join("corpus.txt"), corpus).unwrap();
            let mut command = Command::new("bash");
            command.arg(here.join("download.sh")).arg(here.join("target")).env("PATH", &path);
            command.output().unwrap().status.success()
        };
        for incomplete in ["npm good *.pdf\nnpm bad *.pdf\n", "npm good *.docx\n"] {
            assert!(!download(incomplete), "{incomplete}");
            assert!(!here.join("target/files").exists());
        }
        assert!(!here.join("target/packages/npm-bad/.complete").exists());
        assert!(download("# A comment.\n\nnpm good *.pdf\n"));
        assert!(here.join("target/files/good--a.pdf").exists());
    }
}
