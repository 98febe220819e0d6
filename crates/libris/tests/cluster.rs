//! Two catalogs that exchange changes over a bus in memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris::cluster::ChangePosition;
use libris::uri_template::Specificity;
use libris::{
    Catalog, Change, ChangeBus, ClusterEvent, Contents, Context, Error, FunctionSource, FunctionSourceHandle,
    Page, ResourceSpec, Result, Source, Uri,
};
use libris_core::Client;
use tokio::sync::{mpsc, watch};

/// One end of a bus in memory.
struct MemoryBus {
    published: Mutex<Vec<Change>>,
    /// Whether this end polls.
    turn: watch::Sender<bool>,
    followed: Mutex<Vec<String>>,
    other: mpsc::UnboundedSender<ClusterEvent>,
    events: tokio::sync::Mutex<mpsc::UnboundedReceiver<ClusterEvent>>,
}

#[async_trait]
impl ChangeBus for MemoryBus {
    fn publish(&self, change: &Change) -> u64 {
        let mut published = self.published.lock().unwrap();
        published.push(change.clone());
        let position = ChangePosition { milliseconds: 0, number: published.len() as u64 };
        let (change, age) = (change.clone(), Duration::ZERO);
        let _ = self.other.send(ClusterEvent::Changed { change, age, position });
        published.len() as u64
    }

    fn poller(&self, source: &str) -> watch::Receiver<bool> {
        assert_eq!(source, "service");
        self.turn.subscribe()
    }

    fn follow(&self, subject: &Uri) {
        self.followed.lock().unwrap().push(format!("follow {subject}"));
    }

    fn unfollow(&self, subject: &Uri) {
        self.followed.lock().unwrap().push(format!("unfollow {subject}"));
    }

