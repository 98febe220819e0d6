//! Subscriptions: one watch of the source for all listeners, and a set of pending notifications for each listener.
//!
//! Changes are debounced and then added to the sets of the listeners that subscribed to them. A listener takes a
//! notification from its set when it can write one. So a slow listener delays no other listener, and its memory is
//! bounded by its subscriptions. At least one notification follows the last change. [`budget`] limits the memory for
//! subscriptions, per client and in total.
//!
//! The subject of a subscription is the URI under which the source reports changes of the resource
//! ([`Source::subject`]). It may differ from the name, which is the URI as the client wrote it.

mod budget;
mod notification_set;
mod pace;
mod registry;
mod watch;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use libris_core::{Client, Error, Identity, Result, Source, Uri};
use libris_wire::{Failure, Listener, Notification};
use serde_json::json;

use self::budget::{BudgetOwner, OverBudget, SubscriptionCost};
use self::notification_set::NotificationSet;
use self::pace::SubscribePace;
use self::registry::{Registry, SubscriptionRefusal};
use self::watch::WatchState;
use crate::cluster::RecentChanges;
use crate::lock::lock;
use crate::rights::Operation;
use crate::server::to_failure;
use crate::view::View;

/// Limits and debouncing of subscriptions.
#[derive(Clone, Debug)]
pub struct SubscriptionConfig {
    /// The debounce window: changes to one resource within it cause one notification. At most
    /// [`LONGEST_WINDOW`](Self::LONGEST_WINDOW).
    pub window: Duration,
    /// The maximum number of subscriptions per listener. Default: 1,000.
    pub subscriptions: usize,
    /// The memory limit in bytes for all subscriptions. The text of a URI counts once, however many listeners subscribe
    /// to it; each subscription adds about 400 bytes.
    pub subscription_bytes: usize,
    /// The memory limit in bytes for the subscriptions of one client; at most `subscription_bytes`.
    pub client_subscription_bytes: usize,
    /// The maximum number of subscriptions of all listeners of one client without an identity; `None` is three quarters of
    /// `total_subscriptions`.
    pub address_subscriptions: Option<usize>,
    /// The maximum number of subscriptions of all listeners of one identity; `None` is three quarters of
    /// `total_subscriptions`.
    pub identity_subscriptions: Option<usize>,
    /// The memory limit in bytes for the subscriptions of each identity; `None` for `client_subscription_bytes`.
    pub identity_subscription_bytes: Option<usize>,
    /// The maximum number of subscriptions of all clients; `None` is no limit.
    pub total_subscriptions: Option<usize>,
    /// The maximum number of listeners: sessions and streams. Default: 30,000.
    pub listeners: usize,
}

/// A limit of subscriptions.
#[derive(Clone, Copy, Debug)]
struct SubscriptionLimit {
    count: Option<usize>,
    bytes: usize,
}

impl SubscriptionConfig {
    /// The longest debounce window.
    pub const LONGEST_WINDOW: Duration = Duration::from_secs(60 * 60);

    fn address_limit(&self) -> SubscriptionLimit {
        let count = self.address_subscriptions.or(self.count_share());
        SubscriptionLimit { count, bytes: self.client_subscription_bytes }
    }

    fn identity_limit(&self) -> SubscriptionLimit {
        let bytes = self.identity_subscription_bytes.unwrap_or(self.client_subscription_bytes);
        SubscriptionLimit { count: self.identity_subscriptions.or(self.count_share()), bytes }
    }

    /// How many of all subscriptions one client may have, unless it has a limit of its own.
    fn count_share(&self) -> Option<usize> {
        self.total_subscriptions.map(|total| total - total / 4)
    }
}

impl Default for SubscriptionConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_millis(50),
            subscriptions: 1_000,
            subscription_bytes: 16 << 20,
            client_subscription_bytes: 12 << 20,
            address_subscriptions: None,
            identity_subscriptions: None,
            identity_subscription_bytes: None,
            total_subscriptions: None,
            listeners: 30_000,
        }
    }
}

