//! Attacks by requests whose bodies are never completed.

use std::future::poll_fn;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use h2::SendStream;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::{Tally, unread};
use super::http2::Connection;
use super::site::Site;
use super::watch::Watch;
use super::{Outcome, Stage};
use crate::mcp::Era;

/// The declared length of a body: the limit of a message.
const LENGTH: usize = 4 << 20;

/// How long the bodies are held open.
const HOLD: Duration = Duration::from_secs(20);

/// How long sending one body may take.
const SENDING: Duration = Duration::from_secs(20);

/// How many bodies are sent on each HTTP/2 connection.
const STREAMS: usize = 128;

/// Sends all but the last byte of a body over each of 500 connections.
pub(super) async fn over_http1(stage: &Stage<'_>) -> Result<Outcome> {
    let target = Site::new()?.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let count = stage.scaled(500);
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: server/discover\r\ncontent-length: {LENGTH}\r\n\r\n"
    );
    let chunk = Bytes::from(vec![b' '; 64 << 10]);
    let mut sending = JoinSet::new();
    for _ in 0..count {
        let (head, chunk) = (head.clone(), chunk.clone());
        sending.spawn(async move {
            let mut stream = unread(address).await?;
            let sent = tokio::time::timeout(SENDING, send(&mut stream, head.as_bytes(), &chunk)).await;
            let kind = match sent {
                Ok(Ok(())) => "held",
                Ok(Err(_)) => "closed while sent",
                Err(_) => "not taken",
            };
            Ok::<_, anyhow::Error>((stream, kind))
        });
    }
    let (mut kinds, mut open) = (Tally::default(), Vec::new());
    while let Some(sent) = sending.join_next().await {
        match sent? {
            Ok((stream, kind)) => {
                kinds.count(kind);
                open.push(stream);
            }
            Err(_) => kinds.count("not connected"),
        }
    }
    tokio::time::sleep(stage.time(HOLD)).await;
    let answered = open.iter().filter(|stream| stream.try_read(&mut [0]).is_ok()).count();
    drop(open);
    let measured = watch.end().await?;
    let observed = format!("{count} bodies: {kinds}; {answered} answered or closed before their end");
    Ok(Outcome::new(measured, observed))
}

/// Sends all of a request but its last byte.
async fn send(stream: &mut TcpStream, head: &[u8], chunk: &[u8]) -> std::io::Result<()> {
    stream.write_all(head).await?;
    let mut left = LENGTH - 1;
    while left > 0 {
        let next = left.min(chunk.len());
        stream.write_all(&chunk[..next]).await?;
        left -= next;
    }
    Ok(())
}

/// Sends all but the last byte of 128 bodies on each of three HTTP/2 connections.
pub(super) async fn over_http2(stage: &Stage<'_>) -> Result<Outcome> {
    let target = Site::new()?.serve(stage)?;
    let watch = Watch::begin(&target).await?;
    let chunk = Bytes::from(vec![b' '; 64 << 10]);
    let message = Era::Modern.request("server/discover", serde_json::json!({}));
    let (mut connections, mut sending, mut kinds) = (Vec::new(), JoinSet::new(), Tally::default());
    let streams = stage.scaled(STREAMS);
    for _ in 0..3 {
        let mut connection = Connection::open(target.address(), 1 << 16).await?;
        for _ in 0..streams {
            let posted = tokio::time::timeout(Duration::from_secs(5), connection.post(&message)).await;
            let Ok(Ok((response, mut body))) = posted else {
                kinds.count("refused");
                continue;
            };
            let chunk = chunk.clone();
            sending.spawn(async move {
                let kind = match tokio::time::timeout(SENDING, fill(&mut body, &chunk)).await {
                    Ok(Ok(())) => "held",
                    Ok(Err(_)) => "closed while sent",
                    Err(_) => "not taken",
                };
                (response, body, kind)
            });
        }
        connections.push(connection);
    }
    let mut open = Vec::new();
    while let Some(sent) = sending.join_next().await {
        let (response, body, kind) = sent?;
        kinds.count(kind);
        open.push((response, body));
    }
    tokio::time::sleep(stage.time(HOLD)).await;
    drop((open, connections));
    let measured = watch.end().await?;
    Ok(Outcome::new(measured, format!("3 × {streams} bodies: {kinds}")))
}

/// Sends all but the last byte of a body, as fast as flow control allows.
async fn fill(body: &mut SendStream<Bytes>, chunk: &Bytes) -> Result<()> {
    let mut left = LENGTH - 1;
    while left > 0 {
        body.reserve_capacity(left.min(chunk.len()));
        let granted = poll_fn(|context| body.poll_capacity(context)).await;
        let granted = granted.context("the stream was closed")??.min(left).min(chunk.len());
        body.send_data(chunk.slice(..granted), false)?;
        left -= granted;
    }
    Ok(())
}
