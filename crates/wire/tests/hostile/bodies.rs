//! Incomplete request bodies.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use libris_wire::http::Config;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::support::modern;
use crate::{MIB, Server, growth, until};

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_are_bounded_in_all() {
    let server = Server::start(Config::default()).await;
    let (grown, mut clients) = growth(async {
        let mut clients = Vec::new();
        for _ in 0..100 {
            let mut client = server.connect().await;
            // Unread bytes stay in the socket buffers.
            let body = vec![b' '; 4 * MIB - 1];
            let sending = client.begin("/mcp", &[], 4 * MIB, &body);
            let _ = timeout(Duration::from_millis(100), sending).await;
            clients.push(client);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        clients
    })
    .await;
    assert!(grown < 48 * MIB, "{} MiB for unfinished bodies", grown / MIB);
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
                // A chunked body without an end.
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
    assert!(grown < 40 * MIB, "{} MiB for unfinished bodies", grown / MIB);
}
