//! Who is told of what changes: one watch for everybody, and for each a set of what is owed.
//!
//! A source says what changed, the changes of a short window are taken together, and each listener's
//! set grows by what it asked for. A listener takes from its set when it can write, so one that is slow
//! costs a set bounded by its subscriptions and holds up nobody, and after the last change at least one
//! notification always follows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use libris_core::{Change, Error, Result, Source, Uri};
use libris_wire::{Failure, Listener, News};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::server::explain;

/// How changes are told.
#[derive(Clone, Debug)]
pub struct Live {
    /// For how long changes are gathered before they are told.
    pub window: Duration,
    /// How many resources one listener may subscribe to.
    pub subscriptions: usize,
    /// How many listeners there may be: sessions and streams.
    pub listeners: usize,
}

impl Default for Live {
    fn default() -> Self {
        Self { window: Duration::from_millis(50), subscriptions: 1_000, listeners: 30_000 }
    }
}

/// Where the list shows the same resources but says something else of them, such as a size, it is told
/// no more often than this: otherwise a log that grows would have every client list again twenty times
/// a second.
const QUIET: Duration = Duration::from_secs(1);

/// While the list keeps changing it is told ever less often, down to this, or when it has rested for
/// [`REST`]: a checkout of a minute is not told a thousand times.
const SELDOM: Duration = Duration::from_secs(8);
const REST: Duration = Duration::from_millis(500);

/// How long a watch stays after the last listener has left: clients reconnect.
const LINGER: Duration = Duration::from_secs(5);

/// Everybody who listens to one source.
pub(crate) struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    source: Arc<dyn Source>,
    config: Live,
    listeners: Mutex<Listeners>,
    /// Whether a watch is running. Locked while one is being started.
    watch: tokio::sync::Mutex<bool>,
}

#[derive(Default)]
struct Listeners {
    last: u64,
    all: HashMap<u64, Arc<Owed>>,
    /// By the subject of what was subscribed to: who did, and how they named it.
    subscribed: HashMap<Uri, HashMap<u64, HashSet<Arc<str>>>>,
    /// Those who follow the list, and how often it has changed.
    list: HashSet<u64>,
    lists: u64,
}

/// What one listener has not been told yet.
#[derive(Default)]
struct Owed {
    news: Mutex<Set>,
    ready: Notify,
}

/// A set that gives back what was put in first.
#[derive(Default)]
struct Set {
    order: VecDeque<News>,
    members: HashSet<News>,
}

impl Owed {
    fn put(&self, news: News) {
        let mut set = lock(&self.news);
        if set.members.insert(news.clone()) {
            set.order.push_back(news);
            drop(set);
            self.ready.notify_one();
        }
    }

    fn take(&self) -> Option<News> {
        let mut set = lock(&self.news);
        let news = set.order.pop_front()?;
        set.members.remove(&news);
        Some(news)
    }

    fn forget(&self, uri: &str) {
        let mut set = lock(&self.news);
        let gone = News::Updated(uri.into());
        if set.members.remove(&gone) {
            set.order.retain(|news| *news != gone);
        }
    }
}

impl Hub {
    pub(crate) fn new(source: Arc<dyn Source>, config: Live) -> Self {
        let listeners = Mutex::default();
        Self { shared: Arc::new(Shared { source, config, listeners, watch: tokio::sync::Mutex::default() }) }
    }

    pub(crate) fn listener(&self) -> Result<Arc<dyn Listener>, Failure> {
        let mut listeners = lock(&self.shared.listeners);
        if listeners.all.len() >= self.shared.config.listeners {
            let message = "there are too many listeners; try again later".to_owned();
            return Err(Failure::Internal { message, data: None });
        }
        listeners.last += 1;
        let number = listeners.last;
        let owed = Arc::<Owed>::default();
        listeners.all.insert(number, owed.clone());
        let since = self.is_watched().then_some(listeners.lists);
        let subscriptions = Mutex::default();
        Ok(Arc::new(Ear {
            shared: self.shared.clone(),
            number,
            owed,
            since,
            listed: AtomicBool::new(false),
            subscriptions,
        }))
    }

    /// How many listen, to how much, and whether there is a watch for them.
    pub(crate) fn counts(&self) -> Vec<(&'static str, usize)> {
        let listeners = lock(&self.shared.listeners);
        let names = listeners.subscribed.values().flat_map(HashMap::values).map(HashSet::len);
        vec![
            ("listeners", listeners.all.len()),
            ("subscriptions", names.sum()),
            ("watches", usize::from(self.is_watched())),
        ]
    }

    fn is_watched(&self) -> bool {
        self.shared.watch.try_lock().is_ok_and(|watch| *watch)
    }
}

