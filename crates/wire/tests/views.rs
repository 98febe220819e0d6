//! Callers and their views over TCP connections: admission, ownership of sessions, and requests that views answer.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use libris_wire::http::{Body, Config, Endpoint, Route, serve};
use libris_wire::{Call, Identity, Limits};
use serde_json::{Value, json};
use support::{Toy, configured, initialize, modern, request};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Says who asks and what for.
struct Page;

#[async_trait]
impl Route for Page {
    fn covers(&self, path: &str) -> bool {
        path.starts_with("/page")
    }

    fn public(&self, method: &Method, path: &str, _: &HeaderMap) -> Option<Response<Body>> {
        (method == Method::GET && path == "/page/public")
            .then(|| Response::new(Body::from("hello".to_owned())))
    }

    async fn answer(&self, call: &Call, request: Request<Bytes>) -> Response<Body> {
        let caller = call.view().caller().map_or("nobody", Identity::name);
        let text =
            format!("{caller}: {} {} {}", request.method(), request.uri().path(), request.body().len());
        Response::new(Body::from(text))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Beside hyper, where the request is usual.
    Express,
    /// With a header field that sends it through hyper.
    Long,
    Http2,
}

const VERSIONS: [Version; 3] = [Version::Express, Version::Long, Version::Http2];

struct Server {
    address: SocketAddr,
    _stop: DropGuard,
}

struct Answer {
    status: u16,
    headers: http::HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    fn challenge(&self) -> Option<&str> {
        self.headers.get("www-authenticate").map(|value| value.to_str().unwrap())
    }
}

impl Server {
    async fn start(config: Config) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let endpoint = Endpoint::with_routes(Toy::new(), configured(config), vec![Arc::new(Page)]);
        tokio::spawn(serve(listener, endpoint, stop.clone()));
        Self { address, _stop: stop.drop_guard() }
    }

    async fn send(&self, version: Version, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let stream = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        if version == Version::Http2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            return sender.send_request(request).await.unwrap();
        }
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }

    /// A request with these headers; those of a message are added to the ones of a POST.
    async fn open(
        &self,
        version: Version,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Response<Incoming> {
        let uri = match version {
            Version::Http2 => format!("http://127.0.0.1{path}"),
            _ => path.to_owned(),
        };
        let mut all = Vec::new();
        if version != Version::Http2 {
            all.push(("host", "127.0.0.1"));
        }
        if version == Version::Long {
            all.push(("x-long", "1"));
        }
        all.push(("accept", "application/json, text/event-stream"));
        if method == Method::POST {
            all.push(("content-type", "application/json"));
        }
        all.retain(|(name, _)| headers.iter().all(|(other, _)| other != name));
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in all.iter().chain(headers) {
            request = request.header(*name, *value);
        }
        self.send(version, request.body(Full::from(body)).unwrap()).await
    }

    async fn ask(
        &self,
        version: Version,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Answer {
        let (head, body) = self.open(version, method, path, headers, body).await.into_parts();
        let text = match head.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream") {
            true => String::new(),
            false => String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap(),
        };
        Answer { status: head.status.as_u16(), headers: head.headers, text }
    }

    async fn post(&self, version: Version, headers: &[(&str, &str)], message: &Value) -> Answer {
        self.ask(version, Method::POST, "/mcp", headers, message.to_string()).await
    }

    /// Posts a modern request with the headers that go with it.
    async fn modern(&self, version: Version, who: Option<&str>, method: &str, params: Value) -> Answer {
        let message = modern(1, method, params);
        let name = message["params"]["uri"].as_str().map(|name| ("mcp-name", name));
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
        headers.extend(name);
        headers.extend(who.map(|who| ("authorization", who)));
        self.post(version, &headers, &message).await
    }

    /// Opens a session.
    async fn session(&self, who: Option<&str>, date: &str) -> (String, Value) {
        let headers: Vec<_> = who.map(|who| ("authorization", who)).into_iter().collect();
        let opened = self.post(Version::Long, &headers, &initialize(date)).await;
        (opened.headers["mcp-session-id"].to_str().unwrap().to_owned(), opened.json()["result"].clone())
    }
}

