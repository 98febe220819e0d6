//! The HTTP transports: Streamable HTTP at `/mcp` for both protocol eras ([`Era`](crate::Era)), and the old HTTP+SSE
//! transport if it is enabled.

mod basic;
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
mod probes;
mod proxies;
#[cfg(test)]
mod queue_listener;
mod rate_exchange;
mod rates;
mod receive;
mod response;
mod route;
mod serve;
mod session;
mod session_store;
mod sessions;
mod shared_session;
mod socket;
mod stream;
mod streamable;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use libris_core::{Budget, Client};
use tokio_util::sync::CancellationToken;

pub use self::body::Body;
use self::body::Event;
pub use self::certificate::ClientCertificate;
use self::connections::Connections;
use self::guard::Guard;
use self::http_sse::HttpSse;
use self::input_budget::InputBudget;
pub use self::proxies::{AddressRange, ForwardedHeader, TrustedProxies};
use self::rates::RateLimiter;
pub use self::rates::UsageLimits;
pub use self::route::Route;
pub use self::serve::serve;
#[cfg(feature = "tls")]
pub use self::serve::serve_tls;
pub use self::session_store::{ClientUsage, SavedSession, SessionEvent, SessionStore, StoreUnavailable};
use self::sessions::{Peer, Sessions};
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
    /// The maximum number of sessions. By default, one client may use three quarters of this number, and of each of the
    /// numbers and budgets below except `head_bytes`.
    pub sessions: usize,
    /// A session ends after it was idle for this long.
    pub idle: Duration,
    /// The maximum number of connections. The process's limit of open files may allow fewer.
    pub connections: usize,
    /// The maximum number of HTTP/2 connections. Each takes about 35 KiB, and up to 160 KiB more for an unfinished
    /// request head and for body bytes that the server has not read (at most one flow-control window).
    pub http2_connections: usize,
    /// The maximum number of requests in progress; further ones are refused.
    pub requests: usize,
    /// The memory budget of unfinished request heads and pipelined input, in bytes. If it is exceeded, connections of
    /// the client that uses the most of it are closed.
    pub head_bytes: usize,
    /// The memory budget of requests whose bodies are being received, in bytes. Each takes 48 KiB and twice the size of
    /// its head. The bodies themselves count against `body_bytes`.
    pub receiving_bytes: usize,
    /// The memory budget of request bodies, in bytes.
    pub body_bytes: usize,
    /// The maximum number of event streams: those of `subscriptions/listen`, those that sessions open with GET, and
    /// those of the HTTP+SSE transport.
    pub event_streams: usize,
    /// The maximum number of HTTP/2 streams, not counting event streams. Each takes about 12 KiB until its client has
    /// read the response, even a small one.
    pub http2_streams: usize,
    /// The interval of keep-alive comments on an idle event stream.
    pub keep_alive: Duration,
    /// Whether to serve the HTTP+SSE transport of revision 2024-11-05 too, at `/sse`.
    pub sse: bool,
    /// Whether common HTTP/1.1 requests are answered without hyper. Otherwise every request goes through hyper, with the
    /// same responses, at a higher cost.
    pub express: bool,
    /// The prefix of metric names.
    pub metrics_prefix: String,
    /// The limits of each authenticated identity. If the number of requests, sessions or streams is not set here, it is
    /// three quarters of the total limit.
    pub identity_limits: UsageLimits,
    /// The limits of each network address, for requests without an identity. The same defaults apply.
    pub address_limits: UsageLimits,
    /// The limits of all clients together. If the number of requests, sessions or streams is set here, it replaces
    /// `requests`, `sessions` or `event_streams`.
    pub total_limits: UsageLimits,
    /// The proxies that are trusted to name the client whose request they forward.
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
            body_bytes: 16 << 20,
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
    /// The store of the sessions that replicas share, if there are several replicas.
    store: Option<Arc<dyn SessionStore>>,
    http_sse: Option<HttpSse>,
    /// Bounds the requests in progress.
    requests: Arc<Budget>,
    /// The number of requests refused with status 503 since the start.
    refused: AtomicUsize,
    /// The number of requests since the start that the rate limit admitted. Each message of a batch counts.
    admitted: AtomicUsize,
    /// Limits the rates of requests and bytes, if that is configured.
    rates: Option<Arc<RateLimiter>>,
    /// The number of requests refused since the start because of the rate limit.
    rate_limited: AtomicUsize,
    /// Bounds the memory of requests whose bodies are being received, and of large heads.
    receiving: Arc<Budget>,
    /// Bounds the large request bodies in memory: three quarters of [`Config::body_bytes`].
    bodies: Arc<Budget>,
    /// Bounds the request bodies of moderate size: the other quarter.
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

    /// Creates the endpoint of this service with additional routes. The first route that covers a path answers its
    /// requests.
    pub fn with_routes(service: Arc<dyn Service>, config: Config, routes: Vec<Arc<dyn Route>>) -> Arc<Self> {
        Self::build(service, config, routes, None)
    }

    /// Creates the endpoint of a replica that shares its sessions with others. Call it within a tokio runtime.
    pub fn with_session_store(
        service: Arc<dyn Service>,
        config: Config,
        routes: Vec<Arc<dyn Route>>,
        store: Arc<dyn SessionStore>,
    ) -> Arc<Self> {
        let endpoint = Self::build(service, config, routes, Some(store.clone()));
        tokio::spawn(shared_session::run(Arc::downgrade(&endpoint), store.clone()));
        if endpoint.rates.is_some() {
            tokio::spawn(rate_exchange::run(Arc::downgrade(&endpoint), store));
        }
        endpoint
    }

    fn build(
        service: Arc<dyn Service>,
        config: Config,
        routes: Vec<Arc<dyn Route>>,
        store: Option<Arc<dyn SessionStore>>,
    ) -> Arc<Self> {
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
            store,
            http_sse: config.sse.then(HttpSse::default),
            requests,
            refused: AtomicUsize::new(0),
            admitted: AtomicUsize::new(0),
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
            guard::add_cors_headers(&mut response, origin);
        }
        response
    }

    /// The peer of a request. Our own server puts a `Peer` into the extensions of the request; an embedding program
    /// puts a `Client` there. If the peer is a trusted proxy, `client` is the client that the proxy names.
    fn peer<B>(&self, request: &Request<B>) -> Peer {
        let extensions = request.extensions();
        let client = || extensions.get::<Client>().copied().unwrap_or_default();
        let peer = extensions.get::<Peer>().copied();
        let peer = peer.unwrap_or_else(|| {
            let client = client();
            Peer { client, address: client.address(), connection: None }
        });
        let proxies = &self.config.proxies;
        if !proxies.trust(peer.address) {
            return peer;
        }
        let values: Vec<_> = request.headers().get_all(proxies.header.name()).iter().collect();
        Peer { client: proxies.client(peer.client, values.iter().map(|value| value.as_bytes())), ..peer }
    }

    /// Counts requests against the rate limit of a client, if it has one. The error is how long the client must wait.
    fn admit_requests(&self, client: Client, count: usize) -> Result<(), Duration> {
        if let Some(rates) = &self.rates {
            rates.request(client, count)?;
        }
        self.admitted.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Like [`admit_requests`](Self::admit_requests), and also counts a refusal in the metrics: the caller must refuse the
    /// request if this fails.
    fn count_requests(&self, client: Client, count: usize) -> Result<(), Duration> {
        self.admit_requests(client, count).inspect_err(|_| {
            self.rate_limited.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Counts the bytes of a response against the rate limit of its client.
    fn count_bytes(&self, client: Client, bytes: usize) {
        if let Some(rates) = &self.rates {
            rates.respond(client, bytes);
        }
    }

    /// Events that count against the rate limit of their client when they are sent.
    fn metered(&self, client: Client, events: BoxStream<'static, Event>) -> BoxStream<'static, Event> {
        match self.rates.clone() {
            Some(rates) => events.inspect(move |event| rates.respond(client, event.size())).boxed(),
            None => events,
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
            ("requests_total", self.admitted.load(Ordering::Relaxed)),
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

    /// The response to a request whose caller is not identified: it counts against the rate limit of its address.
    fn unauthenticated_response<B>(&self, request: &Request<B>, response: Response<Body>) -> Response<Body> {
        let counted = self.count_requests(self.peer(request).client, 1);
        counted.map_or_else(|wait| self.too_many_requests(None, wait), |()| response)
    }

    async fn route<B>(self: Arc<Self>, request: Request<B>) -> Response<Body>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // These documents tell clients how to authenticate, so they are served without authentication.
        if request.method() == Method::GET
            && request.uri().path().starts_with("/.well-known/")
            && let Some(document) = self.protocol.public_document(request.uri().path())
        {
            let response = response::json(StatusCode::OK, Framed::whole(document));
            return self.unauthenticated_response(&request, response);
        }
        if let Some(response) = self.public_response(&request).or_else(|| self.probe(&request)) {
            return self.unauthenticated_response(&request, response);
        }
        let peer = self.peer(&request);
        let view = match self
            .admit_request(peer, request.uri().path(), request.headers(), request.extensions())
            .await
        {
            Ok(view) => view,
            // Counted against the rate limit of the address, which limits how fast credentials can be guessed.
            Err(refusal) => {
                let counted = self.count_requests(peer.client, 1);
                return counted.map_or_else(|wait| self.too_many_requests(None, wait), |()| refusal);
            }
        };
        let peer = peer.identified(&*view);
        // `post` counts messages itself, after it has parsed them: a refusal must contain the id of the message.
        let is_message = request.method() == Method::POST && request.uri().path() == "/mcp";
        if !is_message && let Err(wait) = self.count_requests(peer.client, 1) {
            return self.too_many_requests(None, wait);
        }
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/mcp") => self.post(peer, view, request).await,
            (&Method::GET, "/mcp") => self.get(peer, &view, request.headers()).await,
            (&Method::DELETE, "/mcp") => self.delete(peer, &view, request.headers()).await,
            (_, "/mcp") => response::not_allowed("POST, GET, DELETE"),
            (&Method::GET, "/metrics") if view.shows_metrics() => {
                response::metrics(&self.config.metrics_prefix, &self.counts())
            }
            (&Method::GET, "/sse") if self.http_sse.is_some() => self.sse_stream(peer, view),
            (&Method::POST, "/message") if self.http_sse.is_some() => {
                self.sse_message(peer, view, request).await
            }
            (_, path) => match self.routes.iter().find(|route| route.covers(path)) {
                Some(route) => self.answer_route(peer, view, &**route, request).await,
                None => {
                    response::refusal(StatusCode::NOT_FOUND, "nothing is here; the MCP endpoint is `/mcp`")
                }
            },
        }
    }
}

/// How long a response waits for memory before it is replaced by an error.
const CONTENT_WAIT: Duration = Duration::from_secs(20);

/// The largest request head, and the limit of each of hyper's buffers for an HTTP/1 connection.
const MAX_HEAD: usize = 16 << 10;
