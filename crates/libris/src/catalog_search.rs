//! Searches of a catalog: in its index, by the sources that implement [`Source::search`](libris_core::Source::search),
//! and in names while the index lacks resources.

use std::collections::HashMap;
use std::time::Duration;

use libris_core::{
    Annotations, Context, Resource, Result, SearchAnswer, SearchHit, SearchQuery, Source as _, Uri,
};
#[cfg(feature = "search")]
use libris_core::{Contents, Error};
use tokio::time::{Instant, timeout};

use crate::Catalog;
use crate::gate::SourceRole;
use crate::query;

/// How long the search of a source may take, including the wait for a permit of the source. The answer leaves out a slower source, and names it.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(1);

/// The constant of reciprocal rank fusion: the larger it is, the smaller is the advantage of the first ranks.
const FUSION: f32 = 60.0;

/// How many hits are requested from a source, even if the query has a lower limit: the catalog removes the hits that
/// the caller may not see before it applies that limit.
const MAX_SOURCE_HITS: usize = 1000;

/// How many resources are compared by name while the index lacks resources, and for how long.
const MAX_NAMES: usize = 20_000;
const NAMES_TIMEOUT: Duration = Duration::from_secs(1);

/// How many resources are listed at a time.
const NAMES_PAGE: usize = 1000;

impl Catalog {
    /// Searches the index and the sources that have a search of their own, and fuses the hits by rank; `None` if there
    /// is neither an index nor such a source.
    pub(crate) async fn search_sources(
        &self,
        query: &SearchQuery,
        context: &Context,
    ) -> Result<Option<SearchAnswer>> {
        let indexed = self.search_index(query, context).await?;
        let is_complete = indexed.as_ref().is_some_and(|answer| answer.indexing.is_none());
        let (mut own, left_out) = self.search_own(query, context).await?;
        let is_indexed = self.is_indexed();
        if !is_indexed && own.is_empty() && left_out.is_empty() {
            return Ok(None);
        }
        if is_indexed && (indexed.is_none() || self.is_partly_indexed()) {
            own.push(self.search_names(query, context).await);
        }
        let mut fused = match (indexed, own.is_empty()) {
            (Some(answer), true) => answer,
            (indexed, _) => {
                let (correction, indexing) = indexed
                    .as_ref()
                    .map(|answer| (answer.correction.clone(), answer.indexing))
                    .unwrap_or_default();
                let answers = indexed.into_iter().chain(own).collect();
                SearchAnswer { correction, indexing, ..fuse(answers, query.limit) }
            }
        };
        if fused.indexing.is_none() && is_indexed && !is_complete {
            fused.indexing = Some(self.indexing());
        }
        fused.left_out = left_out;
        Ok(Some(fused))
    }

    #[cfg(feature = "search")]
    async fn search_index(&self, query: &SearchQuery, context: &Context) -> Result<Option<SearchAnswer>> {
        match self.index() {
            Some(index) => index.search(query, self.generation(), context).await,
            None => Ok(None),
        }
    }

    /// Whether there is an index, even if it is being built.
    #[cfg(feature = "search")]
    pub(crate) fn is_indexed(&self) -> bool {
        self.index().is_some()
    }

    #[cfg(not(feature = "search"))]
    pub(crate) fn is_indexed(&self) -> bool {
        false
    }

    /// Whether the index lacks resources.
    #[cfg(feature = "search")]
    fn is_partly_indexed(&self) -> bool {
        self.index().is_some_and(|index| index.is_partial())
    }

    #[cfg(not(feature = "search"))]
    fn is_partly_indexed(&self) -> bool {
        false
    }

    #[cfg(feature = "search")]
    fn indexing(&self) -> libris_core::IndexingProgress {
        self.index().and_then(|index| index.indexing()).unwrap_or_default()
    }

    #[cfg(not(feature = "search"))]
    async fn search_index(&self, _query: &SearchQuery, _context: &Context) -> Result<Option<SearchAnswer>> {
        Ok(None)
    }

    #[cfg(not(feature = "search"))]
    fn indexing(&self) -> libris_core::IndexingProgress {
        libris_core::IndexingProgress::default()
    }

