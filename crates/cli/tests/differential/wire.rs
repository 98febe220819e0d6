//! Raw JSON connections to a server, over stdio and HTTP.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::Child;

use crate::cases::{CAPABILITIES, Case, LAST_CURSOR, VERSION};
use crate::process::{HttpServer, serve};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transport {
    Stdio,
    Http,
}

/// The built binary, serving a configuration.
pub(crate) struct Libris {
    http: HttpServer,
    config: PathBuf,
    _home: TempDir,
}

impl Libris {
    pub(crate) async fn start(config: &str) -> Self {
        let home = TempDir::new().expect("a temporary folder");
        let path = home.path().join("libris.toml");
        std::fs::write(&path, config).expect("a configuration");
        Self {
            http: HttpServer::start(&["--config".as_ref(), path.as_os_str()]).await,
            config: path,
            _home: home,
        }
    }

    pub(crate) async fn connect(&self, transport: Transport) -> Connection {
        match transport {
            Transport::Http => Connection::http(&self.http.url),
            Transport::Stdio => {
                let mut child = serve(&["--config".as_ref(), self.config.as_os_str(), "--stdio".as_ref()])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("libris starts");
                let (read, write) =
                    (child.stdout.take().expect("stdout"), child.stdin.take().expect("stdin"));
                Connection::pipe(read, write, Some(child))
            }
        }
    }
}

/// The transport of a connection.
pub(crate) enum Connection {
    Pipe {
        read: Box<dyn AsyncBufRead + Send + Unpin>,
        write: Box<dyn AsyncWrite + Send + Unpin>,
        /// The server process, which ends with the connection.
        _process: Option<Child>,
    },
    Http {
        client: reqwest::Client,
        url: String,
        session: Option<String>,
    },
}

impl Connection {
    pub(crate) fn pipe(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
        process: Option<Child>,
    ) -> Self {
        Self::Pipe { read: Box::new(BufReader::new(read)), write: Box::new(write), _process: process }
    }

    pub(crate) fn http(url: &str) -> Self {
        Self::Http { client: reqwest::Client::new(), url: url.to_owned(), session: None }
    }

    /// Sends a line, over HTTP with `headers`. Returns the response over HTTP, where it belongs to the request.
    async fn send(&mut self, line: &str, headers: &[(&str, String)]) -> Option<Value> {
        match self {
            Self::Pipe { write, .. } => {
                write.write_all(line.as_bytes()).await.expect("the server reads");
                write.write_all(b"\n").await.expect("the server reads");
                write.flush().await.expect("the server reads");
                None
            }
            Self::Http { client, url, session } => {
                let mut request = client
                    .post(url.as_str())
                    .header("Content-Type", "application/json")
                    .header("Accept", "application/json, text/event-stream");
                for (name, value) in headers {
                    request = request.header(*name, value);
                }
                if let Some(session) = session {
                    request = request.header("Mcp-Session-Id", session.as_str());
                }
                let response = request.body(line.to_owned()).send().await.expect("an answer");
                if let Some(given) = response.headers().get("Mcp-Session-Id") {
                    *session = Some(given.to_str().expect("text").to_owned());
                }
                let status = response.status().as_u16();
                let body = response.text().await.expect("text");
                Some(json!({"status": status, "body": message(&body)}))
            }
        }
    }

    /// Sends a line and returns its response.
    async fn ask(&mut self, line: &str, headers: &[(&str, String)]) -> Value {
        match self.send(line, headers).await {
            Some(answer) => answer,
            None => json!({"body": self.line().await}),
        }
    }

    async fn line(&mut self) -> Value {
        let Self::Pipe { read, .. } = self else { unreachable!("HTTP answers when it is asked") };
        loop {
            let mut line = String::new();
            read.read_line(&mut line).await.expect("text");
            let message: Value = serde_json::from_str(&line).expect("a message");
            // Notifications are not compared.
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Closes the input of a stdio server. Returns its remaining output.
    async fn close(self) -> Vec<Value> {
        let Self::Pipe { read, mut write, _process } = self else { unreachable!("HTTP has no end") };
        write.shutdown().await.expect("an open pipe");
        drop(write);
        let mut said = Vec::new();
        let mut lines = read.lines();
        while let Some(line) = lines.next_line().await.expect("text") {
            said.push(serde_json::from_str(&line).expect("a message"));
        }
        said
    }
}

/// The message in a body: JSON, or the first event of a stream that is JSON; `null` for other text.
fn message(body: &str) -> Value {
    let events = body.lines().filter_map(|line| line.strip_prefix("data:"));
    std::iter::once(body)
        .chain(events)
        .find_map(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null)
}

/// The response to an `initialize` request for `revision`, even if that revision has no handshake.
pub(crate) async fn initialize(connection: &mut Connection, revision: &str) -> Value {
    let client = json!({"name": "differential", "version": "0"});
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client});
    let request = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    connection.ask(&request.to_string(), &[]).await
}

/// A connection in one revision.
pub(crate) struct Conversation {
    connection: Connection,
    revision: &'static str,
    cursor: Value,
    /// The response to the first request: `initialize`, or `server/discover` in revisions without a handshake.
    pub(crate) opening: Value,
}

impl Conversation {
    pub(crate) async fn open(connection: Connection, revision: &'static str) -> Self {
        let mut opened = Self { connection, revision, cursor: Value::Null, opening: Value::Null };
        if opened.is_modern() {
            opened.opening = opened.request(&json!(0), "server/discover", None).await;
        } else {
            opened.opening = initialize(&mut opened.connection, revision).await;
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            let headers = opened.headers("notifications/initialized", &Value::Null);
            opened.connection.send(&initialized.to_string(), &headers).await;
        }
        opened
    }

    fn is_modern(&self) -> bool {
        self.revision >= "2026"
    }

    pub(crate) async fn ask(&mut self, case: &Case) -> Value {
        self.request(&case.id, case.method, case.params.clone()).await
    }

    /// Sends a line that may get no response, and closes the connection to find out.
    pub(crate) async fn end(mut self, line: &str) -> Value {
        let headers = self.headers("ping", &Value::Null);
        match self.connection.send(line, &headers).await {
            Some(answer) => answer,
            None => json!({"body": self.connection.close().await.pop()}),
        }
    }

    async fn request(&mut self, id: &Value, method: &str, params: Option<Value>) -> Value {
        let mut params = params.unwrap_or(Value::Null);
        if params["cursor"] == LAST_CURSOR {
            params["cursor"] = self.cursor.take();
        }
        if self.is_modern() && params["_meta"].is_null() {
            params["_meta"] = json!({
                VERSION: self.revision,
                CAPABILITIES: {},
                "io.modelcontextprotocol/clientInfo": {"name": "differential", "version": "0"},
            });
        }
        let mut request = json!({"jsonrpc": "2.0", "id": id, "method": method});
        let headers = self.headers(method, &params);
        if !params.is_null() {
            request["params"] = params;
        }
        let answer = self.connection.ask(&request.to_string(), &headers).await;
        if let Some(cursor) = answer.pointer("/body/result/nextCursor") {
            self.cursor = cursor.clone();
        }
        answer
    }

    fn headers(&self, method: &str, params: &Value) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if self.revision >= "2025-06-18" {
            headers.push(("MCP-Protocol-Version", self.revision.to_owned()));
        }
        if self.is_modern() {
            headers.push(("Mcp-Method", method.to_owned()));
            if let Some(name) = params["uri"].as_str().or(params["name"].as_str()) {
                headers.push(("Mcp-Name", name.to_owned()));
            }
        }
        headers
    }
}
