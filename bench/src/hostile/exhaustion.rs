//! One client takes as much as it can get of everything at the same time: connections, sessions, subscriptions, event
//! streams, requests in progress, memory for bodies and memory for responses. Meanwhile new clients arrive from another
//! address.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use h2::client::ResponseFuture;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::bystander::SMALL;
use super::client::{ATTACKER, Client, ELSEWHERE, Tally, unread};
use super::http2::Connection;
use super::probe::Series;
use super::site::Site;
use super::watch::Watch;
use super::{Outcome, Stage, sessions, subscriptions, unread as large};
use crate::http;
use crate::mcp::{self, Era};

/// The default limit of sessions, and the share of it that one connection may open.
const SESSIONS: usize = 10_000;
const SESSIONS_PER_CONNECTION: usize = SESSIONS / 8;

/// The number of subscriptions, in the newest sessions, and the length of their URIs: more memory than the default share.
const SUBSCRIPTIONS: usize = 1_900;
const LONG: usize = 8 << 10;

/// The number of event streams, each on a connection of its own.
const STREAMS: usize = 1_500;

/// The number of HTTP/2 connections with slow requests, and of requests on each: together more than the default share of
/// requests in progress.
const SLOW_CONNECTIONS: usize = 30;
const SLOW_REQUESTS: usize = 60;

/// The number of unfinished bodies and their size without the last bytes.
const BODIES: usize = 200;
const BODY: usize = 256 << 10;

/// The number of large responses that are not read.
const UNREAD: usize = 40;

/// How long everything is held.
const HOLD: Duration = Duration::from_secs(20);

/// The time-out of one step of the attacker or of a newcomer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two newcomers.
const PACE: Duration = Duration::from_millis(100);

/// Takes everything, and holds it while newcomers arrive.
pub(super) async fn run(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    large::large_files(&site.folder("data")?, UNREAD)?;
    site.configure("[[command]]\nuri = \"slow://{number}\"\nrun = [\"sh\", \"-c\", \"sleep 50\", \"{{number}}\"]\ntimeout = \"55s\"");
    let target = site.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let newcomers = Newcomers::start(address);
    let mut kinds = Tally::default();
    let slow = slow_requests(address, stage, &mut kinds).await;
    let bodies = unfinished_bodies(address, stage, &mut kinds).await;
    let responses = unread_responses(address, &mut kinds).await;
    let streams = event_streams(address, stage, &mut kinds).await;
    let opened = open_sessions(address, &mut kinds).await;
    watch.hold();
    tokio::time::sleep(stage.time(HOLD)).await;
    let held = held(address).await.unwrap_or_else(|error| format!("unknown: {error:#}"));
    let newcomers = newcomers.stop().await?;
    drop((slow, bodies, responses, streams, opened));
    let observed = format!(
        "{kinds}; held at the end: {held}; newcomers (session, subscription, stream, read): {} of {} served, {newcomers}",
        newcomers.good(),
        newcomers.asked(),
    );
    Ok(Outcome::new(watch.end().await?, observed))
}

/// Runs a step with a time-out, and counts how it ended.
async fn step<T>(kinds: &mut Tally, what: &str, step: impl Future<Output = Result<T>>) -> Option<T> {
    let (kind, made) = match tokio::time::timeout(PATIENCE, step).await {
        Ok(Ok(made)) => ("held", Some(made)),
        Ok(Err(_)) => ("refused or closed", None),
        Err(_) => ("unanswered", None),
    };
    kinds.count(format!("{what} {kind}"));
    made
}

/// Requests that take long, over HTTP/2.
async fn slow_requests(
    address: SocketAddr,
    stage: &Stage<'_>,
    kinds: &mut Tally,
) -> Vec<(Connection, Vec<ResponseFuture>)> {
    let mut held = Vec::new();
    for connection_number in 0..stage.scaled(SLOW_CONNECTIONS) {
        let Some(mut connection) =
            step(kinds, "HTTP/2 connections", Connection::open(address, 1 << 16)).await
        else {
            continue;
        };
        let mut requests = Vec::new();
        for number in 0..SLOW_REQUESTS {
            let uri = format!("slow://{}", connection_number * SLOW_REQUESTS + number);
            let message = Era::Modern.read(&uri);
            let sent = step(kinds, "slow requests", async {
                let (response, mut body) = connection.post(&message).await?;
                body.send_data(message.to_string().into(), true)?;
                Ok(response)
            });
            requests.extend(sent.await);
        }
        held.push((connection, requests));
    }
    held
}

/// Requests whose bodies lack their last bytes.
async fn unfinished_bodies(address: SocketAddr, stage: &Stage<'_>, kinds: &mut Tally) -> Vec<TcpStream> {
    let length = 2 * BODY;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: server/discover\r\ncontent-length: {length}\r\n\r\n"
    );
    let body = Bytes::from(vec![b' '; BODY]);
    let mut held = Vec::new();
    for _ in 0..stage.scaled(BODIES) {
        let Some(mut stream) = step(kinds, "connections for bodies", unread(address)).await else { continue };
        // The server stops reading when the client's share is used up, which must not stop the attacker.
        let sending = async {
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&body).await
        };
        let _ = tokio::time::timeout(Duration::from_millis(50), sending).await;
        held.push(stream);
    }
    held
}

