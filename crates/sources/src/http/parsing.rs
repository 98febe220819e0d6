//! Parsing of large responses, such as extracting a list from JSON: on blocking threads, one response of a source at a
//! time, with reserved memory.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libris_core::{Budget, Client};
use tokio::time::timeout;

use super::answer::ApiResponse;
use super::fault::HttpFault;
use super::memory::SMALL;

/// The memory for concurrent parsing in all sources. One client may use three quarters of it.
const PARSED: usize = 32 << 20;

/// The time-out of the wait for a permit and for memory.
const PATIENCE: Duration = Duration::from_secs(30);

static MEMORY: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(PARSED));

/// Parses the large responses of one source.
pub(super) struct ResponseParser {
    turns: Arc<Budget>,
}

impl Default for ResponseParser {
    fn default() -> Self {
        Self { turns: Budget::new(1) }
    }
}

impl ResponseParser {
    /// Runs work on a response. For a large one, it waits for a permit and for memory, both from the share of this
    /// client.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        answer: &Arc<ApiResponse>,
        client: Client,
        work: impl FnOnce(&Arc<ApiResponse>) -> Result<T, HttpFault> + Send + 'static,
    ) -> Result<T, HttpFault> {
        let size = answer.body.len();
        if size <= SMALL {
            return work(answer);
        }
        let admitted = async {
            let turn = self.turns.take(client, 1).await?;
            Some((turn, MEMORY.take(client, size).await?))
        };
        let admitted = timeout(PATIENCE, admitted).await.ok().flatten().ok_or(HttpFault::NoMemory)?;
        let answer = Arc::clone(answer);
        blocking(move || {
            // Held until the work has ended, even if the caller is gone.
            let _admitted = admitted;
            work(&answer)
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
    use super::{ApiResponse, Client, MEMORY, ResponseParser, SMALL};
    use futures_util::future::join_all;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    fn answer(size: usize) -> Arc<ApiResponse> {
        Arc::new(ApiResponse::of_text(" ".repeat(size)))
    }

    #[tokio::test]
    async fn large_answers_are_worked_on_elsewhere() {
        let here = thread::current().id();
        let there = async |size: usize| {
            let work = |_: &Arc<ApiResponse>| Ok(thread::current().id());
            ResponseParser::default().run(&answer(size), Client::default(), work).await.unwrap()
        };
        assert_eq!(there(SMALL).await, here);
        assert_ne!(there(SMALL + 1).await, here);
    }

    #[tokio::test]
    async fn large_answers_are_worked_on_one_at_a_time_with_memory() {
        let parser = ResponseParser::default();
        let (answer, working) = (answer(1 << 20), Arc::new(AtomicUsize::new(0)));
        let run = || {
            let working = working.clone();
            parser.run(&answer, Client::default(), move |answer| {
                let others = working.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                working.fetch_sub(1, Ordering::SeqCst);
                Ok((others, MEMORY.used() >= answer.body.len()))
            })
        };
        let outcomes = join_all((0..20).map(|_| run())).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Ok((0, true))), "{outcomes:?}");
    }
}
