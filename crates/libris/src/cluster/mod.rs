//! The cluster: a catalog exchanges changes with the catalogs of other replicas of the same server.
//!
//! The connection to the other replicas is a [`ChangeBus`]; this module does not depend on an implementation of it.

mod followed_subjects;
mod recent;
mod relay;
mod remote_epochs;

use std::time::Duration;

use async_trait::async_trait;
pub use libris_core::Client;
use libris_core::{Change, Uri};
use tokio::sync::watch;

pub(crate) use self::recent::RecentChanges;
pub(crate) use self::relay::ChangeRelay;

/// A client that subscribes is notified of changes within this period before its subscription: the client may have
/// missed these changes after it lost its connection to another replica.
pub const RECENT_PERIOD: Duration = Duration::from_secs(60);

/// A connection to the other replicas of a server, over which each passes on the changes that its sources report.
#[async_trait]
pub trait ChangeBus: Send + Sync + 'static {
    /// Sends a change of a source of this replica to the others. Does not wait: if the others cannot be reached, the
    /// bus sends the change later. If the bus has to drop changes, it sends [`Change::Lost`] instead.
    fn publish(&self, change: &Change);

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

    /// Gauges and counters for the metrics, by name. Names of counters end in `_total`.
    fn counts(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
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
