//! All sources joined into one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use libris_core::uri_template::Specificity;
use libris_core::{
    Cache, Change, Completion, Contents, Context, Error, Page, Partial, Proof, Resource, Result, Source,
    Template, Templates, Uri,
};
use tokio::sync::watch;

use crate::gate::Gated;
use crate::shared::Reads;
use crate::watches::Watches;

/// All sources joined into one, which is a source itself.
///
/// Where two sources have the same URI, the one that was added first is listed and read.
pub struct Catalog {
    sources: watch::Sender<Sources>,
    /// The templates of all sources as they were last joined.
    joined: Mutex<Option<Arc<Joined>>>,
    shared: Mutex<Arc<Reads>>,
}

/// The sources at one time.
pub(crate) type Sources = Arc<[Gated]>;

/// The templates of all sources.
struct Joined {
    /// In the order of their texts, each once.
    templates: Vec<Template>,
    /// Which source completes which.
    owners: HashMap<Box<str>, Gated>,
    proof: Option<Proof>,
}

impl Catalog {
    /// A catalog of these sources.
    pub fn new(sources: Vec<Arc<dyn Source>>) -> Self {
        Self {
            sources: watch::Sender::new(sources.into_iter().map(Gated::new).collect()),
            joined: Mutex::default(),
            shared: Mutex::default(),
        }
    }

    /// Puts these sources in the place of those it had. Whoever watches is told to look again.
    pub fn replace(&self, sources: Vec<Arc<dyn Source>>) {
        self.sources.send_modify(|old| {
            // Those that stay go on with what they have in progress.
            let gated = |source| match old.iter().find(|gated| gated.is(&source)) {
                Some(gated) => gated.clone(),
                None => Gated::new(source),
            };
            *old = sources.into_iter().map(gated).collect();
        });
        // What was read before may be from a source that is gone.
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
    }

    /// Adds a source after those it has. Whoever watches is told to look again.
    pub fn add(&self, source: Arc<dyn Source>) {
        self.sources.send_modify(|sources| {
            *sources = sources.iter().cloned().chain([Gated::new(source)]).collect();
        });
    }

    fn sources(&self) -> Sources {
        self.sources.borrow().clone()
    }

    /// The sources, and a proof that they are still these.
    fn proven(&self) -> (Sources, Proof) {
        let seen = self.sources.subscribe();
        let sources = seen.borrow().clone();
        (sources, Proof::new(move || seen.has_changed().is_ok_and(|changed| !changed)))
    }

    async fn joined(&self) -> Result<Arc<Joined>> {
        let lock = || self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = lock().clone();
        if let Some(kept) = kept.filter(|kept| kept.proof.as_ref().is_some_and(Proof::holds)) {
            return Ok(kept);
        }
        let (sources, proof) = self.proven();
        let mut joined = Joined { templates: Vec::new(), owners: HashMap::new(), proof: Some(proof) };
        for source in &*sources {
            let turn = source.listing_turn().await?;
            let Templates { templates, proof } = source.source().templates().await?;
            drop(turn);
            joined.proof = both(joined.proof, proof);
            for template in templates {
                joined.owners.entry(template.uri.as_str().into()).or_insert_with(|| source.clone());
                joined.templates.push(template);
            }
        }
        // The sort is stable, so of equals the one that was added first stays.
        joined.templates.sort_by(|one, other| one.uri.as_str().cmp(other.uri.as_str()));
        joined.templates.dedup_by(|one, other| one.uri == other.uri);
        let joined = Arc::new(joined);
        *lock() = Some(joined.clone());
        Ok(joined)
    }

    /// The sources that may have `uri`, the one that means it most closely first.
    fn candidates(sources: &Sources, uri: &Uri) -> Vec<Gated> {
        let mut found: Vec<_> =
            sources.iter().filter_map(|gated| Some((gated.source().covers(uri)?, gated.clone()))).collect();
        // The sort is stable, so equals stay in the order they were added.
        found.sort_by_key(|(specificity, _)| std::cmp::Reverse(*specificity));
        found.into_iter().map(|(_, source)| source).collect()
    }
}

