//! Memory accounting of request bodies while they are received.

use libris_wire::http::Config;
use serde_json::json;
use tokio::io::AsyncReadExt as _;

use crate::support::modern;
use crate::{Server, until};

const KIB: usize = 1 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_their_body_are_counted_with_their_heads() {
    // One client has three quarters of it.
    let server = Server::start(Config { receiving_bytes: 1_024 * KIB, ..Config::default() }).await;
    let mut refused = 0;
    for (head, fits) in [(0, 15), (12_000, 10)] {
        let field = "a".repeat(head);
        let mut held = Vec::new();
        for number in 0..20 {
            let mut client = server.connect().await;
            let headers = [("expect", "100-continue"), ("x-field", &*field)];
            client.begin("/mcp", &headers, 100_000, b"").await;
            let mut status = [0; 12];
            client.stream.read_exact(&mut status).await.unwrap();
            let expected: &[u8] = if number < fits { b"HTTP/1.1 100" } else { b"HTTP/1.1 503" };
            assert_eq!(status, expected, "number {number} with a head of {head} bytes");
            held.push(client);
        }
        refused += 20 - fits;
        assert_eq!(server.metric("requests_refused_total").await, refused);
        // Another client has a share of its own.
        let mut other = server.connect_from(2).await;
        other.begin("/mcp", &[("x-field", "a")], 2, b"{}").await;
        assert_eq!(other.status().await, 400);
        drop(held);
        until("there is room again", async || {
            let mut client = server.connect().await;
            client.begin("/mcp", &[("x-field", &*field)], 2, b"{}").await;
            let status = client.status().await;
            refused += usize::from(status == 503);
            status == 400
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_head_is_counted_for_as_long_as_its_request_waits() {
    for (head, second) in [(1_000, None), (12_000, Some(503))] {
        let server = Server::start(Config { receiving_bytes: 112 * KIB, ..Config::default() }).await;
        let field = "a".repeat(head);
        let message = modern(1, "resources/read", json!({ "uri": "toy:wait" }));
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "resources/read"),
            ("mcp-name", "toy:wait"),
            ("x-field", &*field),
        ];
        let mut clients = [server.connect().await, server.connect().await];
        clients[0].send(&headers, &message).await;
        until("the first waits", async || server.metric("requests").await == 1).await;
        clients[1].send(&headers, &message).await;
        match second {
            Some(status) => assert_eq!(clients[1].status().await, status),
            None => until("the second waits too", async || server.metric("requests").await == 2).await,
        }
    }
}
