//! The start of a server with ten sources: folders, repositories, databases, an HTTP API and texts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;

use crate::drive::stdio::{hear, tell};
use crate::mcp::Era;
use crate::program::OverStdio;
use crate::report::{Aim, Report};
use crate::servers::Servers;
use crate::sources::data::{commit, make_database};
use crate::statistics::median;

/// The number of sources, and of folders, repositories and databases among them.
const SOURCES: usize = 10;
const FOLDERS: usize = 3;
const REPOSITORIES: usize = 3;
const DATABASES: usize = 2;

/// The number of files in each folder and each repository.
const FILES: usize = 100;

/// Measures the time to the first page of the list, which has resources of several sources.
pub(super) fn run(rounds: usize, servers: &Servers<'_>, report: &mut Report) -> Result<()> {
    eprintln!("starting with ten sources …");
    let folder = tempfile::tempdir()?;
    let config = config(folder.path())?;
    let times: Result<Vec<_>> = (0..rounds).map(|_| start(servers, &config)).collect();
    report.judge("start to first page of the list, ten sources", median(times?), "ms", Aim::AtMost(30.0));
    Ok(())
}

/// The time to the first page, in milliseconds.
fn start(servers: &Servers<'_>, config: &Path) -> Result<f64> {
    let begun = Instant::now();
    let mut command = servers.libris.configured(config);
    command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = OverStdio::connected(servers.cores.start(&mut command)?)?;
    tell(&mut running, &Era::Modern.list(None))?;
    let page = hear(&mut running)?;
    let time = begun.elapsed().as_secs_f64() * 1e3;
    ensure!(memmem::find_iter(&page, b"{\"uri\":").count() == 100, "the first page is not full");
    ensure!(memmem::find(&page, b"dev.libris/unavailable").is_none(), "a source is unavailable");
    Ok(time)
}

/// Makes the sources. Returns the configuration that serves them.
fn config(folder: &Path) -> Result<PathBuf> {
    let mut text = String::new();
    let files = |name: String| {
        let path = folder.join(name);
        std::fs::create_dir(&path)?;
        for number in 0..FILES {
            std::fs::write(path.join(format!("{number:04}.txt")), "a line\n")?;
        }
        anyhow::Ok(path)
    };
    for number in 0..FOLDERS {
        writeln!(text, "[[files]]\npath = {:?}", files(format!("folder-{number}"))?)?;
    }
    for number in 0..REPOSITORIES {
        let path = files(format!("repository-{number}"))?;
        commit(&path)?;
        writeln!(text, "[[git]]\npath = {path:?}")?;
    }
    for number in 0..DATABASES {
        let path = folder.join(format!("shop-{number}.db"));
        make_database(&path, "wal")?;
        writeln!(text, "[[sql]]\nurl = \"sqlite:{}\"", path.display())?;
    }
    text.push_str(
        "[[http]]\nname = \"api\"\nbase = \"https://localhost\"\n\n\
         [[http.template]]\nuri = \"api://items/{id}\"\nurl = \"items/{id}\"\n\n\
         [[inline.resource]]\nuri = \"text://greeting\"\ntext = \"hello\"\n",
    );
    ensure!(FOLDERS + REPOSITORIES + DATABASES + 2 == SOURCES, "there are not ten sources");
    let path = folder.join("ten.toml");
    std::fs::write(&path, text).context("could not write the configuration")?;
    Ok(path)
}
