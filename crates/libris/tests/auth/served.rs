//! A server that authenticates callers, and requests to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use libris::auth::{AuthConfig, Authenticator, IssuerConfig};
use libris::wire::http::{self, Endpoint};
use libris::{
    AuthenticatedCallers, Catalog, Config, FunctionSource, FunctionSourceHandle, Policy, Request as Asked,
    Server,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::issuer::{RESOURCE, TestIssuer};

/// The path that a request takes through the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// HTTP/1.1, with only the header fields that the express lane knows.
    Express,
    /// HTTP/1.1, with one that it does not know.
    Hyper,
    Http2,
}

pub(crate) const PATHS: [Path; 3] = [Path::Express, Path::Hyper, Path::Http2];

/// A running server.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) source: FunctionSourceHandle,
    server: Arc<Server>,
    authenticator: Arc<Authenticator>,
    _stop: DropGuard,
    _maintained: tokio_util::task::AbortOnDropHandle<()>,
}

/// A response whose body was read; of an event stream, only that it was opened.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn challenge(&self) -> &str {
        self.header("www-authenticate")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// The configuration of a server that trusts this issuer.
pub(crate) fn trusting(issuer: &TestIssuer) -> AuthConfig {
    let min_refresh_interval = Duration::ZERO;
    AuthConfig {
        resource: Some(RESOURCE.to_owned()),
        issuers: vec![IssuerConfig { min_refresh_interval, ..IssuerConfig::new(&*issuer.url) }],
        scopes: vec!["docs:read".into()],
        ..AuthConfig::default()
    }
}

/// A source with a resource for everybody, and one that says who reads it.
fn source() -> FunctionSource {
    let who = |request: Asked| {
        let identity = request.identity()?;
        Ok::<_, libris::Error>(format!(
            "{} {:?} {:?} {:?}",
            identity.name(),
            identity.groups(),
            identity.scopes(),
            identity.authentication()
        ))
    };
    FunctionSource::new().resource("test://who", who).resource("test://hello", || "Hello!")
}

impl Served {
    pub(crate) async fn start(config: AuthConfig) -> Self {
        Self::start_with(config, |authenticating| authenticating).await
    }

    /// Starts a server whose policy is made from the one that authenticates callers.
    pub(crate) async fn start_with(
        config: AuthConfig,
        policy: impl FnOnce(Arc<dyn Policy>) -> Arc<dyn Policy>,
    ) -> Self {
        let authenticator = Arc::new(Authenticator::new(config).unwrap());
        let authenticating = Arc::new(AuthenticatedCallers::new(authenticator.clone()));
        let (server, source) = server_with(policy(authenticating));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        // `./test` runs these tests with and without the express lane.
        let express = std::env::var_os("LIBRIS_TEST_EXPRESS").is_none_or(|value| value != "off");
        let endpoint = Endpoint::new(server.clone(), http::Config { express, ..http::Config::default() });
        tokio::spawn(http::serve(listener, endpoint, stop.clone()));
        let _maintained = maintain(&server, authenticator.clone());
        Self { address, source, server, authenticator, _stop: stop.drop_guard(), _maintained }
    }

    /// Replaces the authentication, as a reload of the configuration does. Every authenticated caller has all rights.
    pub(crate) fn reconfigure(&self, config: AuthConfig) {
        let authenticator = Arc::new(self.authenticator.reconfigured(config).unwrap());
        self.server.set_policy(Arc::new(AuthenticatedCallers::new(authenticator)));
    }

    /// Sends a request on a new connection.
    pub(crate) async fn open(&self, path: Path, request: Sent<'_>) -> axum::http::Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        open_on(stream, path, request).await
    }

    /// The response to a request on a new connection.
    pub(crate) async fn ask(&self, path: Path, request: Sent<'_>) -> Answer {
        answer(self.open(path, request).await).await
    }

    /// Opens a session.
    pub(crate) async fn session(&self, path: Path, token: &str) -> String {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
            },
        });
        let answer =
            self.ask(path, Sent { token: Some(token), body: body.to_string(), ..Sent::default() }).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("mcp-session-id").to_owned()
    }
}

/// Reloads keys as a server does that `libris::serve` starts.
pub(crate) fn maintain(
    server: &Arc<Server>,
    authenticator: Arc<Authenticator>,
) -> tokio_util::task::AbortOnDropHandle<()> {
    let server = server.clone();
    tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        authenticator.maintain(&move || server.revoke()).await;
    }))
}

pub(crate) fn server(authenticator: Arc<Authenticator>) -> (Arc<Server>, FunctionSourceHandle) {
    server_with(Arc::new(AuthenticatedCallers::new(authenticator)))
}

fn server_with(policy: Arc<dyn Policy>) -> (Arc<Server>, FunctionSourceHandle) {
    let source = source();
    let handle = source.handle();
    let catalog = Arc::new(Catalog::new(vec![Arc::new(source)]));
    (Arc::new(Server::with_policy(catalog, Config::default(), policy)), handle)
}

/// A request to the endpoint.
pub(crate) struct Sent<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) token: Option<&'a str>,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: String,
}

impl Default for Sent<'_> {
    fn default() -> Self {
        Self { method: Method::POST, path: "/mcp", token: None, headers: &[], body: String::new() }
    }
}

impl<'a> Sent<'a> {
    /// A read in the modern protocol.
    pub(crate) fn read(token: Option<&'a str>, uri: &str) -> Self {
        let headers: &[_] = match uri {
            "test://who" => &[READ[0], READ[1], ("mcp-name", "test://who")],
            _ => &[READ[0], READ[1], ("mcp-name", "test://hello")],
        };
        Self { token, headers, body: modern("resources/read", json!({ "uri": uri })), ..Self::default() }
    }
}

const READ: [(&str, &str); 2] = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "resources/read")];

/// A request of the modern protocol.
pub(crate) fn modern(method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// A request in a session.
pub(crate) fn legacy(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// Sends a request on this stream.
pub(crate) async fn open_on<S>(stream: S, path: Path, sent: Sent<'_>) -> axum::http::Response<Incoming>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(stream);
    let authority = if path == Path::Http2 { "http://127.0.0.1" } else { "" };
    let mut request = Request::builder().method(sent.method.clone()).uri(format!("{authority}{}", sent.path));
    if path != Path::Http2 {
        request = request.header("host", "127.0.0.1");
    }
    if path == Path::Hyper {
        request = request.header("x-unknown", "1");
    }
    request = request.header("accept", "application/json, text/event-stream");
    if sent.method == Method::POST {
        request = request.header("content-type", "application/json");
    }
    if let Some(token) = sent.token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in sent.headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::<Bytes>::from(sent.body)).unwrap();
    match path {
        Path::Http2 => {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
        _ => {
            let (mut sender, connection) = http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
    }
}

/// Reads the body of a response that is not an event stream.
pub(crate) async fn answer(response: axum::http::Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let is_stream = parts.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
    let body = match is_stream {
        true => "a stream".to_owned(),
        false => String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap(),
    };
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}
