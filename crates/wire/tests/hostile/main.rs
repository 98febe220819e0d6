//! Hostile clients: their use of resources is bounded, and other clients are served.
//!
//! The tests measure the memory of the whole process, so they run one after the other.

mod arriving;
mod bodies;
mod budgets;
mod connections;
mod heads;
mod open_streams;
mod requests;
mod responses;
mod streams;
#[path = "../support/mod.rs"]
mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use libris_wire::http::{Config, Endpoint, serve};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use support::{Toy, configured, initialize, modern, request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Distinguishes slow responses on a loaded machine from missing ones.
const SOON: Duration = Duration::from_secs(40);

const MIB: usize = 1 << 20;

/// Holds the lock that serialises the tests.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

struct Server {
    address: SocketAddr,
    toy: Arc<Toy>,
    _stop: DropGuard,
    _alone: MutexGuard<'static, ()>,
}

impl Server {
    async fn start(config: Config) -> Self {
        let alone = alone().await;
        let toy = Toy::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, Endpoint::new(toy.clone(), configured(config)), stop.clone()));
        Self { address, toy, _stop: stop.drop_guard(), _alone: alone }
    }

    async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap() }
    }

    /// The server's metrics.
    async fn metric(&self, name: &str) -> usize {
        let mut monitor = self.connect().await;
        monitor.stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
        let (_, _, metrics) = monitor.response().await;
        let metrics = String::from_utf8(metrics).unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("mcp_{name} ")));
        line.unwrap().parse().unwrap()
    }

    /// A client at another loopback address.
    async fn connect_from(&self, last: u8) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
        Client { stream: socket.connect(self.address).await.unwrap() }
    }
}

/// A client of HTTP/1.
struct Client {
    stream: TcpStream,
}

impl Client {
    /// Sends the head of a POST with these headers and the beginning of its body.
    async fn begin(&mut self, path: &str, headers: &[(&str, &str)], length: usize, body: &[u8]) {
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {length}\r\n"
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    }

    async fn send(&mut self, headers: &[(&str, &str)], message: &Value) {
        let body = message.to_string();
        self.begin("/mcp", headers, body.len(), body.as_bytes()).await;
    }

    async fn ask(&mut self, method: &str, params: Value) {
        let message = modern(1, method, params);
        let name = message["params"]["uri"].as_str().unwrap_or_default().to_owned();
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", &name)];
        let headers = if name.is_empty() { &headers[..2] } else { &headers[..] };
        self.send(headers, &message).await;
    }

    async fn read(&mut self, uri: &str) {
        self.ask("resources/read", json!({ "uri": uri })).await;
    }

    /// The next response: status, head and body. Panics after a time-out.
    async fn response(&mut self) -> (u16, String, Vec<u8>) {
        timeout(SOON, self.response_at_last())
            .await
            .expect("no answer in time")
            .expect("the connection ended")
    }

    async fn response_at_last(&mut self) -> Option<(u16, String, Vec<u8>)> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head[9..12].parse().unwrap();
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let mut body = Vec::new();
        if let Some(length) = field("content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut body).await.ok()?;
        } else {
            assert_eq!(field("transfer-encoding"), Some("chunked"), "{head}");
            loop {
                let mut size = Vec::new();
                while !size.ends_with(b"\r\n") {
                    size.push(self.stream.read_u8().await.ok()?);
                }
                let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
                let start = body.len();
                body.resize(start + size + 2, 0);
                self.stream.read_exact(&mut body[start..]).await.ok()?;
                body.truncate(start + size);
                if size == 0 {
                    break;
                }
            }
        }
        Some((status, head, body))
    }

    async fn status(&mut self) -> u16 {
        self.response().await.0
    }

    async fn session(&mut self) -> String {
        self.send(&[], &initialize("2025-06-18")).await;
        let (status, head, _) = self.response().await;
        assert_eq!(status, 200, "{head}");
        head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned()
    }

    async fn ping(&mut self, session: &str) -> u16 {
        self.send(&[("mcp-session-id", session)], &request(1, "ping", json!({}))).await;
        self.status().await
    }
}

/// Counts the bytes on the heap. Resident memory would not do: how much of it grows depends on what earlier tests have
/// freed, so that the same 400 connections add 2 MiB in one run and 5 in another.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// How much the heap grows during an action at its peak, in bytes. The clients are in this process, too.
async fn growth<T>(work: impl Future<Output = T>) -> (usize, T) {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let done = work.await;
    (HEAP.peak_usage().saturating_sub(before), done)
}

/// Waits until this holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = timeout(SOON, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}
