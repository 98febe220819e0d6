//! The HTTP transports: Streamable HTTP at `/mcp` for both protocol eras, and the old HTTP+SSE transport if it is
//! enabled.

mod body;
mod certificate;
mod connections;
#[cfg(test)]
mod costs;
mod express;
mod gathered_body;
mod guard;
mod headers;
mod http_sse;
mod input_budget;
mod legacy;
mod liveness;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod notification_log;
mod proxies;
mod rates;
mod receive;
mod response;
mod route;
#[cfg(test)]
mod scripted;
mod session;
mod sessions;
mod socket;
mod stream;
mod streamable;
#[cfg(feature = "tls")]
mod tls;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use libris_core::{Budget, Client};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::body::Body;
pub use self::certificate::ClientCertificate;
use self::connections::{AcceptedConnection, Connections};
use self::express::{DetachedStream, Framing, Lane, StreamDetached, through_hyper};
use self::gathered_body::GatheredBody;
use self::guard::Guard;
use self::http_sse::HttpSse;
use self::input_budget::InputBudget;
#[cfg(not(feature = "tls"))]
use self::no_tls::{SecuredConnection, TlsServer};
pub use self::proxies::{AddressRange, ForwardedHeader, TrustedProxies};
use self::rates::RateLimiter;
pub use self::rates::UsageLimits;
pub use self::route::Route;
use self::sessions::{Peer, Sessions};
use self::stream::{Spawn, Stream};
#[cfg(feature = "tls")]
use self::tls::SecuredConnection;
#[cfg(feature = "tls")]
pub use self::tls::{TlsError, TlsFiles, TlsServer};
use crate::content_budget::{ContentBudget, Share};
use crate::envelope::Framed;
use crate::protocol::Protocol;
use crate::{Limits, Service};

/// The configuration of the HTTP transports.
#[derive(Clone, Debug)]
pub struct Config {
    /// The limits of each request.
    pub limits: Limits,
    /// Host names that requests may address, in addition to `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// Origins whose pages may send requests, in addition to local ones and the server's own.
    pub origins: Vec<String>,
    /// The maximum number of sessions. One client may use three quarters of this and of each of the limits below.
    pub sessions: usize,
    /// How long a session may be idle before it ends.
    pub idle: Duration,
    /// The maximum number of connections; fewer if the process's limit of open files is lower.
    pub connections: usize,
    /// The maximum number of HTTP/2 connections. Each takes about 35 KiB, and up to 220 KiB more for input that is
    /// incomplete or waits for memory: a request head, and bodies up to the flow-control window.
    pub http2_connections: usize,
    /// The maximum number of requests in progress; further ones are refused.
    pub requests: usize,
    /// The memory budget of unfinished request heads, in bytes.
    pub head_bytes: usize,
    /// The memory budget of requests whose bodies are being received, in bytes: 48 KiB each, and twice the size of
    /// the head. The bodies themselves count against `body_bytes`.
    pub receiving_bytes: usize,
    /// The memory budget of request bodies, in bytes.
    pub body_bytes: usize,
    /// The maximum number of event streams: those of `subscriptions/listen`, those that sessions open with GET, and
    /// those of the HTTP+SSE transport.
    pub event_streams: usize,
    /// The maximum number of HTTP/2 streams, not counting event streams. Each takes about 12 KiB until its client has
    /// read the response, however small it is.
    pub http2_streams: usize,
    /// The interval of keep-alive comments on an idle event stream.
    pub keep_alive: Duration,
    /// Whether to serve the HTTP+SSE transport of 2024-11-05 too, at `/sse`.
    pub sse: bool,
    /// Whether common HTTP/1.1 requests are answered without hyper. Otherwise every request goes through hyper, with the
    /// same responses, at a higher cost.
    pub express: bool,
    /// The prefix of metric names.
    pub metrics_prefix: String,
    /// What each identity may use; without a limit here, three quarters of the limits above.
    pub identity_limits: UsageLimits,
    /// What each address may use, for requests without an identity.
    pub address_limits: UsageLimits,
    /// The rates of all clients together, and limits in place of `requests`, `sessions` and `event_streams`.
    pub total_limits: UsageLimits,
    /// The proxies that name the clients whose requests they forward.
    pub proxies: TrustedProxies,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            sessions: 10_000,
            idle: Duration::from_secs(30 * 60),
            connections: 20_000,
            http2_connections: 256,
            requests: 2_048,
            head_bytes: 12 << 20,
            receiving_bytes: 24 << 20,
            body_bytes: 24 << 20,
            event_streams: 15_000,
            http2_streams: 4_096,
            keep_alive: Duration::from_secs(15),
            sse: false,
            express: true,
            metrics_prefix: "mcp".into(),
            identity_limits: UsageLimits::default(),
            address_limits: UsageLimits::default(),
            total_limits: UsageLimits::default(),
            proxies: TrustedProxies::default(),
        }
    }
}

