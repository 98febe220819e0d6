//! Shared reads: single-flight, with a cache of contents that expires by TTL and by proof.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libris_core::{
    Budget, Client, Contents, Context, Error, Flight, Flights, Freshness, Lease, Proof, Result, Uri,
};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::sync::Notify;

use crate::cluster::ReplicaRead;
use crate::gate::GatedSource;
use crate::lock::lock;
use crate::read_memory::ReadMemory;

/// The capacity of the cache in bytes.
pub(crate) const CACHE_BYTES: u64 = 20 << 20;

/// The memory budget for contents that are being read and are not in the cache yet. One client may use three quarters,
/// which is enough for the largest contents of a source by default, 8 MiB.
pub(crate) const LOADING_BYTES: usize = 16 << 20;

/// Contents of up to this many bytes need no reservation from the memory budget.
const UNRESERVED_BYTES: usize = 64 << 10;

/// The number of shards. Each shard has its own lock and an equal part of the capacity, so contents of more than 10 MiB
/// are not cached.
const SHARDS: usize = 2;

/// The longest TTL. A longer TTL is reduced to this one, because it would overflow `Instant`.
const LONGEST_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The estimated number of cached contents.
const ESTIMATED_CONTENTS: usize = 64;

/// The memory that a part of contents uses in addition to its data.
const PART_OVERHEAD: usize = 512;

/// The shared reads of one catalog.
pub(crate) struct SharedReads {
    cache: Arc<ContentsCache>,
    /// The running reads, each of which holds a permit of its source.
    in_flight: Flights<ReadKey, ReadResult>,
    /// The requests for contents, one for each client, which wait for a permit or for a running read.
    requests: Flights<(ReadKey, Client), ReadResult>,
    /// Notifies the requests that wait for a permit that a read has started.
    started: Notify,
    /// The memory budget for contents that are being read.
    loading: Arc<Budget>,
}

type ContentsCache = Cache<ReadKey, Arc<CachedContents>, ContentsWeight>;

/// The address of a source in memory, and a URI: another source may have the same URI.
type ReadKey = (usize, Uri);

type ReadResult = Result<Arc<CachedContents>, Arc<Error>>;

/// With whom a read is shared, besides the concurrent callers of this process.
#[derive(Clone, Default)]
pub(crate) struct ReadScope {
    /// Holds until a replica reports a change of the contents; `None` if there are no replicas.
    pub(crate) unchanged: Option<Proof>,
    /// The read through the cache of the replicas, if they share the contents.
    pub(crate) replicas: Option<ReplicaRead>,
}

/// Contents in the cache, or just read.
struct CachedContents {
    contents: Contents,
    /// See [`ReadScope::unchanged`].
    unchanged: Option<Proof>,
    /// Whether other callers may get the contents.
    is_shared: bool,
    /// When the TTL of the contents ends.
    expires: Instant,
    /// The reservation from the memory budget, released when the cache accounts for the contents.
    loading: Mutex<Option<Lease>>,
}

impl CachedContents {
    fn new(contents: Contents, scope: ReadScope, loading: Option<Lease>) -> Self {
        let expires = Instant::now() + contents.freshness.ttl.min(LONGEST_TTL);
        let ReadScope { unchanged, replicas } = scope;
        let is_shared = replicas.is_none_or(|replicas| replicas.allows(&contents));
        Self { contents, unchanged, is_shared, expires, loading: Mutex::new(loading) }
    }

    fn is_fresh(&self) -> bool {
        Instant::now() < self.expires && self.is_valid()
    }

    fn is_valid(&self) -> bool {
        self.proofs().all(Proof::holds)
    }

    fn proofs(&self) -> impl Iterator<Item = &Proof> {
        [&self.contents.freshness.proof, &self.unchanged].into_iter().flatten()
    }

    /// The size of the contents in bytes.
    fn size(&self) -> usize {
        self.contents.parts.iter().map(|part| part.body.len()).sum()
    }

    fn contents(&self) -> Contents {
        if !self.is_shared {
            return self.contents.clone();
        }
        let left = match self.is_valid() {
            true => self.expires.saturating_duration_since(Instant::now()),
            false => Duration::ZERO,
        };
        let freshness = Freshness::unproven().with_ttl(left).with_scope(self.contents.freshness.scope);
        // With a proof, the response cache stores the response: further reads are as fast as other cached reads.
        let freshness = match left.is_zero() {
            false => {
                let (proofs, expires) = (self.proofs().cloned().collect::<Vec<_>>(), self.expires);
                let proof = Proof::new(move || Instant::now() < expires && proofs.iter().all(Proof::holds));
                Freshness { proof: Some(proof), ..freshness.until(expires) }
            }
            true => freshness,
        };
        Contents { parts: self.contents.parts.clone(), freshness }
    }
}

#[derive(Clone)]
struct ContentsWeight;

