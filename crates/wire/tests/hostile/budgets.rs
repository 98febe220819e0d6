//! Memory of waiting requests, and the length of request text in errors.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use libris_wire::http::{Body, Config, Endpoint, Route};
use libris_wire::{Call, Caller, Client as Address, Limits, Refusal, ServerInfo, Service, ServiceView};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use crate::support::{Toy, initialize, modern, request};
use crate::{MIB, Server, alone, until};

/// A POST of a client at this address, to an endpoint that is asked without a connection.
fn post(last: u8, headers: &[(&str, &str)], message: &Value) -> Request<Full<Bytes>> {
    let mut post = Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .extension(Address::at([127, 0, 0, last].into()));
    for (name, value) in headers {
        post = post.header(*name, *value);
    }
    post.body(Full::new(message.to_string().into())).unwrap()
}

#[tokio::test]
async fn errors_repeat_little_of_a_large_request() {
    let _alone = alone().await;
    let endpoint = Endpoint::new(Toy::new(), Config::default());
    // Invisible characters take most space where they are quoted.
    let long = "\u{200b}".repeat(MIB);
    let reference = |kind: &str| json!({ "type": kind, "uri": "a", "name": "a" });
    let argument = json!({ "name": "a", "value": "" });
    for (method, params) in [
        ("subscriptions/listen", json!({ "notifications": { "resourcesListChanged": long } })),
        ("subscriptions/listen", json!({ "notifications": { "resourceSubscriptions": long } })),
        ("completion/complete", json!({ "ref": reference(&long), "argument": argument })),
        (
            "completion/complete",
            json!({ "ref": reference("ref/resource"), "argument": { "name": "a", "value": { (&*long): 1 } } }),
        ),
        (
            "completion/complete",
            json!({ "ref": reference("ref/resource"), "argument": argument, "context": { "arguments": long } }),
        ),
        ("tools/call", json!({ "name": long })),
        ("prompts/get", json!({ "name": long })),
        (&long, json!({})),
    ] {
        let message = modern(1, method, params);
        // Those that a header names differ from the body.
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", if method == long { "a" } else { method }),
        ];
        let response = endpoint.clone().handle(post(1, &headers, &message)).await;
        let size = response.into_body().collect().await.unwrap().to_bytes().len();
        assert!(size < 3_000, "{size} bytes of an error to {}", &method[..12]);
    }
    let mut message = modern(1, "resources/list", json!({}));
    message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(long);
    let response = endpoint.clone().handle(post(1, &[], &message)).await;
    assert!(response.into_body().collect().await.unwrap().to_bytes().len() < 3_000);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_holds_memory_does_not_wait_for_more() {
    let _alone = alone().await;
    // Of this, contents of more than 1 MiB have 9 MiB.
    let limits = Limits { content_bytes: 12 * MIB, ..Limits::default() };
    let endpoint = Endpoint::new(Toy::new(), Config { limits, ..Config::default() });
    let opened = endpoint.clone().handle(post(2, &[], &initialize("2025-03-26"))).await;
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    // Another client does not read its responses.
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/read"),
        ("mcp-name", "toy:parts/5000000"),
    ];
    let large = modern(1, "resources/read", json!({ "uri": "toy:parts/5000000" }));
    let untaken = endpoint.clone().handle(post(1, &headers, &large)).await;
    assert_eq!(untaken.status(), 200);
    let read = |id| request(id, "resources/read", json!({ "uri": "toy:parts/1500000" }));
    let began = tokio::time::Instant::now();
    let batch = json!([read(1), read(2)]);
    let response = endpoint.clone().handle(post(2, &[("mcp-session-id", &session)], &batch)).await;
    assert_eq!(began.elapsed().as_millis(), 0, "it waited");
    let answers = response.into_body().collect().await.unwrap().to_bytes();
    let answers: Value = serde_json::from_slice(&answers).unwrap();
    assert!(answers[0]["result"].is_object() && answers[1]["error"].is_object());
    drop(untaken);
    // Requests that hold no memory wait.
    let response = endpoint.clone().handle(post(2, &[("mcp-session-id", &session)], &batch)).await;
    let answers: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert!(answers[1]["result"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_in_a_session_are_counted() {
    let limits = Limits { in_flight: 1, ..Limits::default() };
    let server = Server::start(Config { requests: 8, limits, ..Config::default() }).await;
    let session = server.connect().await.session().await;
    let mut clients = Vec::new();
    for id in 0..6 {
        let mut client = server.connect().await;
        let read = request(id, "resources/read", json!({ "uri": "toy:wait" }));
        client.send(&[("mcp-session-id", &session)], &read).await;
        clients.push(client);
    }
    until("all of them are counted", async || server.metric("requests").await == 6).await;
    assert_eq!(server.toy.begun.load(Ordering::SeqCst), 1, "one is worked on");
    let mut refused = server.connect().await;
    refused
        .send(&[("mcp-session-id", &session)], &request(9, "resources/read", json!({ "uri": "toy:wait" })))
        .await;
    assert_eq!(refused.status().await, 503);
    // The same for batches.
    let mut client = server.connect().await;
    client.send(&[], &initialize("2025-03-26")).await;
    let (_, head, _) = client.response().await;
    let other = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    let batch = json!([request(1, "resources/read", json!({ "uri": "toy:wait" }))]);
    client.send(&[("mcp-session-id", &other)], &batch).await;
    assert_eq!(client.status().await, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_on_the_old_transport_are_counted() {
    let server = Server::start(Config { requests: 16, sse: true, ..Config::default() }).await;
    let mut stream = server.connect().await;
    stream.stream.write_all(b"GET /sse HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut seen = String::new();
    while !seen.contains("sessionId=") || !seen.ends_with("\n\n\r\n") {
        seen.push(char::from(stream.stream.read_u8().await.unwrap()));
    }
    let path = seen.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().trim().to_owned();
    let mut posters = Vec::new();
    for message in [initialize("2024-11-05")]
        .into_iter()
        .chain((1..=12).map(|id| request(id, "resources/read", json!({ "uri": "toy:wait" }))))
    {
        let mut poster = server.connect().await;
        let body = message.to_string();
        poster.begin(&path, &[], body.len(), body.as_bytes()).await;
        if posters.is_empty() {
            assert_eq!(poster.status().await, 202);
        }
        posters.push(poster);
    }
    // Eight requests have a slot for their responses, and four wait for one.
    until("all of them are counted", async || server.metric("requests").await == 12).await;
    until("eight are worked on", async || server.toy.begun.load(Ordering::SeqCst) == 8).await;
    let mut refused = server.connect().await;
    let body = request(13, "resources/read", json!({ "uri": "toy:wait" })).to_string();
    refused.begin(&path, &[], body.len(), body.as_bytes()).await;
    assert_eq!(refused.status().await, 503);
}

/// A service that waits for a signal, then responds with 2 MiB.
#[derive(Default)]
struct Slow(Notify);

#[async_trait]
impl Route for Slow {
    fn covers(&self, path: &str) -> bool {
        path == "/slow"
    }

    async fn answer(&self, _: &Call, _: Request<Bytes>) -> Response<Body> {
        self.0.notified().await;
        Response::new(Body::from("x".repeat(2 * MIB)))
    }
}

#[tokio::test(start_paused = true)]
async fn requests_to_further_routes_have_the_same_bounds() {
    let _alone = alone().await;
    let slow = Arc::<Slow>::default();
    let limits = Limits { content_bytes: 12 * MIB, ..Limits::default() };
    let config = Config { requests: 4, limits, ..Config::default() };
    let endpoint = Endpoint::with_routes(Toy::new(), config, vec![slow.clone()]);
    let ask = |last: u8| {
        let request = Request::get("/slow").header("host", "localhost");
        let request = request.extension(Address::at([127, 0, 0, last].into()));
        endpoint.clone().handle(request.body(Full::<Bytes>::default()).unwrap())
    };
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(ask(1))).collect();
    tokio::task::yield_now().await;
    let refused = ask(1).await.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&refused).contains("too many requests are in progress"));
    slow.0.notify_waiters();
    let mut held = Vec::new();
    for response in waiting {
        held.push(response.await.unwrap());
    }
    assert!(held.iter().all(|response| response.status() == 200));
    // Each response is in memory until the client reads it.
    let metrics =
        Request::get("/metrics").header("host", "localhost").body(Full::<Bytes>::default()).unwrap();
    let metrics = endpoint.clone().handle(metrics).await.into_body().collect().await.unwrap().to_bytes();
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(metrics.contains(&format!("mcp_unsent_bytes {}\n", 6 * MIB)), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_ends_with_its_session() {
    let _alone = alone().await;
    let toy = Toy::new();
    let endpoint = Endpoint::new(toy.clone(), Config::default());
    let opened = endpoint.clone().handle(post(1, &[], &initialize("2025-03-26"))).await;
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let batch = json!([request(1, "resources/read", json!({ "uri": "toy:wait" }))]);
    let answering = endpoint.clone().handle(post(1, &[("mcp-session-id", &session)], &batch));
    let answering = tokio::spawn(answering);
    while toy.begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let delete = Request::delete("/mcp").header("host", "localhost").header("mcp-session-id", &session);
    let deleted = endpoint.clone().handle(delete.body(Full::<Bytes>::default()).unwrap()).await;
    assert_eq!(deleted.status(), 204);
    let began = tokio::time::Instant::now();
    let body = answering.await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!((body.len(), began.elapsed().as_millis()), (0, 0));
    assert_eq!(toy.ended.load(Ordering::SeqCst), 1);
}

/// A service whose admission never completes.
struct Hanging;

#[async_trait]
impl Service for Hanging {
    fn info(&self) -> ServerInfo {
        ServerInfo::default()
    }

    fn cached_view(&self, _: &Caller<'_>) -> Option<Arc<dyn ServiceView>> {
        None
    }

    async fn admit(&self, _: &Caller<'_>) -> Result<Arc<dyn ServiceView>, Refusal> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn admission_has_the_time_limit_of_a_request() {
    let _alone = alone().await;
    let limits = Limits { time: Duration::from_secs(7), ..Limits::default() };
    let endpoint = Endpoint::new(Arc::new(Hanging), Config { limits, ..Config::default() });
    let began = tokio::time::Instant::now();
    let handling = endpoint.handle(post(1, &[], &request(1, "ping", json!({}))));
    let response = tokio::time::timeout(Duration::from_secs(600), handling).await.expect("it ends");
    assert_eq!((response.status().as_u16(), began.elapsed().as_secs()), (503, 7));
}
