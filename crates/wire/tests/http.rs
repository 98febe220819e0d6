//! Streamable HTTP and the former HTTP+SSE transport, over TCP connections.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use libris_wire::Limits;
use libris_wire::http::{Config, Endpoint, serve};
use serde_json::{Value, json};
use support::{Toy, configured, initialize, modern, request};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

struct Server {
    address: SocketAddr,
    toy: Arc<Toy>,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(config: Config) -> Self {
        let toy = Toy::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let endpoint = Endpoint::new(toy.clone(), configured(config));
        let running = tokio::spawn(serve(listener, endpoint, stop.clone()));
        Self { address, toy, stop, running }
    }

    async fn send(&self, request: Request<Full<bytes::Bytes>>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(request).await.unwrap();
        // Dropping the sender lets the connection end with the response.
        response
    }

    /// Posts a message with these headers on top of the usual ones; an empty value leaves one out.
    async fn post(&self, headers: &[(&str, &str)], message: &Value) -> Response<Incoming> {
        self.post_raw(headers, message.to_string()).await
    }

    async fn post_raw(&self, headers: &[(&str, &str)], body: impl Into<bytes::Bytes>) -> Response<Incoming> {
        let mut all = vec![
            ("host", "127.0.0.1"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        for &(name, value) in headers {
            all.retain(|(usual, _)| *usual != name);
            all.push((name, value));
        }
        let mut request = Request::post("/mcp");
        for (name, value) in all.into_iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(name, value);
        }
        self.send(request.body(Full::new(body.into())).unwrap()).await
    }

    /// Posts a modern request with the headers that go with it.
    async fn modern(&self, method: &str, params: Value) -> (StatusCode, Value) {
        let message = modern(1, method, params);
        let name = message["params"]["uri"].as_str().unwrap_or_default().to_owned();
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", &name)];
        answer(self.post(&headers, &message).await).await
    }

    async fn session(&self, date: &str) -> String {
        let response = self.post(&[], &initialize(date)).await;
        let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let (_, initialized) = answer(response).await;
        assert_eq!(initialized["result"]["protocolVersion"], date);
        session
    }

    async fn bare(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Full::default()).unwrap()).await
    }
}

async fn answer(response: Response<Incoming>) -> (StatusCode, Value) {
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// A stream of events, several of which may come at once.
struct Events {
    body: Incoming,
    arrived: String,
}

fn events(response: Response<Incoming>) -> Events {
    Events { body: response.into_body(), arrived: String::new() }
}

/// The next event of a stream, whole.
async fn event(stream: &mut Events) -> Option<String> {
    loop {
        if let Some(end) = stream.arrived.find("\n\n") {
            let rest = stream.arrived.split_off(end + 2);
            return Some(std::mem::replace(&mut stream.arrived, rest));
        }
        let frame = stream.body.frame().await?.unwrap();
        stream.arrived.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
}

#[tokio::test]
async fn modern_requests_need_no_session() {
    let server = Server::start(Config::default()).await;
    let (status, discovered) = server.modern("server/discover", json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(
        discovered["result"],
        json!({
            "supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
            "capabilities": {
                "resources": { "subscribe": true, "listChanged": true },
                "completions": {},
            },
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {
                "io.modelcontextprotocol/serverInfo": { "name": "toy", "title": "Toy", "version": "1" },
            },
        })
    );
    let (status, read) = server.modern("resources/read", json!({ "uri": "toy:size/3" })).await;
    assert_eq!((status, &read["result"]["contents"][0]["text"]), (StatusCode::OK, &json!("xxx")));
    for removed in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such"] {
        let (status, refused) = server.modern(removed, json!({})).await;
        assert_eq!((status.as_u16(), &refused["error"]["code"]), (404, &json!(-32601)), "{removed}");
        assert_eq!(refused["id"], 1);
    }
}

#[tokio::test]
async fn modern_headers_must_say_what_the_body_says() {
    let server = Server::start(Config::default()).await;
    let read = modern(7, "resources/read", json!({ "uri": "toy:size/0" }));
    let right = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/read"),
        ("mcp-name", "toy:size/0"),
    ];
    assert_eq!(server.post(&right, &read).await.status(), 200);
    let encoded = [right[0], right[1], ("mcp-name", "=?base64?dG95OnNpemUvMA==?=")];
    assert_eq!(server.post(&encoded, &read).await.status(), 200);
    for wrong in [
        ("mcp-protocol-version", ""),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-method", ""),
        ("mcp-method", "resources/list"),
        ("mcp-method", "Resources/Read"),
        ("mcp-name", ""),
        ("mcp-name", "toy:size/1"),
        ("mcp-name", "=?base64?!!?="),
        ("mcp-name", "t\u{f6}y"),
    ] {
        let mut headers = right.to_vec();
        headers.retain(|(name, _)| *name != wrong.0);
        headers.push(wrong);
        let (status, refused) = answer(server.post(&headers, &read).await).await;
        assert_eq!((status.as_u16(), &refused["error"]["code"]), (400, &json!(-32020)), "{wrong:?}");
        assert_eq!(refused["id"], 7);
    }
}

#[tokio::test]
async fn modern_requests_must_be_complete() {
    let server = Server::start(Config::default()).await;
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "server/discover")];
    let version = ("io.modelcontextprotocol/protocolVersion", json!("2026-07-28"));
    let capabilities = ("io.modelcontextprotocol/clientCapabilities", json!({}));
    for meta in [vec![], vec![version.clone()], vec![capabilities.clone()]] {
        let meta: serde_json::Map<_, _> =
            meta.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let (status, refused) =
            answer(server.post(&headers, &request(3, "server/discover", json!({ "_meta": meta }))).await)
                .await;
        assert_eq!((status.as_u16(), &refused["error"]["code"]), (400, &json!(-32602)));
    }
    let mut unknown = modern(4, "server/discover", json!({}));
    unknown["params"]["_meta"][version.0] = json!("1900-01-01");
    let headers = [("mcp-protocol-version", "1900-01-01"), headers[1]];
    let (status, refused) = answer(server.post(&headers, &unknown).await).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"]), (400, &json!(-32022)));
    assert_eq!(refused["error"]["data"]["requested"], "1900-01-01");
}

