//! Catalogs that share contents through a cache in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use libris::cluster::{CacheAnswer, CacheWindow, ChangePosition, ReplicaCache};
use libris::uri_template::Specificity;
use libris::{
    CacheScope, Catalog, Change, ChangeBus, ClusterEvent, Content, Contents, Context, Error, Freshness,
    InputRequired, Page, ReplicaKey, RequestInput, Result, Source, Uri,
};
use tokio::sync::{Semaphore, mpsc};

/// A cache in memory.
#[derive(Default)]
struct MemoryCache {
    entries: Mutex<HashMap<String, (ChangePosition, Bytes)>>,
    lookups: AtomicUsize,
}

#[async_trait]
impl ReplicaCache for MemoryCache {
    async fn find(&self, key: &str, window: &CacheWindow) -> CacheAnswer {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        match self.entries.lock().unwrap().get(key) {
            Some((position, data)) if *position >= window.oldest => {
                CacheAnswer::Found { data: data.clone(), ttl: Duration::from_secs(60) }
            }
            _ => CacheAnswer::Lead,
        }
    }

    async fn store(&self, key: &str, window: &CacheWindow, data: Bytes, _ttl: Duration) {
        self.entries.lock().unwrap().insert(key.to_owned(), (window.reached, data));
    }

    async fn renew(&self, _key: &str, _window: &CacheWindow) {}

    async fn abandon(&self, _key: &str, _window: &CacheWindow) {}
}

/// A bus with a cache, whose events a test sends.
struct CachingBus {
    cache: Arc<MemoryCache>,
    published: AtomicU64,
    sender: mpsc::UnboundedSender<ClusterEvent>,
    events: tokio::sync::Mutex<mpsc::UnboundedReceiver<ClusterEvent>>,
}

impl CachingBus {
    fn new(cache: &Arc<MemoryCache>) -> Arc<Self> {
        let (sender, events) = mpsc::unbounded_channel();
        let bus = Self {
            cache: cache.clone(),
            published: AtomicU64::new(0),
            sender,
            events: tokio::sync::Mutex::new(events),
        };
        bus.send(ClusterEvent::Begun { sequence: "one".to_owned(), position: at(1) });
        bus.send(ClusterEvent::Connected { knows_recent_changes: true });
        Arc::new(bus)
    }

    fn send(&self, event: ClusterEvent) {
        self.sender.send(event).unwrap();
    }
}

fn at(milliseconds: u64) -> ChangePosition {
    ChangePosition { milliseconds, number: 0 }
}

#[async_trait]
impl ChangeBus for CachingBus {
    fn publish(&self, _change: &Change) -> u64 {
        let number = self.published.fetch_add(1, Ordering::SeqCst) + 1;
        // As if it had no position: these tests have no changes of their own.
        let published =
            ClusterEvent::Published { changes: Vec::new(), position: at(1), published_before: number + 1 };
        self.send(published);
        number
    }

    async fn next(&self) -> ClusterEvent {
        match self.events.lock().await.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    fn cache(&self) -> Option<&dyn ReplicaCache> {
        Some(&*self.cache)
    }
}

/// A slow service, which several catalogs read.
struct SlowService {
    /// The scope of its key, and of its contents.
    key: CacheScope,
    contents: CacheScope,
    ttl: Duration,
    version: AtomicU64,
    reads: AtomicUsize,
    /// Whether it asks for input. The state of the round is the capabilities of the caller.
    asks: AtomicBool,
    /// A read takes one permit.
    permits: Semaphore,
}

impl SlowService {
    fn new(key: CacheScope, contents: CacheScope) -> Self {
        Self {
            key,
            contents,
            ttl: Duration::from_secs(60),
            version: AtomicU64::new(1),
            reads: AtomicUsize::new(0),
            asks: AtomicBool::new(false),
            permits: Semaphore::new(1 << 20),
        }
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Source for SlowService {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == "slow").then_some(Specificity::EXACT)
    }

