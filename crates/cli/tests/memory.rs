//! Memory of concurrent reads of large contents whose size is unknown in advance.
#![cfg(target_os = "linux")]

mod process;

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::extract::Path as Segment;
use axum::routing::get;
use process::HttpServer;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

/// The most memory that a server may use, in MiB.
const MOST: usize = 256;

/// The peak resident memory of a process, in MiB.
fn peak(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

/// Serves this configuration.
async fn serve(folder: &Path, config: &str) -> HttpServer {
    let file = folder.join("libris.toml");
    std::fs::write(&file, config).unwrap();
    HttpServer::start(&[OsStr::new("--config"), file.as_os_str()]).await
}

/// Reads all of these concurrently, and retries those that the server refuses for lack of memory. Returns their
/// sizes in bytes.
async fn read_all(server: &HttpServer, uris: Vec<String>) -> Vec<usize> {
    let mut reads = JoinSet::new();
    for uri in uris {
        let url = server.url.clone();
        reads.spawn(async move {
            loop {
                if let Some(size) = read(&url, &uri).await {
                    return size;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    reads.join_all().await
}

/// A request to read a resource.
fn request(uri: &str) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "uri": uri, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params })
}

async fn read(url: &str, uri: &str) -> Option<usize> {
    let request = request(uri);
    let sent = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "resources/read")
        .header("mcp-name", uri)
        .body(request.to_string());
    let answer = sent.send().await.unwrap().bytes().await.unwrap();
    if answer.len() > 1 << 20 {
        return Some(answer.len());
    }
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    let later = "the server has no memory left for large contents; try again later";
    assert!(why.contains(later), "{answer}");
    None
}

#[tokio::test]
async fn large_answers_of_an_api_to_many_readers() {
    let answer = get(|Segment(_): Segment<String>| async { "x".repeat(8_000_000) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, Router::new().route("/{name}", answer)).into_future());
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[[http]]\nbase = \"{base}\"\nlimits = {{ allow_private = true }}\n[[http.template]]\nuri = \
         \"large://{{name}}\"\nurl = \"{{/name}}\"\n"
    );
    let server = serve(folder.path(), &config).await;
    let sizes = read_all(&server, (0..30).map(|name| format!("large://{name}")).collect()).await;
    assert!(sizes.iter().all(|size| *size > 8_000_000));
    let peak = peak(server.process.id().unwrap());
    assert!(peak < MOST, "{peak} MiB were in use");
}

#[tokio::test]
async fn large_outputs_of_a_command_to_many_readers() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[[command]]\nuri = \"large://{name}\"\nrun = [\"sh\", \"-c\", \"head -c 16000000 /dev/zero | \
                  tr '\\\\0' x; : $0\", \"{{name}}\"]\nmax_size = 20000000\nconcurrent = 32\ntimeout = \"1m\"\n";
    let server = serve(folder.path(), config).await;
    let sizes = read_all(&server, (0..16).map(|name| format!("large://{name}")).collect()).await;
    assert!(sizes.iter().all(|size| *size > 16_000_000));
    let peak = peak(server.process.id().unwrap());
    assert!(peak < MOST, "{peak} MiB were in use");
}

/// The value of one of the server's metrics.
async fn metric(server: &HttpServer, name: &str) -> usize {
    let url = server.url.replace("/mcp", "/metrics");
    let metrics = reqwest::get(url).await.unwrap().text().await.unwrap();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn large_files_for_clients_that_leave_without_reading() {
    const CLIENTS: usize = 88;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    for number in 0..CLIENTS {
        std::fs::File::create(data.join(number.to_string())).unwrap().set_len(8_000_000).unwrap();
    }
    let server = HttpServer::start(&[data.as_os_str()]).await;
    let address = server.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let uri = format!("file:///data/{number}");
        let body = request(&uri).to_string();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut client = socket.connect(address.parse().unwrap()).await.unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json, \
             text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: resources/read\r\nmcp-name: \
             {uri}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        client.write_all((head + &body).as_bytes()).await.unwrap();
        clients.push(client);
    }
    while metric(&server, "libris_unsent_bytes").await < 24_000_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(clients);
    while metric(&server, "libris_requests").await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let peak = peak(server.process.id().unwrap());
    assert!(peak < MOST, "{peak} MiB were in use");
}
