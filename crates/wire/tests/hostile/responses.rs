//! Unread responses.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use libris_wire::http::Config;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::support::{initialize, modern, request};
use crate::{Client, MIB, Server, growth, until};

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
    assert!(grown < 96 * MIB, "{} MiB for responses that nobody takes", grown / MIB);
    // Clients that read are served, even if the budget of their address is exhausted.
    for address in [1, 2] {
        for _ in 0..5 {
            let mut client = server.connect_from(address).await;
            client.read("toy:parts/200000").await;
            let (status, _, body) = client.response().await;
            assert_eq!((status, body.len() > 200_000), (200, true), "127.0.0.{address}");
        }
    }
    // Connections of clients that do not read are closed while others wait for memory.
    until("stalled connections are closed", async || server.metric("connections").await <= 29).await;
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
    assert!(grown < 96 * MIB, "{} MiB for events that nobody takes", grown / MIB);
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
async fn small_responses_that_nobody_takes_are_counted() {
    let server = Server::start(Config { sse: true, ..Config::default() }).await;
    let mut client = server.connect().await;
    let read = json!({ "uri": "toy:kept/large" });
    let text = format!("\"contents\":[{{\"uri\":\"toy:kept/large\",\"text\":\"{}\"}}]", "x".repeat(60_000));
    *server.toy.large.lock().unwrap() = Some(text.into_bytes().into());
    // Until neither the kernel nor the server accepts more.
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
    assert!(grown < 96 * MIB, "{} MiB for streams that nobody reads", grown / MIB);
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
    assert!(grown < 96 * MIB, "{} MiB for responses that nobody takes", grown / MIB);
}
