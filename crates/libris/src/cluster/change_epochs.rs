//! Generation counters of changes at all replicas: cached responses are invalid once their counter has changed.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libris_core::{Change, Proof, Uri};

/// The number of counters for resources. Resources that share a counter (hash collision) invalidate each other, which
/// costs a read.
const SLOTS: usize = 4096;

/// Generation counters of changes at all replicas. They take constant memory, however many resources change.
pub(super) struct ChangeEpochs {
    hashes: RandomState,
    /// Bumped when changes were lost, so that anything may have changed.
    everything: AtomicU64,
    /// Bumped when a list may have changed.
    lists: AtomicU64,
    /// Bumped when a resource changed. The hash of its subject selects the counter.
    resources: Box<[AtomicU64]>,
}

impl ChangeEpochs {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            hashes: RandomState::new(),
            everything: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            resources: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn slot(&self, subject: &Uri) -> usize {
        (self.hashes.hash_one(subject) % SLOTS as u64) as usize
    }

    /// Records a change; `subject` is the subject of its URI.
    pub(super) fn record(&self, change: &Change, subject: Option<&Uri>) {
        let bump = |counter: &AtomicU64| _ = counter.fetch_add(1, Ordering::AcqRel);
        match (change, subject) {
            (Change::Updated(_), Some(subject)) => bump(&self.resources[self.slot(subject)]),
            (Change::Described(_), _) => bump(&self.lists),
            (Change::Added(_) | Change::Removed(_), Some(subject)) => {
                bump(&self.resources[self.slot(subject)]);
                bump(&self.lists);
            }
            (Change::Features, _) => {}
            _ => bump(&self.everything),
        }
    }

    /// A proof that holds until a replica reports a change of this subject. Create it before the resource is read.
    pub(super) fn resource_proof(self: &Arc<Self>, subject: &Uri) -> Proof {
        let slot = self.slot(subject);
        self.proof(move |epochs| epochs.resources[slot].load(Ordering::Acquire))
    }

    /// A proof that holds until a replica reports a change of the list. Create it before the resources are listed.
    pub(super) fn list_proof(self: &Arc<Self>) -> Proof {
        self.proof(|epochs| epochs.lists.load(Ordering::Acquire))
    }

    fn proof(self: &Arc<Self>, counter: impl Fn(&Self) -> u64 + Send + Sync + 'static) -> Proof {
        let epochs = self.clone();
        let current = move || (epochs.everything.load(Ordering::Acquire), counter(&epochs));
        let seen = current();
        Proof::new(move || current() == seen)
    }
}

#[cfg(test)]
mod tests {
    use super::ChangeEpochs;
    use libris_core::{Change, Uri};

    #[test]
    fn a_change_invalidates_what_it_concerns() {
        let epochs = ChangeEpochs::new();
        let one = Uri::parse("a://1").unwrap();
        // A resource that has another counter than `one`.
        let others = (2..100).map(|number| Uri::parse(&format!("a://{number}")).unwrap());
        let other = others.into_iter().find(|uri| epochs.slot(uri) != epochs.slot(&one)).unwrap();
        let proofs = || (epochs.resource_proof(&one), epochs.resource_proof(&other), epochs.list_proof());
        let after = |change: Change| {
            let (one_holds, other_holds, list_holds) = proofs();
            epochs.record(&change, Some(&one));
            (one_holds.holds(), other_holds.holds(), list_holds.holds())
        };
        assert_eq!(after(Change::Updated(one.clone())), (false, true, true));
        assert_eq!(after(Change::Described(one.clone())), (true, true, false));
        assert_eq!(after(Change::Added(one.clone())), (false, true, false));
        assert_eq!(after(Change::Removed(one.clone())), (false, true, false));
        assert_eq!(after(Change::Lost), (false, false, false));
    }
}
