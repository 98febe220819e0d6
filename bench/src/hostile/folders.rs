//! Attacks on a folder: its ignore rules, its path, and hostile contents.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::{ATTACKER, Client, Tally, crowd, unread};
use super::probe::Series;
use super::site::{Site, Target};
use super::watch::Watch;
use super::{Outcome, Stage};
use crate::mcp::Era;

/// The content of each file that is hidden or outside the folder, and so must not be read.
const SECRET: &str = "must-not-be-read";

/// The limit of file descriptors of a server that is to run out of them.
const FEW: usize = 1_024;

/// Hidden files are requested with 0 up to this many free descriptors.
const FREE: usize = 12;

/// After that, they are requested again with this many more free descriptors.
const MANY: usize = 32;

/// The files that the ignore files of the folder hide.
const HIDDEN: [&str; 4] = ["secret.txt", "private/key.txt", "below/local.txt", "below/deep/log.txt"];

/// Uses up all file descriptors of a server and requests files that `.gitignore` hides, while the server may be unable
/// to read that file.
pub(super) async fn ignored(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    site.descriptors = Some(FEW);
    let folder = site.folder("data")?;
    std::fs::create_dir_all(folder.join("below/deep"))?;
    std::fs::create_dir(folder.join("private"))?;
    for file in HIDDEN {
        std::fs::write(folder.join(file), SECRET)?;
    }
    std::fs::write(folder.join("shown.txt"), "shown")?;
    std::fs::write(folder.join("below/shown.txt"), "shown")?;
    let rules = [(".gitignore", "secret*\n/private/\n"), ("below/.gitignore", "local.txt\nlog.txt\n")];
    // Replaced atomically, so that the rules are never empty.
    let write_rules = |folder: &Path| {
        rules.iter().try_for_each(|(file, text)| {
            let new = folder.join(".new");
            std::fs::write(&new, text).and_then(|()| std::fs::rename(new, folder.join(file)))
        })
    };
    write_rules(&folder)?;
    let target = site.serve(stage)?;
    let address = target.address();
    // Opened while there are free descriptors, like the connection of an earlier client.
    let mut client = Client::open(address, ATTACKER).await?;
    // The server closes connections without a request first, so one is sent.
    client.ask(&Era::Modern.posted(address, None, &Era::Modern.list(None))).await?;
    let churning = stage.time(Duration::from_secs(8));
    let watch = Watch::begin(&target).await?;
    let (mut idle, mut kinds, mut leaks) = (Vec::new(), Tally::default(), 0);
    let mut taken = 0;
    for free in 0..FREE {
        take_all(&mut idle, &target).await?;
        taken = taken.max(target.descriptors());
        idle.truncate(idle.len() - free);
        // Invalidates what the server has cached of the rules and the folder.
        write_rules(&folder)?;
        std::fs::write(folder.join("new.txt"), free.to_string())?;
        leaks += hidden_asked_for(&mut client, &target, &mut kinds).await?;
        // A wrong result without descriptors may have been cached, and would show now.
        idle.truncate(idle.len() - MANY);
        tokio::time::sleep(Duration::from_millis(20)).await;
        leaks += hidden_asked_for(&mut client, &target, &mut kinds).await?;
    }
    // Then descriptors become free and used up again between the steps of a request.
    take_all(&mut idle, &target).await?;
    let begun = Instant::now();
    let churn = tokio::spawn(async move {
        for number in 0.. {
            idle.truncate(idle.len() - number % 4);
            tokio::time::sleep(Duration::from_millis(1)).await;
            for _ in 0..number % 4 {
                idle.push(unread(address).await?);
            }
            if begun.elapsed() > churning {
                break;
            }
        }
        Ok::<_, anyhow::Error>(())
    });
    while !churn.is_finished() {
        write_rules(&folder)?;
        std::fs::write(folder.join("new.txt"), begun.elapsed().as_nanos().to_string())?;
        leaks += hidden_asked_for(&mut client, &target, &mut kinds).await?;
    }
    churn.await??;
    let measured = watch.end().await?;
    let observed = format!(
        "{taken} of {FEW} descriptors taken; lists and reads: {kinds}; {} lines logged",
        target.logged()
    );
    Ok(Outcome { leaks, ..Outcome::new(measured, observed) })
}

