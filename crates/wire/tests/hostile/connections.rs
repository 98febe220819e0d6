//! Limits on connections and sessions: many, idle, half-closed, or slow to send the HTTP/2 preface.

use std::time::Duration;

use libris_wire::http::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::{SOON, Server};

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