#[async_trait]
impl Source for Catalog {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.sources().iter().filter_map(|gated| gated.source().covers(uri)).max()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let (sources, proof) = self.proven();
        let mut proof = Some(proof);
        let mut pages = Vec::with_capacity(sources.len());
        for source in &*sources {
            let turn = source.listing_turn().await?;
            let mut page = source.source().list(after, limit).await?;
            drop(turn);
            proof = both(proof, page.proof.take());
            pages.push(page);
        }
        Ok(Page { proof, ..merge(pages, limit) })
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let (sources, proof) = self.proven();
        let mut proof = Some(proof);
        for gated in Self::candidates(&sources, uri) {
            let source = gated.source();
            let read = match source.kept_for(uri) {
                None => {
                    let _turn = gated.turn(context.client()).await?;
                    source.read(uri, context).await
                }
                Some(time) => {
                    let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    shared.read(&gated, uri, context, time).await
                }
            };
            match read {
                // Nothing proves that it stays so.
                Err(Error::NotFound(_)) => proof = None,
                Ok(mut contents) => {
                    contents.cache.get_or_insert_with(|| source.cache());
                    contents.proof = both(proof, contents.proof);
                    return Ok(contents);
                }
                failed => return failed,
            }
        }
        Err(Error::NotFound(uri.clone()))
    }

    async fn templates(&self) -> Result<Templates> {
        let joined = self.joined().await?;
        Ok(Templates { templates: joined.templates.clone(), proof: joined.proof.clone() })
    }

    async fn complete(&self, asked: Partial<'_>) -> Result<Completion> {
        match self.joined().await?.owners.get(asked.template.as_str()) {
            Some(gated) => {
                let _turn = gated.turn(None).await?;
                gated.source().complete(asked).await
            }
            None => Err(Error::invalid(format!("unknown template `{}`", asked.template))),
        }
    }

    async fn children(&self, uri: &Uri, after: Option<&Uri>, limit: usize) -> Result<Page> {
        for gated in Self::candidates(&self.sources(), uri) {
            let _turn = gated.listing_turn().await?;
            match gated.source().children(uri, after, limit).await {
                Err(Error::NotFound(_)) => {}
                answered => return answered,
            }
        }
        Err(Error::NotFound(uri.clone()))
    }

    fn subject(&self, uri: &Uri) -> Uri {
        Self::candidates(&self.sources(), uri)
            .first()
            .map_or_else(|| uri.clone(), |gated| gated.source().subject(uri))
    }

    fn follow(&self, subject: &Uri) {
        if let Some(gated) = Self::candidates(&self.sources(), subject).first() {
            gated.source().follow(subject);
        }
    }

    fn unfollow(&self, subject: &Uri) {
        // Whoever followed it may not be the first to cover it any more.
        for gated in Self::candidates(&self.sources(), subject) {
            gated.source().unfollow(subject);
        }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Watches::open(self.sources.subscribe()).await.map(|watches| Some(watches.changes()))
    }

    fn cache(&self) -> Cache {
        self.sources().iter().map(|gated| gated.source().cache()).reduce(Cache::and).unwrap_or_default()
    }
}

/// A proof of both, if there is one of each.
fn both(one: Option<Proof>, other: Option<Proof>) -> Option<Proof> {
    Some(one?.and(other?))
}

/// Merges pages that begin at the same place into the one page that begins there.
fn merge(pages: Vec<Page>, limit: usize) -> Page {
    // Past the end of a page that was cut short, nothing is known of that source, so the merged page
    // must not go beyond it. Each such page has `limit` resources, so the merged one is full by then.
    let more = pages.iter().any(|page| page.more);
    let mut resources: Vec<Resource> =
        Vec::with_capacity(pages.iter().map(|page| page.resources.len()).sum());
    let end = pages
        .iter()
        .filter(|page| page.more)
        .filter_map(|page| page.resources.last())
        .map(|last| last.uri.clone())
        .min();
    let mut cut = more;
    for page in pages {
        for resource in page.resources {
            if end.as_ref().is_some_and(|end| resource.uri > *end) {
                cut = true;
                break;
            }
            resources.push(resource);
        }
    }
    resources.sort_by(|one, other| one.uri.cmp(&other.uri));
    resources.dedup_by(|one, other| one.uri == other.uri);
    if resources.len() > limit {
        resources.truncate(limit);
        cut = true;
    }
    Page { resources, more: cut, proof: None }
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
        Page { resources, more, proof: None }
    }

    fn names(page: &Page) -> Vec<&str> {
        page.resources.iter().map(|resource| &*resource.name).collect()
    }

    #[test]
    fn a_merged_page_goes_no_further_than_is_known() {
        let merged = merge(vec![page(&["b", "c"], true), page(&["a", "d"], false)], 2);
        assert_eq!((names(&merged), merged.more), (vec!["a", "b"], true));

        // A source may give less than it was asked for; what it has further on is not known.
        let merged = merge(vec![page(&["b"], true), page(&["a", "d"], false)], 9);
        assert_eq!((names(&merged), merged.more), (vec!["a", "b"], true));

        let merged = merge(vec![page(&["b"], false), page(&["a", "b"], false)], 9);
        assert_eq!((names(&merged), merged.more), (vec!["a", "b"], false));
    }
}