impl Weighter<ReadKey, Arc<CachedContents>> for ContentsWeight {
    fn weight(&self, (_, uri): &ReadKey, cached: &Arc<CachedContents>) -> u64 {
        let data: usize = cached.contents.parts.iter().map(|part| part.body.len() + PART_OVERHEAD).sum();
        (uri.as_str().len() + data) as u64
    }
}

impl Default for SharedReads {
    fn default() -> Self {
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(ESTIMATED_CONTENTS)
            .weight_capacity(CACHE_BYTES)
            .build()
            .expect("both capacities are given");
        let (hashes, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let cache = Arc::new(Cache::with_options(options, ContentsWeight, hashes, life));
        Self {
            cache,
            in_flight: Flights::default(),
            requests: Flights::default(),
            started: Notify::new(),
            loading: Budget::new(LOADING_BYTES),
        }
    }
}

impl SharedReads {
    /// Reads `uri`: from the cache while the contents there are fresh, otherwise from the source, in one flight for all
    /// concurrent callers.
    pub(crate) async fn read(
        self: &Arc<Self>,
        gated: &GatedSource,
        uri: &Uri,
        context: &Context,
        scope: ReadScope,
    ) -> Result<Contents> {
        let shares_all = scope.replicas.as_ref().is_none_or(ReplicaRead::allows_all);
        let key = (Arc::as_ptr(gated.source()).addr(), uri.clone());
        let fresh = || self.cache.get(&key).filter(|cached| cached.is_fresh());
        let contents = |cached: &CachedContents| {
            // Every caller gets its own copy, which needs memory of its own.
            context.reserve(cached.size() as u64)?;
            Ok(cached.contents())
        };
        if let Some(cached) = fresh() {
            return contents(&cached);
        }
        let leads = Arc::new(AtomicBool::new(false));
        let read = || {
            leads.store(false, Ordering::Relaxed);
            self.requests.join(
                &(key.clone(), context.client()),
                || fresh().map(Ok),
                || {
                    // The flight uses a permit of the first caller, but not its memory budget: that caller may be cancelled
                    // while others wait.
                    let loading = ReadMemory::new(&self.loading, context.client());
                    let mut shared = context.clone().without_caller().with_memory(loading.clone());
                    if !shares_all {
                        shared = shared.with_input_of(context);
                    }
                    let read =
                        SharedRead { gated: gated.clone(), key: key.clone(), context: shared, loading };
                    self.clone().request(read, scope.clone(), leads.clone())
                },
            )
        };
        let outcome = match read().await {
            // The data changed during the read, perhaps before this caller joined: read once more.
            Ok(cached) if !cached.is_valid() => read().await,
            outcome => outcome,
        };
        // This caller joined the read of another caller, and the contents are for that caller only, or the error is due
        // to that caller's input.
        let is_for_other = outcome.as_ref().map_or(!shares_all, |cached| !cached.is_shared);
        if is_for_other && !leads.load(Ordering::Relaxed) {
            let context = gated.permit(context).await?;
            return gated.source().read(uri, &context).await;
        }
        outcome.map_err(|error| Error::from_shared(&error)).and_then(|cached| contents(&cached))
    }

    /// Waits for the running read of the contents, or for a permit, and then reads them. Sets `leads` if this starts the
    /// read.
    ///
    /// Each client waits for a permit in its own queue. If all clients waited for the permit of the client that requested
    /// the contents first, and that client had a long queue, it would delay everything in its queue for everybody else.
    async fn request(
        self: Arc<Self>,
        read: SharedRead,
        scope: ReadScope,
        leads: Arc<AtomicBool>,
    ) -> ReadResult {
        // A replica waits for a permit only if the shared cache does not have the contents.
        let permitted = match &scope.replicas {
            Some(_) => None,
            None => tokio::select! {
                biased;
                running = self.running(&read.key) => return running.await,
                permitted = read.gated.permit(&read.context) => Some(permitted.map_err(Arc::new)?),
            },
        };
        let key = read.key.clone();
        let fresh = || self.cache.get(&key).filter(|cached| cached.is_fresh()).map(Ok);
        let flight = self.in_flight.join(&key, fresh, || {
            leads.store(true, Ordering::Relaxed);
            read.load(permitted, scope, self.cache.clone())
        });
        self.started.notify_waiters();
        flight.await
    }