#[tokio::test]
async fn sessions_begin_and_end() {
    let server = Server::start(Config::default()).await;
    let list = request(1, "resources/list", json!({}));
    assert_eq!(server.post(&[], &list).await.status(), 400);
    assert_eq!(server.post(&[("mcp-session-id", "guess")], &list).await.status(), 404);
    for date in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = server.session(date).await;
        let headers = [("mcp-session-id", &*session), ("mcp-protocol-version", date)];
        let (status, listed) = answer(server.post(&headers, &list).await).await;
        assert_eq!(status, 200);
        assert_eq!(listed["result"], json!({ "resources": [], "nextCursor": "first" }));
        let (status, refused) = answer(server.post(&headers, &request(2, "no/such", json!({}))).await).await;
        assert_eq!((status.as_u16(), &refused["error"]["code"]), (200, &json!(-32601)));
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(server.post(&headers, &initialized).await.status(), 202);
        let strange = [headers[0], ("mcp-protocol-version", "1900-01-01")];
        assert_eq!(server.post(&strange, &list).await.status(), 400);
        assert_eq!(server.post(&strange, &initialized).await.status(), 400);
        assert_eq!(server.bare("DELETE", "/mcp", &strange).await.status(), 400);
        assert_eq!(server.bare("DELETE", "/mcp", &headers[..1]).await.status(), 204);
        assert_eq!(server.post(&headers, &list).await.status(), 404);
        assert_eq!(server.bare("DELETE", "/mcp", &headers[..1]).await.status(), 404);
    }
}

#[tokio::test]
async fn a_session_has_a_stream_that_ends_with_it() {
    let config = Config { keep_alive: Duration::from_millis(20), ..Config::default() };
    let server = Server::start(config).await;
    let session = server.session("2025-11-25").await;
    let headers = [("mcp-session-id", &*session), ("accept", "text/event-stream")];
    let response = server.bare("GET", "/mcp", &headers).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let mut stream = events(response);
    assert_eq!(event(&mut stream).await.as_deref(), Some(":\n\n"));
    server.bare("DELETE", "/mcp", &headers[..1]).await;
    while event(&mut stream).await.is_some() {}

    assert_eq!(server.bare("GET", "/mcp", &headers).await.status(), 404);
    assert_eq!(server.bare("GET", "/mcp", &headers[1..]).await.status(), 405);
    let session = server.session("2025-11-25").await;
    let html = [("mcp-session-id", &*session), ("accept", "text/html")];
    assert_eq!(server.bare("GET", "/mcp", &html).await.status(), 406);
}

fn data(event: &str) -> Value {
    let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    serde_json::from_str(data).unwrap()
}

/// Waits until a condition holds.
async fn until(so: impl Fn() -> bool) {
    let waiting = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it will be so");
}

