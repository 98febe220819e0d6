//! The HTTP transports: Streamable HTTP at `/mcp` for both eras, and the old HTTP+SSE on request.

mod answering;
mod body;
mod express;
mod gather;
mod guard;
mod headers;
mod lane;
mod mailbox;
mod old;
mod pulse;
mod response;
mod session;
mod streamable;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as HttpBody;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::body::Body;
use self::gather::Gathered;
use self::guard::Guard;
use self::lane::Lane;
use self::old::Old;
use self::pulse::Pulse;
use self::session::Sessions;
use crate::protocol::Protocol;
use crate::{Limits, Service};

/// How HTTP is served.
#[derive(Clone, Debug)]
pub struct Config {
    /// What bounds each request.
    pub limits: Limits,
    /// Host names, beside `localhost` and IP addresses, under which the server may be asked.
    pub hosts: Vec<String>,
    /// Origins, beside local ones and the server's own, whose pages may ask.
    pub origins: Vec<String>,
    /// How many sessions there may be at once.
    pub sessions: usize,
    /// How long a session may be idle before it ends.
    pub idle: Duration,
    /// How many connections there may be at once.
    pub connections: usize,
    /// How many requests are worked on at once; others wait.
    pub turns: usize,
    /// How many bytes of large answers may wait for clients to take them.
    pub unsent: usize,
    /// How many `subscriptions/listen` streams there may be at once.
    pub listens: usize,
    /// How often a stream with nothing to say shows that it lives.
    pub keep_alive: Duration,
    /// Whether the HTTP+SSE transport of 2024-11-05 is served at `/sse` too.
    pub sse: bool,
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
            turns: 64,
            unsent: 128 << 20,
            listens: 15_000,
            keep_alive: Duration::from_secs(15),
            sse: false,
        }
    }
}

/// Everything that answers HTTP requests for one service.
pub struct Endpoint {
    protocol: Protocol,
    guard: Guard,
    sessions: Sessions,
    old: Option<Old>,
    /// Bounds the requests worked on at once.
    turns: Arc<Semaphore>,
    /// Bounds the large answers that clients have not taken yet, in KiB.
    room: Arc<Semaphore>,
    listens: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    config: Config,
    /// Ends the streams that would otherwise stay open.
    closing: CancellationToken,
}

