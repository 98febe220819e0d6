//! Incomplete request heads (slowloris).

use libris_wire::http::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::configured;
use crate::{Client, MIB, Server, growth, until};

/// The first `size` bytes of a request head.
fn begun(bytes: usize) -> Vec<u8> {
    let mut head = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: ".to_vec();
    head.resize(bytes, b'a');
    head
}

async fn begin(client: &mut Client, bytes: usize) {
    client.stream.write_all(&begun(bytes)).await.unwrap();
}

/// Waits until the server closes a connection.
async fn closed(client: &mut Client) {
    let mut rest = Vec::new();
    let _ =
        tokio::time::timeout(crate::SOON, client.stream.read_to_end(&mut rest)).await.expect("it stays open");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_are_cheap() {
    let server = Server::start(Config::default()).await;
    const COUNT: usize = 400;
    for (bytes, request_before) in [(100, false), (100, true)] {
        let before = server.metric("request_head_bytes").await;
        let (grown, held) = growth(async {
            let mut held = Vec::new();
            for _ in 0..COUNT {
                let mut client = server.connect().await;
                if request_before {
                    client.read("toy:size/3").await;
                    assert_eq!(client.status().await, 200);
                }
                begin(&mut client, bytes).await;
                held.push(client);
            }
            until("all of them are there", async || {
                server.metric("request_head_bytes").await >= before + COUNT * bytes
            })
            .await;
            held
        })
        .await;
        // It takes 3 KiB. Without the express lane, hyper has answered the request before, and keeps its buffers while few
        // connections are open: 18 KiB more.
        let hyper_stays = request_before && !configured(Config::default()).express;
        let most = if hyper_stays { 24 << 10 } else { 8 << 10 };
        assert!(grown < COUNT * most, "{} bytes for each head of {bytes} bytes", grown / COUNT);
        drop(held);
        until("nothing is left", async || server.metric("request_head_bytes").await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_are_bounded_in_all_and_the_slowest_make_room() {
    let heads = MIB;
    let server = Server::start(Config { head_bytes: heads, ..Config::default() }).await;
    // Another client started its head before all of them and has not finished it.
    let mut bystander = server.connect_from(2).await;
    begin(&mut bystander, 2_000).await;
    until("it has begun", async || server.metric("request_head_bytes").await >= 2_000).await;
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut client = server.connect().await;
        begin(&mut client, 15_000).await;
        held.push(client);
        // One after the other, so that it is known which is the oldest.
        until("it is counted", async || {
            server.metric("request_head_bytes").await >= (held.len() * 15_000 + 2_000).min(heads - 15_000)
        })
        .await;
    }
    assert!(server.metric("request_head_bytes").await <= heads);
    until("the others are closed", async || server.metric("connections").await <= 2 + heads / 15_000).await;
    closed(&mut held[0]).await;
    // The newest and the bystander can finish.
    for client in [&mut bystander, held.last_mut().unwrap()] {
        client.stream.write_all(b"\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        assert_ne!(client.status().await, 503);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_are_counted_also_where_hyper_has_them() {
    let heads = MIB;
    let server = Server::start(Config { head_bytes: heads, ..Config::default() }).await;
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut client = server.connect().await;
        // Chunked, so that hyper takes over the connection.
        client
            .stream
            .write_all(b"PUT /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(client.status().await, 405);
        begin(&mut client, 15_000).await;
        held.push(client);
    }
    closed(&mut held[0]).await;
    assert!(server.metric("request_head_bytes").await <= heads);
    drop(held);
    until("nothing is left", async || server.metric("request_head_bytes").await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_behind_a_stream_is_counted() {
    let server = Server::start(Config { head_bytes: MIB, ..Config::default() }).await;
    let mut client = server.connect().await;
    client
        .ask("subscriptions/listen", serde_json::json!({ "notifications": { "resourcesListChanged": true } }))
        .await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"\n\n\r\n") {
        seen.push(client.stream.read_u8().await.unwrap());
    }
    begin(&mut client, 5_000).await;
    until("it is counted", async || server.metric("request_head_bytes").await == 5_000).await;
}