    /// The answers of the sources that have a search of their own, without hidden resources, and the names of the
    /// sources that failed or were too slow.
    async fn search_own(
        &self,
        query: &SearchQuery,
        context: &Context,
    ) -> Result<(Vec<SearchAnswer>, Vec<String>)> {
        let sources = self.sources();
        let asked: Vec<_> = sources
            .iter()
            .filter(|gated| gated.role() == SourceRole::Content && gated.source().has_search())
            .filter(|gated| {
                query.sources.is_empty() || query.sources.iter().any(|name| name == gated.health().name())
            })
            .collect();
        let unlimited = &SearchQuery { limit: query.limit.max(MAX_SOURCE_HITS), ..query.clone() };
        let searches = asked.iter().map(|gated| async {
            // Includes the wait for the permit, so that a busy source delays a search no longer than a slow one.
            let search = async {
                let context = gated.permit(context).await?;
                gated.source().search(unlimited, &context).await
            };
            Ok(query::bounded_answer(SOURCE_TIMEOUT, search).await)
        });
        let mut answers = Vec::new();
        let mut left_out = Vec::new();
        for (gated, answer) in asked.iter().zip(query::all(searches.collect()).await?) {
            let name = gated.health().name();
            match answer {
                Ok(None) => {}
                Ok(Some(mut answer)) => {
                    // The hits of a source have no modification time, so none passes a filter by that time.
                    answer
                        .hits
                        .retain(|hit| query.modified_since.is_none() && is_wanted(hit, query, context));
                    answer.hits.iter_mut().for_each(|hit| {
                        name.clone_into(&mut hit.source);
                        hit.duplicates.retain(|uri| Uri::parse(uri).is_ok_and(|uri| context.sees(&uri)));
                    });
                    answer.total = answer.hits.len();
                    answers.push(answer);
                }
                Err(fault) => {
                    tracing::warn!(
                        source = name,
                        reason = fault.reason(),
                        "a source is left out of a search"
                    );
                    left_out.push(name.to_owned());
                }
            }
        }
        Ok((answers, left_out))
    }

    /// The resources whose names, titles or URIs contain words of the query, among those that can be listed within
    /// [`NAMES_TIMEOUT`].
    async fn search_names(&self, query: &SearchQuery, context: &Context) -> SearchAnswer {
        let text = query.text.to_lowercase();
        let words: Vec<_> =
            text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| word.len() > 1).collect();
        let mut found: Vec<(usize, Resource)> = Vec::new();
        let mut after: Option<Uri> = None;
        let end = Instant::now() + NAMES_TIMEOUT;
        let mut seen = 0;
        while seen < MAX_NAMES {
            let list = self.list(after.as_ref(), NAMES_PAGE, context);
            let Ok(Ok(page)) = timeout(end.saturating_duration_since(Instant::now()), list).await else {
                break;
            };
            seen += page.resources.len();
            after = page.resources.last().map(|last| last.uri.clone());
            for resource in page.resources {
                let name = format!(
                    "{} {} {}",
                    resource.uri.as_str(),
                    resource.name,
                    resource.title.as_deref().unwrap_or_default()
                )
                .to_lowercase();
                let count = words.iter().filter(|word| name.contains(**word)).count();
                if count > 0 && has_wanted_annotations(&resource, query) && context.sees(&resource.uri) {
                    found.push((count, resource));
                }
            }
            if !page.more || after.is_none() {
                break;
            }
        }
        // The sort is stable: equally good names stay in URI order.
        found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let hits = found.into_iter().map(|(count, resource)| SearchHit {
            uri: resource.uri.as_str().to_owned(),
            name: resource.name,
            title: resource.title,
            description: resource.description,
            mime: resource.mime,
            source: self.source_name(&resource.uri).unwrap_or_default(),
            score: count as f32,
            ..SearchHit::default()
        });
        let mut hits: Vec<_> = hits.filter(|hit| is_wanted(hit, query, context)).collect();
        let total = hits.len();
        hits.truncate(query.limit);
        SearchAnswer { hits, total, ..SearchAnswer::default() }
    }

    /// The name of the source that a resource is read from.
    pub(crate) fn source_name(&self, uri: &Uri) -> Option<String> {
        Self::candidates(&self.sources(), uri).first().map(|gated| gated.health().name().to_owned())
    }

    /// Reads a resource for the index, when the source has a permit that no client needs.
    #[cfg(feature = "search")]
    pub(crate) async fn read_in_background(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let sources = self.sources();
        for gated in Self::candidates(&sources, uri) {
            if gated.health().outage().is_some() {
                return Err(Error::Unavailable("the source is unavailable".to_owned()));
            }
            let context = gated.idle_permit(context).await?;
            match gated.source().read(uri, &context).await {
                Err(error) if error.is_not_found() => {}
                read => return read,
            }
        }
        Err(Error::NotFound(uri.clone()))
    }
}

