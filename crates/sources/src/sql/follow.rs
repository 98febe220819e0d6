//! The resources whose changes somebody wants to hear of.
//!
//! A database does not tell which of a million rows changed, and nobody reads them all. So what was
//! subscribed to is remembered, with a digest of what it was, and looked at again when there is reason to.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libris_core::Uri;
use tokio::sync::Notify;

/// How many are remembered. Where there are more, everybody is told to look again when anything changes.
const MOST: usize = 1000;

/// The resources that are followed.
#[derive(Default)]
pub(super) struct Followed {
    state: Mutex<State>,
    /// Told when there are new ones.
    pub(super) new: Notify,
}

#[derive(Default)]
struct State {
    /// How many watches there are. Nothing is remembered while there is none.
    watches: usize,
    /// By URI: a digest of what it was, if it has been looked at.
    digests: BTreeMap<Uri, Option<u64>>,
    /// Whether there were too many to remember.
    full: bool,
}

impl Followed {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole between two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) {
        self.lock().watches += 1;
    }

    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.watches -= 1;
        if state.watches == 0 {
            state.digests.clear();
            state.full = false;
        }
    }

    /// Remembers a resource.
    pub(super) fn add(&self, uri: &Uri) {
        let mut state = self.lock();
        if state.watches == 0 || state.digests.contains_key(uri) {
            return;
        }
        if state.digests.len() >= MOST {
            state.full = true;
            return;
        }
        state.digests.insert(uri.clone(), None);
        drop(state);
        self.new.notify_one();
    }

    /// Whether there were too many to remember. If so, all are forgotten: those that somebody still wants
    /// are asked about again once changes are said to be lost.
    pub(super) fn overflowed(&self) -> bool {
        let mut state = self.lock();
        if state.full {
            state.digests.clear();
        }
        std::mem::take(&mut state.full)
    }

    pub(super) fn all(&self) -> Vec<(Uri, Option<u64>)> {
        self.lock().digests.iter().map(|(uri, digest)| (uri.clone(), *digest)).collect()
    }

    pub(super) fn set(&self, uri: &Uri, digest: u64) {
        if let Some(known) = self.lock().digests.get_mut(uri) {
            *known = Some(digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Followed, MOST};
    use libris_core::Uri;

    #[test]
    fn too_many_are_noticed_and_forgotten() {
        let followed = Followed::default();
        let add = |number: usize| followed.add(&Uri::parse(&format!("a:{number}")).unwrap());
        add(0);
        assert!(followed.all().is_empty(), "nobody watches");
        followed.begin();
        (0..MOST).for_each(add);
        assert!(!followed.overflowed());
        add(0);
        assert!(!followed.overflowed(), "it is remembered already");
        add(MOST);
        assert!(followed.overflowed() && followed.all().is_empty());
        add(7);
        assert_eq!(followed.all().len(), 1);
        followed.end();
        assert!(followed.all().is_empty());
    }
}
