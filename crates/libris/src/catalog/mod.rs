//! The catalog: all sources combined into one source.
//!
//! This file has the set of sources. `source` implements [`Source`] for the catalog; `templates`, `prompts`, `skills`
//! and `tools` combine the templates, prompts, skills and tools of all sources; `merge` merges pages.

mod merge;
mod prompts;
mod skills;
mod source;
mod templates;
mod tools;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use libris_core::{Budget, Proof, Source, Uri};
use tokio::sync::watch;

use self::templates::MergedTemplates;
use self::tools::ToolCollisionLog;
use crate::cluster::{ChangeBus, ChangeRelay};
use crate::gate::{GatedSource, SourceRole};
use crate::health::Health;
use crate::library_index::LibraryIndex;
use crate::list_cache::{self, ListCache};
use crate::lock::lock;
use crate::path_note::PathNote;
use crate::routing::{self, CollisionLog};
#[cfg(feature = "search")]
use crate::search::{CatalogIndex, SearchConfig};
use crate::shared_reads::SharedReads;
use crate::status::StatusSource;

/// How a catalog handles sources that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long a source may take to list. A source that exceeds it counts as unavailable.
    pub source_timeout: Duration,
    /// Whether a list fails if one source fails, and a watch if one source cannot be watched.
    pub strict: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { source_timeout: Duration::from_secs(5), strict: false }
    }
}

/// All sources combined into one source.
///
/// If two sources have the same URI, the catalog lists the resource of the source that was added first. A read tries
/// the sources that cover the URI, the most specific first. A URI that an [exclusive](Source::is_exclusive) source and
/// another source claim is served from neither.
///
/// A source that fails or exceeds its timeout is unavailable: lists then contain its last known resources and name it
/// in `unavailable`. The catalog probes it with exponential backoff. When the source is available again, watchers
/// receive [`Change::Lost`](libris_core::Change::Lost). With [`Config::strict`], lists fail instead.
pub struct Catalog {
    sources: watch::Sender<Sources>,
    config: Config,
    health: Arc<Health>,
    /// The combined templates of all sources, cached while their proof holds.
    templates: Mutex<Option<Arc<MergedTemplates>>>,
    shared_reads: Mutex<Arc<SharedReads>>,
    collisions: CollisionLog,
    tool_collisions: ToolCollisionLog,
    /// The memory for cached lists of all sources.
    list_memory: Arc<Budget>,
    /// Generation counter: bumped when the sources change.
    generation: AtomicU64,
    /// The exchange of changes with other replicas, if there are any.
    relay: OnceLock<Arc<ChangeRelay>>,
    #[cfg(feature = "search")]
    index: OnceLock<Arc<CatalogIndex>>,
    /// The configuration of an index that the first search starts; `None` after that.
    #[cfg(feature = "search")]
    on_demand: Mutex<Option<SearchConfig>>,
}

/// A snapshot of the sources of a catalog.
pub(crate) type Sources = Arc<[GatedSource]>;

impl Catalog {
    /// A catalog of these sources.
    pub fn new(sources: Vec<Arc<dyn Source>>) -> Self {
        Self::with_config(sources, Config::default())
    }

    /// A catalog of these sources with this configuration.
    pub fn with_config(sources: Vec<Arc<dyn Source>>, config: Config) -> Self {
        let catalog = Self {
            sources: watch::Sender::new(Arc::new([])),
            config,
            health: Arc::default(),
            templates: Mutex::default(),
            shared_reads: Mutex::default(),
            collisions: CollisionLog::default(),
            tool_collisions: ToolCollisionLog::default(),
            list_memory: list_cache::budget(),
            generation: AtomicU64::new(0),
            relay: OnceLock::new(),
            #[cfg(feature = "search")]
            index: OnceLock::new(),
            #[cfg(feature = "search")]
            on_demand: Mutex::default(),
        };
        catalog.replace(sources);
        catalog
    }

    /// The configuration of the catalog.
    pub fn config(&self) -> Config {
        self.config
    }

