//! The catalog as a source: lists, reads, completes and watches all sources.

use std::borrow::Cow;
use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use libris_core::uri_template::Specificity;
use libris_core::{
    Change, Client, Completion, CompletionRequest, Contents, Context, Error, Freshness, Meta, Page,
    PromptCompletion, PromptMessage, Prompts, Result, SearchAnswer, SearchQuery, Skill, SkillPage, Source,
    SourceToolResult, SourceTools, Templates, Uri,
};

use super::Catalog;
use super::merge::{merge, merged_freshness};
use crate::catalog_watch::CatalogWatch;
use crate::gate::GatedSource;
use crate::lock::lock;
use crate::page_query::MergedPageRequest;
use crate::query::gathered;
use crate::routing;
use crate::shared_reads::ReadScope;

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
        let (sources, proof) = self.sources_for_read();
        let mut proof = Some(proof);
        let mut missing = None;
        for gated in routing::route(&sources, uri).map_err(|collision| collision.error(uri))? {
            let source = gated.source();
            let relay = self.relay.get();
            let unchanged = relay.map(|relay| relay.resource_proof(&source.subject(uri)));
            let replicas = relay.and_then(|relay| relay.replica_read(&**source, uri, context));
            let read = async {
                if replicas.is_some() || source.is_shared(uri) {
                    let shared = lock(&self.shared_reads).clone();
                    let scope = ReadScope { unchanged: unchanged.clone(), replicas };
                    shared.read(&gated, uri, context, scope).await
                } else {
                    let context = gated.permit(context).await?;
                    source.read(uri, &context).await
                }
            };
            match gated.answer(self.config, &sources, read).await {
                // This more specific source may get the resource later. So a response of the next source has a proof
                // only if this source can prove "not found".
                Err(error) if error.is_not_found() => {
                    proof = proof.zip(error.proof().cloned()).map(|(proof, missing)| proof.and(missing));
                    // The most specific source with a hint has the best one.
                    if !matches!(missing, Some(Error::Missing { .. })) {
                        missing = Some(error);
                    }
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
        self.template_list(context).await
    }

    async fn complete(&self, partial: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        self.complete_template(partial, context).await
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
                // No error: a more specific source has a directory at this URI.
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
        self.merged_skills(after, limit, context).await
    }

    async fn skill(&self, uri: &Uri, context: &Context) -> Result<(Skill, Freshness)> {
        self.find_skill(uri, context).await
    }

    async fn prompts(&self, context: &Context) -> Result<Prompts> {
        self.merged_prompts(context).await
    }

    async fn prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        context: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        self.find_prompt(name, arguments, context).await
    }

    async fn complete_prompt(
        &self,
        partial: PromptCompletion<'_>,
        context: &Context,
    ) -> Result<Option<Completion>> {
        self.find_prompt_completion(partial, context).await
    }

    fn has_tools(&self) -> bool {
        self.sources().iter().any(|gated| gated.source().has_tools())
    }

    async fn tools(&self, context: &Context) -> Result<SourceTools> {
        self.merged_tools(context).await
    }

    async fn call_tool(
        &self,
        name: &str,
        arguments: Meta,
        context: &Context,
    ) -> Result<Option<SourceToolResult>> {
        self.find_tool(name, arguments, context).await
    }

    fn has_search(&self) -> bool {
        self.is_indexed() || self.sources().iter().any(|gated| gated.source().has_search())
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
            // Clients may have read contents from the cache of the replicas, which this source does not know. The
            // source therefore reports the subject as changed once.
            Some(relay) if source.replica_key(subject).is_some() => {
                relay.follow(subject, || source.follow_for_replicas(subject));
            }
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
            // Tools and prompts are not cached across replicas.
            Change::Features => return,
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

impl Catalog {
    /// One page of the resources of all sources, including collisions, which [`list`](Source::list) removes.
    async fn merged_page(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let (sources, proof) = self.sources_for_list();
        let request = MergedPageRequest { after, limit, context, config: self.config };
        let answers = request.responses(&sources).await?;
        let mut fresh = Vec::with_capacity(sources.len());
        let mut unavailable = Vec::new();
        let mut pages = Vec::with_capacity(sources.len());
        for (gated, mut page) in gathered(&sources, answers)? {
            fresh.extend(gated.contributed(std::mem::take(&mut page.freshness)));
            unavailable.append(&mut page.unavailable);
            pages.push(page);
        }
        Ok(Page { freshness: merged_freshness(fresh, proof), unavailable, ..merge(pages, limit) })
    }
}