#[tokio::test]
async fn who_is_not_admitted_is_told_how_to_be() {
    let server = Server::start(Config { sse: true, ..Config::default() }).await;
    let (session, _) = server.session(None, "2025-11-25").await;
    let wrong = ("authorization", "Bearer x");
    let places = [
        (Method::POST, "/mcp"),
        (Method::GET, "/mcp"),
        (Method::DELETE, "/mcp"),
        (Method::PUT, "/mcp"),
        (Method::GET, "/metrics"),
        (Method::GET, "/sse"),
        (Method::POST, "/message?sessionId=x"),
        (Method::GET, "/page"),
        (Method::GET, "/nothing"),
    ];
    let ping = request(1, "ping", json!({})).to_string();
    for version in VERSIONS {
        for (method, path) in &places {
            let headers = [wrong, ("mcp-session-id", &*session)];
            let body = if *method == Method::POST { ping.clone() } else { String::new() };
            let refused = server.ask(version, method.clone(), path, &headers, body.clone()).await;
            assert_eq!(
                (refused.status, refused.challenge()),
                (401, Some("Toy")),
                "{version:?} {method} {path}"
            );
            assert_eq!(refused.json()["error"]["message"], "not a name");
            let headers = [("authorization", "as A"), ("authorization", "as B"), headers[1]];
            let refused = server.ask(version, method.clone(), path, &headers, body).await;
            assert_eq!(refused.status, 400, "{version:?} {method} {path}");
        }
        let read =
            server.modern(version, Some("Bearer x"), "resources/read", json!({ "uri": "toy:kept/x" })).await;
        assert_eq!((read.status, read.challenge()), (401, Some("Toy")), "{version:?}");
        let message = modern(1, "resources/read", json!({ "uri": "toy:kept/x" }));
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "resources/read")];
        headers.extend([("mcp-name", "toy:kept/x"), ("authorization", "as A"), ("authorization", "as B")]);
        assert_eq!(server.post(version, &headers, &message).await.status, 400, "{version:?}");
        for who in [None, Some("as A")] {
            let read = server.modern(version, who, "resources/read", json!({ "uri": "toy:kept/x" })).await;
            assert_eq!((read.status, read.challenge()), (200, None), "{version:?} {who:?}");
        }
    }
    // The session is still there.
    assert_eq!(
        server
            .post(Version::Long, &[("mcp-session-id", &session)], &request(1, "ping", json!({})))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_request_is_answered_for_whoever_sent_it() {
    let server = Server::start(Config::default()).await;
    for version in VERSIONS {
        for name in ["A", "B"] {
            let who = format!("as {name}");
            let me = server.modern(version, Some(&who), "resources/read", json!({ "uri": "toy:me" })).await;
            assert_eq!(me.json()["result"]["contents"][0]["text"], name, "{version:?}");
        }
        let nobody = server.modern(version, None, "resources/read", json!({ "uri": "toy:me" })).await;
        assert_eq!(nobody.json()["error"]["code"], -32602, "{version:?}");
    }
}

#[tokio::test]
async fn a_session_belongs_to_whoever_opened_it() {
    let server = Server::start(Config::default()).await;
    let callers = [Some("as A"), Some("as B"), None];
    let messages = [
        request(1, "ping", json!({})),
        request(1, "resources/read", json!({ "uri": "toy:kept/x" })),
        request(1, "resources/subscribe", json!({ "uri": "toy:a" })),
        json!([request(1, "ping", json!({}))]),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
    ];
    for owner in callers {
        let (session, _) = server.session(owner, "2025-03-26").await;
        let headers = |who: Option<&'static str>| {
            let mut headers = vec![("mcp-session-id", session.clone())];
            headers.extend(who.map(|who| ("authorization", who.to_owned())));
            headers
        };
        for version in VERSIONS {
            for other in callers.into_iter().filter(|other| *other != owner) {
                let headers = headers(other);
                let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
                for message in &messages {
                    let refused = server.post(version, &headers, message).await;
                    assert_eq!(
                        refused.status, 404,
                        "{version:?}: {other:?} in the session of {owner:?}: {message}"
                    );
                }
                for method in [Method::GET, Method::DELETE] {
                    let refused = server.ask(version, method.clone(), "/mcp", &headers, String::new()).await;
                    assert_eq!(refused.status, 404, "{version:?}: {method} of {other:?} for {owner:?}");
                }
            }
            let headers = headers(owner);
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
            for message in &messages {
                let answer = server.post(version, &headers, message).await;
                assert!([200, 202].contains(&answer.status), "{version:?}: {owner:?}: {message}");
            }
        }
    }
}

