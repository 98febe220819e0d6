//! The fast path for cached responses: clients cannot tell it from the path through hyper.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libris_wire::http::{Config, Endpoint, serve};
use serde_json::{Value, json};
use support::{Toy, configured, initialize, modern, request};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

struct Connection<S = TcpStream> {
    stream: BufReader<S>,
    toy: Arc<Toy>,
    address: SocketAddr,
}

/// The head of a response in lower case, and its body.
type Received = (String, Vec<u8>);

impl Connection {
    /// A connection on which one request was already answered.
    async fn open() -> Self {
        let toy = Toy::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint = Endpoint::new(toy.clone(), configured(Config::default()));
        tokio::spawn(serve(listener, endpoint, CancellationToken::new()));
        let mut connection = Self::to(address, toy).await;
        connection.send(&read("toy:size/1", 0)).await;
        connection.receive().await;
        connection
    }

    async fn to(address: SocketAddr, toy: Arc<Toy>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // With a small receive buffer, the kernel cannot buffer a large response that the client does not read.
        socket.set_recv_buffer_size(1 << 20).unwrap();
        let stream = socket.connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), toy, address }
    }

    async fn another(&self) -> Self {
        Self::to(self.address, self.toy.clone()).await
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }
}

impl<S: AsyncRead + Unpin> Connection<S> {
    async fn receive(&mut self) -> Received {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = self.stream.read_line(&mut head).await.unwrap();
            assert!(read > 0, "the connection ended after {head:?}");
        }
        let head = head.to_ascii_lowercase();
        if head.contains("transfer-encoding: chunked") {
            let body = self.chunks().await;
            return (head, body);
        }
        let length = head
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.unwrap();
        (head, body)
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await.unwrap();
            let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).await.unwrap();
            assert!(chunk.ends_with(b"\r\n"));
            if size == 0 {
                return body;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn answer(&mut self) -> Value {
        let (head, body) = self.receive().await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        serde_json::from_slice(&body).unwrap()
    }

    fn at_hand(&self) -> usize {
        self.toy.kept.load(Ordering::SeqCst)
    }
}

fn post(headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head = "POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\n".to_owned();
    let mut add = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
    for (name, value) in [("host", "127.0.0.1"), ("accept", "application/json, text/event-stream")] {
        if !headers.iter().any(|(other, _)| *other == name) {
            add(name, value);
        }
    }
    for (name, value) in headers {
        add(name, value);
    }
    add("content-length", &body.len().to_string());
    format!("{head}\r\n{body}").into_bytes()
}

fn with(headers: &[(&str, &str)], uri: &str, id: u32) -> Vec<u8> {
    let usual = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "resources/read"), ("mcp-name", uri)];
    let left = usual.iter().filter(|(name, _)| !headers.iter().any(|(other, _)| other == name));
    let all: Vec<_> = left.chain(headers).copied().filter(|(_, value)| !value.is_empty()).collect();
    post(&all, &modern(id, "resources/read", json!({ "uri": uri })).to_string())
}

fn read(uri: &str, id: u32) -> Vec<u8> {
    with(&[], uri, id)
}

#[tokio::test]
async fn both_ways_answer_alike() {
    let mut connection = Connection::open().await;
    let uris = [
        "toy:kept/a",
        "toy:kept/missing",
        "toy:size/9",
        "toy:size/100000",
        "toy:parts/5000000",
        "toy:nowhere",
    ];
    for uri in uris {
        connection.send(&read(uri, 1)).await;
        let (short_head, short) = connection.receive().await;
        // An equivalent header in unusual spelling.
        connection.send(&with(&[("accept", "*/*")], uri, 1)).await;
        let (long_head, long) = connection.receive().await;
        assert!(short == long, "{uri}");
        let fields = |head: &str| {
            let lines = head.lines().map(|line| match line.split_once(": ") {
                Some(("date", _)) => "date".to_owned(),
                _ => line.to_owned(),
            });
            let mut fields: Vec<_> = lines.collect();
            fields.sort();
            fields
        };
        assert_eq!(fields(&short_head), fields(&long_head), "{uri}");
    }
    assert_eq!(connection.at_hand(), 4);
}

