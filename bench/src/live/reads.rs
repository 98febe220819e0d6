//! Throughput and CPU time of reads of a small file over several connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;
use tokio::task::JoinSet;

use crate::http::Connection;
use crate::process::Computing;
use crate::program::OverHttp;

/// The file consists of repetitions of this text.
pub(super) const TEXT: &str = "sixteen letters.";

/// The measurements of a slice.
pub(super) struct Slice {
    reads: usize,
    time: Duration,
    computing: Duration,
}

impl Slice {
    /// Reads a second.
    pub(super) fn rate(&self) -> f64 {
        self.reads as f64 / self.time.as_secs_f64()
    }

    /// The server's CPU time per read, in microseconds.
    pub(super) fn microseconds(&self) -> f64 {
        self.computing.as_secs_f64() * 1e6 / self.reads as f64
    }
}

/// Reads on all connections for this long, with one request in flight on each.
pub(super) async fn slice(
    server: &OverHttp,
    request: Vec<u8>,
    connections: usize,
    time: Duration,
) -> Result<Slice> {
    let request = Arc::new(request);
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut connection = Connection::open(server.address).await?;
        let answer = connection.ask(&request).await?;
        ensure!(memmem::find(answer, TEXT.as_bytes()).is_some(), "a read gave something else");
        open.push(connection);
    }
    let before = Computing::of(server.id())?;
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for mut connection in open {
        let request = request.clone();
        tasks.spawn(async move {
            let mut reads = 0;
            while begun.elapsed() < time {
                connection.ask(&request).await?;
                reads += 1;
            }
            Ok::<_, anyhow::Error>(reads)
        });
    }
    let ended = async {
        let mut reads = 0;
        while let Some(ended) = tasks.join_next().await {
            reads += ended??;
        }
        Ok::<usize, anyhow::Error>(reads)
    };
    let reads = tokio::time::timeout(time + Duration::from_secs(10), ended).await;
    let reads = reads.context("a read was not answered within ten seconds")??;
    Ok(Slice { reads, time: begun.elapsed(), computing: Computing::of(server.id())?.since(&before) })
}