#[tokio::test]
async fn news_reach_a_session_on_its_newest_stream_and_are_told_again_if_lost() {
    let server = Server::start(Config::default()).await;
    let session = server.session("2025-11-25").await;
    let headers = [("mcp-session-id", &*session), ("accept", "text/event-stream")];
    let subscribe = request(1, "resources/subscribe", json!({ "uri": "toy:a" }));
    let (_, answer) = answer(server.post(&headers[..1], &subscribe).await).await;
    assert_eq!(answer["result"], json!({}));
    // Notifications from the time without a stream are delivered on the next one.
    server.toy.update("toy:a");
    let mut first = events(server.bare("GET", "/mcp", &headers).await);
    let told = event(&mut first).await.unwrap();
    assert!(told.starts_with("event: message\nid: 1\n"), "{told}");
    assert_eq!(data(&told)["params"], json!({ "uri": "toy:a" }));

    // `Last-Event-ID` acknowledges the first; the following ones are sent again.
    let mut second =
        events(server.bare("GET", "/mcp", &[headers[0], headers[1], ("last-event-id", "1")]).await);
    until(|| server.toy.following() == 1).await;
    server.toy.relist();
    assert!(event(&mut second).await.unwrap().contains("id: 2\n"));
    let resumed = [headers[0], headers[1], ("last-event-id", "1")];
    let mut third = events(server.bare("GET", "/mcp", &resumed).await);
    let told = event(&mut third).await.unwrap();
    assert_eq!(data(&told)["method"], "notifications/resources/list_changed");

    // When the newest stream closes, the previous one receives notifications.
    drop(third);
    drop(second);
    server.toy.update("toy:a");
    while data(&event(&mut first).await.unwrap())["params"] != json!({ "uri": "toy:a" }) {}
    // A fifth stream closes the oldest.
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(server.bare("GET", "/mcp", &headers).await);
    }
    while event(&mut first).await.is_some() {}
}

