//! The queue of session writes that wait for Redis.
//!
//! While Redis cannot be reached, saved sessions and subscriptions fail at once, because the replica has them in memory
//! and saves them again later. Removals (the end of a session, or of a subscription) stay in the queue until Redis has
//! them: afterwards no replica remembers them, so they could not be repeated.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libris::wire::http::SavedSession;
use tokio::sync::{Notify, oneshot};

/// The largest number of waiting writes that are no removals. While there are as many, further ones fail.
const MAX_WRITES: usize = 4_096;

/// The limits of waiting removals: their number, and the bytes of their ids and URIs. If a limit is exceeded, further
/// removals are dropped. The session then stays in Redis until it has been idle for its time to live.
const MAX_REMOVALS: usize = 100_000;
const MAX_REMOVAL_BYTES: usize = 8 << 20;

/// A write of a session.
pub(crate) struct SessionWrite {
    pub(crate) action: SessionAction,
    /// Receives whether the write succeeded; dropped if it was not attempted.
    pub(crate) done: Option<oneshot::Sender<bool>>,
}

pub(crate) enum SessionAction {
    Save { id: String, session: SavedSession, keep: Duration },
    Subscribe { id: String, uri: String },
    Unsubscribe { id: String, uri: String },
    End { id: String },
    Touch { ids: Vec<Arc<str>>, keep: Duration },
}

impl SessionWrite {
    /// The bytes of a removal; `None` if the write is no removal.
    fn removal_bytes(&self) -> Option<usize> {
        match &self.action {
            SessionAction::End { id } => Some(id.len()),
            SessionAction::Unsubscribe { id, uri } => Some(id.len() + uri.len()),
            SessionAction::Save { .. } | SessionAction::Subscribe { .. } | SessionAction::Touch { .. } => {
                None
            }
        }
    }

    /// Whether the caller has stopped waiting for the outcome.
    fn is_abandoned(&self) -> bool {
        self.done.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}

/// The waiting writes, in the order in which they were queued.
#[derive(Default)]
pub(crate) struct SessionQueue {
    state: Mutex<SessionQueueState>,
    added: Notify,
}

#[derive(Default)]
struct SessionQueueState {
    writes: VecDeque<SessionWrite>,
    /// How many of the writes are removals, and their bytes.
    removals: usize,
    removal_bytes: usize,
    /// Whether writes other than removals were dropped, so that all sessions must be saved again.
    has_dropped: bool,
}

impl SessionQueueState {
    /// Adds a write, if the limits allow it. If not, `done` is dropped, and its receiver learns of the failure.
    fn put(&mut self, write: SessionWrite) {
        match write.removal_bytes() {
            Some(bytes)
                if self.removals >= MAX_REMOVALS || self.removal_bytes + bytes > MAX_REMOVAL_BYTES =>
            {
                tracing::warn!("too many removals of sessions wait for Redis; one is dropped");
                return;
            }
            Some(bytes) => {
                self.removals += 1;
                self.removal_bytes += bytes;
            }
            None if self.writes.len() - self.removals >= MAX_WRITES => {
                self.has_dropped = true;
                return;
            }
            None => {}
        }
        self.writes.push_back(write);
    }

    fn take_next(&mut self) -> Option<SessionWrite> {
        let write = self.writes.pop_front()?;
        if let Some(bytes) = write.removal_bytes() {
            self.removals -= 1;
            self.removal_bytes -= bytes;
        }
        Some(write)
    }
}

impl SessionQueue {
    fn lock(&self) -> MutexGuard<'_, SessionQueueState> {
        // A poisoned lock is usable: every statement leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, write: SessionWrite) {
        self.lock().put(write);
        self.added.notify_one();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().writes.is_empty()
    }

