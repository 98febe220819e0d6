//! Cancels requests whose responses nobody waits for any more.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{CancelledNotificationParam, RequestId};
use rmcp::service::{Peer, ServiceError};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// The maximum number of `notifications/cancelled` of a connection that are being sent. If there are more, the server is not
/// notified.
const MAX_PENDING: usize = 256;

/// How long one attempt to send `notifications/cancelled` may take. Over HTTP, the transport applies this timeout too.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// The pauses between attempts.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8)];

/// Sends `notifications/cancelled` over a connection.
#[derive(Clone)]
pub(crate) struct RequestCanceller {
    peer: Peer<RoleClient>,
    permits: Arc<Semaphore>,
}

impl RequestCanceller {
    pub(crate) fn new(peer: Peer<RoleClient>) -> Self {
        Self { peer, permits: Arc::new(Semaphore::new(MAX_PENDING)) }
    }

    /// Starts to cancel a request. An attempt that fails is repeated: over HTTP, each is a request of its own, which can time
    /// out or lose its connection, and the server works on the cancelled request until one arrives.
    fn start(&self, id: RequestId) {
        let Ok(runtime) = Handle::try_current() else { return };
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            tracing::debug!(%id, "an MCP server is not notified of a cancelled request: too many notifications wait");
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let _permit = permit;
            for pause in PAUSES.into_iter().map(Some).chain([None]) {
                let reason = Some("the client no longer waits for the response".to_owned());
                let params = CancelledNotificationParam::new(Some(id.clone()), reason);
                match timeout(ATTEMPT_TIMEOUT, peer.notify_cancelled(params)).await {
                    // The end of the connection cancels its requests.
                    Ok(Ok(()) | Err(ServiceError::TransportClosed)) => return,
                    Ok(Err(cause)) => tracing::debug!(%id, %cause, "could not cancel a request"),
                    Err(_) => tracing::debug!(%id, "could not cancel a request within {ATTEMPT_TIMEOUT:?}"),
                }
                let Some(pause) = pause else { return };
                sleep(pause).await;
            }
        });
    }
}

/// A drop guard for a request: cancels it, unless it was [answered](Self::answered).
pub(crate) struct CancelRequestOnDrop<'a> {
    canceller: &'a RequestCanceller,
    id: Option<RequestId>,
}

impl<'a> CancelRequestOnDrop<'a> {
    pub(crate) fn new(canceller: &'a RequestCanceller, id: RequestId) -> Self {
        Self { canceller, id: Some(id) }
    }

    /// Disarms the guard.
    pub(crate) fn answered(mut self) {
        self.id = None;
    }
}

impl Drop for CancelRequestOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.canceller.start(id);
        }
    }
}
