//! The search index of a catalog: built and updated in the background, searched for a view.

mod changes;
mod feeder;
mod indexing;
mod stamp;
mod text;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use libris_core::{Budget, Context, Error, IndexingProgress, Result, SearchAnswer, SearchQuery, Uri};
use libris_search::{IndexError, SearchIndex, VisibleResources, uri_hash};
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::Catalog;
use crate::PathNote;
use crate::health::{Health, SearchIndexState};
use feeder::Feeder;

/// How many searches of the index run at the same time. One client may run two of them; its other searches wait, and
/// searches of other clients do not wait for these.
const CONCURRENT_SEARCHES: usize = 3;

/// How long searches wait for the index, counted from the start of indexing. Small libraries are indexed by then.
const SETTLING_TIME: Duration = Duration::from_secs(5);

/// How long searches wait until an index that was complete on disk is compared with the sources.
const WARM_SETTLING_TIME: Duration = Duration::from_millis(25);

/// How often an index whose checksums are right is rebuilt because a search failed. The cause is most likely the query, and
/// a caller must not be able to have the index rebuilt again and again.
const INTACT_REBUILD_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The default of [`SearchConfig::memory`].
const DEFAULT_MEMORY: usize = 256 << 20;

/// The configuration of the search index of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchConfig {
    /// The folder of the index; `None` keeps the index in memory. Processes that serve the same sources may share it.
    pub folder: Option<PathBuf>,
    /// Notes on resources by the beginning of their URIs or paths. They are searched like descriptions and returned
    /// with hits.
    pub notes: Vec<PathNote>,
    /// The maximum size of an index in memory, in bytes. While parts of the index are merged, it may use twice as much
    /// for a short time. Resources whose texts do not fit are indexed by their names and other metadata only, which may
    /// use half of this size in addition; the status says how many resources these are. The default is 256 MiB.
    pub memory: usize,
    /// The folder of a Model2Vec model, by which searches also find texts that mean the same in other words. It needs the
    /// feature `embeddings`. If the model cannot be used, searches compare words only, and the status says so.
    pub model: Option<PathBuf>,
    /// Whether a search waits for the index. If so, the index is built at normal thread priority, otherwise at the
    /// lowest. Default: no.
    pub is_awaited: bool,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self { folder: None, notes: Vec::new(), memory: DEFAULT_MEMORY, model: None, is_awaited: false }
    }
}

/// The index of a catalog.
pub(crate) struct CatalogIndex {
    config: SearchConfig,
    index: RwLock<Option<Arc<SearchIndex>>>,
    progress: FeederProgress,
    /// Notifies the feeder that a search found damage and dropped the index.
    discarded: Arc<Notify>,
    /// When a search last dropped an index whose checksums were right.
    intact_discarded: Mutex<Option<Instant>>,
    stop: CancellationToken,
    permits: Arc<Budget>,
    /// When indexing began.
    started: Instant,
    /// The cache key of the next search whose visibility check belongs to no rights class.
    unclassified: AtomicU64,
}

/// Whether the index has all resources.
#[derive(Clone, Debug)]
enum Completeness {
    /// It is being built.
    Partial,
    /// It was complete on disk when it was opened, and is being compared with the sources.
    Warm,
    /// It has all resources of the last full listing.
    Complete,
    /// The sources could not be listed; the feeder tries again later.
    Unlisted(Arc<Error>),
}

/// The progress of the feeder, which it reports to the health of the catalog.
pub(crate) struct FeederProgress {
    health: Arc<Health>,
    listed: AtomicUsize,
    indexed: AtomicUsize,
    /// Whether the index has all resources of the last full listing. Searches that wait for the index watch this.
    completeness: watch::Sender<Completeness>,
    /// Why the index is not on disk, or not updated by this process.
    remark: Mutex<Option<String>>,
    /// The hashes of the URIs of resources whose texts did not fit into the memory of the index.
    left_out: Mutex<HashSet<u64>>,
    /// Whether the metadata of some of them did not fit either.
    is_nameless: AtomicBool,
    /// Whether the embedding model cannot be used.
    is_without_model: AtomicBool,
    /// The number of resources that could not be read, and are indexed without their current text.
    unread: AtomicUsize,
}

impl FeederProgress {
    fn new(health: Arc<Health>) -> Self {
        let progress = Self {
            health,
            listed: AtomicUsize::new(0),
            indexed: AtomicUsize::new(0),
            completeness: watch::Sender::new(Completeness::Partial),
            remark: Mutex::default(),
            left_out: Mutex::default(),
            is_nameless: AtomicBool::new(false),
            is_without_model: AtomicBool::new(false),
            unread: AtomicUsize::new(0),
        };
        progress.publish();
        progress
    }

    /// Updates the status and the metrics.
    fn publish(&self) {
        self.health.set_search(SearchIndexState {
            indexed: self.indexed.load(Ordering::Relaxed),
            listed: self.listed.load(Ordering::Relaxed),
            is_complete: self.is_complete(),
            remark: self.remark(true),
            remark_without_counts: self.remark(false),
        });
    }

