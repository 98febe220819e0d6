//! A repository of 100,000 files and 2,000 commits, compared with the `git` program.

mod repository;

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;

use crate::drive::stdio::{hear, tell};
use crate::mcp::{Era, next_cursor};
use crate::process::{self, Computing};
use crate::program::{Binary, OverStdio};
use crate::report::{Aim, Report};
use crate::statistics::median;
use repository::{FILES, git, make, path, uri};

/// The number of files that are read.
const READS: usize = 1000;

/// Measures listing and reading. Each read is of a different file, so that no response is cached.
pub(crate) fn run(quick: bool, binary: &Binary, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let repository = make(folder.path())?;
    let rounds = if quick { 5 } else { 15 };
    lists(rounds, binary, &repository, report)?;
    reads(binary, &repository, report)?;
    whole(binary, &repository, report)
}

fn serve(binary: &Binary, repository: &Path) -> Result<OverStdio> {
    let mut source = OsString::from("git:");
    source.push(repository);
    binary.over_stdio(Path::new(&source))
}

fn ask(server: &mut OverStdio, request: &serde_json::Value) -> Result<Vec<u8>> {
    tell(server, request)?;
    hear(server)
}

/// The first page of the list, alternating with `git ls-tree -r HEAD`.
fn lists(rounds: usize, binary: &Binary, repository: &Path, report: &mut Report) -> Result<()> {
    eprintln!("listing …");
    let (mut program, mut started, mut running) = (Vec::new(), Vec::new(), Vec::new());
    let milliseconds = |begun: Instant| begun.elapsed().as_secs_f64() * 1e3;
    for _ in 0..rounds {
        let begun = Instant::now();
        let printed = git(repository, &["ls-tree", "-r", "HEAD"])?;
        program.push(milliseconds(begun));
        ensure!(memchr::memchr_iter(b'\n', &printed).count() == FILES, "`git ls-tree` prints another number");

        let begun = Instant::now();
        let mut server = serve(binary, repository)?;
        let page = ask(&mut server, &Era::Modern.list(None))?;
        started.push(milliseconds(begun));
        ensure!(memmem::find_iter(&page, b"{\"uri\":").count() == 100, "the first page is not full");

        let mut server = serve(binary, repository)?;
        ask(&mut server, &Era::Modern.request("resources/templates/list", serde_json::json!({})))?;
        let begun = Instant::now();
        ask(&mut server, &Era::Modern.list(None))?;
        running.push(milliseconds(begun));
    }
    report.add("`git ls-tree -r HEAD`, 100,000 files", median(program.iter().copied()), "ms");
    report.add("start to first page of the list", median(started.iter().copied()), "ms");
    report.add("first page of the list, never asked for before", median(running.iter().copied()), "ms");
    for (name, times) in
        [("start to first page ÷ `git ls-tree`", started), ("first page ÷ `git ls-tree`", running)]
    {
        let ratio = median(times.iter().zip(&program).map(|(own, program)| own / program));
        report.judge_if_measured(name, Some(ratio), Aim::AtMost(1.2));
    }
    Ok(())
}

fn reads(binary: &Binary, repository: &Path, report: &mut Report) -> Result<()> {
    eprintln!("reading …");
    let mut server = serve(binary, repository)?;
    for (name, rev) in
        [("read a file by its path at `HEAD`", "HEAD"), ("the same 1,000 commits before", "HEAD~1000")]
    {
        let cost = computing(&mut server, |number| uri(rev, &path(number * (FILES / READS) + 7)))?;
        report.judge(format!("{name}: computing"), cost, "ms", Aim::AtMost(2.0));
    }
    let folder = |number| {
        format!("git://many/tree/HEAD/{}", path(number * (FILES / READS)).trim_end_matches("f00.txt"))
    };
    report.add("read a folder of 100 files: computing", computing(&mut server, folder)?, "ms");
    let log = uri("HEAD", "").replace("/blob/HEAD/", "/log/HEAD?path=");
    let begun = Instant::now();
    ask(&mut server, &Era::Modern.read(&format!("{log}{}", path(7_919 * 2_000 % FILES))))?;
    report.add("log of one file through 2,000 commits", begun.elapsed().as_secs_f64() * 1e3, "ms");
    let begun = Instant::now();
    ask(&mut server, &Era::Modern.read("git://many/diff/HEAD~1000/HEAD"))?;
    report.add("diff of 1,000 commits", begun.elapsed().as_secs_f64() * 1e3, "ms");
    report.add("memory after that", megabytes(&server)?, "MiB");
    Ok(())
}

/// The server's CPU time per read, in milliseconds.
fn computing(server: &mut OverStdio, uri: impl Fn(usize) -> String) -> Result<f64> {
    ask(server, &Era::Modern.read(&uri(0)))?;
    let before = Computing::of(server.id())?;
    for number in 1..=READS {
        let uri = uri(number % READS);
        let answer = ask(server, &Era::Modern.read(&uri))?;
        ensure!(memmem::find(&answer, b"\"contents\":").is_some(), "`{uri}` was not read");
    }
    Ok(Computing::of(server.id())?.since(&before).as_secs_f64() * 1e3 / READS as f64)
}

/// A complete listing.
fn whole(binary: &Binary, repository: &Path, report: &mut Report) -> Result<()> {
    eprintln!("listing everything …");
    let mut server = serve(binary, repository)?;
    ask(&mut server, &Era::Modern.request("resources/templates/list", serde_json::json!({})))?;
    let before = megabytes(&server)?;
    let begun = Instant::now();
    let mut request = Era::Modern.list(None);
    let mut found = 0;
    loop {
        let page = ask(&mut server, &request)?;
        found += memmem::find_iter(&page, b"{\"uri\":").count();
        let Some(cursor) = next_cursor(&page)? else { break };
        request["params"]["cursor"] = cursor.into();
    }
    ensure!(found > FILES, "the list has only {found} resources");
    report.add("the whole list, page by page", begun.elapsed().as_secs_f64() * 1e3, "ms");
    report.add("memory before the list", before, "MiB");
    report.judge("memory after the whole list", megabytes(&server)?, "MiB", Aim::AtMost(200.0));
    Ok(())
}

fn megabytes(server: &OverStdio) -> Result<f64> {
    let memory = process::memory(server.id()).context("could not tell the memory")?;
    Ok(memory as f64 / f64::from(1 << 20))
}
