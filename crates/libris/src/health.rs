//! The health of each source of a catalog: a circuit breaker per source.
//!
//! A failed probe starts an outage. So does a failed query for the first page of the list or for the templates, unless
//! the source used the identity of the caller. A successful probe ends the outage; in strict mode, so does a successful
//! query. Each transition is logged once, shown in the metrics, and reported to the watchers of the catalog.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use libris_core::{Error, UnavailableSource};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::last_known::{LastKnown, LastKnownQuota};
use crate::lock::lock;

/// The pause before the first probe of an unavailable source. It doubles with each probe that fails.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between two probes.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A source that fails again within this time after a recovery keeps its backoff. Otherwise a source that answers
/// probes but no queries would flap every second.
const RELAPSE_WINDOW: Duration = Duration::from_secs(60);

/// The shortest pause between two probes of a source that is available but failed one caller.
const SUSPECT_PROBE_PAUSE: Duration = Duration::from_secs(1);

/// Exponential backoff.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST_PAUSE }
    }
}

impl Backoff {
    /// The pause before the next attempt: twice the last one, up to [`LONGEST_PAUSE`].
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        pause
    }

    /// Resets the backoff if the source worked for at least [`RELAPSE_WINDOW`] before it failed again.
    pub(crate) fn reset_if_worked_for(&mut self, time: Duration) {
        if time >= RELAPSE_WINDOW {
            *self = Self::default();
        }
    }
}

/// Why a query failed.
#[derive(Debug)]
pub(crate) enum SourceFault {
    /// The query exceeded this timeout.
    TimedOut(Duration),
    Panicked,
    Error(Error),
}

impl SourceFault {
    /// The fault of a source whose query returned this error; `Err` with the error if it does not show a fault of the
    /// source: the request is at fault, or the source is busy.
    pub(crate) fn of(error: Error) -> Result<Self, Error> {
        match error {
            Error::Busy(_) | Error::Invalid(_) | Error::Denied(_) => Err(error),
            error => Ok(Self::Error(error)),
        }
    }

    /// The reason in messages to callers.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::TimedOut(limit) => format!("it did not answer within {limit:?}"),
            Self::Panicked => "it panicked".to_owned(),
            Self::Error(error) => error.to_string(),
        }
    }

    /// The cause, which is logged and never sent.
    fn cause(&self) -> Option<String> {
        match self {
            Self::Error(error) => std::error::Error::source(error).map(ToString::to_string),
            _ => None,
        }
    }

    /// The error for the caller.
    pub(crate) fn into_error(self, source: &str) -> Error {
        match self {
            Self::Error(error) => error,
            fault => Error::Unavailable(format!("`{source}` is unavailable: {}", fault.reason())),
        }
    }
}

/// A period during which a source is unavailable.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    pub(crate) since: SystemTime,
    /// The reason in messages to callers.
    pub(crate) reason: Arc<str>,
    /// Whether the source timed out, so that a request to it probably hangs.
    pub(crate) hangs: bool,
}

impl Outage {
    pub(crate) fn new(fault: &SourceFault) -> Self {
        let hangs = matches!(fault, SourceFault::TimedOut(_));
        Self { since: SystemTime::now(), reason: fault.reason().into(), hangs }
    }
}

/// The state of the search index, for the status and the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SearchIndexState {
    /// The number of resources in the index.
    pub(crate) indexed: usize,
    /// The number of resources that were listed so far.
    pub(crate) listed: usize,
    pub(crate) is_complete: bool,
    /// How and why the index differs from its configuration and from the sources, for example because it is full.
    pub(crate) remark: Option<String>,
    /// The same without numbers of resources, for callers who may not see all resources.
    pub(crate) remark_without_counts: Option<String>,
}

impl SearchIndexState {
    /// The remark; `counts`: whether it may contain numbers of resources.
    pub(crate) fn remark(&self, counts: bool) -> Option<&str> {
        if counts { self.remark.as_deref() } else { self.remark_without_counts.as_deref() }
    }
}

