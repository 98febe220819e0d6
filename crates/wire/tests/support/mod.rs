//! A service that answers by its URI, for the tests of the transports.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use libris_wire::{About, Answer, Call, Completing, Failure, Keep, Reply, Service};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// `toy:size/N` has N bytes, `toy:wait` waits for `go`, `toy:progress` tells of progress and waits, and
/// anything else is not there.
#[derive(Default)]
pub(crate) struct Toy {
    pub(crate) begun: AtomicUsize,
    pub(crate) ended: AtomicUsize,
    pub(crate) go: Notify,
}

impl Toy {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }
}

/// Counts the end of a read, however it ends.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn reply(value: &Value) -> Answer {
    let text = Bytes::from(value.to_string());
    Ok(Reply { members: text.slice(1..text.len() - 1), keep: Some(Keep::default()) })
}

#[async_trait]
impl Service for Toy {
    fn about(&self) -> About {
        About {
            name: "toy".into(),
            title: Some("Toy".into()),
            version: "1".into(),
            ..About::default()
        }
    }

    async fn list(&self, _: &Call, cursor: Option<&str>) -> Answer {
        reply(&json!({ "resources": [], "nextCursor": cursor.unwrap_or("first") }))
    }

    async fn templates(&self, _: &Call, _: Option<&str>) -> Answer {
        reply(&json!({ "resourceTemplates": [] }))
    }

    async fn read(&self, call: &Call, uri: &str) -> Answer {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _ended = Ended(&self.ended);
        let text = match uri.strip_prefix("toy:") {
            Some("wait") => {
                self.go.notified().await;
                "waited".to_owned()
            }
            Some("progress") => {
                // Long enough for the first report to be worth sending.
                tokio::time::sleep(std::time::Duration::from_millis(250)).await;
                call.progress(1, Some(2));
                self.go.notified().await;
                "waited".to_owned()
            }
            Some(size) if size.starts_with("size/") => {
                // As a file would be, it is not at hand when it is asked for.
                tokio::task::yield_now().await;
                "x".repeat(size[5..].parse().map_err(|_| Failure::invalid("no size"))?)
            }
            _ => return Err(Failure::NotFound { uri: uri.to_owned() }),
        };
        reply(&json!({ "contents": [{ "uri": uri, "text": text }] }))
    }

    async fn complete(&self, _: &Call, asked: &Completing) -> Answer {
        reply(&json!({ "completion": { "values": [asked.typed] } }))
    }
}

/// A request of the newest revision.
pub(crate) fn modern(id: u32, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A request of a session.
pub(crate) fn request(id: u32, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// The handshake for this revision.
pub(crate) fn initialize(date: &str) -> Value {
    let client = json!({ "name": "test", "version": "1" });
    request(0, "initialize", json!({ "protocolVersion": date, "capabilities": {}, "clientInfo": client }))
}
