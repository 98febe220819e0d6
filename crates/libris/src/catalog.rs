//! The catalog: all sources combined into one source.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use libris_core::uri_template::Specificity;
use libris_core::{
    Budget, Change, Client, Completion, CompletionRequest, Contents, Context, Error, Freshness, Page,
    PromptCompletion, PromptMessage, Prompts, Proof, Resource, Result, SearchAnswer, SearchQuery, Skill,
    SkillPage, Source, Template, Templates, UnavailableSource, Uri,
};
use tokio::sync::watch;

use crate::catalog_watch::CatalogWatch;
use crate::cluster::{ChangeBus, ChangeRelay};
use crate::gate::{GatedSource, SourceRole};
use crate::health::Health;
use crate::library_index::LibraryIndex;
use crate::list_cache::{self, ListCache};
use crate::lock::lock;
use crate::page_query::MergedPageRequest;
use crate::path_note::PathNote;
use crate::query::{self, SourceResponse, gathered, quoted};
use crate::routing::{self, CollisionLog};
#[cfg(feature = "search")]
use crate::search::{CatalogIndex, SearchConfig};
use crate::shared_reads::SharedReads;
use crate::status::StatusSource;
use crate::unserved;

/// The most prompts of all sources together.
const MAX_PROMPTS: usize = 10_000;

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
/// If two sources have the same URI, the catalog lists the resource of the source that was added first. A read tries the
/// sources that cover the URI, the most specific first. If one of them is [exclusive](Source::is_exclusive), the URI is
/// served from neither.
///
/// A source that fails or exceeds its timeout is unavailable: lists then contain its last known resources and name it
/// in `unavailable`. The catalog probes it with exponential backoff, and reports [`Change::Lost`] to its watchers when
/// the source is available again. [`Config::strict`] turns this off.
pub struct Catalog {
    sources: watch::Sender<Sources>,
    config: Config,
    health: Arc<Health>,
    /// The combined templates of all sources, cached while their proof holds.
    joined: Mutex<Option<Arc<MergedTemplates>>>,
    shared: Mutex<Arc<SharedReads>>,
    collisions: CollisionLog,
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

/// The templates of all sources.
struct MergedTemplates {
    /// Sorted by text, without duplicates.
    templates: Vec<Template>,
    /// The source that completes each template, by the text of the template.
    owners: HashMap<Box<str>, GatedSource>,
    freshness: Freshness,
    unavailable: Vec<UnavailableSource>,
}

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
            joined: Mutex::default(),
            shared: Mutex::default(),
            collisions: CollisionLog::default(),
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

