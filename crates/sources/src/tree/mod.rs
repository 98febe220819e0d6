//! A confined directory tree: the visible files and directories below a root, with caches, proofs and a watcher.
//!
//! Nothing outside the root is ever opened: every name is resolved relative to an open directory handle, without
//! following symbolic links ([`root`], [`symlink`]). What the options, `.gitignore` and the like hide ([`filter`],
//! [`ignore_files`]) does not exist for callers. Listings are read once for concurrent callers ([`listing`]), and
//! open directories stay cached as long as inotify proves them unchanged ([`proof`], [`open_folders`]). [`walk`]
//! visits the tree in the order of URIs, [`watch`] reports changes in it.
//!
//! Terms:
//! - The *key* of a file or directory is its path from the root as it appears in a URI. The key of a directory
//!   ends with a slash, that of the root is empty.
//! - A *stamp* is the part of a `stat` result that changes with the file. It is *settled* if it was so old when the
//!   file was read that an equal stamp later proves an unchanged file ([`stamp`]).
//! - *Evidence* is the values that generation counters had when a directory was observed. Inotify events advance the
//!   counters. While none has advanced, and for at most `proof::MAX_AGE`, the evidence *holds*: the directory counts as
//!   unchanged ([`proof`]).

mod cache;
mod cancellation;
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
mod stamp;
mod stamp_table;
mod subtree;
mod symlink;
mod threads;
pub(crate) mod walk;
pub(crate) mod watch;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libris_core::{Result, Uri};

pub(crate) use cache::LruCache;
pub(crate) use cancellation::{Cancellation, check as check_cancelled, is_cancelled};
pub(crate) use metadata::Metadata;
pub(crate) use name_list::{NameList, case_folded};
pub use options::ChangeDetection;
pub(crate) use options::TreeOptions;
pub(crate) use proof::{ProofBuilder, QuietPaths};
pub(crate) use root::{DirectoryHandle, Root, is_locked, is_missing};
pub(crate) use stamp::StatStamp;
pub(crate) use subtree::SubtreeSearch;
pub(crate) use threads::TreeThreads;

use filter::{IgnoreRules, Omission, PathFilter, RulesSize};
use ignore_files::CachedRules;
use listing::DirectoryListing;
use open_folders::OpenFolders;
use proof::{DirectoryEvidence, PathEvidence, Prover};
use root::{NameMatching, missing};
use stamp::FileId;
use stamp_table::StampTable;
use subtree::SubtreeResult;
use symlink::{ParentMemo, Symlinks};

/// The maximum number of names of directory entries in the cache of listings, and in the cache of stamp tables.
const MAX_CACHED_NAMES: usize = 1_000_000;

/// The maximum number of keys for which a logged warning is remembered.
const MAX_WARNED: usize = 10_000;

/// The maximum number of directories that the cache keeps open.
const MAX_OPEN_FOLDERS: usize = 128;

/// The maximum number of steps (bytes of patterns times bytes of the path) for which matching counts as quick: a few
/// milliseconds.
const MAX_QUICK_STEPS: usize = 8 * 1024 * 1024;

/// How deep directories may be nested. A walk holds one open directory for each level.
const MAX_DEPTH: usize = 128;

/// The longest key of a resource. It leaves room in a URI for the URI of the root and a query.
const MAX_KEY_LENGTH: usize = Uri::LIMIT - 1024;

/// The visible part of a directory tree, as the options define it.
pub(crate) struct Tree {
    root: Root,
    symlinks: Symlinks,
    name_matching: NameMatching,
    filter: PathFilter,
    gitignore: bool,
    listings: LruCache<Arc<DirectoryListing>>,
    /// The shortest time for which the names in a directory are updated only from events, before it is read again.
    event_trust: Duration,
    cached_rules: LruCache<Arc<CachedRules>>,
    /// The last [identity](IgnoreRules::identity) that was assigned to ignore rules.
    last_identity: AtomicU64,
    stamp_tables: LruCache<Arc<StampTable>>,
    /// With `include`: which directories have visible files below them.
    subtrees: LruCache<Arc<SubtreeResult>>,
    /// The LRU cache of open directories.
    open_folders: Arc<OpenFolders>,
    pub(crate) prover: Prover,
    /// How the watcher detects changes, and how often it polls.
    watching: ChangeDetection,
    poll: Duration,
    warned: Mutex<HashSet<String>>,
}

