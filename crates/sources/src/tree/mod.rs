//! The directories of a folder as they are shown: what is hidden does not exist.

mod cache;
mod filter;
mod ignore_files;
#[cfg(target_os = "linux")]
mod inotify;
mod listing;
mod metadata;
pub(crate) mod name;
mod name_list;
mod open_folders;
mod options;
mod proof;
mod root;
mod root_path;
mod stamp;
mod stamp_table;
mod symlink;
pub(crate) mod walk;
pub(crate) mod watch;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libris_core::{Result, Uri};

pub(crate) use cache::LruCache;
pub(crate) use metadata::Metadata;
pub(crate) use name_list::{NameList, case_folded};
pub(crate) use options::Options;
pub use options::Watching;
pub(crate) use proof::ProofBuilder;
pub(crate) use root::{DirectoryHandle, Root, is_missing};
pub(crate) use stamp::StatStamp;

use filter::{IgnoreRules, PathFilter};
use ignore_files::{CompiledRules, is_same_rules};
use listing::DirectoryListing;
use open_folders::OpenFolders;
use proof::{DirectoryEvidence, PathEvidence, Prover};
use root::{CASE_INSENSITIVE, missing};
use stamp::FileId;
use stamp_table::StampTable;
use symlink::{ParentMemo, Symlinks};

/// How many names of directory entries are kept in memory.
const MAX_CACHED_NAMES: usize = 1_000_000;

/// Of how many places it is remembered that something was logged of them.
const MAX_WARNED: usize = 10_000;

/// How many directories are kept open.
const MAX_OPEN_FOLDERS: usize = 128;

/// How deep directories may be nested. A walk holds all of them open.
const MAX_DEPTH: usize = 128;

/// How long the path of a resource may be, which leaves room for a mount and a query.
const MAX_KEY_LENGTH: usize = Uri::LIMIT - 1024;

/// The directories of a folder.
pub(crate) struct Tree {
    root: Root,
    symlinks: Symlinks,
    filter: PathFilter,
    gitignore: bool,
    listings: LruCache<Arc<DirectoryListing>>,
    /// For how long at least names are trusted that are proven by events alone.
    event_trust: Duration,
    compiled_rules: LruCache<Arc<CompiledRules>>,
    /// Held while ignore files are compiled.
    compiling: Mutex<()>,
    stamp_tables: LruCache<Arc<StampTable>>,
    /// Directories that are open and proven to be what a path leads to.
    open_folders: Arc<OpenFolders>,
    pub(crate) prover: Prover,
    /// How the watcher detects changes, and how often it polls.
    watching: Watching,
    poll: Duration,
    warned: Mutex<HashSet<String>>,
}

/// A directory that is open, with all that is needed to judge what is in it.
pub(crate) struct OpenFolder {
    pub(crate) handle: DirectoryHandle,
    pub(crate) logical: TreePath,
    /// The way without links, where there are some on the other.
    physical: Option<TreePath>,
    pub(crate) stamp: StatStamp,
    /// It and those above it.
    ancestry: Vec<FileId>,
    /// That it is still what its path leads to, where that can be proven.
    path_evidence: Option<Arc<PathEvidence>>,
    /// That what is known of it and what is in it is still so, where there is a chain.
    names_evidence: Option<DirectoryEvidence>,
    /// What is in it, once somebody asked. Only a folder with a chain keeps it.
    names: OnceLock<Arc<NameList>>,
}

/// A way from the root to a directory.
#[derive(Clone, Default)]
pub(crate) struct TreePath {
    /// The path as in a URI: empty for the root, otherwise with a slash at the end.
    pub(crate) key: String,
    /// The path of names.
    pub(crate) path: PathBuf,
    /// What the ignore files on it say.
    ignore_rules: Option<Arc<IgnoreRules>>,
}

impl TreePath {
    /// Whether the same is shown at its end.
    fn has_same_rules_as(&self, other: &Self) -> bool {
        self.path == other.path && is_same_rules(self.ignore_rules.as_ref(), other.ignore_rules.as_ref())
    }
}

impl OpenFolder {
    /// The ways to it: what is in it is shown only if it is on both.
    fn paths(&self) -> impl Iterator<Item = &TreePath> {
        [&self.logical].into_iter().chain(&self.physical)
    }
}

/// What is at a path.
pub(crate) enum Resolved {
    Folder(Arc<OpenFolder>),
    File(Arc<OpenFolder>, OsString),
}

