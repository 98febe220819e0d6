//! HTTP/2 streams whose client does not read, and event streams that stay open.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use libris_wire::http::Config;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::modern;
use crate::{Client, Server, until};

type Sender = SendRequest<Full<Bytes>>;

/// An HTTP/2 connection whose streams have a flow-control window of this many bytes.
async fn connect(server: &Server, window: u32) -> Sender {
    let stream = TokioIo::new(server.connect().await.stream);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window).initial_connection_window_size(1 << 20);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn read(sender: &mut Sender, uri: &str) -> http::Response<Incoming> {
    send(sender, uri, &modern(1, "resources/read", json!({ "uri": uri }))).await
}

async fn send(sender: &mut Sender, uri: &str, message: &Value) -> http::Response<Incoming> {
    let request = Request::post("http://127.0.0.1/mcp")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "resources/read")
        .header("mcp-name", uri)
        .body(Full::new(message.to_string().into()))
        .unwrap();
    sender.ready().await.unwrap();
    tokio::time::timeout(crate::SOON * 100, sender.send_request(request)).await.unwrap().unwrap()
}

/// Moves time by as much as a client may take nothing, in steps. What it does in each is not stalled.
async fn while_nothing_is_taken(mut work: impl AsyncFnMut()) {
    for _ in 0..6 {
        tokio::time::advance(Duration::from_secs(15)).await;
        work().await;
    }
}

