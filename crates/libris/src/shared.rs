//! Reads that are shared: run once for all who ask at the same time, and given again for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use libris_core::{Cache, Contents, Context, Error, Flights, Proof, Result, Scope, Uri};
use quick_cache::sync::{Cache as Map, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::gate::Gated;

/// How many bytes of contents are kept.
const ROOM: u64 = 64 << 20;

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
    kept: Arc<Map<Key, Arc<Kept>, Bytes>>,
    under_way: Flights<Key, Outcome>,
}

/// A resource of one source, told by its address: another one may have the same URI.
type Key = (usize, Uri);

type Outcome = Result<Arc<Kept>, Arc<Error>>;

/// What was read.
struct Kept {
    contents: Contents,
    /// Until when it is given again.
    until: Instant,
    scope: Scope,
    /// Tells whether it is still right, where the source can tell.
    proof: Option<Proof>,
}

impl Kept {
    fn new(mut contents: Contents, time: Duration, scope: Scope) -> Self {
        let proof = contents.proof.take();
        let scope = contents.cache.map_or(scope, |cache| cache.scope);
        Self { contents, until: Instant::now() + time.min(LONGEST), scope, proof }
    }

    fn is_fresh(&self) -> bool {
        Instant::now() < self.until && self.is_right()
    }

    fn is_right(&self) -> bool {
        self.proof.as_ref().is_none_or(Proof::holds)
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
        Contents { cache: Some(Cache { ttl: left, scope: self.scope }), ..self.contents.clone() }
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
        let kept = Arc::new(Map::with_options(options, Bytes, hashes, life));
        Self { kept, under_way: Flights::default() }
    }
}

impl Reads {
    /// What is at `uri`: as it was read less than `time` ago, or as it is read now for all who ask.
    pub(crate) async fn read(
        &self,
        gated: &Gated,
        uri: &Uri,
        context: &Context,
        time: Duration,
    ) -> Result<Contents> {
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
            // Read for all, on nobody's account.
            let context = context.clone().for_everybody();
            async move {
                let turn = gated.turn(context.client()).await.map_err(Arc::new)?;
                let source = gated.source();
                let contents = source.read(&key.1, &context).await.map_err(Arc::new)?;
                drop(turn);
                let kept = Arc::new(Kept::new(contents, time, source.cache().scope));
                all.insert(key, kept.clone());
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
    use crate::gate::Gated;
    use crate::{Context, Described, Libris, Uri};
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn room_is_bounded() {
        let hour = Duration::from_secs(3600);
        let described = Described::new("big://{n}").cache(hour);
        let library = Gated::new(Arc::new(Libris::new().template(described, || vec![0; 1 << 20])));
        let reads = Reads::default();
        for number in 0..100 {
            let uri = Uri::parse(&format!("big://{number}")).unwrap();
            reads.read(&library, &uri, &Context::default(), hour).await.unwrap();
        }
        assert!((ROOM / 2..=ROOM).contains(&reads.kept.weight()), "{}", reads.kept.weight());
        assert!(reads.under_way.is_empty());
    }
}
