//! The threads that work on requests for a tree.

use std::sync::Arc;

use libris_core::{Budget, Client, Error, Result};

use super::cancellation::CancelOnDrop;

/// Runs blocking work on a tree, on a limited number of threads, of which one client may use three quarters.
pub(crate) struct TreeThreads {
    permits: Arc<Budget>,
}

impl TreeThreads {
    pub(crate) fn new(most: usize) -> Self {
        Self { permits: Budget::new(most) }
    }

    /// Runs `work` for a client on a thread that may block. If the caller is cancelled, the work fails at its next
    /// `cancellation::check`, which runs while directories are opened, listed and walked. The permit is released when the
    /// work has ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        client: Client,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let busy = Error::Busy("too many requests wait for a thread");
        let permit = self.permits.take(client, 1).await.ok_or(busy)?;
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use libris_core::Client;

    use super::TreeThreads;

    #[tokio::test]
    async fn slow_work_of_one_client_leaves_a_thread_to_others() {
        let client = |last| Client::at([127, 0, 0, last].into());
        let threads = Arc::new(TreeThreads::new(4));
        let mut slow = Vec::new();
        for _ in 0..8 {
            let (threads, (send, receive)) = (threads.clone(), mpsc::channel::<()>());
            let work = move || Ok(receive.recv_timeout(Duration::from_secs(60)));
            slow.push((send, tokio::spawn(async move { threads.run(client(1), work).await })));
        }
        while threads.permits.used() < 3 {
            tokio::task::yield_now().await;
        }
        let other = threads.run(client(2), || Ok(()));
        let other = tokio::time::timeout(Duration::from_secs(30), other).await;
        assert!(other.expect("another client is served").is_ok());
        for (send, work) in slow {
            drop(send);
            assert!(work.await.unwrap().is_ok());
        }
    }
}
