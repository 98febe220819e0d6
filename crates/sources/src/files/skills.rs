//! The skills in a folder, published with the URIs of its files.

use libris_core::{Error, Freshness, Result, Skill, SkillPage, Uri};

use super::{Config, FilesInner};
use crate::skill_tree::{SkillOptions, SkillTree};

/// Finds the skills in a folder, whose URIs begin with `prefix`.
pub(super) fn find_in(config: &Config, prefix: &str) -> SkillTree {
    let root_name = prefix.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    SkillTree::new(SkillOptions { root_name, max_size: config.max_size, ..SkillOptions::default() })
}

impl FilesInner {
    pub(super) fn skill_page(&self, after: Option<&Uri>, limit: usize) -> Result<SkillPage> {
        let Some(skills) = &self.skills else { return Ok(SkillPage::default()) };
        let mut page = skills.page(&self.tree, &|key| self.uri(key), after, limit)?;
        page.freshness = self.freshness(page.freshness.proof);
        Ok(page)
    }

    pub(super) fn skill(&self, uri: &Uri) -> Result<(Skill, Freshness)> {
        let not_found = || Error::NotFound(uri.clone());
        let key = self.path(uri).filter(|_| uri.query().is_none()).ok_or_else(not_found)?;
        let skills = self.skills.as_ref().ok_or_else(not_found)?;
        let found = skills.skill(&self.tree, &|key| self.uri(key), key)?;
        let (skill, freshness) = found.ok_or_else(not_found)?;
        Ok((skill, self.freshness(freshness.proof)))
    }
}
