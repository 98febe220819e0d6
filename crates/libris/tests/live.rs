//! What listeners are told, in a time that the tests move themselves.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris::uri_template::Specificity;
use libris::wire::{Failure, Listener, News, Service as _};
use libris::{Catalog, Change, Config, Contents, Context, Error, Live, Page, Result, Server, Source, Uri};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// A source that changes when it is told to. It has everything under its scheme, and what is behind a
/// `?` stands for a part of what is before it.
struct Script {
    scheme: &'static str,
    watchers: Mutex<Vec<UnboundedSender<Change>>>,
    /// What somebody wants to hear of.
    followed: Mutex<BTreeSet<Uri>>,
}

impl Script {
    fn new(scheme: &'static str) -> Arc<Self> {
        Arc::new(Self { scheme, watchers: Mutex::default(), followed: Mutex::default() })
    }

    fn say(&self, change: impl Fn(Uri) -> Change, uri: &str) {
        self.tell(&change(Uri::parse(uri).unwrap()));
    }

    fn tell(&self, change: &Change) {
        self.watchers.lock().unwrap().retain(|watcher| watcher.send(change.clone()).is_ok());
    }

    /// How many watches are running.
    fn watches(&self) -> usize {
        self.watchers.lock().unwrap().iter().filter(|watcher| !watcher.is_closed()).count()
    }
}

#[async_trait]
impl Source for Script {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == self.scheme).then_some(Specificity::EXACT)
    }

    async fn list(&self, _: Option<&Uri>, _: usize) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    fn subject(&self, uri: &Uri) -> Uri {
        uri.without_query()
    }

    fn follow(&self, subject: &Uri) {
        self.followed.lock().unwrap().insert(subject.clone());
    }

    fn unfollow(&self, subject: &Uri) {
        self.followed.lock().unwrap().remove(subject);
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        // As with a folder, it takes a while.
        tokio::task::yield_now().await;
        let (sender, receiver) = unbounded_channel();
        self.watchers.lock().unwrap().push(sender);
        let changes = stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|change| (change, receiver))
        });
        Ok(Some(changes.boxed()))
    }
}

fn server(sources: Vec<Arc<dyn Source>>) -> (Server, Arc<Catalog>) {
    let catalog = Arc::new(Catalog::new(sources));
    let live = Live { subscriptions: 3, listeners: 2, ..Live::default() };
    (Server::new(catalog.clone(), Config { live, ..Config::default() }), catalog)
}

fn updated(uri: &str) -> News {
    News::Updated(uri.into())
}