    async fn list(&self, _after: Option<&Uri>, _limit: usize, _context: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let version = self.version.load(Ordering::SeqCst);
        self.permits.acquire().await.unwrap().forget();
        if self.asks.load(Ordering::SeqCst) {
            let input = context.input().ok_or(Error::Unavailable("it is not asked for".into()))?;
            let state = Some(input.capabilities.to_string());
            return Err(Error::InputRequired(Box::new(InputRequired { requests: None, state })));
        }
        let freshness = Freshness::unproven().with_ttl(self.ttl).with_scope(self.contents);
        Ok(Contents { parts: vec![Content::text(uri.clone(), "text/plain", version.to_string())], freshness })
    }

    fn replica_key(&self, _uri: &Uri) -> Option<ReplicaKey> {
        Some(ReplicaKey { text: "service".to_owned(), scope: self.key })
    }
}

fn uri() -> Uri {
    Uri::parse("slow://one").unwrap()
}

fn input(capabilities: &str, responses: Option<&str>) -> Context {
    let (capabilities, responses) = (capabilities.into(), responses.map(Into::into));
    Context::default().with_input(Some(Arc::new(RequestInput { capabilities, responses, state: None })))
}

/// Catalogs of this service, after all of them are connected.
async fn catalogs<const N: usize>(
    service: &Arc<SlowService>,
) -> (Arc<MemoryCache>, [(Arc<Catalog>, Arc<CachingBus>); N]) {
    let cache = Arc::new(MemoryCache::default());
    let catalogs = [(); N].map(|()| {
        let bus = CachingBus::new(&cache);
        let catalog = Arc::new(Catalog::new(vec![service.clone()]));
        catalog.join_cluster(bus.clone());
        (catalog, bus)
    });
    // A change is notified after the events before it.
    for (catalog, bus) in &catalogs {
        let mut changes = catalog.watch().await.unwrap().unwrap();
        let other = Uri::parse("slow://other").unwrap();
        let change = Change::Updated(other);
        bus.send(ClusterEvent::Changed { change: change.clone(), age: Duration::ZERO, position: at(2) });
        bus.send(ClusterEvent::Reached { position: at(2) });
        bus.send(ClusterEvent::Changed { change: change.clone(), age: Duration::ZERO, position: at(2) });
        for _ in 0..2 {
            while changes.next().await != Some(change.clone()) {}
        }
    }
    (cache, catalogs)
}

async fn until(mut holds: impl FnMut() -> bool) {
    let polled = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), polled).await.expect("it holds in time");
}

