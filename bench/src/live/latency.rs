//! The time from a write to its notification, for one subscriber.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;
use tokio::sync::mpsc;

use super::streams::{self, Told};
use super::{CHANGING, Folder, change};
use crate::mcp::{self, Era};
use crate::program::Binary;

/// A notification that takes longer counts as missed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The notifications of a series of writes.
pub(super) struct Latency {
    /// The time from the end of each write to its notification.
    pub(super) times: Vec<Duration>,
    pub(super) missed: usize,
    pub(super) again: usize,
}

pub(super) async fn over_http(binary: &Binary, writes: usize) -> Result<Latency> {
    let folder = Folder::new()?;
    let server = binary.over_http(&folder.path())?;
    let request = Era::Modern.posted(server.address, None, &mcp::listen(CHANGING));
    let connection = streams::listen(server.address, Ipv4Addr::LOCALHOST.into(), &request).await?;
    let (sender, told) = mpsc::unbounded_channel();
    tokio::spawn(streams::hear(connection, 0, sender));
    measure(&folder.changing(), writes, told).await
}

pub(super) async fn over_stdio(binary: &Binary, writes: usize) -> Result<Latency> {
    let folder = Folder::new()?;
    let mut server = binary.over_stdio(&folder.path())?;
    let mut lines = BufReader::new(server.output).split(b'\n');
    writeln!(server.input, "{}", mcp::listen(CHANGING))?;
    let first = lines.next().transpose()?.context("libris said nothing")?;
    ensure!(
        memmem::find(&first, mcp::ACKNOWLEDGED).is_some(),
        "the server said {}",
        String::from_utf8_lossy(&first)
    );
    let (sender, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let at = Instant::now();
            if memmem::find(&line, mcp::UPDATED).is_some() {
                let _ = sender.send(Told::Updated { stream: 0, at });
            }
        }
    });
    measure(&folder.changing(), writes, told).await
}

/// The duration of sleeps of 50 ms on this machine, which shows its timer latency.
pub(super) async fn sleeps(count: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        tokio::time::sleep(Duration::from_millis(50)).await;
        times.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    times
}

/// Writes at intervals longer than the debounce window, and waits for the notification of each write.
async fn measure(file: &Path, writes: usize, mut told: mpsc::UnboundedReceiver<Told>) -> Result<Latency> {
    let mut latency = Latency { times: Vec::with_capacity(writes), missed: 0, again: 0 };
    let mut next = tokio::time::Instant::now();
    for n in 0..writes {
        // The interval varies from 120 to 180 ms, so that writes do not synchronise with a period of the server.
        next += Duration::from_millis(120 + n as u64 * 37 % 61);
        tokio::time::sleep_until(next).await;
        while told.try_recv().is_ok() {
            latency.again += 1;
        }
        change(file, n)?;
        let written = Instant::now();
        match tokio::time::timeout(PATIENCE, told.recv()).await {
            Ok(Some(Told::Updated { at, .. })) => latency.times.push(at.saturating_duration_since(written)),
            Ok(Some(Told::Ended) | None) => anyhow::bail!("the server ended the stream"),
            Err(_) => latency.missed += 1,
        }
    }
    Ok(latency)
}