impl Shared {
    /// Makes sure that a watch is running. Once this returns, no change is missed.
    async fn watched(self: &Arc<Self>) -> Result<()> {
        let mut watch = self.watch.lock().await;
        if *watch {
            return Ok(());
        }
        if let Some(changes) = self.source.watch().await? {
            *watch = true;
            let shared = self.clone();
            tokio::spawn(async move { shared.tell(changes).await });
        }
        Ok(())
    }

    /// Tells everybody what changes, until nobody has listened for a while.
    async fn tell(&self, mut changes: BoxStream<'static, Change>) {
        let mut gathered = Gathered {
            list: None,
            described: None,
            rested: Instant::now(),
            updates_due: None,
            updated: HashSet::new(),
        };
        let mut pace = Pace { pause: self.config.window, last: None };
        let mut idle = tokio::time::interval(LINGER);
        let mut alone = false;
        loop {
            let due = gathered.due(&pace);
            tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let now = Instant::now();
                    if gathered.list_due(&pace).is_some_and(|due| due <= now) {
                        gathered.list = None;
                        gathered.described = None;
                        pace.tick(now, self.config.window);
                        self.tell_list();
                    }
                    if gathered.updates_due.is_some_and(|due| due <= now) {
                        gathered.updates_due = None;
                        self.tell_updated(gathered.updated.drain());
                    }
                }
                change = changes.next() => match change {
                    None => {
                        *self.watch.lock().await = false;
                        return self.tell_everything();
                    }
                    Some(change) => self.gather(&mut gathered, change),
                },
                _ = idle.tick() => {
                    let nobody = lock(&self.listeners).all.is_empty();
                    // Whoever wants a watch holds the lock while making sure of it, so none is deceived.
                    if nobody && alone && let Ok(mut watch) = self.watch.try_lock() {
                        *watch = false;
                        return;
                    }
                    alone = nobody;
                }
            }
        }
    }

    /// Notes a change that somebody may want to hear of.
    fn gather(&self, gathered: &mut Gathered, change: Change) {
        let due = Instant::now() + self.config.window;
        let uri = match change {
            Change::Described(_) => {
                gathered.described.get_or_insert(due);
                gathered.rested = due + REST;
                return;
            }
            Change::Added(uri) | Change::Removed(uri) => {
                gathered.list.get_or_insert(due);
                gathered.rested = due + REST;
                uri
            }
            Change::Updated(uri) => uri,
            _ => {
                gathered.list.get_or_insert(due);
                gathered.updates_due.get_or_insert(due);
                let listeners = lock(&self.listeners);
                // One of the sources may be new and follow nothing yet.
                listeners.subscribed.keys().for_each(|subject| self.source.follow(subject));
                gathered.updated.extend(listeners.subscribed.keys().cloned());
                return;
            }
        };
        let subject = self.source.subject(&uri);
        if lock(&self.listeners).subscribed.contains_key(&subject) {
            gathered.updates_due.get_or_insert(due);
            gathered.updated.insert(subject);
        }
    }

    fn tell_list(&self) {
        let mut listeners = lock(&self.listeners);
        listeners.lists += 1;
        for owed in listeners.list.iter().filter_map(|number| listeners.all.get(number)) {
            owed.put(News::List);
        }
    }

    fn tell_updated(&self, subjects: impl Iterator<Item = Uri>) {
        let listeners = lock(&self.listeners);
        for subject in subjects {
            for (number, names) in listeners.subscribed.get(&subject).into_iter().flatten() {
                let Some(owed) = listeners.all.get(number) else { continue };
                for name in names {
                    owed.put(News::Updated(name.clone()));
                }
            }
        }
    }

    /// A watch that ended by itself may have missed anything.
    fn tell_everything(&self) {
        let all: Vec<_> = lock(&self.listeners).subscribed.keys().cloned().collect();
        self.tell_list();
        self.tell_updated(all.into_iter());
    }
}

/// What has changed and was not told yet, with when the window of its first change ends.
struct Gathered {
    /// The list has other resources in it.
    list: Option<Instant>,
    /// The list says something else of the same resources.
    described: Option<Instant>,
    /// When the list will have rested, if nothing more happens to it.
    rested: Instant,
    updates_due: Option<Instant>,
    updated: HashSet<Uri>,
}

impl Gathered {
    fn list_due(&self, pace: &Pace) -> Option<Instant> {
        let list = self.list.map(|due| pace.hold(due, Duration::ZERO, self.rested));
        let described = self.described.map(|due| pace.hold(due, QUIET, self.rested));
        list.into_iter().chain(described).min()
    }

