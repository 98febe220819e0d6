//! Caches the lists of a server, and tracks how long they are current.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libris_core::{CacheScope, Freshness, Proof};
use tokio::sync::watch;

use crate::config::Callers;
use crate::fault::RemoteFault;
use crate::listing::CacheHints;

/// How long a list is used if the server declares that it reports changes of its lists. Some servers declare this but
/// send no notifications.
const REPORTED_LIST_TTL: Duration = Duration::from_secs(60);

/// A list that took at least this long to fetch is still served while it is fetched again after it expired.
const SLOW_FETCH: Duration = Duration::from_secs(1);

/// After it expired, such a list is served for at most this many times the duration of its fetch, so that a server that
/// no longer answers becomes unavailable.
const SLOW_FETCH_GRACE: u32 = 2;

/// A fetched list, with its validity and its cache hints.
pub(crate) struct Snapshot<T> {
    pub(crate) list: T,
    validity: SnapshotValidity,
    hints: CacheHints,
    /// Until when the list may be served while it is fetched again: see [`SLOW_FETCH`].
    usable_until: Instant,
}

/// Decides whether a fetched list or resource is current: it has not expired, and no counter was bumped since the fetch
/// began.
#[derive(Clone)]
pub(crate) struct SnapshotValidity {
    began: Instant,
    expires: Instant,
    /// Counters that are bumped when the fetched list or resource may have changed, or when the connection is lost.
    /// Each has its value from before the fetch.
    counters: [(Arc<AtomicU64>, u64); 2],
}

impl SnapshotValidity {
    /// To be called before a fetch: changes after this call end the validity.
    pub(crate) fn begin(changes: &Arc<AtomicU64>, losses: &Arc<AtomicU64>) -> Self {
        let counter = |counter: &Arc<AtomicU64>| (counter.clone(), counter.load(Ordering::Acquire));
        let began = Instant::now();
        Self { began, expires: began, counters: [counter(changes), counter(losses)] }
    }

    /// The freshness of a response that was requested after [`begin`](Self::begin).
    pub(crate) fn freshness(mut self, hints: CacheHints, callers: Callers) -> Freshness {
        self.expires = Instant::now() + hints.ttl;
        let proof = (!hints.ttl.is_zero()).then(|| Proof::new(move || self.holds()));
        match callers {
            Callers::Several => freshness(hints, proof),
            Callers::One => Freshness { ttl: hints.ttl, scope: hints.scope, proof, expires: None },
        }
    }

    fn holds(&self) -> bool {
        Instant::now() < self.expires && self.is_unchanged()
    }

    /// Whether no change was reported and the connection was not lost.
    fn is_unchanged(&self) -> bool {
        self.counters.iter().all(|(counter, value)| counter.load(Ordering::Acquire) == *value)
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
        let took = validity.began.elapsed();
        validity.expires = Instant::now() + hints.ttl.max(least);
        let grace = if took < SLOW_FETCH { Duration::ZERO } else { took * SLOW_FETCH_GRACE };
        let usable_until = validity.expires + grace;
        Self { list, validity, hints, usable_until }
    }

    pub(crate) fn is_current(&self) -> bool {
        self.validity.holds()
    }

    /// Whether the list may be served while it is fetched again.
    fn is_usable(&self) -> bool {
        Instant::now() < self.usable_until && self.validity.is_unchanged()
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
        let Self { list, validity, hints, usable_until } = self;
        Some(Snapshot { list: list?, validity, hints, usable_until })
    }
}

/// The freshness of a response with these hints. A response that the server declares private, with a TTL, gets no
/// proof, so it is not cached for other callers.
fn freshness(hints: CacheHints, proof: Option<Proof>) -> Freshness {
    let is_private = hints.scope == CacheScope::Private && !hints.ttl.is_zero();
    Freshness { ttl: hints.ttl, scope: hints.scope, proof: proof.filter(|_| !is_private), expires: None }
}

