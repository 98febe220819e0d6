//! Waiting with a bound.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// What `work` comes to; `None` where it takes longer than `time`. No clock is started for work that is
/// done at once.
pub(crate) async fn within<F: Future>(time: Duration, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => tokio::time::timeout(time, work).await.ok(),
    }
}

/// The same for work whose time starts at what `start` tells, which may be later and later.
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
