//! Subscriptions: one watch of the sources for all listeners, and for each a set of notifications.
//!
//! A source reports changes, those of a short window are debounced, and each listener's set grows by what
//! it subscribed to. A listener takes from its set when it can write, so a slow one costs a set bounded by
//! its subscriptions and holds up nobody, and after the last change at least one notification always
//! follows. Subscriptions are bounded in bytes for each client and in all; [`budget`] says what they cost.

mod budget;
mod notification_set;
mod registry;
mod watch;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use libris_core::{Error, Result, Source, Uri};
use libris_wire::{Failure, Listener, News};
use serde_json::json;

use self::budget::OverBudget;
use self::notification_set::NotificationSet;
use self::registry::{Registry, SubscriptionRefusal};
use self::watch::WatchState;
use crate::rights::Operation;
use crate::server::explain;
use crate::view::View;

/// How changes are told.
#[derive(Clone, Debug)]
pub struct SubscriptionConfig {
    /// The debounce window: changes within it cause one notification. A longer one than
    /// [`LONGEST_WINDOW`](Self::LONGEST_WINDOW) counts as that.
    pub window: Duration,
    /// How many resources one listener may subscribe to.
    pub subscriptions: usize,
    /// How many bytes of memory the subscriptions of all listeners may use. The text of a URI counts once,
    /// however many subscribe to it, and each subscription about 400 bytes beside it.
    pub subscription_bytes: usize,
    /// How many bytes of memory the subscriptions of one client may use, and never more than
    /// `subscription_bytes`.
    pub client_subscription_bytes: usize,
    /// How many listeners there may be: sessions and streams.
    pub listeners: usize,
}

impl SubscriptionConfig {
    /// The longest debounce window.
    pub const LONGEST_WINDOW: Duration = Duration::from_secs(60 * 60);
}

impl Default for SubscriptionConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_millis(50),
            subscriptions: 1_000,
            subscription_bytes: 32 << 20,
            client_subscription_bytes: 24 << 20,
            listeners: 30_000,
        }
    }
}

/// How many locks order the calls of [`Source::follow`] and [`Source::unfollow`].
const FOLLOW_LOCKS: usize = 64;

/// How long a subscription that is over a limit waits for its refusal.
const REFUSAL_DELAY: Duration = Duration::from_millis(50);

/// How many subscriptions or subjects are worked on under one lock of the registry.
const BATCH: usize = 32;

/// All listeners of one source.
pub(crate) struct Hub {
    shared: Arc<HubState>,
}

struct HubState {
    source: Arc<dyn Source>,
    config: SubscriptionConfig,
    /// Whoever holds this may lock `registry`, and not the other way round.
    watch: Mutex<WatchState>,
    registry: Mutex<Registry>,
    /// Held while a source is told to follow a subject or not to; a subject's hash says which one. A source
    /// that blocks in there holds up those who subscribe to a few subjects, and no notification.
    follow: [Mutex<()>; FOLLOW_LOCKS],
}

impl Hub {
    pub(crate) fn new(source: Arc<dyn Source>, config: SubscriptionConfig) -> Self {
        let config =
            SubscriptionConfig { window: config.window.min(SubscriptionConfig::LONGEST_WINDOW), ..config };
        let registry = Mutex::new(Registry::new(&config));
        let follow = std::array::from_fn(|_| Mutex::default());
        Self { shared: Arc::new(HubState { source, config, watch: Mutex::default(), registry, follow }) }
    }

    /// A new listener, which hears of what `view` shows. Listeners of one `client` address share a budget for their
    /// subscriptions; one without an address has a budget of its own.
    pub(crate) fn listener_for(
        &self,
        view: Arc<View>,
        client: Option<IpAddr>,
    ) -> Result<Arc<dyn Listener>, Failure> {
        // Both are held, so that the watch does not stop before the listener is registered.
        let watch = lock(&self.shared.watch);
        let mut registry = lock(&self.shared.registry);
        if registry.listeners() >= self.shared.config.listeners {
            return Err(internal("there are too many listeners; try again later".to_owned()));
        }
        let (number, notifications) = registry.join(view.clone(), client);
        if !watch.is_running() {
            registry.miss_list(number);
        }
        let shared = self.shared.clone();
        Ok(Arc::new(Subscriber { shared, view, number, notifications, listed: AtomicBool::new(false) }))
    }

