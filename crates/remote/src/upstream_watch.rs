//! Handles the notifications of a server, and the state that a source shares with the task of its connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use libris_core::{Change, Uri};
use tokio::sync::{Notify, broadcast, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::config::{RemoteConfig, RemoteTarget};
use crate::directory::{self, LastDirectory};
use crate::fault::RemoteFault;
use crate::followed::{FollowOutcome, FollowedUri, FollowedUris, MAX_FOLLOWED};
use crate::inventory::{CachedFetch, Snapshot, SnapshotValidity, UpdateCounters};
use crate::link::{UpstreamNotification, UpstreamSession};
use crate::listing::{CacheHints, ResourceList, TemplateList};
use crate::prompt_list::PromptList;
use crate::skill_list::SkillList;
use crate::tool_list::ToolList;
use crate::upstream_subscriber::{Subscribed, UpstreamSubscriber};

/// How many changes a watcher may lag behind. Beyond that, it receives [`Change::Lost`].
const MAX_UNREAD_CHANGES: usize = 4096;

/// If more entries of a list changed, [`Change::Lost`] is reported instead of each of them.
const MAX_LIST_CHANGES: usize = 1000;

/// The debounce window: how long to wait after a `list_changed` notification before the lists are fetched again.
const LIST_DEBOUNCE: Duration = Duration::from_millis(100);

/// The interval of pings over HTTP, where nothing else shows that a server has ended.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The state that a source shares with the task of its connection: followed resources, cached lists and watchers.
pub(crate) struct UpstreamEvents {
    config: RemoteConfig,
    followed: Mutex<FollowedUris>,
    /// Wakes [`run`] when `followed` has changed.
    wake: Notify,
    changes: broadcast::Sender<Change>,
    /// Bumped when the lists may have changed.
    pub(crate) list_changes: Arc<AtomicU64>,
    /// Bumped when the prompts or tools may have changed.
    feature_changes: Arc<AtomicU64>,
    /// Bumped when a connection ends.
    losses: Arc<AtomicU64>,
    pub(crate) updates: UpdateCounters,
    pub(crate) resources: CachedFetch<ResourceList>,
    pub(crate) templates: CachedFetch<TemplateList>,
    pub(crate) skills: CachedFetch<SkillList>,
    pub(crate) prompts: CachedFetch<PromptList>,
    pub(crate) tools: CachedFetch<ToolList>,
    directory: LastDirectory,
    announced: Mutex<AnnouncedLists>,
}

/// The lists whose contents watchers know. [`UpstreamEvents::relist`] compares new lists with them, and reports the
/// differences.
#[derive(Default)]
struct AnnouncedLists {
    resources: Option<Arc<Snapshot<ResourceList>>>,
    templates: Option<Arc<Snapshot<TemplateList>>>,
}

impl UpstreamEvents {
    pub(crate) fn new(config: RemoteConfig, losses: Arc<AtomicU64>) -> Self {
        Self {
            config,
            followed: Mutex::default(),
            wake: Notify::new(),
            changes: broadcast::Sender::new(MAX_UNREAD_CHANGES),
            list_changes: Arc::default(),
            feature_changes: Arc::default(),
            losses,
            updates: UpdateCounters::default(),
            resources: CachedFetch::default(),
            templates: CachedFetch::default(),
            skills: CachedFetch::default(),
            prompts: CachedFetch::default(),
            tools: CachedFetch::default(),
            directory: LastDirectory::default(),
            announced: Mutex::default(),
        }
    }

    fn announced(&self) -> MutexGuard<'_, AnnouncedLists> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followed(&self) -> MutexGuard<'_, FollowedUris> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a resource to the followed ones. [`run`] subscribes to it.
    pub(crate) fn follow(&self, inner: String, outer: Uri) {
        let added = self.followed().add(FollowedUri { inner, outer });
        match added {
            FollowOutcome::Wanted => self.wake.notify_one(),
            FollowOutcome::Nothing => {}
            FollowOutcome::LimitReached => {
                let server = &self.config.name;
                tracing::warn!(
                    server,
                    "an MCP server has {MAX_FOLLOWED} subscriptions; further resources wait until others are unsubscribed \
                     from"
                );
            }
        }
    }

    /// Removes a resource from the followed ones. [`run`] cancels the subscription.
    pub(crate) fn unfollow(&self, outer: &Uri) {
        let has_changed = self.followed().remove(outer);
        if has_changed {
            self.wake.notify_one();
        }
    }

    /// The changes from now on.
    pub(crate) fn watch(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Sends a change to all watchers.
    fn report(&self, change: Change) {
        // Fails if there are no watchers.
        let _ = self.changes.send(change);
    }

    /// Invalidates everything that is cached, and reports to watchers that anything may have changed.
    fn lost(&self) {
        self.list_changes.fetch_add(1, Ordering::AcqRel);
        self.feature_changes.fetch_add(1, Ordering::AcqRel);
        self.updates.bump_all();
        *self.announced() = AnnouncedLists::default();
        self.report(Change::Lost);
    }

    /// Reports to watchers that the prompts or tools changed.
    fn features_changed(&self) {
        self.report(Change::Features);
    }

    /// Invalidates a resource, and reports to watchers that it changed.
    fn updated(&self, inner: &str) {
        self.updates.of(inner).fetch_add(1, Ordering::AcqRel);
        // The size or the modification time in the list may have changed, too.
        self.list_changes.fetch_add(1, Ordering::AcqRel);
        let known =
            self.followed().wanted().iter().find(|one| one.inner == inner).map(|one| one.outer.clone());
        match known.map_or_else(|| self.config.mount.outer(inner), Ok) {
            Ok(outer) => self.report(Change::Updated(outer)),
            Err(cause) => tracing::debug!(%cause, "an MCP server reported a change of a malformed URI"),
        }
    }

    /// Fetches a list. The snapshot is valid until it expires, the server reports a change, or the connection is lost.
    async fn snapshot<T>(
        &self,
        (changes, reports): (&Arc<AtomicU64>, bool),
        fetch: impl Future<Output = Result<(T, CacheHints), RemoteFault>>,
    ) -> Result<Snapshot<T>, RemoteFault> {
        let validity = SnapshotValidity::begin(changes, &self.losses);
        let (list, hints) = fetch.await?;
        Ok(Snapshot::new(list, validity, hints, reports, self.config.limits.list_ttl))
    }

    /// The cached list if it is current, otherwise the result of `fetch`. `changes` is the counter that is bumped when the
    /// list changes, and whether the server reports these changes.
    async fn current<L, F>(
        self: &Arc<Self>,
        session: &Arc<UpstreamSession>,
        cached: &CachedFetch<L>,
        (changes, reports): (&Arc<AtomicU64>, bool),
        fetch: impl FnOnce(Arc<Self>, Arc<UpstreamSession>) -> F,
        hints: fn(&L) -> CacheHints,
    ) -> Result<Arc<Snapshot<L>>, RemoteFault>
    where
        L: Send + Sync + 'static,
        F: Future<Output = Result<L, RemoteFault>> + Send + 'static,
    {
        let fetch = || {
            let validity = SnapshotValidity::begin(changes, &self.losses);
            let ttl = self.config.limits.list_ttl;
            let fetched = fetch(self.clone(), session.clone());
            async move {
                let list = fetched.await?;
                let hints = hints(&list);
                Ok(Snapshot::new(list, validity, hints, reports, ttl))
            }
        };
        cached.current_or_fetch(fetch).await
    }

    /// The resources, fetched if they are not current.
    pub(crate) async fn current_resources(
        self: &Arc<Self>,
        session: &Arc<UpstreamSession>,
    ) -> Result<Arc<Snapshot<ResourceList>>, RemoteFault> {
        let fetch = |events: Arc<Self>, session: Arc<UpstreamSession>| async move {
            ResourceList::fetch(&session, &events.config.mount, &events.config.limits).await
        };
        let changes = (&self.list_changes, session.reports_list_changes());
        let snapshot = self.current(session, &self.resources, changes, fetch, |list| list.hints).await?;
        self.announced().resources.get_or_insert_with(|| snapshot.clone());
        Ok(snapshot)
    }

    /// The templates, fetched if they are not current.
    pub(crate) async fn current_templates(
        self: &Arc<Self>,
        session: &Arc<UpstreamSession>,
    ) -> Result<Arc<Snapshot<TemplateList>>, RemoteFault> {
        let fetch = |events: Arc<Self>, session: Arc<UpstreamSession>| async move {
            TemplateList::fetch(&session, &events.config.mount, &events.config.limits).await
        };
        let changes = (&self.list_changes, session.reports_list_changes());
        let snapshot = self.current(session, &self.templates, changes, fetch, |list| list.hints).await?;
        self.announced().templates.get_or_insert_with(|| snapshot.clone());
        Ok(snapshot)
    }

    /// The skills, fetched if they are not current.
    pub(crate) async fn current_skills(
        self: &Arc<Self>,
        session: &Arc<UpstreamSession>,
    ) -> Result<Arc<Snapshot<SkillList>>, RemoteFault> {
        let fetch = |events: Arc<Self>, session: Arc<UpstreamSession>| async move {
            SkillList::fetch(&session, &events.config.mount, &events.config.limits).await
        };
        let changes = (&self.list_changes, session.reports_list_changes());
        self.current(session, &self.skills, changes, fetch, |list| list.hints).await
    }

    /// The prompts, fetched if they are not current.
    pub(crate) async fn current_prompts(
        self: &Arc<Self>,
        session: &Arc<UpstreamSession>,
    ) -> Result<Arc<Snapshot<PromptList>>, RemoteFault> {
        let fetch = |events: Arc<Self>, session: Arc<UpstreamSession>| async move {
            PromptList::fetch(&session, &events.config.mount, &events.config.limits).await
        };
        let changes = (&self.feature_changes, session.reports_prompt_changes());
        self.current(session, &self.prompts, changes, fetch, |list| list.hints).await
    }

    /// The tools, fetched if they are not current.
    pub(crate) async fn current_tools(
        self: &Arc<Self>,
        session: &Arc<UpstreamSession>,
    ) -> Result<Arc<Snapshot<ToolList>>, RemoteFault> {
        let fetch = |events: Arc<Self>, session: Arc<UpstreamSession>| async move {
            ToolList::fetch(&session, &events.config).await
        };
        let changes = (&self.feature_changes, session.reports_tool_changes());
        self.current(session, &self.tools, changes, fetch, |list| list.hints).await
    }

    /// The children of a directory, fetched if they are not current; `None` if the server does not know the method.
    pub(crate) async fn current_directory(
        &self,
        session: &UpstreamSession,
        directory: &str,
    ) -> Result<Option<Arc<Snapshot<ResourceList>>>, RemoteFault> {
        if let Some(children) = self.directory.current(directory) {
            return Ok(Some(children));
        }
        let RemoteConfig { mount, limits, .. } = &self.config;
        let fetch = async {
            let children = directory::fetch(session, directory, mount, limits).await?;
            let hints = children.as_ref().map(|children| children.hints).unwrap_or_default();
            Ok((children, hints))
        };
        let changes = (&self.list_changes, session.reports_list_changes());
        let Some(children) = self.snapshot(changes, fetch).await?.transposed() else { return Ok(None) };
        let children = Arc::new(children);
        self.directory.set(directory, children.clone());
        Ok(Some(children))
    }

    /// Fetches the lists again and reports to watchers what changed since the announced ones.
    async fn relist(self: &Arc<Self>, session: &Arc<UpstreamSession>) {
        let before = std::mem::take(&mut *self.announced());
        let after = (self.current_resources(session).await, self.current_templates(session).await);
        let (Some(before), Some(templates), (Ok(after), Ok(templates_after))) =
            (before.resources, before.templates, after)
        else {
            return self.report(Change::Lost);
        };
        let changes = list_changes(&before.list, &after.list);
        if changes.len() > MAX_LIST_CHANGES || templates.list.templates != templates_after.list.templates {
            return self.report(Change::Lost);
        }
        changes.into_iter().for_each(|change| self.report(change));
    }
}

/// What changed from one list to the next.
fn list_changes(before: &ResourceList, after: &ResourceList) -> Vec<Change> {
    let removed = before.resources.iter().filter(|resource| after.find(&resource.uri).is_none());
    let removed = removed.map(|resource| Change::Removed(resource.uri.clone()));
    let changed = after.resources.iter().filter_map(|resource| match before.find(&resource.uri) {
        None => Some(Change::Added(resource.uri.clone())),
        Some(known) if known != resource => Some(Change::Described(resource.uri.clone())),
        Some(_) => None,
    });
    removed.chain(changed).collect()
}

/// Handles the subscriptions and notifications of a connection until it is lost or the source is dropped.
pub(crate) async fn run(
    events: &Weak<UpstreamEvents>,
    session: &Arc<UpstreamSession>,
    notifications: &mut mpsc::Receiver<UpstreamNotification>,
    overflow: &Notify,
    config: &RemoteConfig,
) {
    let Some(events) = events.upgrade() else { return };
    let mut subscriber = UpstreamSubscriber::new(session, config);
    let mut subscribing: Option<BoxFuture<'_, Subscribed>> = None;
    let mut relisting: Option<BoxFuture<'_, ()>> = None;
    let mut relist_at: Option<Instant> = None;
    let mut features_at: Option<Instant> = None;
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let is_http = matches!(config.target, RemoteTarget::Http { .. });
    let (mut is_first, mut has_warned) = (true, false);
    loop {
        if subscribing.is_none() {
            let wanted = events.followed().wanted().clone();
            if !session.supports_subscriptions()
                && !wanted.is_empty()
                && !std::mem::replace(&mut has_warned, true)
            {
                let server = &config.name;
                tracing::warn!(
                    server,
                    "an MCP server does not support subscriptions; updates of its resources are not reported"
                );
            }
            subscribing = subscriber.change(&wanted);
        }
        if is_first && subscribing.is_none() {
            // Changes between the previous connection and the new subscriptions may have been missed.
            if session.generation > 1 {
                events.lost();
            }
            is_first = false;
        }
        let features_time = tokio::time::sleep_until(features_at.unwrap_or_else(Instant::now));
        let relist_time = tokio::time::sleep_until(relist_at.unwrap_or_else(Instant::now));
        let retry_at = subscriber.retry_at().filter(|_| subscribing.is_none());
        let retry_time = tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now));
        tokio::select! {
            () = session.broken() => return,
            subscribed = async { subscribing.as_mut().expect("checked").await }, if subscribing.is_some() => {
                subscribing = None;
                let accepted = subscriber.changed(subscribed);
                // Changes before the server accepted the subscription may have been missed, so an update is reported.
                // After a reconnection, `events.lost()` covers the first subscriptions.
                if !is_first || session.generation == 1 {
                    accepted.into_iter().for_each(|one| events.updated(&one.inner));
                }
            }
            notification = notifications.recv() => match notification {
                Some(UpstreamNotification::Updated(uri)) => events.updated(&uri),
                Some(UpstreamNotification::ListChanged) => {
                    events.list_changes.fetch_add(1, Ordering::AcqRel);
                    relist_at.get_or_insert_with(|| Instant::now() + LIST_DEBOUNCE);
                }
                Some(UpstreamNotification::FeaturesChanged) => {
                    events.feature_changes.fetch_add(1, Ordering::AcqRel);
                    features_at.get_or_insert_with(|| Instant::now() + LIST_DEBOUNCE);
                }
                None => return,
            },
            listened = subscriber.listen() => match listened {
                Some(UpstreamNotification::Updated(uri)) => events.updated(&uri),
                Some(UpstreamNotification::ListChanged) => {
                    events.list_changes.fetch_add(1, Ordering::AcqRel);
                    relist_at.get_or_insert_with(|| Instant::now() + LIST_DEBOUNCE);
                }
                Some(UpstreamNotification::FeaturesChanged) => {
                    events.feature_changes.fetch_add(1, Ordering::AcqRel);
                    features_at.get_or_insert_with(|| Instant::now() + LIST_DEBOUNCE);
                }
                None => return,
            },
            () = features_time, if features_at.is_some() => {
                features_at = None;
                events.features_changed();
            }
            () = overflow.notified() => events.lost(),
            () = events.wake.notified() => {}
            () = retry_time, if retry_at.is_some() => {}
            () = relist_time, if relist_at.is_some() && relisting.is_none() => {
                relist_at = None;
                relisting = Some(events.relist(session).boxed());
            }
            () = async { relisting.as_mut().expect("checked").await }, if relisting.is_some() => relisting = None,
            _ = heartbeat.tick(), if is_http => {
                if !session.is_alive(config.limits.timeout).await {
                    return;
                }
            }
        }
    }
}
