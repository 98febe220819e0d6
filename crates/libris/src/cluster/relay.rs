//! The relay: one watch of the sources for the whole process, merged with the changes of other replicas.
//!
//! Changes of sources enter a replica here and nowhere else. The relay publishes them to the other replicas. It sends
//! the changes of all replicas to each watcher of the catalog: the subscriptions and the search index.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris_core::{Change, Context, Error, Proof, ReplicaKey, RequestInput, Result, Source, Uri};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::change_epochs::ChangeEpochs;
use super::followed_subjects::FollowedSubjects;
use super::positions::AppliedPositions;
use super::unshared_reads::UnsharedReads;
use super::{
    CacheWindow, ChangeBus, ChangePosition, ClusterEvent, RecentChanges, ReplicaCache, ReplicaRead,
    replica_reads,
};
use crate::Catalog;
use crate::catalog::Sources;
use crate::catalog_watch::CatalogWatch;
use crate::health::{Backoff, ClusterState, Health};
use crate::library_index::OWN_SCHEME;

/// The number of changes that a watcher may be behind. A watcher that falls further behind receives [`Change::Lost`].
const MAX_BEHIND: usize = 16_384;

/// Rate limit for [`Change::Lost`] from other replicas: watchers receive at most one per interval, because each
/// notifies every subscription. When all replicas restart, or when a source that they share recovers, every replica
/// sends one.
const LOST_INTERVAL: Duration = Duration::from_secs(2);

/// The changes of this and of the other replicas.
pub(crate) struct ChangeRelay {
    bus: Arc<dyn ChangeBus>,
    changes: broadcast::Sender<Change>,
    /// Whether the watch of the sources is open.
    opened: watch::Sender<SourcesWatch>,
    recent: Arc<RecentChanges>,
    epochs: Arc<ChangeEpochs>,
    positions: AppliedPositions,
    unshared: UnsharedReads,
    followed: FollowedSubjects,
}

/// The state of the watch of the sources.
#[derive(Clone, Default)]
enum SourcesWatch {
    #[default]
    Opening,
    Open,
    Failed(Arc<Error>),
}

impl ChangeRelay {
    /// Starts the watch of the sources and the exchange with the other replicas, until the catalog is dropped.
    pub(crate) fn start(
        catalog: Weak<Catalog>,
        sources: watch::Receiver<Sources>,
        health: Arc<Health>,
        strict: bool,
        bus: Arc<dyn ChangeBus>,
    ) -> Arc<Self> {
        let relay = Arc::new(Self {
            bus,
            changes: broadcast::Sender::new(MAX_BEHIND),
            opened: watch::Sender::default(),
            recent: Arc::default(),
            epochs: ChangeEpochs::new(),
            positions: AppliedPositions::new(),
            unshared: UnsharedReads::default(),
            followed: FollowedSubjects::default(),
        });
        health.set_cluster(ClusterState::connecting());
        let running = relay.clone();
        tokio::spawn(async move {
            let remote = running.receive(&catalog, &health);
            let local = running.watch_sources(&catalog, sources, &health, strict);
            tokio::select! {
                () = remote => {}
                () = local => {}
            }
        });
        relay
    }

    /// The changes of all replicas from now on.
    pub(crate) async fn watch(&self) -> Result<BoxStream<'static, Change>> {
        let changes = self.changes.subscribe();
        let mut opened = self.opened.subscribe();
        let state = opened.wait_for(|state| !matches!(state, SourcesWatch::Opening)).await;
        if let SourcesWatch::Failed(error) =
            &*state.map_err(|ended| Error::failed("watch for changes", ended))?
        {
            return Err(Error::from_shared(error));
        }
        let next = async |mut changes: broadcast::Receiver<Change>| match changes.recv().await {
            Ok(change) => Some((change, changes)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some((Change::Lost, changes)),
            Err(broadcast::error::RecvError::Closed) => None,
        };
        Ok(stream::unfold(changes, next).boxed())
    }

    /// The changes of the last minute.
    pub(crate) fn recent(&self) -> &Arc<RecentChanges> {
        &self.recent
    }