impl Endpoint {
    /// An endpoint for this service.
    pub fn new(service: Arc<dyn Service>, config: Config) -> Arc<Self> {
        Arc::new(Self {
            protocol: Protocol::new(service, config.limits.clone()),
            guard: Guard::new(&config.hosts, &config.origins),
            sessions: Sessions::new(config.sessions, config.idle),
            old: config.sse.then(Old::default),
            turns: Arc::new(Semaphore::new(config.turns)),
            room: Arc::new(Semaphore::new(config.unsent >> 10)),
            listens: Arc::new(Semaphore::new(config.listens)),
            connections: Arc::new(Semaphore::new(config.connections)),
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

    /// What there is now, for a monitor.
    fn counts(&self) -> Vec<(&'static str, usize)> {
        let (sessions, streams) = self.sessions.count();
        let listens = self.config.listens - self.listens.available_permits();
        let connections = self.config.connections - self.connections.available_permits();
        let mut counts = vec![
            ("connections", connections),
            ("sessions", sessions),
            ("session_streams", streams),
            ("listen_streams", listens),
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
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/mcp") => self.post(request).await,
            (&Method::GET, "/mcp") => self.get(&request),
            (&Method::DELETE, "/mcp") => self.delete(&request),
            (_, "/mcp") => response::not_allowed("POST, GET, DELETE"),
            (&Method::GET, "/metrics") => response::metrics(&self.counts()),
            (&Method::GET, "/sse") if self.old.is_some() => self.old_stream(),
            (&Method::POST, "/message") if self.old.is_some() => self.old_message(request).await,
            _ => response::refusal(StatusCode::NOT_FOUND, "nothing is here; the MCP endpoint is `/mcp`"),
        }
    }
}

/// How long requests in flight may take to end once the server is told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// How often a connection of HTTP/2 must show that it lives.
const PING: Duration = Duration::from_secs(30);

/// The most bytes of the heads of requests that are read ahead.
const HEADS: usize = 64 << 10;

/// Serves `endpoint` on `listener` until `stop` is cancelled, then lets requests in flight end.
pub async fn serve(
    listener: TcpListener,
    endpoint: Arc<Endpoint>,
    stop: CancellationToken,
) -> io::Result<()> {
    let graceful = GracefulShutdown::new();
    // How long a head may take is seen to by the pulse, which costs no timer for each request.
    let mut http1 = http1::Builder::new();
    http1.header_read_timeout(None).max_buf_size(HEADS);
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2.timer(TokioTimer::new()).keep_alive_interval(PING).max_concurrent_streams(128);
    let builders = Arc::new((http1, http2));
    let mut sweep = tokio::time::interval(Duration::from_secs(30));
    loop {
        let permit = tokio::select! {
            () = stop.cancelled() => break,
            permit = endpoint.connections.clone().acquire_owned() => permit.map_err(io::Error::other)?,
        };
        let (stream, peer): (_, SocketAddr) = tokio::select! {
            () = stop.cancelled() => break,
            _ = sweep.tick() => {
                endpoint.sessions.sweep();
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(cause) => {
                    // Out of file descriptors, or a peer that left: neither ends the server.
                    tracing::warn!(%cause, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    continue;
                }
            },
        };
        if let Err(cause) = stream.set_nodelay(true) {
            tracing::debug!(%cause, "could not set TCP_NODELAY");
        }
        let endpoint = endpoint.clone();
        let served = endpoint.clone();
        let pulse = Arc::<Pulse>::default();
        let (seen, watched) = (pulse.clone(), pulse.clone());
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            seen.asked();
            let (endpoint, pulse) = (endpoint.clone(), seen.clone());
            // Boxed, or the connection would keep room for it for as long as a stream is open.
            Box::pin(async move {
                let version = request.version();
                let response = endpoint.handle(request).await;
                Ok::<_, std::convert::Infallible>(
                    response.map(|body| Gathered::new(body.watched(pulse), version)),
                )
            })
        });
        let (builders, watcher, stop) = (builders.clone(), graceful.watcher(), stop.clone());
        tokio::spawn(async move {
            // Made here: one that is handed in would take its room twice, where it was and where it is pinned.
            let connection = async move {
                let version = tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    version = version(&stream) => version,
                };
                let (http1, http2) = &*builders;
                match version {
                    // Boxed, since it is the larger one by far.
                    Version::HTTP_2 => {
                        let stream = TokioIo::new(stream);
                        Box::pin(watcher.watch(http2.serve_connection(stream, service))).await
                    }
                    _ => {
                        let lane = Lane::new(stream, served, watched);
                        watcher.watch(http1.serve_connection(lane, service)).await
                    }
                }
            };
            let mut connection = pin!(connection);
            let mut look = tokio::time::interval_at(Instant::now() + pulse::LOOK, pulse::LOOK);
            loop {
                tokio::select! {
                    ended = &mut connection => {
                        if let Err(cause) = ended {
                            tracing::debug!(%cause, %peer, "a connection ended early");
                        }
                        break;
                    }
                    _ = look.tick() => if let Some(why) = pulse.stopped() {
                        tracing::debug!(%peer, why, "let go of a connection");
                        break;
                    },
                }
            }
            drop(permit);
        });
    }
    drop(listener);
    endpoint.closing.cancel();
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    Ok(())
}

/// Which version a connection speaks, told from its first bytes, which stay where they are. Where they are
/// read first, as hyper-util's `auto` does, hyper gets the head of the request in two pieces and doubles
/// its buffer for the second.
async fn version(stream: &TcpStream) -> Version {
    let mut first = [0; 3];
    match stream.peek(&mut first).await {
        Ok(3) if first == *b"PRI" => Version::HTTP_2,
        _ => Version::HTTP_11,
    }
}