/// The outcome of a fetch, for all callers who wait for it.
type FetchOutcome<T> = Result<Arc<Snapshot<T>>, RemoteFault>;

/// A list that is fetched when it is needed and not current. A fetch runs in a task of its own: callers share it
/// (single-flight), and it goes on when they give up, so that a list is known in the end even if it takes longer than a caller
/// waits.
pub(crate) struct CachedFetch<T>(Arc<CachedFetchState<T>>);

struct CachedFetchState<T> {
    known: Mutex<Option<Arc<Snapshot<T>>>>,
    /// The outcome of the fetch that was started last.
    fetching: Mutex<Option<watch::Receiver<Option<FetchOutcome<T>>>>>,
}

impl<T> Default for CachedFetch<T> {
    fn default() -> Self {
        Self(Arc::new(CachedFetchState { known: Mutex::default(), fetching: Mutex::default() }))
    }
}

impl<T: Send + Sync + 'static> CachedFetch<T> {
    /// The last known list, current or not.
    pub(crate) fn known(&self) -> Option<Arc<Snapshot<T>>> {
        lock(&self.0.known).clone()
    }

    fn current(&self) -> Option<Arc<Snapshot<T>>> {
        self.known().filter(|snapshot| snapshot.is_current())
    }

    /// The cached list if it is current, otherwise the result of `fetch`, which is cached.
    pub(crate) async fn current_or_fetch<F>(&self, fetch: impl FnOnce() -> F) -> FetchOutcome<T>
    where
        F: Future<Output = Result<Snapshot<T>, RemoteFault>> + Send + 'static,
    {
        if let Some(snapshot) = self.current() {
            return Ok(snapshot);
        }
        let mut fetch = Some(fetch);
        // The fetch in progress may have begun before the change because of which the caller asks. Then its result is not
        // current, and the second fetch begins after the call.
        for is_last in [false, true] {
            let (outcome, is_new) = self.join_or_start(&mut fetch);
            if let Some(usable) = self.known().filter(|known| known.is_usable()) {
                return Ok(usable);
            }
            let outcome = outcome_of(outcome).await;
            let is_accepted = match &outcome {
                Ok(snapshot) => snapshot.is_current(),
                Err(fault) => !matches!(fault, RemoteFault::Closed(_)),
            };
            if is_new || is_last || is_accepted {
                return outcome;
            }
        }
        unreachable!("the last round returns")
    }

    /// The fetch in progress, or a new one; and whether it is new.
    fn join_or_start<F>(
        &self,
        fetch: &mut Option<impl FnOnce() -> F>,
    ) -> (watch::Receiver<Option<FetchOutcome<T>>>, bool)
    where
        F: Future<Output = Result<Snapshot<T>, RemoteFault>> + Send + 'static,
    {
        let mut fetching = lock(&self.0.fetching);
        let in_progress = fetching.as_ref().filter(|one| one.borrow().is_none() && one.has_changed().is_ok());
        if let Some(in_progress) = in_progress {
            return (in_progress.clone(), false);
        }
        // The list may have been fetched since the caller looked.
        if let Some(current) = self.current() {
            return (watch::channel(Some(Ok(current))).1, true);
        }
        let (sender, receiver) = watch::channel(None);
        if let Some(fetch) = fetch.take() {
            let (fetch, state) = (fetch(), Arc::clone(&self.0));
            tokio::spawn(async move {
                let outcome = fetch.await.map(Arc::new);
                if let Ok(snapshot) = &outcome {
                    *lock(&state.known) = Some(snapshot.clone());
                }
                let _ = sender.send(Some(outcome));
            });
        }
        *fetching = Some(receiver.clone());
        (receiver, true)
    }
}

/// Waits until a fetch has ended.
async fn outcome_of<T>(mut outcome: watch::Receiver<Option<FetchOutcome<T>>>) -> FetchOutcome<T> {
    match outcome.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or(Err(RemoteFault::Closed(None))),
        // The fetch panicked.
        Err(_) => Err(RemoteFault::Closed(None)),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
