//! Cancellation of a running statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// A stop request, shared by a statement, the task that runs it and the caller who awaits it.
#[derive(Default)]
pub(super) struct StopSignal {
    requested: AtomicBool,
    changed: Notify,
    /// The id of the server session that runs the statement; 0 while there is nothing to cancel.
    session: AtomicU64,
}

impl StopSignal {
    pub(super) fn request(&self) {
        self.requested.store(true, Ordering::SeqCst);
        // At most one task waits. If that task does not wait yet, `notify_one` stores a permit for it.
        self.changed.notify_one();
    }

    pub(super) fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// Waits for the stop request.
    pub(super) async fn wait(&self) {
        while !self.requested() {
            self.changed.notified().await;
        }
    }

    /// Records that this server session now runs the statement.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn runs_in(&self, session: u64) {
        self.session.store(session, Ordering::SeqCst);
    }

    /// The server session whose statement to cancel; `None` if there is nothing to cancel.
    pub(super) fn session(&self) -> Option<u64> {
        Some(self.session.load(Ordering::SeqCst)).filter(|session| *session != 0)
    }
}

/// Requests the stop when dropped.
pub(super) struct StopOnDrop(pub(super) Arc<StopSignal>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.request();
    }
}
