//! The cluster: a catalog exchanges changes with the catalogs of other replicas of the same server.
//!
//! The connection to the other replicas is a [`ChangeBus`]; this module does not depend on an implementation of it.

mod change_epochs;
mod followed_subjects;
mod positions;
mod recent;
mod relay;
mod replica_cache;
mod replica_reads;
mod unshared_reads;

use std::time::Duration;

use async_trait::async_trait;
pub use libris_core::Client;
use libris_core::{Change, Uri};
use tokio::sync::watch;

pub(crate) use self::recent::RecentChanges;
pub(crate) use self::relay::ChangeRelay;
pub use self::replica_cache::{CacheAnswer, CacheWindow, ReplicaCache};
pub(crate) use self::replica_reads::ReplicaRead;

/// A client that subscribes is notified of changes within this period before its subscription: the client may have
/// missed these changes after it lost its connection to another replica.
pub const RECENT_PERIOD: Duration = Duration::from_secs(60);

/// A connection to the other replicas of a server, over which each passes on the changes that its sources report.
#[async_trait]
pub trait ChangeBus: Send + Sync + 'static {
    /// Sends a change of a source of this replica to the others. Does not wait: if the others cannot be reached, the
    /// bus sends the change later. If the bus has to drop changes, it sends [`Change::Lost`] instead. Returns the number
    /// of the change, which is larger than the numbers of earlier changes; the first is 1.
    fn publish(&self, change: &Change) -> u64;

    /// Waits for the next event. Only one task calls this.
    async fn next(&self) -> ClusterEvent;

    /// Whether this replica polls the source with this name: for all replicas, or only for itself because it cannot
    /// reach the others. The replica is a candidate until the receiver is dropped. By default every replica polls.
    fn poller(&self, _source: &str) -> watch::Receiver<bool> {
        watch::channel(true).1
    }

    /// Announces that clients of this replica subscribe to a subject: the replica that polls its source then follows
    /// it. Does not wait.
    fn follow(&self, _subject: &Uri) {}

    /// Withdraws the announcement of [`follow`](Self::follow).
    fn unfollow(&self, _subject: &Uri) {}

    /// The cache that the replicas share; `None`, the default, if there is none.
    fn cache(&self) -> Option<&dyn ReplicaCache> {
        None
    }

    /// Gauges and counters for the metrics, by name. Names of counters end in `_total`.
    fn counts(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
}

/// A position in the sequence of the changes of all replicas: the time at which a change was published, in Unix
/// milliseconds, and a number within the millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangePosition {
    /// The time, in Unix milliseconds, by the clock of the bus.
    pub milliseconds: u64,
    /// The number within the millisecond.
    pub number: u64,
}

/// An event of a [`ChangeBus`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A source of another replica reported this change. [`Change::Lost`] if changes of other replicas were missed.
    Changed {
        /// The change.
        change: Change,
        /// How long ago the change was published.
        age: Duration,
        /// Where the change is in the sequence of the changes of all replicas.
        position: ChangePosition,
    },
    /// All changes up to this position were delivered.
    Reached {
        /// The position.
        position: ChangePosition,
    },
    /// Changes of this replica were published.
    Published {
        /// The changes.
        changes: Vec<Change>,
        /// Their position.
        position: ChangePosition,
        /// All changes with lower [numbers](ChangeBus::publish) are published.
        published_before: u64,
    },
    /// A new sequence of changes begins. Sent before the first change, and after the bus has lost its data; in the latter
    /// case after [`Change::Lost`].
    Begun {
        /// A text that identifies the sequence.
        sequence: String,
        /// The position from which on changes are delivered.
        position: ChangePosition,
    },
    /// Other replicas follow these subjects, and no others. Sent to a replica that polls a source for all.
    Followed {
        /// The subjects.
        subjects: Vec<Uri>,
    },
    /// The bus is connected.
    Connected {
        /// Whether the bus delivers every change of the last [`RECENT_PERIOD`], before or after this event.
        knows_recent_changes: bool,
    },
    /// The bus lost its connection; changes of other replicas arrive when it is connected again.
    Disconnected {
        /// The reason, without secrets.
        reason: String,
    },
}
