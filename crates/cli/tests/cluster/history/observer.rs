//! Clients that read each resource when they are notified of it, and connect to another replica when theirs dies.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{History, RecordedEvent};
use crate::client::Era;

/// The URLs of the replicas; `None` for one that is not running.
pub(super) type ReplicaUrls = Vec<Option<String>>;

/// How long a client waits for a response. A replica answers or dies.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The pause before a client connects again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// A client, until this is dropped.
pub(super) struct ReadingObserver(JoinHandle<()>);

impl Drop for ReadingObserver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A client of one era.
struct ObservingClient {
    number: usize,
    era: Era,
    http: reqwest::Client,
    uris: Vec<String>,
    history: Arc<History>,
    /// The id of the legacy session.
    session: Option<String>,
    /// The resources that are to be read.
    owed: BTreeSet<String>,
}

/// The replica failed, so the client connects to another one.
struct Disconnected;

impl From<reqwest::Error> for Disconnected {
    fn from(_: reqwest::Error) -> Self {
        Self
    }
}

impl ReadingObserver {
    /// Starts a client that connects to this replica first.
    pub(super) fn start(
        number: usize,
        era: Era,
        uris: Vec<String>,
        replicas: watch::Receiver<ReplicaUrls>,
        history: Arc<History>,
    ) -> Self {
        let http = reqwest::Client::new();
        // The first read is not due to a notification.
        let owed = uris.iter().cloned().collect();
        let client = ObservingClient { number, era, http, uris, history, session: None, owed };
        Self(tokio::spawn(client.observe(replicas)))
    }
}

impl ObservingClient {
    async fn observe(mut self, replicas: watch::Receiver<ReplicaUrls>) {
        let mut turn = self.number;
        loop {
            let (replica, url) = {
                let all = replicas.borrow();
                let replica = turn % all.len();
                (replica, all[replica].clone())
            };
            turn += 1;
            if let Some(url) = url {
                // Whatever failed, it connects again.
                let _ = self.listen_at(replica, &url).await;
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Listens at a replica until that fails.
    async fn listen_at(&mut self, replica: usize, url: &str) -> Result<(), Disconnected> {
        let mut stream = match self.era {
            Era::Modern => self.listen(url).await?,
            Era::Legacy => self.open_session_stream(url).await?,
        };
        let mut text = String::new();
        loop {
            while let Some((event, rest)) = text.split_once("\n\n") {
                if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
                    self.note(replica, data);
                }
                text = rest.to_owned();
            }
            while let Some(uri) = self.owed.first().cloned() {
                self.read(replica, url, &uri).await?;
                self.owed.remove(&uri);
            }
            let Some(chunk) = stream.chunk().await? else { return Err(Disconnected) };
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    fn note(&mut self, replica: usize, data: &str) {
        let message: Value = serde_json::from_str(data).unwrap();
        if message["method"] == "notifications/resources/updated" {
            let uri = message["params"]["uri"].as_str().unwrap().to_owned();
            self.history.record(RecordedEvent::Notified { client: self.number, replica, uri: uri.clone() });
            self.owed.insert(uri);
        }
    }

    async fn listen(&self, url: &str) -> Result<reqwest::Response, Disconnected> {
        let wanted = json!({ "resourceSubscriptions": self.uris });
        let request = self.post(url, "subscriptions/listen", json!({ "notifications": wanted }));
        let response = request.send().await?;
        if response.status() == 200 { Ok(response) } else { Err(Disconnected) }
    }

    /// Continues the session at this replica, or opens a new one if nobody knows it any more.
    async fn open_session_stream(&mut self, url: &str) -> Result<reqwest::Response, Disconnected> {
        if self.session.is_none() {
            let hello = json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": { "name": "observer", "version": "1" },
            });
            let response = self.post(url, "initialize", hello).timeout(RESPONSE_TIMEOUT).send().await?;
            let id = response.headers().get("mcp-session-id").ok_or(Disconnected)?;
            self.session = Some(id.to_str().unwrap().to_owned());
            for uri in &self.uris {
                let answer = self.ask(url, "resources/subscribe", json!({ "uri": uri })).await;
                if !answer.is_ok_and(|answer| answer["result"].is_object()) {
                    self.session = None;
                    return Err(Disconnected);
                }
            }
            // A new session knows nothing of the changes before it.
            self.owed.extend(self.uris.iter().cloned());
        }
        let session = self.session.clone().unwrap_or_default();
        let request = self.http.get(url).header("accept", "text/event-stream");
        let response = request.header("mcp-session-id", session).send().await?;
        match response.status().as_u16() {
            200 => Ok(response),
            404 => {
                self.session = None;
                Err(Disconnected)
            }
            _ => Err(Disconnected),
        }
    }

    async fn read(&self, replica: usize, url: &str, uri: &str) -> Result<(), Disconnected> {
        let sent = self.history.now();
        let answer = self.ask(url, "resources/read", json!({ "uri": uri })).await?;
        let version =
            answer["result"]["contents"][0]["text"].as_str().and_then(|text| text.trim().parse().ok());
        let version = version.ok_or(Disconnected)?;
        let (client, uri) = (self.number, uri.to_owned());
        self.history.record(RecordedEvent::Read { client, replica, uri, version, sent });
        Ok(())
    }

    async fn ask(&self, url: &str, method: &str, params: Value) -> Result<Value, Disconnected> {
        let response = self.post(url, method, params).timeout(RESPONSE_TIMEOUT).send().await?;
        serde_json::from_slice(&response.bytes().await?).map_err(|_| Disconnected)
    }

    fn post(&self, url: &str, method: &str, mut params: Value) -> reqwest::RequestBuilder {
        let request = self.http.post(url).header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream");
        let request = match (self.era, &self.session) {
            (Era::Legacy, Some(session)) => request.header("mcp-session-id", session),
            (Era::Legacy, None) => request,
            (Era::Modern, _) => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                let request =
                    request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", method);
                match params["uri"].as_str() {
                    Some(uri) => request.header("mcp-name", uri),
                    None => request,
                }
            }
        };
        request.body(json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string())
    }
}
