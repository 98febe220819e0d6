//! The threads that work on requests for a tree.

use std::sync::Arc;

use libris_core::{Error, Result};
use tokio::sync::Semaphore;

use super::cancellation::CancelOnDrop;

/// Runs blocking work on a tree, on a limited number of threads.
pub(crate) struct TreeThreads {
    permits: Arc<Semaphore>,
}

impl TreeThreads {
    pub(crate) fn new(most: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(most)) }
    }

    /// Runs `work` on a thread that may block. If the caller is cancelled, the work fails at its next
    /// `cancellation::check`, which runs while directories are opened, listed and walked. The permit is released when the
    /// work has ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let closed = |cause| Error::failed("wait for a thread", cause);
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let caller = CancelOnDrop::default();
        let cancellation = caller.cancellation();
        let work = move || {
            let _permit = permit;
            cancellation.run(work)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(cause) => Err(Error::failed("finish reading the folder", cause)),
        }
    }
}
