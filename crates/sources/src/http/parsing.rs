//! Parses large responses, for example to extract a list from JSON: on blocking threads, one response of a source
//! at a time, with reserved memory.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libris_core::{Budget, Client};
use tokio::time::timeout;

use super::fault::HttpFault;
use super::memory::UNRESERVED_BYTES;
use super::response::ApiResponse;

/// The memory for concurrent parsing in all sources. One client may use three quarters of this memory.
const PARSING_MEMORY_BYTES: usize = 32 << 20;

/// The time-out of the wait for a permit and for memory.
const PARSING_TIMEOUT: Duration = Duration::from_secs(30);

static PARSING_MEMORY: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(PARSING_MEMORY_BYTES));

/// Parses the large responses of one source.
pub(super) struct ResponseParser {
    permits: Arc<Budget>,
}

impl Default for ResponseParser {
    fn default() -> Self {
        Self { permits: Budget::new(1) }
    }
}

impl ResponseParser {
    /// Runs `work` on the pages of a response. If the pages together exceed [`UNRESERVED_BYTES`], waits for a
    /// permit and for memory, both from the share of this client, and then runs `work` on a blocking thread.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        responses: &[Arc<ApiResponse>],
        client: Client,
        work: impl FnOnce(&[Arc<ApiResponse>]) -> Result<T, HttpFault> + Send + 'static,
    ) -> Result<T, HttpFault> {
        let size = responses.iter().map(|api_response| api_response.body.len()).sum();
        if size <= UNRESERVED_BYTES {
            return work(responses);
        }
        let admitted = async {
            let permit = self.permits.take(client, 1).await?;
            Some((permit, PARSING_MEMORY.take(client, size).await?))
        };
        let admitted = timeout(PARSING_TIMEOUT, admitted).await.ok().flatten().ok_or(HttpFault::NoMemory)?;
        let responses = responses.to_vec();
        blocking(move || {
            // Held until the work has ended, even if the caller is gone.
            let _admitted = admitted;
            work(&responses)
        })
        .await
    }
}

/// Runs long work on a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HttpFault> + Send + 'static,
) -> Result<T, HttpFault> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(HttpFault::Failed))
}

#[cfg(test)]
mod tests {
    use super::{ApiResponse, Client, PARSING_MEMORY, ResponseParser, UNRESERVED_BYTES};
    use futures_util::future::join_all;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    fn api_response(size: usize) -> Arc<ApiResponse> {
        Arc::new(ApiResponse::of_text(" ".repeat(size)))
    }

    #[tokio::test]
    async fn large_responses_are_parsed_on_a_blocking_thread() {
        let here = thread::current().id();
        let there = async |size: usize| {
            let work = |_: &[Arc<ApiResponse>]| Ok(thread::current().id());
            ResponseParser::default().run(&[api_response(size)], Client::default(), work).await.unwrap()
        };
        assert_eq!(there(UNRESERVED_BYTES).await, here);
        assert_ne!(there(UNRESERVED_BYTES + 1).await, here);
    }

    #[tokio::test]
    async fn large_responses_are_parsed_one_at_a_time_with_memory() {
        let parser = ResponseParser::default();
        let (responses, working) = ([api_response(1 << 20)], Arc::new(AtomicUsize::new(0)));
        let run = || {
            let working = working.clone();
            parser.run(&responses, Client::default(), move |responses| {
                let others = working.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                working.fetch_sub(1, Ordering::SeqCst);
                Ok((others, PARSING_MEMORY.used() >= responses[0].body.len()))
            })
        };
        let outcomes = join_all((0..20).map(|_| run())).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Ok((0, true))), "{outcomes:?}");
    }
}
