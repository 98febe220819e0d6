//! The binary over HTTP, and clients of both eras that receive notifications.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// How long tests wait for an event.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The program, serving over HTTP until this is dropped.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) url: String,
    /// Its lines on standard error since it listens.
    said: Arc<Mutex<Vec<String>>>,
}

impl Program {
    pub(crate) fn serve(arguments: &[&str]) -> Self {
        Self::serve_in(arguments, &[])
    }

    /// Starts the program with these environment variables in addition.
    pub(crate) fn serve_in(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_libris"))
            .arg("serve")
            .args(arguments)
            .envs(environment.iter().copied())
            .args(["--http", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = loop {
            let line = lines.next().expect("the program says where it listens").unwrap();
            if let Some(url) = line.strip_prefix("listening on ") {
                break url.to_owned();
            }
            eprintln!("{line}");
        };
        // Drains the pipe, on which the program would block otherwise.
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                eprintln!("{line}");
                heard.lock().unwrap().push(line);
            }
        });
        Self { child, url, said }
    }

    /// The number of lines on standard error that contain this.
    pub(crate) fn said(&self, text: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }

    pub(crate) fn folder(folder: &Path) -> Self {
        Self::serve(&[folder.to_str().unwrap()])
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// A number from the metrics.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let url = self.url.replace("/mcp", "/metrics");
        let text = reqwest::get(url).await.unwrap().text().await.unwrap();
        let prefix = format!("libris_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().parse().unwrap()
    }

    /// How many directories the kernel watches for clients of the program.
    pub(crate) fn inotify_watches(&self) -> usize {
        let id = self.child.id();
        let mut queues: Vec<(u32, String)> = std::fs::read_dir(format!("/proc/{id}/fdinfo"))
            .unwrap()
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let number = entry.file_name().to_str()?.parse().ok()?;
                let target = std::fs::read_link(format!("/proc/{id}/fd/{number}")).ok()?;
                let is_queue = target.to_str()?.contains("inotify");
                is_queue.then(|| (number, std::fs::read_to_string(entry.path()).unwrap_or_default()))
            })
            .collect();
        queues.sort();
        // Skips the first inotify instance, which always exists and validates cached responses.
        let lines = queues.iter().skip(1).flat_map(|(_, text)| text.lines());
        lines.filter(|line| line.starts_with("inotify ")).count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a client connects: with or without a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// A client that receives notifications.
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    session: Option<String>,
    pub(crate) heard: Arc<Mutex<Heard>>,
    stream: JoinHandle<()>,
}

/// The notifications that a client received.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Whether the client has a legacy session.
    is_session: bool,
    /// The total number of `list_changed` notifications.
    pub(crate) lists: usize,
    /// Whether one was received since the last call of `heard_of_list`.
    pub(crate) list: bool,
    /// The total number of notifications of each resource.
    pub(crate) updates: BTreeMap<String, usize>,
    /// The resources notified since the last call of `heard_of`.
    pub(crate) updated: BTreeSet<String>,
    /// The result with which the stream ended.
    pub(crate) ended: Option<Value>,
}

impl Client {
    /// Connects, subscribes to these and to the list, and returns once the subscriptions are active.
    pub(crate) async fn connect(program: &Program, era: Era, uris: &[String]) -> Self {
        Self::connect_from(Ipv4Addr::LOCALHOST, program, era, uris).await
    }

    /// Like [`connect`](Self::connect), from another loopback address: the server divides its budgets by address.
    pub(crate) async fn connect_from(
        address: Ipv4Addr,
        program: &Program,
        era: Era,
        uris: &[String],
    ) -> Self {
        let http = reqwest::Client::builder().local_address(IpAddr::V4(address)).build().unwrap();
        let mut client = Self {
            http,
            url: program.url.clone(),
            session: None,
            heard: Arc::default(),
            stream: tokio::spawn(async {}),
        };
        match era {
            Era::Legacy => client.open_session(program, uris).await,
            Era::Modern => client.listen(uris).await,
        }
        client
    }