#[tokio::test]
async fn a_cached_error_is_an_error() {
    let mut connection = Connection::open().await;
    connection.send(&read("toy:kept/missing", 7)).await;
    let (_, body) = connection.receive().await;
    let answer: serde_json::Value = serde_json::from_slice(body.as_ref()).unwrap();
    let error = json!({
        "code": -32602,
        "message": "resource not found: look elsewhere",
        "data": { "uri": "toy:kept/missing" },
    });
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 7, "error": error }));
    assert_eq!(connection.at_hand(), 1);
}

#[tokio::test]
async fn what_a_client_that_leaves_has_asked_is_given_up() {
    let first = Connection::open().await;
    let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
    for way in [&[][..], &[("accept", "*/*")]] {
        for abruptly in [false, true] {
            let begun = count(&first.toy.begun);
            let mut connection = first.another().await;
            connection.send(&with(way, "toy:wait", 1)).await;
            while count(&first.toy.begun) == begun {
                tokio::task::yield_now().await;
            }
            if abruptly {
                connection.stream.get_ref().set_zero_linger().unwrap();
            }
            drop(connection);
            let given_up = async {
                while count(&first.toy.ended) < count(&first.toy.begun) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), given_up).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_being_answered_when_the_server_stops_is_answered() {
    let toy = Toy::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let served = tokio::spawn(serve(
        listener,
        Endpoint::new(toy.clone(), configured(Config::default())),
        stop.clone(),
    ));
    let mut connection = Connection::to(address, toy.clone()).await;
    connection.send(&read("toy:size/1", 0)).await;
    connection.receive().await;
    connection.send(&read("toy:wait", 1)).await;
    while toy.begun.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    tokio::task::yield_now().await;
    toy.go.notify_one();
    let (head, body) = connection.receive().await;
    assert!(head.contains("connection: close"), "{head}");
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["result"]["contents"][0]["text"], "waited");
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn answers_come_in_the_order_of_their_requests() {
    let mut connection = Connection::open().await;
    let uris = [
        "toy:kept/a",
        "toy:size/7",
        "toy:size/100000",
        "toy:kept/b",
        "toy:parts/2000000",
        "toy:nowhere",
        "toy:kept/d",
    ];
    let all: Vec<u8> = (1..=70).flat_map(|id: u32| read(uris[id as usize % uris.len()], id)).collect();
    let sent = tokio::spawn({
        let mut sender = connection.another().await;
        async move {
            sender.send(&all).await;
            let mut ids = Vec::new();
            for _ in 1..=70 {
                ids.push(sender.answer().await["id"].as_u64().unwrap());
            }
            ids
        }
    });
    assert_eq!(sent.await.unwrap(), (1..=70).collect::<Vec<u64>>());
    assert!(connection.at_hand() >= 30);
    connection.send(&read("toy:kept/z", 71)).await;
    assert_eq!(connection.answer().await["id"], 71);
}

/// The two paths of a slow request, selected by a header.
const WAYS: [&[(&str, &str)]; 2] = [&[], &[("accept", "*/*")]];

#[tokio::test]
async fn a_request_behind_a_slow_one_is_answered_after_it() {
    let mut connection = Connection::open().await;
    for way in WAYS {
        for at_once in [true, false] {
            let (begun, kept) = (connection.toy.begun.load(Ordering::SeqCst), connection.at_hand());
            let (slow, behind) = (with(way, "toy:wait", 1), read("toy:kept/a", 2));
            let first = if at_once { [&slow[..], &behind].concat() } else { slow };
            connection.send(&first).await;
            while connection.toy.begun.load(Ordering::SeqCst) == begun {
                tokio::task::yield_now().await;
            }
            if !at_once {
                connection.send(&behind).await;
            }
            // Requests on other connections are answered meanwhile, so the pipelined one would have been as well.
            let mut other = connection.another().await;
            for id in 0..3 {
                other.send(&read("toy:kept/b", id)).await;
                other.answer().await;
            }
            assert_eq!(connection.at_hand(), kept + 3, "{way:?}, at once: {at_once}");
            connection.toy.go.notify_one();
            for id in 1..=2 {
                assert_eq!(connection.answer().await["id"], id, "{way:?}, at once: {at_once}");
            }
        }
    }
}

#[tokio::test]
async fn a_request_behind_a_large_response_is_answered_after_it() {
    let mut connection = Connection::open().await;
    let size = 20_000_000;
    for way in WAYS {
        let (large, behind) = (with(way, &format!("toy:parts/{size}"), 1), read("toy:kept/a", 2));
        let kept = connection.at_hand();
        connection.send(&[large, behind].concat()).await;
        // The head has arrived, and the rest exceeds the socket buffers.
        assert!(!connection.stream.fill_buf().await.unwrap().is_empty());
        let mut other = connection.another().await;
        other.send(&read("toy:kept/b", 1)).await;
        other.answer().await;
        assert_eq!(connection.at_hand(), kept + 1, "{way:?}");
        let answer = connection.answer().await;
        let text = answer["result"]["contents"][0]["text"].as_str().unwrap();
        assert!(text.len() == size && text.bytes().all(|byte| byte == b'y'), "{way:?}");
        assert_eq!(connection.answer().await["id"], 2, "{way:?}");
    }
}

#[tokio::test]
async fn what_comes_behind_a_slow_request_is_not_read() {
    let toy = Toy::new();
    // With small socket buffers, the server must read most of what is sent.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap();
    let address = listener.local_addr().unwrap();
    let endpoint = Endpoint::new(toy.clone(), configured(Config::default()));
    tokio::spawn(serve(listener, endpoint, CancellationToken::new()));
    for way in WAYS {
        let begun = toy.begun.load(Ordering::SeqCst);
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(16 << 10).unwrap();
        let (mut reader, mut writer) = socket.connect(address).await.unwrap().into_split();
        writer.write_all(&with(way, "toy:wait", 0)).await.unwrap();
        while toy.begun.load(Ordering::SeqCst) == begun {
            tokio::task::yield_now().await;
        }
        let (count, sent) = (10_000, Arc::<AtomicUsize>::default());
        let sending = tokio::spawn({
            let sent = sent.clone();
            async move {
                for id in 1..=count {
                    writer.write_all(&read("toy:kept/a", id)).await.unwrap();
                    sent.fetch_add(1, Ordering::SeqCst);
                }
                writer
            }
        });
        // Until the server stops reading, or has read too much.
        let (most, mut seen, mut since) = (4_000, 0, Instant::now());
        while seen <= most && since.elapsed() < Duration::from_millis(400) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let now = sent.load(Ordering::SeqCst);
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        assert!(seen <= most, "{way:?}: {seen} requests were taken behind one that is not answered");
        toy.go.notify_one();
        let mut connection = Connection { stream: BufReader::new(&mut reader), toy: toy.clone(), address };
        for id in 0..=count {
            assert_eq!(connection.answer().await["id"], id, "{way:?}");
        }
        sending.await.unwrap();
    }
}

#[tokio::test]
async fn answers_that_are_taken_late_are_whole() {
    let toy = Toy::new();
    // With small socket buffers, responses are written in parts.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(8 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(
        listener,
        Endpoint::new(toy.clone(), configured(Config::default())),
        CancellationToken::new(),
    ));
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 << 10).unwrap();
    let (mut reader, mut writer) = socket.connect(address).await.unwrap().into_split();
    let count = 3_000;
    let sending = tokio::spawn(async move {
        for id in 0..count {
            writer.write_all(&read("toy:kept/a", id)).await.unwrap();
        }
        writer
    });
    // Until the server blocks on its first responses.
    let mut seen = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = toy.kept.load(Ordering::SeqCst);
        if now > 0 && now == seen {
            break;
        }
        seen = now;
    }
    assert!(seen < count as usize);
    let mut connection = Connection { stream: BufReader::new(&mut reader), toy, address };
    for id in 0..count {
        let answer = connection.answer().await;
        assert_eq!((&answer["id"], &answer["result"]["contents"][0]["text"]), (&json!(id), &json!("kept")));
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn requests_may_come_in_pieces() {
    let mut connection = Connection::open().await;
    let bytes = read("toy:kept/a", 1);
    for cut in (1..bytes.len()).step_by(7) {
        connection.send(&bytes[..cut]).await;
        tokio::task::yield_now().await;
        connection.send(&bytes[cut..]).await;
        assert_eq!(connection.answer().await["result"]["contents"][0]["text"], "kept", "{cut}");
    }
    assert_eq!(connection.at_hand(), (bytes.len() - 1).div_ceil(7));
}

#[tokio::test]
async fn what_the_long_way_refuses_is_refused() {
    let mut connection = Connection::open().await;
    for (headers, status) in [
        (&[("host", "evil.example")][..], "403"),
        (&[("origin", "http://evil.example")], "403"),
        (&[("host", "127.0.0.1"), ("host", "evil.example")], "403"),
        (&[("mcp-method", "resources/list")], "400"),
        (&[("mcp-name", "toy:kept/other")], "400"),
        (&[("mcp-protocol-version", "2025-06-18")], "400"),
        (&[("mcp-method", "")], "400"),
        (&[("accept", "text/html")], "406"),
    ] {
        connection.send(&with(headers, "toy:kept/a", 1)).await;
        let (head, _) = connection.receive().await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{headers:?}: {head}");
    }
    connection.send(&read("toy:kept/ä", 1)).await;
    assert!(connection.receive().await.0.starts_with("http/1.1 400"));
    assert_eq!(connection.at_hand(), 0);
    // Two lengths, or a length and chunks, would allow request smuggling.
    for header in [("content-length", "5"), ("transfer-encoding", "chunked")] {
        let mut other = connection.another().await;
        other.send(&with(&[header], "toy:kept/a", 1)).await;
        let (head, _) = other.receive().await;
        assert!(head.starts_with("http/1.1 400"), "{header:?}: {head}");
    }
    assert_eq!(connection.at_hand(), 0);
}

#[tokio::test]
async fn a_session_takes_the_short_way_too() {
    let mut connection = Connection::open().await;
    connection.send(&post(&[], &initialize("2025-06-18").to_string())).await;
    let (head, _) = connection.receive().await;
    let session = head.split("mcp-session-id: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let ask = |session: &str, id| {
        let body = request(id, "resources/read", json!({ "uri": "toy:kept/a" })).to_string();
        post(&[("mcp-session-id", session), ("mcp-protocol-version", "2025-06-18")], &body)
    };
    connection.send(&ask(&session, 1)).await;
    assert_eq!(connection.answer().await["result"]["contents"][0]["text"], "kept");
    assert_eq!(connection.at_hand(), 1);
    connection.send(&ask("another", 2)).await;
    assert!(connection.receive().await.0.starts_with("http/1.1 404"));
}

#[tokio::test]
async fn a_client_that_has_said_everything_is_still_answered() {
    let mut connection = Connection::open().await.another().await;
    let all = [read("toy:kept/a", 1), read("toy:size/9", 2), read("toy:kept/b", 3)].concat();
    connection.send(&all).await;
    connection.stream.get_mut().shutdown().await.unwrap();
    for id in 1..=3 {
        assert_eq!(connection.answer().await["id"], id);
    }
    let mut rest = Vec::new();
    connection.stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
    let mut connection = connection.another().await;
    let begun = connection.toy.begun.load(Ordering::SeqCst);
    connection.send(&[read("toy:wait", 1), read("toy:size/70000", 2), read("toy:wait", 3)].concat()).await;
    connection.stream.get_mut().shutdown().await.unwrap();
    while connection.toy.begun.load(Ordering::SeqCst) == begun {
        tokio::task::yield_now().await;
    }
    // Until the server sees the half-close of the client.
    tokio::time::sleep(Duration::from_millis(100)).await;
    for id in 1..=3 {
        if id != 2 {
            connection.toy.go.notify_one();
        }
        assert_eq!(connection.answer().await["id"], id);
    }
    for _ in 0..20 {
        let mut connection = connection.another().await;
        connection.send(&[read("toy:size/9", 1), read("toy:size/70000", 2)].concat()).await;
        connection.stream.get_mut().shutdown().await.unwrap();
        assert_eq!(connection.answer().await["id"], 1);
        assert_eq!(connection.answer().await["id"], 2);
    }
}

#[tokio::test]
async fn the_connection_closes_when_it_is_asked_to() {
    let mut connection = Connection::open().await;
    connection.send(&read("toy:kept/a", 1)).await;
    connection.answer().await;
    connection.send(&with(&[("connection", "close")], "toy:kept/a", 2)).await;
    assert_eq!(connection.answer().await["id"], 2);
    let mut rest = Vec::new();
    connection.stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}