/// The HTTP endpoint of one service: routing, sessions, and the budgets that bound memory.
pub struct Endpoint {
    protocol: Protocol,
    guard: Guard,
    sessions: Sessions,
    http_sse: Option<HttpSse>,
    /// Bounds the requests in progress.
    requests: Arc<Budget>,
    /// The number of requests refused because a limit was reached, since the start.
    refused: AtomicUsize,
    /// Limits the rates of requests and bytes, if that is configured.
    rates: Option<Box<RateLimiter>>,
    /// The number of requests refused because of their rate, since the start.
    rate_limited: AtomicUsize,
    /// Bounds the memory of requests whose bodies are being received, and of large heads.
    receiving: Arc<Budget>,
    /// Bound the request bodies in memory. Bodies of moderate size have a quarter for themselves.
    bodies: Arc<Budget>,
    moderate_bodies: Arc<Budget>,
    /// Bounds the memory of contents, from before they are loaded until the response is written.
    content_budget: Arc<ContentBudget>,
    event_streams: Arc<Budget>,
    /// Bounds the streams of all HTTP/2 connections, not counting event streams.
    http2_streams: Arc<Budget>,
    connections: Arc<Connections>,
    /// Bounds the HTTP/2 connections, which take far more memory than others.
    http2_connections: Arc<Connections>,
    /// Bounds the memory of unfinished request heads and pipelined input.
    input_budget: Arc<InputBudget>,
    routes: Vec<Arc<dyn Route>>,
    config: Config,
    /// Ends open event streams when the server shuts down.
    closing: CancellationToken,
}

impl Endpoint {
    /// Creates the endpoint of this service.
    pub fn new(service: Arc<dyn Service>, config: Config) -> Arc<Self> {
        Self::with_routes(service, config, Vec::new())
    }

    /// Creates the endpoint of this service with additional routes. The first route that covers a path answers.
    pub fn with_routes(service: Arc<dyn Service>, config: Config, routes: Vec<Arc<dyn Route>>) -> Arc<Self> {
        let connections = Connections::new(config.connections);
        let Config { identity_limits: identity, address_limits: address, total_limits: total, .. } = &config;
        let rates = RateLimiter::new(identity, address, total);
        let requests = Budget::with_shares(
            total.concurrent_requests.unwrap_or(config.requests),
            address.concurrent_requests,
            identity.concurrent_requests,
        );
        let event_streams = Budget::with_shares(
            total.streams.unwrap_or(config.event_streams),
            address.streams,
            identity.streams,
        );
        let sessions = Sessions::new(total.sessions.unwrap_or(config.sessions), config.idle)
            .with_shares(address.sessions, identity.sessions);
        Arc::new(Self {
            protocol: Protocol::new(service, config.limits.clone()),
            guard: Guard::new(&config.hosts, &config.origins),
            sessions,
            http_sse: config.sse.then(HttpSse::default),
            requests,
            refused: AtomicUsize::new(0),
            rates,
            rate_limited: AtomicUsize::new(0),
            receiving: Budget::new(config.receiving_bytes),
            bodies: Budget::new(config.body_bytes - config.body_bytes / 4),
            moderate_bodies: Budget::new(config.body_bytes / 4),
            content_budget: ContentBudget::new(
                config.limits.content_bytes,
                Share::ThreeQuarters,
                CONTENT_WAIT,
            ),
            event_streams,
            http2_streams: Budget::new(config.http2_streams),
            http2_connections: Connections::new(config.http2_connections.min(connections.most())),
            connections,
            input_budget: InputBudget::new(config.head_bytes),
            routes,
            config,
            closing: CancellationToken::new(),
        })
    }

