//! Remembers which contents replicas cannot share, so that reads of them do not ask the shared cache each time.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// The number of slots. A key replaces another key with the same slot, which costs a lookup in the shared cache.
const SLOTS: usize = 4096;

/// How long contents count as not shareable.
const PERIOD: Duration = Duration::from_secs(60);

/// The keys of the contents that could not be shared lately: because their time to live is zero, they are private, or they
/// are too large.
pub(super) struct UnsharedReads {
    hashes: RandomState,
    /// The hash of a key selects its slot.
    slots: Mutex<Box<[Option<UnsharedRead>]>>,
}

/// The contents of one key that could not be shared.
#[derive(Clone, Copy)]
struct UnsharedRead {
    /// The hash of the key.
    hash: u64,
    recorded: Instant,
}

impl Default for UnsharedReads {
    fn default() -> Self {
        Self { hashes: RandomState::new(), slots: Mutex::new(vec![None; SLOTS].into()) }
    }
}

impl UnsharedReads {
    fn slot(hash: u64) -> usize {
        (hash % SLOTS as u64) as usize
    }

    pub(super) fn record(&self, key: &str) {
        let hash = self.hashes.hash_one(key);
        lock(&self.slots)[Self::slot(hash)] = Some(UnsharedRead { hash, recorded: Instant::now() });
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        let hash = self.hashes.hash_one(key);
        lock(&self.slots)[Self::slot(hash)]
            .is_some_and(|unshared| unshared.hash == hash && unshared.recorded.elapsed() < PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::{PERIOD, UnsharedReads};

    #[tokio::test(start_paused = true)]
    async fn contents_count_as_not_shareable_for_a_while() {
        let unshared = UnsharedReads::default();
        unshared.record("one");
        assert!(unshared.contains("one") && !unshared.contains("two"));
        tokio::time::advance(PERIOD).await;
        assert!(!unshared.contains("one"));
    }
}
