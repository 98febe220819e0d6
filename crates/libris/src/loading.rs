//! Memory for contents that are read once for all who ask.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libris_core::{Budget, Client, Lease, Memory};
use tokio::time::timeout;

/// How long a read waits for memory. The transport's own time limit is shorter in most configurations.
const PATIENCE: Duration = Duration::from_secs(300);

/// What one read has of a budget in bytes.
pub(crate) struct Loading {
    budget: Arc<Budget>,
    client: Client,
    state: Mutex<State>,
}

struct State {
    lease: Option<Lease>,
    /// How many bytes of the lease are spoken for.
    bytes: usize,
    /// How many bytes were asked for in vain.
    wanted: Option<usize>,
}

impl Loading {
    pub(crate) fn new(budget: &Arc<Budget>, client: Client) -> Arc<Self> {
        let state = Mutex::new(State { lease: None, bytes: 0, wanted: None });
        Arc::new(Self { budget: budget.clone(), client, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the memory that could not be had, for a read that starts over; `false` if none was missing, or if it
    /// cannot be had in time.
    pub(crate) async fn memory_is_free(&self) -> bool {
        let wanted = {
            let mut state = self.state();
            // Those who hold memory do not wait for more: they would wait for each other.
            (state.lease, state.bytes) = (None, 0);
            state.wanted.take()
        };
        let Some(wanted) = wanted else { return false };
        let taken = timeout(PATIENCE, self.budget.take(self.client, wanted)).await;
        let mut state = self.state();
        state.lease = taken.ok().flatten();
        state.lease.is_some()
    }

    /// Makes sure that memory is reserved for `bytes` in all, which are loaded already; `false` if there is none for those
    /// that were not reserved before.
    pub(crate) fn count(&self, bytes: usize) -> bool {
        let reserved = self.state().bytes;
        self.grow(bytes.saturating_sub(reserved))
    }

    /// The memory that was reserved, no more of it than was spoken for.
    pub(crate) fn settle(&self) -> Option<Lease> {
        let mut state = self.state();
        let bytes = state.bytes;
        let mut lease = state.lease.take()?;
        lease.resize(bytes.min(lease.amount()));
        Some(lease)
    }
}

impl Memory for Loading {
    fn reserve(&self, bytes: usize) -> bool {
        let mut state = self.state();
        let bytes = state.bytes.saturating_add(bytes);
        let there = match &mut state.lease {
            // What was waited for is there already.
            Some(lease) if bytes <= lease.amount() => true,
            Some(lease) => lease.resize(bytes),
            None => {
                state.lease = self.budget.try_take(self.client, bytes);
                state.lease.is_some()
            }
        };
        match there {
            true => state.bytes = bytes,
            false => state.wanted = Some(bytes),
        }
        there
    }

    fn grow(&self, bytes: usize) -> bool {
        let there = self.reserve(bytes);
        if !there {
            self.state().wanted = None;
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::Loading;
    use futures_util::FutureExt as _;
    use libris_core::{Budget, Client, Memory as _};

    #[tokio::test]
    async fn who_lacks_memory_lets_go_of_it_and_waits() {
        let budget = Budget::with_share(100, 100);
        let (one, other) =
            (Loading::new(&budget, Client::default()), Loading::new(&budget, Client::default()));
        assert!(one.reserve(60) && other.reserve(30) && !other.reserve(30));
        let mut waiting = Box::pin(other.memory_is_free());
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(budget.used(), 60);
        drop(one.settle());
        assert!(waiting.await);
        assert!(other.reserve(30) && other.reserve(30));
        assert_eq!(other.settle().unwrap().amount(), 60);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn who_must_not_start_over_does_not_wait() {
        let budget = Budget::with_share(100, 100);
        let _rest = budget.try_take(Client::default(), 90).unwrap();
        let loading = Loading::new(&budget, Client::default());
        assert!(loading.reserve(10) && !loading.grow(10));
        assert!(!loading.memory_is_free().await);
    }
}