/// The connection to the other replicas, for the status, the readiness and the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterState {
    pub(crate) is_connected: bool,
    /// When the connection was established or lost.
    pub(crate) since: SystemTime,
    /// Why there is no connection, without secrets.
    pub(crate) reason: Option<Arc<str>>,
}

impl ClusterState {
    pub(crate) fn connecting() -> Self {
        Self { is_connected: false, since: SystemTime::now(), reason: None }
    }

    pub(crate) fn connected() -> Self {
        Self { is_connected: true, since: SystemTime::now(), reason: None }
    }

    pub(crate) fn disconnected(reason: String) -> Self {
        Self { is_connected: false, since: SystemTime::now(), reason: Some(reason.into()) }
    }
}

/// The health of all sources of a catalog.
pub(crate) struct Health {
    sources: Mutex<Arc<[Arc<SourceHealth>]>>,
    /// The connection to the other replicas; `None` if there are none.
    cluster: Mutex<Option<ClusterState>>,
    /// The state of the search index; `None` if there is none.
    search: Mutex<Option<SearchIndexState>>,
    transitions: Transitions,
    last_known: Arc<LastKnownQuota>,
}

/// Generation counters of state transitions.
#[derive(Clone)]
struct Transitions {
    /// Bumped when the set of sources changes, or the state of a source, of the search index or of the connection to
    /// other replicas.
    all: watch::Sender<u64>,
    /// Bumped when a source is available again.
    recoveries: watch::Sender<u64>,
}

impl Default for Health {
    fn default() -> Self {
        let transitions = Transitions { all: watch::Sender::new(0), recoveries: watch::Sender::new(0) };
        Self {
            sources: Mutex::new(Arc::new([])),
            cluster: Mutex::default(),
            search: Mutex::default(),
            transitions,
            last_known: Arc::default(),
        }
    }
}

impl Health {
    /// The health of a new source, which is available at first.
    pub(crate) fn source(&self, name: String) -> Arc<SourceHealth> {
        Arc::new(SourceHealth {
            name,
            unavailable: AtomicBool::new(false),
            state: Mutex::default(),
            last_known: LastKnown::new(self.last_known.clone()),
            transitions: self.transitions.clone(),
        })
    }

    /// Sets the sources that the status and the metrics cover.
    pub(crate) fn set_sources(&self, sources: impl Iterator<Item = Arc<SourceHealth>>) {
        *lock(&self.sources) = sources.collect();
        self.transitions.all.send_modify(|generation| *generation += 1);
    }

    /// The sources, in the order in which they were added.
    pub(crate) fn sources(&self) -> Arc<[Arc<SourceHealth>]> {
        lock(&self.sources).clone()
    }

    /// The generation counter of all state transitions.
    pub(crate) fn transitions(&self) -> watch::Receiver<u64> {
        self.transitions.all.subscribe()
    }

    /// The generation counter of recoveries.
    pub(crate) fn recoveries(&self) -> watch::Receiver<u64> {
        self.transitions.recoveries.subscribe()
    }

    /// The connection to the other replicas; `None` if there are none.
    pub(crate) fn cluster(&self) -> Option<ClusterState> {
        lock(&self.cluster).clone()
    }

    /// Sets the state of the connection to the other replicas. `since` changes only together with `is_connected`.
    pub(crate) fn set_cluster(&self, state: ClusterState) {
        let mut current = lock(&self.cluster);
        let before = current.clone();
        if before.as_ref().is_some_and(|before| {
            // The first reason why there is no connection is kept.
            before.is_connected == state.is_connected && (before.reason.is_some() || state.reason.is_none())
        }) {
            return;
        }
        let since = before.as_ref().filter(|before| before.is_connected == state.is_connected);
        let since = since.map_or(state.since, |before| before.since);
        *current = Some(ClusterState { since, ..state.clone() });
        drop(current);
        match (&state.reason, before.is_some_and(|before| before.is_connected)) {
            (Some(reason), true) => {
                tracing::warn!(
                    reason = &**reason,
                    "the connection to the other replicas is lost; reconnecting"
                );
            }
            (Some(reason), false) => {
                tracing::warn!(reason = &**reason, "the other replicas cannot be reached; retrying");
            }
            // The same level as the loss, so that a log shows both or neither.
            (None, _) if state.is_connected => tracing::warn!("connected to the other replicas"),
            (None, _) => {}
        }
        self.transitions.all.send_modify(|generation| *generation += 1);
    }