    async fn next(&self) -> ClusterEvent {
        match self.events.lock().await.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

/// Two ends of a bus.
fn bus() -> [Arc<MemoryBus>; 2] {
    let (to_one, for_one) = mpsc::unbounded_channel();
    let (to_other, for_other) = mpsc::unbounded_channel();
    for sender in [&to_one, &to_other] {
        sender.send(ClusterEvent::Connected { knows_recent_changes: true }).unwrap();
    }
    let end = |other, events| {
        let (published, followed, turn) = (Mutex::default(), Mutex::default(), watch::Sender::default());
        let events = tokio::sync::Mutex::new(events);
        Arc::new(MemoryBus { published, turn, followed, other, events })
    };
    [end(to_other, for_one), end(to_one, for_other)]
}

/// A catalog whose resource `count://now` may be cached for an hour, with the number of times that it was computed.
fn catalog(bus: &Arc<MemoryBus>) -> (Arc<Catalog>, FunctionSourceHandle, Arc<AtomicUsize>) {
    let computed = Arc::new(AtomicUsize::new(0));
    let counted = computed.clone();
    let spec = ResourceSpec::new("count://now").cache(Duration::from_secs(3600));
    let functions = FunctionSource::new()
        .resource(spec, move || format!("{}", counted.fetch_add(1, Ordering::SeqCst) + 1))
        .resource("other://now", || "other");
    let handle = functions.handle();
    let catalog = Arc::new(Catalog::new(vec![Arc::new(functions)]));
    catalog.add_status();
    catalog.join_cluster(bus.clone());
    (catalog, handle, computed)
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

#[tokio::test]
async fn changes_pass_to_the_watchers_of_both_catalogs_once() {
    let [here, there] = bus();
    let ((one, handle, _), (other, ..)) = (catalog(&here), catalog(&there));
    let mut at_one = one.watch().await.unwrap().unwrap();
    let mut at_other = other.watch().await.unwrap().unwrap();
    handle.updated("count://now").unwrap();
    let change = Change::Updated(uri("count://now"));
    for changes in [&mut at_one, &mut at_other] {
        let mut heard = 0;
        while heard == 0 {
            heard += usize::from(changes.next().await.unwrap() == change);
        }
    }
    // The receiver publishes nothing that it received.
    assert!(!there.published.lock().unwrap().contains(&change));
    assert_eq!(here.published.lock().unwrap().iter().filter(|published| **published == change).count(), 1);
}

#[tokio::test]
async fn the_status_of_a_replica_is_its_own() {
    let [here, there] = bus();
    let ((one, handle, _), _other) = (catalog(&here), catalog(&there));
    let mut changes = one.watch().await.unwrap().unwrap();
    // A new source is a transition of the status.
    one.add(Arc::new(FunctionSource::new().resource("new://one", || "new")));
    while changes.next().await.unwrap() != Change::Updated(uri("libris://status")) {}
    handle.updated("other://now").unwrap();
    while changes.next().await.unwrap() != Change::Updated(uri("other://now")) {}
    let published = here.published.lock().unwrap().clone();
    assert!(published.contains(&Change::Updated(uri("other://now"))), "{published:?}");
    assert!(!published.contains(&Change::Updated(uri("libris://status"))), "{published:?}");
}

#[tokio::test]
async fn a_change_elsewhere_invalidates_what_is_cached_before_anybody_hears_of_it() {
    let [here, there] = bus();
    let ((one, handle, _), (other, _, computed)) = (catalog(&here), catalog(&there));
    let mut changes = other.watch().await.unwrap().unwrap();
    one.watch().await.unwrap();
    let context = Context::default();
    let read = async || other.read(&uri("count://now"), &context).await.unwrap();
    read().await;
    read().await;
    assert_eq!(computed.load(Ordering::SeqCst), 1, "the second is from the cache");
    handle.updated("count://now").unwrap();
    while changes.next().await.unwrap() != Change::Updated(uri("count://now")) {}
    read().await;
    assert_eq!(computed.load(Ordering::SeqCst), 2);
    let list = other.list(None, 10, &context).await.unwrap();
    handle.updated("other://now").unwrap();
    while changes.next().await.unwrap() != Change::Updated(uri("other://now")) {}
    assert!(list.freshness.proof.is_none_or(|proof| proof.holds()), "the list is the same");
}

#[tokio::test(start_paused = true)]
async fn lost_changes_of_many_replicas_are_reported_together() {
    let [here, there] = bus();
    let (_one, (other, ..)) = (catalog(&here), catalog(&there));
    let mut changes = other.watch().await.unwrap().unwrap();
    let mut lost = 0;
    let began = tokio::time::Instant::now();
    for _ in 0..100 {
        here.publish(&Change::Lost);
    }
    while began.elapsed() < Duration::from_secs(30) {
        let change = tokio::time::timeout(Duration::from_secs(30), changes.next()).await;
        lost += usize::from(change == Ok(Some(Change::Lost)));
    }
    assert!((1..=3).contains(&lost), "{lost}");
}

/// A source that polls, and records what is asked of it.
struct PolledService {
    calls: mpsc::UnboundedSender<String>,
}

impl PolledService {
    fn record(&self, call: String) {
        self.calls.send(call).unwrap();
    }
}

#[async_trait]
impl Source for PolledService {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == "service").then_some(Specificity::EXACT)
    }

    fn name(&self) -> std::borrow::Cow<'_, str> {
        "service".into()
    }

    async fn list(&self, _after: Option<&Uri>, _limit: usize, _context: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _context: &Context) -> Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    fn polls_shared_service(&self) -> bool {
        true
    }

    fn follow(&self, subject: &Uri, _client: Client) {
        self.record(format!("follow {subject}"));
    }

    fn follow_for_replicas(&self, subject: &Uri) {
        self.record(format!("follow {subject} for replicas"));
    }

    fn unfollow(&self, subject: &Uri) {
        self.record(format!("unfollow {subject}"));
    }

