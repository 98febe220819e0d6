//! Reading a folder: a listing, followed by small text files.
//!
//! Two kinds of callers read folders. Models need to find a file: they get one Markdown table, with a link to each
//! child, and in a folder without subfolders the text of a few small files. VS Code shows a folder as a directory of
//! its virtual file system. It takes the directory entries from the URIs of the parts of the response:
//!
//! - VS Code removes the slash at the end of the folder's URI before it reads.
//! - A part whose URI equals the one that was read is not an entry. It is shown if the folder is opened as a document.
//! - A part whose URI is one segment below the folder is a file, or a directory if the part is empty.
//! - A part with more segments, such as `c/` below the folder, is a directory.
//!
//! So the listing has the URI that was read. A read without the slash also returns a part for every child of the
//! page: its text if that is small, otherwise a summary such as `image/png, 275,000 bytes`. A read with the
//! slash, as in lists and links, returns only the listing and the parts with text. No part is empty.

use std::io;

use libris_core::{Content, ContentBody, DIRECTORY, Error, Result, Uri};

use super::describe::timestamp;
use super::read::{FileReader, read_up_to};
use crate::folder_listing::{FolderListing, FolderQuery, FollowingContents, ListedChild};
use crate::media::{self, ContentClass};
use crate::meta;
use crate::tree::walk::{self, FileEntry};
use crate::tree::{DirectoryHandle, NameList, OpenFolder, ProofBuilder, SubtreeSearch, check_cancelled};

/// A page of a listing gets no further row once its rows have more than this many bytes together.
const MAX_LISTING_BYTES: usize = 32 * 1024;

/// The largest file whose text follows a listing, in bytes.
const MAX_SMALL_FILE: u64 = 4 * 1024;

/// The priority of a child without a configured priority.
const DEFAULT_PRIORITY: f64 = 0.5;

/// A page of the children of a folder.
struct FolderPage {
    /// By priority, and then by name.
    children: Vec<ListedChild>,
    /// The entry of each child that is a file.
    entries: Vec<Option<FileEntry>>,
    /// The URI of the next page.
    next: Option<Uri>,
    /// The number of children after this page, if known.
    more: Option<usize>,
}