    /// Replaces the sources. Watchers receive [`Change::Lost`](libris_core::Change::Lost).
    pub fn replace(&self, sources: Vec<Arc<dyn Source>>) {
        self.update(|old| {
            // Sources that stay keep their permits, their health and their names.
            let stays = |gated: &&GatedSource| sources.iter().any(|source| gated.is(source));
            let staying: Vec<_> = old.iter().filter(stays).cloned().collect();
            let mut new: Vec<GatedSource> = Vec::with_capacity(sources.len() + 1);
            for source in sources {
                let gated = staying.iter().find(|gated| gated.is(&source)).cloned();
                new.push(gated.unwrap_or_else(|| self.gated(source, &[&staying, &new])));
            }
            new.extend(old.iter().filter(|gated| gated.role() != SourceRole::Content).cloned());
            new
        });
        // The cache is keyed by the addresses of sources in memory, and a new source may get the address of a removed
        // one.
        *lock(&self.shared_reads) = Arc::default();
    }

    /// Adds a source after the existing ones. Watchers receive [`Change::Lost`](libris_core::Change::Lost).
    pub fn add(&self, source: Arc<dyn Source>) {
        self.update(|old| {
            let gated = self.gated(source, &[old]);
            old.iter().cloned().chain([gated]).collect()
        });
    }

    /// Adds the resource `libris://status`, with the state of every source, if the catalog does not have it yet.
    /// [`Serve`](crate::Serve) calls this.
    pub fn add_status(&self) {
        self.update(|old| {
            let is_status = |gated: &GatedSource| gated.role() == SourceRole::Status;
            let status = (!old.iter().any(is_status)).then(|| {
                let status = Arc::new(StatusSource::new(self.health.clone()));
                let health = self.health.source(status.name().into_owned());
                GatedSource::new(status, health, SourceRole::Status, self.list_cache())
            });
            old.iter().cloned().chain(status).collect()
        });
    }

    /// Adds the resource `libris://index`, which lists the most important resources, if the catalog does not have it
    /// yet. [`Serve`](crate::Serve) calls this.
    pub fn add_index(self: &Arc<Self>, notes: Vec<PathNote>) {
        self.update(|old| {
            let is_index = |gated: &GatedSource| gated.role() == SourceRole::Index;
            let index = (!old.iter().any(is_index)).then(|| {
                let index = Arc::new(LibraryIndex::new(Arc::downgrade(self), notes));
                let health = self.health.source(index.name().into_owned());
                GatedSource::new(index, health, SourceRole::Index, self.list_cache())
            });
            old.iter().cloned().chain(index).collect()
        });
    }

    /// Exchanges changes with the catalogs of other replicas from now on; later calls have no effect. Call it within a
    /// tokio runtime, before a [`Server`](crate::Server) is created.
    ///
    /// The catalog then watches its sources all the time, because clients of other replicas may be subscribed to them.
    pub fn join_cluster(self: &Arc<Self>, bus: Arc<dyn ChangeBus>) {
        self.relay.get_or_init(|| {
            let (sources, health) = (self.sources.subscribe(), self.health.clone());
            ChangeRelay::start(Arc::downgrade(self), sources, health, self.config.strict, bus)
        });
    }

    /// The exchange of changes with other replicas, if there are any.
    pub(crate) fn relay(&self) -> Option<&Arc<ChangeRelay>> {
        self.relay.get()
    }

    /// Starts indexing the resources for search, in the background; later calls have no effect. Call it within a
    /// tokio runtime.
    #[cfg(feature = "search")]
    pub fn start_search(self: &Arc<Self>, config: SearchConfig) -> libris_core::Result<()> {
        if self.index.get().is_none() {
            let index = CatalogIndex::start(self, config)?;
            _ = self.index.set(index);
        }
        Ok(())
    }

    /// Starts indexing the resources, as [`start_search`](Self::start_search) does, when a client of a
    /// [`Server`](crate::Server) calls a tool that searches.
    #[cfg(feature = "search")]
    pub fn search_on_demand(&self, config: SearchConfig) {
        *lock(&self.on_demand) = Some(config);
    }

    /// Starts the index if it is built on demand, and waits a few seconds for an index that was started recently.
    #[cfg(feature = "search")]
    pub(crate) async fn start_search_on_demand(self: &Arc<Self>) {
        let config = lock(&self.on_demand).take();
        if let Some(config) = config
            && let Err(error) = self.start_search(SearchConfig { is_awaited: true, ..config })
        {
            tracing::error!(%error, "could not start the search index");
        }
        if let Some(index) = self.index.get() {
            index.wait_until_settled().await;
        }
    }

