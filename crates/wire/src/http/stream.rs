//! HTTP/2 streams. A stream whose client does not read the response is reset on its own; the other streams of the
//! connection continue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use hyper::rt::Executor;
use libris_core::{Budget, Client, Lease};
use tokio::task::AbortHandle;

use super::liveness::Liveness;
use crate::content_budget::Recipient;
use crate::lock::lock;

tokio::task_local! {
    /// The stream whose request the current task answers.
    static CURRENT: Arc<Stream>;
}

/// One HTTP/2 request and its response, until the response is sent.
#[derive(Default)]
pub(super) struct Stream {
    /// How many bytes of the response were passed to hyper.
    bytes_passed: AtomicU64,
    /// How many of these hyper has sent or dropped.
    bytes_sent: AtomicU64,
    /// Woken when hyper has sent all bytes that were passed to it.
    drained: AtomicWaker,
    /// The task that answers the request. When it is aborted, hyper resets the stream.
    task: OnceLock<AbortHandle>,
    /// The activity and the close signal of the connection that carries the stream.
    liveness: OnceLock<Arc<Liveness>>,
    /// The unit of the stream budget that the stream holds. Event streams hold none.
    slot: Mutex<Option<Lease>>,
}

/// Hyper's executor: spawns a task for each stream, with the [`Stream`] as its task-local value.
#[derive(Clone, Debug)]
pub(super) struct Spawn;

impl<F> Executor<F> for Spawn
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, answering: F) {
        let stream = Arc::new(Stream::default());
        let task = tokio::spawn(CURRENT.scope(stream.clone(), answering));
        // The cell is set nowhere else.
        let _ = stream.task.set(task.abort_handle());
    }
}

impl Stream {
    /// The stream of the current task, with a unit of the stream budget; `None` if the budget is used up.
    pub(super) fn enter(
        streams: &Arc<Budget>,
        client: Client,
        liveness: &Arc<Liveness>,
    ) -> Option<Arc<Self>> {
        let stream = CURRENT.try_with(Arc::clone).ok()?;
        *lock(&stream.slot) = Some(streams.try_take(client, 1)?);
        let _ = stream.liveness.set(liveness.clone());
        liveness.watch_stream(&stream);
        Some(stream)
    }

    /// Releases the unit of the stream budget, because the response is an event stream: event streams have another
    /// budget.
    pub(super) fn release_slot(&self) {
        lock(&self.slot).take();
    }

    /// Records bytes passed to hyper.
    pub(super) fn record_passed(&self, bytes: usize) {
        self.bytes_passed.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// Records bytes that hyper has sent or dropped.
    pub(super) fn record_sent(&self, bytes: usize) {
        let sent = self.bytes_sent.fetch_add(bytes as u64, Ordering::AcqRel) + bytes as u64;
        if let Some(liveness) = self.liveness.get() {
            liveness.record_sent(bytes);
        }
        if sent >= self.bytes_passed.load(Ordering::Acquire) {
            self.drained.wake();
        }
    }

    /// Whether hyper has bytes of the response that it has not sent.
    pub(super) fn is_unsent(&self) -> bool {
        self.bytes_sent.load(Ordering::Acquire) < self.bytes_passed.load(Ordering::Acquire)
    }

    /// Ready when hyper has sent all bytes that were passed to it.
    pub(super) fn poll_drained(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_unsent() {
            return Poll::Ready(());
        }
        self.drained.register(context.waker());
        if self.is_unsent() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Recipient for Stream {
    fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Ordering::Relaxed)
    }

    fn sharers(&self) -> u64 {
        self.liveness.get().map_or(1, |liveness| liveness.unsent_streams() as u64)
    }

    /// Resets the stream by aborting its task. If the task has ended, because hyper has taken the whole response, the
    /// stream can no longer be reset; then closes the connection.
    fn close(&self) {
        match self.task.get() {
            Some(task) if !task.is_finished() => task.abort(),
            _ => self.liveness.get().into_iter().for_each(|liveness| liveness.close()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Liveness, Spawn, Stream};
    use crate::content_budget::Recipient as _;
    use futures_util::FutureExt as _;
    use hyper::rt::Executor as _;
    use libris_core::{Budget, Client};
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use tokio::sync::oneshot;

    /// A stream of this connection whose task runs until the returned sender is dropped.
    async fn open(
        streams: &Arc<Budget>,
        liveness: &Arc<Liveness>,
    ) -> (Option<Arc<Stream>>, oneshot::Sender<()>) {
        let (sender, receiver) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let (streams, liveness) = (streams.clone(), liveness.clone());
        Spawn.execute(async move {
            let _ = sender.send(Stream::enter(&streams, Client::default(), &liveness));
            let _ = ended.await;
        });
        (receiver.await.unwrap(), end)
    }

    #[tokio::test]
    async fn a_stream_holds_its_slot_until_its_response_is_sent() {
        let (streams, liveness) = (Budget::with_share(1, 1), Arc::<Liveness>::default());
        let (stream, end) = open(&streams, &liveness).await;
        let stream = stream.unwrap();
        assert!(open(&streams, &liveness).await.0.is_none());
        stream.record_passed(5);
        stream.record_sent(4);
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(stream.poll_drained(&mut context), Poll::Pending);
        stream.record_sent(1);
        assert_eq!(stream.poll_drained(&mut context), Poll::Ready(()));
        drop(stream);
        assert_eq!(streams.used(), 1);
        drop(end);
        while streams.used() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_stalled_stream_is_reset_although_others_progress() {
        let (streams, liveness) = (Budget::with_share(8, 8), Arc::<Liveness>::default());
        liveness.begin_request();
        let (busy, _busy) = open(&streams, &liveness).await;
        let (waits, _waits) = open(&streams, &liveness).await;
        let (stalled, mut end) = open(&streams, &liveness).await;
        let (busy, _waits, stalled) = (busy.unwrap(), waits.unwrap(), stalled.unwrap());
        stalled.record_passed(10);
        let mut checks = 0;
        while end.closed().now_or_never().is_none() && checks < 100 {
            checks += 1;
            busy.record_passed(1);
            busy.record_sent(1);
            assert_eq!(liveness.check(), None);
            tokio::task::yield_now().await;
        }
        assert_eq!(checks, super::super::liveness::CHECKS_WITHOUT_ACTIVITY + 1);
        drop(stalled);
        assert_eq!(streams.used(), 2);
        assert!(liveness.close_requested().now_or_never().is_none(), "the connection stays");
        assert_eq!(busy.sharers(), 0);
        busy.record_passed(1);
        assert_eq!(busy.sharers(), 1);
    }

    #[tokio::test]
    async fn closing_a_stream_that_hyper_has_released_closes_the_connection() {
        let (streams, liveness) = (Budget::with_share(8, 8), Arc::<Liveness>::default());
        let (stream, mut end) = open(&streams, &liveness).await;
        let stream = stream.unwrap();
        stream.close();
        end.closed().await;
        assert!(liveness.close_requested().now_or_never().is_none());
        stream.close();
        assert!(liveness.close_requested().now_or_never().is_some());
    }
}
