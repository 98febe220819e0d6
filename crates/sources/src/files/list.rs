//! Lists: pages of all resources of a folder, and of the children of a directory.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libris_core::{Error, Page, Resource, Result, Uri};

use super::describe::ContentMetadata;
use super::{FilesInner, query, read_error};
use crate::tree::walk::{self, Blocking, FileEntry, TreeWalk, WalkItem};
use crate::tree::{NameList, OpenFolder, ProofBuilder, ResolvedPath, SubtreeSearch, Tree};

/// The time after which a prefetch stops at the next item.
const PREFETCH_TIME: Duration = Duration::from_secs(1);

/// A file or directory of a list.
enum ListedItem {
    /// A directory, described when the walk visited it, and its key.
    Folder(Box<Resource>, String),
    File(Arc<OpenFolder>, Box<FileEntry>),
}

/// Iterates over the items of a list: the visible files and directories that `folders`, `include` and `depth`
/// do not exclude.
struct ListedItems<'a> {
    inner: &'a FilesInner,
    walk: TreeWalk<'a>,
    /// With `include`: the visited directories in which no listed file was found yet, each inside the previous one.
    empty: Vec<(Resource, String)>,
    /// Items that the walk has visited and that are not returned yet, the next one last.
    ready: Vec<ListedItem>,
}

impl ListedItems<'_> {
    /// The next listed item.
    fn next(&mut self) -> io::Result<Option<ListedItem>> {
        loop {
            if let Some(item) = self.ready.pop() {
                return Ok(Some(item));
            }
            let config = &self.inner.config;
            let file = match self.walk.next_item()? {
                None => return Ok(None),
                Some(WalkItem::Folder(_)) if !config.folders => continue,
                Some(WalkItem::Folder(folder)) => {
                    let key = folder.logical.key.clone();
                    let Some(resource) = self.inner.describe_folder(folder) else { continue };
                    if config.include.is_empty() || key.is_empty() {
                        return Ok(Some(ListedItem::Folder(Box::new(resource), key)));
                    }
                    self.empty.retain(|(_, above)| key.starts_with(&**above));
                    self.empty.push((resource, key));
                    continue;
                }
                Some(WalkItem::File(folder, entry)) => ListedItem::File(Arc::clone(folder), entry),
            };
            if self.empty.is_empty() {
                return Ok(Some(file));
            }
            // A directory is listed only if a file in it is, and then before that file.
            let above = std::mem::take(&mut self.empty).into_iter().rev();
            let above: Vec<_> = above.filter(|(_, above)| file.key().starts_with(&**above)).collect();
            self.ready.push(file);
            self.ready
                .extend(above.into_iter().map(|(resource, key)| ListedItem::Folder(Box::new(resource), key)));
        }
    }
}

impl ListedItem {
    fn key(&self) -> &str {
        match self {
            Self::Folder(_, key) => key,
            Self::File(_, entry) => &entry.key,
        }
    }
}

impl FilesInner {
    pub(super) fn list(&self, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let root = self.open_root()?;
        let names = self.tree.names(&root).map_err(|cause| self.unavailable(cause))?;
        let page = self.page(root, names, after, limit, Blocking::Allowed);
        page.map_err(|cause| Error::failed("list the folder", cause))
    }

    /// A page, if everything that it needs is cached.
    pub(super) fn list_cached(&self, after: Option<&Uri>, limit: usize) -> Option<Page> {
        let root = self.tree.cached_folder("")?;
        let names = Tree::cached_names(&root)?;
        self.page(root, names, after, limit, Blocking::Refused).ok()
    }

