//! Records the changes of the last minute, for clients that were connected to another replica before.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use libris_core::{Change, Uri};
use tokio::time::Instant;

use super::RECENT_PERIOD;
use crate::lock::lock;

/// The maximum number of recorded changes, and the maximum total size of their URIs in bytes. If there are more within
/// the period, every resource counts as changed.
const MAX_RESOURCES: usize = 50_000;
const MAX_BYTES: usize = 8 << 20;

/// The maximum number of recorded changes of the list: resources that were added, removed or described anew. The bound
/// is lower because rules are evaluated for each of these resources.
const MAX_LISTED: usize = 1_000;

/// The changes of the last [`RECENT_PERIOD`] at all replicas.
pub(crate) struct RecentChanges {
    state: Mutex<RecentState>,
}

struct RecentState {
    /// Since when every change is known; `None` until the replica is connected.
    known_since: Option<Instant>,
    /// When every resource last counted as changed, because changes were lost or exceeded a bound.
    everything: Option<Instant>,
    /// The subjects that have changed.
    subjects: RecentUris,
    /// The resources that were added, removed or described anew.
    listed: RecentUris,
}

/// URIs with the times of their last changes, bounded.
struct RecentUris {
    limit: usize,
    bytes: usize,
    changed: HashMap<Uri, Instant>,
    /// In the order of recording. A URI that changed repeatedly has an entry for each change.
    order: VecDeque<(Instant, Uri)>,
}

impl RecentUris {
    fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, changed: HashMap::new(), order: VecDeque::new() }
    }

    /// Records a change. If this exceeds a bound, removes all recorded changes and returns an error.
    fn record(&mut self, uri: &Uri, when: Instant, now: Instant) -> Result<(), ()> {
        self.prune(now);
        if self.changed.get(uri).is_some_and(|last| *last >= when) {
            return Ok(());
        }
        if self.order.len() >= self.limit || self.bytes + uri.as_str().len() > MAX_BYTES {
            *self = Self::new(self.limit);
            return Err(());
        }
        self.bytes += uri.as_str().len();
        self.changed.insert(uri.clone(), when);
        self.order.push_back((when, uri.clone()));
        Ok(())
    }

    /// Removes the changes that are older than the period.
    fn prune(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(when, _)| is_over(*when, now)) {
            let Some((when, uri)) = self.order.pop_front() else { return };
            self.bytes -= uri.as_str().len();
            if self.changed.get(&uri) == Some(&when) {
                self.changed.remove(&uri);
            }
        }
    }
}

fn is_over(when: Instant, now: Instant) -> bool {
    now.saturating_duration_since(when) > RECENT_PERIOD
}

impl RecentState {
    /// Whether changes within the period may be unknown, so that each resource counts as changed.
    fn is_unknown(&self, now: Instant) -> bool {
        self.known_since.is_none_or(|since| !is_over(since, now))
            || self.everything.is_some_and(|when| !is_over(when, now))
    }
}

impl Default for RecentChanges {
    fn default() -> Self {
        let (subjects, listed) = (RecentUris::new(MAX_RESOURCES), RecentUris::new(MAX_LISTED));
        let state = RecentState { known_since: None, everything: None, subjects, listed };
        Self { state: Mutex::new(state) }
    }
}