/// An open directory with the rules that determine which of its entries are visible.
pub(crate) struct OpenFolder {
    pub(crate) handle: DirectoryHandle,
    /// The path by which it was reached. It may contain followed symbolic links.
    pub(crate) logical: TreePath,
    /// The path with all symbolic links resolved, if `logical` contains any.
    physical: Option<TreePath>,
    pub(crate) stamp: StatStamp,
    /// The identities of this directory and its ancestors, to detect cycles of symbolic links.
    ancestry: Vec<FileId>,
    /// The total size of the ignore rules that apply to the targets of the symbolic links in `logical`.
    linked_rules: RulesSize,
    /// Evidence that the path still resolves to this directory; `None` if that cannot be proven.
    path_evidence: Option<Arc<PathEvidence>>,
    /// Evidence that `stamp` and `names` are up to date; `None` if there is no path evidence.
    names_evidence: Option<DirectoryEvidence>,
    /// The visible names, once read. Set only if there is path evidence.
    names: OnceLock<Arc<NameList>>,
}

/// A path from the root to a directory, with the ignore rules that apply there.
#[derive(Clone, Default)]
pub(crate) struct TreePath {
    /// The key: the percent-encoded path.
    pub(crate) key: String,
    /// The path as the operating system represents it.
    pub(crate) path: PathBuf,
    /// The rules of the ignore files in the directories on the path; `None` if there are none.
    ignore_rules: Option<Arc<IgnoreRules>>,
}

/// The inputs, besides the options of the tree, that determine which names are visible in a directory.
#[derive(PartialEq, Eq)]
struct PathIdentity {
    path: PathBuf,
    /// The [identity](IgnoreRules::identity) of the ignore rules.
    rules: Option<u64>,
}

impl TreePath {
    fn identity(&self) -> PathIdentity {
        PathIdentity { path: self.path.clone(), rules: self.rules_identity() }
    }

    /// The size of the ignore rules that apply.
    fn rules_size(&self) -> RulesSize {
        self.ignore_rules.as_ref().map(|rules| rules.size).unwrap_or_default()
    }

    fn rules_identity(&self) -> Option<u64> {
        self.ignore_rules.as_ref().map(|rules| rules.identity)
    }
}

impl PathIdentity {
    /// Whether this is the identity of `path`.
    fn is_of(&self, path: &TreePath) -> bool {
        self.path == path.path && self.rules == path.rules_identity()
    }
}

impl OpenFolder {
    /// An upper bound on the memory that the ignore rules of the directory take, in bytes.
    fn rules_bytes(&self) -> usize {
        self.paths().map(|path| path.rules_size().bytes()).sum()
    }

    /// Whether matching a name against the ignore rules is fast, whatever the patterns are.
    pub(crate) fn matches_quickly(&self) -> bool {
        let steps =
            |path: &TreePath| path.rules_size().text.saturating_mul(path.path.as_os_str().len() + 256);
        self.paths().map(steps).sum::<usize>() <= MAX_QUICK_STEPS
    }

    /// The logical path, and the physical one if it differs. An entry is visible only if the rules on both allow it.
    fn paths(&self) -> impl Iterator<Item = &TreePath> {
        [&self.logical].into_iter().chain(&self.physical)
    }
}

/// The result of resolving a key: a directory, or a file by its name in a directory.
pub(crate) enum ResolvedPath {
    Folder(Arc<OpenFolder>),
    File(Arc<OpenFolder>, OsString),
}

