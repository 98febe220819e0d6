//! Reads pages of a long PDF from a server: their cost compared with that of opening it, and the server's memory.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::machine::field;
use crate::mcp::Era;
use crate::process::memory;
use crate::program::{Binary, OverStdio};
use crate::report::{Aim, Report};

/// The pages of one read.
const RANGE: usize = 10;

/// How many ranges are read.
const READS: usize = 50;

/// The fewest pages that the document must have.
pub(super) const LEAST_PAGES: usize = RANGE + READS;

/// How long a file must be unchanged before its change time proves that it stays so.
const SETTLED: Duration = Duration::from_secs(3);

pub(super) fn run(binary: &Binary, document: &Path, pages: usize, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let docs = folder.path().join("docs");
    fs::create_dir(&docs)?;
    fs::copy(document, docs.join("long.pdf"))?;
    fs::write(docs.join("small.csv"), "a,b\n1,2\n")?;
    std::thread::sleep(SETTLED);
    let mut server = StdioServer::start(binary, &docs)?;
    // Loads the code of an extraction.
    server.read("file:///docs/small.csv?as=text")?;
    let before = memory(server.id)?;
    let text = |first: usize| format!("file:///docs/long.pdf?as=text&pages={first}-{}", first + RANGE - 1);
    let start = Instant::now();
    server.read(&text(1))?;
    let opening = start.elapsed();
    let start = Instant::now();
    let step = pages.saturating_sub(RANGE).max(1) / READS;
    for read in 0..READS {
        let first = 1 + read * step.max(1);
        let contents = server.read(&text(first))?;
        ensure!(contents.contains(&format!("<!-- page {first} -->")), "page {first} is missing");
    }
    let range = start.elapsed() / u32::try_from(READS)?;
    // The allocator returns freed memory to the system with a delay.
    std::thread::sleep(SETTLED);
    let after = memory(server.id)?;
    let peak = field(&format!("/proc/{}/status", server.id), "VmHWM").context("the server has ended")?;
    let peak: f64 = peak.trim_end_matches(" kB").parse()?;
    let share = opening.as_secs_f64() * RANGE as f64 / pages as f64;
    let name = document.file_name().unwrap_or_default().to_string_lossy().into_owned();
    report.add(format!("{name}: pages"), pages as f64, "");
    report.add(format!("{name}: first read of {RANGE} pages"), opening.as_secs_f64(), "s");
    report.add(format!("{name}: later read of {RANGE} pages"), range.as_secs_f64() * 1e3, "ms");
    report.judge(
        format!("{name}: later read of {RANGE} pages, beside their share of the first"),
        range.as_secs_f64() / share,
        "×",
        Aim::AtMost(1.0),
    );
    let mebibytes = |bytes: f64| bytes / (1 << 20) as f64;
    let growth = mebibytes(after as f64 - before as f64);
    report.judge(format!("{name}: growth of the server's memory"), growth, "MiB", Aim::AtMost(32.0));
    let peak = mebibytes(peak * 1024.0 - before as f64);
    report.judge(
        format!("{name}: growth of the server's memory at its peak"),
        peak,
        "MiB",
        Aim::AtMost(32.0),
    );
    Ok(())
}

/// A server over stdio, and sequential reads of its resources.
struct StdioServer {
    id: u32,
    server: OverStdio,
}

impl StdioServer {
    fn start(binary: &Binary, folder: &Path) -> Result<Self> {
        let server = binary.over_stdio(folder)?;
        Ok(Self { id: server.id(), server })
    }

    /// The text at a URI.
    fn read(&mut self, uri: &str) -> Result<String> {
        writeln!(self.server.input, "{}", Era::Modern.read(uri))?;
        let mut line = String::new();
        // One response at a time, so the reader buffers nothing of the next.
        BufReader::new(&mut self.server.output).read_line(&mut line)?;
        let response: Value = serde_json::from_str(&line)?;
        let text = response["result"]["contents"][0]["text"].as_str();
        text.map(str::to_owned).with_context(|| format!("{uri}: {response}"))
    }
}
