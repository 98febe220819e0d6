//! Waiting with a bound.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// What `work` comes to; `None` where it takes longer than `time`. No clock is started for work that is
/// done at once.
pub(crate) async fn within<F: Future>(time: Duration, work: F) -> Option<F::Output> {
    limited(|| time, work).await
}

/// The same with what is left of `time` for work that began at `since`.
pub(crate) async fn within_since<F: Future>(since: Instant, time: Duration, work: F) -> Option<F::Output> {
    limited(|| time.saturating_sub(since.elapsed()), work).await
}

async fn limited<F: Future>(time: impl FnOnce() -> Duration, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => tokio::time::timeout(time(), work).await.ok(),
    }
}