#[tokio::test]
async fn a_stream_of_the_old_transport_belongs_to_whoever_opened_it() {
    let server = Server::start(Config { sse: true, ..Config::default() }).await;
    let callers = [Some("as A"), Some("as B"), None];
    for owner in callers {
        let headers: Vec<_> = owner.map(|who| ("authorization", who)).into_iter().collect();
        let mut stream =
            server.open(Version::Long, Method::GET, "/sse", &headers, String::new()).await.into_body();
        let first = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        let first = String::from_utf8(first.to_vec()).unwrap();
        let path = first.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end().to_owned();
        for other in callers {
            let headers: Vec<_> = other.map(|who| ("authorization", who)).into_iter().collect();
            let hello = initialize("2024-11-05").to_string();
            let answer = server.ask(Version::Long, Method::POST, &path, &headers, hello).await;
            let expected = if other == owner { 202 } else { 404 };
            assert_eq!(answer.status, expected, "{other:?} on the stream of {owner:?}");
        }
    }
}

#[tokio::test]
async fn capabilities_are_those_of_the_view() {
    let server = Server::start(Config::default()).await;
    let resources = json!({ "subscribe": true, "listChanged": true });
    let plain = json!({ "resources": resources, "completions": {} });
    let with_tools = json!({ "resources": resources, "completions": {}, "tools": {} });
    let mut with_extensions = with_tools.clone();
    with_extensions["extensions"] = json!({ "a/b": { "c": 1 } });
    for (who, legacy, modern) in [(None, &plain, &plain), (Some("as A"), &with_tools, &with_extensions)] {
        // Extensions exist from 2025-11-25 on.
        for (date, expected) in [("2025-03-26", legacy), ("2025-06-18", legacy), ("2025-11-25", modern)] {
            let (_, opened) = server.session(who, date).await;
            assert_eq!(opened["capabilities"], *expected, "{who:?} {date}");
        }
        for version in VERSIONS {
            let discovered = server.modern(version, who, "server/discover", json!({})).await.json();
            assert_eq!(discovered["result"]["capabilities"], *modern, "{who:?} {version:?}");
        }
    }
}