/// Whether a resource passes the filters on annotations: audience and modification time.
fn has_wanted_annotations(resource: &Resource, query: &SearchQuery) -> bool {
    let Annotations { audience, last_modified, .. } = &resource.annotations;
    query.audience.is_none_or(|wanted| audience.is_empty() || audience.contains(&wanted))
        && query
            .modified_since
            .is_none_or(|since| last_modified.is_some_and(|modified| modified.as_second() >= since))
}

/// Whether a hit is visible and passes the filters on source, media type and URI.
fn is_wanted(hit: &SearchHit, query: &SearchQuery, context: &Context) -> bool {
    let mime = hit.mime.as_deref().unwrap_or_default();
    let is_mime = |wanted: &String| match wanted.strip_suffix('*') {
        Some(prefix) => mime.starts_with(prefix),
        None => mime == wanted,
    };
    let is_source = query.sources.is_empty() || hit.source.is_empty() || query.sources.contains(&hit.source);
    is_source
        && (query.mimes.is_empty() || query.mimes.iter().any(is_mime))
        && query.uri_prefix.as_ref().is_none_or(|prefix| hit.uri.starts_with(prefix))
        && Uri::parse(&hit.uri).is_ok_and(|uri| context.sees(&uri))
}

/// Reciprocal rank fusion: a hit gets `1 / (60 + rank)` from each answer that contains it.
fn fuse(answers: Vec<SearchAnswer>, limit: usize) -> SearchAnswer {
    let mut total = 0;
    let mut order: Vec<SearchHit> = Vec::new();
    let mut positions: HashMap<String, usize> = HashMap::new();
    for answer in answers {
        let mut added = answer.total - answer.hits.len().min(answer.total);
        for (rank, hit) in answer.hits.into_iter().enumerate() {
            let gain = 1.0 / (FUSION + rank as f32 + 1.0);
            match positions.get(&hit.uri) {
                Some(at) => {
                    let known = &mut order[*at];
                    known.score += gain;
                    // The index has the section and the snippet, a source perhaps only the URI.
                    if known.section.is_none() && hit.section.is_some() {
                        *known = SearchHit { score: known.score, ..hit };
                    }
                }
                None => {
                    added += 1;
                    positions.insert(hit.uri.clone(), order.len());
                    order.push(SearchHit { score: gain, ..hit });
                }
            }
        }
        total += added;
    }
    order.sort_by(|one, other| other.score.total_cmp(&one.score).then_with(|| one.uri.cmp(&other.uri)));
    order.truncate(limit);
    SearchAnswer { hits: order, total, ..SearchAnswer::default() }
}

#[cfg(test)]
mod tests {
    use super::fuse;
    use libris_core::{SearchAnswer, SearchHit};

    fn answer(uris: &[&str]) -> SearchAnswer {
        let hits = uris.iter().map(|uri| SearchHit { uri: (*uri).to_owned(), ..SearchHit::default() });
        SearchAnswer { hits: hits.collect(), total: uris.len(), ..SearchAnswer::default() }
    }

    #[test]
    fn a_hit_of_two_answers_comes_before_those_of_one() {
        let fused = fuse(vec![answer(&["a:1", "a:2", "a:3"]), answer(&["a:3", "a:4"])], 3);
        let uris: Vec<_> = fused.hits.iter().map(|hit| &*hit.uri).collect();
        assert_eq!(uris, ["a:3", "a:1", "a:2"]);
        assert_eq!(fused.total, 4);
    }
}
