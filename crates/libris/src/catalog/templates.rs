//! The templates of all sources, and completion of their variables.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use libris_core::{
    Completion, CompletionRequest, Context, Error, Freshness, Proof, Result, Template, Templates,
    UnavailableSource, Uri,
};

use super::merge::merged_freshness;
use super::{Catalog, Sources};
use crate::gate::{GatedSource, SourceRole};
use crate::lock::lock;
use crate::query::{self, SourceResponse, gathered, quoted};
use crate::{routing, unserved};

/// The templates of all sources.
pub(super) struct MergedTemplates {
    /// Sorted by text, without duplicates.
    templates: Vec<Template>,
    /// The source that completes each template, by the text of the template.
    owners: HashMap<Box<str>, GatedSource>,
    freshness: Freshness,
    unavailable: Vec<UnavailableSource>,
}

impl Catalog {
    /// The merged templates of all sources, from the cache while their proof holds.
    async fn merged_templates(&self, context: &Context) -> Result<Arc<MergedTemplates>> {
        let cached = lock(&self.templates).clone();
        if let Some(cached) =
            cached.filter(|cached| cached.freshness.proof.as_ref().is_some_and(Proof::holds))
        {
            return Ok(cached);
        }
        let (sources, proof) = self.sources_for_list();
        let (mut all, mut owners) = (Vec::new(), HashMap::new());
        let (mut fresh, mut missing) = (Vec::new(), Vec::new());
        let mut claimed_twice: HashSet<Box<str>> = HashSet::new();
        let queries = sources.iter().map(|gated| gated.templates(context, self.config));
        let answers = query::all(queries.collect()).await?;
        for (gated, Templates { templates, freshness, unavailable }) in gathered(&sources, answers)? {
            fresh.extend(gated.contributed(freshness));
            missing.extend(unavailable);
            for template in templates {
                match owners.entry(Box::<str>::from(template.uri.as_str())) {
                    Entry::Vacant(entry) => _ = entry.insert(gated.clone()),
                    // Like a resource, a template that an exclusive source shares with another source is served from
                    // neither.
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
        let merged = Arc::new(MergedTemplates {
            templates: all,
            owners,
            freshness: merged_freshness(fresh, proof),
            unavailable: missing,
        });
        // Templates that depend on the caller's identity must not be cached for others.
        if !context.identity_was_used() {
            *lock(&self.templates) = Some(merged.clone());
        }
        Ok(merged)
    }

    /// The templates of all sources, sorted by text.
    pub(super) async fn template_list(&self, context: &Context) -> Result<Templates> {
        let merged = self.merged_templates(context).await?;
        let MergedTemplates { templates, freshness, unavailable, .. } = &*merged;
        Ok(Templates {
            templates: templates.clone(),
            freshness: freshness.clone(),
            unavailable: unavailable.clone(),
        })
    }

    /// Asks the source that has the template to complete one of its variables.
    pub(super) async fn complete_template(
        &self,
        partial: CompletionRequest<'_>,
        context: &Context,
    ) -> Result<Completion> {
        let merged = self.merged_templates(context).await?;
        let Some(gated) = merged.owners.get(partial.template.as_str()) else {
            let missing = merged.unavailable.iter().map(|unavailable| &*unavailable.source);
            return Err(match quoted(missing) {
                names if names.is_empty() => Error::invalid(format!(
                    "unknown template `{}`; `resources/templates/list` has the templates",
                    partial.template
                )),
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
        let proof = completion.proof.clone().zip(merged.freshness.proof.clone());
        Ok(completion.with_proof(proof.map(|(completed, owned)| completed.and(owned))))
    }

    /// The error for a URI that no source covers. Callers with all rights get a hint that names the closest URIs or the
    /// roots that the sources serve.
    pub(super) async fn unserved(&self, sources: &Sources, uri: &Uri, context: &Context) -> Error {
        /// The largest number of resources per source without templates that are compared with the URI.
        const MAX_COMPARED: usize = 100;
        if !context.sees_everything() {
            return Error::NotFound(uri.clone());
        }
        let Ok(merged) = self.merged_templates(context).await else { return Error::NotFound(uri.clone()) };
        let has_templates =
            |gated: &GatedSource| merged.owners.values().any(|owner| owner.is(gated.source()));
        let content = sources.iter().filter(|gated| gated.role() == SourceRole::Content);
        let fixed = content.filter(|gated| !has_templates(gated));
        let lists = fixed.map(|gated| gated.list(None, MAX_COMPARED, context, self.config));
        let pages = query::all(lists.collect()).await.unwrap_or_default();
        let resources = pages.iter().flat_map(|answer| match answer {
            SourceResponse::Current(page) | SourceResponse::LastKnown(page, _) => &page.resources[..],
            SourceResponse::Missing { .. } => &[],
        });
        let resources: Vec<_> = resources.map(|resource| &resource.uri).collect();
        let templates: Vec<_> = merged.templates.iter().map(|template| &template.uri).collect();
        unserved::missing(uri, &templates, &resources)
    }
}