/// The number of striped locks that serialise [`Source::follow`] and [`Source::unfollow`] of one subject.
const FOLLOW_LOCKS: usize = 64;

/// The delay before a subscription over a limit is refused (backpressure).
const REFUSAL_DELAY: Duration = Duration::from_millis(50);

/// How many subscriptions or subjects one critical section of the registry processes.
const REGISTRY_BATCH: usize = 32;

/// All listeners of one source.
pub(crate) struct SubscriptionHub {
    shared: Arc<SubscriptionHubState>,
}

struct SubscriptionHubState {
    source: Arc<dyn Source>,
    config: SubscriptionConfig,
    /// The changes of the last minute at all replicas, if there are others.
    recent: Option<Arc<RecentChanges>>,
    /// Lock order: `watch` before `registry`.
    watch: Mutex<WatchState>,
    registry: Mutex<Registry>,
    /// Striped locks, selected by the hash of the subject and held during `follow` and `unfollow`. A source that blocks
    /// in these calls delays subscriptions to the subjects of that lock, but no notifications.
    follow: [Mutex<()>; FOLLOW_LOCKS],
    pace: SubscribePace,
}

impl SubscriptionHub {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        config: SubscriptionConfig,
        recent: Option<Arc<RecentChanges>>,
    ) -> Self {
        let config =
            SubscriptionConfig { window: config.window.min(SubscriptionConfig::LONGEST_WINDOW), ..config };
        let registry = Mutex::new(Registry::new(&config));
        let follow = std::array::from_fn(|_| Mutex::default());
        Self {
            shared: Arc::new(SubscriptionHubState {
                source,
                config,
                recent,
                watch: Mutex::default(),
                registry,
                follow,
                pace: SubscribePace::default(),
            }),
        }
    }

    /// Adds a listener that is notified of changes to resources that `view` shows. Listeners of one client share a
    /// subscription budget; a listener of an unknown client has its own.
    pub(crate) fn listener_for(&self, view: Arc<View>, client: Client) -> Result<Arc<dyn Listener>, Failure> {
        // Hold both locks, so that the watch does not stop before the listener is registered.
        let watch = lock(&self.shared.watch);
        let mut registry = lock(&self.shared.registry);
        if registry.listeners() >= self.shared.config.listeners {
            return Err(internal(
                "too many listeners; close a session or stream, or try again later".to_owned(),
            ));
        }
        let (number, notifications) = registry.join(view.clone(), client);
        if !watch.is_running() {
            // Until the watch runs, nobody notices changes of the list.
            registry.mark_list_missed(number);
        }
        let shared = self.shared.clone();
        let view = Mutex::new(view);
        let owner = BudgetOwner::new(client, number);
        let listed = AtomicBool::new(false);
        Ok(Arc::new(Subscriber { shared, view, number, owner, notifications, listed }))
    }

    /// Whether there may be other replicas, at which a client may have listened before.
    pub(crate) fn has_replicas(&self) -> bool {
        self.shared.recent.is_some()
    }

    /// Sends `list_changed` to listeners whose rights changed, and updates which subjects the source follows.
    pub(crate) fn rights_changed(&self) {
        let subjects = lock(&self.shared.registry).notify_changed_rights();
        subjects.iter().for_each(|subject| self.shared.update_following(subject));
    }

    /// The numbers of listeners, subscriptions, their bytes, and watches, for the metrics.
    pub(crate) fn counts(&self) -> Vec<(&'static str, usize)> {
        let is_watched = lock(&self.shared.watch).is_running();
        let registry = lock(&self.shared.registry);
        vec![
            ("listeners", registry.listeners()),
            ("subscriptions", registry.subscriptions()),
            ("subscription_bytes", registry.bytes()),
            ("watches", usize::from(is_watched)),
        ]
    }
}

