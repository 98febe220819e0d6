//! The positions of the last changes of each subject, which decide whether an entry of the replica cache is outdated.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};

use libris_core::{Change, Uri};

use super::{CacheWindow, ChangePosition};
use crate::lock::lock;

/// The number of slots for subjects. Subjects that share a slot (hash collision) outdate each other's entries, which
/// costs a read of the source.
const SLOTS: usize = 4096;

/// The positions of the changes that this replica has applied, that is, for which it has invalidated its own caches.
pub(super) struct AppliedPositions {
    hashes: RandomState,
    state: Mutex<PositionsState>,
}

struct PositionsState {
    /// The sequence of changes that the positions refer to; `None` until the first sequence begins.
    sequence: Option<Arc<str>>,
    is_connected: bool,
    /// All changes up to this position are applied.
    reached: ChangePosition,
    /// All changes of this replica with lower numbers are published.
    published_before: u64,
    /// The last change that concerned every subject.
    everything: LastChange,
    /// The last change of the subjects of each slot.
    slots: Box<[LastChange]>,
}

/// The last change of a subject.
#[derive(Clone, Copy, Default)]
struct LastChange {
    /// The position of the last published change.
    position: ChangePosition,
    /// The number of the last change that a source of this replica reported. Until it is published, it has no position.
    own: u64,
}

impl AppliedPositions {
    pub(super) fn new() -> Self {
        Self {
            hashes: RandomState::new(),
            state: Mutex::new(PositionsState {
                sequence: None,
                is_connected: false,
                reached: ChangePosition::default(),
                published_before: 1,
                everything: LastChange::default(),
                slots: vec![LastChange::default(); SLOTS].into(),
            }),
        }
    }

    fn slot(&self, subject: &Uri) -> usize {
        (self.hashes.hash_one(subject) % SLOTS as u64) as usize
    }

    /// Calls `update` for the [`LastChange`] that `change` concerns: that of its slot, or `everything`. `subject` is
    /// the subject of the URI of the change.
    fn update(&self, change: &Change, subject: Option<&Uri>, update: impl Fn(&mut LastChange)) {
        let mut state = lock(&self.state);
        match (change, subject) {
            (Change::Updated(_) | Change::Added(_) | Change::Removed(_), Some(subject)) => {
                update(&mut state.slots[self.slot(subject)]);
            }
            // These changes do not concern contents.
            (Change::Described(_) | Change::Features, _) => {}
            _ => update(&mut state.everything),
        }
    }

    /// Records a change that a source of this replica reported, with its number.
    pub(super) fn record_own(&self, change: &Change, subject: Option<&Uri>, number: u64) {
        self.update(change, subject, |last| last.own = last.own.max(number));
    }

    /// Records the position of a change, at any replica.
    pub(super) fn record(&self, change: &Change, subject: Option<&Uri>, position: ChangePosition) {
        self.update(change, subject, |last| last.position = last.position.max(position));
    }

    /// Records that all changes of this replica with lower numbers are published, and their positions recorded.
    pub(super) fn record_published(&self, published_before: u64) {
        let mut state = lock(&self.state);
        state.published_before = state.published_before.max(published_before);
    }

    /// Records that all changes up to this position are applied.
    pub(super) fn record_reached(&self, position: ChangePosition) {
        let mut state = lock(&self.state);
        state.reached = state.reached.max(position);
    }

    /// Begins a new sequence of changes. Nothing is known about changes before `position`.
    pub(super) fn begin(&self, sequence: &str, position: ChangePosition) {
        let mut state = lock(&self.state);
        state.sequence = Some(sequence.into());
        state.reached = position;
        // Later positions remain: changes of this replica may have been published in the new sequence before this
        // replica learned of it. Positions are times, so those of the old sequence are earlier, unless the clock of the
        // bus was set back; then entries are refused until the clock has passed them.
        state.everything.position = state.everything.position.max(position);
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        lock(&self.state).is_connected = is_connected;
    }

