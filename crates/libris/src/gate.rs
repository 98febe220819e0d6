//! A source behind a bound on how many requests it works on, so that a slow one costs only itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use libris_core::{Error, Result, Source};
use libris_wire::{Budget, Client, Lease};

/// How many requests one source works on at once. One client may have three quarters of them.
const AT_ONCE: usize = 64;

/// How long a request waits for its turn. The transport's own time limit, which starts when the request arrives, is
/// shorter in most configurations.
const PATIENCE: Duration = Duration::from_secs(300);

/// A source of a catalog.
#[derive(Clone)]
pub(crate) struct Gated {
    source: Arc<dyn Source>,
    turns: Arc<Budget>,
    /// Those to list what there is, which slow reads do not hold up.
    listing: Arc<Budget>,
}

impl Gated {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self { source, turns: Budget::new(AT_ONCE), listing: Budget::new(AT_ONCE) }
    }

    /// The source, for what it answers without doing any work.
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Whether it is this source.
    pub(crate) fn is(&self, source: &Arc<dyn Source>) -> bool {
        Arc::ptr_eq(&self.source, source)
    }

    /// Waits for a turn to ask the source for contents or completions. The lease is held until it has answered.
    pub(crate) async fn turn(&self, client: Option<IpAddr>) -> Result<Lease> {
        Self::take(&self.turns, client).await
    }

    /// The same to ask what there is.
    pub(crate) async fn listing_turn(&self) -> Result<Lease> {
        Self::take(&self.listing, None).await
    }

    async fn take(turns: &Arc<Budget>, client: Option<IpAddr>) -> Result<Lease> {
        let client = client.map_or_else(Client::default, Client::at);
        turns.take(client, 1, PATIENCE).await.ok_or_else(|| {
            Error::Unavailable("the source has too many requests in progress; try again later".into())
        })
    }
}
