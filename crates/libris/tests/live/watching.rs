//! The shared watch of all sources: when it opens and ends, and sources that are added or removed meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use libris::uri_template::Specificity;
use libris::wire::{Client, Failure, Notification};
use libris::{Change, Config, Contents, Context, Error, Page, Result, Server, Source, Uri};
use tokio::time::timeout;

use crate::script::{Script, count, joined, listening, server, told, updated};

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
    assert_eq!(told(&*second).await, [Notification::ListChanged, updated("a:one")]);
    drop(second);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(script.watches(), 0);
    let third = joined(&server, Client::default()).unwrap();
    third.subscribe("a:one").await.unwrap();
    assert_eq!(script.watches(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_stays_for_those_who_come_back() {
    let (script, server, listener) = listening();
    listener.subscribe("a:one").await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    drop(listener);
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    assert_eq!((script.watches(), count(&server, "watches")), (1, 1));
    let listener = joined(&server, Client::default()).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((script.watches(), count(&server, "watches")), (1, 1));
    drop(listener);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!((script.watches(), count(&server, "watches")), (0, 0));
}

/// A source whose first watch cannot be opened, and none of which reports anything.
struct Unwatched {
    script: Arc<Script>,
    opened: AtomicUsize,
    first: fn() -> Result<()>,
}

impl Unwatched {
    fn new(first: fn() -> Result<()>) -> Arc<Self> {
        Arc::new(Self { script: Script::new("a"), opened: AtomicUsize::new(0), first })
    }
}

#[async_trait]
impl Source for Unwatched {
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
        if self.opened.fetch_add(1, Ordering::SeqCst) == 0 {
            (self.first)()?;
        }
        Ok(None)
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_could_not_be_opened_is_opened_again() {
    for (first, message) in [
        ((|| Err(Error::Unavailable("no more watches".to_owned()))) as fn() -> Result<()>, "no more watches"),
        (|| panic!("on purpose"), "watch for changes"),
    ] {
        let source = Unwatched::new(first);
        let server = Server::new(source.clone(), Config::default());
        let listener = joined(&server, Client::default()).unwrap();
        let refused = listener.subscribe("a:one").await;
        let Err(Failure::Internal { message: told, .. }) = &refused else { panic!("{refused:?}") };
        assert!(told.contains(message), "{told}");
        assert_eq!(count(&server, "subscriptions"), 0);
        // A source that reports no changes may be subscribed to: it may be replaced by one that does.
        listener.subscribe("a:one").await.unwrap();
        assert_eq!((count(&server, "subscriptions"), count(&server, "watches")), (1, 0));
        assert_eq!(source.opened.load(Ordering::SeqCst), 2);
    }
}

/// A source whose watch panics at the first change.
struct Panics(Arc<Script>);

#[async_trait]
impl Source for Panics {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.0.covers(uri)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        self.0.list(after, limit, context).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.0.read(uri, context).await
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        let changes = self.0.watch().await?.unwrap();
        Ok(Some(changes.inspect(|_| panic!("on purpose")).boxed()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_is_opened_again() {
    let script = Script::new("a");
    let server = Server::new(Arc::new(Panics(script.clone())), Config::default());
    let listener = joined(&server, Client::default()).unwrap();
    for name in ["a:one", "a:two"] {
        listener.subscribe(name).await.unwrap();
        assert_eq!((script.watches(), count(&server, "watches")), (1, 1));
        script.say(Change::Updated, name);
        told(&*listener).await;
        assert_eq!((script.watches(), count(&server, "watches")), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn who_hears_that_a_watch_has_ended_may_open_the_next_at_once() {
    let script = Script::new("a");
    let server = Server::new(script.clone(), Config::default());
    let listener = joined(&server, Client::default()).unwrap();
    listener.subscribe("a:one").await.unwrap();
    script.watchers.lock().unwrap().clear();
    assert_eq!(listener.next().await, updated("a:one"));
    listener.subscribe("a:two").await.unwrap();
    assert_eq!(script.watches(), 1);
    script.say(Change::Updated, "a:two");
    assert_eq!(told(&*listener).await, [updated("a:two")]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_takes_the_place_of_another_follows_what_that_did() {
    let (old, new) = (Script::new("a"), Script::new("a"));
    let (server, catalog) = server(vec![old.clone()]);
    let listener = joined(&server, Client::default()).unwrap();
    listener.subscribe("a:one").await.unwrap();
    assert_eq!(old.client("a:one"), Some(Client::default()));
    catalog.replace(vec![new.clone()]);
    told(&*listener).await;
    assert_eq!(new.client("a:one"), Some(Client::default()));
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
    assert_eq!(told(&*follower).await, [Notification::ListChanged]);
    // The next one who wants to hear something opens a watch again, for all of them.
    subscriber.subscribe("a:two").await.unwrap();
    script.tell(&Change::Lost);
    let mut all = told(&*subscriber).await;
    all.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(all, [updated("a:one"), updated("a:two")]);
    assert_eq!(told(&*follower).await, [Notification::ListChanged]);
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
    assert_eq!(told(&*listener).await, [Notification::ListChanged, updated("b:one")]);
    assert_eq!((old.watches(), stays.watches(), new.watches()), (0, 1, 1));
    listener.subscribe("c:one").await.unwrap();
    new.say(Change::Updated, "c:one");
    stays.say(Change::Updated, "b:one");
    let mut all = told(&*listener).await;
    all.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(all, [updated("b:one"), updated("c:one")]);
}

/// A source whose watch opens when the test permits it.
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
    // Listeners that subscribed meanwhile may have missed changes.
    late.may_open.add_permits(10);
    let mut all = told(&*second).await;
    all.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(all, [updated("a:one"), updated("b:one")]);
    late.script.say(Change::Updated, "b:one");
    assert_eq!(told(&*second).await, [updated("b:one")]);
}
