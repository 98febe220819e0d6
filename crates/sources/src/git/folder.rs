//! Reads a folder: a listing, followed by small text files.
//!
//! The first part of the response is the listing, with the URI that was read. VS Code shows a folder as a
//! directory: it removes the slash at the end of the URI before it reads, and takes the entries from the URIs of
//! the further parts. So a read without the slash also returns one part for each child on the page: the text of a
//! small text file, otherwise a summary. With the slash (as in lists and links), or with a query, there are no
//! summaries. No part is empty.

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::{Content, ContentBody, Context, DIRECTORY, Error, Resource, Result, Uri};

use super::read::{FoundEntry, PathReader, base, content};
use super::rev;
use super::tree_listing::{TreeListing, name};
use super::walk::{TreeItem, join};
use crate::folder_listing::{FolderListing, FolderQuery, FollowingContents, ListedChild};
use crate::media::{self, ContentClass};
use crate::meta;

/// A page of a listing ends after the first row with which the listing exceeds this many bytes.
const MAX_LISTING_BYTES: usize = 32 * 1024;

/// The largest file whose text follows a listing, in bytes.
const MAX_SMALL_FILE: u64 = 4 * 1024;

/// A page of the children of a folder.
struct GitFolderPage {
    items: Vec<TreeItem>,
    children: Vec<ListedChild>,
    /// The number of children after this page.
    more: usize,
}

impl PathReader<'_> {
    /// The listing of the children that the caller may see, and the text of small files.
    pub(super) fn folder(
        &self,
        found: &FoundEntry,
        commit: ObjectId,
        query: &FolderQuery,
        context: &Context,
    ) -> Result<Vec<Content>> {
        let own = self.inner.space.path_uri(self.rev, &base(self.path));
        let own = own.ok_or_else(|| Error::NotFound(self.uri.clone()))?;
        let page = self.folder_page(found, commit, query, context)?;
        let last = page.items.last().filter(|_| page.more > 0);
        let last = last.and_then(|item| item.path.rsplit(|byte| *byte == b'/').next());
        let next = last.and_then(|last| query.next(&own, last));
        let title = self.folder_title(&found.path)?;
        let listing = FolderListing {
            folder: &own,
            query,
            title: &title,
            children: &page.children,
            next: next.as_ref(),
            more: Some(page.more),
        };
        let listing = listing.content(self.uri.clone());
        let mut left = match query.contents(&page.children, next.is_some()) {
            FollowingContents::Text => {
                self.inner.config.directory_bytes.saturating_sub(listing.body.len() as u64)
            }
            FollowingContents::Nothing => 0,
        };
        let as_directory = self.reads_as_directory();
        let mut held = self.repository.hold(listing.body.len() as u64)?;
        let mut parts = vec![listing];
        for (child, item) in page.children.iter().zip(&page.items) {
            let text = match context.reads(&child.uri) {
                true => self.small_text(child, item, &mut left)?,
                false => None,
            };
            let part = match text {
                None if as_directory => Some(summary(child)),
                text => text,
            };
            if let Some(part) = part {
                held.grow(part.body.len() as u64)?;
                parts.push(part);
            }
        }
        Ok(parts)
    }

    /// Whether the folder is read without the slash, as VS Code reads directories.
    fn reads_as_directory(&self) -> bool {
        self.uri.query().is_none() && !self.uri.path().ends_with('/')
    }

    fn folder_title(&self, path: &[u8]) -> Result<String> {
        let rev = rev::decode(self.rev)?;
        Ok(match path {
            b"" => format!("{} at {rev}", self.inner.title()),
            path => format!("{}/ at {rev}", String::from_utf8_lossy(path)),
        })
    }

    fn folder_page(
        &self,
        found: &FoundEntry,
        commit: ObjectId,
        query: &FolderQuery,
        context: &Context,
    ) -> Result<GitFolderPage> {
        let directory = self.repository.directory(found.entry.id)?;
        let base = base(self.path);
        let first = query.after.as_deref().map_or(0, |after| first_after(&directory, after));
        let limit = self.inner.config.directory_entries.max(1);
        let (mut items, mut more) = (Vec::new(), 0);
        for (key, entry) in directory.entries()[first..].iter().filter(|(key, _)| query.selects(key)) {
            let item = TreeItem { key: format!("{base}{key}"), path: join(&found.path, key), entry: *entry };
            let uri = self.inner.space.path_uri(self.rev, &item.key);
            let is_visible = uri.is_some_and(|uri| context.sees_everything() || context.sees(&uri));
            if !is_visible || !self.inner.filter.shows(&item.path, entry.kind == EntryKind::Tree) {
                continue;
            }
            match items.len() < limit {
                true => items.push(item),
                false => more += 1,
            }
        }
        let resources = self.inner.describe(self.repository, self.rev, commit, &items)?;
        let mut children: Vec<_> =
            resources.into_iter().zip(&items).map(|(resource, item)| listed(resource, item)).collect();
        let mut bytes = 0;
        let fits = |child: &&ListedChild| {
            let before = bytes;
            bytes += child.row_bytes();
            before <= MAX_LISTING_BYTES
        };
        let mut count = children.iter().take_while(fits).count();
        if more > 0 || count < children.len() {
            count = query.shortened(count, self.reads_as_directory());
        }
        more += children.len() - count;
        children.truncate(count);
        items.truncate(count);
        Ok(GitFolderPage { items, children, more })
    }

    /// The text of a child, if the child is a small text file, is not empty, and fits into `left` bytes.
    /// Subtracts its length from `left`.
    fn small_text(&self, child: &ListedChild, item: &TreeItem, left: &mut u64) -> Result<Option<Content>> {
        let is_file = matches!(item.entry.kind, EntryKind::Blob | EntryKind::BlobExecutable);
        let limit = MAX_SMALL_FILE.min(self.inner.config.max_size).min(*left);
        // A partial clone lacks some blobs, so their sizes are unknown.
        let is_small = child.size.is_some_and(|size| size > 0 && size <= limit);
        if !is_file || !is_small || media::content_class(&child.kind) == ContentClass::Binary {
            return Ok(None);
        }
        let data = self.repository.blob(item.entry.id)?;
        let part = content(child.uri.clone(), &child.name, item.entry.kind, data);
        match &part.body {
            // Transcoded text may be longer than the file.
            ContentBody::Text(text) if !text.is_empty() && text.len() as u64 <= *left => {
                *left -= text.len() as u64;
                Ok(Some(part))
            }
            _ => Ok(None),
        }
    }
}

