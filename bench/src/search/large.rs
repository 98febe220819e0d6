//! A large index: the cost of building it, its size and memory, queries and updates, compared with plain tantivy on the
//! same text.
//!
//! Each part runs in a separate process, so that its memory can be measured. The CPU time of building excludes that of
//! generating the documents. The judged memory is anonymous memory; mapped files, which the kernel can drop, are
//! reported beside it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libris::{Resource, SearchQuery, Uri};
use libris_search::{IndexError, IndexUpdater, IndexedResource, SearchIndex, VisibleResources};
use serde_json::{Value, json};
use tantivy::TantivyDocument;
use tantivy::schema::{STORED, STRING, Schema, TEXT};

use crate::report::{Aim, Report};

/// The number of different words in the documents.
const VOCABULARY: usize = 50_000;

/// How many searches are measured.
const QUERIES: usize = 500;

/// The part that a process measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LargePart {
    Build,
    Search,
    Raw,
}

/// Measures all parts, each in a new process of this program.
pub(crate) fn run(documents: usize, report: &mut Report) -> Result<()> {
    eprintln!("an index of {documents} documents …");
    let folder = tempfile::tempdir()?;
    let part = |name: &str| -> Result<Value> {
        let output = Command::new(std::env::current_exe()?)
            .args(["search-part", name])
            .arg(folder.path())
            .arg(documents.to_string())
            .output()
            .context("could not start a process")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let (build, search, raw) = (part("build")?, part("search")?, part("raw")?);
    let number = |from: &Value, key: &str| from[key].as_f64().unwrap_or(f64::NAN);
    report.judge(
        "search build CPU beside tantivy",
        number(&build, "cpu") / number(&raw, "cpu"),
        "×",
        Aim::AtMost(1.5),
    );
    report.judge(
        "search index size beside tantivy",
        number(&build, "bytes") / number(&raw, "bytes"),
        "×",
        Aim::AtMost(1.5),
    );
    report.add("search build CPU", number(&build, "cpu"), "s");
    report.add("search index size", number(&build, "bytes") / 1e6, "MB");
    report.judge("search memory while building", number(&build, "peak"), "MiB", Aim::AtMost(150.0));
    report.judge("search memory after queries", number(&search, "resident"), "MiB", Aim::AtMost(60.0));
    report.add("search memory while building, with mapped files", number(&build, "mapped"), "MiB");
    report.add("search memory after queries, with mapped files", number(&search, "mapped"), "MiB");
    report.add("search first hit of an opened index, CPU", number(&search, "first"), "ms");
    report.add("search query CPU, median", number(&search, "p50"), "ms");
    report.judge("search query CPU, p99", number(&search, "p99"), "ms", Aim::AtMost(20.0));
    report.add("search a changed document is in the index after", number(&search, "update"), "ms");
    Ok(())
}

/// Measures one part and prints the numbers as JSON.
pub(crate) fn part(part: LargePart, folder: &Path, documents: usize) -> Result<()> {
    let measured = match part {
        LargePart::Build => build(&folder.join("libris"), documents)?,
        LargePart::Search => search(&folder.join("libris"))?,
        LargePart::Raw => raw(&folder.join("raw"), documents)?,
    };
    println!("{measured}");
    Ok(())
}

/// A pseudo-random generator with a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The rank of a word: low ranks are frequent, as in natural language.
    fn rank(&mut self) -> usize {
        let uniform = (self.next() % 1_000_000) as f64 / 1e6;
        ((VOCABULARY as f64).powf(uniform) as usize).min(VOCABULARY - 1)
    }
}

/// The word of a rank, the same in every run.
pub(super) fn word(rank: usize) -> String {
    const SYLLABLES: [&str; 16] = [
        "ka", "lo", "mi", "ter", "san", "vo", "ri", "ned", "pol", "gu", "fex", "da", "sim", "bro", "qua",
        "ly",
    ];
    let mut text = String::new();
    let mut rest = rank + 16;
    while rest > 0 {
        text.push_str(SYLLABLES[rest % 16]);
        rest /= 16;
    }
    text
}

/// A document of about 300 words in four sections.
pub(super) fn document(number: usize) -> String {
    let mut numbers = Numbers(number as u64 * 0x9e37_79b9 + 1);
    let mut text = String::new();
    for _ in 0..4 {
        text.push_str("# ");
        for _ in 0..3 {
            text.push_str(&word(numbers.rank()));
            text.push(' ');
        }
        text.push_str("\n\n");
        for position in 0..75 {
            text.push_str(&word(numbers.rank()));
            text.push_str(if position % 12 == 11 { "\n" } else { " " });
        }
        text.push_str("\n\n");
    }
    text
}

