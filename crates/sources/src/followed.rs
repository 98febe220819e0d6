//! The resources that clients subscribe to, for sources that detect changes by polling.
//!
//! A database or an API does not report which of its resources changed, and reading all of them is too expensive. So
//! a watch polls only the followed resources and compares each with its last known state.

#![allow(dead_code, reason = "each method is used by some sources, which are features")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libris_core::Uri;
use tokio::sync::watch;

/// The maximum number of followed resources. If there are more, the watch reports that changes were lost, and clients
/// read again.
pub(crate) const MAX_FOLLOWED: usize = 1000;

/// The resources that are followed while there is a watch, each with its last known state.
pub(crate) struct Followed<T> {
    state: Mutex<FollowedState<T>>,
    /// Wakes the watches when a resource is added.
    added: watch::Sender<()>,
}

struct FollowedState<T> {
    /// The number of watches. Nothing is followed without one.
    watches: usize,
    resources: BTreeMap<Uri, T>,
    /// Whether a resource was not added, because [`MAX_FOLLOWED`] resources were followed already.
    full: bool,
    /// The number of overflows, each of which cleared the set.
    overflows: u64,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        let state = FollowedState { watches: 0, resources: BTreeMap::new(), full: false, overflows: 0 };
        Self { state: Mutex::new(state), added: watch::Sender::default() }
    }
}

impl<T> Followed<T> {
    fn lock(&self) -> MutexGuard<'_, FollowedState<T>> {
        // A panic cannot leave the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a watch. When the last watch is dropped, the set is cleared.
    pub(crate) fn watch(self: &Arc<Self>) -> FollowedWatch<T> {
        let mut state = self.lock();
        state.watches += 1;
        let overflows = state.overflows;
        drop(state);
        FollowedWatch { followed: Arc::clone(self), added: self.added.subscribe(), overflows }
    }

    /// Follows a resource if there is a watch, with `known` as its state. If the resource is followed already, `again`
    /// may merge `known` into the stored state. If [`MAX_FOLLOWED`] resources are followed, the set overflows instead:
    /// see [`FollowedWatch::overflowed`].
    pub(crate) fn add(&self, uri: &Uri, known: T, again: impl FnOnce(&mut T, T)) {
        let mut state = self.lock();
        if state.watches == 0 {
            return;
        }
        if let Some(before) = state.resources.get_mut(uri) {
            again(before, known);
            return;
        }
        if state.resources.len() >= MAX_FOLLOWED {
            state.full = true;
            return;
        }
        state.resources.insert(uri.clone(), known);
        drop(state);
        self.added.send_replace(());
    }

    /// Stops following a resource.
    pub(crate) fn remove(&self, uri: &Uri) {
        self.lock().resources.remove(uri);
    }

    /// Accesses the state of a resource, if it is followed.
    pub(crate) fn with<R>(&self, uri: &Uri, access: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock().resources.get_mut(uri).map(access)
    }

    /// Applies `item` to all resources, in the order of their URIs, and collects the results that are not `None`.
    pub(crate) fn collect<C: FromIterator<R>, R>(&self, item: impl FnMut((&Uri, &T)) -> Option<R>) -> C {
        self.lock().resources.iter().filter_map(item).collect()
    }
}

/// A watch of a set of followed resources.
pub(crate) struct FollowedWatch<T> {
    followed: Arc<Followed<T>>,
    added: watch::Receiver<()>,
    /// The number of overflows at the last call of [`overflowed`](Self::overflowed), or when the watch began.
    overflows: u64,
}

impl<T> FollowedWatch<T> {
    /// Waits until a resource has been added since the last call, or since the watch began.
    pub(crate) async fn added(&mut self) {
        if self.added.changed().await.is_err() {
            // The sender lives as long as this watch.
            std::future::pending::<()>().await;
        }
    }

    /// Makes [`added`](Self::added) return once more, for resources that are still to be examined.
    pub(crate) fn wake(&mut self) {
        self.added.mark_changed();
    }

    /// Whether the set overflowed since the last call. An overflow clears the set: when the watch reports lost changes,
    /// the subscriptions follow their resources again.
    pub(crate) fn overflowed(&mut self) -> bool {
        let mut state = self.followed.lock();
        if std::mem::take(&mut state.full) {
            state.resources.clear();
            state.overflows += 1;
        }
        std::mem::replace(&mut self.overflows, state.overflows) != state.overflows
    }
}

impl<T> Drop for FollowedWatch<T> {
    fn drop(&mut self) {
        let mut state = self.followed.lock();
        state.watches -= 1;
        if state.watches == 0 {
            state.resources.clear();
            state.full = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use libris_core::Uri;

    use super::{Followed, MAX_FOLLOWED};

    fn uri(number: usize) -> Uri {
        Uri::parse(&format!("a:{number}")).unwrap()
    }

    #[test]
    fn a_set_that_overflows_is_cleared_and_reported_to_every_watch() {
        let followed = Arc::new(Followed::default());
        let add = |number: usize| followed.add(&uri(number), number, |_, _| {});
        let count = || followed.collect::<Vec<_>, _>(|_| Some(())).len();
        add(0);
        assert_eq!(count(), 0, "there is no watch");
        let (mut one, mut other) = (followed.watch(), followed.watch());
        (0..MAX_FOLLOWED).for_each(add);
        assert!(!one.overflowed());
        add(0);
        assert!(!one.overflowed(), "it is followed already");
        add(MAX_FOLLOWED);
        assert!(one.overflowed() && !one.overflowed());
        assert_eq!(count(), 0);
        assert!(other.overflowed() && !other.overflowed());
        assert!(!followed.watch().overflowed(), "it began later");
        add(7);
        drop(one);
        assert_eq!(count(), 1);
        drop(other);
        assert_eq!(count(), 0);
    }

    #[test]
    fn every_watch_is_woken_once_for_what_is_added() {
        let followed = Arc::new(Followed::default());
        let mut watches = [followed.watch(), followed.watch()];
        followed.add(&uri(1), 1, |_, _| {});
        followed.add(&uri(2), 2, |_, _| {});
        followed.add(&uri(2), 3, |known, again| *known += again);
        assert_eq!(followed.with(&uri(2), |known| *known), Some(5));
        for watch in &mut watches {
            assert!(watch.added().now_or_never().is_some());
            assert!(watch.added().now_or_never().is_none());
            watch.wake();
            assert!(watch.added().now_or_never().is_some());
        }
    }
}