impl SubscriptionHubState {
    /// Ends a batch of subscriptions of a closed listener; breaks when the listener has none left and is removed.
    fn leave(&self, listener: u64) -> ControlFlow<()> {
        let left = lock(&self.registry).leave(listener, REGISTRY_BATCH);
        let (ControlFlow::Continue(deserted) | ControlFlow::Break(deserted)) = &left;
        deserted.iter().for_each(|subject| self.update_following(subject));
        if left.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Makes the source follow a subject while there is a subscription to it by a listener with the right to subscribe,
    /// and unfollow it otherwise.
    fn update_following(&self, subject: &Uri) {
        let mut hasher = DefaultHasher::new();
        subject.hash(&mut hasher);
        let number = hasher.finish() % FOLLOW_LOCKS as u64;
        // Serialises the calls for one subject, so that the last one sees the latest state of the registry.
        let _guard = lock(&self.follow[number as usize]);
        let client_following = lock(&self.registry).client_following(subject);
        match client_following {
            Some(client) => self.source.follow(subject, client),
            None => self.source.unfollow(subject),
        }
    }
}

/// The listener of one session or stream.
struct Subscriber {
    shared: Arc<SubscriptionHubState>,
    view: Mutex<Arc<View>>,
    number: u64,
    owner: BudgetOwner,
    notifications: Arc<NotificationSet>,
    /// Whether the client has listed resources.
    listed: AtomicBool,
}

impl Subscriber {
    fn view(&self) -> Arc<View> {
        lock(&self.view).clone()
    }
}

#[async_trait]
impl Listener for Subscriber {
    async fn follow_list(&self) -> Result<(), Failure> {
        self.shared.ensure_watched().await.map_err(to_failure)?;
        let missed = lock(&self.shared.registry).follow_list(self.number);
        // The client may have listed at another replica before the changes there, so `listed` does not matter for these
        // changes.
        let view = self.view();
        let missed_elsewhere =
            self.shared.recent.as_ref().is_some_and(|recent| {
                recent.contains_list(|uri| view.snapshot().allows(Operation::List, uri))
            });
        if missed && self.listed.load(Ordering::SeqCst) || missed_elsewhere {
            self.notifications.put(Notification::ListChanged);
        }
        Ok(())
    }

    async fn follow_prompts(&self) -> Result<(), Failure> {
        self.shared.ensure_watched().await.map_err(to_failure)?;
        lock(&self.shared.registry).follow_prompts(self.number);
        Ok(())
    }

    async fn follow_tools(&self) -> Result<(), Failure> {
        // Without tools of sources, the server does not declare that the list of tools can change.
        if !self.shared.source.has_tools() {
            return Ok(());
        }
        self.shared.ensure_watched().await.map_err(to_failure)?;
        lock(&self.shared.registry).follow_tools(self.number);
        Ok(())
    }

    fn listed(&self) {
        self.listed.store(true, Ordering::SeqCst);
    }

    async fn reserve(&self, names: &[&str]) -> Result<(), Failure> {
        let mut cost = SubscriptionCost::default();
        // In batches, because looking up a thousand texts of 4 KiB takes milliseconds, during which the lock is held.
        for batch in names.chunks(REGISTRY_BATCH) {
            let added = lock(&self.shared.registry).add_least_cost(self.number, batch, &mut cost);
            if let Err(refusal) = added {
                return Err(refused_later(refusal).await);
            }
            tokio::task::yield_now().await;
        }
        let reserved = lock(&self.shared.registry).reserve(self.number, cost);
        match reserved {
            Ok(()) => Ok(()),
            Err(refusal) => Err(refused_later(refusal).await),
        }
    }

    async fn subscribe(&self, name: &str) -> Result<(), Failure> {
        let uri = Uri::parse(name).map_err(to_failure)?;
        self.shared.pace.wait(self.owner).await?;
        if !self.view().snapshot().covers(Operation::Subscribe, &uri).map_err(to_failure)? {
            return Err(to_failure(Error::NotFound(uri)));
        }
        // Open the watch first, so that a cancelled request leaves no subscription without a watch.
        self.shared.ensure_watched().await.map_err(to_failure)?;
        let subject = self.shared.source.subject(&uri);
        let most = self.shared.config.subscriptions;
        let subscribed = lock(&self.shared.registry).subscribe(self.number, name, subject, most);
        match subscribed {
            Ok(Some(subject)) => {
                self.shared.update_following(&subject);
                // The client may have been subscribed at another replica when the resource changed.
                if self.shared.recent.as_ref().is_some_and(|recent| recent.contains(&subject)) {
                    self.requeue(Notification::Updated(name.into()));
                }
            }
            Ok(None) => {}
            Err(refusal) => return Err(refused_later(refusal).await),
        }
        Ok(())
    }