/// Time moves only where a test says so: it would move by itself if nothing but this were going on.
struct Stopped(#[expect(dead_code, reason = "dropped to let it move again")] std::sync::mpsc::Sender<()>);

fn stop_time() -> Stopped {
    let (sender, receiver) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || receiver.recv().is_err());
    Stopped(sender)
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_is_reset_while_others_of_its_connection_are_taken() {
    let _time = stop_time();
    let server = Server::start(Config::default()).await;
    let whole = read(&mut connect(&server, 1 << 20).await, "toy:parts/40000").await;
    let length: u32 = whole.headers()["content-length"].to_str().unwrap().parse().unwrap();
    drop(whole);
    // It stalls in the middle, or in its last piece.
    for window in [20_000, length - 5] {
        let mut sender = connect(&server, window).await;
        let mut stalled = read(&mut sender, "toy:parts/40000").await;
        assert_eq!(stalled.status(), StatusCode::OK);
        until_idle(async || server.metric("unsent_bytes").await > 40_000).await;
        while_nothing_is_taken(async || {
            let response = read(&mut sender, "toy:parts/10000").await;
            assert!(response.into_body().collect().await.unwrap().to_bytes().len() > 10_000);
        })
        .await;
        until_idle(async || server.metric("unsent_bytes").await == 0).await;
        assert!(stalled.body_mut().collect().await.is_err(), "window {window}: it was not reset");
        // The connection stays usable.
        assert_eq!(read(&mut sender, "toy:parts/10").await.status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_makes_room_while_others_of_its_connection_are_taken() {
    let _time = stop_time();
    let limits = libris_wire::Limits { content_bytes: 12 << 20, ..Default::default() };
    let server = Server::start(Config { limits, ..Config::default() }).await;
    let mut sender = connect(&server, 60_000).await;
    let mut stalled = read(&mut sender, "toy:parts/5000000").await;
    let mut other = server.connect_from(2).await;
    other.read("toy:parts/4000000").await;
    let waiting = tokio::spawn(async move { other.status().await });
    let mut busy = sender.clone();
    for _ in 0..30 {
        tokio::time::advance(Duration::from_secs(1)).await;
        let response = read(&mut busy, "toy:parts/200000").await;
        assert!(response.into_body().collect().await.is_ok());
    }
    assert_eq!(waiting.await.unwrap(), 200);
    assert!(stalled.body_mut().collect().await.is_err());
}

/// Waits until a condition holds, without advancing the paused clock.
async fn until_idle(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..2_000 {
        if holds().await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never holds");
}

#[tokio::test(start_paused = true)]
async fn a_small_response_that_is_not_taken_costs_its_connection() {
    let _time = stop_time();
    let server = Server::start(Config::default()).await;
    let mut sender = connect(&server, 1_000).await;
    let _stalled = read(&mut sender, "toy:parts/8000").await;
    let mut busy = sender.clone();
    for _ in 0..6 {
        tokio::time::advance(Duration::from_secs(15)).await;
        if busy.ready().await.is_err() {
            break;
        }
        let ping = Request::options("http://127.0.0.1/mcp").body(Full::default()).unwrap();
        let _ = busy.send_request(ping).await;
    }
    until_idle(async || server.metric("unsent_bytes").await == 0).await;
    until_idle(async || server.metric("connections").await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_responses_over_http_2_that_nobody_takes_are_bounded() {
    let server = Server::start(Config { http2_streams: 8, ..Config::default() }).await;
    // With a window of one byte hyper has all of a response at once; with none it has not even begun.
    for window in [1, 0] {
        let mut sender = connect(&server, window).await;
        let mut held = Vec::new();
        for _ in 0..20 {
            held.push(read(&mut sender, "toy:size/2000").await);
        }
        let count = |status| held.iter().filter(|response| response.status() == status).count();
        assert_eq!(
            (count(StatusCode::OK), count(StatusCode::SERVICE_UNAVAILABLE)),
            (6, 14),
            "window {window}"
        );
        // Another client has a share of its own.
        let mut other = connect_from(&server, 2).await;
        assert_eq!(read(&mut other, "toy:size/2000").await.status(), StatusCode::OK);
        drop((held, sender, other));
        until("all streams are gone", async || {
            let mut sender = connect(&server, 65_535).await;
            let mut all = true;
            for _ in 0..6 {
                all &= read(&mut sender, "toy:size/3").await.status() == StatusCode::OK;
            }
            all
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_over_http_2_are_not_counted_among_others() {
    // One client has three quarters of each, and an event stream over HTTP/2 takes two places.
    let server = Server::start(Config { event_streams: 8, http2_streams: 4, ..Config::default() }).await;
    let mut sender = connect(&server, 65_535).await;
    let message =
        modern(1, "subscriptions/listen", json!({ "notifications": { "resourcesListChanged": true } }));
    let mut streams = Vec::new();
    for status in [200, 200, 200, 503] {
        let request = Request::post("http://127.0.0.1/mcp")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "subscriptions/listen")
            .body(Full::new(message.to_string().into()))
            .unwrap();
        sender.ready().await.unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), status);
        streams.push(response);
    }
    assert_eq!(server.metric("listen_streams").await, 6);
    assert_eq!(read(&mut sender, "toy:size/3").await.status(), StatusCode::OK);
    drop(streams);
    until("their places are free", async || server.metric("listen_streams").await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_http_2_are_bounded_and_idle_ones_make_room() {
    let server = Server::start(Config { http2_connections: 4, ..Config::default() }).await;
    let mut held = Vec::new();
    for last in [1, 1, 1, 1, 1, 1, 2] {
        let mut sender = connect_from(&server, last).await;
        assert_eq!(read(&mut sender, "toy:size/3").await.status(), StatusCode::OK, "127.0.0.{last}");
        held.push(sender);
        assert!(server.metric("http2_connections").await <= 4);
    }
    until("the oldest has made room", async || held[0].is_closed()).await;
    assert!(!held[5].is_closed() && !held[6].is_closed());
    // Those of HTTP/1 do not count.
    for _ in 0..8 {
        let mut client = server.connect().await;
        client.read("toy:size/3").await;
        assert_eq!(client.status().await, 200);
    }
}

async fn connect_from(server: &Server, last: u8) -> Sender {
    let stream = TokioIo::new(server.connect_from(last).await.stream);
    let (sender, connection) = Builder::new(TokioExecutor::new()).handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_done_although_its_progress_is_not_taken() {
    let server = Server::start(Config::default()).await;
    let mut sender = connect(&server, 1).await;
    let mut message = modern(1, "resources/read", json!({ "uri": "toy:progress" }));
    message["params"]["_meta"]["progressToken"] = json!(1);
    let stream = send(&mut sender, "toy:progress", &message).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert_eq!(server.metric("requests").await, 1);
    server.toy.go.notify_one();
    until("it holds no permit", async || server.metric("requests").await == 0).await;
    assert_eq!(server.toy.ended.load(Ordering::SeqCst), 1);
    drop(stream);
}

/// Opens the stream of a session.
async fn open(client: &mut Client, session: &str) -> String {
    let request = format!(
        "GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\nmcp-session-id: {session}\r\n\r\n"
    );
    client.stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_with_a_stream_make_room_for_newcomers() {
    let server = Server::start(Config { sessions: 8, ..Config::default() }).await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        let mut client = server.connect().await;
        let session = client.session().await;
        assert!(open(&mut client, &session).await.starts_with("HTTP/1.1 200"));
        streams.push((client, session));
    }
    // Another client has few, and keeps them.
    let mut others = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect_from(2).await;
        let session = client.session().await;
        others.push((client, session));
    }
    let mut newcomer = server.connect_from(3).await;
    let mine = newcomer.session().await;
    let (first, session) = &mut streams[0];
    let ends = async {
        let mut rest = Vec::new();
        while !rest.ends_with(b"0\r\n\r\n") {
            rest.push(first.stream.read_u8().await.expect("its stream ends well"));
        }
    };
    tokio::time::timeout(crate::SOON, ends).await.expect("its stream ends");
    assert_eq!(server.connect().await.ping(session).await, 404);
    assert_eq!(newcomer.ping(&mine).await, 200);
    for (mut client, session) in others {
        assert_eq!(client.ping(&session).await, 200);
    }
    for (_, session) in &streams[1..] {
        assert_eq!(server.connect().await.ping(session).await, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_sessions_are_bounded_for_each_client_and_in_all() {
    let server = Server::start(Config { event_streams: 4, ..Config::default() }).await;
    let open_by = async |last: u8, count: usize| {
        let mut streams = Vec::new();
        let mut statuses = Vec::new();
        for _ in 0..count {
            let mut client = server.connect_from(last).await;
            let session = client.session().await;
            let head = open(&mut client, &session).await;
            statuses.push(head[9..12].to_owned());
            streams.push(client);
        }
        (statuses, streams)
    };
    let (statuses, held) = open_by(1, 4).await;
    assert_eq!(statuses, ["200", "200", "200", "503"]);
    let (statuses, _held) = open_by(2, 2).await;
    assert_eq!(statuses, ["200", "503"]);
    drop(held);
    until("there is room again", async || server.metric("listen_streams").await == 1).await;
    assert_eq!(open_by(1, 1).await.0, ["200"]);
}