/// Opens idle connections until the server has no descriptor left.
async fn take_all(idle: &mut Vec<TcpStream>, target: &Target) -> Result<()> {
    let begun = Instant::now();
    loop {
        let open = target.descriptors();
        if open >= FEW || idle.len() > FEW {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(20),
            "the server still has descriptors: {open} of {FEW} are open"
        );
        // Not more than it can accept: a connection in its queue would take a descriptor that is freed later.
        for _ in 0..((FEW - open) / 2).max(1) {
            idle.push(unread(target.address()).await?);
        }
        let accepting = Instant::now();
        while target.descriptors() <= open && accepting.elapsed() < Duration::from_secs(1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Lists everything and reads every hidden file. Returns how often something hidden was revealed.
async fn hidden_asked_for(client: &mut Client, target: &Target, kinds: &mut Tally) -> Result<usize> {
    let mut leaks = 0;
    let uris = HIDDEN.map(|file| format!("file:///data/{file}"));
    let folders = ["", "below/", "below/deep/", "private/"].map(|folder| format!("file:///data/{folder}"));
    let reads = uris.iter().chain(&folders).map(|uri| Era::Modern.read(uri));
    for message in std::iter::once(Era::Modern.list(None)).chain(reads) {
        let request = Era::Modern.posted(target.address(), None, &message);
        let answered = tokio::time::timeout(Duration::from_secs(10), client.ask(&request)).await;
        let answer = answered.context("no answer within ten seconds")??;
        kinds.count(answer.kind());
        let has = |text: &str| memmem::find(&answer.body, text.as_bytes()).is_some();
        // An error repeats the requested URI, which is no leak; a successful response with a hidden URI is one.
        let shows = answer.kind() == "ok" && uris.iter().any(|uri| has(uri));
        leaks += usize::from(has(SECRET) || shows);
    }
    Ok(leaks)
}

/// Swaps the served folder and a symbolic link to another one as fast as possible while files are read.
pub(super) async fn root_race(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    let folder = site.folder("data")?;
    let outside = site.path().join("outside");
    let link = site.path().join("link");
    std::fs::create_dir(&outside)?;
    std::os::unix::fs::symlink(&outside, &link)?;
    for name in ["file.txt", "other.txt"] {
        std::fs::write(folder.join(name), "inside")?;
        std::fs::write(outside.join(name), SECRET)?;
    }
    std::fs::write(outside.join("only-outside.txt"), SECRET)?;
    let target = site.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let until = Instant::now() + stage.time(Duration::from_secs(15));
    let exchanges = Arc::<AtomicUsize>::default();
    let count = exchanges.clone();
    let racer = std::thread::spawn(move || {
        while Instant::now() < until {
            renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE)?;
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<_, rustix::io::Errno>(())
    });
    let mut readers = JoinSet::new();
    for reader in 0..4 {
        let uris = ["file.txt", "other.txt", "file.txt?lines=1-1", "only-outside.txt", ""];
        let requests = uris
            .map(|uri| Era::Modern.posted(address, None, &Era::Modern.read(&format!("file:///data/{uri}"))));
        readers.spawn(async move {
            let (mut kinds, mut leaks) = (Vec::new(), 0);
            let mut client = Client::open(address, ATTACKER).await?;
            let mut number = reader;
            while Instant::now() < until {
                let answer = client.ask(&requests[number % requests.len()]).await?;
                leaks += usize::from(memmem::find(&answer.body, SECRET.as_bytes()).is_some());
                kinds.push(answer.kind());
                number += 1;
            }
            Ok::<_, anyhow::Error>((kinds, leaks))
        });
    }
    let (mut kinds, mut leaks) = (Tally::default(), 0);
    while let Some(read) = readers.join_next().await {
        let (kinds_of_one, leaks_of_one) = read??;
        kinds.extend(kinds_of_one);
        leaks += leaks_of_one;
    }
    let raced = racer.join().ok().context("the thread that exchanges folders failed")?;
    raced.context("could not exchange a folder and a link")?;
    let measured = watch.end().await?;
    let observed = format!("{} exchanges; reads: {kinds}", exchanges.load(Ordering::Relaxed));
    Ok(Outcome { leaks, ..Outcome::new(measured, observed) })
}

/// Requests lines of a sparse file of 1 TB without a line break.
pub(super) async fn sparse_lines(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    let folder = site.folder("data")?;
    File::create(folder.join("huge.txt"))?.set_len(1 << 40).context("could not make a sparse file")?;
    let target = site.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let count = stage.scaled(64);
    let read = Era::Modern.posted(address, None, &Era::Modern.read("file:///data/huge.txt?lines=3000-"));
    let outcomes: Series =
        crowd(address, count, Duration::from_secs(20), |_| read.clone()).await?.into_iter().collect();
    let measured = watch.end().await?;
    Ok(Outcome::new(measured, format!("{count} reads: {outcomes}")))
}

/// Lists a large folder while a file in it is created and removed repeatedly.
pub(super) async fn million(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    let folder = site.folder("data")?;
    let files = stage.scaled(1_000_000);
    for number in 0..files {
        File::create(folder.join(format!("{number:07}.txt")))?;
    }
    let target = site.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let over = Arc::new(AtomicBool::new(false));
    let stop = over.clone();
    let churn = std::thread::spawn(move || {
        let path = folder.join("coming-and-going.txt");
        while !stop.load(Ordering::Relaxed) {
            File::create(&path)?;
            std::fs::remove_file(&path)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok::<_, std::io::Error>(())
    });
    let list = Era::Modern.posted(address, None, &Era::Modern.list(None));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let round = crowd(address, 100, Duration::from_secs(60), |_| list.clone()).await;
        outcomes.extend(round.inspect_err(|_| over.store(true, Ordering::Relaxed))?);
    }
    over.store(true, Ordering::Relaxed);
    let churned = churn.join();
    ensure!(matches!(churned, Ok(Ok(()))), "a file could not be made and removed again and again");
    let measured = watch.end().await?;
    let lists: Series = outcomes.into_iter().collect();
    Ok(Outcome::new(measured, format!("{files} files; 3 × 100 lists: {lists}")))
}
