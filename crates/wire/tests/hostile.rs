//! Clients that mean no good: what they take is bounded, and others do not notice.
//!
//! The tests measure the memory of the whole process, so they run one after the other.

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use libris_wire::http::{Config, Endpoint, serve};
use serde_json::{Value, json};
use support::{Toy, initialize, modern, request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long anything may take that is answered at all, on however busy a machine.
const SOON: Duration = Duration::from_secs(40);

const MIB: usize = 1 << 20;

struct Server {
    address: SocketAddr,
    toy: Arc<Toy>,
    _stop: DropGuard,
    _alone: MutexGuard<'static, ()>,
}

impl Server {
    async fn start(config: Config) -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let toy = Toy::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, Endpoint::new(toy.clone(), config), stop.clone()));
        Self { address, toy, _stop: stop.drop_guard(), _alone: alone }
    }

    async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap() }
    }

    /// What the server tells monitors of itself.
    async fn metric(&self, name: &str) -> usize {
        let mut monitor = self.connect().await;
        monitor.stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
        let (_, _, metrics) = monitor.response().await;
        let metrics = String::from_utf8(metrics).unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("libris_{name} ")));
        line.unwrap().parse().unwrap()
    }

    /// A client at another address of this machine.
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

    /// The next response: its status, its head and its body. Panics where it takes too long.
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

/// The resident memory of this process, in MiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

