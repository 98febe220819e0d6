//! A depth-first directory walk in the order of URIs, which can begin after any key (keyset pagination).

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

#[cfg(not(target_os = "linux"))]
use cap_fs_ext::MetadataExt;

use super::name_list::NameList;
use super::proof::ProofBuilder;
use super::root::is_missing;
use super::stamp::StatStamp;
use super::stamp_table::StampTable;
use super::{OpenFolder, Tree};
use super::{cancellation, ignore_files, name};

/// A walk, which holds open the directories from the root to its position.
pub(crate) struct TreeWalk<'a> {
    tree: &'a Tree,
    stack: Vec<WalkLevel>,
    /// Whether the root itself is still to be visited.
    root: bool,
    /// The maximum depth of visited entries. Entries of the root have depth 1.
    max_depth: usize,
    blocking: Blocking,
    /// Collects the evidence for all items visited so far.
    proof: ProofBuilder,
}

/// A directory on the path to the position of a walk.
struct WalkLevel {
    listed: ListedFolder,
    /// The index of the name to visit next.
    next: usize,
}

/// A directory with its visible names, and with what is known about the files of these names.
pub(crate) struct ListedFolder {
    pub(crate) folder: Arc<OpenFolder>,
    pub(crate) names: Arc<NameList>,
    stamps: Option<Arc<StampTable>>,
}

impl ListedFolder {
    pub(crate) fn new(tree: &Tree, folder: Arc<OpenFolder>, names: Arc<NameList>) -> Self {
        let stamps = tree.stamp_table(&folder, &names);
        Self { folder, names, stamps }
    }

    /// Whether the file whose name has this index exists and can be read.
    pub(crate) fn has_file(&self, tree: &Tree, at: usize) -> io::Result<bool> {
        if self.stamps.as_ref().is_some_and(|stamps| stamps.get(at).is_some()) {
            return Ok(true);
        }
        Ok(self.file_entry(tree, at, Blocking::Allowed)?.is_some())
    }

    /// The file whose name has this index; `None` if it is gone or cannot be read.
    fn file_entry(&self, tree: &Tree, at: usize, blocking: Blocking) -> io::Result<Option<FileEntry>> {
        let Some(key) = self.names.get(at) else { return Ok(None) };
        if let Some(stamp) = self.stamps.as_ref().and_then(|stamps| stamps.get(at)) {
            let Some(name) = name::from_segment(key) else { return Ok(None) };
            let key = format!("{}{key}", self.folder.logical.key);
            return Ok(Some(FileEntry { name, key, stamp: stamp.clone(), hard_linked: false }));
        }
        blocking.check()?;
        let entry = file_entry(tree, &self.folder, key)?;
        if let (Some(stamps), Some(entry)) = (&self.stamps, &entry)
            && !entry.hard_linked
        {
            stamps.set(at, &entry.stamp);
        }
        Ok(entry)
    }
}

/// Whether a walk may block in system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// The walk may call the file system.
    Allowed,
    /// The walk uses only cached data. It fails with [`io::ErrorKind::WouldBlock`] if something is not cached.
    Refused,
}