#[tokio::test]
async fn a_method_of_the_view_is_answered_by_it() {
    let server = Server::start(Config::default()).await;
    let params = json!({ "text": "hi \"you\"" });
    let expected = json!({ "caller": "A", "method": "toy/echo", "text": "hi \"you\"" });
    let is_expected = |result: &Value, which: &str| {
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(result[name], *value, "{which}: {result}");
        }
    };
    for version in VERSIONS {
        let echoed = server.modern(version, Some("as A"), "toy/echo", params.clone()).await.json();
        is_expected(&echoed["result"], &format!("{version:?}"));
        assert_eq!(echoed["result"]["resultType"], "complete");
        let unknown = server.modern(version, None, "toy/echo", params.clone()).await;
        assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!(-32601)), "{version:?}");
        // Without parameters of its own.
        let listed = server.modern(version, Some("as A"), "tools/list", json!({})).await.json();
        assert_eq!(listed["result"]["method"], "tools/list", "{version:?}");
        let listed = server.modern(version, None, "tools/list", json!({})).await.json();
        assert_eq!(listed["error"]["code"], -32601, "{version:?}: a view without tools has no such method");
        for date in ["2024-11-05", "2025-11-25"] {
            for (who, code) in [(Some("as A"), Value::Null), (None, json!(-32601))] {
                let (session, _) = server.session(who, date).await;
                let mut headers = vec![("mcp-session-id", &*session)];
                headers.extend(who.map(|who| ("authorization", who)));
                let answer = server.post(version, &headers, &request(1, "toy/echo", params.clone())).await;
                assert_eq!(
                    (answer.status, &answer.json()["error"]["code"]),
                    (200, &code),
                    "{version:?} {date} {who:?}"
                );
                if who.is_some() {
                    is_expected(&answer.json()["result"], &format!("{version:?} {date}"));
                }
                // `params` is optional.
                let bare = json!({ "jsonrpc": "2.0", "id": 2, "method": "toy/echo" });
                let answer = server.post(version, &headers, &bare).await.json();
                assert_eq!(answer["error"]["code"], code, "{version:?} {date} {who:?}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn a_route_is_behind_the_same_guards() {
    let limits = Limits { message: 1_000, ..Limits::default() };
    let server = Server::start(Config { limits, ..Config::default() }).await;
    for version in VERSIONS {
        for (who, name) in [(None, "nobody"), (Some("as A"), "A")] {
            let headers: Vec<_> = who.map(|who| ("authorization", who)).into_iter().collect();
            let answer = server.ask(version, Method::GET, "/page/x", &headers, String::new()).await;
            assert_eq!((answer.status, answer.text), (200, format!("{name}: GET /page/x 0")), "{version:?}");
            let answer = server.ask(version, Method::PUT, "/page", &headers, "12345".into()).await;
            assert_eq!((answer.status, answer.text), (200, format!("{name}: PUT /page 5")), "{version:?}");
        }
        let large = server.ask(version, Method::POST, "/page", &[], "x".repeat(1_001)).await;
        assert_eq!(large.status, 413, "{version:?}");
        let foreign = [("origin", "http://evil.example")];
        assert_eq!(
            server.ask(version, Method::GET, "/page", &foreign, String::new()).await.status,
            403,
            "{version:?}"
        );
        let local = [("origin", "http://localhost:1")];
        let shared = server.ask(version, Method::GET, "/page", &local, String::new()).await;
        assert_eq!(shared.headers["access-control-allow-origin"], "http://localhost:1", "{version:?}");
    }
    let wrong = [("authorization", "Bearer x")];
    for version in VERSIONS {
        // A file for everybody needs no credentials; anything else of the route does.
        let public = server.ask(version, Method::GET, "/page/public", &wrong, String::new()).await;
        assert_eq!((public.status, &*public.text), (200, "hello"), "{version:?}");
        for (method, path) in [(Method::PUT, "/page/public"), (Method::GET, "/page/other")] {
            assert_eq!(server.ask(version, method, path, &wrong, String::new()).await.status, 401);
        }
        let foreign = [("origin", "http://evil.example")];
        let foreign = server.ask(version, Method::GET, "/page/public", &foreign, String::new()).await;
        assert_eq!(foreign.status, 403, "{version:?}");
    }
    let elsewhere = [("host", "evil.example")];
    assert_eq!(server.ask(Version::Long, Method::GET, "/page", &elsewhere, String::new()).await.status, 403);
    // The service cannot override the endpoint's paths; paths that nothing covers are 404.
    assert_eq!(server.ask(Version::Long, Method::GET, "/mcp", &[], String::new()).await.status, 405);
    assert_eq!(server.ask(Version::Long, Method::GET, "/other", &[], String::new()).await.status, 404);
}

#[tokio::test]
async fn the_names_of_metrics_begin_as_configured() {
    for (config, prefix) in [
        (Config::default(), "mcp_"),
        (Config { metrics_prefix: "library".into(), ..Config::default() }, "library_"),
    ] {
        let server = Server::start(config).await;
        let metrics = server.ask(Version::Long, Method::GET, "/metrics", &[], String::new()).await.text;
        let names = metrics.lines().map(|line| line.trim_start_matches("# TYPE "));
        assert!(
            names.clone().count() > 10 && names.clone().all(|name| name.starts_with(prefix)),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn a_listener_that_is_not_admitted_hears_nothing() {
    let server = Server::start(Config::default()).await;
    let listen = json!({ "notifications": { "resourcesListChanged": true } });
    for version in VERSIONS {
        let answer = tokio::time::timeout(
            Duration::from_secs(30),
            server.modern(version, Some("Bearer x"), "subscriptions/listen", listen.clone()),
        );
        assert_eq!(answer.await.unwrap().status, 401, "{version:?}");
    }
}
