//! Waiting with a bound.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// What `work` comes to; `None` where it takes longer than `time`. No clock is started for work that is
/// done at once.
pub(crate) async fn within<F: Future>(time: Duration, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => tokio::time::timeout(time, work).await.ok(),
    }
}
