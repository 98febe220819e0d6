//! HTTP routes in addition to those of the protocol, such as a web page.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use http::{Extensions, HeaderMap, Method, Request, Response};
use http_body::Body as HttpBody;
use libris_core::Lease;
use tokio_util::task::AbortOnDropHandle;

use super::basic;
use super::body::RoutePiece;
use super::sessions::Peer;
use super::streamable::TOO_MANY;
use super::{Body, Endpoint};
use crate::protocol::CONTENT_BUDGET_FULL;
use crate::time_limit::{within, within_from};
use crate::{Call, Revision, ServiceView};

/// Answers HTTP requests for paths of its own, such as those of a web page.
///
/// The `Host` and `Origin` of a request are checked first. The caller is admitted before [`answer`](Self::answer) is
/// called. The body has the size limit of a message.
#[async_trait]
pub trait Route: Send + Sync + 'static {
    /// Whether this route answers requests for this path. Requests for `/mcp` never reach a route. A route should not
    /// cover the other paths of the endpoint (`/metrics`, `/healthz`, `/readyz`, `/sse` and `/message`).
    fn covers(&self, path: &str) -> bool;

    /// Answers a request for a file that anybody may read, such as the page that asks for credentials. After `None`,
    /// [`answer`](Self::answer) is called. The caller is not admitted yet, so the response must not reveal any data of the
    /// service.
    fn public(&self, _method: &Method, _path: &str, _headers: &HeaderMap) -> Option<Response<Body>> {
        None
    }

    /// Whether clients of this path may send an API key or an access token as the password of HTTP Basic authentication,
    /// because they support nothing else. The user name is ignored.
    fn accepts_basic(&self, _path: &str) -> bool {
        false
    }

    /// Answers a request of an admitted caller. Contents that are read with the [view](Call::view) of `call` count against
    /// the memory budget of contents.
    async fn answer(&self, call: &Call, request: Request<Bytes>) -> Response<Body>;
}