    /// Answers one HTTP request.
    pub async fn handle<B>(self: Arc<Self>, request: Request<B>) -> Response<Body>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let origin = match self.guard.check(&request) {
            Ok(origin) => origin,
            Err(why) => return response::refusal(StatusCode::FORBIDDEN, why),
        };
        let mut response = if request.method() == Method::OPTIONS && origin.is_some() {
            guard::preflight()
        } else {
            self.route(request).await
        };
        if let Some(origin) = origin {
            guard::share(&mut response, origin);
        }
        response
    }

    /// The peer of a request: set by our own server, or by the program that embeds this endpoint. If it is a trusted proxy,
    /// the client that it names.
    fn peer<B>(&self, request: &Request<B>) -> Peer {
        let extensions = request.extensions();
        let client = || extensions.get::<Client>().copied().unwrap_or_default();
        let peer = extensions.get::<Peer>().copied();
        let peer = peer.unwrap_or_else(|| Peer { client: client(), connection: None });
        let proxies = &self.config.proxies;
        if !proxies.trust(peer.client) {
            return peer;
        }
        let values: Vec<_> = request.headers().get_all(proxies.header.name()).iter().collect();
        Peer { client: proxies.client(peer.client, values.iter().map(|value| value.as_bytes())), ..peer }
    }

    /// Counts requests of a client against its rate. The error is how long it must wait.
    fn count_requests(&self, client: Client, count: usize) -> Result<(), Duration> {
        let Some(rates) = &self.rates else { return Ok(()) };
        rates.request(client, count).inspect_err(|_| {
            self.rate_limited.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Counts the bytes of a response against the rate of its client.
    fn count_bytes(&self, client: Client, bytes: usize) {
        if let Some(rates) = &self.rates {
            rates.respond(client, bytes);
        }
    }

    /// The current values of all metrics.
    fn counts(&self) -> Vec<(&'static str, usize)> {
        let (sessions, streams) = self.sessions.count();
        let mut counts = vec![
            ("connections", self.connections.count()),
            ("connections_limit", self.connections.most()),
            ("connections_evicted_total", self.connections.evicted() + self.http2_connections.evicted()),
            ("connections_refused_total", self.connections.refused() + self.http2_connections.refused()),
            ("http2_connections", self.http2_connections.count()),
            ("requests_refused_total", self.refused.load(Ordering::Relaxed)),
            ("requests_rate_limited_total", self.rate_limited.load(Ordering::Relaxed)),
            ("requests", self.requests.used()),
            ("request_head_bytes", self.input_budget.used()),
            ("request_body_bytes", self.bodies.used() + self.moderate_bodies.used()),
            ("unsent_bytes", self.content_budget.used()),
            ("sessions", sessions),
            ("session_streams", streams),
            ("listen_streams", self.event_streams.used()),
        ];
        counts.extend(self.protocol.counts());
        counts
    }

    async fn route<B>(self: Arc<Self>, request: Request<B>) -> Response<Body>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // Tells clients how to authenticate, so it is there before they have.
        if request.method() == Method::GET
            && request.uri().path().starts_with("/.well-known/")
            && let Some(document) = self.protocol.public_document(request.uri().path())
        {
            return response::json(StatusCode::OK, Framed::whole(document));
        }
        if let Some(response) = self.public(&request) {
            return response;
        }
        let peer = self.peer(&request);
        let view = match self.admit(peer, request.headers(), request.extensions()).await {
            Ok(view) => view,
            // Whoever guesses credentials is limited by its address.
            Err(refusal) => {
                let counted = self.count_requests(peer.client, 1);
                return counted.map_or_else(|wait| self.too_fast(None, wait), |()| refusal);
            }
        };
        let peer = peer.identified(&*view);
        // A message is counted when its id is known.
        let is_message = request.method() == Method::POST && request.uri().path() == "/mcp";
        if !is_message && let Err(wait) = self.count_requests(peer.client, 1) {
            return self.too_fast(None, wait);
        }
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/mcp") => self.post(peer, view, request).await,
            (&Method::GET, "/mcp") => self.get(peer, &view, &request),
            (&Method::DELETE, "/mcp") => self.delete(&view, &request),
            (_, "/mcp") => response::not_allowed("POST, GET, DELETE"),
            (&Method::GET, "/metrics") if view.shows_metrics() => {
                response::metrics(&self.config.metrics_prefix, &self.counts())
            }
            (&Method::GET, "/sse") if self.http_sse.is_some() => self.sse_stream(peer, view),
            (&Method::POST, "/message") if self.http_sse.is_some() => {
                self.sse_message(peer, view, request).await
            }
            (_, path) => match self.routes.iter().find(|route| route.covers(path)) {
                Some(route) => self.routed(peer, view, &**route, request).await,
                None => {
                    response::refusal(StatusCode::NOT_FOUND, "nothing is here; the MCP endpoint is `/mcp`")
                }
            },
        }
    }
}

