//! Lists the files of a repository and the children of a directory.

use gix::objs::tree::EntryKind;
use jiff::Timestamp;
use libris_core::{Error, Page, Resource, Result, Uri};

use super::address::GitTarget;
use super::describe::EntryDescriber;
use super::read::{PathReader, base};
use super::repo::TaskRepository;
use super::walk::{GitTreeWalk, TreeItem, join};
use super::{GitInner, LISTED_REV, contents, ref_evidence, rev};

impl GitInner {
    /// One page of the resources: the refs, the log, the status and diffs of the working tree, and the files and
    /// directories at [`LISTED_REV`].
    pub(super) fn list(
        &self,
        repository: &TaskRepository<'_>,
        after: Option<&Uri>,
        limit: usize,
    ) -> Result<Page> {
        let mut page = Page::default();
        let seen = ref_evidence::RefEvidence::of(repository, LISTED_REV);
        let resolved = rev::resolve(repository, LISTED_REV)?;
        page.freshness = self.freshness(seen.prove());
        let node = resolved.as_ref().map(|resolved| repository.node(resolved.commit)).transpose()?;
        let time = node.as_ref().and_then(|node| Timestamp::from_second(node.time).ok());
        let is_after = |uri: &Uri| after.is_none_or(|after| uri > after);
        let work = |uri: Option<Uri>| uri.filter(|_| self.has_work_tree);
        // In URI order, and before all files, whose URIs begin with `tree/`.
        let pages = [
            (work(self.space.staged()), "diff-staged", "Staged changes", contents::DIFF),
            (work(self.space.unstaged()), "diff-worktree", "Unstaged changes", contents::DIFF),
            (self.space.log(LISTED_REV).filter(|_| resolved.is_some()), "log", "Log", contents::MARKDOWN),
            (self.space.refs(), "refs", "Refs", contents::MARKDOWN),
            (work(self.space.status()), "status", "Status", contents::MARKDOWN),
        ];
        for (uri, name, title, mime) in pages {
            let Some(uri) = uri.filter(is_after) else { continue };
            let mut resource = Resource::new(uri, name);
            resource.title = Some(format!("{title} of {}", self.title()));
            resource.mime = Some(mime.into());
            resource.annotations.last_modified = time.filter(|_| name == "log");
            page.resources.push(resource);
        }
        if page.resources.len() > limit {
            page.resources.truncate(limit);
            page.more = true;
            return Ok(page);
        }
        let (Some(resolved), Some(node)) = (resolved, node) else { return Ok(page) };
        let Some(root) = self.space.path_uri(LISTED_REV, "") else { return Ok(page) };
        let after = match after.map(Uri::as_str) {
            Some(after) => match after.strip_prefix(root.as_str()) {
                Some(path) => Some(path),
                None if *after < *root.as_str() => None,
                None => return Ok(page),
            },
            None => None,
        };
        let mut walk = GitTreeWalk::new(repository, &self.filter, node.tree, after)?;
        let mut items = Vec::new();
        while let Some(item) = walk.step()? {
            // A resource whose URI would be too long cannot be requested.
            if self.space.path_uri(LISTED_REV, &item.key).is_none() {
                continue;
            }
            if page.resources.len() + items.len() == limit {
                page.more = true;
                break;
            }
            items.push(item);
        }
        page.resources.extend(self.describe(repository, LISTED_REV, resolved.commit, &items)?);
        Ok(page)
    }

    /// One page of the entries of a directory.
    pub(super) fn children(
        &self,
        repository: &TaskRepository<'_>,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
    ) -> Result<Page> {
        let not_found = || Error::NotFound(uri.clone());
        let asked = self.space.parse(uri).ok_or_else(not_found)?;
        let GitTarget::Path { rev, path } = asked.target else {
            return Err(Error::NotDirectory(uri.clone()));
        };
        let resolved = rev::resolve(repository, rev)?.ok_or_else(not_found)?;
        let reader = PathReader { inner: self, repository, uri, rev, path };
        let found = reader.find(repository.node(resolved.commit)?.tree)?.ok_or_else(not_found)?;
        if found.entry.kind != EntryKind::Tree {
            return Err(Error::NotDirectory(uri.clone()));
        }
        let directory = repository.directory(found.entry.id)?;
        let base = base(path);
        let own = self.space.path_uri(rev, &base).ok_or_else(not_found)?;
        let first = match after.map(Uri::as_str) {
            None => 0,
            Some(after) => match after.strip_prefix(own.as_str()) {
                Some(key) => directory.after(key),
                None if *after < *own.as_str() => 0,
                None => directory.entries().len(),
            },
        };
        let mut items = Vec::new();
        let mut page = Page { freshness: self.freshness(resolved.proof), ..Page::default() };
        for (key, entry) in &directory.entries()[first..] {
            let item = TreeItem { key: format!("{base}{key}"), path: join(&found.path, key), entry: *entry };
            let shown = self.filter.shows(&item.path, entry.kind == EntryKind::Tree);
            if !shown || self.space.path_uri(rev, &item.key).is_none() {
                continue;
            }
            if items.len() == limit {
                page.more = true;
                break;
            }
            items.push(item);
        }
        page.resources = self.describe(repository, rev, resolved.commit, &items)?;
        Ok(page)
    }

    /// Describes entries at a commit as resources, in the same order. The caller has left out entries whose URI would
    /// be too long.
    pub(super) fn describe(
        &self,
        repository: &TaskRepository<'_>,
        rev: &str,
        commit: gix::ObjectId,
        items: &[TreeItem],
    ) -> Result<Vec<Resource>> {
        let times = repository.modification_times(commit)?;
        let mut describe = EntryDescriber::new(repository);
        let mut resources = Vec::with_capacity(items.len());
        for item in items {
            let Some(uri) = self.space.path_uri(rev, &item.key) else { continue };
            let name = match &*item.path {
                b"" => self.name.as_bytes(),
                path => path.rsplit(|byte| *byte == b'/').next().unwrap_or_default(),
            };
            let mut resource = describe.resource(uri, name, item.entry, times.time(&item.path))?;
            if item.path.is_empty() {
                resource.title.clone_from(&self.config.title);
                resource.description.clone_from(&self.config.description);
            }
            resources.push(resource);
        }
        Ok(resources)
    }
}
