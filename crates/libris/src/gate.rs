//! Bulkheads: each source of a catalog has its own permits, so that a slow source delays only its own requests.

use std::sync::{Arc, Weak};
use std::time::Duration;

use libris_core::{Budget, Client, Context, Error, Freshness, Lease, Result, Source, UriSpan};
use tokio::time::timeout;

use crate::health::SourceHealth;
use crate::list_cache::ListCache;

/// How long a request waits for a permit. Most configurations have a shorter request timeout in the transport.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(300);

/// A source of a catalog with its permits and its health. Cheap to clone.
#[derive(Clone)]
pub(crate) struct GatedSource(Arc<SourceGate>);

struct SourceGate {
    source: Arc<dyn Source>,
    /// Permits for reads and completions.
    permits: Arc<Budget>,
    /// Permits for lists, which slow reads must not delay. Half as many as for reads, because a source may have one
    /// queue for both.
    listing_permits: Arc<Budget>,
    health: Arc<SourceHealth>,
    role: SourceRole,
    lists: ListCache,
    span: Option<UriSpan>,
}

/// The role of a source in its catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceRole {
    /// It holds resources to serve.
    Content,
    /// It is `libris://status`, which reports on the other sources.
    Status,
    /// It is `libris://index`, which summarises the resources of the other sources.
    Index,
}

/// A weak reference to a source of a catalog.
pub(crate) struct WeakGatedSource(Weak<SourceGate>);

impl WeakGatedSource {
    pub(crate) fn upgrade(&self) -> Option<GatedSource> {
        self.0.upgrade().map(GatedSource)
    }
}

impl GatedSource {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        health: Arc<SourceHealth>,
        role: SourceRole,
        lists: ListCache,
    ) -> Self {
        let most = source.concurrency().max(1);
        let (permits, listing_permits) = (Budget::new(most), Budget::new(most.div_ceil(2)));
        let span = source.span();
        Self(Arc::new(SourceGate { source, permits, listing_permits, health, role, lists, span }))
    }

    /// The source itself, for calls that need no permit.
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.0.source
    }

    /// The health of the source.
    pub(crate) fn health(&self) -> &Arc<SourceHealth> {
        &self.0.health
    }

    /// The cached lists of the source.
    pub(crate) fn lists(&self) -> &ListCache {
        &self.0.lists
    }

    /// The range of URIs that contains the listed resources of the source; `None` if the range is not known.
    pub(crate) fn span(&self) -> Option<&UriSpan> {
        self.0.span.as_ref()
    }

    pub(crate) fn role(&self) -> SourceRole {
        self.0.role
    }

    /// The freshness that this source contributes to the freshness of a merged list. `libris://status` and
    /// `libris://index` contribute none: only their contents change, not their entries in the list, so they must not
    /// shorten the TTL of the list.
    pub(crate) fn contributed(&self, freshness: Freshness) -> Option<Freshness> {
        (self.0.role == SourceRole::Content).then_some(freshness)
    }

    /// Whether this gate wraps the source (pointer equality).
    pub(crate) fn is(&self, source: &Arc<dyn Source>) -> bool {
        Arc::ptr_eq(&self.0.source, source)
    }

    /// A reference that does not keep the source alive.
    pub(crate) fn downgrade(&self) -> WeakGatedSource {
        WeakGatedSource(Arc::downgrade(&self.0))
    }

    /// Waits for a permit to read or complete. The returned context owns the permit, so that the source can hold it
    /// until its work has ended.
    pub(crate) async fn permit(&self, context: &Context) -> Result<Context> {
        let lease = Self::take(&self.0.permits, context.client(), PERMIT_TIMEOUT).await?;
        Ok(context.clone().with_permit(lease))
    }

    /// Waits for a permit for background work. Takes a permit only while at most half of the permits are in use, so
    /// that clients need not wait for background work. If the source has only one permit, this permit must be free.
    #[cfg(feature = "search")]
    pub(crate) async fn idle_permit(&self, context: &Context) -> Result<Context> {
        const PAUSE: Duration = Duration::from_millis(20);
        let half = self.0.source.concurrency().max(1) / 2;
        let deadline = tokio::time::Instant::now() + PERMIT_TIMEOUT;
        while tokio::time::Instant::now() < deadline {
            if self.0.permits.used() <= half
                && let Some(lease) = self.0.permits.try_take_fairly(context.client(), 1)
            {
                return Ok(context.clone().with_permit(lease));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Error::Busy("the source has too many requests in progress"))
    }

    /// Waits for a permit to list, for at most `limit`.
    pub(crate) async fn listing_permit(&self, context: &Context, limit: Duration) -> Result<Context> {
        let lease = Self::take(&self.0.listing_permits, context.client(), limit).await?;
        Ok(context.clone().with_permit(lease))
    }

    async fn take(permits: &Arc<Budget>, client: Client, limit: Duration) -> Result<Lease> {
        if let Some(permit) = permits.try_take_fairly(client, 1) {
            return Ok(permit);
        }
        let permit = timeout(limit, permits.take(client, 1)).await;
        permit.ok().flatten().ok_or(Error::Busy("the source has too many requests in progress"))
    }
}
