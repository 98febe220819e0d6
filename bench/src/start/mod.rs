//! The time from process start to the first response, and to the end of a complete listing.

mod ten;
mod walk;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::drive::stdio::{hear, tell};
use crate::mcp::{self, Era};
use crate::process;
use crate::program::OverStdio;
use crate::report::{Aim, Report};
use crate::servers::{Server, Servers};
use crate::statistics::median;
use crate::table::Table;
use crate::tree::{self, Trees};

/// The number of resources of the large folder.
const MANY: usize = 100_000;

/// Measures start times and complete listings.
pub(crate) fn run(quick: bool, servers: &Servers<'_>, trees: &Trees, report: &mut Report) -> Result<()> {
    let rounds = if quick { 5 } else { 15 };
    // Slow servers take seconds to start, so fewer starts are precise enough.
    let slow = if quick { 1 } else { 3 };
    first_answers(rounds, slow, servers, report).context("with an empty folder")?;
    if servers.all.contains(&Server::Libris) {
        let folder = trees.make(MANY)?;
        let read =
            median_of(rounds, || first(servers, Server::Libris, &folder, &Era::Modern.read(&tree::uri())))?;
        report.judge("start to first read, 100,000 resources", read, "ms", Aim::AtMost(30.0));
        let list = median_of(rounds, || first(servers, Server::Libris, &folder, &Era::Modern.list(None)))?;
        report.add("start to first page of the list, 100,000 resources", list, "ms");
        walk::run(rounds.min(5), servers, &folder, report)?;
        ten::run(rounds, servers, report).context("with ten sources")?;
    }
    Ok(())
}

/// Starts a server. Returns it and the time to its first response.
fn first(
    servers: &Servers<'_>,
    server: Server,
    folder: &Path,
    request: &Value,
) -> Result<(Duration, OverStdio)> {
    let begun = Instant::now();
    let mut running = servers.over_stdio(server, folder)?;
    tell(&mut running, request)?;
    hear(&mut running)?;
    Ok((begun.elapsed(), running))
}

/// The median of several starts, in milliseconds.
fn median_of(rounds: usize, start: impl Fn() -> Result<(Duration, OverStdio)>) -> Result<f64> {
    let times: Result<Vec<_>> = (0..rounds).map(|_| Ok(start()?.0.as_secs_f64() * 1e3)).collect();
    Ok(median(times?))
}

/// The time of each server to its first response, with an empty folder.
fn first_answers(rounds: usize, slow: usize, servers: &Servers<'_>, report: &mut Report) -> Result<()> {
    eprintln!("starting servers …");
    let root = tempfile::tempdir()?;
    let folder = root.path().join("empty");
    std::fs::create_dir(&folder)?;
    let started: Vec<_> = servers.all.iter().copied().filter(|server| server.has_stdio()).collect();
    let mut times = vec![Vec::new(); started.len()];
    let mut memory = vec![0; started.len()];
    for round in 0..rounds {
        for (at, &server) in started.iter().enumerate() {
            if round >= slow && !server.is_rust() {
                continue;
            }
            let request = match server.era() {
                Era::Modern => Era::Modern.list(None),
                Era::Legacy => mcp::initialize(),
            };
            let (time, running) = first(servers, server, &folder, &request).with_context(|| server.name())?;
            times[at].push(time.as_secs_f64() * 1e3);
            memory[at] = process::memory(running.id())?;
        }
    }
    let title = "Start to first answer over stdio, and memory at rest";
    let mut table = Table::new(title, ["server", "first answer ms", "memory MiB"]);
    let mut medians = Vec::new();
    for ((&server, times), memory) in started.iter().zip(times).zip(memory) {
        let time = median(times);
        medians.push((server, time));
        table.row([server.name().into(), time.into(), (memory as f64 / f64::from(1 << 20)).into()]);
    }
    report.table(table);
    let time = |server| medians.iter().find(|(other, _)| *other == server).map(|(_, time)| *time);
    if let Some(libris) = time(Server::Libris) {
        report.judge("start to first answer, nothing to serve", libris, "ms", Aim::AtMost(10.0));
        for other in [Server::Typescript, Server::Python] {
            let name = format!("start to first answer ÷ {}", other.name());
            report.judge_if_measured(name, time(other).map(|time| libris / time), Aim::AtMost(0.05));
        }
    }
    Ok(())
}