    /// A page of the listed items after a URI. If blocking is refused, fails unless everything is cached.
    fn page(
        &self,
        root: Arc<OpenFolder>,
        names: Arc<NameList>,
        after: Option<&Uri>,
        limit: usize,
        blocking: Blocking,
    ) -> io::Result<Page> {
        let (last, counted) = match self.config.max_listed {
            None => (None, None),
            Some(count) => {
                let (last, proof) = self.last_listed(&root, &names, count, blocking)?;
                (last, Some(proof))
            }
        };
        let Some(mut items) = self.listed_items(root, names, after, blocking)? else {
            return Ok(Page { freshness: self.freshness(None), ..Page::default() });
        };
        let mut page = Page::default();
        let mut complete = true;
        while let Some(item) = items.next()? {
            if last.as_deref().is_some_and(|last| item.key() > last) {
                break;
            }
            if page.resources.len() == limit {
                page.more = true;
                break;
            }
            page.resources.extend(match item {
                ListedItem::Folder(resource, _) => Some(*resource),
                ListedItem::File(folder, entry) => {
                    let metadata = match self.describe.cached_content_metadata(&entry) {
                        Some(metadata) => metadata,
                        None => {
                            blocking.check()?;
                            self.describe.content_metadata(&self.tree, &folder, &entry)?
                        }
                    };
                    complete &= metadata.complete;
                    self.describe_file(&folder, &entry, metadata)
                }
            });
        }
        // A file that could not be read may be readable at the next request, so the page then has no proof.
        let proof = items.walk.into_proof().build().filter(|_| complete);
        page.freshness = self.freshness(match counted {
            None => proof,
            Some(counted) => proof.zip(counted.build()).map(|(proof, counted)| proof.and(counted)),
        });
        Ok(page)
    }

    /// The key of the `count`-th listed item (`None` if there are fewer), and the evidence for this result.
    fn last_listed(
        &self,
        root: &Arc<OpenFolder>,
        names: &Arc<NameList>,
        count: usize,
        blocking: Blocking,
    ) -> io::Result<(Option<String>, ProofBuilder)> {
        let walk = TreeWalk::from_start(&self.tree, Arc::clone(root), Arc::clone(names), blocking);
        let mut items = self.items(walk);
        let mut last = None;
        for _ in 0..count {
            match items.next()? {
                Some(item) => last = Some(item.key().to_owned()),
                None => return Ok((None, items.walk.into_proof())),
            }
        }
        Ok((last, items.walk.into_proof()))
    }

    fn items<'a>(&'a self, walk: TreeWalk<'a>) -> ListedItems<'a> {
        let walk = walk.with_max_depth(self.config.depth.unwrap_or(usize::MAX));
        ListedItems { inner: self, walk, empty: Vec::new(), ready: Vec::new() }
    }