impl FileReader<'_> {
    /// The listing of the children that the caller may see, and the text of small files.
    pub(super) fn read_folder(
        &self,
        folder: &OpenFolder,
        query: &FolderQuery,
        proof: &mut ProofBuilder,
    ) -> Result<Vec<Content>> {
        proof.add_directory(folder);
        let inner = self.inner;
        let own = inner.uri(&folder.logical.key).ok_or_else(|| Error::NotFound(self.uri.clone()))?;
        let names = inner.tree.names(folder).map_err(|cause| self.read_error(cause))?;
        let page =
            self.folder_page(folder, &names, &own, query, proof).map_err(|cause| self.read_error(cause))?;
        let title = inner.folder_title(folder);
        let listing = FolderListing {
            folder: &own,
            query,
            title: &title,
            children: &page.children,
            next: page.next.as_ref(),
            more: page.more,
        };
        let listing = listing.content(self.uri.clone());
        let mut left = match query.contents(&page.children, page.next.is_some()) {
            FollowingContents::Text => inner.config.directory_bytes.saturating_sub(listing.body.len() as u64),
            FollowingContents::Nothing => 0,
        };
        let as_directory = self.reads_as_directory();
        let mut parts = vec![listing];
        for (child, entry) in page.children.iter().zip(page.entries) {
            let text = match entry {
                Some(entry) if self.context.reads(&child.uri) => self
                    .small_text(folder, &entry, child, &mut left)
                    .map_err(|cause| self.read_error(cause))?,
                _ => None,
            };
            parts.extend(match text {
                Some(text) => Some(Content::text(child.uri.clone(), child.kind.clone(), text)),
                None if as_directory => Some(summary(child)),
                None => None,
            });
        }
        Ok(parts)
    }

    /// Whether the folder is read without the slash, as VS Code reads directories.
    fn reads_as_directory(&self) -> bool {
        self.uri.query().is_none() && !self.uri.path().ends_with('/')
    }

    /// The page of the listing that the query selects. `own` is the URI of the folder.
    fn folder_page(
        &self,
        folder: &OpenFolder,
        names: &NameList,
        own: &Uri,
        query: &FolderQuery,
        proof: &mut ProofBuilder,
    ) -> io::Result<FolderPage> {
        let limit = self.inner.config.directory_entries.max(1);
        let first = query.after.as_deref().map_or(0, |after| first_after(names, after));
        let mut page = FolderPage { children: Vec::new(), entries: Vec::new(), next: None, more: None };
        let mut listed: Vec<(f64, &str, ListedChild, Option<FileEntry>)> = Vec::new();
        let mut bytes = 0;
        let mut search = SubtreeSearch::new(&self.inner.tree);
        for (position, key) in (first..).zip(names.iter_from(first)) {
            // A caller with few rights may see none of a million entries.
            check_cancelled()?;
            if !query.selects(key) || !self.sees(folder, key) {
                continue;
            }
            // Determined even if the page is full: there is a next page only if another child is listed.
            let Some((child, entry)) = self.list_child(folder, key, &mut search, proof)? else { continue };
            if listed.len() == limit || bytes > MAX_LISTING_BYTES {
                let fitted = listed.len();
                listed.truncate(query.shortened(fitted, self.reads_as_directory()));
                page.next = listed.last().and_then(|(_, key, ..)| query.next(own, &decoded(key)?));
                // All names that follow are counted, so the number is known only if the caller sees all of them and the
                // listing contains all of them.
                let counts_all = self.context.sees_everything()
                    && self.inner.config.include.is_empty()
                    && !query.has_match();
                page.more = counts_all.then(|| names.len() - position + fitted - listed.len());
                break;
            }
            bytes += child.row_bytes();
            let path = folder.logical.path.join(&child.name);
            let priority = self.inner.describe.priority(&path, entry.is_none()).unwrap_or(DEFAULT_PRIORITY);
            listed.push((priority, key, child, entry));
        }
        // Only the children of one page are sorted by priority. The pages themselves are in the order of names,
        // so that no child is skipped when files change.
        listed.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
        for (_, _, child, entry) in listed {
            page.children.push(child);
            page.entries.push(entry);
        }
        Ok(page)
    }

    /// A child as it is listed; `None` if it is gone, cannot be read or is not listed.
    fn list_child(
        &self,
        folder: &OpenFolder,
        key: &str,
        search: &mut SubtreeSearch<'_>,
        proof: &mut ProofBuilder,
    ) -> io::Result<Option<(ListedChild, Option<FileEntry>)>> {
        let tree = &self.inner.tree;
        if key.ends_with('/') {
            let child = walk::open_listed_folder(tree, folder, key, Some(proof))?;
            let Some(child) = child else { return Ok(None) };
            if !search.lists(&child, proof)? {
                return Ok(None);
            }
            let Some(uri) = self.inner.uri(&child.logical.key) else { return Ok(None) };
            let name = child.logical.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Without the modification time: it changes without an event in the folder itself, so the proof would not
            // cover it.
            let (size, modified, title) = (None, None, None);
            let child = ListedChild { name, uri, kind: DIRECTORY.into(), size, modified, title };
            return Ok(Some((child, None)));
        }
        let Some(entry) = walk::file_entry(tree, folder, key)? else { return Ok(None) };
        let Some(uri) = self.inner.uri(&entry.key) else { return Ok(None) };
        let metadata = self.inner.describe.content_metadata(tree, folder, &entry)?;
        if entry.hard_linked || !metadata.complete {
            proof.invalidate();
        }
        let child = ListedChild {
            name: entry.name.to_string_lossy().into_owned(),
            uri,
            kind: metadata.mime.into(),
            size: Some(entry.stamp.size),
            modified: entry.stamp.modified.and_then(timestamp),
            title: metadata.head.and_then(|head| head.title.clone()),
        };
        Ok(Some((child, Some(entry))))
    }

    /// The text of a small text file, if it fits into `left` bytes. Subtracts its length from `left`.
    fn small_text(
        &self,
        folder: &OpenFolder,
        entry: &FileEntry,
        child: &ListedChild,
        left: &mut u64,
    ) -> io::Result<Option<String>> {
        let limit = MAX_SMALL_FILE.min(self.inner.config.max_size).min(*left);
        let size = entry.stamp.size;
        // SVG counts as text, but models cannot use its source.
        let is_text =
            !child.kind.starts_with("image/") && media::content_class(&child.kind) != ContentClass::Binary;
        if size == 0 || size > limit || !is_text {
            return Ok(None);
        }
        let tree = &self.inner.tree;
        let (file, _) = match tree.with_target(folder, &entry.name, DirectoryHandle::open) {
            Ok(opened) => opened,
            Err(cause) => return walk::skip_unreadable(tree, &entry.key, cause).map(|()| None),
        };
        // The file may have grown since it was listed.
        let Some(data) = read_up_to(&file.into_std(), size, limit)? else { return Ok(None) };
        match media::body(data, &child.kind) {
            // Transcoded text may be longer than the file.
            ContentBody::Text(text) if !text.is_empty() && text.len() as u64 <= *left => {
                *left -= text.len() as u64;
                Ok(Some(text))
            }
            _ => Ok(None),
        }
    }

    /// Whether the caller may see an entry of a directory.
    fn sees(&self, folder: &OpenFolder, key: &str) -> bool {
        let uri = || self.inner.uri(&format!("{}{key}", folder.logical.key));
        self.context.sees_everything() || uri().is_some_and(|uri| self.context.sees(&uri))
    }
}

/// A part in place of a child whose text is not included.
fn summary(child: &ListedChild) -> Content {
    let summary = child.summary();
    if child.kind == DIRECTORY {
        return Content::text(child.uri.clone(), DIRECTORY, summary);
    }
    let meta = Some(meta::with(meta::OMITTED, summary.as_str()));
    Content { meta, ..Content::text(child.uri.clone(), "text/plain", summary) }
}

/// The index of the first name after a child with this decoded name, whether or not there is such a child.
fn first_after(names: &NameList, name: &[u8]) -> usize {
    let file = Uri::encode_segment(name.strip_suffix(b"/").unwrap_or(name));
    let folder = format!("{file}/");
    let before_folder = names.partition_point(|name| *name < *folder);
    match names.get(before_folder) == Some(folder.as_str()) {
        true => before_folder + 1,
        false => names.partition_point(|name| *name <= *file),
    }
}

/// The decoded name of a key, without the slash of a directory.
fn decoded(key: &str) -> Option<Vec<u8>> {
    Uri::decode_segment(key.strip_suffix('/').unwrap_or(key))
}
