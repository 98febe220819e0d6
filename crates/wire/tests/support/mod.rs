//! A service whose behaviour depends on the URI, for tests of the transports.
#![allow(dead_code, reason = "each test has a part of it")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use libris_wire::http::Config;
use libris_wire::{
    Answer, CacheableRequest, Call, Caller, Capabilities, CompletionParams, Failure, Identity, Listener,
    Members, Notification, Refusal, Reply, Revision, ServerInfo, Service, ServiceView, Writer,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// `toy:size/N` has N bytes and takes a moment, `toy:parts/N` has as many, reserves memory for them and is encoded as it is sent,
/// `toy:kept/TEXT` and `toy:kept/large` are at hand, `toy:wait` waits for `go`, `toy:progress` tells of progress and
/// waits, and anything else is not there.
#[derive(Default)]
pub(crate) struct Toy {
    me: Weak<Toy>,
    pub(crate) begun: AtomicUsize,
    /// The number of responses served from the cache.
    pub(crate) kept: AtomicUsize,
    pub(crate) ended: AtomicUsize,
    pub(crate) go: Notify,
    /// A large cached response, until a test changes it.
    pub(crate) large: Mutex<Option<Members>>,
    listeners: Mutex<Vec<Weak<Ear>>>,
}

/// A listener, notified of the resources it subscribed to, and of the list once it follows that.
#[derive(Default)]
struct Ear {
    subscribed: Mutex<Vec<String>>,
    list: AtomicUsize,
    pending: Mutex<VecDeque<Notification>>,
    ready: Notify,
}

#[async_trait]
impl Listener for Ear {
    async fn follow_list(&self) -> Result<(), Failure> {
        self.list.store(1, Ordering::SeqCst);
        Ok(())
    }

    async fn follow_prompts(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn follow_tools(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn listed(&self) {}

    async fn reserve(&self, uris: &[&str]) -> Result<(), Failure> {
        match uris.iter().filter(|uri| **uri == "toy:too-much").count() {
            0 => Ok(()),
            count => Err(Failure::Internal { message: format!("too much by {count}"), data: None }),
        }
    }

    async fn subscribe(&self, uri: &str) -> Result<(), Failure> {
        assert_ne!(uri, "toy:before-too-much", "nothing was reserved");
        if !uri.starts_with("toy:") {
            return Err(Failure::not_found(uri));
        }
        self.subscribed.lock().unwrap().push(uri.to_owned());
        Ok(())
    }

    fn unsubscribe(&self, uri: &str) {
        self.subscribed.lock().unwrap().retain(|name| name != uri);
    }

    async fn next(&self) -> Notification {
        loop {
            let ready = self.ready.notified();
            if let Some(notification) = self.pending.lock().unwrap().pop_front() {
                return notification;
            }
            ready.await;
        }
    }

    fn renew(&self, _: Option<&Identity>) {}

    fn requeue(&self, notification: Notification) {
        self.pending.lock().unwrap().push_back(notification);
        self.ready.notify_one();
    }
}

impl Toy {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: me.clone(), ..Self::default() })
    }

    fn ears(&self) -> Vec<Arc<Ear>> {
        self.listeners.lock().unwrap().iter().filter_map(Weak::upgrade).collect()
    }

    /// The number of listeners.
    pub(crate) fn listening(&self) -> usize {
        self.ears().len()
    }

    /// The number of listeners that follow the list.
    pub(crate) fn following(&self) -> usize {
        self.ears().iter().map(|ear| ear.list.load(Ordering::SeqCst)).sum()
    }

    /// Notifies that this resource has changed.
    pub(crate) fn update(&self, uri: &str) {
        for ear in self.ears() {
            if ear.subscribed.lock().unwrap().iter().any(|name| name == uri) {
                ear.requeue(Notification::Updated(uri.into()));
            }
        }
    }

    /// Notifies that the list has changed.
    pub(crate) fn relist(&self) {
        for ear in self.ears().iter().filter(|ear| ear.list.load(Ordering::SeqCst) == 1) {
            ear.requeue(Notification::ListChanged);
        }
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
    Ok(Reply {
        members: text.slice(1..text.len() - 1).into(),
        freshness: Some(Default::default()),
        meta: Bytes::new(),
    })
}

#[async_trait]
impl Service for Toy {
    fn info(&self) -> ServerInfo {
        ServerInfo {
            name: "toy".into(),
            title: Some("Toy".into()),
            version: "1".into(),
            ..ServerInfo::default()
        }
    }

    fn cached_view(&self, caller: &Caller<'_>) -> Option<Arc<dyn ServiceView>> {
        let toy = self.me.upgrade()?;
        match caller.authorization.map(|token| String::from_utf8_lossy(token).into_owned()) {
            None => Some(toy),
            Some(name) if name.starts_with("as ") => {
                Some(Arc::new(ToyAs { toy, identity: Identity::new(&name[3..]) }))
            }
            Some(_) => None,
        }
    }

    async fn admit(&self, caller: &Caller<'_>) -> Result<Arc<dyn ServiceView>, Refusal> {
        let message = "not a name".to_owned();
        self.cached_view(caller).ok_or(Refusal::Unauthenticated { challenge: "Toy".into(), message })
    }
}

/// The view of a caller with a name.
struct ToyAs {
    toy: Arc<Toy>,
    identity: Identity,
}

#[async_trait]
impl ServiceView for ToyAs {
    fn caller(&self) -> Option<&Identity> {
        Some(&self.identity)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tools: Some(json!({})),
            extensions: [("a/b".into(), json!({ "c": 1 }))].into(),
            live: true,
            prompts: None,
        }
    }

    fn cached(&self, revision: Revision, request: CacheableRequest<'_>, since: Instant) -> Option<Answer> {
        self.toy.cached(revision, request, since)
    }

    async fn list(&self, call: &Call, cursor: Option<&str>) -> Answer {
        self.toy.list(call, cursor).await
    }

    async fn templates(&self, call: &Call, cursor: Option<&str>) -> Answer {
        self.toy.templates(call, cursor).await
    }

    /// `toy:me` is the caller's name.
    async fn read(&self, call: &Call, uri: &str) -> Answer {
        match uri {
            "toy:me" => reply(&json!({ "contents": [{ "uri": uri, "text": self.identity.name() }] })),
            _ => self.toy.read(call, uri).await,
        }
    }

    async fn complete(&self, call: &Call, asked: &CompletionParams) -> Answer {
        self.toy.complete(call, asked).await
    }

    fn answers(&self, _: Revision, method: &str) -> bool {
        method == "tools/list" || method == "toy/echo"
    }

    async fn call(&self, _: &Call, method: &str, params: &str) -> Answer {
        let params: Value = serde_json::from_str(params).unwrap();
        reply(&json!({ "caller": self.identity.name(), "method": method, "text": params["text"] }))
    }

    fn listener(&self, client: libris_wire::Client) -> Result<Arc<dyn Listener>, Failure> {
        self.toy.listener(client)
    }
}