/// Puts a document into the index with the given method.
fn write<'i>(
    updater: &IndexUpdater<'i>,
    method: fn(&IndexUpdater<'i>, &IndexedResource<'_>) -> Result<(), IndexError>,
    number: usize,
    text: &str,
) -> Result<()> {
    let uri = Uri::parse(&format!("file:///large/{}/{number}.md", number % 100))?;
    let resource = Resource::new(uri, format!("{number}.md"));
    let indexed = IndexedResource {
        resource: &resource,
        source: "large",
        note: None,
        text: Some(text),
        text_uri: None,
        stamp: 1,
    };
    Ok(method(updater, &indexed)?)
}

fn build(folder: &Path, documents: usize) -> Result<Value> {
    // The kernel records no peak of memory without mapped files, so it is sampled.
    let peak = Arc::new(AtomicU64::new(0));
    let watched = peak.clone();
    std::thread::spawn(move || {
        loop {
            watched.fetch_max(memory("RssAnon:").unwrap_or_default() as u64, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let generation = generation_cpu(documents)?;
    let begun = process_cpu()?;
    let index = SearchIndex::open(folder)?;
    let mut updater = index.updater()?.context("the index is being updated")?;
    for number in 0..documents {
        // As the feeder does with resources that the index does not have.
        write(&updater, IndexUpdater::add, number, &document(number))?;
    }
    updater.commit()?;
    updater.finish()?;
    let cpu = process_cpu()? - begun - generation;
    let peak = peak.load(Ordering::Relaxed);
    Ok(json!({ "cpu": cpu, "bytes": size(folder)?, "peak": peak, "mapped": memory("VmHWM:")? }))
}

fn search(folder: &Path) -> Result<Value> {
    let begun = thread_cpu()?;
    let index = SearchIndex::open(folder)?;
    let ask = |text: String| index.search(&SearchQuery::new(text, 10), &VisibleResources::All);
    let first = ask(word(5000))?;
    ensure!(!first.hits.is_empty(), "nothing was found");
    let first = (thread_cpu()? - begun) * 1e3;
    let mut numbers = Numbers(77);
    let mut times = Vec::with_capacity(QUERIES);
    for number in 0..QUERIES {
        let words: Vec<_> = (0..2 + number % 3).map(|_| word(numbers.rank())).collect();
        let begun = thread_cpu()?;
        ask(words.join(" "))?;
        times.push((thread_cpu()? - begun) * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let (resident, mapped) = (memory("RssAnon:")?, memory("VmRSS:")?);
    let mut updater = index.updater()?.context("the index is being updated")?;
    let begun = Instant::now();
    write(&updater, IndexUpdater::put, 7, "a changed document with the word wholly unheard")?;
    updater.commit()?;
    ensure!(ask("unheard".to_owned())?.hits.len() == 1, "the changed document is not found");
    let update = begun.elapsed().as_secs_f64() * 1e3;
    Ok(json!({
        "first": first,
        "p50": times[QUERIES / 2],
        "p99": times[QUERIES * 99 / 100],
        "resident": resident,
        "mapped": mapped,
        "update": update,
    }))
}

/// tantivy with a stored text field and its default tokenizer, with the same memory and one thread.
fn raw(folder: &Path, documents: usize) -> Result<Value> {
    let generation = generation_cpu(documents)?;
    let begun = process_cpu()?;
    std::fs::create_dir_all(folder)?;
    let mut schema = Schema::builder();
    let path = schema.add_text_field("path", STRING | STORED);
    let body = schema.add_text_field("body", TEXT | STORED);
    let index = tantivy::Index::create_in_dir(folder, schema.build())?;
    let mut writer = index.writer_with_num_threads(1, 15_000_000)?;
    for number in 0..documents {
        let mut row = TantivyDocument::new();
        row.add_text(path, format!("file:///large/{}/{number}.md", number % 100));
        row.add_text(body, document(number));
        writer.add_document(row)?;
    }
    writer.commit()?;
    writer.wait_merging_threads()?;
    let cpu = process_cpu()? - begun - generation;
    Ok(json!({ "cpu": cpu, "bytes": size(folder)? }))
}

/// The seconds of CPU time that generating the documents takes.
fn generation_cpu(documents: usize) -> Result<f64> {
    let begun = process_cpu()?;
    (0..documents).for_each(|number| drop(std::hint::black_box(document(number))));
    Ok(process_cpu()? - begun)
}

/// The seconds of CPU time of this process.
fn process_cpu() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

/// The seconds of CPU time of this thread.
fn thread_cpu() -> Result<f64> {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = schedule.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
    Ok(nanoseconds.context("no scheduler statistics")? / 1e9)
}

/// A field of the status of this process, in MiB.
fn memory(field: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no memory statistics")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes / 1024.0)
}

/// The bytes of all files in a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for path in super::questions::files_below(folder)? {
        sum += std::fs::metadata(path)?.len();
    }
    Ok(sum)
}