    fn unsubscribe(&self, name: &str) {
        let deserted = lock(&self.shared.registry).unsubscribe(self.number, name);
        if let Some(subject) = deserted {
            self.shared.update_following(&subject);
        }
    }

    async fn next(&self) -> Notification {
        loop {
            let notification = self.notifications.next().await;
            // The caller may have lost the right since it subscribed or since the change.
            let is_visible = match &notification {
                Notification::ListChanged | Notification::PromptsChanged | Notification::ToolsChanged => true,
                Notification::Updated(name) => Uri::parse(name)
                    .is_ok_and(|uri| self.view().snapshot().allows(Operation::Subscribe, &uri)),
            };
            if is_visible {
                return notification;
            }
        }
    }

    fn renew(&self, identity: Option<&Identity>) {
        let mut current = lock(&self.view);
        let view = Arc::new(current.renewed(identity.cloned()));
        *current = view.clone();
        let subjects = lock(&self.shared.registry).renew(self.number, view);
        drop(current);
        subjects.iter().for_each(|subject| self.shared.update_following(subject));
    }

    fn requeue(&self, notification: Notification) {
        lock(&self.shared.registry).requeue(self.number, notification);
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if self.shared.leave(self.number).is_break() {
            return;
        }
        let (shared, number) = (self.shared.clone(), self.number);
        match tokio::runtime::Handle::try_current() {
            // A thousand subscriptions would block the worker thread for too long.
            Ok(runtime) => drop(runtime.spawn(async move {
                while shared.leave(number).is_continue() {
                    tokio::task::yield_now().await;
                }
            })),
            Err(_) => while shared.leave(number).is_continue() {},
        }
    }
}

/// The error for a refusal, after a delay: a client that subscribes in a loop must not use the CPU for refusals.
async fn refused_later(refusal: SubscriptionRefusal) -> Failure {
    tokio::time::sleep(REFUSAL_DELAY).await;
    refused(refusal)
}

fn refused(refusal: SubscriptionRefusal) -> Failure {
    let (message, limit) = match refusal {
        SubscriptionRefusal::Subscriptions(most) => (
            format!(
                "one session or stream may have {most} subscriptions at most; unsubscribe from one first"
            ),
            most,
        ),
        SubscriptionRefusal::Budget(OverBudget::ClientCount(most)) => (
            format!(
                "one client may have {most} subscriptions at most; unsubscribe from some resources first"
            ),
            most,
        ),
        SubscriptionRefusal::Budget(OverBudget::TotalCount(most)) => {
            (format!("all clients may have {most} subscriptions at most; try again later"), most)
        }
        SubscriptionRefusal::Budget(OverBudget::Client(most)) => {
            let why = "the subscriptions of one client may use";
            (format!("{why} `{most}` bytes of memory at most; unsubscribe from some resources first"), most)
        }
        SubscriptionRefusal::Budget(OverBudget::Total(most)) => {
            let why = "the subscriptions of all clients may use";
            (format!("{why} `{most}` bytes of memory at most; try again later"), most)
        }
    };
    Failure::Internal { message, data: Some(json!({ "limit": limit })) }
}

fn internal(message: String) -> Failure {
    Failure::Internal { message, data: None }
}

/// Whether to shrink a collection. It shrinks to twice its length, so that alternating inserts and removals do not
/// reallocate each time.
fn should_shrink(length: usize, capacity: usize) -> bool {
    capacity > 32 && length < capacity / 8
}
