//! Additional HTTP routes beside the MCP endpoint.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;

use super::sessions::Peer;
use super::streamable::TOO_MANY;
use super::{Body, Endpoint};
use crate::ServiceView;
use crate::protocol::CONTENT_BUDGET_FULL;
use crate::time_limit::within;

/// Answers HTTP requests for paths of its own, such as those of a web page.
///
/// Before a request is routed, its `Host` and `Origin` are checked, the caller is admitted, and the body is bounded
/// like that of a message.
#[async_trait]
pub trait Route: Send + Sync + 'static {
    /// Whether it answers requests for this path. Requests for the paths of the protocol are never routed.
    fn covers(&self, path: &str) -> bool;

    /// Answers a request of the caller whose view this is.
    async fn answer(&self, view: Arc<dyn ServiceView>, request: Request<Bytes>) -> Response<Body>;
}

impl Endpoint {
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
        let answering = route.answer(view, Request::from_parts(head, received.bytes.clone()));
        let Some(response) = within(self.protocol.limits.time, answering).await else {
            return self.busy(None, "no answer in time; try again later");
        };
        let size = response.body().size_hint().exact().unwrap_or_default() as usize;
        match self.content_budget.take(peer.client, size).await {
            Some(lease) => response.map(|body| body.holding(Some(lease))),
            None => self.busy(None, CONTENT_BUDGET_FULL),
        }
    }
}
