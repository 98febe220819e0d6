//! Directories that stay open, and what is known of what is in them, for as long as nothing changes.
//!
//! Only what the [vigil](super::proof) proves is kept: whoever is handed something here would find the same
//! by looking.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::cache::Cache;
use super::name_list::Names;
use super::proof::{Entries, LONGEST};
use super::stamp::{Identity, Stamp};
use super::stamp_table::Details;
use super::{Folder, NAMES, Tree};

/// Directories that are open.
pub(super) struct Open {
    folders: Cache<Arc<Folder>>,
    /// Whether somebody sees to it that they are closed.
    watched: AtomicBool,
}

impl Open {
    pub(super) fn new(most: usize) -> Self {
        Self { folders: Cache::new(most), watched: AtomicBool::new(false) }
    }

    /// Closes directories once they are no longer trusted: an open one keeps its file system from being
    /// unmounted, whether or not anybody asks for it again.
    fn close_in_time(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::SeqCst) {
            return;
        }
        let open = Arc::downgrade(self);
        let closing = move || {
            loop {
                std::thread::sleep(LONGEST);
                let Some(open) = open.upgrade() else { return };
                let recent = |folder: &Arc<Folder>| folder.chain.as_ref().is_some_and(|it| it.is_recent());
                if open.folders.retain(recent) {
                    continue;
                }
                open.watched.store(false, Ordering::SeqCst);
                // One may have come just before that.
                if !open.folders.retain(recent) || open.watched.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("libris-close".into()).spawn(closing);
        if let Err(cause) = started {
            tracing::debug!(%cause, "directories stay open until they are asked for again");
            self.watched.store(false, Ordering::SeqCst);
        }
    }
}

impl Tree {
    /// The root as it is now, for an answer that is to be proven.
    pub(crate) fn proven_root(&self) -> io::Result<Arc<Folder>> {
        if let Some(root) = self.kept("") {
            return Ok(root);
        }
        let place = self.root.place()?;
        let identity = Identity::of(&place.metadata()?);
        let chain = self.vigil.begin(self.root.path(), &place, identity);
        // It was found before it was watched.
        let found = self.root.place()?;
        let chain = chain.filter(|_| found.is(&place));
        Ok(self.keep(self.top(found, chain)?))
    }

    /// The directory of a key, if it is open and still what its path leads to.
    pub(crate) fn kept(&self, key: &str) -> Option<Arc<Folder>> {
        let folder = self.open.folders.find(key)?;
        let chain = folder.chain.as_ref().filter(|chain| self.vigil.holds(chain));
        let Some(chain) = chain else {
            self.open.folders.forget(key);
            return None;
        };
        if folder.entries.as_ref().is_some_and(Entries::are_so) {
            return Some(folder);
        }
        let entries = Some(chain.entries());
        let stamp = Stamp::of(&folder.place.metadata().ok()?);
        Some(self.keep(Folder {
            place: folder.place.clone(),
            way: folder.way.clone(),
            real: None,
            stamp,
            trail: folder.trail.clone(),
            chain: folder.chain.clone(),
            entries,
            names: OnceLock::new(),
        }))
    }

    /// The directory that a path is in and the last segment of the path, if the directory is open and still
    /// what its own path leads to.
    pub(crate) fn kept_parent<'p>(&self, path: &'p str) -> Option<(Arc<Folder>, &'p str)> {
        let (parent, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
        Some((self.kept(parent)?, name))
    }

    /// Keeps a directory open if it can be proven that it is still what its path leads to.
    pub(super) fn keep(&self, folder: Folder) -> Arc<Folder> {
        let folder = Arc::new(folder);
        if folder.chain.is_some() {
            self.open.folders.keep(&folder.way.key, 1, Arc::clone(&folder));
            self.open.close_in_time();
        }
        folder
    }

    /// The names that are shown in a directory, if they are at hand.
    pub(crate) fn names_at_hand(folder: &Folder) -> Option<Names> {
        folder.names.get().cloned()
    }

    /// What is known of the files of these names in a directory, where that can be proven.
    pub(super) fn details(&self, folder: &Folder, names: &Names) -> Option<Arc<Details>> {
        let chain = folder.chain.as_ref()?;
        if let Some(kept) = self.details.find(&folder.way.key)
            && self.vigil.holds(chain)
            && kept.are_so(names)
        {
            return Some(kept);
        }
        let details = Details::new(chain, names);
        self.details.keep(&folder.way.key, (names.len() + 1).min(NAMES / 2), Arc::clone(&details));
        Some(details)
    }
}