    fn is_complete(&self) -> bool {
        matches!(*self.completeness.borrow(), Completeness::Complete)
    }

    /// How and why the index differs from its configuration and from the sources; `counts`: with numbers of resources.
    fn remark(&self, counts: bool) -> Option<String> {
        let counted = |count: usize| if counts { count.to_string() } else { "some".to_owned() };
        let mut remarks = Vec::from_iter(self.remark.lock().unwrap_or_else(PoisonError::into_inner).clone());
        if self.is_without_model.load(Ordering::Relaxed) {
            // The log has the cause, which may contain a path.
            let remark = "the embedding model cannot be used, so only words are compared; see the log, and \
                          correct `search.model`";
            remarks.push(remark.to_owned());
        }
        match self.left_out().len() {
            0 => {}
            count => remarks.push(format!(
                "the memory for it is full, so {} more are found by name only; set `cache_folder`, or \
                 `search.memory_bytes` to more",
                counted(count)
            )),
        }
        match self.unread.load(Ordering::Relaxed) {
            0 => {}
            count => remarks.push(format!("{} could not be read and are read again later", counted(count))),
        }
        if matches!(*self.completeness.borrow(), Completeness::Unlisted(_)) {
            remarks.push("the sources could not be listed and are listed again later".to_owned());
        }
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    fn left_out(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records whether the text of a resource did not fit into the memory of the index.
    fn set_left_out(&self, uri: &Uri, is_left_out: bool) {
        let hash = uri_hash(uri.as_str());
        let mut left_out = self.left_out();
        if is_left_out {
            left_out.insert(hash);
        } else {
            left_out.remove(&hash);
        }
    }

    fn forget_left_out(&self) {
        self.left_out().clear();
        self.is_nameless.store(false, Ordering::Relaxed);
    }

    fn set_completeness(&self, completeness: Completeness) {
        self.completeness.send_replace(completeness);
        self.publish();
    }

    /// Records that the embedding model cannot be used.
    fn set_without_model(&self) {
        if !self.is_without_model.swap(true, Ordering::Relaxed) {
            self.publish();
        }
    }

    /// Records that the sources could not be listed. An index that was complete stays so: it lacks only recent changes.
    fn set_unlisted(&self, error: Error) {
        self.completeness.send_if_modified(|current| {
            let is_partial = !matches!(current, Completeness::Complete);
            if is_partial {
                *current = Completeness::Unlisted(Arc::new(error));
            }
            is_partial
        });
        self.publish();
    }

    fn set_remark(&self, remark: Option<String>) {
        let mut current = self.remark.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != remark {
            if let Some(remark) = &remark {
                tracing::warn!(remark, "the search index is not as configured");
            }
            *current = remark;
            drop(current);
            self.publish();
        }
    }
}

impl CatalogIndex {
    /// Starts indexing a catalog in the background, on a thread of the lowest priority unless
    /// [`SearchConfig::is_awaited`] is set.
    pub(crate) fn start(catalog: &Arc<Catalog>, config: SearchConfig) -> Result<Arc<Self>> {
        let index = Arc::new(Self {
            config,
            index: RwLock::default(),
            progress: FeederProgress::new(catalog.health().clone()),
            discarded: Arc::default(),
            intact_discarded: Mutex::default(),
            stop: CancellationToken::new(),
            permits: Budget::new(CONCURRENT_SEARCHES),
            started: Instant::now(),
            unclassified: AtomicU64::new(1 << 63),
        });
        let runtime = tokio::runtime::Handle::current();
        let feeder = Feeder::new(Arc::downgrade(catalog), Arc::downgrade(&index), index.stop.clone());
        let is_awaited = index.config.is_awaited;
        let thread = std::thread::Builder::new().name("search-index".to_owned());
        let spawned = thread.spawn(move || {
            if !is_awaited {
                lower_priority();
            }
            runtime.block_on(feeder.run());
        });
        spawned.map_err(|cause| Error::failed("start the thread of the search index", cause))?;
        Ok(index)
    }

    fn current(&self) -> Option<Arc<SearchIndex>> {
        self.index.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_current(&self, index: Option<Arc<SearchIndex>>) {
        *self.index.write().unwrap_or_else(PoisonError::into_inner) = index;
    }

    /// The note on a resource.
    fn note(&self, uri: &Uri) -> Option<&str> {
        let covering = self.config.notes.iter().filter(|note| note.covers(uri));
        // The longest path is the most specific.
        covering.max_by_key(|note| note.path.len()).map(|note| &*note.note)
    }

    /// How far the index is built; `None` if it is complete.
    pub(crate) fn indexing(&self) -> Option<IndexingProgress> {
        let progress = &self.progress;
        (!progress.is_complete()).then(|| IndexingProgress {
            indexed: progress.indexed.load(Ordering::Relaxed),
            listed: progress.listed.load(Ordering::Relaxed),
        })
    }

    /// Whether resources are missing in the index, because it is being built or its memory does not even suffice for
    /// the metadata.
    pub(crate) fn is_partial(&self) -> bool {
        let progress = &self.progress;
        let has_all = matches!(*progress.completeness.borrow(), Completeness::Complete | Completeness::Warm);
        !has_all || progress.is_nameless.load(Ordering::Relaxed)
    }

    /// Waits until the index has all resources. Fails if the sources cannot be listed.
    pub(crate) async fn wait_until_complete(&self) -> Result<()> {
        let mut completeness = self.progress.completeness.subscribe();
        let settled = completeness
            .wait_for(|current| matches!(current, Completeness::Complete | Completeness::Unlisted(_)))
            .await;
        match settled.as_deref() {
            Ok(Completeness::Unlisted(error)) => Err(Error::from_shared(error)),
            // An error means that the index was dropped.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// How and why the index differs from its configuration and from the sources; `None` if it does not.
    pub(crate) fn remark(&self) -> Option<String> {
        self.progress.remark(true)
    }

    /// Waits until the index has all resources, but not after the first [`SETTLING_TIME`] of indexing, and only
    /// [`WARM_SETTLING_TIME`] if it was complete when it was opened.
    pub(crate) async fn wait_until_settled(&self) {
        let end = self.started + SETTLING_TIME;
        if Instant::now() >= end || self.indexing().is_none() {
            return;
        }
        let mut completeness = self.progress.completeness.subscribe();
        let is_usable = |current: &Completeness| !matches!(current, Completeness::Partial);
        if timeout_at(end, completeness.wait_for(is_usable)).await.is_ok() {
            let end = end.min(Instant::now() + WARM_SETTLING_TIME);
            _ = timeout_at(end, self.wait_until_complete()).await;
        }
    }

    /// Searches the index for resources that the caller may see; `None` if there is no index, or if the search fails,
    /// which drops the index. `generation` is the generation counter of the catalog's sources.
    pub(crate) async fn search(
        &self,
        query: &SearchQuery,
        generation: u64,
        context: &Context,
    ) -> Result<Option<SearchAnswer>> {
        let Some(index) = self.current() else { return Ok(None) };
        let visibility = context.visibility().cloned();
        // The index caches under this key which resources a rights class sees. That also depends on the aliases that
        // sources report, hence the generation.
        let class = match visibility.as_ref().map(|visibility| visibility.class()) {
            Some(Some(class)) => class.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ generation,
            _ => self.unclassified.fetch_add(1, Ordering::Relaxed),
        };
        let permit = self.permits.take(context.client(), 1).await;
        let permit = permit.ok_or(Error::Busy("too many searches are in progress"))?;
        let query = query.clone();
        let search = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let sees = |uri: &str| {
                visibility.as_ref().is_none_or(|visible| Uri::parse(uri).is_ok_and(|uri| visible.sees(&uri)))
            };
            let visible = match &visibility {
                None => VisibleResources::All,
                Some(_) => VisibleResources::Class { class, sees: &sees },
            };
            // tantivy panics on some damaged files.
            let found = catch_unwind(AssertUnwindSafe(|| index.search(&query, &visible)));
            let found = found.unwrap_or_else(|_| Err(IndexError::Damaged("a search panicked".into())));
            found.map_err(|error| {
                let verified = catch_unwind(AssertUnwindSafe(|| index.verify()));
                (error, matches!(verified, Ok(Ok(()))))
            })
        });
        match search.await {
            Ok(Ok(answer)) => Ok(Some(SearchAnswer { indexing: self.indexing(), ..answer })),
            Ok(Err((error, is_intact)))
                if is_intact
                    && !matches!(error, IndexError::Unavailable(_))
                    && !self.may_discard_intact() =>
            {
                Err(Error::failed("search the index", error))
            }
            Ok(Err((error, _))) => {
                self.discard_damaged(&error);
                Ok(None)
            }
            Err(cause) => Err(Error::failed("search the index", cause)),
        }
    }

    /// Whether an index whose checksums are right may be dropped because a search failed, once in
    /// [`INTACT_REBUILD_INTERVAL`].
    fn may_discard_intact(&self) -> bool {
        let mut last = self.intact_discarded.lock().unwrap_or_else(PoisonError::into_inner);
        let may_discard = last.is_none_or(|last| last.elapsed() >= INTACT_REBUILD_INTERVAL);
        if may_discard {
            *last = Some(Instant::now());
        }
        may_discard
    }

    /// Drops the index after a search has found damage, so that the feeder rebuilds it. Keeps it if the system only lacks
    /// resources.
    fn discard_damaged(&self, error: &IndexError) {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        if matches!(error, IndexError::Unavailable(_)) {
            tracing::warn!(%error, cause, "a search failed; the index is kept");
            return;
        }
        tracing::warn!(%error, cause, "a search failed; rebuilding the index");
        self.set_current(None);
        self.discarded.notify_one();
    }
}

impl Drop for CatalogIndex {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Gives this thread the lowest priority, which threads that it starts inherit.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(cause) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!(%cause, "could not lower the priority of the search index");
    }
}