impl Blocking {
    /// Fails if blocking is refused.
    pub(crate) fn check(self) -> io::Result<()> {
        match self {
            Self::Allowed => Ok(()),
            Self::Refused => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// What a walk visits.
pub(crate) enum WalkItem<'a> {
    Folder(&'a OpenFolder),
    /// A file with its directory.
    File(&'a Arc<OpenFolder>, Box<FileEntry>),
}

/// A file as it was when its directory entry was read.
pub(crate) struct FileEntry {
    pub(crate) name: OsString,
    /// The key of the file.
    pub(crate) key: String,
    pub(crate) stamp: StatStamp,
    /// Whether it has another hard link, through which it can change without an event in this directory.
    pub(crate) hard_linked: bool,
}

impl<'a> TreeWalk<'a> {
    /// A walk over the whole tree, which visits the root first.
    pub(crate) fn from_start(
        tree: &'a Tree,
        root: Arc<OpenFolder>,
        names: Arc<NameList>,
        blocking: Blocking,
    ) -> Self {
        let mut proof = ProofBuilder::new(&tree.prover);
        proof.add_directory(&root);
        let stack = vec![WalkLevel { listed: ListedFolder::new(tree, root, names), next: 0 }];
        Self { tree, stack, root: true, max_depth: usize::MAX, blocking, proof }
    }

    /// A walk over the keys after `path`, whether or not `path` exists.
    pub(crate) fn after(
        tree: &'a Tree,
        root: Arc<OpenFolder>,
        names: Arc<NameList>,
        path: &str,
        blocking: Blocking,
    ) -> io::Result<Self> {
        let mut walk = Self { root: false, ..Self::from_start(tree, root, names, blocking) };
        let mut rest = path;
        while let Some(level) = walk.stack.last_mut() {
            level.next = level.listed.names.partition_point(|name| name <= rest);
            // Only the last name that is not after `rest` can be the directory that contains it. A name between
            // `dir/` and `dir/x` would begin with `dir/`, but names have no slash except at the end.
            let names = Arc::clone(&level.listed.names);
            let Some(name) = level.next.checked_sub(1).and_then(|before| names.get(before)) else { break };
            let Some(below) = rest.strip_prefix(name).filter(|_| name.ends_with('/')) else { break };
            if !walk.descend(name)? {
                break;
            }
            rest = below;
        }
        Ok(walk)
    }

    /// Visits no entries deeper than this.
    pub(crate) fn with_max_depth(mut self, max_depth: usize) -> Self {
        self.max_depth = max_depth;
        for level in self.stack.iter_mut().skip(max_depth) {
            level.next = level.listed.names.len();
        }
        self
    }

    /// The next file or directory. Files that vanish during the walk are skipped.
    pub(crate) fn next_item(&mut self) -> io::Result<Option<WalkItem<'_>>> {
        if std::mem::take(&mut self.root) {
            return Ok(self.stack.first().map(|level| WalkItem::Folder(&level.listed.folder)));
        }
        loop {
            cancellation::check()?;
            let Some(level) = self.stack.last_mut() else { return Ok(None) };
            let Some(key) = level.listed.names.get(level.next) else {
                self.stack.pop();
                continue;
            };
            let directory = key.ends_with('/').then(|| key.to_owned());
            level.next += 1;
            if let Some(key) = directory {
                if self.descend(&key)? {
                    return Ok(self.stack.last().map(|level| WalkItem::Folder(&level.listed.folder)));
                }
            } else if let Some(entry) = level.listed.file_entry(self.tree, level.next - 1, self.blocking)? {
                if entry.hard_linked {
                    self.proof.invalidate();
                }
                return Ok(self
                    .stack
                    .last()
                    .map(|level| WalkItem::File(&level.listed.folder, Box::new(entry))));
            }
        }
    }

    /// The evidence for all items visited.
    pub(crate) fn into_proof(self) -> ProofBuilder {
        self.proof
    }

    /// Enters a subdirectory. Returns whether it still exists and is readable.
    fn descend(&mut self, key: &str) -> io::Result<bool> {
        let Some(level) = self.stack.last() else { return Ok(false) };
        let (folder, names) = match self.blocking {
            Blocking::Allowed => {
                let proof = Some(&mut self.proof);
                let Some(folder) = open_listed_folder(self.tree, &level.listed.folder, key, proof)? else {
                    return Ok(false);
                };
                self.proof.add_directory(&folder);
                match self.tree.names(&folder) {
                    Ok(names) => (folder, names),
                    Err(cause) => {
                        return skip_unreadable(self.tree, &folder.logical.key, cause).map(|()| false);
                    }
                }
            }
            Blocking::Refused => {
                let would_block = || io::Error::from(io::ErrorKind::WouldBlock);
                let folder = self
                    .tree
                    .cached_folder(&format!("{}{key}", level.listed.folder.logical.key))
                    .ok_or_else(would_block)?;
                self.proof.add_directory(&folder);
                let names = Tree::cached_names(&folder).ok_or_else(would_block)?;
                (folder, names)
            }
        };
        let mut level = WalkLevel { listed: ListedFolder::new(self.tree, folder, names), next: 0 };
        if self.stack.len() >= self.max_depth {
            level.next = level.listed.names.len();
        }
        self.stack.push(level);
        Ok(true)
    }
}

/// The file of a listed name; `None` if it is gone or cannot be read.
pub(crate) fn file_entry(tree: &Tree, folder: &OpenFolder, key: &str) -> io::Result<Option<FileEntry>> {
    let Some(name) = name::from_segment(key) else { return Ok(None) };
    let key = format!("{}{key}", folder.logical.key);
    let seen = tree.with_target(folder, &name, |handle, name| {
        let metadata = handle.stat(name)?;
        if metadata.is_file() {
            handle.check_readable(name, &metadata)?;
        }
        Ok(metadata)
    });
    match seen {
        Ok(metadata) if metadata.is_file() => {
            let hard_linked = metadata.nlink() > 1;
            Ok(Some(FileEntry { name, key, stamp: StatStamp::of(&metadata), hard_linked }))
        }
        Ok(_) => Ok(None),
        Err(cause) => skip_unreadable(tree, &key, cause).map(|()| None),
    }
}

/// Opens the directory of a listed name; `None` if it is gone or cannot be read.
pub(crate) fn open_listed_folder(
    tree: &Tree,
    folder: &OpenFolder,
    key: &str,
    proof: Option<&mut ProofBuilder>,
) -> io::Result<Option<Arc<OpenFolder>>> {
    let segment = key.trim_end_matches('/');
    let Some(name) = name::from_segment(segment) else { return Ok(None) };
    let cause = match tree.open_child(folder, segment, &name) {
        Ok(folder) => return Ok(Some(folder)),
        Err(cause) => cause,
    };
    // No event in the parent directory will report that the ignore file has become readable, so the result cannot be
    // proven valid.
    if let Some(proof) = proof.filter(|_| ignore_files::hides_folder(&cause)) {
        proof.invalidate();
    }
    skip_unreadable(tree, &format!("{}{key}", folder.logical.key), cause).map(|()| None)
}

/// Ignores an error if the entry is gone, or if access is denied (with a warning); returns every other error.
pub(crate) fn skip_unreadable(tree: &Tree, key: &str, cause: io::Error) -> io::Result<()> {
    if is_missing(&cause) {
        return Ok(());
    }
    if cause.kind() == io::ErrorKind::PermissionDenied {
        tree.warn(key, &cause);
        return Ok(());
    }
    Err(cause)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::TreeOptions;
    use super::super::root::Root;
    use super::{Blocking, ListedFolder, Tree, TreeWalk};

    #[test]
    fn an_unchanged_file_is_checked_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("root");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("one"), "1").unwrap();
        let tree = Tree::open(&TreeOptions::default(), Root::open(&path).unwrap()).unwrap();
        // Whether the file was known before it is checked now.
        let check = || {
            let root = tree.watched_root().unwrap();
            let names = tree.names(&root).unwrap();
            let listed = ListedFolder::new(&tree, root, names);
            let was_known = listed.stamps.as_ref().is_some_and(|stamps| stamps.get(0).is_some());
            assert!(listed.has_file(&tree, 0).unwrap());
            was_known
        };
        check();
        // Events of other tests, which share the inotify instance, can invalidate what is known.
        assert!((0..1_000).any(|_| check()));
        std::fs::write(path.join("one"), "2").unwrap();
        assert!(!check(), "the file has changed");
    }

    #[test]
    fn names_read_before_a_change_give_no_proof() {
        let folder = tempfile::tempdir().unwrap();
        // In a directory of its own, since deletions in the parent of the root count as evidence too.
        let path = folder.path().canonicalize().unwrap().join("root");
        std::fs::create_dir(&path).unwrap();
        let tree = Tree::open(&TreeOptions::default(), Root::open(&path).unwrap()).unwrap();
        let prove = |change: bool| {
            let root = tree.watched_root().unwrap();
            let names = tree.names(&root).unwrap();
            if change {
                std::fs::write(path.join("new"), "").unwrap();
                // Another caller drains the event queue first.
                tree.watched_root().unwrap();
            }
            TreeWalk::from_start(&tree, root, names, Blocking::Allowed).into_proof().build()
        };
        // Events of other tests, which share the inotify instance, can invalidate a proof.
        let holds = || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            prove(false).is_some_and(|proof| proof.holds())
        };
        assert!((0..1_000).any(|_| holds()));
        assert!(prove(true).is_none());
    }
}
