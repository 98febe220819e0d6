//! Single-flight: concurrent callers share one execution of the same work.

use std::collections::HashMap;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Map as Mapped, Shared, WeakShared, ready};

/// The work in flight, by key (single-flight).
///
/// The futures of the callers poll the work. When the last of them is dropped, the work is dropped too.
pub struct Flights<K, T> {
    in_flight: Arc<Mutex<FlightMap<K, T>>>,
}

/// A future of shared work. If the work panics, every caller panics.
pub type Flight<T> = Mapped<Shared<SharedWork<T>>, fn(Option<T>) -> T>;

/// The output is `None` if the work panicked. Inside `Shared`, a panic would not wake the other callers.
type SharedWork<T> = BoxFuture<'static, Option<T>>;

type FlightMap<K, T> = HashMap<K, NumberedFlight<T>>;

/// The number of the next flight. Numbers are never reused. If all callers of a flight are cancelled, its
/// `InFlightGuard` may be dropped after a new flight has started for the same key; by the number, the guard recognises
/// that the entry is not its own.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

struct NumberedFlight<T> {
    /// Distinguishes this flight from an abandoned flight with the same key, whose guard may be dropped later.
    number: u64,
    flight: WeakShared<SharedWork<T>>,
}

fn completed<T>(made: Option<T>) -> T {
    made.expect("the shared work panicked")
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self { in_flight: Arc::default() }
    }
}

impl<K, T> Flights<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Joins the flight for `key`, or starts one with `start`.
    ///
    /// Call this after a miss in the caller's own cache. `done` looks the result up there again, because a flight may
    /// have ended between that miss and this call. The work must store its result in that cache before it ends.
    pub fn join<F>(&self, key: &K, done: impl FnOnce() -> Option<T>, start: impl FnOnce() -> F) -> Flight<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut in_flight = lock(&self.in_flight);
        // A flight is abandoned if all its callers were cancelled, but its guard has not removed it yet.
        let abandoned = match in_flight.get(key) {
            Some(found) => match found.flight.upgrade() {
                Some(flight) => return flight.map(completed),
                None => true,
            },
            None => false,
        };
        // The work of an abandoned flight was dropped before it ended, so a second lookup would be useless.
        if !abandoned && let Some(done) = done() {
            return ready(Some(done)).boxed().shared().map(completed);
        }
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let guard = InFlightGuard { in_flight: self.in_flight.clone(), key: key.clone(), number };
        let work = start();
        let work = async move {
            let _guard = guard;
            AssertUnwindSafe(work).catch_unwind().await.ok()
        };
        let flight = work.boxed().shared();
        if let Some(weak) = flight.downgrade() {
            in_flight.insert(key.clone(), NumberedFlight { number, flight: weak });
        }
        flight.map(completed)
    }

    /// Joins the flight for `key`; `None` if there is none.
    pub fn join_existing(&self, key: &K) -> Option<Flight<T>> {
        Some(lock(&self.in_flight).get(key)?.flight.upgrade()?.map(completed))
    }

    /// Whether no work is in flight.
    pub fn is_empty(&self) -> bool {
        lock(&self.in_flight).is_empty()
    }
}

fn lock<K, T>(map: &Mutex<FlightMap<K, T>>) -> MutexGuard<'_, FlightMap<K, T>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a flight from the map when its work ends or is dropped.
struct InFlightGuard<K: Eq + Hash, T> {
    in_flight: Arc<Mutex<FlightMap<K, T>>>,
    key: K,
    number: u64,
}

impl<K: Eq + Hash, T> Drop for InFlightGuard<K, T> {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.in_flight);
        if in_flight.get(&self.key).is_some_and(|found| found.number == self.number) {
            in_flight.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Flights;
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn concurrent_callers_share_one_execution() {
        let flights = Flights::<&str, u32>::default();
        let begun = Arc::new(AtomicU32::new(0));
        let count = || {
            let begun = begun.clone();
            move || async move { begun.fetch_add(1, Ordering::Relaxed) }
        };
        let (one, other) = (flights.join(&"a", || None, count()), flights.join(&"a", || None, count()));
        let elsewhere = flights.join(&"b", || None, count());
        let third = flights.join_existing(&"a").unwrap();
        assert_eq!((one.await, other.await, elsewhere.await, third.await), (0, 0, 1, 0));
        assert!(flights.join_existing(&"a").is_none());
        assert!(flights.is_empty());
        assert_eq!(flights.join(&"a", || Some(7), count()).await, 7);
        assert_eq!(flights.join(&"a", || None, count()).await, 2);
    }

    #[tokio::test]
    async fn a_panic_reaches_all_callers() {
        let flights = Arc::new(Flights::<&str, u32>::default());
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let work = || async {
                    tokio::task::yield_now().await;
                    panic!("on purpose")
                };
                tokio::spawn(flights.join(&"a", || None, work))
            })
            .collect();
        for one in waiting {
            assert!(one.await.unwrap_err().is_panic());
        }
        assert_eq!(flights.join(&"a", || None, || async { 1 }).await, 1);
    }

    #[tokio::test]
    async fn work_without_callers_is_dropped() {
        let flights = Flights::<&str, u32>::default();
        let left = flights.join(&"a", || None, pending);
        drop(left);
        assert!(flights.is_empty());
        assert_eq!(flights.join(&"a", || None, || async { 1 }).await, 1);
    }
}
