//! Single-flight: concurrent callers with the same key share one load.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::driver::DriverError;

/// Loads in progress, by key.
///
/// A result is shared only with callers who arrived before its load began. Otherwise a caller could get a result that
/// was already outdated at the time of the call. Errors are shared too: otherwise the callers of an unresponsive
/// database would wait one after the other.
pub(super) struct SingleFlight<K, V> {
    slots: Mutex<HashMap<K, Arc<Slot<V>>>>,
}

/// Locked by the caller who loads; the others wait for the lock.
type Slot<V> = tokio::sync::Mutex<Option<LoadResult<V>>>;

struct LoadResult<V> {
    /// When the load of this result began.
    begun: Instant,
    outcome: Result<V, DriverError>,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self { slots: Mutex::default() }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> SingleFlight<K, V> {
    fn slots(&self) -> MutexGuard<'_, HashMap<K, Arc<Slot<V>>>> {
        // A panic with the lock held leaves the map consistent.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of a load that begins after this call.
    pub(super) async fn load(
        &self,
        key: &K,
        load: impl Future<Output = Result<V, DriverError>>,
    ) -> Result<V, DriverError> {
        let asked = Instant::now();
        let slot = Arc::clone(self.slots().entry(key.clone()).or_default());
        let reference = SlotReference { flight: self, key, slot: Some(slot) };
        let Some(slot) = &reference.slot else { return load.await };
        let mut result = slot.lock().await;
        if let Some(result) = &*result
            && result.begun > asked
        {
            return result.outcome.clone();
        }
        let begun = Instant::now();
        let outcome = load.await;
        *result = Some(LoadResult { begun, outcome: outcome.clone() });
        outcome
    }
}

/// A caller's reference to a slot. The last reference to be dropped removes the slot.
struct SlotReference<'a, K: Hash + Eq + Clone, V: Clone> {
    flight: &'a SingleFlight<K, V>,
    key: &'a K,
    slot: Option<Arc<Slot<V>>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Drop for SlotReference<'_, K, V> {
    fn drop(&mut self) {
        let mut slots = self.flight.slots();
        self.slot = None;
        if slots.get(self.key).is_some_and(|slot| Arc::strong_count(slot) == 1) {
            slots.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use tokio::task::yield_now;

    use super::SingleFlight;
    use crate::sql::driver::DriverError;

    #[tokio::test]
    async fn concurrent_callers_share_a_load() {
        let flight = SingleFlight::default();
        let loads = AtomicUsize::new(0);
        let ask = |key: &'static str| {
            let (flight, loads) = (&flight, &loads);
            async move {
                let load = async {
                    yield_now().await;
                    Ok(loads.fetch_add(1, Ordering::SeqCst))
                };
                flight.load(&key, load).await.unwrap()
            }
        };
        let answers = join_all((0..20).map(|_| ask("a"))).await;
        // The first load began before the other callers arrived.
        assert_eq!((answers[0], loads.load(Ordering::SeqCst)), (0, 2));
        assert!(answers[1..].iter().all(|answer| *answer == 1), "{answers:?}");
        assert_eq!(ask("a").await, 2, "a later call loads again");
        assert!(flight.slots().is_empty(), "the slot is removed");
    }

    #[tokio::test]
    async fn errors_are_shared_and_a_dropped_call_frees_the_slot() {
        let flight = SingleFlight::<(), ()>::default();
        let loads = AtomicUsize::new(0);
        let fail = || {
            flight.load(&(), async {
                loads.fetch_add(1, Ordering::SeqCst);
                yield_now().await;
                Err(DriverError::TimedOut)
            })
        };
        assert!(join_all((0..20).map(|_| fail())).await.iter().all(Result::is_err));
        assert_eq!(loads.load(Ordering::SeqCst), 2);
        let left = flight.load(&(), std::future::pending()).now_or_never();
        assert!(left.is_none());
        assert!(flight.slots().is_empty());
        assert!(flight.load(&(), async { Ok(()) }).await.is_ok());
    }
}
