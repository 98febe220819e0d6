//! HTTP/2 streams. A stream whose client does not read the response is reset by itself, independently of the other
//! streams of the connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use hyper::rt::Executor;
use libris_core::{Budget, Client, Lease};
use tokio::task::AbortHandle;

use super::pulse::Pulse;
use crate::lock::lock;
use crate::unsent::Recipient;

tokio::task_local! {
    /// The stream that the task answers.
    static CURRENT: Arc<Stream>;
}

/// One HTTP/2 request and its response, until the response is sent.
#[derive(Default)]
pub(super) struct Stream {
    /// How many bytes of the response hyper has received, and how many of these it has sent.
    given: AtomicU64,
    taken: AtomicU64,
    /// Woken when hyper has sent all that it has received.
    left: AtomicWaker,
    /// The task that answers the request. When it is aborted, hyper resets the stream.
    task: OnceLock<AbortHandle>,
    /// The connection of the stream.
    connection: OnceLock<Arc<Pulse>>,
    /// The unit of the stream budget that it holds, unless it is an event stream.
    place: Mutex<Option<Lease>>,
}

/// Hyper's executor: spawns the task of each stream, with the stream as its task-local value.
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
    pub(super) fn enter(streams: &Arc<Budget>, client: Client, connection: &Arc<Pulse>) -> Option<Arc<Self>> {
        let stream = CURRENT.try_with(Arc::clone).ok()?;
        *lock(&stream.place) = Some(streams.try_take(client, 1)?);
        let _ = stream.connection.set(connection.clone());
        connection.watch(&stream);
        Some(stream)
    }

    /// Releases its unit of the stream budget, since event streams have a budget of their own.
    pub(super) fn give_place(&self) {
        lock(&self.place).take();
    }

    /// Records bytes passed to hyper.
    pub(super) fn give(&self, bytes: usize) {
        self.given.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// Records bytes that hyper has sent or dropped.
    pub(super) fn leave(&self, bytes: usize) {
        let taken = self.taken.fetch_add(bytes as u64, Ordering::AcqRel) + bytes as u64;
        if let Some(connection) = self.connection.get() {
            connection.sent(bytes);
        }
        if taken >= self.given.load(Ordering::Acquire) {
            self.left.wake();
        }
    }

    /// Whether hyper has bytes of the response that it has not sent.
    pub(super) fn is_unsent(&self) -> bool {
        self.taken.load(Ordering::Acquire) < self.given.load(Ordering::Acquire)
    }

    /// Ready when hyper has sent all that it has received.
    pub(super) fn poll_left(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_unsent() {
            return Poll::Ready(());
        }
        self.left.register(context.waker());
        if self.is_unsent() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Recipient for Stream {
    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn sharers(&self) -> u64 {
        self.connection.get().map_or(1, |connection| connection.unsent_streams() as u64)
    }

    /// Resets the stream. If hyper has received the whole response it has released the stream, and the connection is
    /// closed instead.
    fn close(&self) {
        match self.task.get() {
            Some(task) if !task.is_finished() => task.abort(),
            _ => self.connection.get().into_iter().for_each(|connection| connection.close()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pulse, Spawn, Stream};
    use crate::unsent::Recipient as _;
    use futures_util::FutureExt as _;
    use hyper::rt::Executor as _;
    use libris_core::{Budget, Client};
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use tokio::sync::oneshot;

    /// A stream of this connection whose task runs until the returned sender is dropped.
    async fn open(streams: &Arc<Budget>, pulse: &Arc<Pulse>) -> (Option<Arc<Stream>>, oneshot::Sender<()>) {
        let (sender, receiver) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let (streams, pulse) = (streams.clone(), pulse.clone());
        Spawn.execute(async move {
            let _ = sender.send(Stream::enter(&streams, Client::default(), &pulse));
            let _ = ended.await;
        });
        (receiver.await.unwrap(), end)
    }

    #[tokio::test]
    async fn a_stream_keeps_its_place_until_its_response_has_left() {
        let (streams, pulse) = (Budget::with_share(1, 1), Arc::<Pulse>::default());
        let (stream, end) = open(&streams, &pulse).await;
        let stream = stream.unwrap();
        assert!(open(&streams, &pulse).await.0.is_none());
        stream.give(5);
        stream.leave(4);
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(stream.poll_left(&mut context), Poll::Pending);
        stream.leave(1);
        assert_eq!(stream.poll_left(&mut context), Poll::Ready(()));
        drop(stream);
        assert_eq!(streams.used(), 1);
        drop(end);
        while streams.used() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_stalled_stream_is_let_go_although_others_move() {
        let (streams, pulse) = (Budget::with_share(8, 8), Arc::<Pulse>::default());
        pulse.asked();
        let (busy, _busy) = open(&streams, &pulse).await;
        let (waits, _waits) = open(&streams, &pulse).await;
        let (stalled, mut end) = open(&streams, &pulse).await;
        let (busy, _waits, stalled) = (busy.unwrap(), waits.unwrap(), stalled.unwrap());
        stalled.give(10);
        let mut looks = 0;
        while end.closed().now_or_never().is_none() && looks < 100 {
            looks += 1;
            busy.give(1);
            busy.leave(1);
            assert_eq!(pulse.stopped(), None);
            tokio::task::yield_now().await;
        }
        assert_eq!(looks, super::super::pulse::STILL + 1);
        drop(stalled);
        assert_eq!(streams.used(), 2);
        assert!(pulse.closed().now_or_never().is_none(), "the connection stays");
        assert_eq!(busy.sharers(), 0);
        busy.give(1);
        assert_eq!(busy.sharers(), 1);
    }

    #[tokio::test]
    async fn a_stream_that_hyper_has_given_up_ends_with_its_connection() {
        let (streams, pulse) = (Budget::with_share(8, 8), Arc::<Pulse>::default());
        let (stream, mut end) = open(&streams, &pulse).await;
        let stream = stream.unwrap();
        stream.close();
        end.closed().await;
        assert!(pulse.closed().now_or_never().is_none());
        stream.close();
        assert!(pulse.closed().now_or_never().is_some());
    }
}
