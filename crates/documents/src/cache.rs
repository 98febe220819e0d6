//! The cache of extraction results in memory, limited in total and per client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use libris_core::Client;

use crate::archive::Member;
use crate::child::ChildWork;
use crate::extract::ExtractFailure;
use crate::{ExtractedText, ExtractionLimits, PageImage};

/// How long a failure is cached of which a lack of memory or threads in the system may be the cause.
const UNCERTAIN_LIFETIME: Duration = Duration::from_secs(60);

/// The SHA-256 digest of a document.
pub(crate) type Digest = [u8; 32];

/// The key of a result: the document and what was extracted from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ResultKey {
    pub(crate) digest: Digest,
    pub(crate) work: ChildWork,
}

/// A result that another extraction of the same document would repeat, which includes most failures.
#[derive(Clone, Debug)]
pub(crate) enum CachedResult {
    Text(Arc<ExtractedText>),
    Image(RenderedPage),
    Members(Arc<Vec<Member>>),
    Failed(ExtractFailure),
    /// The extraction exceeded a limit or crashed.
    Exceeded(ExceededLimit),
}

/// A rendered page.
#[derive(Clone, Debug)]
pub(crate) struct RenderedPage {
    pub(crate) image: PageImage,
    pub(crate) png: Bytes,
}

impl RenderedPage {
    /// `None` if the data is no PNG image.
    pub(crate) fn new(image: PageImage, png: Bytes) -> Option<Self> {
        png.starts_with(b"\x89PNG\r\n\x1a\n").then_some(Self { image, png })
    }
}

/// Which limit an extraction exceeded, or that its process crashed. There is no variant for a time-out: it depends on
/// the load of the machine, so it is not cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    Memory,
    Cpu,
    Output,
    /// A signal ended the process.
    Crashed,
    /// The process ended with an exit code other than 0, for example because it panicked.
    Exited,
}

impl ExceededLimit {
    /// The message for clients.
    pub(crate) fn describe(&self, limits: &ExtractionLimits, work: &ChildWork) -> String {
        match self {
            Self::Memory => format!("it needs more than {} MiB of memory", limits.memory >> 20),
            Self::Cpu => format!("it needs more than {} seconds of processor time", limits.cpu.as_secs()),
            Self::Output if matches!(work, ChildWork::Image(_)) => {
                format!("its image has more than {} MiB", limits.image >> 20)
            }
            Self::Output => format!("its text has more than {} MiB", limits.text >> 20),
            Self::Crashed | Self::Exited => "it crashes the extraction".to_owned(),
        }
    }
}

impl CachedResult {
    /// How long the result is cached; `None`: until it is evicted.
    fn lifetime(&self) -> Option<Duration> {
        let is_uncertain = matches!(self, Self::Exceeded(ExceededLimit::Memory | ExceededLimit::Exited));
        is_uncertain.then_some(UNCERTAIN_LIFETIME)
    }

    fn weight(&self) -> usize {
        /// The memory of a map entry besides its result, in bytes.
        const OVERHEAD: usize = 256;
        OVERHEAD
            + match self {
                Self::Text(text) => text.weight(),
                Self::Image(page) => page.png.len(),
                Self::Members(members) => {
                    members.iter().map(|member| size_of::<Member>() + member.path.len()).sum()
                }
                Self::Failed(_) | Self::Exceeded(_) => 0,
            }
    }
}

/// An LRU cache of results.
pub(crate) struct ResultCache {
    /// The maximum number of bytes in total.
    limit: usize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    results: HashMap<ResultKey, CacheEntry>,
    /// The bytes that each client uses.
    used: HashMap<Client, usize>,
    total: usize,
    /// A logical clock for the LRU order, which grows with every lookup and insertion.
    clock: u64,
}

struct CacheEntry {
    result: CachedResult,
    /// The client that caused the extraction, whose share it counts against.
    client: Client,
    weight: usize,
    used_at: u64,
    /// When the result is no longer valid.
    expires: Option<Instant>,
}

