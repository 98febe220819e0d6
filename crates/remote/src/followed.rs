//! The resources of a server that clients follow, within limits.

use std::collections::BTreeSet;

use libris_core::Uri;

/// The maximum number of followed resources to which Libris subscribes.
pub(crate) const MAX_FOLLOWED: usize = 20_000;

/// The maximum number of further resources that wait until one of the first is unfollowed.
const MAX_WAITING: usize = 100_000;

/// A followed resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FollowedUri {
    /// The upstream URI.
    pub(crate) inner: String,
    /// The served URI.
    pub(crate) outer: Uri,
}

/// The followed resources of a server.
#[derive(Default)]
pub(crate) struct FollowedUris {
    /// Those to subscribe to.
    wanted: BTreeSet<FollowedUri>,
    /// Those beyond [`MAX_FOLLOWED`].
    waiting: BTreeSet<FollowedUri>,
}

/// What [`FollowedUris::add`] did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FollowOutcome {
    /// The resource is to be subscribed to.
    Wanted,
    /// No subscription changes: the resource is followed already, or the limit was reached before, so that it waits if
    /// there is room.
    Nothing,
    /// The resource is the first one beyond the limit. It waits.
    LimitReached,
}

impl FollowedUris {
    /// The resources to subscribe to.
    pub(crate) fn wanted(&self) -> &BTreeSet<FollowedUri> {
        &self.wanted
    }

    pub(crate) fn add(&mut self, one: FollowedUri) -> FollowOutcome {
        if self.wanted.contains(&one) {
            return FollowOutcome::Nothing;
        }
        if self.wanted.len() < MAX_FOLLOWED {
            self.wanted.insert(one);
            return FollowOutcome::Wanted;
        }
        let is_first = self.waiting.is_empty();
        if self.waiting.len() < MAX_WAITING {
            self.waiting.insert(one);
        }
        if is_first { FollowOutcome::LimitReached } else { FollowOutcome::Nothing }
    }

    /// Removes a resource by its served URI. If another one waits, it takes its place. Returns whether the resources to
    /// subscribe to changed.
    pub(crate) fn remove(&mut self, outer: &Uri) -> bool {
        self.waiting.retain(|one| one.outer != *outer);
        let before = self.wanted.len();
        self.wanted.retain(|one| one.outer != *outer);
        let has_changed = self.wanted.len() < before;
        while self.wanted.len() < MAX_FOLLOWED {
            let Some(next) = self.waiting.pop_first() else { break };
            self.wanted.insert(next);
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use libris_core::Uri;

    use super::{FollowOutcome, FollowedUri, FollowedUris, MAX_FOLLOWED, MAX_WAITING};

    fn one(number: usize) -> FollowedUri {
        let inner = format!("odd://{number:06}");
        FollowedUri { outer: Uri::parse(&inner).unwrap(), inner }
    }

    #[test]
    fn resources_beyond_the_limit_wait_until_there_is_room() {
        let mut followed = FollowedUris::default();
        for number in 0..MAX_FOLLOWED {
            assert_eq!(followed.add(one(number)), FollowOutcome::Wanted);
        }
        // The limit is reported once.
        assert_eq!(followed.add(one(MAX_FOLLOWED)), FollowOutcome::LimitReached);
        assert_eq!(followed.add(one(MAX_FOLLOWED + 1)), FollowOutcome::Nothing);
        assert_eq!(followed.wanted().len(), MAX_FOLLOWED);
        assert!(followed.remove(&one(7).outer));
        assert!(followed.wanted().contains(&one(MAX_FOLLOWED)) && !followed.wanted().contains(&one(7)));
        assert!(!followed.remove(&one(7).outer));
        // A resource that waits can be unfollowed, too.
        assert!(!followed.remove(&one(MAX_FOLLOWED + 1).outer));
        assert!(followed.remove(&one(8).outer));
        assert_eq!(followed.wanted().len(), MAX_FOLLOWED - 1);
        assert_eq!(followed.add(one(8)), FollowOutcome::Wanted);
        // It is reported again when it is reached again, and what waits is limited, too.
        assert_eq!(followed.add(one(9_999_999)), FollowOutcome::LimitReached);
        for number in 0..MAX_WAITING + 10 {
            followed.add(one(500_000 + number));
        }
        assert_eq!(followed.waiting.len(), MAX_WAITING);
    }
}
