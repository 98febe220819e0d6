//! A host that calls tools, and the libraries that it is connected to.

use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use axum::http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use libris::wire::http::{self, Endpoint};
use libris::wire::{Limits, stdio};
use libris::{Catalog, Config, PathNote, Server, Source};
use libris_sources::files;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN];

/// A folder `docs` with these files.
pub(crate) fn folder(texts: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in texts {
        write(&folder, path, text.as_bytes());
    }
    folder
}

pub(crate) fn write(folder: &TempDir, path: &str, data: &[u8]) {
    let path = folder.path().join("docs").join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, data).unwrap();
}

pub(crate) fn files(folder: &TempDir) -> Arc<dyn Source> {
    source(&folder.path().join("docs"))
}

fn source(path: &Path) -> Arc<dyn Source> {
    let config = files::Config { path: path.to_owned(), ..files::Config::default() };
    Arc::new(files::Files::open(config).unwrap())
}

/// A catalog of a folder, with an index.
pub(crate) async fn catalog(folder: &TempDir) -> Arc<Catalog> {
    let catalog = Arc::new(Catalog::new(vec![files(folder)]));
    indexed(&catalog, Vec::new()).await;
    catalog
}

/// Indexes a catalog, if the library can.
pub(crate) async fn indexed(catalog: &Arc<Catalog>, notes: Vec<PathNote>) {
    #[cfg(feature = "search")]
    {
        catalog.start_search(libris::SearchConfig { notes, ..libris::SearchConfig::default() }).unwrap();
        catalog.search_index_completed().await.unwrap();
    }
    #[cfg(not(feature = "search"))]
    let _ = (catalog, notes);
}

/// A server of a folder with the default tools.
pub(crate) async fn server(folder: &TempDir) -> Arc<Server> {
    Arc::new(Server::new(catalog(folder).await, Config::default()))
}

/// A connection to a server in one revision.
pub(crate) struct Host {
    connection: Connection,
    revision: &'static str,
    session: Option<String>,
    last: u64,
    /// What the server said about itself.
    pub(crate) introduction: Value,
}

enum Connection {
    Stdio { input: PipeWriter, output: BufReader<PipeReader>, _stop: DropGuard },
    Http { sender: http1::SendRequest<Full<Bytes>>, _stop: DropGuard },
}

impl Host {
    /// Connects over stdio.
    pub(crate) async fn stdio(server: Arc<Server>, revision: &'static str) -> Self {
        let (server_input, input) = std::io::pipe().unwrap();
        let (output, server_output) = std::io::pipe().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(stdio::serve(server, Limits::default(), server_input, server_output, stop.clone()));
        let output = BufReader::new(output);
        Self::introduced(Connection::Stdio { input, output, _stop: stop.drop_guard() }, revision).await
    }

    /// Connects over HTTP.
    pub(crate) async fn http(server: Arc<Server>, revision: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let endpoint = Endpoint::new(server, http::Config::default());
        tokio::spawn(http::serve(listener, endpoint, stop.clone()));
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self::introduced(Connection::Http { sender, _stop: stop.drop_guard() }, revision).await
    }

    /// Both transports in this revision.
    pub(crate) async fn both(server: &Arc<Server>, revision: &'static str) -> [Self; 2] {
        [Self::stdio(server.clone(), revision).await, Self::http(server.clone(), revision).await]
    }

    async fn introduced(connection: Connection, revision: &'static str) -> Self {
        let mut host = Self { connection, revision, session: None, last: 0, introduction: Value::Null };
        let client = json!({ "name": "test", "version": "1" });
        host.introduction = match revision {
            MODERN => host.ask("server/discover", json!({})).await,
            _ => {
                let params = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": client });
                host.ask("initialize", params).await
            }
        }["result"]
            .clone();
        host
    }

    /// The response to a request.
    pub(crate) async fn ask(&mut self, method: &str, mut params: Value) -> Value {
        self.last += 1;
        let is_modern = self.revision == MODERN;
        if is_modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        match &mut self.connection {
            Connection::Stdio { input, output, .. } => tokio::task::block_in_place(|| {
                writeln!(input, "{message}").unwrap();
                loop {
                    let mut line = String::new();
                    assert_ne!(output.read_line(&mut line).unwrap(), 0, "the server has ended");
                    if line.contains("\"id\":") {
                        return serde_json::from_str(&line).unwrap();
                    }
                }
            }),
            Connection::Http { sender, .. } => {
                let mut request = Request::post("/mcp")
                    .header("host", "127.0.0.1")
                    .header("content-type", "application/json")
                    .header("accept", "application/json, text/event-stream");
                if let Some(session) = &self.session {
                    request = request.header("mcp-session-id", session);
                }
                if method != "initialize" {
                    request = request.header("mcp-protocol-version", self.revision);
                }
                if is_modern {
                    request = request.header("mcp-method", method);
                    let name = message["params"]["name"].as_str().or(message["params"]["uri"].as_str());
                    if let Some(name) =
                        name.filter(|_| method.ends_with("/call") || method.ends_with("/read"))
                    {
                        request = request.header("mcp-name", name);
                    }
                }
                let request = request.body(Full::from(message.to_string())).unwrap();
                sender.ready().await.unwrap();
                let response = sender.send_request(request).await.unwrap();
                let session = response.headers().get("mcp-session-id");
                if let Some(session) = session {
                    self.session = Some(session.to_str().unwrap().to_owned());
                }
                let body = response.into_body().collect().await.unwrap().to_bytes();
                serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{body:?}"))
            }
        }
    }

    /// The result of a tool.
    pub(crate) async fn call(&mut self, name: &str, arguments: Value) -> ToolResult {
        let answer = self.ask("tools/call", json!({ "name": name, "arguments": arguments })).await;
        assert!(answer["result"].is_object(), "{answer}");
        ToolResult(answer["result"].clone())
    }
}

/// The result of a tool call.
#[derive(Debug)]
pub(crate) struct ToolResult(pub(crate) Value);

impl ToolResult {
    /// The text of the first block.
    pub(crate) fn text(&self) -> &str {
        self.0["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{}", self.0))
    }

    pub(crate) fn structured(&self) -> &Value {
        &self.0["structuredContent"]
    }

    pub(crate) fn is_error(&self) -> bool {
        self.0["isError"] == true
    }

    /// The URIs of the links.
    pub(crate) fn links(&self) -> Vec<&str> {
        let blocks = self.0["content"].as_array().unwrap().iter();
        blocks
            .filter(|block| block["type"] == "resource_link")
            .map(|block| block["uri"].as_str().unwrap())
            .collect()
    }

    /// The lines between the marks, and the mark.
    pub(crate) fn enclosed(&self) -> (Vec<&str>, &str) {
        let mut lines = self.text().lines().skip_while(|line| !line.starts_with("--- begin "));
        let mark =
            lines.next().and_then(|line| line.split_whitespace().nth(2)).unwrap().trim_end_matches(':');
        let end = format!("--- end {mark} ---");
        let inside: Vec<_> = lines.by_ref().take_while(|line| *line != end).collect();
        (inside, mark)
    }
}