impl Endpoint {
    /// The response to a request that needs no admission, if a route has one.
    pub(super) fn public_response<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let (method, path) = (request.method(), request.uri().path());
        self.route_for(path)?.public(method, path, request.headers())
    }

    /// The route for a path that is not one of the protocol.
    fn route_for(&self, path: &str) -> Option<&Arc<dyn Route>> {
        let is_own = matches!(path, "/mcp" | "/metrics" | "/sse" | "/message");
        self.routes.iter().find(|route| !is_own && route.covers(path))
    }

    /// Admits the caller of a request, on some routes by the password of Basic authentication.
    pub(super) async fn admit_request(
        &self,
        peer: Peer,
        path: &str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Arc<dyn ServiceView>, Response<Body>> {
        if !self.route_for(path).is_some_and(|route| route.accepts_basic(path)) {
            return self.admit(peer, headers, extensions).await;
        }
        let admitted = self.admit(peer, &basic::as_bearer(headers), extensions).await;
        admitted.map_err(basic::challenging)
    }

    /// Lets a route answer a request, within the same limits as every other request.
    pub(super) async fn answer_route<B>(
        self: &Arc<Self>,
        peer: Peer,
        view: Arc<dyn ServiceView>,
        route: &dyn Route,
        request: Request<B>,
    ) -> Response<Body>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Some(request_slot) = self.requests.try_take(peer.client, 1) else {
            return self.busy(None, TOO_MANY);
        };
        let (head, body) = request.into_parts();
        let received = match self.receive(peer.client, &head.headers, body).await {
            Ok(received) => received,
            Err(refusal) => return refusal,
        };
        let [newest, ..] = Revision::ALL;
        let call = Call::new(view, newest).with_client(peer.client, &self.content_budget);
        let answering = route.answer(&call, Request::from_parts(head, received.bytes.clone()));
        let limit = self.protocol.limits.time;
        let Some(response) = within_from(|| call.time_limit_start(), limit, answering).await else {
            return self.busy(None, "the request exceeded its time limit; try again later");
        };
        if response.body().is_streamed() {
            // Each piece has a reservation of its own.
            call.memory.iter().for_each(|memory| memory.release());
            let limit = |pieces| self.clone().limit_pieces(peer, request_slot, pieces);
            return response.map(|body| body.with_pieces(limit));
        }
        let size = response.body().size_hint().exact().unwrap_or_default() as usize;
        self.count_bytes(peer.client, size);
        // The memory that the route reserved becomes that of its response. If the route had to wait for it again, the
        // finished response would be in memory without counting.
        let lease = match &call.memory {
            Some(memory) => memory.lease_for_bytes(size).await,
            None => self.content_budget.take(peer.client, size).await,
        };
        match lease {
            Some(lease) => response.map(|body| body.holding(Some(lease))),
            None => self.busy(None, CONTENT_BUDGET_FULL),
        }
    }

    /// Limits the time and the memory of each piece of a streamed response, and counts the response as a request in progress
    /// until it ends.
    fn limit_pieces(
        self: Arc<Self>,
        peer: Peer,
        request_slot: Lease,
        pieces: BoxStream<'static, RoutePiece>,
    ) -> BoxStream<'static, RoutePiece> {
        let state = (self, peer.client, request_slot, pieces);
        Box::pin(stream::unfold(state, async |(endpoint, client, request_slot, mut pieces)| {
            // In a task of its own: over HTTP/2 a body is not polled while the flow-control window is closed, so the piece
            // would hold the permits of its sources without reaching its time limit.
            let making = tokio::spawn(async move {
                let RoutePiece { bytes, memory, .. } =
                    within(endpoint.protocol.limits.time, pieces.next()).await.flatten()?;
                endpoint.count_bytes(client, bytes.len());
                let lease = match memory {
                    Some(memory) => memory.lease_for_bytes(bytes.len()).await?,
                    None => endpoint.content_budget.take(client, bytes.len()).await?,
                };
                let piece = RoutePiece { bytes, lease: Some(lease), memory: None };
                Some((piece, (endpoint, client, request_slot, pieces)))
            });
            AbortOnDropHandle::new(making).await.ok().flatten()
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use bytes::Bytes;
    use futures_util::{StreamExt as _, stream};
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty as EmptyBody};
    use libris_core::Client;
    use tokio::sync::Semaphore;

    use super::Route;
    use crate::empty::Empty;
    use crate::http::{Body, Config, Endpoint};
    use crate::{Call, Limits};

    /// At `/reserved` and `/whole`, reserves 100,000 bytes and sends 70,000 of them, as a piece or at once. Elsewhere sends
    /// pieces of 1,000 bytes: at `/hangs` two and then nothing, everywhere else ten.
    struct Streaming;

    #[async_trait]
    impl Route for Streaming {
        fn covers(&self, _path: &str) -> bool {
            true
        }

        async fn answer(&self, call: &Call, request: Request<Bytes>) -> Response<Body> {
            let pieces = |count| stream::iter(0..count).map(|number: u8| Bytes::from(vec![number; 1_000]));
            Response::new(match request.uri().path() {
                "/reserved" => {
                    let part = call.for_part();
                    assert!(part.reserve(100_000));
                    Body::streamed_reserved(stream::iter([(part, Bytes::from(vec![0; 70_000]))]))
                }
                "/whole" => {
                    assert!(call.reserve(100_000));
                    Body::from(Bytes::from(vec![0; 70_000]))
                }
                "/hangs" => Body::streamed(pieces(2).chain(stream::pending())),
                _ => Body::streamed(pieces(10)),
            })
        }
    }

    async fn get(endpoint: &Arc<Endpoint>, path: &str) -> Body {
        let request =
            Request::builder().uri(path).header("host", "localhost").body(EmptyBody::<Bytes>::new());
        endpoint.clone().handle(request.unwrap()).await.into_body()
    }

    #[tokio::test]
    async fn a_streamed_response_holds_one_piece_and_one_request() {
        let endpoint = Endpoint::with_routes(Arc::new(Empty), Config::default(), vec![Arc::new(Streaming)]);
        let mut body = get(&endpoint, "/").await;
        assert_eq!((endpoint.requests.used(), endpoint.content_budget.used()), (1, 0));
        for number in 0..10_u8 {
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece, vec![number; 1_000]);
            assert_eq!((endpoint.requests.used(), endpoint.content_budget.used()), (1, 1_000));
        }
        // Hyper polls once more after the end.
        assert!(body.frame().await.is_none() && body.frame().await.is_none());
        drop(body);
        assert_eq!((endpoint.requests.used(), endpoint.content_budget.used()), (0, 0));
        // A client that disconnects early releases everything.
        let mut body = get(&endpoint, "/").await;
        body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!((endpoint.requests.used(), endpoint.content_budget.used()), (0, 0));
    }

    #[tokio::test]
    async fn the_memory_that_a_route_reserves_becomes_that_of_its_response() {
        let endpoint = Endpoint::with_routes(Arc::new(Empty), Config::default(), vec![Arc::new(Streaming)]);
        for path in ["/reserved", "/whole"] {
            let mut body = get(&endpoint, path).await;
            // Nobody gets the memory between the end of the work and the response.
            let all: Vec<_> =
                std::iter::from_fn(|| endpoint.content_budget.try_take(Client::default(), 70_000)).collect();
            let used = endpoint.content_budget.used();
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece.len(), 70_000, "{path}");
            assert!(!all.is_empty() && endpoint.content_budget.used() <= used, "{path}");
            drop(all);
            assert_eq!(endpoint.content_budget.used(), 70_000, "{path}");
            drop(body);
            assert_eq!(endpoint.content_budget.used(), 0, "{path}");
        }
    }

    /// Loads contents of 8 MiB, once it has memory for them and the test lets it.
    struct Large {
        loaded: AtomicUsize,
        may_end: Semaphore,
    }

    const LARGE: usize = 8 << 20;

    #[async_trait]
    impl Route for Arc<Large> {
        fn covers(&self, _path: &str) -> bool {
            true
        }

        async fn answer(&self, call: &Call, _request: Request<Bytes>) -> Response<Body> {
            while !call.reserve(LARGE) {
                assert!(call.memory_is_free().await);
            }
            self.loaded.fetch_add(1, Ordering::SeqCst);
            self.may_end.acquire().await.unwrap().forget();
            Response::new(Body::from(Bytes::from(vec![0; LARGE])))
        }
    }

    #[tokio::test]
    async fn a_response_keeps_the_memory_of_its_contents() {
        // One client may have one response of 8 MiB at a time.
        let limits = Limits { content_bytes: 24 << 20, ..Limits::default() };
        let route = Arc::new(Large { loaded: AtomicUsize::new(0), may_end: Semaphore::new(0) });
        let config = Config { limits, ..Config::default() };
        let endpoint = Endpoint::with_routes(Arc::new(Empty), config, vec![Arc::new(route.clone())]);
        let ask = || {
            let endpoint = endpoint.clone();
            tokio::spawn(async move { get(&endpoint, "/").await })
        };
        let first = ask();
        while route.loaded.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let second = ask();
        while endpoint.requests.used() < 2 {
            tokio::task::yield_now().await;
        }
        route.may_end.add_permits(1);
        let body = first.await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(route.loaded.load(Ordering::SeqCst), 1, "the second waits until the first is sent");
        assert!(endpoint.content_budget.used() >= LARGE);
        drop(body);
        route.may_end.add_permits(1);
        drop(second.await.unwrap());
        assert_eq!((endpoint.requests.used(), endpoint.content_budget.used()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_has_the_time_limit_of_a_request() {
        let limits = Limits { time: Duration::from_secs(5), ..Limits::default() };
        let config = Config { limits, ..Config::default() };
        let endpoint = Endpoint::with_routes(Arc::new(Empty), config, vec![Arc::new(Streaming)]);
        let whole = get(&endpoint, "/hangs").await.collect().await.unwrap().to_bytes();
        assert_eq!(whole.len(), 2_000);
    }
}
