//! The LRU cache of open directories, with the names and file stamps in them.
//!
//! A cached directory is used only if its [evidence](super::proof) still holds. So the result is the same as if
//! the path were opened again.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::cache::LruCache;
use super::name_list::NameList;
use super::proof::{DirectoryEvidence, MAX_AGE};
use super::stamp::{FileId, StatStamp};
use super::stamp_table::StampTable;
use super::{MAX_CACHED_NAMES, OpenFolder, Tree};

/// This many bytes of ignore rules weigh as much in the cache as one open directory.
pub(super) const RULES_PER_FOLDER: usize = 32 * 1024;

/// The cache of open directories, and the thread that closes them.
pub(super) struct OpenFolders {
    folders: LruCache<Arc<OpenFolder>>,
    /// Whether a thread runs that closes expired directories.
    closing: AtomicBool,
}

impl OpenFolders {
    pub(super) fn new(most: usize) -> Self {
        Self { folders: LruCache::new(most), closing: AtomicBool::new(false) }
    }

    /// Starts the thread that closes directories whose evidence has expired, unless it runs already. An open
    /// directory would prevent unmounting its file system.
    fn start_closing(self: &Arc<Self>) {
        if self.closing.swap(true, Ordering::SeqCst) {
            return;
        }
        let open = Arc::downgrade(self);
        let closing = move || {
            loop {
                std::thread::sleep(MAX_AGE);
                let Some(open) = open.upgrade() else { return };
                let recent =
                    |folder: &Arc<OpenFolder>| folder.path_evidence.as_ref().is_some_and(|it| it.is_recent());
                if open.folders.retain(recent) {
                    continue;
                }
                open.closing.store(false, Ordering::SeqCst);
                // A caller that inserted a directory just before found `closing` set, and started no thread.
                if !open.folders.retain(recent) || open.closing.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("libris-close".into()).spawn(closing);
        if let Err(cause) = started {
            tracing::debug!(%cause, "cached directories stay open until they are requested again");
            self.closing.store(false, Ordering::SeqCst);
        }
    }
}

impl Tree {
    /// The root, with evidence if the platform supports it, so that a response about it can be proven valid.
    pub(crate) fn watched_root(&self) -> io::Result<Arc<OpenFolder>> {
        if let Some(root) = self.cached_folder("") {
            return Ok(root);
        }
        let handle = self.root.handle()?;
        let file_id = FileId::of(&handle.metadata()?);
        let path_evidence = self.prover.watch_root(self.root.path(), &handle, file_id);
        // The root may have been replaced between opening and watching it.
        let found = self.root.handle()?;
        let path_evidence = path_evidence.filter(|_| found.is_same_handle(&handle));
        Ok(self.cache_folder(self.root_folder(found, path_evidence)?))
    }

    /// The cached directory of a key, if its path is proven unchanged.
    pub(crate) fn cached_folder(&self, key: &str) -> Option<Arc<OpenFolder>> {
        let folder = self.open_folders.folders.get(key)?;
        let path_evidence =
            folder.path_evidence.as_ref().filter(|path_evidence| self.prover.holds(path_evidence));
        let Some(path_evidence) = path_evidence else {
            self.open_folders.folders.remove(key);
            return None;
        };
        if folder.names_evidence.as_ref().is_some_and(DirectoryEvidence::holds) {
            return Some(folder);
        }
        // The path is unchanged, but names are not: only the stamp and the names are read again.
        let names_evidence = Some(path_evidence.names_evidence());
        let stamp = StatStamp::of(&folder.handle.metadata().ok()?);
        Some(self.cache_folder(OpenFolder {
            handle: folder.handle.clone(),
            logical: folder.logical.clone(),
            physical: None,
            stamp,
            ancestry: folder.ancestry.clone(),
            linked_rules: folder.linked_rules,
            path_evidence: folder.path_evidence.clone(),
            names_evidence,
            names: OnceLock::new(),
        }))
    }

    /// The cached parent directory of a key, if its path is proven unchanged, and the last segment of the key.
    pub(crate) fn cached_parent<'p>(&self, path: &'p str) -> Option<(Arc<OpenFolder>, &'p str)> {
        let (parent, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
        Some((self.cached_folder(parent)?, name))
    }

    /// Inserts a directory into the cache if it has path evidence.
    pub(super) fn cache_folder(&self, folder: OpenFolder) -> Arc<OpenFolder> {
        let folder = Arc::new(folder);
        if folder.path_evidence.is_some() {
            let weight = 1 + folder.rules_bytes() / RULES_PER_FOLDER;
            self.open_folders.folders.insert(&folder.logical.key, weight, Arc::clone(&folder));
            self.open_folders.start_closing();
        }
        folder
    }

    /// The visible names in a directory, if they were read before.
    pub(crate) fn cached_names(folder: &OpenFolder) -> Option<Arc<NameList>> {
        folder.names.get().cloned()
    }

    /// The table of the proven stamps of the files of these names in a directory: the cached table if it is still
    /// valid, otherwise an empty one. `None` if nothing can be proven about the directory.
    pub(super) fn stamp_table(&self, folder: &OpenFolder, names: &Arc<NameList>) -> Option<Arc<StampTable>> {
        let path_evidence = folder.path_evidence.as_ref()?;
        if let Some(cached) = self.stamp_tables.get(&folder.logical.key)
            && self.prover.holds(path_evidence)
            && cached.holds_for(names)
        {
            return Some(cached);
        }
        let table = StampTable::new(path_evidence, names);
        self.stamp_tables.insert(
            &folder.logical.key,
            (names.len() + 1).min(MAX_CACHED_NAMES / 2),
            Arc::clone(&table),
        );
        Some(table)
    }
}
