//! The subjects that clients of this and of other replicas subscribe to, for sources that one replica polls for all. A
//! subject is the URI under which a source reports changes of a resource.

use std::collections::HashSet;
use std::sync::Mutex;

use libris_core::Uri;

use crate::lock::lock;

/// The followed subjects. The lock is held while a source follows or unfollows a subject, so that the source sees
/// concurrent calls in the order in which they are recorded here.
#[derive(Default)]
pub(super) struct FollowedSubjects {
    state: Mutex<FollowedSubjectsState>,
}

#[derive(Default)]
struct FollowedSubjectsState {
    /// The subjects that clients of this replica subscribe to.
    here: HashSet<Uri>,
    /// The subjects that clients of other replicas subscribe to; empty unless this replica polls for them.
    elsewhere: HashSet<Uri>,
}

impl FollowedSubjects {
    /// Records that clients of this replica subscribe to a subject, and calls `follow`.
    pub(super) fn add(&self, subject: &Uri, follow: impl FnOnce()) {
        let mut state = lock(&self.state);
        state.here.insert(subject.clone());
        follow();
    }

    /// Records that no client of this replica subscribes to a subject any more, and calls `unfollow` if clients of
    /// other replicas do not either. Returns whether the subject was recorded.
    pub(super) fn remove(&self, subject: &Uri, unfollow: impl FnOnce()) -> bool {
        let mut state = lock(&self.state);
        let was_followed = state.here.remove(subject);
        if !state.elsewhere.contains(subject) {
            unfollow();
        }
        was_followed
    }

    /// Replaces the subjects of other replicas. Calls `follow` for subjects that other replicas did not follow before,
    /// even if this replica does, and `unfollow` for subjects that no replica follows any more.
    pub(super) fn replace_elsewhere(
        &self,
        subjects: Vec<Uri>,
        follow: impl FnMut(&Uri),
        unfollow: impl FnMut(&Uri),
    ) {
        let mut state = lock(&self.state);
        let before = std::mem::replace(&mut state.elsewhere, subjects.into_iter().collect());
        before
            .difference(&state.elsewhere)
            .filter(|subject| !state.here.contains(*subject))
            .for_each(unfollow);
        state.elsewhere.difference(&before).for_each(follow);
    }

    /// Calls `follow` for every subject.
    pub(super) fn follow_all(&self, follow: impl FnMut(&Uri)) {
        let state = lock(&self.state);
        state.here.union(&state.elsewhere).for_each(follow);
    }
}

#[cfg(test)]
mod tests {
    use super::FollowedSubjects;
    use libris_core::Uri;
    use std::cell::RefCell;

    #[test]
    fn a_subject_is_followed_while_a_client_of_any_replica_subscribes_to_it() {
        let (followed, log) = (FollowedSubjects::default(), RefCell::new(Vec::new()));
        let uri = |name: &str| Uri::parse(&format!("a:{name}")).unwrap();
        let calls = || {
            let mut calls = log.take();
            calls.sort();
            calls
        };
        let replace = |names: &[&str]| {
            followed.replace_elsewhere(
                names.iter().map(|name| uri(name)).collect(),
                |subject| log.borrow_mut().push(format!("follow {subject}")),
                |subject| log.borrow_mut().push(format!("unfollow {subject}")),
            );
        };
        let remove =
            |name: &str| followed.remove(&uri(name), || log.borrow_mut().push(format!("unfollow a:{name}")));
        followed.add(&uri("here"), || log.borrow_mut().push("follow a:here".to_owned()));
        assert_eq!(calls(), ["follow a:here"]);
        replace(&["here", "there"]);
        // Also the subject that is followed here: the watch of the source may have been opened again since.
        assert_eq!(calls(), ["follow a:here", "follow a:there"]);
        replace(&["here", "there"]);
        assert_eq!(calls(), Vec::<String>::new());
        assert!(remove("here") && !remove("here"));
        assert_eq!(calls(), Vec::<String>::new(), "the other replica follows it");
        followed.add(&uri("there"), || {});
        replace(&[]);
        assert_eq!(calls(), ["unfollow a:here"]);
        followed.follow_all(|subject| log.borrow_mut().push(format!("follow {subject}")));
        assert_eq!(calls(), ["follow a:there"]);
        assert!(remove("there"));
        assert_eq!(calls(), ["unfollow a:there"]);
    }
}