impl RecentChanges {
    /// Records that the replica is connected: it knows every change from now on or, with `knows_recent_changes`, from
    /// [`RECENT_PERIOD`] ago on.
    pub(super) fn record_connected(&self, knows_recent_changes: bool) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        if knows_recent_changes {
            // A little more than the period, so that `is_over` is true.
            state.known_since = now.checked_sub(RECENT_PERIOD + Duration::from_millis(1));
        } else if state.known_since.is_none() {
            state.known_since = Some(now);
        }
    }

    /// Records a change that was published `age` ago; `subject` is the subject of its URI.
    pub(super) fn record(&self, change: &Change, subject: Option<&Uri>, age: Duration) {
        let now = Instant::now();
        let Some(when) = now.checked_sub(age).filter(|when| !is_over(*when, now)) else { return };
        let mut state = lock(&self.state);
        let RecentState { subjects, listed, .. } = &mut *state;
        let recorded = match (change, subject) {
            (Change::Updated(_), Some(subject)) => subjects.record(subject, when, now),
            (Change::Described(uri), _) => listed.record(uri, when, now),
            (Change::Added(uri) | Change::Removed(uri), Some(subject)) => {
                listed.record(uri, when, now).and(subjects.record(subject, when, now))
            }
            (Change::Features, _) => Ok(()),
            _ => Err(()),
        };
        if recorded.is_err() {
            state.everything = Some(when);
        }
    }

    /// Whether this subject has, or may have, changed within the period.
    pub(crate) fn contains(&self, subject: &Uri) -> bool {
        let now = Instant::now();
        let state = lock(&self.state);
        state.is_unknown(now) || state.subjects.changed.get(subject).is_some_and(|when| !is_over(*when, now))
    }

    /// Whether the list of a caller has, or may have, changed within the period. The caller sees changes of those
    /// resources that `is_visible` returns true for.
    pub(crate) fn contains_list(&self, is_visible: impl Fn(&Uri) -> bool) -> bool {
        let now = Instant::now();
        let listed: Vec<Uri> = {
            let mut state = lock(&self.state);
            if state.is_unknown(now) {
                return true;
            }
            state.listed.prune(now);
            state.listed.changed.keys().cloned().collect()
        };
        listed.iter().any(is_visible)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LISTED, RECENT_PERIOD, RecentChanges};
    use libris_core::{Change, Uri};
    use std::time::Duration;
    use tokio::time::advance;

    fn uri(number: usize) -> Uri {
        Uri::parse(&format!("a://{number}")).unwrap()
    }

    fn record(recent: &RecentChanges, change: Change, age: Duration) {
        let subject = match &change {
            Change::Updated(uri) | Change::Added(uri) | Change::Removed(uri) => Some(uri.clone()),
            _ => None,
        };
        recent.record(&change, subject.as_ref(), age);
    }

    /// Tokio's clock begins at the start of the runtime, and the table looks back from now.
    async fn recent() -> RecentChanges {
        advance(RECENT_PERIOD * 3).await;
        RecentChanges::default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_recent_for_the_period() {
        let recent = recent().await;
        recent.record_connected(true);
        record(&recent, Change::Updated(uri(1)), Duration::ZERO);
        record(&recent, Change::Updated(uri(2)), RECENT_PERIOD / 2);
        record(&recent, Change::Updated(uri(3)), RECENT_PERIOD * 2);
        assert_eq!([1, 2, 3, 4].map(|number| recent.contains(&uri(number))), [true, true, false, false]);
        assert!(!recent.contains_list(|_| true), "no list has changed");
        advance(RECENT_PERIOD / 2 + Duration::from_secs(1)).await;
        assert_eq!([1, 2].map(|number| recent.contains(&uri(number))), [true, false]);
        advance(RECENT_PERIOD / 2).await;
        assert!(!recent.contains(&uri(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_does_not_know_the_period_counts_everything_as_changed() {
        let recent = recent().await;
        assert!(recent.contains(&uri(1)), "not connected yet");
        recent.record_connected(false);
        assert!(recent.contains(&uri(1)) && recent.contains_list(|_| false));
        advance(RECENT_PERIOD + Duration::from_secs(1)).await;
        assert!(!recent.contains(&uri(1)) && !recent.contains_list(|_| true));
        // A second connection does not shorten the known period.
        recent.record_connected(false);
        assert!(!recent.contains(&uri(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn lost_changes_concern_everything() {
        let recent = recent().await;
        recent.record_connected(true);
        record(&recent, Change::Lost, Duration::from_secs(1));
        assert!(recent.contains(&uri(1)) && recent.contains_list(|_| false));
        advance(RECENT_PERIOD).await;
        assert!(!recent.contains(&uri(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_visible_changes_of_the_list_count() {
        let recent = recent().await;
        recent.record_connected(true);
        record(&recent, Change::Added(uri(1)), Duration::ZERO);
        record(&recent, Change::Described(uri(2)), Duration::ZERO);
        assert!(recent.contains_list(|visible| *visible == uri(1)));
        assert!(recent.contains_list(|visible| *visible == uri(2)));
        assert!(!recent.contains_list(|visible| *visible == uri(3)));
        assert!(recent.contains(&uri(1)) && !recent.contains(&uri(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded_and_an_overflow_concerns_everything() {
        let recent = recent().await;
        recent.record_connected(true);
        (0..MAX_LISTED).for_each(|number| record(&recent, Change::Added(uri(number)), Duration::ZERO));
        assert!(!recent.contains(&uri(MAX_LISTED)));
        record(&recent, Change::Added(uri(MAX_LISTED)), Duration::ZERO);
        assert!(recent.contains(&uri(MAX_LISTED + 1)) && recent.contains_list(|_| false));
    }
}