impl ResultCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, key: &ResultKey) -> Option<CachedResult> {
        self.find_at(key, Instant::now())
    }

    /// The result that is valid at this time.
    fn find_at(&self, key: &ResultKey, now: Instant) -> Option<CachedResult> {
        let mut entries = self.entries();
        entries.clock += 1;
        let used_at = entries.clock;
        let entry = entries.results.get_mut(key)?;
        if entry.expires.is_some_and(|expires| expires <= now) {
            entries.remove(key);
            return None;
        }
        entry.used_at = used_at;
        Some(entry.result.clone())
    }

    /// Adds a result for a client, whose results may use three quarters of the cache. If the cache is full, the least
    /// recently used results of the client that uses the most memory are evicted.
    pub(crate) fn insert(&self, key: ResultKey, result: CachedResult, client: Client) {
        let weight = result.weight();
        let expires = result.lifetime().map(|lifetime| Instant::now() + lifetime);
        let share = self.limit - self.limit / 4;
        if weight > share {
            return;
        }
        let mut entries = self.entries();
        entries.remove(&key);
        while entries.used_by(client) + weight > share && entries.evict(client) {}
        while entries.total + weight > self.limit {
            let Some(largest) = entries.used.iter().max_by_key(|(_, used)| **used).map(|(client, _)| *client)
            else {
                break;
            };
            if !entries.evict(largest) {
                break;
            }
        }
        entries.clock += 1;
        let used_at = entries.clock;
        entries.total += weight;
        *entries.used.entry(client).or_default() += weight;
        entries.results.insert(key, CacheEntry { result, client, weight, used_at, expires });
    }
}

impl Entries {
    fn used_by(&self, client: Client) -> usize {
        self.used.get(&client).copied().unwrap_or(0)
    }

    /// Removes the least recently used result of a client; false if it has none.
    fn evict(&mut self, client: Client) -> bool {
        let own = self.results.iter().filter(|(_, entry)| entry.client == client);
        let oldest = own.min_by_key(|(_, entry)| entry.used_at).map(|(key, _)| key.clone());
        oldest.is_some_and(|oldest| self.remove(&oldest))
    }

    /// Removes a result; false if there is none.
    fn remove(&mut self, key: &ResultKey) -> bool {
        let Some(entry) = self.results.remove(key) else { return false };
        self.total -= entry.weight;
        if let Some(used) = self.used.get_mut(&entry.client) {
            *used -= entry.weight;
            if *used == 0 {
                self.used.remove(&entry.client);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{CachedResult, ExceededLimit, ResultCache, ResultKey, UNCERTAIN_LIFETIME};
    use crate::ArchiveFormat;
    use crate::archive::Member;
    use crate::child::ChildWork;
    use libris_core::Client;
    use std::sync::Arc;
    use std::time::Instant;

    fn key(number: u8) -> ResultKey {
        ResultKey { digest: [number; 32], work: ChildWork::Members(ArchiveFormat::Zip) }
    }

    fn result(bytes: usize) -> CachedResult {
        CachedResult::Members(Arc::new(vec![Member { path: "x".repeat(bytes), size: 0 }]))
    }

    #[test]
    fn a_client_that_fills_the_cache_evicts_its_own_results_first() {
        let cache = ResultCache::new(100_000);
        let [quiet, busy] = [1, 2].map(|last| Client::at([10, 0, 0, last].into()));
        cache.insert(key(0), result(10_000), quiet);
        for number in 1..50 {
            cache.insert(key(number), result(10_000), busy);
        }
        assert!(cache.find(&key(0)).is_some(), "another client evicted it");
        assert!(cache.find(&key(1)).is_none() && cache.find(&key(49)).is_some());
        let entries = cache.entries();
        assert!(entries.used_by(busy) <= 75_000 && entries.total <= 100_000);
        assert_eq!(entries.total, entries.results.values().map(|entry| entry.weight).sum::<usize>());
    }

    #[test]
    fn a_failure_that_the_system_may_have_caused_expires() {
        let cache = ResultCache::new(100_000);
        let limits =
            [ExceededLimit::Crashed, ExceededLimit::Cpu, ExceededLimit::Memory, ExceededLimit::Exited];
        for (number, limit) in (0..).zip(limits) {
            cache.insert(key(number), CachedResult::Exceeded(limit), Client::default());
        }
        let found = |now| [0, 1, 2, 3].map(|number| cache.find_at(&key(number), now).is_some());
        assert_eq!(found(Instant::now()), [true; 4]);
        assert_eq!(found(Instant::now() + UNCERTAIN_LIFETIME), [true, true, false, false]);
        assert_eq!(cache.entries().results.len(), 2);
    }

    #[test]
    fn a_result_that_is_too_large_is_not_cached() {
        let cache = ResultCache::new(1_000);
        cache.insert(key(0), result(1_000), Client::default());
        assert!(cache.find(&key(0)).is_none());
    }
}
