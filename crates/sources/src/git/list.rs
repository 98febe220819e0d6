//! Lists the files of a repository and the children of a directory.

use gix::objs::tree::EntryKind;
use jiff::Timestamp;
use libris_core::{Error, Page, Resource, Result, Uri};

use super::address::GitTarget;
use super::describe::Describe;
use super::read::{PathReader, base};
use super::repo::Objects;
use super::walk::{TreeItem, Walk, join};
use super::{Inner, LISTED, answer, ref_evidence, rev};

impl Inner {
    /// One page of the resources: the files at [`LISTED`], the log and the refs.
    pub(super) fn list(&self, objects: &Objects<'_>, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let mut page = Page::default();
        let seen = ref_evidence::RefEvidence::of(objects, LISTED);
        let resolved = rev::resolve(objects, LISTED)?;
        page.freshness = self.freshness(seen.prove());
        let node = resolved.as_ref().map(|resolved| objects.node(resolved.commit)).transpose()?;
        let time = node.as_ref().and_then(|node| Timestamp::from_second(node.time).ok());
        let is_after = |uri: &Uri| after.is_none_or(|after| uri > after);
        let pages = [
            self.space.log(LISTED).filter(|_| resolved.is_some()).map(|uri| (uri, "log", "Log")),
            self.space.refs().map(|uri| (uri, "refs", "Refs")),
        ];
        for (uri, name, title) in pages.into_iter().flatten().filter(|(uri, ..)| is_after(uri)) {
            let mut resource = Resource::new(uri, name);
            resource.title = Some(format!("{title} of {}", self.title()));
            resource.mime = Some(answer::MARKDOWN.into());
            resource.annotations.last_modified = time.filter(|_| name == "log");
            page.resources.push(resource);
        }
        if page.resources.len() > limit {
            page.resources.truncate(limit);
            page.more = true;
            return Ok(page);
        }
        let (Some(resolved), Some(node)) = (resolved, node) else { return Ok(page) };
        let Some(root) = self.space.place(LISTED, "") else { return Ok(page) };
        let after = match after.map(Uri::as_str) {
            Some(after) => match after.strip_prefix(root.as_str()) {
                Some(path) => Some(path),
                None if *after < *root.as_str() => None,
                None => return Ok(page),
            },
            None => None,
        };
        let mut walk = Walk::new(objects, &self.filter, node.tree, after)?;
        let mut items = Vec::new();
        while let Some(item) = walk.step()? {
            // A resource whose URI would be too long cannot be requested.
            if self.space.place(LISTED, &item.key).is_none() {
                continue;
            }
            if page.resources.len() + items.len() == limit {
                page.more = true;
                break;
            }
            items.push(item);
        }
        page.resources.extend(self.describe(objects, LISTED, resolved.commit, items)?);
        Ok(page)
    }

    /// One page of the entries of a directory.
    pub(super) fn children(
        &self,
        objects: &Objects<'_>,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
    ) -> Result<Page> {
        let not_found = || Error::NotFound(uri.clone());
        let asked = self.space.parse(uri).ok_or_else(not_found)?;
        let GitTarget::Place { rev, path } = asked.what else { return Err(Error::NotDirectory(uri.clone())) };
        let resolved = rev::resolve(objects, rev)?.ok_or_else(not_found)?;
        let reader = PathReader { inner: self, objects, uri, rev, path };
        let found = reader.find(objects.node(resolved.commit)?.tree)?.ok_or_else(not_found)?;
        if found.entry.kind != EntryKind::Tree {
            return Err(Error::NotDirectory(uri.clone()));
        }
        let directory = objects.directory(found.entry.id)?;
        let base = base(path);
        let own = self.space.place(rev, &base).ok_or_else(not_found)?;
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
            if !shown || self.space.place(rev, &item.key).is_none() {
                continue;
            }
            if items.len() == limit {
                page.more = true;
                break;
            }
            items.push(item);
        }
        page.resources = self.describe(objects, rev, resolved.commit, items)?;
        Ok(page)
    }

    fn describe(
        &self,
        objects: &Objects<'_>,
        rev: &str,
        commit: gix::ObjectId,
        items: Vec<TreeItem>,
    ) -> Result<Vec<Resource>> {
        let window = objects.window(commit)?;
        let mut describe = Describe::new(objects);
        let mut resources = Vec::with_capacity(items.len());
        for item in &items {
            let Some(uri) = self.space.place(rev, &item.key) else { continue };
            let name = match &*item.path {
                b"" => self.name.as_bytes(),
                path => path.rsplit(|byte| *byte == b'/').next().unwrap_or_default(),
            };
            let mut resource = describe.resource(uri, name, item.entry, window.time(&item.path))?;
            if item.path.is_empty() {
                resource.title.clone_from(&self.config.title);
                resource.description.clone_from(&self.config.description);
            }
            resources.push(resource);
        }
        Ok(resources)
    }
}