/// How long a response waits for memory. Waiting costs only time.
const CONTENT_WAIT: Duration = Duration::from_secs(20);

/// The time limit of requests in flight during a graceful shutdown.
const SHUTDOWN_TIME_LIMIT: Duration = Duration::from_secs(5);

/// The interval of HTTP/2 keep-alive pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The largest request head, and the most event bytes that hyper buffers for a connection.
const MAX_HEAD: usize = 16 << 10;

/// The maximum number of concurrent requests on one HTTP/2 connection.
const MAX_CONCURRENT_STREAMS: u32 = 64;

/// The HTTP/2 flow-control windows: how many body bytes a client may send ahead, on a connection and on each stream.
/// No budget counts them before they are read, so [`Config::http2_connections`] times as many may be in memory.
const CONNECTION_WINDOW: u32 = 64 << 10;
const STREAM_WINDOW: u32 = 32 << 10;

/// The most response bytes that hyper buffers for each HTTP/2 stream.
const SEND_BUFFER: usize = 16 << 10;

/// How many units of the event stream budget a stream takes that hyper sends: over HTTP/1 because earlier responses
/// on the connection were outstanding, or over HTTP/2.
const SLOTS_IN_HYPER: usize = 4;
const SLOTS_IN_HTTP2: usize = 2;

/// The delay before the first bytes of a connection are peeked at again if they do not determine the HTTP version:
/// initially, and at most.
const MIN_PEEK_DELAY: Duration = Duration::from_millis(5);
const MAX_PEEK_DELAY: Duration = Duration::from_millis(640);

/// The polling interval of the files of TLS.
const TLS_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Serves `endpoint` on `listener` until `stop` is cancelled, then shuts down gracefully.
pub async fn serve(
    listener: TcpListener,
    endpoint: Arc<Endpoint>,
    stop: CancellationToken,
) -> io::Result<()> {
    serve_connections(listener, endpoint, None, stop).await
}

/// Serves `endpoint` over TLS like [`serve`]. Certificates are read again when their files change.
#[cfg(feature = "tls")]
pub async fn serve_tls(
    listener: TcpListener,
    endpoint: Arc<Endpoint>,
    tls: Arc<TlsServer>,
    stop: CancellationToken,
) -> io::Result<()> {
    serve_connections(listener, endpoint, Some(tls), stop).await
}

