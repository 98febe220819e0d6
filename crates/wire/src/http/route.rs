//! Additional HTTP routes beside the MCP endpoint.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as HttpBody;

use super::sessions::Peer;
use super::streamable::TOO_MANY;
use super::{Body, Endpoint};
use crate::protocol::CONTENT_BUDGET_FULL;
use crate::time_limit::within;
use crate::{Call, Revision, ServiceView};

/// Answers HTTP requests for paths of its own, such as those of a web page.
///
/// Before a request is routed, its `Host` and `Origin` are checked, the caller is admitted, and the body is bounded
/// like that of a message.
#[async_trait]
pub trait Route: Send + Sync + 'static {
    /// Whether it answers requests for this path. Requests for the paths of the protocol are never routed.
    fn covers(&self, path: &str) -> bool;

    /// Answers a request for a file that anybody may have, such as the page that asks for credentials; `None` defers to
    /// [`answer`](Self::answer). Called before the caller is admitted, so it must not depend on data.
    fn public(&self, _method: &Method, _path: &str, _headers: &HeaderMap) -> Option<Response<Body>> {
        None
    }

    /// Answers a request of an admitted caller. Everything read with the [view](Call::view) of `call` counts against the
    /// memory budget of contents.
    async fn answer(&self, call: &Call, request: Request<Bytes>) -> Response<Body>;
}

impl Endpoint {
    /// The response to a request that needs no admission, if a route has one.
    pub(super) fn public<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let (method, path) = (request.method(), request.uri().path());
        if matches!(path, "/mcp" | "/metrics" | "/sse" | "/message") {
            return None;
        }
        let route = self.routes.iter().find(|route| route.covers(path))?;
        let response = route.public(method, path, request.headers())?;
        let counted = self.count_requests(self.peer(request).client, 1);
        Some(counted.map_or_else(|wait| self.too_fast(None, wait), |()| response))
    }

    /// Calls a route, within the limits of any other request.
    pub(super) async fn routed<B>(
        &self,
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
        let Some(_entered) = self.requests.try_take(peer.client, 1) else { return self.busy(None, TOO_MANY) };
        let (head, body) = request.into_parts();
        let received = match self.receive(peer.client, &head.headers, body).await {
            Ok(received) => received,
            Err(refusal) => return refusal,
        };
        let [newest, ..] = Revision::ALL;
        let call = Call::new(view, newest).by(peer.client, &self.content_budget);
        let answering = route.answer(&call, Request::from_parts(head, received.bytes.clone()));
        let Some(response) = within(self.protocol.limits.time, answering).await else {
            return self.busy(None, "the request exceeded its time limit; try again later");
        };
        // What was read for the response is no longer needed.
        drop(call);
        let size = response.body().size_hint().exact().unwrap_or_default() as usize;
        match self.content_budget.take(peer.client, size).await {
            Some(lease) => response.map(|body| body.holding(Some(lease))),
            None => self.busy(None, CONTENT_BUDGET_FULL),
        }
    }
}