    fn due(&self, pace: &Pace) -> Option<Instant> {
        self.list_due(pace).into_iter().chain(self.updates_due).min()
    }
}

/// How often the list is told as changed.
struct Pace {
    pause: Duration,
    last: Option<Instant>,
}

impl Pace {
    /// Puts off what is due until the pause after the last time is over or the list has rested, and at
    /// least for `shortest` after the last time.
    fn hold(&self, due: Instant, shortest: Duration, rested: Instant) -> Instant {
        let Some(last) = self.last else { return due };
        due.max(last + shortest).max((last + self.pause).min(rested))
    }

    fn tick(&mut self, now: Instant, window: Duration) {
        let busy = self.last.is_some_and(|last| now < last + (self.pause + REST) * 2);
        self.pause = if busy { (self.pause * 2).min(SELDOM) } else { window };
        self.last = Some(now);
    }
}

/// One listener.
struct Ear {
    shared: Arc<Shared>,
    number: u64,
    owed: Arc<Owed>,
    /// How often the list had changed when it began to listen; `None` if nobody was watching then.
    since: Option<u64>,
    /// Whether it was told what is listed.
    listed: AtomicBool,
    /// What was subscribed to, by how it was named.
    subscriptions: Mutex<HashMap<Arc<str>, Uri>>,
}

#[async_trait]
impl Listener for Ear {
    async fn follow_list(&self) -> Result<(), Failure> {
        self.shared.watched().await.map_err(explain)?;
        let mut listeners = lock(&self.shared.listeners);
        let first = listeners.list.insert(self.number);
        if first && self.listed.load(Ordering::SeqCst) && self.since != Some(listeners.lists) {
            self.owed.put(News::List);
        }
        Ok(())
    }

    fn listed(&self) {
        self.listed.store(true, Ordering::SeqCst);
    }

    async fn subscribe(&self, name: &str) -> Result<(), Failure> {
        let uri = Uri::parse(name).map_err(explain)?;
        if self.shared.source.covers(&uri).is_none() {
            return Err(explain(Error::NotFound(uri)));
        }
        // In this order a subscription is either in force or not there, even if the client gives up.
        self.shared.watched().await.map_err(explain)?;
        let subject = self.shared.source.subject(&uri);
        let mut subscriptions = lock(&self.subscriptions);
        if subscriptions.contains_key(name) {
            return Ok(());
        }
        if subscriptions.len() >= self.shared.config.subscriptions {
            let most = self.shared.config.subscriptions;
            let message = format!("one client may subscribe to {most} resources at most");
            return Err(Failure::Internal { message, data: None });
        }
        let name: Arc<str> = name.into();
        subscriptions.insert(name.clone(), subject.clone());
        // Locked, so that nobody who leaves meanwhile ends what begins here.
        let mut listeners = lock(&self.shared.listeners);
        self.shared.source.follow(&subject);
        listeners.subscribed.entry(subject).or_default().entry(self.number).or_default().insert(name);
        Ok(())
    }

    fn unsubscribe(&self, name: &str) {
        let Some(subject) = lock(&self.subscriptions).remove(name) else { return };
        let mut listeners = lock(&self.shared.listeners);
        listeners.leave(&*self.shared.source, &subject, self.number, Some(name));
        drop(listeners);
        self.owed.forget(name);
    }

    async fn next(&self) -> News {
        loop {
            // A permit is kept for whoever waits next, so nothing put in between is missed.
            let ready = self.owed.ready.notified();
            if let Some(news) = self.owed.take() {
                return news;
            }
            ready.await;
        }
    }

    fn owe(&self, news: News) {
        let wanted = match &news {
            News::List => true,
            News::Updated(name) => lock(&self.subscriptions).contains_key(name),
        };
        if wanted {
            self.owed.put(news);
        }
    }
}

impl Listeners {
    /// Ends one subscription, or all of one listener to `subject`.
    fn leave(&mut self, source: &dyn Source, subject: &Uri, number: u64, name: Option<&str>) {
        let Some(listeners) = self.subscribed.get_mut(subject) else { return };
        if let Some(names) = listeners.get_mut(&number) {
            match name {
                Some(name) => {
                    names.remove(name);
                }
                None => names.clear(),
            }
            if names.is_empty() {
                listeners.remove(&number);
            }
        }
        if listeners.is_empty() {
            self.subscribed.remove(subject);
            source.unfollow(subject);
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut listeners = lock(&self.shared.listeners);
        listeners.all.remove(&self.number);
        listeners.list.remove(&self.number);
        for subject in lock(&self.subscriptions).values() {
            listeners.leave(&*self.shared.source, subject, self.number, None);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Everything we lock is whole between two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
