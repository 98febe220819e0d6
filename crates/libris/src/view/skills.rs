//! The skills that a caller may see.

use libris_core::{Context, Error, Freshness, Result, Skill, SkillPage, SkillResources, Uri};

use super::ViewSnapshot;
use crate::rights::Operation;

impl ViewSnapshot<'_> {
    /// One page of at most `limit` skills after `after`: those whose `SKILL.md` the caller may list and read, with the
    /// files that it may read. Hidden skills do not shorten a page.
    pub async fn skills(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<SkillPage> {
        if self.rights.are_everything() {
            return self.source.skills(after, limit, context).await;
        }
        let (mut visible, mut freshness) = (SkillPage::default(), None);
        let mut last = after.cloned();
        // Read one skill more than fits, so that `more` is exact and no cursor leads to an empty page.
        loop {
            let page = self.source.skills(last.as_ref(), limit, context).await;
            let page = page.map_err(|error| self.redacted(error))?;
            last = page.skills.last().map(|last| last.uri.clone());
            freshness = Some(match freshness {
                None => page.freshness,
                Some(before) => Freshness::and(before, page.freshness),
            });
            for source in page.unavailable {
                if !visible.unavailable.contains(&source) {
                    visible.unavailable.push(source);
                }
            }
            let listed = page.skills.into_iter().filter(|skill| self.allows(Operation::List, &skill.uri));
            visible.skills.extend(listed.filter_map(|skill| self.visible_skill(skill)));
            visible.more = visible.skills.len() > limit;
            if !page.more || visible.more || last.is_none() {
                break;
            }
        }
        visible.skills.truncate(limit);
        Ok(SkillPage { freshness: freshness.unwrap_or_default(), ..visible })
    }

    /// The skill whose `SKILL.md` is at `uri`, listed or not, with the files that the caller may read.
    pub async fn skill(&self, uri: &Uri, context: &Context) -> Result<(Skill, Freshness)> {
        if self.rights.are_everything() {
            return self.source.skill(uri, context).await;
        }
        if !self.allows(Operation::Read, uri) {
            return Err(Error::NotFound(uri.clone()));
        }
        let skill = self.source.skill(uri, context).await;
        let (skill, freshness) = skill.map_err(|error| self.redacted(error))?;
        match self.visible_skill(skill) {
            Some(skill) => Ok((skill, freshness)),
            None => Err(Error::NotFound(uri.clone())),
        }
    }

    /// A skill with only the files that the caller may read; `None` if the `SKILL.md` is not one of them, because the
    /// front matter of the skill is part of it.
    fn visible_skill(&self, mut skill: Skill) -> Option<Skill> {
        if !self.allows(Operation::Read, &skill.uri) {
            return None;
        }
        if let SkillResources::Files(files) = &mut skill.resources {
            files.retain(|file| self.allows(Operation::Read, &file.uri));
        }
        Some(skill)
    }
}