/// The most that resident memory grows by while this is done, in MiB.
async fn growth<T>(work: impl Future<Output = T>) -> (usize, T) {
    let before = resident();
    let mut most = before;
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (most.max(resident()) - before, done),
            () = tokio::time::sleep(Duration::from_millis(20)) => most = most.max(resident()),
        }
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_keep_nobody_from_what_costs_nothing() {
    use std::sync::atomic::Ordering;
    let server = Server::start(Config::default()).await;
    let mut waiting = Vec::new();
    for _ in 0..200 {
        let mut client = server.connect().await;
        client.read("toy:wait").await;
        waiting.push(client);
    }
    until("all of them wait", async || server.toy.begun.load(Ordering::SeqCst) == 200).await;
    let mut client = server.connect().await;
    let session = client.session().await;
    assert_eq!(client.ping(&session).await, 200);
    for method in ["server/discover", "resources/list", "resources/templates/list"] {
        client.ask(method, json!({})).await;
        assert_eq!(client.status().await, 200, "{method}");
    }
    for uri in ["toy:kept/a", "toy:size/3"] {
        client.read(uri).await;
        assert_eq!(client.status().await, 200, "{uri}");
    }
    // In a session as well, whose own requests all wait.
    for id in 0..40 {
        let mut other = server.connect().await;
        let read = request(id, "resources/read", json!({ "uri": "toy:wait" }));
        other.send(&[("mcp-session-id", &session)], &read).await;
        waiting.push(other);
    }
    until("a session's worth more of them wait", async || server.toy.begun.load(Ordering::SeqCst) >= 230)
        .await;
    assert_eq!(client.ping(&session).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_are_refused_at_once() {
    let server = Server::start(Config { requests: 8, ..Config::default() }).await;
    let mut waiting = Vec::new();
    for _ in 0..6 {
        let mut client = server.connect().await;
        client.read("toy:wait").await;
        waiting.push(client);
    }
    let mut client = server.connect().await;
    until("the share is used up", async || {
        client.read("toy:size/3").await;
        let (status, head, body) = client.response().await;
        if status == 200 {
            return false;
        }
        assert!(status == 503 && head.contains("retry-after"), "{head}");
        assert!(String::from_utf8_lossy(&body).contains("too many requests are in progress"));
        true
    })
    .await;
    // Another client has a share of its own, and an answer gives its place back.
    let mut other = server.connect_from(2).await;
    other.read("toy:size/3").await;
    assert_eq!(other.status().await, 200);
    server.toy.go.notify_one();
    until("there is room again", async || {
        client.read("toy:size/3").await;
        client.status().await == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_request_starts_when_it_arrives() {
    let limits = libris_wire::Limits { in_flight: 1, time: Duration::from_secs(2), ..Default::default() };
    let server = Server::start(Config { limits, ..Config::default() }).await;
    let session = server.connect().await.session().await;
    let mut clients = Vec::new();
    for id in 0..6 {
        let mut client = server.connect().await;
        let read = request(id, "resources/read", json!({ "uri": "toy:wait" }));
        client.send(&[("mcp-session-id", &session)], &read).await;
        clients.push(client);
    }
    // One after the other they would take twelve seconds.
    let began = std::time::Instant::now();
    for mut client in clients {
        let (_, _, body) = client.response().await;
        assert!(String::from_utf8_lossy(&body).contains("error"));
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_are_bounded_in_all() {
    let server = Server::start(Config::default()).await;
    let (grown, mut clients) = growth(async {
        let mut clients = Vec::new();
        for _ in 0..100 {
            let mut client = server.connect().await;
            // What the server does not read stays with the system.
            let body = vec![b' '; 4 * MIB - 1];
            let sending = client.begin("/mcp", &[], 4 * MIB, &body);
            let _ = timeout(Duration::from_millis(100), sending).await;
            clients.push(client);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        clients
    })
    .await;
    assert!(grown < 100, "{grown} MiB for unfinished bodies");
    // A moderate body is read all the same, as those that stall make room.
    let mut client = server.connect().await;
    let message = modern(1, "resources/read", json!({ "uri": "toy:size/3" })).to_string();
    let message = message + &" ".repeat(100_000);
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/read"),
        ("mcp-name", "toy:size/3"),
    ];
    client.begin("/mcp", &headers, message.len(), message.as_bytes()).await;
    assert_eq!(client.status().await, 200);
    // And so is a large one that goes on.
    let mut last = clients.pop().unwrap();
    drop(clients);
    until("the rest is sent", async || last.stream.write(b" ").await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_on_one_connection_are_bounded() {
    let server = Server::start(Config::default()).await;
    let spaces = bytes::Bytes::from(vec![b' '; 3 * MIB]);
    let (grown, _held) = growth(async {
        let mut held = Vec::new();
        for _ in 0..3 {
            let stream = TokioIo::new(server.connect().await.stream);
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            for _ in 0..50 {
                // Never ends, as far as the server is told.
                let body = Full::new(spaces.clone()).with_trailers(std::future::pending());
                let request = Request::post(format!("http://{}/mcp", server.address))
                    .header("content-type", "application/json")
                    .body(body)
                    .unwrap();
                held.push(tokio::spawn(sender.send_request(request)));
            }
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        held
    })
    .await;
    // Some of it is the client's.
    assert!(grown < 150, "{grown} MiB for unfinished bodies");
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_that_nobody_takes_are_bounded_and_keep_nobody_waiting() {
    let server = Server::start(Config::default()).await;
    let (grown, stalled) = growth(async {
        let mut stalled = Vec::new();
        for _ in 0..30 {
            let mut client = server.connect().await;
            client.read("toy:parts/16777216").await;
            stalled.push(client);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        stalled
    })
    .await;
    assert!(grown < 160, "{grown} MiB for responses that nobody takes");
    // Those who read are served, also where the memory of their own address is used up.
    for address in [1, 2] {
        for _ in 0..5 {
            let mut client = server.connect_from(address).await;
            client.read("toy:parts/200000").await;
            let (status, _, body) = client.response().await;
            assert_eq!((status, body.len() > 200_000), (200, true), "127.0.0.{address}");
        }
    }
    // Those who do not are let go while others wait for the memory that they hold.
    until("stalled connections are closed", async || server.metric("connections").await <= 28).await;
    drop(stalled);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_as_events_are_bounded_too() {
    let server = Server::start(Config::default()).await;
    let message = modern(1, "resources/read", json!({ "uri": "toy:parts/8388608" })).to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: resources/read\r\nmcp-name: toy:parts/8388608\r\n\
         content-length: {}\r\n\r\n{message}",
        message.len()
    );
    let (grown, _stalled) = growth(async {
        let mut stalled = Vec::new();
        for _ in 0..40 {
            let mut client = server.connect().await;
            client.stream.write_all(request.as_bytes()).await.unwrap();
            stalled.push(client);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        stalled
    })
    .await;
    assert!(grown < 160, "{grown} MiB for events that nobody takes");
    assert!(server.metric("unsent_bytes").await > 8 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_that_nobody_takes_are_counted_and_name_each_uri_once() {
    let server = Server::start(Config::default()).await;
    let long = format!("toy:{}", "a".repeat(8_000));
    let listen = |uris: Vec<String>| json!({ "notifications": { "resourceSubscriptions": uris } });
    let mut client = server.connect().await;
    client.ask("subscriptions/listen", listen(vec![long.clone(); 400])).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"\n\n\r\n") {
        seen.push(client.stream.read_u8().await.unwrap());
    }
    assert!(seen.len() < 10_000, "{}", seen.len());
    // Of different ones, all are named, and all of that is counted until it is taken. The system takes some itself.
    let many: Vec<_> = (0..490).map(|number| format!("{long}{number}")).collect();
    let mut stalled = Vec::new();
    until("it is counted", async || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let mut client = Client { stream: socket.connect(server.address).await.unwrap() };
        client.ask("subscriptions/listen", listen(many.clone())).await;
        stalled.push(client);
        server.metric("unsent_bytes").await > MIB
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_told_of_progress_can_be_cancelled() {
    use std::sync::atomic::Ordering;
    let server = Server::start(Config::default()).await;
    let mut client = server.connect().await;
    let session = client.session().await;
    let mut read = request(7, "resources/read", json!({ "uri": "toy:progress" }));
    read["params"]["_meta"] = json!({ "progressToken": 1 });
    client.send(&[("mcp-session-id", &session)], &read).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"\n\n\r\n") {
        seen.push(client.stream.read_u8().await.unwrap());
    }
    assert_eq!(server.toy.ended.load(Ordering::SeqCst), 0);
    let mut other = server.connect().await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    other.send(&[("mcp-session-id", &session)], &cancel).await;
    until("it ends", async || server.toy.ended.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_responses_that_nobody_takes_are_counted() {
    let server = Server::start(Config { sse: true, ..Config::default() }).await;
    let mut client = server.connect().await;
    let read = json!({ "uri": "toy:kept/large" });
    let text = format!("\"contents\":[{{\"uri\":\"toy:kept/large\",\"text\":\"{}\"}}]", "x".repeat(60_000));
    *server.toy.large.lock().unwrap() = Some(text.into_bytes().into());
    // Until neither the system nor the server takes any more.
    let asking = async {
        loop {
            client.ask("resources/read", read.clone()).await;
        }
    };
    let _ = timeout(Duration::from_secs(3), asking).await;
    let unsent = server.metric("unsent_bytes").await;
    assert!((1..=64_000).contains(&unsent), "{unsent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_transport_has_the_same_bounds() {
    let server = Server::start(Config { sse: true, ..Config::default() }).await;
    let (grown, _held) = growth(async {
        let mut held = Vec::new();
        for _ in 0..8 {
            let mut stream = server.connect().await;
            stream.stream.write_all(b"GET /sse HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
            let mut seen = String::new();
            while !seen.contains("sessionId=") || !seen.ends_with("\n\n\r\n") {
                seen.push(char::from(stream.stream.read_u8().await.unwrap()));
            }
            let path = seen.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().trim().to_owned();
            held.push(stream);
            let mut poster = server.connect().await;
            let hello = initialize("2024-11-05").to_string();
            poster.begin(&path, &[], hello.len(), hello.as_bytes()).await;
            assert_eq!(poster.status().await, 202);
            for id in 0..8 {
                let mut poster = server.connect().await;
                let read = request(id, "resources/read", json!({ "uri": "toy:parts/8388608" })).to_string();
                poster.begin(&path, &[], read.len(), read.as_bytes()).await;
                held.push(poster);
            }
        }
        tokio::time::sleep(Duration::from_millis(1000)).await;
        held
    })
    .await;
    assert!(grown < 200, "{grown} MiB for streams that nobody reads");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_opens_many_sessions_keeps_nobody_out() {
    let server = Server::start(Config { sessions: 80, ..Config::default() }).await;
    let mut bystander = server.connect().await;
    let mine = bystander.session().await;
    let mut flooder = server.connect().await;
    let mut flood = Vec::new();
    for _ in 0..100 {
        let session = flooder.session().await;
        flooder.ping(&session).await;
        flood.push(session);
    }
    assert_eq!(server.connect().await.session().await.len(), 32, "a newcomer is let in");
    assert_eq!(bystander.ping(&mine).await, 200);
    assert_eq!(flooder.ping(flood.last().unwrap()).await, 200);
    assert_eq!(flooder.ping(&flood[0]).await, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_keep_nobody_out() {
    let server = Server::start(Config { connections: 40, ..Config::default() }).await;
    let mut idle = Vec::new();
    for _ in 0..60 {
        idle.push(server.connect().await);
    }
    for address in [1, 2] {
        let mut client = server.connect_from(address).await;
        client.read("toy:size/3").await;
        assert_eq!(client.status().await, 200, "127.0.0.{address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_closed_client_gets_each_of_its_answers() {
    let server = Server::start(Config::default()).await;
    let mut client = server.connect().await;
    for _ in 0..4 {
        client.read("toy:wait").await;
    }
    client.stream.shutdown().await.unwrap();
    // Each takes a while, and all of them more than any one may.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.toy.go.notify_one();
        assert_eq!(client.status().await, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preface_in_pieces_is_understood() {
    let server = Server::start(Config::default()).await;
    for cut in [1, 2, 3, 10] {
        let mut stream = server.connect().await.stream;
        stream.set_nodelay(true).unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        stream.write_all(&preface[..cut]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.write_all(&preface[cut..]).await.unwrap();
        // An empty SETTINGS frame, which is answered by one.
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        let mut frame = [0; 9];
        timeout(SOON, stream.read_exact(&mut frame)).await.unwrap().unwrap();
        assert_eq!(frame[3], 4, "cut at {cut}: {frame:?}");
    }
    // What begins alike is HTTP/1 all the same.
    let mut client = server.connect().await;
    client.stream.write_all(b"P").await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    client
        .stream
        .write_all(b"UT /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(client.status().await, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_http_2_that_nobody_takes_are_bounded() {
    let server = Server::start(Config::default()).await;
    let (grown, _held) = growth(async {
        let mut held = Vec::new();
        for _ in 0..2 {
            let stream = TokioIo::new(server.connect().await.stream);
            let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(1 << 10)
                .handshake(stream)
                .await
                .unwrap();
            tokio::spawn(connection);
            for id in 0..60 {
                let message = modern(id, "resources/read", json!({ "uri": "toy:parts/8388608" }));
                let request = Request::post(format!("http://{}/mcp", server.address))
                    .header("content-type", "application/json")
                    .header("mcp-protocol-version", "2026-07-28")
                    .header("mcp-method", "resources/read")
                    .header("mcp-name", "toy:parts/8388608")
                    .body(Full::<bytes::Bytes>::new(message.to_string().into()))
                    .unwrap();
                held.push(tokio::spawn(sender.send_request(request)));
            }
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        held
    })
    .await;
    assert!(grown < 160, "{grown} MiB for responses that nobody takes");
}