    /// Replaces the sources. Watchers receive [`Change::Lost`].
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
        // The cache may hold contents of a removed source.
        *lock(&self.shared) = Arc::default();
    }

    /// Adds a source after the existing ones. Watchers receive [`Change::Lost`].
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

    /// Adds the resource `libris://index`, which lists the most important resources, if the catalog does not have it yet.
    /// [`Serve`](crate::Serve) calls this.
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
    pub fn start_search(self: &Arc<Self>, config: SearchConfig) -> Result<()> {
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
            index.settled().await;
        }
    }

    /// Waits until the search index has all resources; returns at once if there is no index.
    #[cfg(feature = "search")]
    pub async fn search_index_completed(&self) {
        if let Some(index) = self.index.get() {
            index.completed().await;
        }
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

    /// The generation of the sources.
    #[cfg(feature = "search")]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn sources(&self) -> Sources {
        self.sources.borrow().clone()
    }

    /// Whether the sizes in the metadata of a resource are reliable: no source that covers the URI gets them from another
    /// MCP server.
    pub(crate) fn has_own_sizes(&self, uri: &Uri) -> bool {
        let sources = self.sources();
        !sources.iter().any(|gated| gated.source().is_exclusive() && gated.source().covers(uri).is_some())
    }

    /// The sources, and a proof that holds until the catalog replaces or adds one.
    fn proven_sources(&self) -> (Sources, Proof) {
        let seen = self.sources.subscribe();
        let sources = seen.borrow().clone();
        (sources, Proof::new(move || seen.has_changed().is_ok_and(|changed| !changed)))
    }

    /// Like [`proven_sources`](Self::proven_sources), for lists: the proof also ends when another replica reports a change
    /// of the list.
    fn proven(&self) -> (Sources, Proof) {
        let (sources, proof) = self.proven_sources();
        let proof = match self.relay.get() {
            Some(relay) => proof.and(relay.list_proof()),
            None => proof,
        };
        (sources, proof)
    }

    /// Makes the sources of a subject unfollow it, whatever other replicas follow.
    pub(crate) fn unfollow_source(&self, subject: &Uri) {
        // The source that followed it may no longer be the most specific one.
        for gated in self.sources().iter().filter(|gated| gated.source().covers(subject).is_some()) {
            gated.source().unfollow(subject);
        }
    }

    /// The merged templates of all sources, from the cache while their proof holds.
    async fn joined(&self, context: &Context) -> Result<Arc<MergedTemplates>> {
        let cached = lock(&self.joined).clone();
        if let Some(cached) =
            cached.filter(|cached| cached.freshness.proof.as_ref().is_some_and(Proof::holds))
        {
            return Ok(cached);
        }
        let (sources, proof) = self.proven();
        let (mut all, mut owners) = (Vec::new(), HashMap::new());
        let (mut fresh, mut missing) = (Vec::new(), Vec::new());
        let mut claimed_twice: HashSet<Box<str>> = HashSet::new();
        let queries = sources.iter().map(|gated| gated.templates(context, self.config));
        let answers = query::all(queries.collect()).await?;
        for (gated, Templates { templates, freshness, unavailable }) in gathered(&sources, answers)? {
            fresh.extend(gated.counted(freshness));
            missing.extend(unavailable);
            for template in templates {
                match owners.entry(Box::<str>::from(template.uri.as_str())) {
                    Entry::Vacant(entry) => _ = entry.insert(gated.clone()),
                    // Neither is served, as with resources.
                    Entry::Occupied(entry) if routing::is_claimed_twice(entry.get(), gated) => {
                        claimed_twice.insert(Box::<str>::from(template.uri.as_str()));
                    }
                    Entry::Occupied(_) => {}
                }
                all.push(template);
            }
        }
        all.retain(|template| !claimed_twice.contains(template.uri.as_str()));
        claimed_twice.iter().for_each(|text| _ = owners.remove(&**text));
        // The sort is stable, so the template of the source that was added first stays.
        all.sort_by(|one, other| one.uri.as_str().cmp(other.uri.as_str()));
        all.dedup_by(|one, other| one.uri == other.uri);
        let joined = Arc::new(MergedTemplates {
            templates: all,
            owners,
            freshness: joined_freshness(fresh, proof),
            unavailable: missing,
        });
        // Templates that depend on the caller's identity must not be cached for others.
        if !context.identity_was_used() {
            *lock(&self.joined) = Some(joined.clone());
        }
        Ok(joined)
    }

    /// One page of the resources of all sources, including collisions, which [`list`](Source::list) removes.
    async fn merged_page(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let (sources, proof) = self.proven();
        let request = MergedPageRequest { after, limit, context, config: self.config };
        let answers = request.responses(&sources).await?;
        let mut fresh = Vec::with_capacity(sources.len());
        let mut unavailable = Vec::new();
        let mut pages = Vec::with_capacity(sources.len());
        for (gated, mut page) in gathered(&sources, answers)? {
            fresh.extend(gated.counted(std::mem::take(&mut page.freshness)));
            unavailable.append(&mut page.unavailable);
            pages.push(page);
        }
        Ok(Page { freshness: joined_freshness(fresh, proof), unavailable, ..merge(pages, limit) })
    }

    /// The sources that cover `uri`, the most specific first; none if two of them claim it.
    pub(crate) fn candidates(sources: &Sources, uri: &Uri) -> Vec<GatedSource> {
        routing::route(sources, uri).unwrap_or_default()
    }

    /// The error for a URI that no source covers. Callers with all rights get a hint with what the sources serve.
    async fn unserved(&self, sources: &Sources, uri: &Uri, context: &Context) -> Error {
        /// How many resources of a source without templates are compared with the URI.
        const MAX_COMPARED: usize = 100;
        if !context.sees_everything() {
            return Error::NotFound(uri.clone());
        }
        let Ok(joined) = self.joined(context).await else { return Error::NotFound(uri.clone()) };
        let has_templates =
            |gated: &GatedSource| joined.owners.values().any(|owner| owner.is(gated.source()));
        let content = sources.iter().filter(|gated| gated.role() == SourceRole::Content);
        let fixed = content.filter(|gated| !has_templates(gated));
        let lists = fixed.map(|gated| gated.list(None, MAX_COMPARED, context, self.config));
        let pages = query::all(lists.collect()).await.unwrap_or_default();
        let resources = pages.iter().flat_map(|answer| match answer {
            SourceResponse::Current(page) | SourceResponse::LastKnown(page, _) => &page.resources[..],
            SourceResponse::Missing { .. } => &[],
        });
        let resources: Vec<_> = resources.map(|resource| &resource.uri).collect();
        let templates: Vec<_> = joined.templates.iter().map(|template| &template.uri).collect();
        unserved::missing(uri, &templates, &resources)
    }
}

