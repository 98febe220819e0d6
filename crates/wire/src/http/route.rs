//! Further HTTP routes beside the endpoint of the protocol.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};

use super::Body;
use crate::View;

/// Answers HTTP requests for paths of its own, such as those of a web page.
///
/// The `Host` and `Origin` of a request have been checked before it gets here, the caller was admitted, and the body is
/// bounded like that of a message.
#[async_trait]
pub trait Route: Send + Sync + 'static {
    /// Whether it answers requests for this path. Those of the protocol itself never get here.
    fn covers(&self, path: &str) -> bool;

    /// Answers a request of the caller whose view this is.
    async fn answer(&self, view: Arc<dyn View>, request: Request<Bytes>) -> Response<Body>;
}
