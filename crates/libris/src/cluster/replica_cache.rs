//! The cache that replicas share, for contents from slow services.
//!
//! Each entry has the position up to which its writer had applied the changes of all replicas before it read the
//! contents. A replica refuses an entry whose position is before the last change that it has applied to the subject.
//! So a client that was notified of a change never gets contents from before the change.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::ChangePosition;

/// The entries of a [`ReplicaCache`] that are valid for a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheWindow {
    /// The sequence of changes that the positions refer to. Entries of other sequences are not valid.
    pub sequence: Arc<str>,
    /// The last change of the subject. Earlier entries are outdated.
    pub oldest: ChangePosition,
    /// All changes up to this position are applied at this replica: the position of an entry that it writes.
    pub reached: ChangePosition,
}

/// The answer of a [`ReplicaCache`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheAnswer {
    /// A valid entry.
    Found {
        /// The data.
        data: Bytes,
        /// The time until the entry expires.
        ttl: Duration,
    },
    /// There is no valid entry, and this replica is the one to read the contents: it must call
    /// [`store`](ReplicaCache::store) or [`abandon`](ReplicaCache::abandon).
    Lead,
    /// Another replica reads the contents.
    Wait,
    /// The contents are not shared: they cannot be cached, they are too large, or the cache cannot be reached.
    Unshared,
}

/// A cache that the replicas of a server share, with single-flight: one replica at a time reads the contents of a key.
#[async_trait]
pub trait ReplicaCache: Send + Sync {
    /// The entry of a key, if it is valid.
    async fn find(&self, key: &str, window: &CacheWindow) -> CacheAnswer;

    /// Stores an entry, which expires after `ttl`, and ends the lead of this replica.
    async fn store(&self, key: &str, window: &CacheWindow, data: Bytes, ttl: Duration);

    /// Extends the lead of this replica. Call it at least once a second.
    async fn renew(&self, key: &str, window: &CacheWindow);

    /// Ends the lead without an entry: for a short time, each replica reads the contents itself.
    async fn abandon(&self, key: &str, window: &CacheWindow);
}