/// Large responses that are never read.
async fn unread_responses(address: SocketAddr, kinds: &mut Tally) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for number in 0..UNREAD {
        let request = Era::Modern.posted(address, None, &Era::Modern.read(&large::large(number, UNREAD)));
        let asked = step(kinds, "unread responses", async {
            let mut stream = unread(address).await?;
            stream.write_all(&request).await?;
            Ok(stream)
        });
        held.extend(asked.await);
    }
    held
}

/// Event streams on connections of their own.
async fn event_streams(address: SocketAddr, stage: &Stage<'_>, kinds: &mut Tally) -> Vec<Client> {
    let mut held = Vec::new();
    for _ in 0..stage.scaled(STREAMS) {
        let opened = step(kinds, "streams", async {
            let mut client = Client::open(address, ATTACKER).await?;
            listen(&mut client, address, "file:///calm/").await?;
            Ok(client)
        });
        held.extend(opened.await);
    }
    held
}

/// Sessions, and subscriptions in the newest ones, which the server evicts last.
async fn open_sessions(address: SocketAddr, kinds: &mut Tally) -> Vec<(Client, Vec<String>)> {
    let mut held = Vec::new();
    // Not scaled, since the attack must reach the limit.
    for _ in 0..SESSIONS / SESSIONS_PER_CONNECTION {
        let connected = step(kinds, "connections for sessions", Client::open(address, ATTACKER));
        let Some(mut client) = connected.await else { continue };
        let mut opened = Vec::new();
        for _ in 0..SESSIONS_PER_CONNECTION {
            let session = step(kinds, "sessions", async {
                sessions::open(&mut client, address).await?.map_err(anyhow::Error::msg)
            });
            opened.extend(session.await);
        }
        held.push((client, opened));
    }
    let Some((client, opened)) = held.last_mut() else { return held };
    for (number, session) in opened.iter().rev().cycle().take(SUBSCRIPTIONS).enumerate() {
        let uri = subscriptions::uri(0, number, LONG);
        let message = Era::Legacy.request("resources/subscribe", json!({ "uri": uri }));
        let request = Era::Legacy.posted(address, Some(session), &message);
        step(kinds, "subscriptions", expect_result(client, &request)).await;
    }
    held
}

/// Opens an event stream on this connection, and waits for its acknowledgement.
async fn listen(client: &mut Client, address: SocketAddr, uri: &str) -> Result<()> {
    client.send(&Era::Modern.posted(address, None, &mcp::listen(uri))).await?;
    let head = client.until(b"\r\n\r\n", 0).await?;
    ensure!(client.received().starts_with(b"HTTP/1.1 200 "), "the stream was refused");
    client.until(mcp::ACKNOWLEDGED, head).await?;
    Ok(())
}

async fn expect_result(client: &mut Client, request: &[u8]) -> Result<()> {
    let answer = client.ask(request).await?;
    let body: Value = serde_json::from_slice(&answer.body)?;
    ensure!(body.get("result").is_some(), "{}", answer.kind());
    Ok(())
}

/// What the server holds, by its metrics.
async fn held(address: SocketAddr) -> Result<String> {
    let mut connection = http::Connection::open_from(address, ELSEWHERE).await?;
    let metrics = http::metrics(&mut connection, address).await?;
    let shown = ["connections", "requests", "sessions", "listen_streams", "subscriptions", "unsent_bytes"]
        .map(|name| format!("{} {name}", metrics.get(name).copied().unwrap_or_default()));
    Ok(shown.join(", "))
}

/// Clients that arrive one after another from another address, each with a new connection.
struct Newcomers {
    task: JoinHandle<Vec<(String, Duration)>>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl Newcomers {
    fn start(address: SocketAddr) -> Self {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let task = tokio::spawn(async move {
            let mut outcomes = Vec::new();
            while !*stopped.borrow() {
                let begun = Instant::now();
                let kind = match tokio::time::timeout(PATIENCE, visit(address)).await {
                    Ok(Ok(())) => "ok".to_owned(),
                    Ok(Err(error)) => format!("{error:#}"),
                    Err(_) => "unanswered".to_owned(),
                };
                outcomes.push((kind, begun.elapsed()));
                tokio::time::sleep(PACE).await;
            }
            outcomes
        });
        Self { task, stop }
    }

    async fn stop(self) -> Result<Series> {
        self.stop.send_replace(true);
        Ok(self.task.await?.into_iter().collect())
    }
}

/// Does what a client does when it connects: opens a session, reads, subscribes, and opens a stream.
async fn visit(address: SocketAddr) -> Result<()> {
    let mut client = Client::open(address, ELSEWHERE).await?;
    let opened = sessions::open(&mut client, address).await?;
    let session = opened.map_err(|kind| anyhow::anyhow!("no session: {kind}"))?;
    for (method, uri) in [("resources/read", SMALL), ("resources/subscribe", SMALL)] {
        let message = Era::Legacy.request(method, json!({ "uri": uri }));
        let request = Era::Legacy.posted(address, Some(&session), &message);
        expect_result(&mut client, &request).await.context(method)?;
    }
    listen(&mut client, address, SMALL).await
}
