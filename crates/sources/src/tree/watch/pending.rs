//! The changes that the stream has not yet delivered, coalesced by URI, so that a slow consumer needs bounded memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use libris_core::{Change, Uri};

use super::events::WakeHandle;

/// The maximum number of resources with pending changes. Beyond that, the stream reports [`Change::Lost`].
const MAX_RESOURCES: usize = 100_000;

/// The pending changes, shared by the watcher and the stream.
#[derive(Default)]
pub(super) struct PendingChanges {
    changes: Mutex<ChangeSet>,
}

#[derive(Default)]
struct ChangeSet {
    changes: BTreeMap<Uri, PendingChange>,
    /// The URI delivered last. Delivery continues after it, so that frequent changes of one resource do not
    /// starve the others.
    last: Option<Uri>,
    lost: bool,
    closed: bool,
    waker: Option<Waker>,
}

/// The coalesced changes of one resource.
#[derive(Default)]
struct PendingChange {
    /// Whether it was added or removed; if so, the other flags are not reported.
    presence: Option<Presence>,
    /// The contents changed.
    updated: bool,
    /// The metadata changed.
    described: bool,
}

#[derive(Clone, Copy)]
enum Presence {
    Added,
    Removed,
}

impl PendingChanges {
    /// Adds a change without waking the consumer; call [`wake`](Self::wake) after a batch.
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

    /// Wakes the consumer of the stream.
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
    /// Merges a change into the pending changes of its resource.
    fn put(&mut self, change: Change) {
        let (uri, change): (_, fn(&mut PendingChange)) = match change {
            Change::Updated(uri) => (uri, |pending| pending.updated = true),
            Change::Described(uri) => (uri, |pending| pending.described = true),
            Change::Added(uri) => (uri, PendingChange::add),
            Change::Removed(uri) => {
                // The addition was not delivered yet, so for the consumer the resource never existed.
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

    /// The next change to deliver.
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
            // Both changed: delivers `Updated` now and `Described` in the next round. `last` advances here too:
            // otherwise a file that changes before each delivery would be delivered for ever, and the others never.
            pending.updated = false;
            self.last = Some(uri.clone());
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
            // The removal was not delivered yet, so for the consumer the resource has only changed.
            Some(Presence::Removed) => Self { presence: None, updated: true, described: true },
            _ => Self { presence: Some(Presence::Added), ..Self::default() },
        };
    }
}

/// The stream of changes. Dropping it stops the watcher.
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

#[cfg(test)]
mod tests {
    use super::PendingChanges;
    use libris_core::{Change, Uri};

    #[test]
    fn a_resource_that_changes_before_each_delivery_does_not_starve_the_others() {
        let [busy, other] = ["test:a", "test:b"].map(|uri| Uri::parse(uri).unwrap());
        let pending = PendingChanges::default();
        pending.put(Change::Updated(other.clone()));
        let mut delivered = Vec::new();
        for _ in 0..3 {
            pending.put(Change::Updated(busy.clone()));
            pending.put(Change::Described(busy.clone()));
            delivered.extend(pending.lock().take());
        }
        assert_eq!(delivered, [Change::Updated(busy.clone()), Change::Updated(other), Change::Updated(busy)]);
    }
}
