//! Limits on concurrent requests, and their time-out.

use std::sync::atomic::Ordering;
use std::time::Duration;

use libris_wire::http::Config;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::support::request;
use crate::{Server, until};

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_keep_nobody_from_what_costs_nothing() {
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
    // Before anybody else asks, or one of these could be refused.
    until("the share is used up", async || server.toy.begun.load(Ordering::SeqCst) == 6).await;
    let mut client = server.connect().await;
    client.read("toy:size/3").await;
    let (status, head, body) = client.response().await;
    assert!(status == 503 && head.contains("retry-after"), "{head}");
    assert!(String::from_utf8_lossy(&body).contains("too many requests are in progress"));
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
async fn a_request_that_told_of_progress_can_be_cancelled() {
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
async fn subscriptions_that_are_too_many_are_refused_before_the_first_is_made() {
    let server = Server::start(Config::default()).await;
    let mut client = server.connect().await;
    let uris = ["toy:before-too-much", "toy:too-much", "toy:too-much"];
    client.ask("subscriptions/listen", json!({ "notifications": { "resourceSubscriptions": uris } })).await;
    let (status, _, body) = client.response().await;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &body["error"]["message"]), (200, &json!("too much by 1")), "{body}");
    assert_eq!(server.metric("listen_streams").await, 0);
}