    /// The state of the search index; `None` if there is none.
    pub(crate) fn search(&self) -> Option<SearchIndexState> {
        lock(&self.search).clone()
    }

    /// Sets the state of the search index. Watchers of the status are notified of every difference, even if only the
    /// numbers of resources differ, which the index publishes every few seconds while it is built.
    #[cfg(feature = "search")]
    pub(crate) fn set_search(&self, state: SearchIndexState) {
        let old = lock(&self.search).replace(state.clone());
        if old != Some(state) {
            self.transitions.all.send_modify(|generation| *generation += 1);
        }
    }

    /// Gauges for the metrics: sources, unavailable sources, the connection to other replicas, and the search index.
    pub(crate) fn counts(&self) -> Vec<(&'static str, usize)> {
        let sources = self.sources();
        let unavailable = sources.iter().filter(|source| source.outage().is_some()).count();
        let mut counts = vec![("sources", sources.len()), ("sources_unavailable", unavailable)];
        if let Some(cluster) = self.cluster() {
            counts.push(("cluster_connected", usize::from(cluster.is_connected)));
        }
        if let Some(SearchIndexState { indexed, listed, is_complete, .. }) = self.search() {
            let pending = if is_complete { 0 } else { listed.saturating_sub(indexed).max(1) };
            counts.extend([("search_resources", indexed), ("search_pending", pending)]);
        }
        counts
    }
}

/// The health of one source.
pub(crate) struct SourceHealth {
    name: String,
    /// Whether there is an outage: a fast path without a lock.
    unavailable: AtomicBool,
    state: Mutex<SourceState>,
    last_known: LastKnown,
    transitions: Transitions,
}

#[derive(Default)]
struct SourceState {
    outage: Option<Outage>,
    /// Whether a task probes the source.
    probing: bool,
    backoff: Backoff,
    /// When the last successful probe ended.
    probed: Option<Instant>,
    /// When the last outage ended; `None` once another one starts.
    recovered: Option<Instant>,
    /// Since when the source cannot be watched; `None` if it can.
    unwatched: Option<SystemTime>,
}

impl SourceHealth {
    /// The name of the source, which no other source of the catalog has.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The last known listing of the source.
    pub(crate) fn last_known(&self) -> &LastKnown {
        &self.last_known
    }

    /// The current outage; `None` if the source is available.
    pub(crate) fn outage(&self) -> Option<Outage> {
        match self.unavailable.load(Ordering::Acquire) {
            true => lock(&self.state).outage.clone(),
            false => None,
        }
    }

    /// The time since which the watch of the source fails, so that its changes are not reported; `None` if the watch
    /// works.
    pub(crate) fn unwatched(&self) -> Option<SystemTime> {
        lock(&self.state).unwatched
    }

    /// Starts an outage, unless one is in progress. Returns the outage.
    pub(crate) fn fail(&self, fault: &SourceFault) -> Outage {
        let mut state = lock(&self.state);
        if let Some(outage) = &state.outage {
            return outage.clone();
        }
        let outage = Outage::new(fault);
        if let Some(recovered) = state.recovered.take() {
            state.backoff.reset_if_worked_for(recovered.elapsed());
        }
        state.outage = Some(outage.clone());
        self.unavailable.store(true, Ordering::Release);
        drop(state);
        let (reason, cause) = (&outage.reason, fault.cause());
        tracing::warn!(source = self.name, %reason, cause = cause.as_deref(), "a source is unavailable");
        if !tracing::dispatcher::has_been_set() {
            // A program without a tracing subscriber would not show the failure anywhere.
            eprintln!("libris: `{}` is unavailable: {reason}: {}", self.name, cause.unwrap_or_default());
        }
        self.transitions.all.send_modify(|generation| *generation += 1);
        outage
    }

