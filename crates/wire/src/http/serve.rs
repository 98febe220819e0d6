//! Accepts and serves connections: completes the TLS handshake, determines the HTTP version, and serves requests until
//! the connection ends.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use libris_core::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connections::AcceptedConnection;
use super::express::{DetachedStream, Framing, Lane, StreamDetached, through_hyper};
use super::gathered_body::GatheredBody;
#[cfg(not(feature = "tls"))]
use super::no_tls::{SecuredConnection, TlsServer};
use super::stream::{Spawn, Stream};
#[cfg(feature = "tls")]
use super::tls::{SecuredConnection, TlsServer};
use super::{Body, Endpoint, MAX_HEAD, liveness};

/// How long requests in flight may still take in a graceful shutdown.
const SHUTDOWN_TIME_LIMIT: Duration = Duration::from_secs(5);

/// The interval of HTTP/2 keep-alive pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The maximum number of concurrent requests on one HTTP/2 connection.
const MAX_CONCURRENT_STREAMS: u32 = 64;

/// The HTTP/2 flow-control window of a connection: how many body bytes a client may send before the server reads them.
/// No budget counts unread bytes, so they may take up to [`Config::http2_connections`] times this much memory.
pub(super) const CONNECTION_WINDOW: u32 = 64 << 10;

/// The HTTP/2 flow-control window of each stream.
const STREAM_WINDOW: u32 = 32 << 10;

/// The maximum number of response bytes that hyper buffers for each HTTP/2 stream.
const SEND_BUFFER: usize = 16 << 10;

/// How many units of the event stream budget an HTTP/1 event stream takes if hyper sends it, because hyper owned the
/// connection already (see the [express lane](super::express)).
const SLOTS_IN_HYPER: usize = 4;

/// How many units of the event stream budget an HTTP/2 event stream takes.
const SLOTS_IN_HTTP2: usize = 2;

/// The first delay before the first bytes of a connection are peeked at again, if they do not determine the HTTP
/// version.
const MIN_PEEK_DELAY: Duration = Duration::from_millis(5);

/// The longest such delay. The delay doubles each time.
const MAX_PEEK_DELAY: Duration = Duration::from_millis(640);

/// How often the TLS files are checked for changes.
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
    // No timeout for heads: the checks of `Liveness` limit how long a head may take, without a timer for each request.
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
                    // The process is out of file descriptors, or the peer has disconnected. Neither ends the server.
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
        let task = ConnectionTask { endpoint, builders, tls: tls.clone(), graceful, stop };
        tokio::spawn(task.connection(stream, accepted));
    }
    drop(listener);
    endpoint.closing.cancel();
    endpoint.connections.stop();
    let _ = tokio::time::timeout(SHUTDOWN_TIME_LIMIT, graceful.shutdown()).await;
    Ok(())
}

/// The state that the task of a connection needs. Everything in it is shared with other connections.
struct ConnectionTask {
    endpoint: Arc<Endpoint>,
    builders: Arc<(http1::Builder, http2::Builder<Spawn>)>,
    tls: Option<Arc<TlsServer>>,
    graceful: Watcher,
    stop: CancellationToken,
}

impl ConnectionTask {
    /// Serves a connection until it ends, is evicted or fails a liveness check.
    async fn connection(self, stream: TcpStream, accepted: AcceptedConnection) {
        let (peer, liveness) = (accepted.peer, accepted.liveness.clone());
        // A client that expects TLS would not understand the plain-text response of a refusal.
        let in_clear = self.tls.is_none().then_some(&stream);
        let Some(_lease) = accepted.wait_for_slot(in_clear).await else { return };
        let Self { endpoint, builders, tls, graceful, stop } = self;
        let (service_liveness, connection_liveness, connection_endpoint) =
            (liveness.clone(), liveness.clone(), endpoint.clone());
        // An `async` block and not a function: the future of a function would occupy memory twice, as the argument and
        // where it is pinned.
        let connection = async move {
            let SecuredConnection { socket, version, certificate } = tokio::select! {
                () = stop.cancelled() => return Ok::<_, Box<dyn std::error::Error + Send + Sync>>(()),
                // Boxed, since a handshake takes far more memory than an idle connection.
                secured = Box::pin(secure(tls, stream, peer.client)) => secured?,
            };
            let client_certificate = certificate.clone();
            let service = service_fn(move |mut request: Request<Incoming>| {
                let number = service_liveness.begin_request();
                let (endpoint, liveness) = (endpoint.clone(), service_liveness.clone());
                let certificate = client_certificate.clone();
                // Boxed, or the connection would contain the memory of this future as long as an event stream is open.
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
                        false => endpoint.no_stream_slot(),
                    };
                    if response.body().is_listening() {
                        if !is_http2 && liveness.hyper_was_idle_before(number) {
                            liveness.detach_stream(DetachedStream { response, framing });
                            return Err(StreamDetached);
                        }
                        let slots = if is_http2 { SLOTS_IN_HTTP2 } else { SLOTS_IN_HYPER };
                        if !response.body_mut().resize_slots(slots) {
                            response = endpoint.no_stream_slot();
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
                    let accepted =
                        connection_endpoint.http2_connections.accept_existing(peer, connection_liveness);
                    let Some(_http2_lease) = accepted.wait_for_slot(socket.plain()).await else {
                        return Ok(());
                    };
                    let socket = TokioIo::new(socket);
                    Ok(Box::pin(graceful.watch(http2.serve_connection(socket, service))).await?)
                }
                _ => {
                    // A graceful shutdown waits until this is dropped, at the end of the connection.
                    let _graceful = graceful;
                    let mut lane = Lane::new(socket, connection_endpoint, peer, connection_liveness.clone())
                        .with_certificate(certificate);
                    while let Some(with_request) = lane.without_hyper().await? {
                        // Boxed, since most connections never need it.
                        let hyper = Box::new(http1.serve_connection(with_request, service.clone()));
                        lane = through_hyper(hyper, &connection_liveness).await?;
                        if !lane.take_detached_flag() {
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
                // Leaving the loop drops the connection, which aborts its requests in progress.
                () = liveness.close_requested(), if !liveness.is_stopping() => {
                    if !liveness.is_stopping() {
                        tracing::debug!(?peer, "evicted a connection to free its slot or its memory");
                        break;
                    }
                }
                _ = checks.tick() => if let Some(why) = liveness.check() {
                    tracing::debug!(?peer, why, "closed an inactive connection");
                    break;
                },
            }
        }
    }
}

/// Completes the TLS handshake, if TLS is served, and determines the HTTP version.
async fn secure(
    tls: Option<Arc<TlsServer>>,
    stream: TcpStream,
    client: Client,
) -> io::Result<SecuredConnection> {
    match tls {
        Some(tls) => tls.accept(stream, client).await,
        None => {
            let version = detect_version(&stream).await;
            Ok(SecuredConnection { socket: stream.into(), version, certificate: None })
        }
    }
}

/// Determines the HTTP version of a connection by peeking at its first bytes. Unlike hyper-util's `auto`, this does not
/// consume the bytes: otherwise hyper would get the request head in two pieces, and double its buffer for the second.
async fn detect_version(stream: &TcpStream) -> Version {
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
