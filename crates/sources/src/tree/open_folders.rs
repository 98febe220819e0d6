//! Directories that stay open, and what is known of what is in them, for as long as nothing changes.
//!
//! Only what the [vigil](super::proof) proves is kept: whoever is handed something here would find the same
//! by looking.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::cache::LruCache;
use super::name_list::NameList;
use super::proof::{DirectoryEvidence, MAX_AGE};
use super::stamp::{FileId, StatStamp};
use super::stamp_table::StampTable;
use super::{MAX_CACHED_NAMES, OpenFolder, Tree};

/// Directories that are open.
pub(super) struct OpenFolders {
    folders: LruCache<Arc<OpenFolder>>,
    /// Whether somebody sees to it that they are closed.
    closing: AtomicBool,
}

impl OpenFolders {
    pub(super) fn new(most: usize) -> Self {
        Self { folders: LruCache::new(most), closing: AtomicBool::new(false) }
    }

    /// Closes directories once they are no longer trusted: an open one keeps its file system from being
    /// unmounted, whether or not anybody asks for it again.
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
                // One may have come just before that.
                if !open.folders.retain(recent) || open.closing.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("libris-close".into()).spawn(closing);
        if let Err(cause) = started {
            tracing::debug!(%cause, "directories stay open until they are asked for again");
            self.closing.store(false, Ordering::SeqCst);
        }
    }
}

impl Tree {
    /// The root as it is now, for an answer that is to be proven.
    pub(crate) fn watched_root(&self) -> io::Result<Arc<OpenFolder>> {
        if let Some(root) = self.cached_folder("") {
            return Ok(root);
        }
        let handle = self.root.handle()?;
        let file_id = FileId::of(&handle.metadata()?);
        let path_evidence = self.prover.watch_root(self.root.path(), &handle, file_id);
        // It was found before it was watched.
        let found = self.root.handle()?;
        let path_evidence = path_evidence.filter(|_| found.is_same_handle(&handle));
        Ok(self.cache_folder(self.root_folder(found, path_evidence)?))
    }

    /// The directory of a key, if it is open and still what its path leads to.
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
        let names_evidence = Some(path_evidence.names_evidence());
        let stamp = StatStamp::of(&folder.handle.metadata().ok()?);
        Some(self.cache_folder(OpenFolder {
            handle: folder.handle.clone(),
            logical: folder.logical.clone(),
            physical: None,
            stamp,
            ancestry: folder.ancestry.clone(),
            path_evidence: folder.path_evidence.clone(),
            names_evidence,
            names: OnceLock::new(),
        }))
    }

    /// The directory that a path is in and the last segment of the path, if the directory is open and still
    /// what its own path leads to.
    pub(crate) fn cached_parent<'p>(&self, path: &'p str) -> Option<(Arc<OpenFolder>, &'p str)> {
        let (parent, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
        Some((self.cached_folder(parent)?, name))
    }

    /// Keeps a directory open if it can be proven that it is still what its path leads to.
    pub(super) fn cache_folder(&self, folder: OpenFolder) -> Arc<OpenFolder> {
        let folder = Arc::new(folder);
        if folder.path_evidence.is_some() {
            self.open_folders.folders.insert(&folder.logical.key, 1, Arc::clone(&folder));
            self.open_folders.start_closing();
        }
        folder
    }

    /// The names that are shown in a directory, if they are at hand.
    pub(crate) fn cached_names(folder: &OpenFolder) -> Option<Arc<NameList>> {
        folder.names.get().cloned()
    }

    /// What is known of the files of these names in a directory, where that can be proven.
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