    /// The entries of the replica cache that are valid for this subject now. `None` if the cache must not be used: the
    /// replica is disconnected, or the others do not know the last change of the subject yet.
    pub(super) fn window(&self, subject: &Uri) -> Option<CacheWindow> {
        let state = lock(&self.state);
        let sequence = state.sequence.clone().filter(|_| state.is_connected)?;
        let last = [state.everything, state.slots[self.slot(subject)]];
        if last.iter().any(|last| last.own >= state.published_before) {
            return None;
        }
        let oldest = last.iter().map(|last| last.position).max().unwrap_or_default();
        Some(CacheWindow { sequence, oldest, reached: state.reached })
    }
}

#[cfg(test)]
mod tests {
    use super::{AppliedPositions, ChangePosition};
    use libris_core::{Change, Uri};

    fn at(milliseconds: u64) -> ChangePosition {
        ChangePosition { milliseconds, number: 0 }
    }

    fn connected() -> (AppliedPositions, Uri, Uri) {
        let positions = AppliedPositions::new();
        let one = Uri::parse("a://1").unwrap();
        let others = (2..100).map(|number| Uri::parse(&format!("a://{number}")).unwrap());
        let other = others.into_iter().find(|uri| positions.slot(uri) != positions.slot(&one)).unwrap();
        assert!(positions.window(&one).is_none());
        positions.set_connected(true);
        assert!(positions.window(&one).is_none(), "the sequence is not known yet");
        positions.begin("first", at(10));
        (positions, one, other)
    }

    fn oldest(positions: &AppliedPositions, subject: &Uri) -> Option<u64> {
        positions.window(subject).map(|window| window.oldest.milliseconds)
    }

    #[test]
    fn a_change_outdates_earlier_entries_of_its_subject() {
        let (positions, one, other) = connected();
        positions.record(&Change::Updated(one.clone()), Some(&one), at(20));
        assert_eq!((oldest(&positions, &one), oldest(&positions, &other)), (Some(20), Some(10)));
        positions.record(&Change::Described(other.clone()), Some(&other), at(30));
        positions.record(&Change::Features, None, at(30));
        assert_eq!(oldest(&positions, &other), Some(10), "the contents have not changed");
        positions.record(&Change::Removed(other.clone()), Some(&other), at(40));
        assert_eq!(oldest(&positions, &other), Some(40));
        positions.record(&Change::Lost, None, at(50));
        assert_eq!((oldest(&positions, &one), oldest(&positions, &other)), (Some(50), Some(50)));
        assert_eq!(positions.window(&one).unwrap().reached, at(10));
        positions.record_reached(at(50));
        assert_eq!(positions.window(&one).unwrap().reached, at(50));
    }

    #[test]
    fn a_change_of_this_replica_prevents_sharing_until_it_is_published() {
        let (positions, one, other) = connected();
        let change = Change::Updated(one.clone());
        positions.record_own(&change, Some(&one), 1);
        assert_eq!((oldest(&positions, &one), oldest(&positions, &other)), (None, Some(10)));
        positions.record_own(&change, Some(&one), 2);
        positions.record(&change, Some(&one), at(20));
        positions.record_published(2);
        assert_eq!(oldest(&positions, &one), None, "it has changed again");
        positions.record(&change, Some(&one), at(30));
        positions.record_published(3);
        assert_eq!(oldest(&positions, &one), Some(30));
        positions.record_own(&Change::Lost, None, 3);
        assert_eq!((oldest(&positions, &one), oldest(&positions, &other)), (None, None));
    }

    #[test]
    fn a_new_sequence_outdates_everything_and_a_disconnected_replica_shares_nothing() {
        let (positions, one, other) = connected();
        positions.record(&Change::Updated(one.clone()), Some(&one), at(100));
        positions.record_reached(at(100));
        positions.begin("second", at(50));
        let window = positions.window(&other).unwrap();
        assert_eq!((&*window.sequence, window.oldest, window.reached), ("second", at(50), at(50)));
        // Perhaps a change of this replica, published before the new sequence was inspected.
        assert_eq!(oldest(&positions, &one), Some(100));
        positions.begin("third", at(200));
        assert_eq!(oldest(&positions, &one), Some(200));
        positions.set_connected(false);
        assert!(positions.window(&one).is_none());
    }
}