impl Tree {
    pub(crate) fn open(options: &Options, root: Root) -> Result<Self> {
        Ok(Self {
            root,
            symlinks: Symlinks::of(options.symlinks),
            filter: PathFilter::new(options)?,
            gitignore: options.gitignore,
            listings: LruCache::new(MAX_CACHED_NAMES),
            event_trust: proof::MAX_AGE,
            compiled_rules: LruCache::new(ignore_files::MAX_CACHED_TEXT),
            compiling: Mutex::default(),
            stamp_tables: LruCache::new(MAX_CACHED_NAMES),
            open_folders: Arc::new(OpenFolders::new(MAX_OPEN_FOLDERS)),
            // Where a link leads may change without a trace in any directory on the way to it.
            prover: if options.symlinks || options.watch == Watching::Poll {
                Prover::disabled()
            } else {
                Prover::new()
            },
            watching: options.watch,
            poll: options.poll,
            warned: Mutex::default(),
        })
    }

    /// The root as it is now.
    fn root(&self) -> io::Result<OpenFolder> {
        self.root_folder(self.root.handle()?, None)
    }

    /// The root that was opened before.
    fn root_folder(
        &self,
        handle: DirectoryHandle,
        path_evidence: Option<Arc<PathEvidence>>,
    ) -> io::Result<OpenFolder> {
        let names_evidence = path_evidence.as_ref().map(|path_evidence| path_evidence.names_evidence());
        let (metadata, ancestry) = self.check_directory(&handle, "", &[])?;
        let logical = TreePath {
            ignore_rules: self.ignore_rules(&handle, Path::new(""), "", None)?,
            ..TreePath::default()
        };
        let stamp = StatStamp::of(&metadata);
        Ok(OpenFolder {
            stamp,
            handle,
            logical,
            physical: None,
            ancestry,
            path_evidence,
            names_evidence,
            names: OnceLock::new(),
        })
    }

    /// Which directory the root is now.
    fn root_id(&self) -> io::Result<FileId> {
        Ok(FileId::of(&self.root.handle()?.metadata()?))
    }

    /// What is at a path such as `guide/start.md` below the root, written as in a URI.
    pub(crate) fn resolve(&self, root: Arc<OpenFolder>, path: &str) -> io::Result<Resolved> {
        let (path, slash) = match path.strip_suffix('/') {
            Some(path) => (path, true),
            None => (path, false),
        };
        if path.is_empty() {
            return if slash { Err(missing()) } else { Ok(Resolved::Folder(root)) };
        }
        // Those that are open are found at once, however deep.
        let cached = root.path_evidence.as_ref().and_then(|_| self.cached_parent(path));
        let (mut folder, rest) = cached.unwrap_or((root, path));
        let mut segments = rest.split('/').peekable();
        while let Some(segment) = segments.next() {
            let (name, directory) = self.entry(&folder, segment)?;
            if directory {
                folder = self.open_child(&folder, segment, &name)?;
            } else if segments.peek().is_none() && !slash {
                return Ok(Resolved::File(folder, name));
            } else {
                return Err(missing());
            }
        }
        Ok(Resolved::Folder(folder))
    }

    /// What a segment stands for in a directory that shows it, and whether that is a directory.
    pub(crate) fn entry(&self, folder: &OpenFolder, segment: &str) -> io::Result<(OsString, bool)> {
        let name = name::from_segment(segment).ok_or_else(missing)?;
        let metadata = self.with_target(folder, &name, DirectoryHandle::stat)?;
        let directory = metadata.is_dir();
        if !(directory || metadata.is_file())
            || folder.logical.key.len() + segment.len() >= MAX_KEY_LENGTH
            || !self.shows(folder, &name, directory)
            || !self.has_exact_name(folder, segment, directory)?
        {
            return Err(missing());
        }
        Ok((name, directory))
    }

    /// The directory of this name, whether or not the name is shown.
    fn open_child(&self, folder: &OpenFolder, segment: &str, name: &OsStr) -> io::Result<Arc<OpenFolder>> {
        if folder.path_evidence.is_some()
            && let Some(cached) = self.cached_folder(&format!("{}{segment}/", folder.logical.key))
        {
            return Ok(cached);
        }
        let entered = match self.symlink_target(folder, name, &mut ParentMemo::default())? {
            None => {
                let physical = folder.physical.as_ref().map(|physical| (physical, name));
                self.open_folder(folder.handle.open_child(name)?, folder, (segment, name), physical)
            }
            Some(target) => {
                let handle = target.parent.handle.open_child(&target.name)?;
                self.open_folder(
                    handle,
                    folder,
                    (segment, name),
                    Some((&target.parent.logical, &target.name)),
                )
            }
        };
        Ok(self.cache_folder(entered?))
    }