#[async_trait]
impl ServiceView for Toy {
    fn caller(&self) -> Option<&Identity> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { live: true, ..Capabilities::default() }
    }

    fn cached(&self, _: Revision, request: CacheableRequest<'_>, _: Instant) -> Option<Answer> {
        let CacheableRequest::Read(uri) = request else { return None };
        uri.strip_prefix("toy:kept/")?;
        self.kept.fetch_add(1, Ordering::SeqCst);
        if uri == "toy:kept/large" {
            return Some(Ok(Reply {
                members: self.large.lock().unwrap().clone()?,
                freshness: None,
                meta: Bytes::new(),
            }));
        }
        if uri == "toy:kept/missing" {
            return Some(Err(Failure::NotFound {
                uri: uri.to_owned(),
                hint: Some("look elsewhere".to_owned()),
            }));
        }
        Some(reply(&json!({ "contents": [{ "uri": uri, "text": "kept" }] })))
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
                // Exceeds the delay before the first progress report.
                tokio::time::sleep(std::time::Duration::from_millis(250)).await;
                call.progress(1, Some(2));
                self.go.notified().await;
                "waited".to_owned()
            }
            Some(size) if size.starts_with("size/") => {
                // As a file would be, it is not at hand when it is asked for, nor when it is asked for again at once.
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                "x".repeat(size[5..].parse().map_err(|_| Failure::invalid("no size"))?)
            }
            Some(parts) if parts.starts_with("parts/") => {
                let size = parts[6..].parse().map_err(|_| Failure::invalid("no size"))?;
                while !call.reserve(size) {
                    if !call.memory_is_free().await {
                        return Err(Failure::Internal { message: "no memory".into(), data: None });
                    }
                }
                let mut out = Writer::default();
                out.json().extend_from_slice(b"\"contents\":[{\"text\":");
                out.text("y".repeat(size));
                out.json().extend_from_slice(b"}]");
                return Ok(Reply { members: out.finish(), freshness: None, meta: Bytes::new() });
            }
            _ => return Err(Failure::not_found(uri)),
        };
        reply(&json!({ "contents": [{ "uri": uri, "text": text }] }))
    }

    async fn complete(&self, _: &Call, asked: &CompletionParams) -> Answer {
        reply(&json!({ "completion": { "values": [asked.typed] } }))
    }

    fn listener(&self, _: libris_wire::Client) -> Result<Arc<dyn Listener>, Failure> {
        let ear = Arc::<Ear>::default();
        self.listeners.lock().unwrap().push(Arc::downgrade(&ear));
        Ok(ear)
    }
}

/// The configuration, with the express lane off if the environment variable `LIBRIS_TEST_EXPRESS` is `off`: `./test`
/// runs the HTTP tests both ways.
pub(crate) fn configured(config: Config) -> Config {
    let express =
        config.express && std::env::var_os("LIBRIS_TEST_EXPRESS").is_none_or(|value| value != "off");
    Config { express, ..config }
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
