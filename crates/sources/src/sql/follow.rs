//! The resources whose changes somebody wants to hear of.
//!
//! A database does not tell which of a million rows changed, and nobody reads them all. So what was
//! subscribed to is remembered, with a digest of what it was, and looked at again when there is reason to.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libris_core::{Client, Uri};
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
    followed: BTreeMap<Uri, Known>,
    /// Whether there were too many to remember.
    full: bool,
}

/// What is known of a resource.
struct Known {
    /// A digest of what it was, if it has been looked at.
    digest: Option<u64>,
    /// In whose time it is looked at.
    client: Client,
}

/// Resources, each with a digest of what it was, if it has been looked at.
pub(super) type Digests = Vec<(Uri, Option<u64>)>;

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
            state.followed.clear();
            state.full = false;
        }
    }

    /// Remembers a resource, which is looked at in the time of this client.
    pub(super) fn add(&self, uri: &Uri, client: Client) {
        let mut state = self.lock();
        if state.watches == 0 {
            return;
        }
        if let Some(known) = state.followed.get_mut(uri) {
            known.client = client;
            return;
        }
        if state.followed.len() >= MOST {
            state.full = true;
            return;
        }
        state.followed.insert(uri.clone(), Known { digest: None, client });
        drop(state);
        self.new.notify_one();
    }

    /// Whether there were too many to remember. If so, all are forgotten: those that somebody still wants
    /// are asked about again once changes are said to be lost.
    pub(super) fn overflowed(&self) -> bool {
        let mut state = self.lock();
        if state.full {
            state.followed.clear();
        }
        std::mem::take(&mut state.full)
    }

    pub(super) fn forget(&self, uri: &Uri) {
        self.lock().followed.remove(uri);
    }

    /// All resources that are followed, by the client in whose time they are looked at, in order.
    pub(super) fn by_client(&self) -> BTreeMap<Client, Digests> {
        let mut clients = BTreeMap::<_, Digests>::new();
        for (uri, known) in &self.lock().followed {
            clients.entry(known.client).or_default().push((uri.clone(), known.digest));
        }
        clients
    }

    pub(super) fn set(&self, uri: &Uri, digest: u64) {
        if let Some(known) = self.lock().followed.get_mut(uri) {
            known.digest = Some(digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Followed, MOST};
    use libris_core::{Client, Uri};

    #[test]
    fn too_many_are_noticed_and_forgotten() {
        let followed = Followed::default();
        let add =
            |number: usize| followed.add(&Uri::parse(&format!("a:{number}")).unwrap(), Client::default());
        let all = || followed.by_client().into_values().flatten().count();
        add(0);
        assert_eq!(all(), 0, "nobody watches");
        followed.begin();
        (0..MOST).for_each(add);
        assert!(!followed.overflowed());
        add(0);
        assert!(!followed.overflowed(), "it is remembered already");
        add(MOST);
        assert!(followed.overflowed());
        assert_eq!(all(), 0);
        add(7);
        assert_eq!(all(), 1);
        followed.end();
        assert_eq!(all(), 0);
    }
}