#[tokio::test]
async fn listening_is_acknowledged_told_and_ended_well() {
    let server = Server::start(Config { event_streams: 2, ..Config::default() }).await;
    let listen = |filter: Value| modern(7, "subscriptions/listen", json!({ "notifications": filter }));
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let wanted = json!({ "resourceSubscriptions": ["toy:a", "nowhere"], "resourcesListChanged": true });
    let response = server.post(&headers, &listen(wanted)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let mut stream = events(response);
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": 7 });
    let granted = json!({ "resourceSubscriptions": ["toy:a"], "resourcesListChanged": true });
    let acknowledged = data(&event(&mut stream).await.unwrap());
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"], json!({ "_meta": meta, "notifications": granted }));
    server.toy.update("toy:a");
    let updated = data(&event(&mut stream).await.unwrap());
    assert_eq!(updated["params"], json!({ "_meta": meta, "uri": "toy:a" }));

    let nothing = server.post(&headers, &listen(json!({}))).await;
    assert_eq!(server.post(&headers, &listen(json!({}))).await.status(), 503);
    drop(nothing);
    until(|| server.toy.listening() == 1).await;
    let (status, refused) =
        answer(server.post(&headers, &listen(json!({ "resourceSubscriptions": 7 }))).await).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"]), (200, &json!(-32602)));
    let only_json = [headers[0], headers[1], ("accept", "application/json")];
    assert_eq!(server.post(&only_json, &listen(json!({}))).await.status(), 406);

    server.stop.cancel();
    let ended = data(&event(&mut stream).await.unwrap());
    assert_eq!(ended["result"], json!({ "resultType": "complete", "_meta": meta }));
    assert_eq!(event(&mut stream).await, None);
    server.running.await.unwrap().unwrap();
    assert_eq!(server.toy.listening(), 0);
}

#[tokio::test]
async fn a_stream_that_is_not_read_holds_up_nothing() {
    let server = Server::start(Config::default()).await;
    let session = server.session("2025-11-25").await;
    let headers = [("mcp-session-id", &*session), ("accept", "text/event-stream")];
    let _unread = server.bare("GET", "/mcp", &headers).await;
    until(|| server.toy.following() == 1).await;
    for _ in 0..10_000 {
        server.toy.relist();
    }
    let ping = request(1, "ping", json!({}));
    for _ in 0..20 {
        assert_eq!(server.post(&headers[..1], &ping).await.status(), 200);
    }
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let server = Server::start(Config::default()).await;
    let session = server.session("2025-11-25").await;
    let headers = [("mcp-session-id", &*session), ("accept", "text/event-stream")];
    let mut stream = events(server.bare("GET", "/mcp", &headers).await);
    server.stop.cancel();
    assert_eq!(event(&mut stream).await, None);
    drop(stream);
    server.running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_cancelled_request_of_a_session_ends_without_an_answer() {
    let server = Arc::new(Server::start(Config::default()).await);
    let session = server.session("2025-11-25").await;
    let waiting = tokio::spawn({
        let (server, session) = (server.clone(), session.clone());
        async move {
            let read = request(5, "resources/read", json!({ "uri": "toy:wait" }));
            answer(server.post(&[("mcp-session-id", &session)], &read).await).await
        }
    });
    while server.toy.begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let cancelled = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 },
    });
    assert_eq!(server.post(&[("mcp-session-id", &session)], &cancelled).await.status(), 202);
    assert_eq!(waiting.await.unwrap(), (StatusCode::OK, Value::Null));
    assert_eq!(server.toy.ended.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request() {
    let server = Server::start(Config::default()).await;
    let read = modern(1, "resources/read", json!({ "uri": "toy:wait" })).to_string();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: resources/read\r\nmcp-name: toy:wait\r\n\
         content-length: {}\r\n\r\n{read}",
        read.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
    while server.toy.begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    while server.toy.ended.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn progress_turns_the_answer_into_a_stream() {
    let server = Server::start(Config::default()).await;
    let mut read = modern(1, "resources/read", json!({ "uri": "toy:progress" }));
    read["params"]["_meta"]["progressToken"] = json!(7);
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/read"),
        ("mcp-name", "toy:progress"),
    ];
    let response = server.post(&headers, &read).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = events(response);
    let progress = data(&event(&mut stream).await.unwrap());
    assert_eq!(progress["params"], json!({ "progressToken": 7, "progress": 1, "total": 2 }));
    server.toy.go.notify_one();
    assert_eq!(data(&event(&mut stream).await.unwrap())["result"]["contents"][0]["text"], "waited");
    assert_eq!(event(&mut stream).await, None);

    // Fast responses are plain JSON, with or without a progress token.
    let mut quick = modern(1, "resources/read", json!({ "uri": "toy:size/1" }));
    quick["params"]["_meta"]["progressToken"] = json!(8);
    let headers = [headers[0], headers[1], ("mcp-name", "toy:size/1")];
    assert_eq!(server.post(&headers, &quick).await.headers()["content-type"], "application/json");
    // A client that accepts only event streams gets one.
    let only = [headers[0], headers[1], headers[2], ("accept", "text/event-stream")];
    assert_eq!(server.post(&only, &quick).await.headers()["content-type"], "text/event-stream");
}

#[tokio::test]
async fn what_is_no_message_gets_the_status_for_it() {
    let limits = Limits { message: 10_000, ..Limits::default() };
    let server = Server::start(Config { limits, ..Config::default() }).await;
    let ping = request(1, "ping", json!({})).to_string();
    let status = async |headers: &[(&str, &str)], body: String| {
        let (status, refused) = answer(server.post_raw(headers, body).await).await;
        (status.as_u16(), refused["error"]["code"].as_i64().unwrap_or_default())
    };
    assert_eq!(status(&[], "{".into()).await, (400, -32700));
    assert_eq!(status(&[], "[]".into()).await, (400, -32600));
    assert_eq!(status(&[], "7".into()).await, (400, -32600));
    assert_eq!(status(&[("content-type", "text/plain")], ping.clone()).await, (415, -32600));
    assert_eq!(status(&[("content-type", "")], ping.clone()).await, (415, -32600));
    assert_eq!(status(&[("accept", "text/html")], ping.clone()).await, (406, -32600));
    assert_eq!(status(&[], " ".repeat(10_001)).await, (413, -32600));
    assert_eq!(server.bare("PUT", "/mcp", &[]).await.status(), 405);
    assert_eq!(server.bare("GET", "/", &[]).await.status(), 404);
    assert_eq!(server.bare("GET", "/sse", &[]).await.status(), 404);
}

#[tokio::test]
async fn a_message_that_is_too_large_is_answered_once_it_has_been_sent() {
    let server = Server::start(Config::default()).await;
    let response = server.post_raw(&[], vec![b' '; 20 << 20]).await;
    assert_eq!(response.status(), 413);
}

#[tokio::test]
async fn pages_from_elsewhere_are_kept_out() {
    let config = Config {
        hosts: vec!["library.example".into()],
        origins: vec!["https://app.example".into()],
        ..Config::default()
    };
    let server = Server::start(config).await;
    let hello = initialize("2025-11-25");
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example"), ("origin", "null")] {
        assert_eq!(server.post(&[(name, value)], &hello).await.status(), 403, "{value}");
    }
    assert_eq!(server.post(&[("host", "library.example:80")], &hello).await.status(), 200);
    let shared = server.post(&[("origin", "https://app.example")], &hello).await;
    assert_eq!(shared.headers()["access-control-allow-origin"], "https://app.example");
    let preflight = server.bare("OPTIONS", "/mcp", &[("origin", "http://localhost:6274")]).await;
    assert_eq!(preflight.status(), 204);
    assert_eq!(preflight.headers()["access-control-allow-origin"], "http://localhost:6274");
}