/// Everything that is told before nothing has been told for two seconds.
async fn told(listener: &dyn Listener) -> Vec<News> {
    let mut all = Vec::new();
    while let Ok(news) = timeout(Duration::from_secs(2), listener.next()).await {
        all.push(news);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn only_what_was_asked_for_is_told() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let listener = server.listener(Client::default()).unwrap();
    listener.subscribe("a:one").await.unwrap();
    script.say(Change::Updated, "a:other");
    script.say(Change::Added, "a:new");
    script.say(Change::Described, "a:one");
    assert_eq!(told(&*listener).await, []);
    script.say(Change::Updated, "a:one");
    assert_eq!(told(&*listener).await, [updated("a:one")]);
    script.say(Change::Removed, "a:one");
    script.say(Change::Added, "a:one");
    assert_eq!(told(&*listener).await, [updated("a:one")]);
    listener.unsubscribe("a:one");
    script.say(Change::Updated, "a:one");
    assert_eq!(told(&*listener).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_source_knows_what_somebody_wants_to_hear_of() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let followed = || script.followed.lock().unwrap().iter().map(Uri::to_string).collect::<Vec<_>>();
    let (one, other) = (server.listener(Client::default()).unwrap(), server.listener().unwrap());
    for (listener, uri) in [(&one, "a:x"), (&one, "a:x?lines=1-3"), (&one, "a:y"), (&other, "a:x")] {
        listener.subscribe(uri).await.unwrap();
    }
    assert_eq!(followed(), ["a:x", "a:y"]);
    one.unsubscribe("a:x");
    one.unsubscribe("a:x?lines=1-3");
    one.unsubscribe("a:y");
    assert_eq!(followed(), ["a:x"]);
    script.tell(&Change::Lost);
    told(&*other).await;
    assert_eq!(followed(), ["a:x"]);
    drop(other);
    assert_eq!(followed(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_part_is_told_under_its_own_name() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let listener = server.listener(Client::default()).unwrap();
    listener.subscribe("a:one?lines=1-3").await.unwrap();
    listener.subscribe("a:one").await.unwrap();
    script.say(Change::Updated, "a:one");
    let mut all = told(&*listener).await;
    all.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(all, [updated("a:one"), updated("a:one?lines=1-3")]);
    listener.unsubscribe("a:one?lines=1-3");
    script.say(Change::Updated, "a:one");
    assert_eq!(told(&*listener).await, [updated("a:one")]);
}

#[tokio::test(start_paused = true)]
async fn what_happens_often_is_told_once_for_each_window() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let listener = server.listener(Client::default()).unwrap();
    listener.subscribe("a:one").await.unwrap();
    listener.follow_list().await.unwrap();
    for n in 0..10_000 {
        script.say(Change::Updated, "a:one");
        script.say(Change::Added, &format!("a:{n}"));
    }
    assert_eq!(told(&*listener).await, [News::List, updated("a:one")]);
    // Nobody reads, and still nothing but the set is kept.
    for _ in 0..50 {
        script.say(Change::Updated, "a:one");
        script.say(Change::Removed, "a:two");
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(told(&*listener).await, [News::List, updated("a:one")]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_only_says_something_else_is_told_seldom() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let listener = server.listener(Client::default()).unwrap();
    listener.follow_list().await.unwrap();
    let growing = script.clone();
    tokio::spawn(async move {
        for _ in 0..100 {
            growing.say(Change::Described, "a:log");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let count = told(&*listener).await.len();
    assert!((3..=8).contains(&count), "told {count} times in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_keeps_changing_is_told_ever_less_often() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let listener = server.listener(Client::default()).unwrap();
    listener.follow_list().await.unwrap();
    let storm = script.clone();
    tokio::spawn(async move {
        for n in 0..20_000 {
            storm.say(Change::Added, &format!("a:{n}"));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let mut told = Vec::new();
    while let Ok(news) = timeout(Duration::from_secs(9), listener.next()).await {
        assert_eq!(news, News::List);
        told.push(tokio::time::Instant::now());
    }
    assert!((5..=10).contains(&told.len()), "told {} times in twenty seconds", told.len());
    // Soon after the end it is told once more.
    let last = told.last().unwrap().duration_since(told[0]);
    assert!((20_000..20_700).contains(&last.as_millis()), "last told after {last:?}");
    // After a rest, the next change is told at once.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let began = tokio::time::Instant::now();
    script.say(Change::Removed, "a:1");
    listener.next().await;
    assert!(began.elapsed() <= Duration::from_millis(55), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_cannot_be_subscribed_to() {
    let (server, _) = server(vec![Script::new("a")]);
    let listener = server.listener(Client::default()).unwrap();
    assert_eq!(listener.subscribe("b:one").await, Err(Failure::NotFound { uri: "b:one".into() }));
    assert!(matches!(listener.subscribe("no uri").await, Err(Failure::Invalid { .. })));
    for uri in ["a:1", "a:2", "a:3", "a:3"] {
        listener.subscribe(uri).await.unwrap();
    }
    assert!(matches!(listener.subscribe("a:4").await, Err(Failure::Internal { .. })));
    listener.unsubscribe("a:3");
    listener.subscribe("a:4").await.unwrap();
    let _second = server.listener(Client::default()).unwrap();
    assert!(server.listener(Client::default()).is_err());
}

#[tokio::test(start_paused = true)]
async fn there_is_one_watch_and_none_once_everybody_has_left() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let (first, second) = (server.listener(Client::default()).unwrap(), server.listener().unwrap());
    assert_eq!(script.watches(), 0);
    first.subscribe("a:one").await.unwrap();
    second.follow_list().await.unwrap();
    second.subscribe("a:one").await.unwrap();
    assert_eq!(script.watches(), 1);
    drop(first);
    tokio::time::sleep(Duration::from_secs(60)).await;
    script.say(Change::Added, "a:one");
    assert_eq!(told(&*second).await, [News::List, updated("a:one")]);
    drop(second);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(script.watches(), 0);
    let third = server.listener(Client::default()).unwrap();
    third.subscribe("a:one").await.unwrap();
    assert_eq!(script.watches(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_listed_before_is_owed_what_may_have_changed() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let first = server.listener(Client::default()).unwrap();
    first.listed();
    first.follow_list().await.unwrap();
    assert_eq!(told(&*first).await, [News::List], "nobody was watching when it listed");
    let second = server.listener(Client::default()).unwrap();
    script.say(Change::Added, "a:new");
    assert_eq!(told(&*first).await, [News::List]);
    second.listed();
    second.follow_list().await.unwrap();
    assert_eq!(told(&*second).await, [News::List], "it may have listed before that change");
    drop(second);
    let third = server.listener(Client::default()).unwrap();
    third.listed();
    third.follow_list().await.unwrap();
    assert_eq!(told(&*third).await, [], "nothing happened");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_was_given_up_is_not_there() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let listener = server.listener(Client::default()).unwrap();
    {
        let mut given_up = Box::pin(listener.subscribe("a:one"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(given_up.as_mut().poll(&mut context).is_pending());
    }
    listener.subscribe("a:one").await.unwrap();
    assert_eq!(script.watches(), 1);
    script.say(Change::Updated, "a:one");
    assert_eq!(told(&*listener).await, [updated("a:one")]);
}

#[tokio::test(start_paused = true)]
async fn whoever_missed_something_is_told_to_look_again() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let listener = server.listener(Client::default()).unwrap();
    listener.subscribe("a:one").await.unwrap();
    listener.follow_list().await.unwrap();
    script.tell(&Change::Lost);
    assert_eq!(told(&*listener).await, [News::List, updated("a:one")]);
    // A source whose watch ends by itself may have missed anything.
    script.watchers.lock().unwrap().clear();
    assert_eq!(told(&*listener).await, [News::List, updated("a:one")]);
}

#[tokio::test(start_paused = true)]
async fn sources_come_and_go() {
    let (old, stays, new) = (Script::new("a"), Script::new("b"), Script::new("c"));
    let (server, catalog) = server(vec![old.clone(), stays.clone()]);
    let listener = server.listener(Client::default()).unwrap();
    listener.follow_list().await.unwrap();
    listener.subscribe("b:one").await.unwrap();
    assert!(listener.subscribe("c:one").await.is_err());
    catalog.replace(vec![stays.clone(), new.clone()]);
    assert_eq!(told(&*listener).await, [News::List, updated("b:one")]);
    assert_eq!((old.watches(), stays.watches(), new.watches()), (0, 1, 1));
    listener.subscribe("c:one").await.unwrap();
    new.say(Change::Updated, "c:one");
    stays.say(Change::Updated, "b:one");
    let mut all = told(&*listener).await;
    all.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(all, [updated("b:one"), updated("c:one")]);
}
