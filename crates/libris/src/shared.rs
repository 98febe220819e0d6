//! Reads that are shared: run once for all who ask at the same time, and given again for a while.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libris_core::{Budget, Contents, Context, Error, Flights, Freshness, Lease, Proof, Result, Uri};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::gate::Gated;
use crate::loading::Loading;

/// How many bytes of contents are kept.
const ROOM: u64 = 64 << 20;

/// How many bytes of contents may be read at once, before they are kept. One client may have three quarters of them.
const LOADING: usize = 32 << 20;

/// Contents of up to so many bytes are read in any case.
const SMALL: usize = 64 << 10;

/// Each part has a lock and a share of the bytes, which no contents may exceed.
const PARTS: usize = 4;

/// For how long contents are kept at most. Whoever says longer means for ever.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How many contents of usual size there is room for, before any is kept.
const EXPECTED: usize = 64;

/// What contents cost beside their data.
const OVERHEAD: usize = 512;

/// Reads of one catalog that are shared.
pub(crate) struct Reads {
    kept: Arc<Cache<Key, Arc<Kept>, Bytes>>,
    under_way: Flights<Key, Outcome>,
    /// Memory for what is being read.
    loading: Arc<Budget>,
}

/// A resource of one source, told by its address: another one may have the same URI.
type Key = (usize, Uri);

type Outcome = Result<Arc<Kept>, Arc<Error>>;

/// What was read.
struct Kept {
    contents: Contents,
    /// Until when it is given again: for as long as the source says that clients may use it.
    until: Instant,
    /// The memory that it was read into, until it counts as kept.
    loading: Mutex<Option<Lease>>,
}

impl Kept {
    fn new(contents: Contents, loading: Option<Lease>) -> Self {
        let until = Instant::now() + contents.freshness.ttl.min(LONGEST);
        Self { contents, until, loading: Mutex::new(loading) }
    }

    fn is_fresh(&self) -> bool {
        Instant::now() < self.until && self.is_right()
    }

    fn is_right(&self) -> bool {
        self.contents.freshness.proof.as_ref().is_none_or(Proof::holds)
    }

    /// How many bytes of contents there are.
    fn size(&self) -> usize {
        self.contents.parts.iter().map(|part| part.body.len()).sum()
    }

    fn contents(&self) -> Contents {
        let left = match self.is_right() {
            true => self.until.saturating_duration_since(Instant::now()),
            false => Duration::ZERO,
        };
        // Without a proof: the time that is left is another each time, so the response must not be cached once more.
        let freshness = Freshness::unproven().with_ttl(left).with_scope(self.contents.freshness.scope);
        Contents { parts: self.contents.parts.clone(), freshness }
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Arc<Kept>> for Bytes {
    fn weight(&self, (_, uri): &Key, kept: &Arc<Kept>) -> u64 {
        let data: usize = kept.contents.parts.iter().map(|part| part.body.len() + OVERHEAD).sum();
        (uri.as_str().len() + data) as u64
    }
}

impl Default for Reads {
    fn default() -> Self {
        let options = OptionsBuilder::new()
            .shards(PARTS)
            .estimated_items_capacity(EXPECTED)
            .weight_capacity(ROOM)
            .build()
            .expect("both capacities are given");
        let (hashes, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let kept = Arc::new(Cache::with_options(options, Bytes, hashes, life));
        Self { kept, under_way: Flights::default(), loading: Budget::new(LOADING) }
    }
}

impl Reads {
    /// What is at `uri`: as it was read before, while that is fresh, or as it is read now for all who ask.
    pub(crate) async fn read(&self, gated: &Gated, uri: &Uri, context: &Context) -> Result<Contents> {
        let key = (Arc::as_ptr(gated.source()).addr(), uri.clone());
        let fresh = || self.kept.get(&key).filter(|kept| kept.is_fresh());
        let contents = |kept: &Kept| {
            // Everybody who asks gets a copy of its own.
            context.reserve(kept.size() as u64)?;
            Ok(kept.contents())
        };
        if let Some(kept) = fresh() {
            return contents(&kept);
        }
        let start = || {
            let (all, gated, key) = (self.kept.clone(), gated.clone(), key.clone());
            // Read for all, in the turn of the first who asks, but not in its memory: it may leave before the others.
            let loading = Loading::new(&self.loading, context.client());
            let context = context.clone().for_everybody().with_memory(loading.clone());
            async move {
                let source = gated.source();
                let contents = loop {
                    let turn = gated.turn(&context).await.map_err(Arc::new)?;
                    let read = source.read(&key.1, &turn).await;
                    drop(turn);
                    match read {
                        Err(Error::Busy(_)) if loading.memory_is_free().await => {}
                        read => break read.map_err(Arc::new)?,
                    }
                };
                let counted = loading.count(contents.parts.iter().map(|part| part.body.len()).sum());
                let kept = Arc::new(Kept::new(contents, loading.settle()));
                if !counted && kept.size() > SMALL {
                    return Err(Arc::new(Error::NO_MEMORY));
                }
                all.insert(key.clone(), kept.clone());
                // What is too large to be kept is not there.
                if all.get(&key).is_some_and(|found| Arc::ptr_eq(&found, &kept)) {
                    kept.loading.lock().unwrap_or_else(PoisonError::into_inner).take();
                }
                Ok(kept)
            }
        };
        let read = || self.under_way.join(&key, || fresh().map(Ok), start);
        let outcome = match read().await {
            // It changed meanwhile, and we may have been told before we joined.
            Ok(kept) if !kept.is_right() => read().await,
            outcome => outcome,
        };
        outcome.map_err(|error| Error::again(&error)).and_then(|kept| contents(&kept))
    }
}

#[cfg(test)]
mod tests {
    use super::{ROOM, Reads};
    use crate::gate::{Gated, Role};
    use crate::health::Health;
    use crate::{Context, Described, FunctionSource, Uri};
    use std::sync::Arc;
    use std::time::Duration;

    fn gated(functions: FunctionSource) -> Gated {
        Gated::new(Arc::new(functions), Health::default().source("functions".to_owned()), Role::Content)
    }

    #[tokio::test]
    async fn room_is_bounded() {
        let hour = Duration::from_secs(3600);
        let described = Described::new("big://{n}").cache(hour);
        let functions = gated(FunctionSource::new().template(described, || vec![0; 1 << 20]));
        let reads = Reads::default();
        for number in 0..100 {
            let uri = Uri::parse(&format!("big://{number}")).unwrap();
            reads.read(&functions, &uri, &Context::default()).await.unwrap();
        }
        assert!((ROOM / 2..=ROOM).contains(&reads.kept.weight()), "{}", reads.kept.weight());
        assert!(reads.under_way.is_empty());
        // What is kept is not counted as being read as well.
        assert_eq!(reads.loading.used(), 0);
    }

    #[tokio::test]
    async fn what_is_read_at_once_is_bounded() {
        let hour = Duration::from_secs(3600);
        let described = Described::new("big://{n}").cache(hour);
        let functions = gated(FunctionSource::new().template(described, || vec![0; 1 << 20]));
        let reads = Reads::default();
        let uri = Uri::parse("big://1").unwrap();
        let context = Context::default();
        let all = reads.loading.try_take(context.client(), usize::MAX).unwrap();
        let error = reads.read(&functions, &uri, &context).await.unwrap_err();
        assert_eq!(error.to_string(), "the server has no memory left for large contents; try again later");
        drop(all);
        assert!(reads.read(&functions, &uri, &context).await.is_ok());
    }
}
