//! Servers over a shelf, and clients that speak to them over each transport.

use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use libris::wire::http::{self, Endpoint};
use libris::wire::{Limits, stdio};
use libris::{Catalog, Config, Policy, Server, SubscriptionConfig, ToolsConfig};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::people::Who;
use crate::shelf::Shelf;

/// The debounce window of the servers.
pub(crate) const WINDOW: Duration = Duration::from_millis(5);

/// A server over a shelf.
pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    pub(crate) shelf: Arc<Shelf>,
}

impl World {
    pub(crate) fn new(shelf: Arc<Shelf>, policy: Arc<dyn Policy>, page: usize) -> Self {
        Self::debounced(shelf, policy, page, WINDOW)
    }

    /// A server that debounces changes for this long.
    pub(crate) fn debounced(
        shelf: Arc<Shelf>,
        policy: Arc<dyn Policy>,
        page: usize,
        window: Duration,
    ) -> Self {
        Self::of(
            Arc::new(Catalog::new(vec![shelf.clone()])),
            shelf,
            policy,
            Config::default(),
            (page, window),
        )
    }

    /// A server with a search index of everything on the shelf, and all tools.
    pub(crate) async fn searchable(shelf: Arc<Shelf>, policy: Arc<dyn Policy>, page: usize) -> Self {
        let catalog = Arc::new(Catalog::new(vec![shelf.clone()]));
        #[cfg(feature = "search")]
        {
            let config = libris::SearchConfig { is_awaited: true, ..libris::SearchConfig::default() };
            catalog.start_search(config).unwrap();
            catalog.search_index_completed().await.unwrap();
        }
        let tools = ToolsConfig { bundle: true, ..ToolsConfig::default() };
        Self::of(catalog, shelf, policy, Config { tools, ..Config::default() }, (page, WINDOW))
    }

    fn of(
        catalog: Arc<Catalog>,
        shelf: Arc<Shelf>,
        policy: Arc<dyn Policy>,
        config: Config,
        (page, window): (usize, Duration),
    ) -> Self {
        let subscriptions = SubscriptionConfig { window, ..SubscriptionConfig::default() };
        let config = Config { page, subscriptions, ..config };
        Self { server: Arc::new(Server::with_policy(catalog, config, policy)), shelf }
    }

    /// Serves it over HTTP until the guard is dropped.
    pub(crate) async fn listen(&self) -> (SocketAddr, DropGuard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        // `./test` runs these tests with and without the express lane.
        let express = std::env::var_os("LIBRIS_TEST_EXPRESS").is_none_or(|value| value != "off");
        let config = http::Config { express, ..http::Config::default() };
        let endpoint = Endpoint::new(self.server.clone(), config);
        tokio::spawn(http::serve(listener, endpoint, stop.clone()));
        (address, stop.drop_guard())
    }
}

/// How a client speaks to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http1,
    Http2,
    Stdio,
}

/// What is sent over HTTP.
pub(crate) struct Sent<'a> {
    pub(crate) method: Method,
    pub(crate) who: Who,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: String,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) body: String,
}

/// A connection to a server.
pub(crate) enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
    Stdio(Pipes),
}

/// The client's ends of the pipes.
pub(crate) struct Pipes {
    input: PipeWriter,
    output: BufReader<PipeReader>,
}

impl Connection {
    pub(crate) async fn http(transport: Transport, address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let stream = TokioIo::new(stream);
        if transport == Transport::Http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            return Self::Http2(sender);
        }
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self::Http1(sender)
    }

    pub(crate) fn stdio(world: &World) -> Self {
        let (server_input, input) = std::io::pipe().unwrap();
        let (output, server_output) = std::io::pipe().unwrap();
        let (server, stop) = (world.server.clone(), CancellationToken::new());
        tokio::spawn(stdio::serve(server, Limits::default(), server_input, server_output, stop));
        Self::Stdio(Pipes { input, output: BufReader::new(output) })
    }

    /// Sends a request over HTTP; the body of the response is not read yet.
    pub(crate) async fn open(&mut self, sent: Sent<'_>) -> axum::http::Response<Incoming> {
        let uri = match self {
            Self::Http2(_) => "http://127.0.0.1/mcp",
            _ => "/mcp",
        };
        let mut request = Request::builder().method(sent.method).uri(uri);
        if let Self::Http1(_) = self {
            request = request.header("host", "127.0.0.1");
        }
        if let Some(authorization) = sent.who.authorization() {
            request = request.header("authorization", authorization);
        }
        for (name, value) in sent.headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(sent.body)).unwrap();
        match self {
            Self::Http1(sender) => {
                sender.ready().await.unwrap();
                sender.send_request(request).await.unwrap()
            }
            Self::Http2(sender) => sender.send_request(request).await.unwrap(),
            Self::Stdio(_) => unreachable!("this is not HTTP"),
        }
    }

    /// The response to a request over HTTP. Of a stream that stays open, only that it was opened.
    pub(crate) async fn ask(&mut self, sent: Sent<'_>) -> Answer {
        let response = self.open(sent).await;
        let text = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (status, session) = (response.status(), text("mcp-session-id"));
        let body = match text("content-type").as_deref() {
            Some("text/event-stream") => "a stream".to_owned(),
            _ => {
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                String::from_utf8(bytes.to_vec()).unwrap()
            }
        };
        Answer { status: status.as_u16(), session, body }
    }

    /// The response to a request over pipes, past the notifications before it.
    pub(crate) fn ask_line(&mut self, message: &Value) -> Answer {
        let Self::Stdio(Pipes { input, output }) = self else { unreachable!("these are no pipes") };
        tokio::task::block_in_place(|| {
            writeln!(input, "{message}").unwrap();
            loop {
                let mut body = String::new();
                assert_ne!(output.read_line(&mut body).unwrap(), 0, "the server has ended");
                if body.contains("\"id\":") {
                    return Answer { status: StatusCode::OK.as_u16(), session: None, body };
                }
            }
        })
    }
}
