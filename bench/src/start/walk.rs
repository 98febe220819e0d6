//! A complete listing of a folder, compared with `rg --files`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;

use super::MANY;
use crate::drive::stdio::{hear, tell};
use crate::mcp::{Era, next_cursor};
use crate::program::OverStdio;
use crate::report::{Aim, Report};
use crate::servers::Servers;
use crate::statistics::median;

/// Lists a folder with a new process each time, alternating with `rg`.
pub(super) fn run(rounds: usize, servers: &Servers<'_>, folder: &Path, report: &mut Report) -> Result<()> {
    eprintln!("walking …");
    let (mut pages, mut walks) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        pages.push(page_through(servers, folder)?);
        match rg(servers, folder) {
            Ok(time) => walks.push(time),
            Err(error) => {
                eprintln!("there is nothing to compare a walk with: {error:#}\nhint: install ripgrep")
            }
        }
    }
    report.add("start to last page of the list, 100,000 resources", median(pages.iter().copied()), "ms");
    if !walks.is_empty() {
        report.add("`rg --files` and a stat of each", median(walks.iter().copied()), "ms");
        let ratio = median(pages.iter().zip(&walks).map(|(pages, walk)| pages / walk));
        report.judge_if_measured("start to last page ÷ `rg`", Some(ratio), Aim::AtMost(1.5));
    }
    Ok(())
}

/// The time from the start to the last page, in milliseconds. As in `rg`, all cores may be used.
fn page_through(servers: &Servers<'_>, folder: &Path) -> Result<f64> {
    let begun = Instant::now();
    let mut command = servers.libris.command(folder);
    command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = OverStdio::connected(servers.cores.start_anywhere(&mut command)?)?;
    let mut request = Era::Modern.list(None);
    let mut found = 0;
    loop {
        tell(&mut running, &request)?;
        let page = hear(&mut running)?;
        found += memmem::find_iter(&page, b"{\"uri\":").count();
        let Some(cursor) = next_cursor(&page)? else { break };
        request["params"]["cursor"] = cursor.into();
    }
    ensure!(found == MANY, "the list has {found} resources, not {MANY}");
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// The time in which `rg` lists all files and each file is queried with `stat`, in milliseconds.
fn rg(servers: &Servers<'_>, folder: &Path) -> Result<f64> {
    let begun = Instant::now();
    let mut command = Command::new("rg");
    command.arg("--files").arg(folder).stdout(Stdio::piped());
    let mut child = servers.cores.start_anywhere(&mut command)?;
    let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    let mut found = 0;
    for line in lines {
        std::fs::symlink_metadata(line?)?;
        found += 1;
    }
    child.wait()?;
    ensure!(found > 0, "`rg` found nothing");
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}