#[tokio::test]
async fn contents_are_shared_between_clients_of_every_era() {
    for key in [CacheScope::Private, CacheScope::Public] {
        let service = Arc::new(SlowService::new(key, key));
        let (cache, [(one, _), (other, _), (third, _)]) = catalogs(&service).await;
        one.read(&uri(), &input("{}", None)).await.unwrap();
        until(|| !cache.entries.lock().unwrap().is_empty()).await;
        other.read(&uri(), &Context::default()).await.unwrap();
        third.read(&uri(), &input(r#"{"sampling":{}}"#, None)).await.unwrap();
        assert_eq!(service.reads(), 1, "{key:?}");
        // The answer to input is for its caller.
        one.read(&uri(), &input("{}", Some("{}"))).await.unwrap();
        assert_eq!(service.reads(), 2, "{key:?}");
    }
}

#[tokio::test]
async fn private_contents_of_another_server_reach_only_their_caller() {
    let service = Arc::new(SlowService::new(CacheScope::Public, CacheScope::Private));
    let (cache, [(one, _), (other, _)]) = catalogs(&service).await;
    for round in 1..=2 {
        let contexts = ["{}", "{}", "{}"].map(|capabilities| input(capabilities, None));
        let read = join_all(contexts.iter().map(async |context| one.read(&uri(), context).await)).await;
        assert_eq!(service.reads(), round * 3);
        for contents in read {
            let freshness = contents.unwrap().freshness;
            assert_eq!((freshness.scope, freshness.proof), (CacheScope::Private, None));
        }
    }
    other.read(&uri(), &Context::default()).await.unwrap();
    assert_eq!(service.reads(), 7);
    assert!(cache.entries.lock().unwrap().is_empty());
    // A service that is the same for all callers.
    let service = Arc::new(SlowService::new(CacheScope::Private, CacheScope::Private));
    let (_, [(one, _)]) = catalogs(&service).await;
    one.read(&uri(), &Context::default()).await.unwrap();
    let contents = one.read(&uri(), &Context::default()).await.unwrap();
    assert_eq!((service.reads(), contents.freshness.scope), (1, CacheScope::Private));
}

#[tokio::test]
async fn every_caller_is_asked_for_its_own_input() {
    let service = Arc::new(SlowService::new(CacheScope::Public, CacheScope::Public));
    service.asks.store(true, Ordering::SeqCst);
    let (_, [(one, _)]) = catalogs(&service).await;
    let capabilities = [r#"{"sampling":{}}"#, r#"{"elicitation":{}}"#, "{}"];
    for _ in 0..2 {
        let contexts = capabilities.map(|capabilities| input(capabilities, None));
        let read = join_all(contexts.iter().map(async |context| one.read(&uri(), context).await)).await;
        for (read, capabilities) in read.into_iter().zip(capabilities) {
            let Err(Error::InputRequired(required)) = read else { panic!("{read:?}") };
            assert_eq!(required.state.as_deref(), Some(capabilities));
        }
    }
}

#[tokio::test]
async fn the_cache_is_not_asked_for_contents_that_were_not_cacheable_lately() {
    let service =
        SlowService { ttl: Duration::ZERO, ..SlowService::new(CacheScope::Private, CacheScope::Private) };
    let service = Arc::new(service);
    let (cache, [(one, _)]) = catalogs(&service).await;
    for _ in 0..5 {
        one.read(&uri(), &Context::default()).await.unwrap();
    }
    assert_eq!((service.reads(), cache.lookups.load(Ordering::SeqCst)), (5, 1));
}

#[tokio::test]
async fn an_entry_that_cannot_be_decoded_is_replaced() {
    let service = Arc::new(SlowService::new(CacheScope::Private, CacheScope::Private));
    let (cache, [(one, _), (other, _), (third, _)]) = catalogs(&service).await;
    one.read(&uri(), &Context::default()).await.unwrap();
    until(|| !cache.entries.lock().unwrap().is_empty()).await;
    let damaged = Bytes::from_static(b"damaged");
    cache.entries.lock().unwrap().values_mut().for_each(|(_, data)| *data = damaged.clone());
    other.read(&uri(), &Context::default()).await.unwrap();
    assert_eq!(service.reads(), 2);
    until(|| cache.entries.lock().unwrap().values().all(|(_, data)| *data != damaged)).await;
    third.read(&uri(), &Context::default()).await.unwrap();
    assert_eq!(service.reads(), 2);
}

/// Callers read all the time, so that some reads begin while a change is being applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_after_a_notification_never_finds_an_entry_from_before() {
    let service = Arc::new(SlowService::new(CacheScope::Private, CacheScope::Private));
    let (cache, [(one, bus)]) = catalogs(&service).await;
    let mut changes = one.watch().await.unwrap().unwrap();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let one = one.clone();
            tokio::spawn(async move {
                loop {
                    one.read(&uri(), &Context::default()).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for version in 2..1_000 {
        // An entry of the version before is in the cache.
        until(|| !cache.entries.lock().unwrap().is_empty()).await;
        service.version.store(version, Ordering::SeqCst);
        let change = Change::Updated(uri());
        let position = at(version + 10);
        bus.send(ClusterEvent::Changed { change: change.clone(), age: Duration::ZERO, position });
        bus.send(ClusterEvent::Reached { position });
        while changes.next().await != Some(change.clone()) {}
        let contents = one.read(&uri(), &Context::default()).await.unwrap();
        assert_eq!(contents.parts, [Content::text(uri(), "text/plain", version.to_string())]);
    }
    readers.iter().for_each(|reader| reader.abort());
}
