//! The streams of HTTP/2. Each is let go by itself where its client does not take the response, whatever happens on
//! other streams of the connection.

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
    /// The stream that a task answers.
    static CURRENT: Arc<Stream>;
}

/// One request of HTTP/2 and its response, until the last of that has left.
#[derive(Default)]
pub(super) struct Stream {
    /// How many bytes of the response hyper has got, and how many of these have left for the client.
    given: AtomicU64,
    taken: AtomicU64,
    /// Woken when all that hyper has got has left.
    left: AtomicWaker,
    /// What answers it. Once that is aborted, hyper resets the stream.
    task: OnceLock<AbortHandle>,
    /// Its connection.
    connection: OnceLock<Arc<Pulse>>,
    /// Its place among all streams that are not streams of events.
    place: Mutex<Option<Lease>>,
}

/// Runs the tasks that answer streams.
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
        // Nobody else sets it.
        let _ = stream.task.set(task.abort_handle());
    }
}

impl Stream {
    /// The stream that this task answers, once there is a place for it; `None` if there is none.
    pub(super) fn enter(streams: &Arc<Budget>, client: Client, connection: &Arc<Pulse>) -> Option<Arc<Self>> {
        let stream = CURRENT.try_with(Arc::clone).ok()?;
        *lock(&stream.place) = Some(streams.try_take(client, 1)?);
        let _ = stream.connection.set(connection.clone());
        connection.watch(&stream);
        Some(stream)
    }

    /// Gives its place to others, as a stream of events is counted among those.
    pub(super) fn give_place(&self) {
        lock(&self.place).take();
    }

    /// Hyper gets so many bytes more.
    pub(super) fn give(&self, bytes: usize) {
        self.given.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// So many bytes have left.
    pub(super) fn leave(&self, bytes: usize) {
        let taken = self.taken.fetch_add(bytes as u64, Ordering::AcqRel) + bytes as u64;
        if let Some(connection) = self.connection.get() {
            connection.sent(bytes);
        }
        if taken >= self.given.load(Ordering::Acquire) {
            self.left.wake();
        }
    }

    /// Whether some of what hyper has got has not left.
    pub(super) fn is_unsent(&self) -> bool {
        self.taken.load(Ordering::Acquire) < self.given.load(Ordering::Acquire)
    }

    /// Is ready when all that hyper has got has left.
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

    /// Resets the stream. Where hyper has got all of the response it has given up the stream, which ends with its
    /// connection.
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

    /// A stream of this connection whose task runs until `end` is dropped.
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