    /// Logs a failure that may be due to the caller, without starting an outage. Returns the outage in progress, or
    /// else one for the response to this caller only.
    pub(crate) fn record_suspicion(&self, fault: &SourceFault) -> Outage {
        if let Some(outage) = self.outage() {
            return outage;
        }
        let outage = Outage::new(fault);
        let (reason, cause) = (&outage.reason, fault.cause());
        tracing::warn!(source = self.name, %reason, cause, "a source failed for one caller; probing it");
        outage
    }

    /// Ends the outage, if there is one, after a successful query.
    pub(crate) fn recover(&self) {
        self.end_outage(lock(&self.state));
    }

    /// Ends the outage, if there is one, and the probing, after a successful probe.
    pub(crate) fn recover_by_probe(&self) {
        let mut state = lock(&self.state);
        state.probing = false;
        state.probed = Some(Instant::now());
        // In the same critical section, so that an outage that starts afterwards starts a new probing task.
        self.end_outage(state);
    }

    fn end_outage(&self, mut state: MutexGuard<'_, SourceState>) {
        let Some(outage) = state.outage.take() else { return };
        state.recovered = Some(Instant::now());
        self.unavailable.store(false, Ordering::Release);
        drop(state);
        let after = outage.since.elapsed().unwrap_or_default();
        // The same level as the start of the outage, so that a log shows both or neither.
        tracing::warn!(source = self.name, ?after, "a source is available again");
        self.transitions.all.send_modify(|generation| *generation += 1);
        self.transitions.recoveries.send_modify(|generation| *generation += 1);
    }

    /// Whether an outage has ended since `time`, and no other has started.
    pub(crate) fn has_recovered_since(&self, time: Instant) -> bool {
        lock(&self.state).recovered.is_some_and(|recovered| recovered >= time)
    }

    /// Marks the source as being probed. Returns whether the caller must start the probing task: no task runs yet, and
    /// the source is unavailable or its last successful probe is at least [`SUSPECT_PROBE_PAUSE`] ago.
    pub(crate) fn begin_probes(&self) -> bool {
        let mut state = lock(&self.state);
        let is_due = state.outage.is_some()
            || state.probed.is_none_or(|probed| probed.elapsed() >= SUSPECT_PROBE_PAUSE);
        is_due && !std::mem::replace(&mut state.probing, true)
    }

    /// Records that the probing task ended without a result.
    pub(crate) fn abandon_probes(&self) {
        lock(&self.state).probing = false;
    }

    /// The pause before the next probe: the backoff during an outage, otherwise zero.
    pub(crate) fn pause(&self) -> Duration {
        let mut state = lock(&self.state);
        if state.outage.is_some() { state.backoff.pause() } else { Duration::ZERO }
    }

    /// Records whether the source can be watched.
    pub(crate) fn record_watch(&self, outcome: Result<(), &SourceFault>) {
        let mut state = lock(&self.state);
        if state.unwatched.is_some() == outcome.is_err() {
            return;
        }
        state.unwatched = outcome.is_err().then(SystemTime::now);
        drop(state);
        let source = &self.name;
        match outcome {
            Ok(()) => tracing::warn!(source, "a source can be watched again"),
            Err(fault) => {
                let (reason, cause) = (fault.reason(), fault.cause());
                tracing::warn!(
                    source,
                    reason,
                    cause,
                    "a source cannot be watched; its changes are not reported; retrying"
                );
            }
        }
        self.transitions.all.send_modify(|generation| *generation += 1);
    }

    /// The entry for this outage in a list response. `stale`: whether the response contains the last known list of the
    /// source.
    pub(crate) fn unavailable(&self, outage: &Outage, stale: bool) -> UnavailableSource {
        UnavailableSource { source: self.name.clone(), since: outage.since, stale }
    }
}

/// The time in RFC 3339 format, in whole seconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = |time: jiff::Timestamp| jiff::Timestamp::from_second(time.as_second()).ok();
    let time = jiff::Timestamp::try_from(time).ok().and_then(seconds);
    time.unwrap_or_default().to_string()
}