#[async_trait]
impl Source for Catalog {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.sources().iter().filter_map(|gated| gated.source().covers(uri)).max()
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        self.sources().iter().any(|gated| gated.source().may_appear(uri))
    }

    fn name(&self) -> Cow<'_, str> {
        "catalog".into()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let mut page = self.merged_page(after, limit, context).await?;
        loop {
            let last = page.resources.last().map(|last| last.uri.clone());
            self.collisions.without_collisions(&self.sources(), &mut page.resources);
            if !page.resources.is_empty() || !page.more || last.is_none() {
                return Ok(page);
            }
            // All resources of the page were collisions. A client would take an empty page for the end of the list.
            page = self.merged_page(last.as_ref(), limit, context).await?;
        }
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let (sources, proof) = self.proven_sources();
        let mut proof = Some(proof);
        let mut missing = None;
        for gated in routing::route(&sources, uri).map_err(|collision| collision.error(uri))? {
            let source = gated.source();
            let unchanged = self.relay.get().map(|relay| relay.resource_proof(&source.subject(uri)));
            let read = async {
                match source.is_shared(uri) {
                    false => {
                        let context = gated.permit(context).await?;
                        source.read(uri, &context).await
                    }
                    true => {
                        let shared = lock(&self.shared).clone();
                        shared.read(&gated, uri, context, unchanged.clone()).await
                    }
                }
            };
            match gated.answer(self.config, &sources, read).await {
                // This more specific source may get the resource later. So a response of the next source has a proof only
                // if this one can prove "not found".
                Err(error) if error.is_not_found() => {
                    proof = proof.zip(error.proof().cloned()).map(|(proof, missing)| proof.and(missing));
                    // The most specific source has the best hint.
                    missing.get_or_insert(error);
                }
                Ok(mut contents) => {
                    let proof = match (proof, unchanged) {
                        (Some(proof), Some(unchanged)) => Some(proof.and(unchanged)),
                        (proof, _) => proof,
                    };
                    contents.freshness = contents.freshness.and_proof(proof);
                    return Ok(contents);
                }
                failed => return failed,
            }
        }
        match (missing, self.hint(uri)) {
            (Some(missing), _) => Err(missing.with_proof(proof)),
            (None, Some(hint)) => Err(Error::missing(uri, hint)),
            (None, None) => Err(self.unserved(&sources, uri, context).await),
        }
    }

    fn hint(&self, uri: &Uri) -> Option<String> {
        self.sources().iter().find_map(|gated| gated.source().hint(uri))
    }

    async fn templates(&self, context: &Context) -> Result<Templates> {
        let joined = self.joined(context).await?;
        let MergedTemplates { templates, freshness, unavailable, .. } = &*joined;
        Ok(Templates {
            templates: templates.clone(),
            freshness: freshness.clone(),
            unavailable: unavailable.clone(),
        })
    }

    async fn complete(&self, partial: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        let joined = self.joined(context).await?;
        let Some(gated) = joined.owners.get(partial.template.as_str()) else {
            let missing = joined.unavailable.iter().map(|unavailable| &*unavailable.source);
            return Err(match quoted(missing) {
                names if names.is_empty() => {
                    Error::invalid(format!("unknown template `{}`", partial.template))
                }
                names => Error::Unavailable(format!(
                    "unknown template `{}`; it may belong to {names}, which did not respond; try again later",
                    partial.template
                )),
            });
        };
        let completion = async {
            let context = gated.permit(context).await?;
            gated.source().complete(partial, &context).await
        };
        let completion = gated.answer(self.config, &self.sources(), completion).await?;
        let proof = completion.proof.clone().zip(joined.freshness.proof.clone());
        Ok(completion.with_proof(proof.map(|(completed, owned)| completed.and(owned))))
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let sources = self.sources();
        let (mut missing, mut pages) = (None, Vec::new());
        for gated in routing::route(&sources, uri).map_err(|collision| collision.error(uri))? {
            let children = async {
                let context = gated.listing_permit(context, self.config.source_timeout).await?;
                gated.source().children(uri, after, limit, &context).await
            };
            match gated.answer(self.config, &sources, children).await {
                Ok(page) => pages.push(page),
                Err(error) if error.is_not_found() => {
                    missing.get_or_insert(error);
                }
                // Another source has a directory of this name.
                Err(Error::NotDirectory(_)) if !pages.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        match (pages.len(), missing) {
            (1, _) => Ok(pages.remove(0)),
            (0, Some(missing)) => Err(missing),
            (0, None) => Err(self.unserved(&sources, uri, context).await),
            // Several sources have parts of the directory.
            _ => Ok(merge(pages, limit)),
        }
    }

    fn has_directories(&self) -> bool {
        self.sources().iter().any(|gated| gated.source().has_directories())
    }

    async fn skills(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<SkillPage> {
        let (sources, proof) = self.proven();
        let queries = sources.iter().map(|gated| gated.skills(after, limit, context, self.config));
        let answers = query::all(queries.collect()).await?;
        let (mut fresh, mut unavailable, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        for (gated, page) in gathered(&sources, answers)? {
            // The freshness of a source without skills counts too. Otherwise the TTL would reveal, to a caller from whom
            // its skills are hidden, whether the source has any.
            fresh.extend(gated.counted(page.freshness));
            unavailable.extend(page.unavailable);
            pages.push((page.skills, page.more));
        }
        let (skills, more) = merge_sorted(pages, limit, |skill: &Skill| &skill.uri);
        Ok(SkillPage { skills, more, freshness: joined_freshness(fresh, proof), unavailable })
    }

    async fn skill(&self, uri: &Uri, context: &Context) -> Result<(Skill, Freshness)> {
        let sources = self.sources();
        for gated in Self::candidates(&sources, uri) {
            let skill = async {
                let context = gated.permit(context).await?;
                gated.source().skill(uri, &context).await
            };
            match gated.answer(self.config, &sources, skill).await {
                Err(error) if error.is_not_found() => {}
                answered => return answered,
            }
        }
        Err(Error::NotFound(uri.clone()))
    }

    async fn prompts(&self, context: &Context) -> Result<Prompts> {
        let (sources, proof) = self.proven();
        let queries = sources.iter().map(|gated| gated.prompts(context, self.config));
        let answers = query::all(queries.collect()).await?;
        let (mut fresh, mut unavailable, mut by_name) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (gated, given) in gathered(&sources, answers)? {
            fresh.extend(gated.counted(given.freshness));
            unavailable.extend(given.unavailable);
            for prompt in given.prompts {
                // If two sources have a prompt of the same name, the source that was added first takes precedence.
                by_name.entry(prompt.name.clone()).or_insert(prompt);
            }
        }
        let prompts = by_name.into_values().take(MAX_PROMPTS).collect();
        Ok(Prompts { prompts, freshness: joined_freshness(fresh, proof), unavailable })
    }

    async fn prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        context: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        let (sources, mut failure) = (self.sources(), None);
        for gated in sources.iter() {
            let messages = async {
                let context = gated.permit(context).await?;
                gated.source().prompt(name, arguments, &context).await
            };
            let answer = gated.answer(self.config, &sources, messages).await;
            if let Some(messages) = unless_failed(answer, &mut failure) {
                return Ok(Some(messages));
            }
        }
        failure.map_or(Ok(None), Err)
    }

    async fn complete_prompt(
        &self,
        partial: PromptCompletion<'_>,
        context: &Context,
    ) -> Result<Option<Completion>> {
        let (sources, mut failure) = (self.sources(), None);
        for gated in sources.iter() {
            let completion = async {
                let context = gated.permit(context).await?;
                gated.source().complete_prompt(partial, &context).await
            };
            let answer = gated.answer(self.config, &sources, completion).await;
            if let Some(completion) = unless_failed(answer, &mut failure) {
                return Ok(Some(completion));
            }
        }
        failure.map_or(Ok(None), Err)
    }

    async fn search(&self, query: &SearchQuery, context: &Context) -> Result<Option<SearchAnswer>> {
        self.search_sources(query, context).await
    }

    fn subject(&self, uri: &Uri) -> Uri {
        Self::candidates(&self.sources(), uri)
            .first()
            .map_or_else(|| uri.clone(), |gated| gated.source().subject(uri))
    }

    fn aliases(&self, uri: &Uri) -> Vec<Uri> {
        // Any of the sources that cover the URI may answer a read.
        let sources = self.sources();
        let covering = sources.iter().filter(|gated| gated.source().covers(uri).is_some());
        covering.flat_map(|gated| gated.source().aliases(uri)).collect()
    }

    fn follow(&self, subject: &Uri, client: Client) {
        let sources = self.sources();
        let candidates = Self::candidates(&sources, subject);
        let Some(source) = candidates.first().map(|gated| gated.source()) else { return };
        match self.relay.get().filter(|_| source.polls_shared_service()) {
            Some(relay) => relay.follow(subject, || source.follow(subject, client)),
            None => source.follow(subject, client),
        }
    }

    fn unfollow(&self, subject: &Uri) {
        match self.relay.get() {
            Some(relay) => relay.unfollow(subject, || self.unfollow_source(subject)),
            None => self.unfollow_source(subject),
        }
    }

    fn follow_for_replicas(&self, subject: &Uri) {
        if let Some(gated) = Self::candidates(&self.sources(), subject).first() {
            gated.source().follow_for_replicas(subject);
        }
    }

    fn invalidate(&self, change: &Change) {
        let uri = match change {
            Change::Updated(uri) | Change::Described(uri) | Change::Added(uri) | Change::Removed(uri) => {
                Some(uri)
            }
            _ => None,
        };
        let sources = self.sources();
        let is_concerned = |gated: &&GatedSource| uri.is_none_or(|uri| gated.source().covers(uri).is_some());
        sources.iter().filter(is_concerned).for_each(|gated| gated.source().invalidate(change));
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        if let Some(relay) = self.relay.get() {
            return relay.watch().await.map(Some);
        }
        CatalogWatch::open(self.sources.subscribe(), &self.health, self.config.strict, None)
            .await
            .map(|watch| Some(watch.changes()))
    }
}

/// The freshness of a list combined from all sources; `proof` holds while the catalog has the same sources.
fn joined_freshness(parts: Vec<Freshness>, proof: Proof) -> Freshness {
    match parts.into_iter().reduce(Freshness::and) {
        Some(all) => all.or_uncached().and_proof(Some(proof)),
        None => Freshness::proven(proof),
    }
}

/// Merges the pages of several sources after the same URI into one page (keyset pagination).
fn merge(pages: Vec<Page>, limit: usize) -> Page {
    let pages = pages.into_iter().map(|page| (page.resources, page.more)).collect();
    let (resources, more) = merge_sorted(pages, limit, |resource: &Resource| &resource.uri);
    Page { resources, more, ..Page::default() }
}

/// Merges lists in URI order. The flag of each list, and of the result, says whether there may be more items after it.
fn merge_sorted<T>(pages: Vec<(Vec<T>, bool)>, limit: usize, uri: impl Fn(&T) -> &Uri) -> (Vec<T>, bool) {
    // A page with `more` does not say what its source has after the last item, so the merged page must end with the first
    // of these last items.
    let mut cut = pages.iter().any(|(_, more)| *more);
    let mut merged: Vec<T> = Vec::with_capacity(pages.iter().map(|(items, _)| items.len()).sum());
    let incomplete = pages.iter().filter(|(_, more)| *more);
    let end = incomplete.filter_map(|(items, _)| items.last()).map(|last| uri(last).clone()).min();
    for (items, _) in pages {
        for item in items {
            if end.as_ref().is_some_and(|end| *uri(&item) > *end) {
                cut = true;
                break;
            }
            merged.push(item);
        }
    }
    merged.sort_by(|one, other| uri(one).cmp(uri(other)));
    merged.dedup_by(|one, other| uri(one) == uri(other));
    if merged.len() > limit {
        merged.truncate(limit);
        cut = true;
    }
    (merged, cut)
}

/// The answer of one source about a prompt; `None` if it does not have the prompt, or failed. The first failure is recorded
/// in `failure` instead of returned, because another source may have the prompt.
fn unless_failed<T>(answer: Result<Option<T>>, failure: &mut Option<Error>) -> Option<T> {
    answer.unwrap_or_else(|error| {
        failure.get_or_insert(error);
        None
    })
}

#[cfg(test)]
mod tests {
    use super::merge;
    use libris_core::{Page, Resource, Uri};

    fn page(names: &[&str], more: bool) -> Page {
        let resources = names
            .iter()
            .map(|name| Resource::new(Uri::parse(&format!("a:{name}")).unwrap(), *name))
            .collect();
        Page { resources, more, ..Page::default() }
    }

    fn names(page: &Page) -> Vec<&str> {
        page.resources.iter().map(|resource| &*resource.name).collect()
    }

    #[test]
    fn a_merged_page_ends_where_the_first_incomplete_page_ends() {
        let merged = merge(vec![page(&["b", "c"], true), page(&["a", "d"], false)], 2);
        assert_eq!((names(&merged), merged.more), (vec!["a", "b"], true));

        // A source may return less than `limit`; what follows is unknown.
        let merged = merge(vec![page(&["b"], true), page(&["a", "d"], false)], 9);
        assert_eq!((names(&merged), merged.more), (vec!["a", "b"], true));

        let merged = merge(vec![page(&["b"], true), page(&["c", "d"], true)], 9);
        assert_eq!((names(&merged), merged.more), (vec!["b"], true));

        let merged = merge(vec![page(&["b"], false), page(&["a", "b"], false)], 9);
        assert_eq!((names(&merged), merged.more), (vec!["a", "b"], false));
    }
}
