//! A source of a catalog behind a bound on how many requests it works on, so that a slow one costs only itself.

use std::sync::{Arc, Weak};
use std::time::Duration;

use libris_core::{Budget, Client, Context, Error, Freshness, Lease, Result, Source};
use tokio::time::timeout;

use crate::health::SourceHealth;

/// How long a request waits for its turn. The transport's own time limit, which starts when the request arrives, is
/// shorter in most configurations.
const PATIENCE: Duration = Duration::from_secs(300);

/// A source of a catalog.
#[derive(Clone)]
pub(crate) struct Gated(Arc<Gate>);

struct Gate {
    source: Arc<dyn Source>,
    turns: Arc<Budget>,
    /// Those to list what there is, which slow reads do not hold up. Half as many, since a source may have one queue for
    /// both.
    listing: Arc<Budget>,
    health: Arc<SourceHealth>,
    role: Role,
}

/// What a source is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// To be served.
    Content,
    /// To tell how the other sources are.
    Status,
}

/// A source that its catalog may have let go of.
pub(crate) struct WeakGated(Weak<Gate>);

impl WeakGated {
    pub(crate) fn upgrade(&self) -> Option<Gated> {
        self.0.upgrade().map(Gated)
    }
}

impl Gated {
    pub(crate) fn new(source: Arc<dyn Source>, health: Arc<SourceHealth>, role: Role) -> Self {
        let most = source.concurrency().max(1);
        let (turns, listing) = (Budget::new(most), Budget::new(most.div_ceil(2)));
        Self(Arc::new(Gate { source, turns, listing, health, role }))
    }

    /// The source, for what it answers without doing any work.
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.0.source
    }

    /// Whether the source answers.
    pub(crate) fn health(&self) -> &Arc<SourceHealth> {
        &self.0.health
    }

    pub(crate) fn role(&self) -> Role {
        self.0.role
    }

    /// What the freshness of a list owes to this source. The status is always listed in the same way, and must not
    /// make shorter what the others allow.
    pub(crate) fn counted(&self, freshness: Freshness) -> Option<Freshness> {
        (self.0.role == Role::Content).then_some(freshness)
    }

    /// Whether it is this source.
    pub(crate) fn is(&self, source: &Arc<dyn Source>) -> bool {
        Arc::ptr_eq(&self.0.source, source)
    }

    /// A reference that does not keep the source.
    pub(crate) fn downgrade(&self) -> WeakGated {
        WeakGated(Arc::downgrade(&self.0))
    }

    /// Waits for a turn to ask the source for contents or completions. The context that this gives has the turn, so
    /// that the source holds it until the work has ended.
    pub(crate) async fn turn(&self, context: &Context) -> Result<Context> {
        let lease = Self::take(&self.0.turns, context.client(), PATIENCE).await?;
        Ok(context.clone().with_permit(lease))
    }

    /// The same to ask what there is, for no longer than `patience`.
    pub(crate) async fn listing_turn(&self, context: &Context, patience: Duration) -> Result<Context> {
        let lease = Self::take(&self.0.listing, context.client(), patience).await?;
        Ok(context.clone().with_permit(lease))
    }

    async fn take(turns: &Arc<Budget>, client: Client, patience: Duration) -> Result<Lease> {
        if let Some(turn) = turns.try_take_fairly(client, 1) {
            return Ok(turn);
        }
        let turn = timeout(patience, turns.take(client, 1)).await;
        turn.ok().flatten().ok_or(Error::Busy("the source has too many requests in progress"))
    }
}
