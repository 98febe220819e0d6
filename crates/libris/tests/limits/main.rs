//! Limits over HTTP: each caller has its own share, whatever another does. And the audit log of what callers do.

mod audit;
mod shares;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use libris::wire::Caller;
use libris::wire::http::{self, Endpoint, TrustedProxies, UsageLimits};
use libris::{
    Authenticate, Catalog, Config, FunctionSource, Identified, Identity, Policy, Rights, Server,
    SubscriptionConfig,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Callers name themselves.
struct Named;

impl Authenticate for Named {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        Identified::Caller(caller.authorization.map(|name| Identity::new(String::from_utf8_lossy(name))))
    }
}

impl Policy for Named {
    fn authentication(&self) -> &dyn Authenticate {
        self
    }

    fn rights(&self, _: Option<&Identity>) -> Rights {
        Rights::everything()
    }
}

fn source() -> FunctionSource {
    FunctionSource::new()
        .resource("note://one", || "first")
        .resource("note://two", || "second")
        .resource("note://three", || "third")
}

async fn listen(http: http::Config, subscriptions: SubscriptionConfig) -> (SocketAddr, DropGuard) {
    let config = Config { subscriptions, ..Config::default() };
    serve(
        Server::with_policy(Arc::new(Catalog::new(vec![Arc::new(source())])), config, Arc::new(Named)),
        http,
    )
    .await
}

async fn serve(server: Server, http: http::Config) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(http::serve(listener, Endpoint::new(Arc::new(server), http), stop.clone()));
    (address, stop.drop_guard())
}

