//! Open event streams: memory per stream, and requests before and after them on the same connection.

use libris_wire::http::Config;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::{Client, MIB, SOON, Server, growth, until};

/// The request for the stream of a session, with further header fields as whole lines.
fn get(session: &str, version: &str, fields: &str) -> String {
    format!(
        "GET /mcp HTTP/{version}\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\
         mcp-session-id: {session}\r\n{fields}\r\n"
    )
}

impl Client {
    /// Reads until what was read ends like this.
    async fn read_until(&mut self, end: &str) -> String {
        let mut seen = Vec::new();
        let reading = async {
            while !seen.ends_with(end.as_bytes()) {
                seen.push(self.stream.read_u8().await.expect("the connection is open"));
            }
        };
        timeout(SOON, reading).await.expect("it comes in time");
        String::from_utf8(seen).unwrap()
    }

    /// Sends this and reads the head of the response.
    async fn open(&mut self, request: &str) -> String {
        self.stream.write_all(request.as_bytes()).await.unwrap();
        self.read_until("\r\n\r\n").await
    }

    async fn end(&mut self, session: &str) {
        let delete = format!("DELETE /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nmcp-session-id: {session}\r\n\r\n");
        self.stream.write_all(delete.as_bytes()).await.unwrap();
        assert!(self.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 204"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_costs_little() {
    let server = Server::start(Config::default()).await;
    let mut opener = server.connect().await;
    let mut sessions = Vec::new();
    for _ in 0..250 {
        sessions.push(opener.session().await);
    }
    // Usual, and not: what hyper gets with all that follows is handed back too.
    for fields in ["", "connection: keep-alive, x\r\n"] {
        let (grown, _held) = growth(async {
            let mut held = Vec::new();
            for number in 0..1_000 {
                let mut client = server.connect().await;
                let head = client.open(&get(&sessions[number / 4], "1.1", fields)).await;
                assert!(head.starts_with("HTTP/1.1 200"), "{head}");
                held.push(client);
            }
            held
        })
        .await;
        // Through hyper it would be 20 MiB more.
        assert!(grown < 10 * MIB, "{} MiB for 1,000 streams with `{fields}`", grown / MIB);
    }
}

/// Only a stream that hyper sends takes several places, so this shows that hyper has handed it over.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_alone_on_its_connection_takes_one_place() {
    for fields in ["", "connection: keep-alive, x\r\n"] {
        let server = Server::start(Config::default()).await;
        let session = server.connect().await.session().await;
        let mut client = server.connect().await;
        assert!(client.open(&get(&session, "1.1", fields)).await.starts_with("HTTP/1.1 200"));
        assert_eq!(server.metric("listen_streams").await, 1, "`{fields}`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_on_after_its_stream_has_ended() {
    let server = Server::start(Config::default()).await;
    let mut other = server.connect().await;
    for fields in ["", "connection: keep-alive, x\r\n"] {
        let session = other.session().await;
        let mut client = server.connect().await;
        // The next request comes at once, and waits.
        let metrics = "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
        let head = client.open(&(get(&session, "1.1", fields) + metrics)).await;
        assert!(head.contains("transfer-encoding: chunked") && head.contains("text/event-stream"), "{head}");
        other.end(&session).await;
        assert_eq!(client.read_until("0\r\n\r\n").await, "0\r\n\r\n");
        let (status, _, body) = client.response().await;
        assert_eq!(status, 200);
        assert!(String::from_utf8(body).unwrap().contains("mcp_listen_streams"));
        // And so does one that comes later.
        let session = client.session().await;
        assert!(client.open(&get(&session, "1.1", fields)).await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_the_last_response_ends_its_connection() {
    let server = Server::start(Config::default()).await;
    let mut other = server.connect().await;
    for (version, fields, end) in [
        ("1.1", "connection: close\r\n", "0\r\n\r\n"),
        // Without chunks: it ends with the connection.
        ("1.0", "", ""),
        // Nobody reads this body, so what follows is no request.
        ("1.1", "content-length: 70000\r\n", "0\r\n\r\n"),
    ] {
        let session = other.session().await;
        let mut client = server.connect().await;
        let head = client.open(&get(&session, version, fields)).await;
        assert_eq!(head.contains("transfer-encoding"), version == "1.1", "{head}");
        assert!(head.contains("connection: close"), "{head}");
        other.end(&session).await;
        let mut rest = String::new();
        timeout(SOON, client.stream.read_to_string(&mut rest)).await.expect("it is closed").unwrap();
        assert_eq!(rest, end, "{version} {fields}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_hyper_sends_takes_several_places() {
    let server = Server::start(Config { event_streams: 8, ..Config::default() }).await;
    let mut held = Vec::new();
    for status in ["HTTP/1.1 200", "HTTP/1.1 503"] {
        let mut client = server.connect().await;
        let session = client.session().await;
        // Hyper gets all that follows such a request.
        let put = "PUT /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        client.stream.write_all(put.as_bytes()).await.unwrap();
        assert_eq!(client.status().await, 405);
        let head = client.open(&get(&session, "1.1", "")).await;
        assert!(head.starts_with(status), "{head}");
        assert_eq!(server.metric("listen_streams").await, 4);
        held.push(client);
    }
    drop(held);
    until("all places are free", async || server.metric("listen_streams").await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_reach_a_client_that_sends_more_requests_meanwhile() {
    let server = Server::start(Config::default()).await;
    let mut client = server.connect().await;
    let filter = json!({ "notifications": { "resourceSubscriptions": ["toy:a"] } });
    client.ask("subscriptions/listen", filter).await;
    client.read_until("\n\n\r\n").await;
    client.read("toy:size/3").await;
    until("it is read", async || server.metric("request_head_bytes").await > 0).await;
    for _ in 0..3 {
        server.toy.update("toy:a");
        assert!(client.read_until("\n\n\r\n").await.contains("notifications/resources/updated"));
    }
}
