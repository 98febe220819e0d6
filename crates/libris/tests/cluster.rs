//! Two catalogs that exchange changes over a bus in memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use libris::{
    Catalog, Change, ChangeBus, ClusterEvent, Context, FunctionSource, FunctionSourceHandle, ResourceSpec,
    Source as _, Uri,
};
use tokio::sync::mpsc;

/// One end of a bus in memory.
struct MemoryBus {
    published: Mutex<Vec<Change>>,
    other: mpsc::UnboundedSender<ClusterEvent>,
    events: tokio::sync::Mutex<mpsc::UnboundedReceiver<ClusterEvent>>,
}

#[async_trait]
impl ChangeBus for MemoryBus {
    fn publish(&self, change: &Change) {
        self.published.lock().unwrap().push(change.clone());
        let _ = self.other.send(ClusterEvent::Changed { change: change.clone(), age: Duration::ZERO });
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
        let (published, events) = (Mutex::default(), tokio::sync::Mutex::new(events));
        Arc::new(MemoryBus { published, other, events })
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