impl Tree {
    pub(crate) fn open(options: &TreeOptions, root: Root) -> Result<Self> {
        Ok(Self {
            root,
            symlinks: Symlinks::of(options.symlinks),
            name_matching: NameMatching::PLATFORM,
            filter: PathFilter::new(options)?,
            gitignore: options.gitignore,
            listings: LruCache::new(MAX_CACHED_NAMES),
            event_trust: proof::MAX_AGE,
            cached_rules: LruCache::new(ignore_files::MAX_CACHED),
            last_identity: AtomicU64::new(0),
            stamp_tables: LruCache::new(MAX_CACHED_NAMES),
            subtrees: LruCache::new(subtree::MAX_CACHED_DIRECTORIES),
            open_folders: Arc::new(OpenFolders::new(MAX_OPEN_FOLDERS)),
            // The target of a symbolic link can change without an event in any directory on the path of the link.
            prover: if options.symlinks || options.watch == ChangeDetection::Poll {
                Prover::disabled()
            } else {
                Prover::new()
            },
            watching: options.watch,
            poll: options.poll,
            warned: Mutex::default(),
        })
    }

    /// Opens the root.
    fn root(&self) -> io::Result<OpenFolder> {
        self.root_folder(self.root.handle()?, None)
    }

    /// Builds the [`OpenFolder`] of the root from its handle.
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
            linked_rules: RulesSize::default(),
            path_evidence,
            names_evidence,
            names: OnceLock::new(),
        })
    }

    /// The identity of the directory that is at the root path now.
    fn root_id(&self) -> io::Result<FileId> {
        Ok(FileId::of(&self.root.handle()?.metadata()?))
    }

    /// Resolves a key such as `guide/start.md`. The slash at the end of a directory's key may be omitted.
    pub(crate) fn resolve(&self, root: Arc<OpenFolder>, path: &str) -> io::Result<ResolvedPath> {
        let (path, slash) = match path.strip_suffix('/') {
            Some(path) => (path, true),
            None => (path, false),
        };
        if path.is_empty() {
            return if slash { Err(missing()) } else { Ok(ResolvedPath::Folder(root)) };
        }
        // A cached parent directory is found in one step, however deep it is.
        let cached = root.path_evidence.as_ref().and_then(|_| self.cached_parent(path));
        let (mut folder, rest) = cached.unwrap_or((root, path));
        let mut segments = rest.split('/').peekable();
        while let Some(segment) = segments.next() {
            let (name, directory) = self.entry(&folder, segment)?;
            if directory {
                folder = self.open_child(&folder, segment, &name)?;
            } else if segments.peek().is_none() && !slash {
                return Ok(ResolvedPath::File(folder, name));
            } else {
                return Err(missing());
            }
        }
        Ok(ResolvedPath::Folder(folder))
    }

    /// Looks up the entry of a URI segment in a directory. Returns its file name, and whether it is a directory. Fails
    /// with "not found" if the entry is not visible.
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

    /// Whether a directory has no entry at all for a URI segment, not even a symbolic link. `false` if the segment
    /// encodes no file name.
    pub(crate) fn has_no_entry(folder: &OpenFolder, segment: &str) -> bool {
        let Some(name) = name::from_segment(segment) else { return false };
        folder.handle.stat(&name).is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound)
    }

    /// Opens the subdirectory of this name, whether or not the name is visible.
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

    /// Opens the subdirectory of this name, which must not be a symbolic link.
    fn open_child_nofollow(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<OpenFolder> {
        let segment = name::to_segment(name).ok_or_else(missing)?;
        self.open_folder(folder.handle.open_child(name)?, folder, (&segment, name), None)
    }

    /// Builds the [`OpenFolder`] of the directory with this handle and this name in `parent`. `physical` is its real
    /// parent and name, if it was reached through a symbolic link.
    fn open_folder(
        &self,
        handle: DirectoryHandle,
        parent: &OpenFolder,
        (segment, name): (&str, &OsStr),
        physical: Option<(&TreePath, &OsStr)>,
    ) -> io::Result<OpenFolder> {
        cancellation::check()?;
        // The watch must exist before the data is read that the evidence is to prove.
        let path_evidence = parent
            .path_evidence
            .as_ref()
            .and_then(|path_evidence| self.prover.watch_child(path_evidence, &handle));
        let names_evidence = path_evidence.as_ref().map(|path_evidence| path_evidence.names_evidence());
        let (metadata, ancestry) =
            self.check_directory(&handle, &format!("{}{segment}/", parent.logical.key), &parent.ancestry)?;
        let logical = self.tree_path(&handle, &parent.logical, segment, name)?;
        let linked_rules = self.linked_rules(parent, &logical, physical.map(|(path, _)| path))?;
        let physical = match physical {
            Some((parent, name)) => {
                let segment = name::to_segment(name).ok_or_else(missing)?;
                Some(self.tree_path(&handle, parent, &segment, name)?)
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
            linked_rules,
            path_evidence,
            names_evidence,
            names: OnceLock::new(),
        })
    }

    fn tree_path(
        &self,
        handle: &DirectoryHandle,
        parent: &TreePath,
        segment: &str,
        name: &OsStr,
    ) -> io::Result<TreePath> {
        let key = format!("{}{segment}/", parent.key);
        let path = parent.path.join(name);
        let ignore_rules = self.ignore_rules(handle, &path, &key, parent.ignore_rules.as_ref())?;
        Ok(TreePath { key, path, ignore_rules })
    }

    /// Checks that a directory may be entered. Returns its metadata and its ancestry.
    fn check_directory(
        &self,
        handle: &DirectoryHandle,
        key: &str,
        ancestors: &[FileId],
    ) -> io::Result<(Metadata, Vec<FileId>)> {
        handle.check_listable()?;
        let metadata = handle.metadata()?;
        let file_id = FileId::of(&metadata);
        // A symbolic link may point to one of its own ancestors.
        if ancestors.contains(&file_id) {
            return Err(missing());
        }
        if ancestors.len() >= MAX_DEPTH {
            self.warn(key, &io::Error::other(format!("directories are nested more than {MAX_DEPTH} deep")));
            return Err(missing());
        }
        Ok((metadata, ancestors.iter().copied().chain([file_id]).collect()))
    }

    /// Whether an entry is visible by the options and by the ignore rules on all paths to its directory.
    fn shows(&self, folder: &OpenFolder, name: &OsStr, directory: bool) -> bool {
        self.omission(folder, name, directory).is_none()
    }

    /// Why an entry is not visible; `None` if it is.
    fn omission(&self, folder: &OpenFolder, name: &OsStr, directory: bool) -> Option<Omission> {
        folder.paths().find_map(|path| {
            self.filter.omission(&path.path.join(name), directory, path.ignore_rules.as_deref())
        })
    }

    /// Whether the entry has exactly this name, not another spelling of it.
    fn has_exact_name(&self, folder: &OpenFolder, segment: &str, directory: bool) -> io::Result<bool> {
        if self.name_matching == NameMatching::Exact {
            return Ok(true);
        }
        let key = if directory { format!("{segment}/") } else { segment.to_owned() };
        Ok(self.names(folder)?.contains(&key))
    }

    /// Logs a failed read, once for each key.
    pub(crate) fn warn(&self, key: &str, cause: &io::Error) {
        if self.record_warning(key) {
            tracing::warn!(path = key, %cause, "skipped what cannot be read");
        }
    }

    /// Records that a warning is logged for a key. Returns whether it is the first one.
    fn record_warning(&self, key: &str) -> bool {
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
    use super::{Arc, MAX_DEPTH, Root, Tree, TreeOptions};
    use std::path::Path;

    fn tree(path: &Path) -> Tree {
        Tree::open(&TreeOptions::default(), Root::open(path).unwrap()).unwrap()
    }

    #[test]
    fn directories_nested_too_deep_are_skipped_and_logged_once() {
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
