//! Attacks by slow operations outside of Libris: a slow program, and files that block git.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use super::bystander::SMALL;
use super::client::{ELSEWHERE, crowd};
use super::probe::{Probe, Series};
use super::site::Site;
use super::watch::Watch;
use super::{Outcome, Stage};
use crate::mcp::Era;

/// The time between two requests of a probe.
const PACE: Duration = Duration::from_millis(50);

/// The number of files for uncached reads.
const COLD: usize = 2_000;

/// Reads the output of a command that takes 8 s, over 1,000 connections.
pub(super) async fn slow_command(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    let folder = site.folder("cold")?;
    for number in 0..COLD {
        std::fs::write(folder.join(format!("{number}.txt")), "cold")?;
    }
    site.configure("[[command]]\nuri = \"slow://now\"\nrun = [\"sleep\", \"8\"]");
    let target = site.serve(stage)?;
    let address = target.address();
    let posted =
        move |method: &str, params| Era::Modern.posted(address, None, &Era::Modern.request(method, params));
    let watch = Watch::begin(&target).await?;
    let template = json!({ "type": "ref/resource", "uri": "file:///cold/{+path}{?lines,bytes}" });
    let typed = json!({ "name": "path", "value": "1" });
    let fixed = [
        ("discover", posted("server/discover", json!({}))),
        ("list", posted("resources/list", json!({}))),
        ("completion", posted("completion/complete", json!({ "ref": template, "argument": typed }))),
        ("cached read", posted("resources/read", json!({ "uri": SMALL }))),
    ];
    let mut probes: Vec<_> = fixed
        .into_iter()
        .map(|(name, request)| (name, Probe::start(address, ELSEWHERE, PACE, move |_| request.clone())))
        .collect();
    let cold = move |number: usize| {
        posted("resources/read", json!({ "uri": format!("file:///cold/{}.txt", number % COLD) }))
    };
    probes.push(("cold read", Probe::start(address, ELSEWHERE, PACE, cold)));
    let count = stage.scaled(1_000);
    let slow = Era::Modern.posted(address, None, &Era::Modern.read("slow://now"));
    let outcomes = crowd(address, count, Duration::from_secs(30), |_| slow.clone()).await?;
    let mut observed = format!("{count} slow reads: {}", outcomes.into_iter().collect::<Series>());
    for (name, probe) in probes {
        observed.push_str(&format!("; {name} {}", probe.stop().await?));
    }
    Ok(Outcome::new(watch.end().await?, observed))
}

/// Lists and reads repositories among whose refs are a FIFO and a sparse file, and a folder beside them.
pub(super) async fn git_fifo(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    let plain = site.folder("plain")?;
    for number in 0..COLD {
        std::fs::write(plain.join(format!("{number}.txt")), "plain")?;
    }
    for name in ["fifo", "sparse"] {
        let repository = site.path().join(name);
        std::fs::create_dir(&repository)?;
        commit(&repository)?;
        let evil = repository.join(".git/refs/heads/evil");
        match name {
            "fifo" => mknodat(CWD, &evil, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                .context("could not make a FIFO")?,
            _ => File::create(&evil)?.set_len(4 << 30).context("could not make a sparse file")?,
        }
        site.configure(&format!("[[git]]\npath = \"{name}\""));
    }
    let target = site.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let read = move |uri: &str| Era::Modern.posted(address, None, &Era::Modern.read(uri));
    let beside = Probe::start(address, ELSEWHERE, PACE, move |number| {
        read(&format!("file:///plain/{}.txt", number % COLD))
    });
    let mut observed = String::new();
    let count = stage.scaled(100);
    for name in ["fifo", "sparse"] {
        let requests = [
            Era::Modern.posted(address, None, &Era::Modern.list(None)),
            read(&format!("git://{name}/refs")),
            read(&format!("git://{name}/blob/HEAD/file.txt")),
            read(&format!("git://{name}/log/evil")),
        ];
        let patience = Duration::from_secs(15);
        let outcomes =
            crowd(address, count, patience, |number| requests[number % requests.len()].clone()).await?;
        observed
            .push_str(&format!("{name}, {count} requests: {}; ", outcomes.into_iter().collect::<Series>()));
    }
    observed.push_str(&format!("the folder beside: {}", beside.stop().await?));
    Ok(Outcome::new(watch.end().await?, observed))
}

/// Makes a repository with one commit.
fn commit(folder: &Path) -> Result<()> {
    std::fs::write(folder.join("file.txt"), "in a commit")?;
    for arguments in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "."],
        &["-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "one"],
    ] {
        let status = Command::new("git").args(arguments).current_dir(folder).status();
        let status = status.context("could not run `git`")?;
        ensure!(status.success(), "`git {}` failed", arguments.join(" "));
    }
    Ok(())
}