    /// The directory of this name, which must not be a link.
    fn open_child_nofollow(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<OpenFolder> {
        let segment = name::to_segment(name).ok_or_else(missing)?;
        self.open_folder(folder.handle.open_child(name)?, folder, (&segment, name), None)
    }

    /// The directory that is open as `place`, which stands in `above` under a name and, where a
    /// link led to it, really somewhere else.
    fn open_folder(
        &self,
        handle: DirectoryHandle,
        above: &OpenFolder,
        (segment, name): (&str, &OsStr),
        physical: Option<(&TreePath, &OsStr)>,
    ) -> io::Result<OpenFolder> {
        // Before anything is looked at that it is to prove.
        let path_evidence = above
            .path_evidence
            .as_ref()
            .and_then(|path_evidence| self.prover.watch_child(path_evidence, &handle));
        let names_evidence = path_evidence.as_ref().map(|path_evidence| path_evidence.names_evidence());
        let (metadata, ancestry) =
            self.check_directory(&handle, &format!("{}{segment}/", above.logical.key), &above.ancestry)?;
        let logical = self.tree_path(&handle, &above.logical, segment, name)?;
        let physical = match physical {
            Some((above, name)) => {
                let segment = name::to_segment(name).ok_or_else(missing)?;
                Some(self.tree_path(&handle, above, &segment, name)?)
            }
            None => None,
        };
        let stamp = StatStamp::of(&metadata);
        Ok(OpenFolder {
            stamp,
            handle,
            logical,
            physical,
            ancestry,
            path_evidence,
            names_evidence,
            names: OnceLock::new(),
        })
    }

    fn tree_path(
        &self,
        handle: &DirectoryHandle,
        above: &TreePath,
        segment: &str,
        name: &OsStr,
    ) -> io::Result<TreePath> {
        let key = format!("{}{segment}/", above.key);
        let path = above.path.join(name);
        let ignore_rules = self.ignore_rules(handle, &path, &key, above.ignore_rules.as_ref())?;
        Ok(TreePath { key, path, ignore_rules })
    }

    /// What is known of a directory that may be gone into, and the trail to it.
    fn check_directory(
        &self,
        handle: &DirectoryHandle,
        key: &str,
        above: &[FileId],
    ) -> io::Result<(Metadata, Vec<FileId>)> {
        handle.check_listable()?;
        let metadata = handle.metadata()?;
        let file_id = FileId::of(&metadata);
        // A link may lead to a directory that it is in.
        if above.contains(&file_id) {
            return Err(missing());
        }
        if above.len() >= MAX_DEPTH {
            self.warn(key, &io::Error::other(format!("directories are nested more than {MAX_DEPTH} deep")));
            return Err(missing());
        }
        Ok((metadata, above.iter().copied().chain([file_id]).collect()))
    }

    fn shows(&self, folder: &OpenFolder, name: &OsStr, directory: bool) -> bool {
        folder
            .paths()
            .all(|path| self.filter.shows(&path.path.join(name), directory, path.ignore_rules.as_deref()))
    }

    /// Whether an entry has exactly this name, where the file system would also take another for it.
    fn has_exact_name(&self, folder: &OpenFolder, segment: &str, directory: bool) -> io::Result<bool> {
        if !CASE_INSENSITIVE {
            return Ok(true);
        }
        let key = if directory { format!("{segment}/") } else { segment.to_owned() };
        Ok(self.names(folder)?.contains(&key))
    }

    /// Logs that something could not be read, once for each place.
    pub(crate) fn warn(&self, key: &str, cause: &io::Error) {
        if self.is_first_warning(key) {
            tracing::warn!(path = key, %cause, "skipped what cannot be read");
        }
    }

    /// Whether nothing was logged of a place yet.
    fn is_first_warning(&self, key: &str) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() >= MAX_WARNED {
            warned.clear();
        }
        warned.insert(key.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::walk::{Blocking, TreeWalk};
    use super::{Arc, MAX_DEPTH, Options, Root, Tree};
    use std::path::Path;

    fn tree(path: &Path) -> Tree {
        Tree::open(&Options::default(), Root::open(path).unwrap()).unwrap()
    }

    #[test]
    fn what_is_nested_too_deep_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |depth: usize| "d/".repeat(depth);
        std::fs::create_dir_all(folder.path().join(path(MAX_DEPTH + 1))).unwrap();
        let tree = tree(folder.path());
        for _ in 0..2 {
            let root = tree.root().unwrap();
            let names = tree.names(&root).unwrap();
            let mut walk = TreeWalk::from_start(&tree, Arc::new(root), names, Blocking::Allowed);
            let mut met = 0;
            while walk.next_item().unwrap().is_some() {
                met += 1;
            }
            assert_eq!(met, MAX_DEPTH);
        }
        assert_eq!(tree.warned.lock().unwrap().iter().collect::<Vec<_>>(), [&path(MAX_DEPTH)]);
    }
}
