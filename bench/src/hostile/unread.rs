//! Attacks by clients that request large contents and do not read the responses.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::{ATTACKER, Client, ELSEWHERE, Tally, outcome, unread};
use super::http2::Connection;
use super::probe::Probe;
use super::site::Site;
use super::watch::Watch;
use super::{Outcome, Stage};
use crate::mcp::{self, Era};

/// The size of the requested files: the default limit of one read.
const LARGE: usize = 8 << 20;

/// The number of these files. There are many, so that few responses share memory.
const FILES: usize = 64;

/// How long the clients do not read.
const HOLD: Duration = Duration::from_secs(15);

/// The number of streams per HTTP/2 connection.
const STREAMS: usize = 125;

pub(super) fn large_files(folder: &Path, count: usize) -> Result<()> {
    for number in 0..count {
        let line =
            format!("{number:06} a line of a large file that nobody takes, however often it is asked for\n");
        let mut text = line.repeat(LARGE / line.len());
        text.push_str(&" ".repeat(LARGE - text.len()));
        std::fs::write(folder.join(format!("{number}.txt")), text).context("could not write a large file")?;
    }
    Ok(())
}

pub(super) fn large(number: usize, files: usize) -> String {
    format!("file:///data/{}.txt", number % files)
}

/// Requests 2,000 large files over HTTP/2, with a flow-control window of 0, so that the server cannot send them.
pub(super) async fn over_http2(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    let files = stage.scaled(FILES);
    large_files(&site.folder("data")?, files)?;
    let target = site.serve(stage)?;
    let watch = Watch::begin(&target).await?;
    let count = stage.scaled(2_000);
    let kinds = Arc::<Mutex<Tally>>::default();
    let (mut connections, mut waiting) = (Vec::new(), JoinSet::new());
    for number in 0..count {
        if number % STREAMS == 0 {
            connections.push(Connection::open(target.address(), 0).await?);
        }
        let message = Era::Modern.read(&large(number, files));
        let Some(connection) = connections.last_mut() else { continue };
        let posted = tokio::time::timeout(Duration::from_secs(5), connection.post(&message)).await;
        let Ok(Ok((response, mut body))) = posted else {
            count_in(&kinds, "refused");
            continue;
        };
        if body.send_data(message.to_string().into(), true).is_err() {
            count_in(&kinds, "closed");
            continue;
        }
        let kinds = kinds.clone();
        waiting.spawn(async move {
            match response.await {
                Ok(response) => {
                    count_in(&kinds, response.status().as_str());
                    // Keeps the response, because dropping it would reset the stream.
                    std::future::pending::<()>().await;
                    drop(response);
                }
                Err(_) => count_in(&kinds, "closed"),
            }
        });
    }
    tokio::time::sleep(stage.time(HOLD)).await;
    drop((waiting, connections));
    let kinds = kinds.lock().map(|kinds| format!("{kinds}, {} without a head", count - kinds.total()));
    let observed = format!("{count} reads: {}", kinds.unwrap_or_default());
    Ok(Outcome::new(watch.end().await?, observed))
}

fn count_in(kinds: &Mutex<Tally>, kind: &str) {
    if let Ok(mut kinds) = kinds.lock() {
        kinds.count(kind);
    }
}

/// Requests large files on sockets that are not read, again after a refusal, and measures reads of other clients
/// meanwhile.
pub(super) async fn stalled(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    let files = stage.scaled(FILES).max(16);
    large_files(&site.folder("data")?, files)?;
    let medium = site.folder("medium")?;
    for number in 0..50 {
        std::fs::write(medium.join(format!("{number}.txt")), "medium".repeat(200_000 / 6))?;
    }
    let target = site.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let (mut askers, mut observed, mut refused) = (Vec::new(), Vec::new(), 0);
    for more in [18, 70] {
        for _ in 0..stage.scaled(more) {
            askers.push(Asker::new(address, large(askers.len(), files)).await?);
        }
        let others = Probe::start(address, ELSEWHERE, Duration::from_millis(20), move |number| {
            let uri = format!("file:///medium/{}.txt", number % 50);
            Era::Modern.posted(address, None, &Era::Modern.read(&uri))
        });
        let begun = Instant::now();
        while begun.elapsed() < stage.time(HOLD) {
            for asker in &mut askers {
                refused += usize::from(asker.insist(address).await?);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let sockets = askers.len();
        observed.push(format!("beside {sockets} sockets others read 200 KB: {}", others.stop().await?));
    }
    let held = askers.iter().filter(|asker| asker.answered).count();
    observed.push(format!("{held} sockets got an answer at last, {refused} refusals before"));
    drop(askers);
    Ok(Outcome::new(watch.end().await?, observed.join("; ")))
}

/// A socket that requests a large file and reads only the status line of the response.
struct Asker {
    stream: TcpStream,
    uri: String,
    /// Whether a successful response has begun.
    answered: bool,
}

impl Asker {
    async fn new(address: SocketAddr, uri: String) -> Result<Self> {
        let mut stream = unread(address).await?;
        stream.write_all(&Era::Modern.posted(address, None, &Era::Modern.read(&uri))).await?;
        Ok(Self { stream, uri, answered: false })
    }

    /// If the request was refused, sends it again on a new connection. Returns whether it was refused.
    async fn insist(&mut self, address: SocketAddr) -> Result<bool> {
        let mut head = [0; 12];
        if self.answered || self.stream.try_read(&mut head).is_err() {
            return Ok(false);
        }
        self.answered = head == *b"HTTP/1.1 200";
        let refused = !self.answered;
        if refused {
            *self = Self::new(address, std::mem::take(&mut self.uri)).await?;
        }
        Ok(refused)
    }
}

/// 25 clients of the HTTP+SSE transport of 2024-11-05 request twelve large files each and do not read their streams.
pub(super) async fn old_sse(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    site.arguments = vec!["--sse"];
    let files = stage.scaled(FILES);
    large_files(&site.folder("data")?, files)?;
    let target = site.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let (mut open, mut asking) = (Vec::new(), JoinSet::new());
    let clients = stage.scaled(25);
    for client in 0..clients {
        let mut stream = Client::open(address, ATTACKER).await?;
        stream
            .send(
                format!("GET /sse HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n")
                    .as_bytes(),
            )
            .await?;
        let at = stream.until(b"data: ", 0).await?;
        let end = stream.until(b"\n", at).await?;
        let path = String::from_utf8_lossy(&stream.received()[at..end]).trim().to_owned();
        open.push(stream);
        let mut first = Client::open(address, ATTACKER).await?;
        for message in [mcp::initialize(), mcp::initialized()] {
            first.ask(&posted(address, &path, &message.to_string())).await?;
        }
        for number in 0..12 {
            let message = Era::Legacy.read(&large(client * 12 + number, files));
            let request = posted(address, &path, &message.to_string());
            let hold = stage.time(HOLD);
            asking.spawn(async move {
                match Client::open(address, ATTACKER).await {
                    Ok(mut client) => outcome(&mut client, &request, hold).await,
                    Err(_) => "not connected".to_owned(),
                }
            });
        }
    }
    let mut kinds = Tally::default();
    while let Some(kind) = asking.join_next().await {
        kinds.count(kind?);
    }
    drop(open);
    let measured = watch.end().await?;
    Ok(Outcome::new(measured, format!("{clients} clients × 12 reads: {kinds}")))
}

/// A message as an HTTP request to the message endpoint of the HTTP+SSE transport.
fn posted(address: SocketAddr, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