    /// The listed items after a URI; `None` if all of them come before it.
    fn listed_items(
        &self,
        root: Arc<OpenFolder>,
        names: Arc<NameList>,
        after: Option<&Uri>,
        blocking: Blocking,
    ) -> io::Result<Option<ListedItems<'_>>> {
        let walk = match after.map(Uri::as_str) {
            None => TreeWalk::from_start(&self.tree, root, names, blocking),
            Some(after) => match after.strip_prefix(&self.prefix) {
                Some(path) => TreeWalk::after(&self.tree, root, names, path, blocking)?,
                None if *after < *self.prefix => TreeWalk::from_start(&self.tree, root, names, blocking),
                None => return Ok(None),
            },
        };
        Ok(Some(self.items(walk)))
    }

    /// Visits the entries after a URI, so that the next pages are cached when they are requested. Ends before the
    /// first cached entries expire.
    pub(super) fn prefetch(&self, after: &Uri) {
        let began = Instant::now();
        let Ok(root) = self.tree.watched_root() else { return };
        let Ok(names) = self.tree.names(&root) else { return };
        let Ok(Some(mut items)) = self.listed_items(root, names, Some(after), Blocking::Allowed) else {
            return;
        };
        while let Ok(Some(item)) = items.next() {
            if let ListedItem::File(folder, entry) = item
                && self.describe.content_metadata(&self.tree, &folder, &entry).is_err()
            {
                break;
            }
            if began.elapsed() > PREFETCH_TIME {
                break;
            }
        }
    }

    /// A page of the children of a directory. `depth` and `max_listed` do not apply.
    pub(super) fn children(&self, uri: &Uri, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let path = self.path(uri).filter(|_| query::check_keys(uri).is_ok() && query::is_whole(uri));
        let path = path.ok_or_else(|| Error::NotFound(uri.clone()))?;
        let failed = |cause| read_error(uri, cause);
        let folder = match self.tree.resolve(self.open_root()?, path).map_err(failed)? {
            ResolvedPath::Folder(folder) => folder,
            ResolvedPath::File(..) => return Err(Error::NotDirectory(uri.clone())),
        };
        let names = self.tree.names(&folder).map_err(failed)?;
        let own = format!("{}{}", self.prefix, folder.logical.key);
        let first = match after.map(Uri::as_str) {
            None => 0,
            Some(after) => match after.strip_prefix(&*own) {
                Some(rest) => names.partition_point(|name| name <= rest),
                None if *after < *own => 0,
                None => names.len(),
            },
        };
        let mut page = Page { freshness: self.freshness(None), ..Page::default() };
        let mut search = SubtreeSearch::new(&self.tree);
        // Only because `search` needs it. The page has no proof, because the metadata of a directory can change without
        // an event in its parent.
        let mut proof = ProofBuilder::new(&self.tree.prover);
        for key in names.iter_from(first) {
            let resource = if key.ends_with('/') {
                match search.open(&folder, key, &mut proof).map_err(failed)? {
                    Some(child) => self.describe_folder(&child),
                    None => None,
                }
            } else {
                match walk::file_entry(&self.tree, &folder, key).map_err(failed)? {
                    Some(entry) => {
                        let metadata =
                            self.describe.content_metadata(&self.tree, &folder, &entry).map_err(failed)?;
                        self.describe_file(&folder, &entry, metadata)
                    }
                    None => None,
                }
            };
            let Some(resource) = resource else { continue };
            if page.resources.len() == limit {
                page.more = true;
                break;
            }
            page.resources.push(resource);
        }
        Ok(page)
    }

    /// The resource of a file. For a single file, the title and description of the configuration apply.
    fn describe_file(
        &self,
        folder: &OpenFolder,
        entry: &FileEntry,
        metadata: ContentMetadata,
    ) -> Option<Resource> {
        let mut resource = self.describe.file(folder, entry, metadata, self.uri(&entry.key)?);
        if self.only.is_some() {
            resource.title = self.config.title.clone().or(resource.title);
            resource.description = self.config.description.clone().or(resource.description);
        }
        Some(resource)
    }

    /// The resource of a directory; `None` if its URI would be too long. With `max_listed`, the description of the root
    /// says that not everything is listed. With `depth`, the description of a directory whose entries are too deep says
    /// that they are not listed.
    fn describe_folder(&self, folder: &OpenFolder) -> Option<Resource> {
        let uri = self.uri(&folder.logical.key)?;
        let Some(name) = folder.logical.path.file_name() else {
            let mut resource = self.describe.folder(folder, uri, self.mount.clone());
            resource.title.clone_from(&self.config.title);
            resource.description.clone_from(&self.config.description);
            if let Some(max_listed) = self.config.max_listed {
                let note = format!(
                    "At most {max_listed} of its files and folders are listed: read a folder to see its entries."
                );
                add_note(&mut resource.description, &note);
            }
            return Some(resource);
        };
        let mut resource = self.describe.folder(folder, uri, name.to_string_lossy().into_owned());
        if self.config.depth.is_some_and(|depth| folder.logical.path.iter().count() >= depth) {
            add_note(&mut resource.description, "Its entries are not listed: read it to see them.");
        }
        Some(resource)
    }
}

/// Adds a paragraph to a description.
pub(super) fn add_note(description: &mut Option<String>, note: &str) {
    *description = Some(match description.take() {
        Some(description) => format!("{description}\n\n{note}"),
        None => note.to_owned(),
    });
}