    /// The read of these contents, once one is running.
    async fn running(&self, key: &ReadKey) -> Flight<ReadResult> {
        loop {
            let mut started = pin!(self.started.notified());
            started.as_mut().enable();
            if let Some(running) = self.in_flight.join_existing(key) {
                return running;
            }
            started.await;
        }
    }
}

/// A read that several callers share.
struct SharedRead {
    gated: GatedSource,
    key: ReadKey,
    /// The context of the read, without a permit.
    context: Context,
    loading: Arc<ReadMemory>,
}

impl SharedRead {
    /// Reads the contents and caches them. `permitted` is the context with a permit; without it, this waits for one.
    async fn load(
        self,
        permitted: Option<Context>,
        scope: ReadScope,
        cache: Arc<ContentsCache>,
    ) -> ReadResult {
        let Self { gated, key, context, loading } = self;
        let source = gated.source();
        let load = async {
            let mut permitted = permitted;
            loop {
                let context = match permitted.take() {
                    Some(permitted) => permitted,
                    None => gated.permit(&context).await?,
                };
                let read = source.read(&key.1, &context).await;
                drop(context);
                match read {
                    Err(Error::Busy(_)) if loading.wait_for_memory().await => {}
                    read => return read,
                }
            }
        };
        let contents = match &scope.replicas {
            Some(replicas) => replicas.run(load).await,
            None => load.await,
        };
        let contents = contents.map_err(Arc::new)?;
        let counted = loading.raise_to(contents.parts.iter().map(|part| part.body.len()).sum());
        let cached = Arc::new(CachedContents::new(contents, scope, loading.settle()));
        if !counted && cached.size() > UNRESERVED_BYTES {
            return Err(Arc::new(Error::NO_MEMORY));
        }
        if !cached.is_shared {
            return Ok(cached);
        }
        cache.insert(key.clone(), cached.clone());
        // The cache does not store contents that are too large; they keep their reservation.
        if cache.get(&key).is_some_and(|found| Arc::ptr_eq(&found, &cached)) {
            lock(&cached.loading).take();
        }
        Ok(cached)
    }
}

#[cfg(test)]
mod tests {
    use super::{CACHE_BYTES, ReadScope, SharedReads};
    use crate::gate::{GatedSource, SourceRole};
    use crate::health::Health;
    use crate::list_cache::{self, ListCache};
    use crate::{Context, FunctionSource, ResourceSpec, Uri};
    use std::sync::Arc;
    use std::time::Duration;

    fn gated(functions: FunctionSource) -> GatedSource {
        GatedSource::new(
            Arc::new(functions),
            Health::default().source("functions".to_owned()),
            SourceRole::Content,
            ListCache::new(list_cache::budget()),
        )
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let hour = Duration::from_secs(3600);
        let described = ResourceSpec::new("big://{n}").cache(hour);
        let functions = gated(FunctionSource::new().template(described, || vec![0; 1 << 20]));
        let reads = Arc::new(SharedReads::default());
        for number in 0..100 {
            let uri = Uri::parse(&format!("big://{number}")).unwrap();
            reads.read(&functions, &uri, &Context::default(), ReadScope::default()).await.unwrap();
        }
        assert!((CACHE_BYTES / 2..=CACHE_BYTES).contains(&reads.cache.weight()), "{}", reads.cache.weight());
        assert!(reads.in_flight.is_empty() && reads.requests.is_empty());
        // Cached contents have released their reservation.
        assert_eq!(reads.loading.used(), 0);
    }

    #[tokio::test]
    async fn responses_can_be_cached_until_the_contents_change_or_expire() {
        let described = |time| ResourceSpec::new("some://contents").cache(time);
        let (read, uri) = (Arc::new(SharedReads::default()), Uri::parse("some://contents").unwrap());
        let context = Context::default();
        let functions = FunctionSource::new().resource(described(Duration::from_secs(3600)), || "text");
        let handle = functions.handle();
        let functions = gated(functions);
        let first = read.read(&functions, &uri, &context, ReadScope::default()).await.unwrap();
        let cached = read.read(&functions, &uri, &context, ReadScope::default()).await.unwrap();
        let proofs = [first.freshness.proof.unwrap(), cached.freshness.proof.unwrap()];
        assert!(proofs.iter().all(|proof| proof.holds()));
        handle.updated("some://contents").unwrap();
        assert!(proofs.iter().all(|proof| !proof.holds()));
        let brief = gated(FunctionSource::new().resource(described(Duration::from_millis(20)), || "text"));
        let contents = read.read(&brief, &uri, &context, ReadScope::default()).await.unwrap();
        while contents.freshness.proof.as_ref().is_some_and(|proof| proof.holds()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn memory_for_concurrent_reads_is_bounded() {
        let hour = Duration::from_secs(3600);
        let described = ResourceSpec::new("big://{n}").cache(hour);
        let functions = gated(FunctionSource::new().template(described, || vec![0; 1 << 20]));
        let reads = Arc::new(SharedReads::default());
        let uri = Uri::parse("big://1").unwrap();
        let context = Context::default();
        let all = reads.loading.try_take(context.client(), usize::MAX).unwrap();
        let error = reads.read(&functions, &uri, &context, ReadScope::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "the server has no memory left for large contents; try again later");
        drop(all);
        assert!(reads.read(&functions, &uri, &context, ReadScope::default()).await.is_ok());
    }
}