    /// Tells listeners whose rights have changed that their list has, and makes the source follow what they may
    /// subscribe to now.
    pub(crate) fn rights_changed(&self) {
        let subjects = lock(&self.shared.registry).tell_changed_rights();
        subjects.iter().for_each(|subject| self.shared.align(subject));
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

impl HubState {
    /// Ends some subscriptions of a listener that has left; breaks once it has none and is removed.
    fn leave(&self, listener: u64) -> ControlFlow<()> {
        let left = lock(&self.registry).leave(listener, BATCH);
        let (ControlFlow::Continue(deserted) | ControlFlow::Break(deserted)) = &left;
        deserted.iter().for_each(|subject| self.align(subject));
        if left.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Makes the source follow a subject if and only if somebody subscribes to it who may.
    fn align(&self, subject: &Uri) {
        let mut hasher = DefaultHasher::new();
        subject.hash(&mut hasher);
        let number = hasher.finish() % FOLLOW_LOCKS as u64;
        // Of two calls for one subject, the later one sees what the registry says last.
        let _turn = lock(&self.follow[number as usize]);
        let wanted_by = lock(&self.registry).wanted_by(subject);
        match wanted_by {
            Some(client) => self.source.follow(subject, client),
            None => self.source.unfollow(subject),
        }
    }
}

/// A client's session or stream, which hears of changes.
struct Subscriber {
    shared: Arc<HubState>,
    view: Arc<View>,
    number: u64,
    notifications: Arc<NotificationSet>,
    /// Whether the client has listed resources.
    listed: AtomicBool,
}

#[async_trait]
impl Listener for Subscriber {
    async fn follow_list(&self) -> Result<(), Failure> {
        self.shared.watched().await.map_err(explain)?;
        let mut registry = lock(&self.shared.registry);
        let missed = registry.follow_list(self.number);
        if missed && self.listed.load(Ordering::SeqCst) {
            self.notifications.put(News::List);
        }
        Ok(())
    }

    fn listed(&self) {
        self.listed.store(true, Ordering::SeqCst);
    }

    async fn subscribe(&self, name: &str) -> Result<(), Failure> {
        let uri = Uri::parse(name).map_err(explain)?;
        if !self.view.now().covers(Operation::Subscribe, &uri) {
            return Err(explain(Error::NotFound(uri)));
        }
        // In this order a subscription is either in force or not there, even if the client gives up.
        self.shared.watched().await.map_err(explain)?;
        let subject = self.shared.source.subject(&uri);
        let most = self.shared.config.subscriptions;
        let subscribed = lock(&self.shared.registry).subscribe(self.number, name, subject, most);
        match subscribed {
            Ok(Some(subject)) => self.shared.align(&subject),
            Ok(None) => {}
            Err(refusal) => {
                // Backpressure: a client that subscribes in a loop must not keep the processor busy with refusals.
                tokio::time::sleep(REFUSAL_DELAY).await;
                return Err(refused(refusal));
            }
        }
        Ok(())
    }

    fn unsubscribe(&self, name: &str) {
        let deserted = lock(&self.shared.registry).unsubscribe(self.number, name);
        if let Some(subject) = deserted {
            self.shared.align(&subject);
        }
    }

    async fn next(&self) -> News {
        loop {
            let news = self.notifications.next().await;
            // Rights may have been taken away since the subscription, or since the change.
            let is_visible = match &news {
                News::List => true,
                News::Updated(name) => {
                    Uri::parse(name).is_ok_and(|uri| self.view.now().allows(Operation::Subscribe, &uri))
                }
            };
            if is_visible {
                return news;
            }
        }
    }

    fn owe(&self, news: News) {
        lock(&self.shared.registry).owe(self.number, news);
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if self.shared.leave(self.number).is_break() {
            return;
        }
        let (shared, number) = (self.shared.clone(), self.number);
        match tokio::runtime::Handle::try_current() {
            // A thousand subscriptions take longer than the worker thread may be held up.
            Ok(runtime) => drop(runtime.spawn(async move {
                while shared.leave(number).is_continue() {
                    tokio::task::yield_now().await;
                }
            })),
            Err(_) => while shared.leave(number).is_continue() {},
        }
    }
}

fn refused(refusal: SubscriptionRefusal) -> Failure {
    let (message, limit) = match refusal {
        SubscriptionRefusal::Subscriptions(most) => (
            format!("one client may subscribe to {most} resources at most; unsubscribe from one first"),
            most,
        ),
        SubscriptionRefusal::Bytes(OverBudget::Client(most)) => {
            let why = "the subscriptions of one client may use";
            (format!("{why} `{most}` bytes of memory at most; unsubscribe from some resources first"), most)
        }
        SubscriptionRefusal::Bytes(OverBudget::Total(most)) => {
            let why = "the subscriptions of all clients may use";
            (format!("{why} `{most}` bytes of memory at most; try again later"), most)
        }
    };
    Failure::Internal { message, data: Some(json!({ "limit": limit })) }
}

fn internal(message: String) -> Failure {
    Failure::Internal { message, data: None }
}

/// Whether a collection should give memory back. It shrinks to twice its length, so that adding and
/// removing by turns does not allocate each time.
fn sparse(length: usize, capacity: usize) -> bool {
    capacity > 32 && length < capacity / 8
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Everything we lock is whole between two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
