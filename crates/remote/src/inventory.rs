//! Caches the lists of a server, and tracks how long they are current.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libris_core::{CacheScope, Freshness, Proof};

use crate::listing::CacheHints;

/// How long a list is used if the server declares that it reports changes of its lists. Some servers declare this but
/// send no notifications.
const REPORTED_LIST_TTL: Duration = Duration::from_secs(60);

/// A fetched list, with its validity and its cache hints.
pub(crate) struct Snapshot<T> {
    pub(crate) list: T,
    validity: SnapshotValidity,
    hints: CacheHints,
}

/// Decides whether a fetched list or resource is current: it has not expired, and no counter was bumped since the fetch
/// began.
#[derive(Clone)]
pub(crate) struct SnapshotValidity {
    expires: Instant,
    /// Counters that are bumped when the fetched list or resource may have changed, or when the connection is lost.
    /// Each has its value from before the fetch.
    counters: [(Arc<AtomicU64>, u64); 2],
}

impl SnapshotValidity {
    /// To be called before a fetch: changes after this call end the validity.
    pub(crate) fn begin(changes: &Arc<AtomicU64>, losses: &Arc<AtomicU64>) -> Self {
        let counter = |counter: &Arc<AtomicU64>| (counter.clone(), counter.load(Ordering::Acquire));
        Self { expires: Instant::now(), counters: [counter(changes), counter(losses)] }
    }

    /// The freshness of a response that was requested after [`begin`](Self::begin).
    pub(crate) fn freshness(mut self, hints: CacheHints) -> Freshness {
        self.expires = Instant::now() + hints.ttl;
        let proof = (!hints.ttl.is_zero()).then(|| Proof::new(move || self.holds()));
        freshness(hints, proof)
    }

    fn holds(&self) -> bool {
        Instant::now() < self.expires
            && self.counters.iter().all(|(counter, value)| counter.load(Ordering::Acquire) == *value)
    }
}

impl<T> Snapshot<T> {
    /// A list that was fetched just now. It expires after the longer of the server's TTL and a minimum: `ttl`, or
    /// [`REPORTED_LIST_TTL`] if the server `reports` changes of the list.
    pub(crate) fn new(
        list: T,
        mut validity: SnapshotValidity,
        hints: CacheHints,
        reports: bool,
        ttl: Duration,
    ) -> Self {
        let least = if reports { REPORTED_LIST_TTL } else { ttl };
        validity.expires = Instant::now() + hints.ttl.max(least);
        Self { list, validity, hints }
    }

    pub(crate) fn is_current(&self) -> bool {
        self.validity.holds()
    }

    /// The freshness of a response that is made from the list.
    pub(crate) fn freshness(&self) -> Freshness {
        let validity = self.validity.clone();
        freshness(self.hints, Some(Proof::new(move || validity.holds())))
    }
}

impl<T> Snapshot<Option<T>> {
    /// Like [`Option::transpose`]: `None` if there is no list.
    pub(crate) fn transposed(self) -> Option<Snapshot<T>> {
        let Self { list, validity, hints } = self;
        Some(Snapshot { list: list?, validity, hints })
    }
}

/// The freshness of a response with these hints. A response that the server declares private, with a TTL, gets no
/// proof, so it is not cached for other callers.
fn freshness(hints: CacheHints, proof: Option<Proof>) -> Freshness {
    let is_private = hints.scope == CacheScope::Private && !hints.ttl.is_zero();
    Freshness { ttl: hints.ttl, scope: hints.scope, proof: proof.filter(|_| !is_private), expires: None }
}

/// A list that is fetched when it is needed and not current; concurrent callers share one fetch.
pub(crate) struct CachedFetch<T> {
    known: Mutex<Option<Arc<Snapshot<T>>>>,
    fetching: tokio::sync::Mutex<()>,
}

impl<T> Default for CachedFetch<T> {
    fn default() -> Self {
        Self { known: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }
}

impl<T> CachedFetch<T> {
    /// The last known list, current or not.
    pub(crate) fn known(&self) -> Option<Arc<Snapshot<T>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn current(&self) -> Option<Arc<Snapshot<T>>> {
        self.known().filter(|snapshot| snapshot.is_current())
    }

    /// The cached list if it is current, otherwise the result of `fetch`, which is cached.
    pub(crate) async fn current_or_fetch<E>(
        &self,
        fetch: impl Future<Output = Result<Snapshot<T>, E>>,
    ) -> Result<Arc<Snapshot<T>>, E> {
        if let Some(snapshot) = self.current() {
            return Ok(snapshot);
        }
        let _fetching = self.fetching.lock().await;
        if let Some(snapshot) = self.current() {
            return Ok(snapshot);
        }
        let snapshot = Arc::new(fetch.await?);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot.clone());
        Ok(snapshot)
    }
}

/// The number of update counters.
const UPDATE_COUNTERS: usize = 256;

/// Counts the updates of resources. URIs are hashed to a fixed number of counters, so memory is bounded whatever a
/// server reports; URIs that share a counter invalidate each other.
pub(crate) struct UpdateCounters([Arc<AtomicU64>; UPDATE_COUNTERS]);

impl Default for UpdateCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Arc::default()))
    }
}

impl UpdateCounters {
    /// The counter for an upstream URI.
    pub(crate) fn of(&self, uri: &str) -> &Arc<AtomicU64> {
        let hash = uri.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        &self.0[(hash >> 32) as usize % UPDATE_COUNTERS]
    }

    /// To be called before a read: an update after this call, or the loss of the connection, ends the validity of the
    /// contents.
    pub(crate) fn begin(&self, uri: &str, losses: &Arc<AtomicU64>) -> SnapshotValidity {
        SnapshotValidity::begin(self.of(uri), losses)
    }

    /// Ends the validity of everything that was read.
    pub(crate) fn bump_all(&self) {
        self.0.iter().for_each(|counter| _ = counter.fetch_add(1, Ordering::AcqRel));
    }
}