    /// A proof that holds until a replica reports a change of this subject. Create it before the resource is read.
    pub(crate) fn resource_proof(&self, subject: &Uri) -> Proof {
        self.epochs.resource_proof(subject)
    }

    /// A proof that holds until a replica reports a change of the list. Create it before the resources are listed.
    pub(crate) fn list_proof(&self) -> Proof {
        self.epochs.list_proof()
    }

    /// The read of `uri` from this source through the cache of the replicas; `None` if replicas do not share it.
    pub(crate) fn replica_read(
        self: &Arc<Self>,
        source: &dyn Source,
        uri: &Uri,
        context: &Context,
    ) -> Option<ReplicaRead> {
        self.bus.cache()?;
        // The contents may depend on the user's input.
        if context.input().is_some_and(RequestInput::is_retry) {
            return None;
        }
        let class = match context.visibility() {
            Some(visibility) => visibility.shared_class()?,
            None => String::new(),
        };
        let ReplicaKey { text, scope } = source.replica_key(uri)?;
        let key = replica_reads::entry_key(&[&source.name(), uri.as_str(), &text, &class]);
        let is_shared = !self.unshared.contains(&key);
        is_shared.then(|| ReplicaRead { relay: self.clone(), key, scope, subject: source.subject(uri) })
    }

    /// The cache that the replicas share.
    pub(super) fn cache(&self) -> Option<&dyn ReplicaCache> {
        self.bus.cache()
    }

    /// The entries of the shared cache that are valid for this subject now.
    pub(super) fn cache_window(&self, subject: &Uri) -> Option<CacheWindow> {
        self.positions.window(subject)
    }

    /// The reads whose contents could not be shared lately.
    pub(super) fn unshared(&self) -> &UnsharedReads {
        &self.unshared
    }

    /// Records that clients of this replica subscribe to a subject, calls `follow`, and announces the subject to the
    /// replica that polls its source for all.
    pub(crate) fn follow(&self, subject: &Uri, follow: impl FnOnce()) {
        self.followed.add(subject, follow);
        self.bus.follow(subject);
    }

    /// Reverses [`follow`](Self::follow); calls `unfollow` if no other replica follows the subject.
    pub(crate) fn unfollow(&self, subject: &Uri, unfollow: impl FnOnce()) {
        if self.followed.remove(subject, unfollow) {
            self.bus.unfollow(subject);
        }
    }

    /// Gauges and counters for the metrics.
    pub(crate) fn counts(&self) -> Vec<(&'static str, usize)> {
        self.bus.counts()
    }

    /// Watches the sources of this replica, and publishes their changes.
    async fn watch_sources(
        &self,
        catalog: &Weak<Catalog>,
        sources: watch::Receiver<Sources>,
        health: &Arc<Health>,
        strict: bool,
    ) {
        let mut backoff = Backoff::default();
        let watch = loop {
            match CatalogWatch::open(sources.clone(), health, strict, Some(self.bus.clone())).await {
                Ok(watch) => break watch,
                Err(error) => {
                    tracing::warn!(%error, "the sources cannot be watched; retrying");
                    self.opened.send_replace(SourcesWatch::Failed(Arc::new(error)));
                    sleep(backoff.pause()).await;
                    if catalog.strong_count() == 0 {
                        return;
                    }
                }
            }
        };
        self.opened.send_replace(SourcesWatch::Open);
        // While this replica was down, nobody saw the changes of sources that only this replica can watch.
        if watch.watches_alone() {
            self.positions.record_own(&Change::Lost, None, self.bus.publish(&Change::Lost));
        }
        let mut changes = watch.changes();
        while let Some(change) = changes.next().await {
            let Some(catalog) = catalog.upgrade() else { return };
            if change == Change::Lost {
                // A source may have opened a new watch, which does not follow any subject yet.
                self.followed.follow_all(|subject| catalog.follow_for_replicas(subject));
            }
            let uri = uri(&change);
            let subject = uri.map(|uri| catalog.subject(uri));
            self.recent.record(&change, subject.as_ref(), Duration::ZERO);
            // The resources with this scheme are not shared: each replica has its own status and its own index.
            if uri.is_none_or(|uri| uri.scheme() != OWN_SCHEME) {
                let number = self.bus.publish(&change);
                // Before anybody is notified, so that whoever reads after a notification gets no outdated contents of
                // the shared cache.
                self.positions.record_own(&change, subject.as_ref(), number);
                if change == Change::Lost {
                    // The sources have missed these changes too: in a replica that takes over the polling of a service,
                    // a source may have cached data from before the changes.
                    catalog.invalidate(&change);
                }
                self.epochs.record(&change, subject.as_ref());
            }
            // Fails if nobody watches.
            let _ = self.changes.send(change);
        }
    }

