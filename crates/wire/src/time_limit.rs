//! Time limits for futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The output of `work`; `None` if it takes longer than `time`. No timer is created for work that is ready when first
/// polled.
pub(crate) async fn within<F: Future>(time: Duration, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => tokio::time::timeout(time, work).await.ok(),
    }
}

/// Like [`within`], but the limit counts from `start()`. When the timer fires, `start` is called again: if it returns a
/// later time than before, the deadline is extended. The start of a request advances while the request waits for memory.
pub(crate) async fn within_from<F: Future>(
    start: impl Fn() -> Instant,
    time: Duration,
    work: F,
) -> Option<F::Output> {
    let mut work = pin!(work);
    if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        return Some(done);
    }
    loop {
        let left = time.checked_sub(start().elapsed())?;
        if let Ok(done) = tokio::time::timeout(left, &mut work).await {
            return Some(done);
        }
    }
}