    /// Completes after [`put`](Self::put).
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }

    /// Removes and returns the next writes, at most `most`. Leaves out those that nobody waits for any more: after a
    /// failure was reported for a subscription, the client may have ended it.
    pub(crate) fn take(&self, most: usize) -> Vec<SessionWrite> {
        let mut state = self.lock();
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(write) = state.take_next()
        {
            match write.is_abandoned() {
                true => state.has_dropped = true,
                false => taken.push(write),
            }
        }
        taken
    }

    /// Puts the removals among these writes, which failed, back to the front of the queue. The other writes fail, also
    /// those in the queue.
    pub(crate) fn put_back(&self, failed: Vec<SessionWrite>) {
        let mut state = self.lock();
        let later = std::mem::take(&mut state.writes);
        (state.removals, state.removal_bytes) = (0, 0);
        for write in failed.into_iter().chain(later) {
            match write.removal_bytes() {
                Some(_) => state.put(write),
                None => state.has_dropped = true,
            }
        }
    }

    /// Whether writes other than removals were dropped since the last call.
    pub(crate) fn has_dropped(&self) -> bool {
        std::mem::take(&mut self.lock().has_dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_REMOVALS, MAX_WRITES, SessionAction, SessionQueue, SessionWrite};
    use libris::wire::http::SavedSession;
    use std::time::Duration;
    use tokio::sync::oneshot;

    fn write(action: SessionAction) -> SessionWrite {
        SessionWrite { action, done: None }
    }

    fn end(id: &str) -> SessionWrite {
        write(SessionAction::End { id: id.to_owned() })
    }

    fn subscribe(id: &str) -> SessionWrite {
        write(SessionAction::Subscribe { id: id.to_owned(), uri: "a:b".to_owned() })
    }

    /// The ids of the next writes.
    fn take(queue: &SessionQueue) -> Vec<String> {
        let id = |write: SessionWrite| match write.action {
            SessionAction::Save { id, .. }
            | SessionAction::Subscribe { id, .. }
            | SessionAction::Unsubscribe { id, .. }
            | SessionAction::End { id } => id,
            SessionAction::Touch { .. } => String::new(),
        };
        queue.take(usize::MAX).into_iter().map(id).collect()
    }

    #[test]
    fn removals_wait_until_they_succeed_and_other_writes_fail() {
        let queue = SessionQueue::default();
        let (done, mut outcome) = oneshot::channel();
        let (id, session) = ("saved".to_owned(), SavedSession::default());
        let action = SessionAction::Save { id, session, keep: Duration::ZERO };
        queue.put(SessionWrite { action, done: Some(done) });
        queue.put(end("first"));
        let taken = queue.take(10);
        assert_eq!(taken.len(), 2);
        queue.put(subscribe("later"));
        queue.put(end("second"));
        queue.put_back(taken);
        assert!(outcome.try_recv().is_err(), "it has failed");
        assert_eq!(take(&queue), ["first", "second"]);
        assert!(queue.has_dropped() && !queue.has_dropped());
        assert!(queue.is_empty());
    }

    #[test]
    fn a_write_that_nobody_waits_for_is_left_out() {
        let queue = SessionQueue::default();
        let (done, _) = oneshot::channel();
        let action = SessionAction::Subscribe { id: "late".to_owned(), uri: "a:b".to_owned() };
        queue.put(SessionWrite { action, done: Some(done) });
        queue.put(end("ended"));
        assert_eq!(take(&queue), ["ended"]);
        assert!(queue.has_dropped());
    }

    #[test]
    fn the_queue_is_bounded_and_writes_do_not_displace_removals() {
        let queue = SessionQueue::default();
        (0..=MAX_WRITES).for_each(|_| queue.put(subscribe("one")));
        assert!(queue.has_dropped());
        (0..=MAX_REMOVALS).for_each(|_| queue.put(end("two")));
        assert_eq!(queue.take(usize::MAX).len(), MAX_WRITES + MAX_REMOVALS);
        queue.put(write(SessionAction::Unsubscribe { id: "x".to_owned(), uri: "a:".repeat(5 << 20) }));
        assert!(queue.is_empty(), "one removal is too large");
        queue.put(end("three"));
        assert_eq!(take(&queue), ["three"]);
    }
}