#[tokio::test]
async fn batches_are_of_one_revision() {
    let server = Server::start(Config::default()).await;
    let batch = json!([request(1, "ping", json!({})), request(2, "ping", json!({}))]);
    let session = server.session("2025-03-26").await;
    let (status, answers) = answer(server.post(&[("mcp-session-id", &session)], &batch).await).await;
    assert_eq!((status.as_u16(), answers.as_array().map(Vec::len)), (200, Some(2)));
    let session = server.session("2025-06-18").await;
    assert_eq!(server.post(&[("mcp-session-id", &session)], &batch).await.status(), 400);
    assert_eq!(server.post(&[], &batch).await.status(), 400);
}

#[tokio::test]
async fn http_2_is_spoken_to_those_who_begin_with_it() {
    let server = Server::start(Config::default()).await;
    let stream = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let answers = (0..20).map(|id| {
        let request = Request::post(format!("http://{}/mcp", server.address))
            .header("content-type", "application/json")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "resources/read")
            .header("mcp-name", "toy:size/3")
            .body(Full::<bytes::Bytes>::new(
                modern(id, "resources/read", json!({ "uri": "toy:size/3" })).to_string().into(),
            ));
        let sent = sender.send_request(request.unwrap());
        async move { answer(sent.await.unwrap()).await }
    });
    for (id, (status, read)) in futures_util::future::join_all(answers).await.into_iter().enumerate() {
        assert_eq!((status.as_u16(), &read["id"]), (200, &json!(id)));
        assert_eq!(read["result"]["contents"][0]["text"], "xxx");
    }
}

#[tokio::test]
async fn sessions_are_bounded() {
    let server = Server::start(Config { sessions: 2, ..Config::default() }).await;
    let first = server.session("2025-11-25").await;
    let second = server.session("2025-11-25").await;
    // A client may have three quarters of the sessions; each further one ends its oldest.
    let ping = async |session: &str| {
        let headers = [("mcp-session-id", session)];
        server.post(&headers, &request(1, "ping", json!({}))).await.status().as_u16()
    };
    assert_eq!((ping(&first).await, ping(&second).await), (200, 200));
    let third = server.session("2025-11-25").await;
    assert_eq!([ping(&first).await, ping(&second).await, ping(&third).await], [404, 200, 200]);
}

#[tokio::test]
async fn the_old_transport_answers_on_its_stream() {
    let server = Server::start(Config { sse: true, ..Config::default() }).await;
    let mut stream = events(server.bare("GET", "/sse", &[]).await);
    let endpoint = event(&mut stream).await.unwrap();
    let path = endpoint.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned();
    let post = async |message: &Value| {
        let request = Request::post(path.clone())
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(message.to_string().into()))
            .unwrap();
        server.send(request).await.status()
    };
    assert_eq!(post(&initialize("2024-11-05")).await, 202);
    assert!(event(&mut stream).await.unwrap().contains("\"protocolVersion\":\"2024-11-05\""));
    assert_eq!(post(&request(1, "resources/read", json!({ "uri": "toy:size/2" }))).await, 202);
    assert!(event(&mut stream).await.unwrap().contains("\"text\":\"xx\""));
    assert_eq!(post(&request(2, "resources/subscribe", json!({ "uri": "toy:a" }))).await, 202);
    assert_eq!(data(&event(&mut stream).await.unwrap())["result"], json!({}));
    server.toy.update("toy:a");
    assert_eq!(data(&event(&mut stream).await.unwrap())["params"], json!({ "uri": "toy:a" }));
    drop(stream);
    // The session ends with the stream.
    while post(&request(2, "ping", json!({}))).await != 404 {}
}
