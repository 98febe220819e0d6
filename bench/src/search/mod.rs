//! Retrieval quality on public documentation and on this repository, and the cost of a large index.

mod engines;
mod large;
mod measures;
mod questions;
mod served;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use libris_search::Weights;

use crate::report::{Aim, Report};
use crate::table::{Cell, Table};
pub(crate) use large::{LargePart, part};

use engines::{Engine, Libris, PlainBm25, RipgrepCount};
use measures::Measures;
use questions::{QuestionSet, Split};

/// The Debian packages with the documentation.
const PACKAGES: [&str; 2] = ["perl-doc", "python3.11-doc"];

/// How many questions about this repository are asked.
const CODE_QUESTIONS: usize = 200;

/// Measure search: its quality compared with plain BM25 and ripgrep, and the cost of 100,000 documents
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// The folder with the unpacked packages perl-doc and python3.11-doc [default: they are downloaded]
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
    /// The number of documents of the large index
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    documents: usize,
    /// Only the retrieval quality
    #[arg(long)]
    quality: bool,
    /// Omit ripgrep, which takes most of the time
    #[arg(long)]
    no_ripgrep: bool,
    /// Only this set of questions: `perlfaq`, `phrases`, `symbols` or `code`; may be given several times
    #[arg(long, value_name = "NAME")]
    set: Vec<String>,
    /// Only the questions for tuning, and only Libris
    #[arg(long)]
    tune: bool,
    /// Measure also the questions that must not influence any choice, and all questions together
    #[arg(long, conflicts_with = "tune")]
    sealed: bool,
    /// Change a weight, such as `section=1.5`; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = weight)]
    weight: Vec<(String, f32)>,
}

fn weight(text: &str) -> Result<(String, f32), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.parse().map_err(|_| "expected a number")?))
}

/// The default weights of the ranking, changed as the command line says.
fn weights(options: &Options) -> Result<Weights> {
    let mut weights = Weights::default();
    for (name, value) in &options.weight {
        let weight = match &**name {
            "saturation" => &mut weights.saturation,
            "length" => &mut weights.length,
            "usual_length" => &mut weights.usual_length,
            "section_saturation" => &mut weights.section_saturation,
            "section_length" => &mut weights.section_length,
            "title" => &mut weights.title,
            "path" => &mut weights.path,
            "description" => &mut weights.description,
            "heading" => &mut weights.heading,
            "definition" => &mut weights.definition,
            "whole" => &mut weights.whole,
            "vague" => &mut weights.vague,
            "section" => &mut weights.section,
            "further" => &mut weights.further,
            "proximity" => &mut weights.proximity,
            "distant" => &mut weights.distant,
            "joined" => &mut weights.joined,
            "rarity" => &mut weights.rarity,
            _ => bail!("there is no weight `{name}`"),
        };
        *weight = *value;
    }
    Ok(weights)
}

/// Measures the retrieval quality and then the large index.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let downloaded;
    let corpus = match &options.corpus {
        Some(folder) => folder.as_path(),
        None => {
            downloaded = download()?;
            downloaded.path()
        }
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let [phrases, symbols] = questions::python(corpus)?;
    let sets = [questions::perlfaq(corpus)?, phrases, symbols, questions::code(&repository, CODE_QUESTIONS)?];
    for set in
        sets.iter().filter(|set| options.set.is_empty() || options.set.iter().any(|name| name == set.name))
    {
        quality(set, options, report)?;
    }
    if options.quality || options.tune {
        return Ok(());
    }
    large::run(options.documents, report)?;
    served::run(options.documents, report)
}

/// Downloads and unpacks the packages.
fn download() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let run = |program: &str, arguments: &[&str]| -> Result<()> {
        let status = Command::new(program).args(arguments).current_dir(folder.path()).status();
        let status = status.with_context(|| format!("could not run `{program}`"))?;
        ensure!(
            status.success(),
            "`{program}` failed\nhint: name a folder with the unpacked packages with --corpus"
        );
        Ok(())
    };
    for package in PACKAGES {
        run("apt-get", &["download", package])?;
    }
    run("sh", &["-c", "for package in *.deb; do dpkg -x \"$package\" . || exit 1; done"])?;
    Ok(folder)
}

/// The target for nDCG at 10 of a set of questions.
fn aim(set: &str) -> Option<Aim> {
    match set {
        "perlfaq" => Some(Aim::AtLeast(0.74)),
        "phrases" => Some(Aim::AtLeast(0.76)),
        "symbols" => Some(Aim::AtLeast(0.95)),
        _ => None,
    }
}

/// Asks all engines the questions of a set, and reports each [`Split`] separately.
fn quality(set: &QuestionSet, options: &Options, report: &mut Report) -> Result<()> {
    eprintln!("{}: {} documents, {} questions …", set.name, set.documents.len(), set.questions.len());
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(Libris::new(&set.documents, weights(options)?)?)];
    if !options.tune {
        engines.push(Box::new(PlainBm25::new(&set.documents)?));
    }
    if !options.tune && !options.no_ripgrep {
        engines.push(Box::new(RipgrepCount::new(&set.documents)?));
    }
    let columns = ["engine", "questions", "count", "Recall@1", "Recall@5", "Recall@10", "nDCG@10"];
    let mut table = Table::new(format!("Search: {}", set.name), columns);
    let parts: &[Option<Split>] = match (options.tune, options.sealed) {
        (true, _) => &[Some(Split::Tuned)],
        (false, false) => &[Some(Split::Tuned), Some(Split::Checked)],
        (false, true) => &[Some(Split::Tuned), Some(Split::Checked), Some(Split::Sealed), None],
    };
    for engine in &engines {
        for part in parts.iter().copied() {
            let is_asked = |split| part.is_none_or(|part| part == split);
            let asked = set.questions.iter().filter(|question| is_asked(question.split()));
            let measured = Measures::of(engine.as_ref(), asked)?;
            let part = part.map_or("all", Split::name);
            table.row([
                Cell::from(engine.name()),
                Cell::from(part),
                Cell::from(measured.questions as f64),
                Cell::from(&*format!("{:.3}", measured.recall_at_1)),
                Cell::from(&*format!("{:.3}", measured.recall_at_5)),
                Cell::from(&*format!("{:.3}", measured.recall_at_10)),
                Cell::from(&*format!("{:.3}", measured.ndcg_at_10)),
            ]);
            let name = format!("search {} {part} {} nDCG@10", set.name, engine.name());
            match aim(set.name).filter(|_| engine.name() == "Libris") {
                Some(aim) => report.judge(name, measured.ndcg_at_10, "", aim),
                None => report.add(name, measured.ndcg_at_10, ""),
            }
        }
    }
    report.table(table);
    Ok(())
}
