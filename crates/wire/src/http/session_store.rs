//! A store of legacy sessions that several replicas of a server share, so that each of them can serve every session.
//!
//! A replica holds in memory the sessions that it serves. If it does not have a session, it loads the session from the
//! store. It saves in the store what other replicas need to serve its own sessions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libris_core::Client;

/// A store of sessions.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Saves a session. It expires if it is not [touched](Self::touch) for `keep`. Subscriptions that the store already
    /// has for it stay.
    async fn save(&self, id: &str, session: SavedSession, keep: Duration) -> Result<(), StoreUnavailable>;

    /// The session with this id; `None` if there is none.
    async fn load(&self, id: &str) -> Result<Option<SavedSession>, StoreUnavailable>;

    /// Adds a subscription to a session, and notifies the other replicas that serve it.
    async fn subscribe(&self, id: &str, uri: &str) -> Result<(), StoreUnavailable>;

    /// Removes a subscription from a session, and notifies the other replicas. Does not wait.
    fn unsubscribe(&self, id: &str, uri: &str);

    /// Removes a session, and notifies the other replicas. Does not wait.
    fn end(&self, id: &str);

    /// Records that these sessions are in use: they now expire after `keep`. Does not wait.
    fn touch(&self, ids: Vec<Arc<str>>, keep: Duration);

    /// Sends to the other replicas the usage of clients at this replica since the last call, and returns the usage at
    /// the others. The default does nothing.
    async fn exchange_usage(&self, _used: Vec<ClientUsage>) -> Result<Vec<ClientUsage>, StoreUnavailable> {
        Ok(Vec::new())
    }

    /// Waits for the next event. Only one task calls this.
    async fn next(&self) -> SessionEvent;
}

/// The usage of one client, or of all clients together, that counts against rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientUsage {
    /// The client; `None` for all together.
    pub client: Option<Client>,
    /// Requests.
    pub requests: u64,
    /// Bytes of responses.
    pub bytes: u64,
}

/// The saved state of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedSession {
    /// The date of the protocol revision.
    pub revision: String,
    /// Whether the client shows MCP Apps.
    pub shows_apps: bool,
    /// The principal to which the session belongs; `None` if the caller was anonymous.
    pub principal: Option<String>,
    /// The URIs that the client subscribed to.
    pub subscriptions: Vec<String>,
    /// The remaining time to live in the store when the session was loaded. Ignored by [`SessionStore::save`].
    pub left: Duration,
}

/// An event of a [`SessionStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// At another replica, the client subscribed to this URI.
    Subscribed {
        /// The id of the session.
        id: String,
        /// The URI as the client wrote it.
        uri: String,
    },
    /// At another replica, the client ended its subscription to this URI.
    Unsubscribed {
        /// The id of the session.
        id: String,
        /// The URI as the client wrote it.
        uri: String,
    },
    /// At another replica, the client ended this session, or it was evicted.
    Ended {
        /// The id of the session.
        id: String,
    },
    /// The store may have lost sessions: each replica must save again the sessions that it serves.
    SaveAgain,
}

/// The store cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUnavailable;

impl fmt::Display for StoreUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the session store cannot be reached")
    }
}

impl std::error::Error for StoreUnavailable {}
