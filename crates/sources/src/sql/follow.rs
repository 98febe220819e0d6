//! The resources whose changes somebody wants to hear of.
//!
//! A database does not tell which of a million rows changed, and nobody reads them all. So what was
//! subscribed to is remembered, with a digest of what it was, and looked at again when there is reason to.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libris_core::Uri;
use tokio::sync::Notify;

/// How many are remembered. Beyond, only triggers tell.
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
    /// What was told last, which whoever is told asks about.
    told: Option<Uri>,
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
        }
    }

    /// Remembers a resource, unless it is only asked about because its change was told.
    pub(super) fn add(&self, uri: &Uri) {
        let mut state = self.lock();
        let wanted = state.watches > 0 && state.told.as_ref() != Some(uri);
        if wanted && state.digests.len() < MOST && !state.digests.contains_key(uri) {
            state.digests.insert(uri.clone(), None);
            drop(state);
            self.new.notify_one();
        }
    }

    pub(super) fn telling(&self, uri: &Uri) {
        self.lock().told = Some(uri.clone());
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
