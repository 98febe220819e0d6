//! What listeners are told, in a time that the tests move themselves.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris::uri_template::Specificity;
use libris::wire::{Caller, Client, Failure, Listener, News, Service as _};
use libris::{
    Catalog, Change, Config, Contents, Context, Error, Page, Result, Server, Source, SubscriptionConfig, Uri,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// A listener of a caller that has not shown who it is.
fn joined(server: &Server, client: Client) -> Result<Arc<dyn Listener>, Failure> {
    server.known(&Caller::default()).unwrap().listener(client)
}

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

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    fn subject(&self, uri: &Uri) -> Uri {
        uri.without_query()
    }

    fn follow(&self, subject: &Uri, _client: Client) {
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
    let subscriptions =
        SubscriptionConfig { subscriptions: 3, listeners: 2, ..SubscriptionConfig::default() };
    (Server::new(catalog.clone(), Config { subscriptions, ..Config::default() }), catalog)
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
    let listener = joined(&server, Client::default()).unwrap();
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
    let (one, other) =
        (joined(&server, Client::default()).unwrap(), joined(&server, Client::default()).unwrap());
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
    let listener = joined(&server, Client::default()).unwrap();
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
    let listener = joined(&server, Client::default()).unwrap();
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
    let listener = joined(&server, Client::default()).unwrap();
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
    let listener = joined(&server, Client::default()).unwrap();
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
    let listener = joined(&server, Client::default()).unwrap();
    assert_eq!(listener.subscribe("b:one").await, Err(Failure::NotFound { uri: "b:one".into() }));
    assert!(matches!(listener.subscribe("no uri").await, Err(Failure::Invalid { .. })));
    for uri in ["a:1", "a:2", "a:3", "a:3"] {
        listener.subscribe(uri).await.unwrap();
    }
    // One that is over the limit waits for its refusal: a client that tries again and again is slowed down.
    let begun = tokio::time::Instant::now();
    {
        let refused = listener.subscribe("a:4");
        tokio::pin!(refused);
        assert!(timeout(Duration::from_millis(49), &mut refused).await.is_err());
        assert!(matches!(refused.await, Err(Failure::Internal { .. })));
    }
    assert_eq!(begun.elapsed(), Duration::from_millis(50));
    listener.unsubscribe("a:3");
    listener.subscribe("a:4").await.unwrap();
    let _second = joined(&server, Client::default()).unwrap();
    assert!(joined(&server, Client::default()).is_err());
}

#[tokio::test(start_paused = true)]
async fn there_is_one_watch_and_none_once_everybody_has_left() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let (first, second) =
        (joined(&server, Client::default()).unwrap(), joined(&server, Client::default()).unwrap());
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
    let third = joined(&server, Client::default()).unwrap();
    third.subscribe("a:one").await.unwrap();
    assert_eq!(script.watches(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_listed_before_is_owed_what_may_have_changed() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let first = joined(&server, Client::default()).unwrap();
    first.listed();
    first.follow_list().await.unwrap();
    assert_eq!(told(&*first).await, [News::List], "nobody was watching when it listed");
    let second = joined(&server, Client::default()).unwrap();
    script.say(Change::Added, "a:new");
    assert_eq!(told(&*first).await, [News::List]);
    second.listed();
    second.follow_list().await.unwrap();
    assert_eq!(told(&*second).await, [News::List], "it may have listed before that change");
    drop(second);
    let third = joined(&server, Client::default()).unwrap();
    third.listed();
    third.follow_list().await.unwrap();
    assert_eq!(told(&*third).await, [], "nothing happened");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_was_given_up_is_not_there() {
    let script = Script::new("a");
    let (server, _) = server(vec![script.clone()]);
    let listener = joined(&server, Client::default()).unwrap();
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
    let listener = joined(&server, Client::default()).unwrap();
    listener.subscribe("a:one").await.unwrap();
    listener.follow_list().await.unwrap();
    script.tell(&Change::Lost);
    assert_eq!(told(&*listener).await, [News::List, updated("a:one")]);
    // A source whose watch ends by itself may have missed anything.
    script.watchers.lock().unwrap().clear();
    assert_eq!(told(&*listener).await, [News::List, updated("a:one")]);
}

/// A catalog replaces a watch that ends; a source that is served alone has nobody who does.
#[tokio::test(start_paused = true)]
async fn whoever_follows_a_source_whose_watch_ends_is_told_of_everything() {
    let script = Script::new("a");
    let server = Server::new(script.clone(), Config::default());
    let (subscriber, follower) =
        (joined(&server, Client::default()).unwrap(), joined(&server, Client::default()).unwrap());
    subscriber.subscribe("a:one").await.unwrap();
    follower.follow_list().await.unwrap();
    script.watchers.lock().unwrap().clear();
    assert_eq!(told(&*subscriber).await, [updated("a:one")]);
    assert_eq!(told(&*follower).await, [News::List]);
    // The next one who wants to hear something opens a watch again, for all of them.
    subscriber.subscribe("a:two").await.unwrap();
    script.tell(&Change::Lost);
    let mut all = told(&*subscriber).await;
    all.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(all, [updated("a:one"), updated("a:two")]);
    assert_eq!(told(&*follower).await, [News::List]);
}

#[tokio::test(start_paused = true)]
async fn sources_come_and_go() {
    let (old, stays, new) = (Script::new("a"), Script::new("b"), Script::new("c"));
    let (server, catalog) = server(vec![old.clone(), stays.clone()]);
    let listener = joined(&server, Client::default()).unwrap();
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

fn count(server: &Server, name: &str) -> usize {
    server.counts().into_iter().find(|(known, _)| *known == name).expect("a count of this name").1
}

/// A URI that is nearly as long as any may be.
fn long(name: &str) -> String {
    format!("a:{name}/{}", "x".repeat(8_000))
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_uri_is_held_once_for_all_listeners() {
    let server = Server::new(Script::new("a"), Config::default());
    let listeners: Vec<_> = (0..10).map(|_| joined(&server, Client::default()).unwrap()).collect();
    for listener in &listeners {
        for n in 0..30 {
            listener.subscribe(&long(&n.to_string())).await.unwrap();
        }
    }
    let bytes = count(&server, "subscription_bytes");
    assert_eq!(count(&server, "subscriptions"), 300);
    assert!((30 * 8_000..2 * 30 * 8_000).contains(&bytes), "{bytes} bytes for 30 distinct texts");
    drop(listeners);
    assert_eq!(count(&server, "subscription_bytes"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_subscriptions_are_bounded_for_each_client_and_in_all() {
    let subscriptions = SubscriptionConfig {
        subscription_bytes: 1 << 20,
        client_subscription_bytes: 1 << 18,
        ..SubscriptionConfig::default()
    };
    let server = Server::new(Script::new("a"), Config { subscriptions, ..Config::default() });
    let mut listeners = Vec::new();
    for client in 0..7 {
        let listener = joined(&server, Client::default()).unwrap();
        let mut granted = 0;
        let message = loop {
            let before = server.counts();
            match listener.subscribe(&long(&format!("{client}/{granted}"))).await {
                Ok(()) => granted += 1,
                Err(Failure::Internal { message, .. }) => {
                    assert_eq!(server.counts(), before, "a refused subscription changes nothing");
                    break message;
                }
                Err(other) => panic!("{other:?}"),
            }
            assert!(granted < 100, "{granted} subscriptions of 8,000 bytes");
        };
        if client < 4 {
            assert!((28..32).contains(&granted), "{granted}");
            assert!(message.contains("`262144`") && message.contains("unsubscribe"), "{message}");
            listener.unsubscribe(&long(&format!("{client}/0")));
            listener.subscribe(&long(&format!("{client}/n"))).await.unwrap();
        } else {
            // The first four leave some room that was too little for one more of theirs.
            assert!(granted < 4, "{granted}");
            assert!(message.contains("`1048576`") && message.contains("later"), "{message}");
        }
        listeners.push(listener);
    }
    listeners.truncate(1);
    assert!(count(&server, "subscription_bytes") <= 1 << 18);
    drop(listeners);
    assert_eq!((count(&server, "subscription_bytes"), count(&server, "subscriptions")), (0, 0));
}

/// A source whose watch does not open before it may.
struct Late {
    script: Arc<Script>,
    may_open: tokio::sync::Semaphore,
}

impl Late {
    fn new(scheme: &'static str) -> Arc<Self> {
        Arc::new(Self { script: Script::new(scheme), may_open: tokio::sync::Semaphore::new(0) })
    }
}

#[async_trait]
impl Source for Late {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.script.covers(uri)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        self.script.list(after, limit, context).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.script.read(uri, context).await
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        self.may_open.acquire().await.unwrap().forget();
        self.script.watch().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_open_is_an_error_in_time() {
    let late = Late::new("a");
    let server = Server::new(late.clone(), Config::default());
    let (one, other) =
        (joined(&server, Client::default()).unwrap(), joined(&server, Client::default()).unwrap());
    let both = async { tokio::join!(one.subscribe("a:one"), other.subscribe("a:one")) };
    let (first, second) = timeout(Duration::from_secs(15), both).await.expect("an answer in time");
    for refused in [first, second] {
        let Err(Failure::Internal { message, .. }) = refused else { panic!("{refused:?}") };
        assert!(message.contains("10 seconds") && message.contains("try again"), "{message}");
    }
    assert_eq!(count(&server, "subscriptions"), 0);
    // It was opened once for both, and is at hand once it is there.
    late.may_open.add_permits(2);
    one.subscribe("a:one").await.unwrap();
    other.subscribe("a:one").await.unwrap();
    assert_eq!((late.script.watches(), late.may_open.available_permits()), (1, 1));
    late.script.say(Change::Updated, "a:one");
    assert_eq!(told(&*other).await, [updated("a:one")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_nobody_waits_for_is_given_up() {
    let late = Late::new("a");
    let server = Server::new(late.clone(), Config::default());
    let listener = joined(&server, Client::default()).unwrap();
    timeout(Duration::from_secs(15), listener.subscribe("a:one")).await.expect("in time").unwrap_err();
    drop(listener);
    tokio::time::sleep(Duration::from_secs(60)).await;
    drop(server);
    assert_eq!(Arc::strong_count(&late), 1, "somebody still waits for the watch");
}

#[tokio::test(start_paused = true)]
async fn a_source_whose_watch_does_not_open_stops_no_other() {
    let (stays, late) = (Script::new("a"), Late::new("b"));
    let (server, catalog) = server(vec![stays.clone()]);
    let first = joined(&server, Client::default()).unwrap();
    first.subscribe("a:one").await.unwrap();
    catalog.replace(vec![late.clone(), stays.clone()]);
    stays.say(Change::Updated, "a:one");
    assert_eq!(told(&*first).await, [updated("a:one")], "it was added to a watch that runs");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(told(&*first).await, [updated("a:one")], "the sources are not those it subscribed to");
    drop(first);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stays.watches(), 0);

    let second = joined(&server, Client::default()).unwrap();
    timeout(Duration::from_secs(30), second.subscribe("a:one")).await.expect("in time").unwrap();
    second.subscribe("b:one").await.unwrap();
    stays.say(Change::Updated, "a:one");
    assert_eq!(told(&*second).await, [updated("a:one")], "it was there before the watch");
    // Whoever subscribed meanwhile may have missed something.
    late.may_open.add_permits(10);
    let mut all = told(&*second).await;
    all.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(all, [updated("a:one"), updated("b:one")]);
    late.script.say(Change::Updated, "b:one");
    assert_eq!(told(&*second).await, [updated("b:one")]);
}

#[tokio::test(start_paused = true)]
async fn no_window_is_too_long() {
    let script = Script::new("a");
    let subscriptions = SubscriptionConfig { window: Duration::MAX, ..SubscriptionConfig::default() };
    let server = Server::new(script.clone(), Config { subscriptions, ..Config::default() });
    let listener = joined(&server, Client::default()).unwrap();
    listener.subscribe("a:one").await.unwrap();
    listener.follow_list().await.unwrap();
    script.say(Change::Added, "a:one");
    for _ in 0..2 {
        timeout(Duration::from_secs(3_700), listener.next()).await.expect("news after an hour at most");
    }
}

/// A source that takes its time to follow what is called `slow`.
struct Slow {
    script: Arc<Script>,
    /// Locked by the test for as long as it is to take.
    turn: Mutex<()>,
    waits: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl Source for Slow {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.script.covers(uri)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        self.script.list(after, limit, context).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.script.read(uri, context).await
    }

    fn follow(&self, subject: &Uri, _client: Client) {
        if subject.as_str() == "a:slow" {
            self.waits.store(true, std::sync::atomic::Ordering::SeqCst);
            drop(self.turn.lock().unwrap());
        }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        self.script.watch().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_source_that_is_slow_to_follow_holds_up_nobody_else() {
    let (turn, waits) = (Mutex::default(), std::sync::atomic::AtomicBool::new(false));
    let slow = Arc::new(Slow { script: Script::new("a"), turn, waits });
    let server = Arc::new(Server::new(slow.clone(), Config::default()));
    let quick = joined(&server, Client::default()).unwrap();
    quick.subscribe("a:quick").await.unwrap();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let holder = slow.clone();
    let (held, holds) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _turn = holder.turn.lock().unwrap();
        held.send(()).unwrap();
        // It ends when the test does, however that ends.
        let _ = gone.recv_timeout(Duration::from_secs(30));
    });
    holds.recv().unwrap();
    let patient = joined(&server, Client::default()).unwrap();
    let subscribing = tokio::spawn(async move { patient.subscribe("a:slow").await });
    let asked = async {
        while !slow.waits.load(std::sync::atomic::Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), asked).await.expect("it is asked to follow");
    slow.script.say(Change::Updated, "a:quick");
    let news = timeout(Duration::from_secs(10), quick.next()).await;
    assert_eq!(news.expect("news while the other source is busy"), updated("a:quick"));
    assert!(!subscribing.is_finished());
    drop(go);
    subscribing.await.unwrap().unwrap();
    thread.join().unwrap();
}