    fn invalidate(&self, change: &Change) {
        self.record(format!("invalidate {change:?}"));
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        /// Records that the watch was dropped.
        struct OpenWatch(mpsc::UnboundedSender<String>);
        impl Drop for OpenWatch {
            fn drop(&mut self) {
                let _ = self.0.send("closed".to_owned());
            }
        }
        self.record("opened".to_owned());
        let open = OpenWatch(self.calls.clone());
        Ok(Some(stream::pending::<Change>().map(move |change| (&open, change).1).boxed()))
    }
}

/// What is asked of the source, in order.
struct Calls(mpsc::UnboundedReceiver<String>);

impl Calls {
    async fn next(&mut self) -> String {
        let next = tokio::time::timeout(Duration::from_secs(20), self.0.recv());
        next.await.expect("something is asked of the source").unwrap()
    }
}

fn polled(bus: &Arc<MemoryBus>) -> (Arc<Catalog>, Calls) {
    let (calls, recorded) = mpsc::unbounded_channel();
    let catalog = Arc::new(Catalog::new(vec![Arc::new(PolledService { calls })]));
    catalog.join_cluster(bus.clone());
    (catalog, Calls(recorded))
}

#[tokio::test]
async fn a_service_is_watched_by_the_replica_whose_turn_it_is() {
    let [here, _there] = bus();
    let (catalog, mut calls) = polled(&here);
    let mut changes = catalog.watch().await.unwrap().unwrap();
    let (one, other) = (uri("service://one"), uri("service://other"));
    catalog.follow(&one, Client::default());
    assert_eq!(calls.next().await, "follow service://one");
    // It starts on standby. The other replicas have seen all changes of the service, so none were lost.
    assert_eq!(*here.published.lock().unwrap(), []);
    here.turn.send_replace(true);
    assert_eq!(calls.next().await, "opened");
    // What it follows is followed again, before anybody hears that changes may have been missed.
    assert_eq!(calls.next().await, "follow service://one for replicas");
    // Nobody has seen the changes since the last poller, so what this replica has cached may be outdated.
    assert_eq!(calls.next().await, "invalidate Lost");
    assert_eq!(changes.next().await, Some(Change::Lost));
    assert_eq!(*here.published.lock().unwrap(), [Change::Lost]);
    here.turn.send_replace(false);
    assert_eq!(calls.next().await, "closed");
    here.turn.send_replace(true);
    assert_eq!(calls.next().await, "opened");
    assert_eq!(calls.next().await, "follow service://one for replicas");
    assert_eq!(calls.next().await, "invalidate Lost");
    catalog.follow(&other, Client::default());
    catalog.unfollow(&one);
    assert_eq!(
        [calls.next().await, calls.next().await],
        ["follow service://other", "unfollow service://one"]
    );
    assert_eq!(
        *here.followed.lock().unwrap(),
        ["follow service://one", "follow service://other", "unfollow service://one"]
    );
}

#[tokio::test]
async fn what_other_replicas_follow_is_followed_and_what_they_report_is_invalidated_first() {
    let [here, there] = bus();
    let (catalog, mut calls) = polled(&here);
    let mut changes = catalog.watch().await.unwrap().unwrap();
    let one = uri("service://one");
    let followed = |subjects: Vec<Uri>| there.other.send(ClusterEvent::Followed { subjects }).unwrap();
    followed(vec![one.clone()]);
    assert_eq!(calls.next().await, "follow service://one for replicas");
    followed(Vec::new());
    assert_eq!(calls.next().await, "unfollow service://one");
    there.publish(&Change::Updated(one.clone()));
    assert_eq!(changes.next().await, Some(Change::Updated(one.clone())));
    assert_eq!(calls.0.try_recv().unwrap(), format!("invalidate {:?}", Change::Updated(one)));
    there.publish(&Change::Lost);
    assert_eq!(changes.next().await, Some(Change::Lost));
    assert_eq!(calls.0.try_recv().unwrap(), "invalidate Lost");
}
