//! The changes that were not told yet: a set, so that a listener who is slow costs no more than that.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use libris_core::{Change, Uri};

use super::events::WakeHandle;

/// How many resources may have untold changes. Beyond, whoever listens had better look at everything.
const MAX_RESOURCES: usize = 100_000;

/// What is owed to the one who listens.
#[derive(Default)]
pub(super) struct PendingChanges {
    changes: Mutex<ChangeSet>,
}

#[derive(Default)]
struct ChangeSet {
    changes: BTreeMap<Uri, PendingChange>,
    /// Whose turn it was last: the next one is after it, so that nobody's is never.
    last: Option<Uri>,
    lost: bool,
    closed: bool,
    waker: Option<Waker>,
}

/// What is new about one resource, taken together.
#[derive(Default)]
struct PendingChange {
    presence: Option<Presence>,
    updated: bool,
    described: bool,
}

#[derive(Clone, Copy)]
enum Presence {
    Added,
    Removed,
}

impl PendingChanges {
    pub(super) fn put(&self, change: Change) {
        let mut changes = self.lock();
        if changes.lost {
            return;
        }
        changes.put(change);
        if changes.changes.len() > MAX_RESOURCES {
            changes.lost = true;
            changes.changes.clear();
        }
    }

    /// Tells the one who listens that there may be something.
    pub(super) fn wake(&self) {
        let waker = self.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    fn lock(&self) -> MutexGuard<'_, ChangeSet> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChangeSet {
    fn put(&mut self, change: Change) {
        let (uri, change): (_, fn(&mut PendingChange)) = match change {
            Change::Updated(uri) => (uri, |pending| pending.updated = true),
            Change::Described(uri) => (uri, |pending| pending.described = true),
            Change::Added(uri) => (uri, PendingChange::add),
            Change::Removed(uri) => {
                // What came and went in between was never there.
                if matches!(
                    self.changes.get(&uri),
                    Some(PendingChange { presence: Some(Presence::Added), .. })
                ) {
                    self.changes.remove(&uri);
                    return;
                }
                (uri, |pending| {
                    *pending = PendingChange { presence: Some(Presence::Removed), ..PendingChange::default() }
                })
            }
            _ => {
                self.lost = true;
                return;
            }
        };
        change(self.changes.entry(uri).or_default());
    }

    fn take(&mut self) -> Option<Change> {
        if std::mem::take(&mut self.lost) {
            return Some(Change::Lost);
        }
        if self.changes.is_empty() {
            self.last = None;
        }
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.changes.range::<Uri, _>((after, Bound::Unbounded)).next();
        let uri = next.or_else(|| self.changes.first_key_value())?.0.clone();
        let pending = self.changes.get_mut(&uri)?;
        if pending.presence.is_none() && pending.updated && pending.described {
            pending.updated = false;
            return Some(Change::Updated(uri));
        }
        let pending = self.changes.remove(&uri)?;
        self.last = Some(uri.clone());
        Some(match pending {
            PendingChange { presence: Some(Presence::Added), .. } => Change::Added(uri),
            PendingChange { presence: Some(Presence::Removed), .. } => Change::Removed(uri),
            PendingChange { updated: true, .. } => Change::Updated(uri),
            _ => Change::Described(uri),
        })
    }
}

impl PendingChange {
    fn add(&mut self) {
        *self = match self.presence {
            // It was there when the listener last heard of it, and is there again.
            Some(Presence::Removed) => Self { presence: None, updated: true, described: true },
            _ => Self { presence: Some(Presence::Added), ..Self::default() },
        };
    }
}

/// The changes of a folder. Dropping it ends the watch.
pub(crate) struct ChangeStream {
    pending: Arc<PendingChanges>,
    wake_handle: WakeHandle,
}

impl ChangeStream {
    pub(super) fn new(pending: Arc<PendingChanges>, wake_handle: WakeHandle) -> Self {
        Self { pending, wake_handle }
    }
}

impl Stream for ChangeStream {
    type Item = Change;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Change>> {
        let mut changes = self.pending.lock();
        if let Some(change) = changes.take() {
            return Poll::Ready(Some(change));
        }
        if changes.closed {
            return Poll::Ready(None);
        }
        changes.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for ChangeStream {
    fn drop(&mut self) {
        self.pending.close();
        self.wake_handle.wake();
    }
}
