//! The changes that were not told yet: a set, so that a listener who is slow costs no more than that.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use libris_core::{Change, Uri};

use super::events::Bell;

/// How many resources may have untold changes. Beyond, whoever listens had better look at everything.
const LIMIT: usize = 100_000;

/// What is owed to the one who listens.
#[derive(Default)]
pub(super) struct Outbox {
    owed: Mutex<Owed>,
}

#[derive(Default)]
struct Owed {
    changes: BTreeMap<Uri, News>,
    /// Whose turn it was last: the next one is after it, so that nobody's is never.
    last: Option<Uri>,
    lost: bool,
    closed: bool,
    waker: Option<Waker>,
}

/// What is new about one resource, taken together.
#[derive(Default)]
struct News {
    presence: Option<Presence>,
    updated: bool,
    described: bool,
}

#[derive(Clone, Copy)]
enum Presence {
    Added,
    Removed,
}

impl Outbox {
    pub(super) fn put(&self, change: Change) {
        let mut owed = self.lock();
        if owed.lost {
            return;
        }
        owed.put(change);
        if owed.changes.len() > LIMIT {
            owed.lost = true;
            owed.changes.clear();
        }
    }

    /// Tells the one who listens that there may be something.
    pub(super) fn send(&self) {
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

    fn lock(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owed {
    fn put(&mut self, change: Change) {
        let (uri, change): (_, fn(&mut News)) = match change {
            Change::Updated(uri) => (uri, |news| news.updated = true),
            Change::Described(uri) => (uri, |news| news.described = true),
            Change::Added(uri) => (uri, News::add),
            Change::Removed(uri) => {
                // What came and went in between was never there.
                if matches!(self.changes.get(&uri), Some(News { presence: Some(Presence::Added), .. })) {
                    self.changes.remove(&uri);
                    return;
                }
                (uri, |news| *news = News { presence: Some(Presence::Removed), ..News::default() })
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
        let news = self.changes.get_mut(&uri)?;
        if news.presence.is_none() && news.updated && news.described {
            news.updated = false;
            return Some(Change::Updated(uri));
        }
        let news = self.changes.remove(&uri)?;
        self.last = Some(uri.clone());
        Some(match news {
            News { presence: Some(Presence::Added), .. } => Change::Added(uri),
            News { presence: Some(Presence::Removed), .. } => Change::Removed(uri),
            News { updated: true, .. } => Change::Updated(uri),
            _ => Change::Described(uri),
        })
    }
}

impl News {
    fn add(&mut self) {
        *self = match self.presence {
            // It was there when the listener last heard of it, and is there again.
            Some(Presence::Removed) => Self { presence: None, updated: true, described: true },
            _ => Self { presence: Some(Presence::Added), ..Self::default() },
        };
    }
}

/// The changes of a folder. Dropping it ends the watch.
pub(crate) struct Changes {
    outbox: Arc<Outbox>,
    bell: Bell,
}

impl Changes {
    pub(super) fn new(outbox: Arc<Outbox>, bell: Bell) -> Self {
        Self { outbox, bell }
    }
}

impl Stream for Changes {
    type Item = Change;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Change>> {
        let mut owed = self.outbox.lock();
        if let Some(change) = owed.take() {
            return Poll::Ready(Some(change));
        }
        if owed.closed {
            return Poll::Ready(None);
        }
        owed.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.outbox.close();
        self.bell.ring();
    }
}