fn listed(resource: Resource, item: &TreeItem) -> ListedChild {
    let kind = match item.entry.kind {
        EntryKind::Commit => "submodule".into(),
        _ => resource.mime.map_or("application/octet-stream".into(), Into::into),
    };
    ListedChild {
        name: resource.name,
        uri: resource.uri,
        kind,
        size: resource.size,
        modified: resource.annotations.last_modified,
        title: resource.title,
    }
}

/// The part for a child whose text is not included.
fn summary(child: &ListedChild) -> Content {
    let mime = if child.kind == DIRECTORY { DIRECTORY } else { "text/plain" };
    let summary = child.summary();
    let meta = Some(meta::with(meta::OMITTED, summary.as_str()));
    Content { meta, ..Content::text(child.uri.clone(), mime, summary) }
}

/// The index of the first entry after the position of a child with this decoded name. The child need not exist.
fn first_after(directory: &TreeListing, after: &[u8]) -> usize {
    let after = after.strip_suffix(b"/").unwrap_or(after);
    let file = Uri::encode_segment(after);
    // The key of a folder ends with `/`, so that the folder `a` sorts after the file `a.txt`.
    let last = directory.after(&format!("{file}/"));
    let is_folder = last.checked_sub(1).is_some_and(|last| {
        let key = &directory.entries()[last].0;
        key.ends_with('/') && name(key) == after
    });
    if is_folder { last } else { directory.after(&file) }
}
