//! The response cache: encoded responses, and errors for missing resources, each with a proof that it is still valid.
//!
//! A lookup returns a response only if its [`Proof`] was found to hold after the request arrived, so a cached response
//! is never stale.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use libris_core::Proof;
use libris_wire::{Answer, CacheableRequest, Failure, Reply, Revision};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Equivalent, OptionsBuilder, Weighter};

/// The estimated number of cached responses: 32 for each shard, because `quick_cache` uses fewer shards for a lower
/// estimate.
const ESTIMATED_RESPONSES: usize = 32 * SHARDS;

/// The memory that a cached response uses in addition to its bytes.
const RESPONSE_OVERHEAD: usize = 256;

/// The number of shards. Each shard has its own lock and an equal part of the capacity. A response must fit into a
/// shard.
const SHARDS: usize = 2;

/// A cache of encoded responses, limited in bytes.
pub(crate) struct ResponseCache {
    responses: Cache<ResponseKey, Arc<CachedResponse>, ResponseWeight>,
    /// The largest weight of a response that fits into a shard.
    heaviest: u64,
    /// The time from which `proven` counts.
    epoch: Instant,
}

/// A cache key whose text is borrowed, for lookups. Responses differ by rights class and by protocol revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CacheLookup<'a> {
    class: u64,
    revision: Revision,
    request: CacheableRequest<'a>,
}

/// An owned cache key.
#[derive(Clone)]
struct ResponseKey {
    class: u64,
    revision: Revision,
    kind: RequestKind,
    text: Option<Box<str>>,
    /// The arguments of a tool, or the argument of a completion.
    arguments: Box<str>,
    /// The context of a completion.
    context: Box<str>,
}

#[derive(Clone, Copy)]
enum RequestKind {
    List,
    Templates,
    Read,
    Complete,
    Tools,
    Tool,
}

impl ResponseKey {
    fn new(lookup: CacheLookup<'_>) -> Self {
        let (kind, text, arguments, context) = match lookup.request {
            CacheableRequest::List(cursor) => (RequestKind::List, cursor, "", ""),
            CacheableRequest::Templates(cursor) => (RequestKind::Templates, cursor, "", ""),
            CacheableRequest::Read(uri) => (RequestKind::Read, Some(uri), "", ""),
            CacheableRequest::Complete { reference, argument, context } => {
                (RequestKind::Complete, Some(reference), argument, context)
            }
            CacheableRequest::Tools(cursor) => (RequestKind::Tools, cursor, "", ""),
            CacheableRequest::Tool { name, arguments } => (RequestKind::Tool, Some(name), arguments, ""),
        };
        let CacheLookup { class, revision, .. } = lookup;
        let text = text.map(Box::from);
        Self { class, revision, kind, text, arguments: arguments.into(), context: context.into() }
    }

    fn lookup(&self) -> CacheLookup<'_> {
        let text = self.text.as_deref();
        let request = match self.kind {
            RequestKind::List => CacheableRequest::List(text),
            RequestKind::Templates => CacheableRequest::Templates(text),
            RequestKind::Read => CacheableRequest::Read(text.unwrap_or_default()),
            RequestKind::Complete => CacheableRequest::Complete {
                reference: text.unwrap_or_default(),
                argument: &self.arguments,
                context: &self.context,
            },
            RequestKind::Tools => CacheableRequest::Tools(text),
            RequestKind::Tool => {
                CacheableRequest::Tool { name: text.unwrap_or_default(), arguments: &self.arguments }
            }
        };
        CacheLookup { class: self.class, revision: self.revision, request }
    }
}

impl Hash for ResponseKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lookup().hash(state);
    }
}

impl PartialEq for ResponseKey {
    fn eq(&self, other: &Self) -> bool {
        self.lookup() == other.lookup()
    }
}

impl Eq for ResponseKey {}

impl Equivalent<ResponseKey> for CacheLookup<'_> {
    fn equivalent(&self, key: &ResponseKey) -> bool {
        *self == key.lookup()
    }
}