    /// Receives the changes of the other replicas.
    async fn receive(&self, catalog: &Weak<Catalog>, health: &Arc<Health>) {
        let mut last_lost: Option<Instant> = None;
        let mut lost_due: Option<Instant> = None;
        loop {
            let event = tokio::select! {
                event = self.bus.next() => event,
                () = sleep_until(lost_due.unwrap_or_else(Instant::now)), if lost_due.is_some() => {
                    lost_due = None;
                    last_lost = Some(Instant::now());
                    let _ = self.changes.send(Change::Lost);
                    continue;
                }
            };
            let (change, age, position) = match event {
                ClusterEvent::Changed { change, age, position } => (change, age, position),
                ClusterEvent::Reached { position } => {
                    self.positions.record_reached(position);
                    continue;
                }
                ClusterEvent::Published { changes, position, published_before } => {
                    let Some(catalog) = catalog.upgrade() else { return };
                    for change in &changes {
                        let subject = uri(change).map(|uri| catalog.subject(uri));
                        self.positions.record(change, subject.as_ref(), position);
                    }
                    self.positions.record_published(published_before);
                    continue;
                }
                ClusterEvent::Begun { sequence, position } => {
                    self.positions.begin(&sequence, position);
                    continue;
                }
                ClusterEvent::Followed { subjects } => {
                    let Some(catalog) = catalog.upgrade() else { return };
                    self.followed.replace_elsewhere(
                        subjects,
                        |subject| catalog.follow_for_replicas(subject),
                        |subject| catalog.unfollow_source(subject),
                    );
                    continue;
                }
                ClusterEvent::Connected { knows_recent_changes } => {
                    self.recent.record_connected(knows_recent_changes);
                    self.positions.set_connected(true);
                    health.set_cluster(ClusterState::connected());
                    continue;
                }
                ClusterEvent::Disconnected { reason } => {
                    self.positions.set_connected(false);
                    health.set_cluster(ClusterState::disconnected(reason));
                    continue;
                }
            };
            let Some(catalog) = catalog.upgrade() else { return };
            let subject = uri(&change).map(|uri| catalog.subject(uri));
            // Before anybody is notified, so that whoever reads after a notification gets no outdated response.
            self.invalidate(&*catalog, &change, subject.as_ref(), position);
            self.recent.record(&change, subject.as_ref(), age);
            match change {
                Change::Lost => {
                    let now = Instant::now();
                    lost_due.get_or_insert(last_lost.map_or(now, |last| (last + LOST_INTERVAL).max(now)));
                }
                change => _ = self.changes.send(change),
            }
        }
    }

    /// Invalidates the cached responses that a change of another replica concerns.
    fn invalidate(
        &self,
        source: &dyn Source,
        change: &Change,
        subject: Option<&Uri>,
        position: ChangePosition,
    ) {
        // Before the epochs: a read whose proof was created after the change must not find an entry of the shared cache
        // from before it, because the proof would then hold for outdated contents.
        self.positions.record(change, subject, position);
        source.invalidate(change);
        self.epochs.record(change, subject);
    }
}

/// The URI of a change; `None` if it concerns everything.
fn uri(change: &Change) -> Option<&Uri> {
    match change {
        Change::Updated(uri) | Change::Described(uri) | Change::Added(uri) | Change::Removed(uri) => {
            Some(uri)
        }
        _ => None,
    }
}