    /// Waits until the search index has all resources; returns at once if there is no index. Fails if the sources
    /// cannot be listed.
    #[cfg(feature = "search")]
    pub async fn search_index_completed(&self) -> libris_core::Result<()> {
        match self.index.get() {
            Some(index) => index.wait_until_complete().await,
            None => Ok(()),
        }
    }

    /// How and why the search index differs from its configuration and from the sources, for the user: for example, if
    /// it is in memory because its folder cannot be written. `None` if it does not differ, or if there is no index.
    #[cfg(feature = "search")]
    pub fn search_index_remark(&self) -> Option<String> {
        self.index.get().and_then(|index| index.remark())
    }

    /// How far the search index is built; `None` if it is complete, or if there is none.
    #[cfg(feature = "search")]
    pub fn search_progress(&self) -> Option<libris_core::IndexingProgress> {
        self.index.get().and_then(|index| index.indexing())
    }

    /// The search index.
    #[cfg(feature = "search")]
    pub(crate) fn index(&self) -> Option<&Arc<CatalogIndex>> {
        self.index.get()
    }

    fn update(&self, update: impl FnOnce(&[GatedSource]) -> Vec<GatedSource>) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.sources.send_modify(|sources| {
            *sources = update(sources).into();
            let content = sources.iter().filter(|gated| gated.role() == SourceRole::Content);
            self.health.set_sources(content.map(|gated| gated.health().clone()));
        });
    }

    /// Wraps a new source and gives it a name that none of `others` has.
    fn gated(&self, source: Arc<dyn Source>, others: &[&[GatedSource]]) -> GatedSource {
        let is_taken =
            |name: &str| others.iter().any(|others| others.iter().any(|other| other.health().name() == name));
        let name = source.name().into_owned();
        let numbered = (2..).map(|number| format!("{name} {number}"));
        let name = [name.clone()].into_iter().chain(numbered).find(|name| !is_taken(name)).unwrap_or(name);
        GatedSource::new(source, self.health.source(name), SourceRole::Content, self.list_cache())
    }

    fn list_cache(&self) -> ListCache {
        ListCache::new(self.list_memory.clone())
    }

    /// The health of the sources.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The generation counter of the set of sources.
    #[cfg(feature = "search")]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn sources(&self) -> Sources {
        self.sources.borrow().clone()
    }

    /// Whether the sizes in the metadata of a resource are reliable: no source that covers the URI gets them from
    /// another MCP server.
    pub(crate) fn has_own_sizes(&self, uri: &Uri) -> bool {
        let sources = self.sources();
        !sources.iter().any(|gated| gated.source().is_exclusive() && gated.source().covers(uri).is_some())
    }

    /// The sources, and a proof that holds until the catalog replaces or adds a source.
    fn sources_for_read(&self) -> (Sources, Proof) {
        let seen = self.sources.subscribe();
        let sources = seen.borrow().clone();
        (sources, Proof::new(move || seen.has_changed().is_ok_and(|changed| !changed)))
    }

    /// Like [`sources_for_read`](Self::sources_for_read), for lists: the proof also ends when another replica reports a
    /// change of the list.
    fn sources_for_list(&self) -> (Sources, Proof) {
        let (sources, proof) = self.sources_for_read();
        let proof = match self.relay.get() {
            Some(relay) => proof.and(relay.list_proof()),
            None => proof,
        };
        (sources, proof)
    }

    /// Makes every source that covers a subject unfollow it, even if other replicas follow it.
    pub(crate) fn unfollow_source(&self, subject: &Uri) {
        // Not only the most specific source: since the subject was followed, a more specific one may have been added.
        for gated in self.sources().iter().filter(|gated| gated.source().covers(subject).is_some()) {
            gated.source().unfollow(subject);
        }
    }

    /// The sources that cover `uri`, the most specific first; none if an exclusive source and another source both claim
    /// it.
    pub(crate) fn candidates(sources: &Sources, uri: &Uri) -> Vec<GatedSource> {
        routing::route(sources, uri).unwrap_or_default()
    }
}