struct CachedResponse {
    /// `None` for a large response that was requested only once so far, or whose encoded form is too large.
    answer: Option<Answer>,
    proof: Proof,
    /// When the proof was last found to hold, in nanoseconds since the epoch of the cache.
    proven: AtomicU64,
}

#[derive(Clone)]
struct ResponseWeight;

impl Weighter<ResponseKey, Arc<CachedResponse>> for ResponseWeight {
    fn weight(&self, key: &ResponseKey, response: &Arc<CachedResponse>) -> u64 {
        let answer = match &response.answer {
            None => 0,
            Some(Ok(reply)) => reply.members.size(),
            Some(Err(Failure::NotFound { uri, hint })) => uri.len() + hint.as_ref().map_or(0, String::len),
            Some(Err(_)) => 0,
        };
        let text = key.text.as_ref().map_or(0, |text| text.len()) + key.arguments.len() + key.context.len();
        (text + answer + RESPONSE_OVERHEAD) as u64
    }
}

impl ResponseCache {
    /// A cache with a capacity of `bytes`.
    pub(crate) fn new(bytes: u64) -> Self {
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(ESTIMATED_RESPONSES)
            .weight_capacity(bytes)
            .build()
            .expect("both capacities are given");
        let responses = Cache::with_options(
            options,
            ResponseWeight,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        // `quick_cache` accepts entries of a little less than the capacity of a shard.
        let heaviest = bytes / SHARDS as u64 / 10 * 9;
        Self { responses, heaviest, epoch: Instant::now() }
    }

    /// The cached response to a request, if it was valid at `since` or later. Requests that arrived together pass the
    /// same `since`, so that one check of the proof serves them all.
    pub(crate) fn find(
        &self,
        class: u64,
        revision: Revision,
        request: CacheableRequest<'_>,
        since: Instant,
    ) -> Option<Answer> {
        let lookup = CacheLookup { class, revision, request };
        let cached = self.responses.get(&lookup)?;
        if cached.proven.load(Ordering::Acquire) > self.nanoseconds(since) {
            return cached.answer.clone();
        }
        let now = self.nanoseconds(Instant::now());
        if cached.proof.holds() {
            cached.proven.fetch_max(now, Ordering::Release);
            return cached.answer.clone();
        }
        self.responses.remove(&lookup);
        None
    }

    fn nanoseconds(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// Caches a response that has a proof, and returns the response to send.
    ///
    /// A large response is encoded while it is sent. Its encoded form is cached only when the response is requested a
    /// second time while the first proof still holds: many large responses change before that, or are read once.
    pub(crate) fn insert(
        &self,
        class: u64,
        revision: Revision,
        request: CacheableRequest<'_>,
        mut reply: Reply,
        proof: Option<Proof>,
    ) -> Reply {
        let Some(proof) = proof else { return reply };
        let lookup = CacheLookup { class, revision, request };
        let size = reply.members.size() as u64;
        if reply.members.encoded().is_none()
            && size + size / 3 <= self.heaviest
            && self.responses.peek(&lookup).is_some_and(|seen| seen.proof.holds())
        {
            let encoded = reply.members.encode();
            // Escaping can make text up to six times as large. A response that grows by more than a third is not
            // cached.
            if (encoded.size() as u64) <= size + size / 3 + RESPONSE_OVERHEAD as u64 {
                reply.members = encoded;
            }
        }
        let encoded = reply.members.encoded().map(|_| Ok(reply.clone()));
        self.store(lookup, encoded, proof);
        reply
    }

    /// Caches the error for a missing resource that has a proof.
    pub(crate) fn insert_missing(
        &self,
        class: u64,
        revision: Revision,
        request: CacheableRequest<'_>,
        failure: &Failure,
        proof: Option<Proof>,
    ) {
        /// The longest URI of a missing resource that is cached, in bytes. Without a limit, a client could fill the
        /// cache with long URIs that do not exist.
        const MAX_MISSING_URI: usize = 1 << 10;
        if let Failure::NotFound { uri, .. } = failure
            && uri.len() <= MAX_MISSING_URI
            && let Some(proof) = proof
        {
            self.store(CacheLookup { class, revision, request }, Some(Err(failure.clone())), proof);
        }
    }

    fn store(&self, lookup: CacheLookup<'_>, answer: Option<Answer>, proof: Proof) {
        let key = ResponseKey::new(lookup);
        let response = Arc::new(CachedResponse { answer, proof, proven: AtomicU64::new(0) });
        if ResponseWeight.weight(&key, &response) <= self.heaviest {
            self.responses.insert(key, response);
        }
    }

    /// The weight of all cached responses in bytes.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.responses.weight()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{RESPONSE_OVERHEAD, ResponseCache};
    use libris_core::Proof;
    use libris_wire::{CacheableRequest, Failure, Reply, Revision, Writer};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::{Arc, OnceLock};
    use std::time::Instant;

    const NOW: Revision = Revision::V2026_07_28;

    fn find(cache: &ResponseCache, revision: Revision, request: CacheableRequest<'_>) -> Option<Reply> {
        cache.find(0, revision, request, Instant::now())?.ok()
    }

    fn reply(size: usize) -> Reply {
        Reply { members: vec![b'x'; size].into(), freshness: None, meta: bytes::Bytes::new() }
    }

    fn large() -> Reply {
        let mut out = Writer::default();
        out.text("x".repeat(100_000));
        Reply { members: out.finish(), freshness: None, meta: bytes::Bytes::new() }
    }

    #[test]
    fn a_response_is_returned_only_while_its_proof_holds() {
        let cache = ResponseCache::new(1 << 20);
        let right = Arc::new(AtomicBool::new(true));
        let watched = right.clone();
        let proof = Proof::new(move || watched.load(Ordering::Relaxed));
        let (a, b) = (CacheableRequest::Read("a"), CacheableRequest::Read("b"));
        let _ = cache.insert(0, NOW, a, reply(10), Some(proof));
        let _ = cache.insert(0, NOW, b, reply(10), None);
        assert_eq!(find(&cache, NOW, a).unwrap().members.size(), 10);
        assert!(find(&cache, NOW, b).is_none());
        assert!(find(&cache, Revision::V2025_06_18, a).is_none());
        assert!(find(&cache, NOW, CacheableRequest::List(Some("a"))).is_none());
        assert!(find(&cache, NOW, CacheableRequest::List(None)).is_none());
        assert!(cache.find(1, NOW, a, Instant::now()).is_none(), "callers with other rights");
        right.store(false, Ordering::Relaxed);
        assert!(find(&cache, NOW, a).is_none());
        right.store(true, Ordering::Relaxed);
        assert!(find(&cache, NOW, a).is_none());
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn a_response_is_for_callers_with_the_same_rights() {
        let cache = ResponseCache::new(1 << 20);
        let a = CacheableRequest::Read("a");
        for class in 1..=2 {
            let _ = cache.insert(class, NOW, a, reply(class as usize), Some(Proof::always()));
        }
        let size = |class| Some(cache.find(class, NOW, a, Instant::now())?.ok()?.members.size());
        assert_eq!([0, 1, 2, 3].map(size), [None, Some(1), Some(2), None]);
    }

    #[test]
    fn a_response_is_for_its_own_question() {
        let cache = ResponseCache::new(1 << 20);
        let _ = cache.insert(0, NOW, CacheableRequest::Read("a?lines=1"), reply(1), Some(Proof::always()));
        assert!(find(&cache, NOW, CacheableRequest::Read("a?lines=1")).is_some());
        assert!(find(&cache, NOW, CacheableRequest::Read("a")).is_none());
    }

    #[test]
    fn a_request_from_before_the_cache_needs_a_proof() {
        let before = Instant::now();
        let cache = ResponseCache::new(1 << 20);
        let a = CacheableRequest::Read("a");
        let _ = cache.insert(0, NOW, a, reply(1), Some(Proof::new(|| false)));
        assert!(cache.find(0, NOW, a, before).is_none());
    }

    #[test]
    fn requests_that_arrived_together_need_one_proof_check() {
        let cache = ResponseCache::new(1 << 20);
        let proofs = Arc::new(AtomicU32::new(0));
        let counted = proofs.clone();
        let proof = Proof::new(move || counted.fetch_add(1, Ordering::Relaxed) < 2);
        let a = CacheableRequest::Read("a");
        let _ = cache.insert(0, NOW, a, reply(10), Some(proof));
        let since = Instant::now();
        for _ in 0..10 {
            assert!(cache.find(0, NOW, a, since).is_some());
        }
        assert_eq!(proofs.load(Ordering::Relaxed), 1);
        assert!(find(&cache, NOW, a).is_some());
        assert_eq!(proofs.load(Ordering::Relaxed), 2);
        assert!(find(&cache, NOW, a).is_none());
    }

    #[test]
    fn a_large_response_is_cached_on_its_second_request() {
        let cache = ResponseCache::new(8 << 20);
        let right = Arc::new(AtomicBool::new(true));
        let proof = || {
            let watched = right.clone();
            Some(Proof::new(move || watched.load(Ordering::Relaxed)))
        };
        let a = CacheableRequest::Read("a");
        let request = || {
            let found = find(&cache, NOW, a);
            let held = found.is_some();
            let reply = found.unwrap_or_else(|| cache.insert(0, NOW, a, large(), proof()));
            (held, reply.members.encoded().is_some())
        };
        assert_eq!([request(), request(), request()], [(false, false), (false, true), (true, true)]);
        // A response that changes before each request is never encoded for the cache.
        for _ in 0..3 {
            right.store(false, Ordering::Relaxed);
            assert!(find(&cache, NOW, a).is_none());
            right.store(true, Ordering::Relaxed);
            assert_eq!(request(), (false, false));
        }
        assert!(cache.bytes() < 1000);
        // Nor is a response whose first proof no longer holds at the second request.
        right.store(false, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(cache.insert(0, NOW, a, large(), proof()).members.encoded().is_none());
        }
        right.store(true, Ordering::Relaxed);
        // A response that does not fit is not encoded for the cache; one that fits is cached.
        for (bytes, fits) in [(160_000, false), (260_000, false), (320_000, true)] {
            let small = ResponseCache::new(bytes);
            for _ in 0..3 {
                let reply = small.insert(0, NOW, a, large(), proof());
                assert_eq!(reply.members.encoded().is_some(), find(&small, NOW, a).is_some());
            }
            assert_eq!(find(&small, NOW, a).is_some(), fits, "{bytes}");
        }
    }

    #[test]
    fn a_proof_check_serves_only_requests_that_arrived_before_it() {
        let cache = ResponseCache::new(1 << 20);
        let (proofs, during) = (Arc::new(AtomicU32::new(0)), Arc::new(OnceLock::new()));
        let (counted, started) = (proofs.clone(), during.clone());
        let proof = Proof::new(move || {
            started.get_or_init(Instant::now);
            counted.fetch_add(1, Ordering::Relaxed) < 1
        });
        let a = CacheableRequest::Read("a");
        let _ = cache.insert(0, NOW, a, reply(10), Some(proof));
        assert!(find(&cache, NOW, a).is_some());
        // The data may have changed between the first check and the arrival of this request.
        assert!(cache.find(0, NOW, a, *during.get().unwrap()).is_none());
        assert_eq!(proofs.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn text_that_escaping_makes_much_longer_is_not_cached() {
        let cache = ResponseCache::new(8 << 20);
        for (character, is_cached) in ["\u{1}", "x"].into_iter().zip([false, true]) {
            let request = CacheableRequest::Read(character);
            for _ in 0..3 {
                let mut out = Writer::default();
                out.text(character.repeat(100_000));
                let reply = Reply { members: out.finish(), freshness: None, meta: bytes::Bytes::new() };
                let _ = cache.insert(0, NOW, request, reply, Some(Proof::always()));
            }
            assert_eq!(find(&cache, NOW, request).is_some(), is_cached, "{character:?}");
        }
    }

    #[test]
    fn the_text_of_a_request_counts() {
        let cache = ResponseCache::new(1 << 20);
        cache.insert(0, NOW, CacheableRequest::Read(&"x".repeat(8_000)), reply(1), Some(Proof::always()));
        assert!(cache.bytes() > 8_000, "{}", cache.bytes());
    }

    #[test]
    fn a_response_larger_than_its_shard_is_not_cached() {
        let cache = ResponseCache::new(1 << 20);
        let largest = cache.heaviest as usize - RESPONSE_OVERHEAD - 1;
        for (uri, size, is_cached) in [("a", largest, true), ("b", largest + 1, false)] {
            let _ = cache.insert(0, NOW, CacheableRequest::Read(uri), reply(size), Some(Proof::always()));
            assert_eq!(find(&cache, NOW, CacheableRequest::Read(uri)).is_some(), is_cached, "{size}");
        }
    }

    #[test]
    fn the_size_is_bounded() {
        let cache = ResponseCache::new(1 << 20);
        for number in 0..1000 {
            let uri = number.to_string();
            cache.insert(0, NOW, CacheableRequest::Read(&uri), reply(10_000), Some(Proof::always()));
        }
        cache.insert(0, NOW, CacheableRequest::Read("huge"), reply(2 << 20), Some(Proof::always()));
        assert!(cache.bytes() <= 1 << 20 && cache.bytes() > 1 << 19, "{}", cache.bytes());
        let none = ResponseCache::new(0);
        none.insert(0, NOW, CacheableRequest::Read("a"), reply(1), Some(Proof::always()));
        assert!(find(&none, NOW, CacheableRequest::Read("a")).is_none());
    }

    #[test]
    fn a_missing_resource_is_cached_while_its_proof_holds() {
        let cache = ResponseCache::new(1 << 20);
        let right = Arc::new(AtomicBool::new(true));
        let watched = right.clone();
        let proof = || {
            let watched = watched.clone();
            Some(Proof::new(move || watched.load(Ordering::Relaxed)))
        };
        let a = CacheableRequest::Read("a");
        let missing = |uri: &str| Failure::NotFound { uri: uri.to_owned(), hint: Some("b".to_owned()) };
        let found = |class| cache.find(class, NOW, a, Instant::now()).map(|answer| answer.unwrap_err());
        cache.insert_missing(0, NOW, a, &missing("a"), None);
        assert_eq!(found(0), None, "an error without a proof");
        cache.insert_missing(0, NOW, a, &Failure::invalid("the source is broken"), proof());
        assert_eq!(found(0), None, "another error");
        let long = "a".repeat(2 << 10);
        cache.insert_missing(0, NOW, CacheableRequest::Read(&long), &missing(&long), proof());
        assert_eq!(cache.bytes(), 0);
        cache.insert_missing(0, NOW, a, &missing("a"), proof());
        assert_eq!(found(0), Some(missing("a")));
        assert_eq!(found(1), None, "callers with other rights");
        right.store(false, Ordering::Relaxed);
        assert_eq!(found(0), None);
    }

    #[test]
    fn completions_differ_by_all_their_members() {
        let cache = ResponseCache::new(1 << 20);
        let complete =
            |reference, argument, context| CacheableRequest::Complete { reference, argument, context };
        let _ = cache.insert(0, NOW, complete("a", "b", "c"), reply(1), Some(Proof::always()));
        assert!(find(&cache, NOW, complete("a", "b", "c")).is_some());
        for (reference, argument, context) in
            [("x", "b", "c"), ("a", "x", "c"), ("a", "b", "x"), ("a", "b", "")]
        {
            assert!(find(&cache, NOW, complete(reference, argument, context)).is_none());
        }
    }
}