struct Client {
    sender: http1::SendRequest<Full<Bytes>>,
    headers: Vec<(&'static str, String)>,
}

impl Client {
    async fn new(address: SocketAddr, headers: &[(&'static str, &str)]) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { sender, headers }
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
        request = request.header("accept", "application/json, text/event-stream");
        let own = self.headers.iter().map(|(name, value)| (*name, &**value));
        for (name, value) in own.chain(headers.iter().copied()) {
            request = request.header(name, value);
        }
        self.sender.ready().await.unwrap();
        self.sender.send_request(request.body(Full::from(body)).unwrap()).await.unwrap()
    }

    async fn open(&mut self, method: &str, mut params: Value) -> Response<Incoming> {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let name = match method {
            "tools/call" | "prompts/get" => &params["name"],
            _ => &params["uri"],
        };
        let name = name.as_str().unwrap_or_default().to_owned();
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let mut headers = vec![
            ("content-type", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
        ];
        headers.extend((!name.is_empty()).then_some(("mcp-name", &*name)));
        self.send(Method::POST, "/mcp", &headers, message.to_string()).await
    }

    async fn read(&mut self) -> (u16, Option<String>, Value) {
        let response = self.open("resources/read", json!({ "uri": "note://one" })).await;
        let retry = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, retry, serde_json::from_slice(&bytes).unwrap())
    }

    async fn initialize(&mut self) -> Option<String> {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let headers = [("content-type", "application/json")];
        let response = self.send(Method::POST, "/mcp", &headers, message.to_string()).await;
        let session =
            response.headers().get("mcp-session-id").map(|value| value.to_str().unwrap().to_owned());
        response.into_body().collect().await.unwrap();
        session
    }

    async fn in_session(&mut self, session: &str, method: &str, params: Value) -> (u16, Value) {
        let message = json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params });
        let headers = [("content-type", "application/json"), ("mcp-session-id", session)];
        let response = self.send(Method::POST, "/mcp", &headers, message.to_string()).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

fn requests(limit: u64) -> UsageLimits {
    UsageLimits { requests_per_minute: Some(limit), ..UsageLimits::default() }
}

/// The header field that sends a request through hyper.
const LONG: (&str, &str) = ("x-long", "1");

#[tokio::test]
async fn whoever_asks_too_fast_is_told_when_to_ask_again() {
    let http =
        http::Config { identity_limits: requests(3), address_limits: requests(2), ..http::Config::default() };
    let (address, _serving) = listen(http, SubscriptionConfig::default()).await;
    for (who, through_hyper, most) in [(Some("ada"), false, 3), (Some("bob"), true, 3), (None, false, 2)] {
        let headers: Vec<_> =
            who.map(|who| ("authorization", who)).into_iter().chain(through_hyper.then_some(LONG)).collect();
        // On several connections: the limit is that of the caller.
        let mut clients = [Client::new(address, &headers).await, Client::new(address, &headers).await];
        for number in 0..most {
            let (status, _, body) = clients[number % 2].read().await;
            assert_eq!((status, &body["result"]["contents"][0]["text"]), (200, &json!("first")), "{who:?}");
        }
        for client in &mut clients {
            let (status, retry, body) = client.read().await;
            assert_eq!(status, 429, "{who:?}: {body}");
            let wait = 60 / most as u64;
            let seconds: u64 = retry.unwrap().parse().unwrap();
            assert!((1..=wait).contains(&seconds), "{seconds}");
            assert_eq!((&body["id"], &body["error"]["code"]), (&json!(7), &json!(-32603)));
            assert!(body["error"]["data"]["retryAfterMs"].as_u64().unwrap() <= wait * 1_000);
        }
    }
}

#[tokio::test]
async fn bytes_of_cached_and_other_responses_count() {
    let limits = UsageLimits { bytes_per_minute: Some(1_000), ..UsageLimits::default() };
    let http = http::Config { identity_limits: limits, ..http::Config::default() };
    let (address, _serving) = listen(http, SubscriptionConfig::default()).await;
    for headers in [vec![("authorization", "ada")], vec![("authorization", "bob"), LONG]] {
        let mut client = Client::new(address, &headers).await;
        let mut answered = 0;
        while client.read().await.0 == 200 {
            answered += 1;
            assert!(answered < 20, "nothing counts the bytes");
        }
        assert!(answered > 1);
    }
    assert_eq!(Client::new(address, &[]).await.read().await.0, 200);
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client_and_nobody_else_does() {
    for trusted in [true, false] {
        let ranges = if trusted { vec!["127.0.0.0/8".parse().unwrap()] } else { Vec::new() };
        let proxies = TrustedProxies { ranges, ..TrustedProxies::default() };
        let http = http::Config { address_limits: requests(2), proxies, ..http::Config::default() };
        let (address, _serving) = listen(http, SubscriptionConfig::default()).await;
        for extra in [None, Some(LONG)] {
            let mut served = 0;
            for last in 0..4 {
                let from =
                    format!("203.0.113.{last}, 192.0.2.{}", last + if extra.is_some() { 100 } else { 0 });
                let headers: Vec<_> = [("x-forwarded-for", &*from)].into_iter().chain(extra).collect();
                let mut client = Client::new(address, &headers).await;
                for _ in 0..3 {
                    served += usize::from(client.read().await.0 == 200);
                }
            }
            let expected = if trusted {
                8
            } else if extra.is_none() {
                2
            } else {
                0
            };
            assert_eq!(served, expected, "trusted: {trusted}, {extra:?}");
        }
    }
}

#[tokio::test]
async fn one_identity_holds_everything_it_can_get_and_another_is_served() {
    let limits = UsageLimits {
        concurrent_requests: Some(4),
        sessions: Some(5),
        streams: Some(6),
        ..UsageLimits::default()
    };
    let total = UsageLimits { sessions: Some(8), streams: Some(8), ..UsageLimits::default() };
    let http = http::Config { identity_limits: limits, total_limits: total, ..http::Config::default() };
    let subscriptions = SubscriptionConfig {
        identity_subscriptions: Some(2),
        total_subscriptions: Some(4),
        ..SubscriptionConfig::default()
    };
    let (address, _serving) = listen(http, subscriptions).await;
    let greedy = [("authorization", "greedy")];
    // Sessions: the last five stay.
    let mut sessions = Vec::new();
    for _ in 0..20 {
        // On a connection each, because a connection has a limit of its own.
        sessions.push(Client::new(address, &greedy).await.initialize().await.unwrap());
    }
    let mut client = Client::new(address, &greedy).await;
    let mut open = Vec::new();
    for session in &sessions {
        let (status, _) = client.in_session(session, "ping", json!({})).await;
        open.push(status == 200);
    }
    assert_eq!(open.iter().filter(|open| **open).count(), 5);
    assert!(open[15..].iter().all(|open| *open));
    // Subscriptions, over all sessions.
    let mut outcomes = Vec::new();
    for (session, uri) in sessions[15..].iter().zip(["note://one", "note://two", "note://three"]) {
        let (_, body) = client.in_session(session, "resources/subscribe", json!({ "uri": uri })).await;
        outcomes.push(body.get("result").is_some());
    }
    assert_eq!(outcomes, [true, true, false]);
    // Streams.
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..10 {
        let mut client = Client::new(address, &greedy).await;
        let params = json!({ "notifications": { "resourcesListChanged": true } });
        let response = client.open("subscriptions/listen", params).await;
        match response.status().as_u16() {
            200 => streams.push((client, response)),
            503 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((streams.len(), refused), (6, 4));
    // The other has its own share of everything.
    for who in ["modest", "humble"] {
        let mut other = Client::new(address, &[("authorization", who)]).await;
        assert_eq!(other.read().await.0, 200);
        let session = other.initialize().await.unwrap();
        let uri = json!({ "uri": "note://one" });
        let (_, body) = other.in_session(&session, "resources/subscribe", uri).await;
        assert_eq!(body["result"], json!({}));
        let params = json!({ "notifications": { "resourcesListChanged": true } });
        assert_eq!(other.open("subscriptions/listen", params).await.status().as_u16(), 200);
    }
    assert!(streams.iter().all(|(client, _)| !client.sender.is_closed()));
}