async fn serve_connections(
    listener: TcpListener,
    endpoint: Arc<Endpoint>,
    tls: Option<Arc<TlsServer>>,
    stop: CancellationToken,
) -> io::Result<()> {
    let graceful = GracefulShutdown::new();
    // The checks of `Liveness` limit how long a head may take, without a timer for each request.
    let mut http1 = http1::Builder::new();
    http1.header_read_timeout(None).max_buf_size(MAX_HEAD);
    let mut http2 = http2::Builder::new(Spawn);
    http2
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    let builders = Arc::new((http1, http2));
    let mut sweep = tokio::time::interval(Duration::from_secs(30));
    let mut reload = tokio::time::interval(TLS_POLL_INTERVAL);
    loop {
        let (stream, address): (_, SocketAddr) = tokio::select! {
            () = stop.cancelled() => break,
            _ = sweep.tick() => {
                endpoint.sessions.sweep();
                continue;
            }
            _ = reload.tick(), if tls.is_some() => {
                tls.iter().for_each(|tls| tls.reload());
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(cause) => {
                    // Out of file descriptors, or the peer has disconnected: neither ends the server.
                    tracing::warn!(%cause, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    continue;
                }
            },
        };
        if let Err(cause) = stream.set_nodelay(true) {
            tracing::debug!(%cause, "could not set TCP_NODELAY");
        }
        let accepted = endpoint.connections.accept(address.ip());
        let (stop, graceful) = (stop.clone(), graceful.watcher());
        let (endpoint, builders) = (endpoint.clone(), builders.clone());
        let served = Served { endpoint, builders, tls: tls.clone(), graceful, stop };
        tokio::spawn(served.connection(stream, accepted));
    }
    drop(listener);
    endpoint.closing.cancel();
    endpoint.connections.stop();
    let _ = tokio::time::timeout(SHUTDOWN_TIME_LIMIT, graceful.shutdown()).await;
    Ok(())
}

/// The shared state for serving one connection.
struct Served {
    endpoint: Arc<Endpoint>,
    builders: Arc<(http1::Builder, http2::Builder<Spawn>)>,
    tls: Option<Arc<TlsServer>>,
    graceful: Watcher,
    stop: CancellationToken,
}

impl Served {
    /// Serves a connection until it ends, is evicted or fails a liveness check.
    async fn connection(self, stream: TcpStream, accepted: AcceptedConnection) {
        let (peer, liveness) = (accepted.peer, accepted.liveness.clone());
        // A client that expects TLS would not understand a response in the clear.
        let in_clear = self.tls.is_none().then_some(&stream);
        let Some(_lease) = accepted.admitted(in_clear).await else { return };
        let Self { endpoint, builders, tls, graceful, stop } = self;
        let (counted, watched, served) = (liveness.clone(), liveness.clone(), endpoint.clone());
        // Created here: a future passed as an argument would occupy memory twice, as the argument and where it is
        // pinned.
        let connection = async move {
            let SecuredConnection { socket, version, certificate } = tokio::select! {
                () = stop.cancelled() => return Ok::<_, Box<dyn std::error::Error + Send + Sync>>(()),
                // Boxed, since a handshake takes far more memory than an idle connection.
                secured = Box::pin(secure(tls, stream)) => secured?,
            };
            let client_certificate = certificate.clone();
            let service = service_fn(move |mut request: Request<Incoming>| {
                let number = counted.begin_request();
                let (endpoint, liveness) = (endpoint.clone(), counted.clone());
                let certificate = client_certificate.clone();
                // Boxed, or the connection would reserve memory for this future as long as an event stream is open.
                Box::pin(async move {
                    let version = request.version();
                    request.extensions_mut().insert(peer);
                    if let Some(certificate) = certificate {
                        request.extensions_mut().insert(certificate);
                    }
                    let is_http2 = version == Version::HTTP_2;
                    let stream = is_http2
                        .then(|| Stream::enter(&endpoint.http2_streams, peer.client, &liveness))
                        .flatten();
                    let framing = Framing::of(&request);
                    let mut response = match stream.is_some() == is_http2 {
                        true => endpoint.clone().handle(request).await,
                        false => endpoint.full(),
                    };
                    if response.body().is_listening() {
                        if !is_http2 && liveness.is_alone(number) {
                            liveness.detach_stream(DetachedStream { response, framing });
                            return Err(StreamDetached);
                        }
                        let slots = if is_http2 { SLOTS_IN_HTTP2 } else { SLOTS_IN_HYPER };
                        if !response.body_mut().resize_slots(slots) {
                            response = endpoint.full();
                        }
                    }
                    let body =
                        |body: Body| GatheredBody::new(body.on_stream(stream).watched(liveness), version);
                    Ok(response.map(body))
                })
            });
            let (http1, http2) = &*builders;
            match version {
                // Boxed, since it is by far the larger future.
                Version::HTTP_2 => {
                    let accepted = served.http2_connections.accept_again(peer, watched);
                    let Some(_place) = accepted.admitted(socket.plain()).await else { return Ok(()) };
                    let socket = TokioIo::new(socket);
                    Ok(Box::pin(graceful.watch(http2.serve_connection(socket, service))).await?)
                }
                _ => {
                    // Held until the connection has ended, because a graceful shutdown waits for it.
                    let _graceful = graceful;
                    let mut lane =
                        Lane::new(socket, served, peer, watched.clone()).with_certificate(certificate);
                    while let Some(with_request) = lane.without_hyper().await? {
                        // Boxed, since most connections never need it.
                        let hyper = Box::new(http1.serve_connection(with_request, service.clone()));
                        lane = through_hyper(hyper, &watched).await?;
                        if !lane.was_detached() {
                            break;
                        }
                    }
                    Ok(())
                }
            }
        };
        let mut connection = pin!(connection);
        let mut checks =
            tokio::time::interval_at(Instant::now() + liveness::CHECK_INTERVAL, liveness::CHECK_INTERVAL);
        loop {
            tokio::select! {
                ended = &mut connection => {
                    if let Err(cause) = ended {
                        tracing::debug!(%cause, ?peer, "a connection ended early");
                    }
                    break;
                }
                // An eviction aborts requests in progress.
                () = liveness.closed(), if !liveness.is_stopping() => {
                    if !liveness.is_stopping() {
                        tracing::debug!(?peer, "closed a connection, as others need what it holds");
                        break;
                    }
                }
                _ = checks.tick() => if let Some(why) = liveness.check() {
                    tracing::debug!(?peer, why, "let go of a connection");
                    break;
                },
            }
        }
    }
}

/// Completes the handshake of a TLS connection, and determines the HTTP version.
async fn secure(tls: Option<Arc<TlsServer>>, stream: TcpStream) -> io::Result<SecuredConnection> {
    match tls {
        Some(tls) => tls.accept(stream).await,
        None => {
            let version = version(&stream).await;
            Ok(SecuredConnection { socket: stream.into(), version, certificate: None })
        }
    }
}

/// Determines the HTTP version of a connection by peeking at its first bytes, without consuming them. If they were
/// consumed, as hyper-util's `auto` does, hyper would get the request head in two pieces and double its buffer for
/// the second.
async fn version(stream: &TcpStream) -> Version {
    const PREFACE: &[u8] = b"PRI";
    let mut first = [0; PREFACE.len()];
    let mut pause = MIN_PEEK_DELAY;
    loop {
        match stream.peek(&mut first).await {
            Ok(read @ 1..) if read < PREFACE.len() && PREFACE.starts_with(&first[..read]) => {
                // `peek` returns at once while any byte is buffered, so only a timer can wait for more.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PEEK_DELAY);
            }
            Ok(_) if first == *PREFACE => return Version::HTTP_2,
            _ => return Version::HTTP_11,
        }
    }
}
