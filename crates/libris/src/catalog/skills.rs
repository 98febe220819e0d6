//! The skills of all sources.

use libris_core::{Context, Error, Freshness, Result, Skill, SkillPage, Uri};

use super::Catalog;
use super::merge::{merge_sorted, merged_freshness};
use crate::query::{self, gathered};

impl Catalog {
    /// One page of the skills of all sources, in URI order.
    pub(super) async fn merged_skills(
        &self,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<SkillPage> {
        let (sources, proof) = self.sources_for_list();
        let queries = sources.iter().map(|gated| gated.skills(after, limit, context, self.config));
        let answers = query::all(queries.collect()).await?;
        let (mut fresh, mut unavailable, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        for (gated, page) in gathered(&sources, answers)? {
            // The freshness of a source without skills counts too. Otherwise the TTL would reveal, to a caller from
            // whom its skills are hidden, whether the source has any.
            fresh.extend(gated.contributed(page.freshness));
            unavailable.extend(page.unavailable);
            pages.push((page.skills, page.more));
        }
        let (skills, more) = merge_sorted(pages, limit, |skill: &Skill| &skill.uri);
        Ok(SkillPage { skills, more, freshness: merged_freshness(fresh, proof), unavailable })
    }

    /// The skill at a URI, from the most specific source that has it.
    pub(super) async fn find_skill(&self, uri: &Uri, context: &Context) -> Result<(Skill, Freshness)> {
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
}