    async fn open_session(&mut self, program: &Program, uris: &[String]) {
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "live", "version": "1" },
        });
        let response = self.post("initialize", hello).send().await.unwrap();
        self.session = Some(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        self.heard.lock().unwrap().is_session = true;
        for uri in uris {
            let answer = self.ask("resources/subscribe", json!({ "uri": uri })).await;
            assert_eq!(answer["result"], json!({}), "{uri}");
        }
        let stream = self
            .http
            .get(&self.url)
            .header("accept", "text/event-stream")
            .header("mcp-session-id", self.session.clone().unwrap())
            .send()
            .await
            .unwrap();
        self.stream = tokio::spawn(hear(stream, String::new(), self.heard.clone()));
        // The subscription to the list starts with the stream; the metrics show its watch.
        eventually("the session follows the list", async || {
            program.metric("session_streams").await > 0 && program.metric("watches").await > 0
        })
        .await;
    }

    async fn listen(&mut self, uris: &[String]) {
        let wanted = json!({ "resourcesListChanged": true, "resourceSubscriptions": uris });
        let request = self.post("subscriptions/listen", json!({ "notifications": wanted }));
        let mut stream = request.send().await.unwrap();
        let first = stream.chunk().await.unwrap().unwrap();
        let first = String::from_utf8_lossy(&first).into_owned();
        assert!(first.contains("notifications/subscriptions/acknowledged"), "{first}");
        // Notifications that were pending may have come with it.
        let (_, rest) = first.split_once("\n\n").expect("whole events");
        self.stream = tokio::spawn(hear(stream, rest.to_owned(), self.heard.clone()));
    }

    fn post(&self, method: &str, mut params: Value) -> reqwest::RequestBuilder {
        let request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        let request = match &self.session {
            Some(session) => request.header("mcp-session-id", session),
            None if method == "initialize" => request,
            None => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                let name = params["uri"].as_str().or(params["name"].as_str()).unwrap_or_default().to_owned();
                let request =
                    request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", method);
                if name.is_empty() { request } else { request.header("mcp-name", name) }
            }
        };
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        request.body(message.to_string())
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let response = self.post(method, params).send().await.unwrap();
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
    }

    /// The contents at a URI, if it exists.
    pub(crate) async fn read(&self, uri: &str) -> Option<Value> {
        let answer = self.ask("resources/read", json!({ "uri": uri })).await;
        answer["result"]["contents"].is_array().then(|| answer["result"]["contents"].clone())
    }

    /// All listed resources with their sizes, except for those of Libris itself.
    pub(crate) async fn list(&self) -> BTreeMap<String, Option<u64>> {
        let mut all = BTreeMap::new();
        let mut cursor = Value::Null;
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let answer = self.ask("resources/list", params).await;
            for resource in answer["result"]["resources"].as_array().unwrap_or_else(|| panic!("{answer}")) {
                let uri = resource["uri"].as_str().unwrap().to_owned();
                if uri.starts_with("libris://") {
                    continue;
                }
                assert!(
                    all.insert(uri.clone(), resource["size"].as_u64()).is_none(),
                    "{uri} is listed twice"
                );
            }
            cursor = answer["result"]["nextCursor"].clone();
            if cursor.is_null() {
                return all;
            }
        }
    }

    /// Whether the list was told as changed since the last look.
    pub(crate) fn heard_of_list(&self) -> bool {
        std::mem::take(&mut self.heard.lock().unwrap().list)
    }

    /// What was told as updated since the last look.
    pub(crate) fn heard_of(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.heard.lock().unwrap().updated)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stream.abort();
    }
}

/// Reads a stream of events to its end.
async fn hear(mut stream: reqwest::Response, mut text: String, heard: Arc<Mutex<Heard>>) {
    loop {
        while let Some((event, rest)) = text.split_once("\n\n") {
            if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
                note(&mut heard.lock().unwrap(), serde_json::from_str(data).unwrap());
            }
            text = rest.to_owned();
        }
        let Ok(Some(chunk)) = stream.chunk().await else { return };
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
}

fn note(heard: &mut Heard, message: Value) {
    match message["method"].as_str() {
        Some("notifications/resources/list_changed") => {
            heard.lists += 1;
            heard.list = true;
        }
        Some("notifications/resources/updated") => {
            let uri = message["params"]["uri"].as_str().unwrap().to_owned();
            *heard.updates.entry(uri.clone()).or_default() += 1;
            heard.updated.insert(uri);
        }
        // A session hears of every list, without asking.
        Some("notifications/prompts/list_changed") if heard.is_session => {}
        Some(other) => panic!("nobody asked for {other}"),
        None => heard.ended = Some(message["result"].clone()),
    }
}

/// Waits until a condition holds; panics after `DEADLINE`.
pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}
