//! The memory reservation of one shared read.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use libris_core::{Budget, Client, ContentMemory, Lease};
use tokio::time::timeout;

use crate::lock::lock;

/// How long a read waits for memory. Most configurations have a shorter request timeout in the transport.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(300);

/// The memory reservation of one shared read, taken from a budget in bytes.
pub(crate) struct ReadMemory {
    budget: Arc<Budget>,
    client: Client,
    state: Mutex<ReadReservation>,
}

struct ReadReservation {
    lease: Option<Lease>,
    /// The bytes of the lease that the source has reserved.
    bytes: usize,
    /// The total size that the last failed reservation would have needed, in bytes.
    wanted: Option<usize>,
}

impl ReadMemory {
    pub(crate) fn new(budget: &Arc<Budget>, client: Client) -> Arc<Self> {
        let state = Mutex::new(ReadReservation { lease: None, bytes: 0, wanted: None });
        Arc::new(Self { budget: budget.clone(), client, state })
    }

    fn state(&self) -> MutexGuard<'_, ReadReservation> {
        lock(&self.state)
    }

    /// Waits for the memory that a failed reservation needed, and takes it, so that the read can start over. Returns
    /// `false` if no reservation failed, or if the wait times out.
    pub(crate) async fn wait_for_memory(&self) -> bool {
        let wanted = {
            let mut state = self.state();
            // Release the lease first: reads that hold memory while they wait for more would deadlock.
            (state.lease, state.bytes) = (None, 0);
            state.wanted.take()
        };
        let Some(wanted) = wanted else { return false };
        let taken = timeout(MEMORY_TIMEOUT, self.budget.take(self.client, wanted)).await;
        let mut state = self.state();
        state.lease = taken.ok().flatten();
        state.lease.is_some()
    }

    /// Raises the reservation to `bytes`, the size of the loaded contents; `false` if the budget has not enough left.
    pub(crate) fn raise_to(&self, bytes: usize) -> bool {
        let reserved = self.state().bytes;
        self.grow(bytes.saturating_sub(reserved))
    }

    /// Ends the reservation and returns its lease, reduced to the reserved bytes.
    pub(crate) fn settle(&self) -> Option<Lease> {
        let mut state = self.state();
        let bytes = state.bytes;
        let mut lease = state.lease.take()?;
        lease.resize(bytes.min(lease.amount()));
        Some(lease)
    }
}

impl ContentMemory for ReadMemory {
    fn reserve(&self, bytes: usize) -> bool {
        let mut state = self.state();
        let bytes = state.bytes.saturating_add(bytes);
        let reserved = match &mut state.lease {
            // `wait_for_memory` took this much in advance.
            Some(lease) if bytes <= lease.amount() => true,
            Some(lease) => lease.resize(bytes),
            None => {
                state.lease = self.budget.try_take(self.client, bytes);
                state.lease.is_some()
            }
        };
        match reserved {
            true => state.bytes = bytes,
            false => state.wanted = Some(bytes),
        }
        reserved
    }

    fn grow(&self, bytes: usize) -> bool {
        let reserved = self.reserve(bytes);
        if !reserved {
            self.state().wanted = None;
        }
        reserved
    }
}

#[cfg(test)]
mod tests {
    use super::ReadMemory;
    use futures_util::FutureExt as _;
    use libris_core::{Budget, Client, ContentMemory as _};

    #[tokio::test]
    async fn a_read_without_memory_releases_its_lease_and_waits() {
        let budget = Budget::with_share(100, 100);
        let (one, other) =
            (ReadMemory::new(&budget, Client::default()), ReadMemory::new(&budget, Client::default()));
        assert!(one.reserve(60) && other.reserve(30) && !other.reserve(30));
        let mut waiting = Box::pin(other.wait_for_memory());
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(budget.used(), 60);
        drop(one.settle());
        assert!(waiting.await);
        assert!(other.reserve(30) && other.reserve(30));
        assert_eq!(other.settle().unwrap().amount(), 60);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_read_that_must_not_start_over_does_not_wait() {
        let budget = Budget::with_share(100, 100);
        let _rest = budget.try_take(Client::default(), 90).unwrap();
        let loading = ReadMemory::new(&budget, Client::default());
        assert!(loading.reserve(10) && !loading.grow(10));
        assert!(!loading.wait_for_memory().await);
    }
}
