//! Reads that are shared: run once for all who ask at the same time, and given again for a while.

use std::collections::HashMap;
use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use libris_core::{Cache, Contents, Context, Error, Proof, Result, Scope, Source, Uri};
use quick_cache::Weighter;
use quick_cache::sync::Cache as Map;

/// How many bytes of contents are kept.
const ROOM: u64 = 64 << 20;

/// How many contents of usual size there is room for, before any is kept.
const EXPECTED: usize = 64;

/// What contents cost beside their data.
const OVERHEAD: usize = 512;

/// Reads of one catalog that are shared.
pub(crate) struct Reads(Arc<Inner>);

struct Inner {
    kept: Map<Uri, Arc<Kept>, Bytes>,
    /// What is being read now. Nobody but those who wait keeps it going.
    running: Mutex<HashMap<Uri, Running>>,
}

struct Running {
    number: u64,
    read: WeakShared<Read>,
}

type Read = BoxFuture<'static, Outcome>;
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
    fn is_fresh(&self) -> bool {
        Instant::now() < self.until && self.proof.as_ref().is_none_or(Proof::holds)
    }

    fn contents(&self) -> Contents {
        let left = self.until.saturating_duration_since(Instant::now());
        Contents { cache: Some(Cache { ttl: left, scope: self.scope }), ..self.contents.clone() }
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Uri, Arc<Kept>> for Bytes {
    fn weight(&self, uri: &Uri, kept: &Arc<Kept>) -> u64 {
        let data: usize = kept.contents.parts.iter().map(|part| part.body.len() + OVERHEAD).sum();
        (uri.as_str().len() + data) as u64
    }
}

impl Default for Reads {
    fn default() -> Self {
        let kept = Map::with_weighter(EXPECTED, ROOM, Bytes);
        Self(Arc::new(Inner { kept, running: Mutex::default() }))
    }
}

impl Reads {
    /// What is at `uri`: as it was read less than `time` ago, or as it is read now for all who ask.
    pub(crate) async fn read(
        &self,
        source: &Arc<dyn Source>,
        uri: &Uri,
        context: &Context,
        time: Duration,
    ) -> Result<Contents> {
        if let Some(kept) = self.0.kept.get(uri).filter(|kept| kept.is_fresh()) {
            return Ok(kept.contents());
        }
        match self.join(source, uri, context, time).await {
            Ok(kept) => Ok(kept.contents()),
            Err(error) => Err(again(&error)),
        }
    }

    /// The read that is under way, or a new one.
    fn join(&self, source: &Arc<dyn Source>, uri: &Uri, context: &Context, time: Duration) -> Shared<Read> {
        let mut running = self.0.running();
        let (number, gone) = match running.get(uri) {
            Some(found) => match found.read.upgrade() {
                Some(read) => return read,
                None => (found.number + 1, true),
            },
            None => (0, false),
        };
        // It may have been read since we looked.
        if !gone && let Some(kept) = self.0.kept.get(uri).filter(|kept| kept.is_fresh()) {
            return futures_util::future::ready(Ok(kept)).boxed().shared();
        }
        let place = Place { inner: self.0.clone(), uri: uri.clone(), number };
        let (source, context) = (source.clone(), context.clone().with_identity(None));
        let read = async move {
            let outcome = source.read(&place.uri, &context).await;
            place.finish(outcome, time, source.cache().scope)
        };
        let read = read.boxed().shared();
        if let Some(weak) = read.downgrade() {
            running.insert(uri.clone(), Running { number, read: weak });
        }
        read
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, HashMap<Uri, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a read among those that are under way, which it leaves when it ends, however it ends.
struct Place {
    inner: Arc<Inner>,
    uri: Uri,
    number: u64,
}

impl Place {
    fn finish(self, outcome: Result<Contents>, time: Duration, scope: Scope) -> Outcome {
        let mut contents = outcome.map_err(Arc::new)?;
        let proof = contents.proof.take();
        let scope = contents.cache.map_or(scope, |cache| cache.scope);
        let kept = Arc::new(Kept { contents, until: Instant::now() + time, scope, proof });
        self.inner.kept.insert(self.uri.clone(), kept.clone());
        Ok(kept)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.inner.running();
        if running.get(&self.uri).is_some_and(|running| running.number == self.number) {
            running.remove(&self.uri);
        }
    }
}

/// The same error for one more of those who waited for it.
fn again(error: &Arc<Error>) -> Error {
    match &**error {
        Error::NotFound(uri) => Error::NotFound(uri.clone()),
        Error::Denied(uri) => Error::Denied(uri.clone()),
        Error::Invalid(why) => Error::Invalid(why.clone()),
        Error::NotDirectory(uri) => Error::NotDirectory(uri.clone()),
        Error::TooLarge { uri, size, limit, hint } => {
            Error::TooLarge { uri: uri.clone(), size: *size, limit: *limit, hint: hint.clone() }
        }
        Error::Unavailable(why) => Error::Unavailable(why.clone()),
        Error::Failed { doing, .. } => Error::failed(doing, Cause(error.clone())),
        _ => Error::failed("read the resource", Cause(error.clone())),
    }
}

/// The cause of an error that several callers get.
#[derive(Debug)]
struct Cause(Arc<Error>);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.source() {
            Some(cause) => write!(f, "{cause}"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::error::Error for Cause {}

#[cfg(test)]
mod tests {
    use super::{ROOM, Reads};
    use crate::{Context, Described, Libris, Source, Uri};
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn room_is_bounded() {
        let hour = Duration::from_secs(3600);
        let described = Described::new("big://{n}").cache(hour);
        let library: Arc<dyn Source> = Arc::new(Libris::new().template(described, || vec![0; 1 << 20]));
        let reads = Reads::default();
        for number in 0..100 {
            let uri = Uri::parse(&format!("big://{number}")).unwrap();
            reads.read(&library, &uri, &Context::default(), hour).await.unwrap();
        }
        assert!((ROOM / 2..=ROOM).contains(&reads.0.kept.weight()), "{}", reads.0.kept.weight());
        assert!(reads.0.running().is_empty());
    }
}
