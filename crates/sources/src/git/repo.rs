//! An open repository: isolated from the environment, without subprocesses, with bounded memory.

use std::cell::{Cell, OnceCell};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cap_std::fs::Dir;
use gix::ObjectId;
use gix::objs::tree::EntryKind;
use gix::objs::{CommitRefIter, Kind, TreeRefIter};
use gix::odb::pack::cache::lru::StaticLinkedList;
use libris_core::{Context, Error, Result, Uri};

use super::guard::{self, Alternates};
use super::history::ModificationTimes;
use super::limits::{HeldMemory, TaskMemory};
use super::ref_store::RefStore;
use super::regular::{self, GitFileStamp};
use super::tree_listing::{TreeListing, TreeListingWeight};
use super::worktree;
use crate::root_path::RootPath;

/// The cache sizes of each handle (`gix::Repository`), in bytes: decoded objects, and delta bases.
const OBJECT_CACHE_BYTES: usize = 8 * 1024 * 1024;
const DELTA_CACHE_BYTES: usize = 8 * 1024 * 1024;

/// The size of the cache of directories, in bytes.
const TREE_CACHE_BYTES: u64 = 24 * 1024 * 1024;

/// The memory of a decoded tree, as a multiple of its size.
const DECODED_TREE_FACTOR: u64 = 4;

/// The capacities of the caches of modification times and of ancestors, in entries.
const MODIFICATION_TIMES_CAPACITY: usize = 4;
const ANCESTOR_CAPACITY: usize = 1000;

/// The shortest time between two attempts to reopen a repository with missing objects.
const REOPEN_INTERVAL: Duration = Duration::from_secs(3);

/// The maximum memory that the git library may allocate for one object.
const MAX_ALLOCATION_BYTES: usize = 256 * 1024 * 1024;

/// The largest `shallow` file, in bytes: some 400,000 commits.
const MAX_SHALLOW_BYTES: u64 = 16 * 1024 * 1024;

/// A repository for concurrent use.
pub(super) struct SharedRepository {
    path: PathBuf,
    /// The path of the working tree, if it existed when the repository was opened. If it is replaced with a symbolic
    /// link later, [`RootPath::reopen`] fails.
    work_root: Option<RootPath>,
    /// The git directory, with `HEAD`.
    git_dir: PathBuf,
    /// The common directory, with branches and tags; differs from `git_dir` for a linked working tree.
    common_dir: PathBuf,
    shared: Mutex<OpenRepository>,
    /// Whether the repository is on a remote file system, which other machines may write to.
    remote: bool,
    refs: RefStore,
    alternates: Alternates,
    /// The cached boundary commits of a shallow clone, sorted, with the stamp of the `shallow` file.
    shallow: Mutex<Option<(GitFileStamp, Arc<[ObjectId]>)>>,
    directories: quick_cache::sync::Cache<ObjectId, Arc<TreeListing>, TreeListingWeight>,
    /// The modification times of the files of recently listed commits.
    modification_times: quick_cache::sync::Cache<ObjectId, Arc<ModificationTimes>>,
    /// The ancestors of commits, by commit and distance along first parents.
    ancestors: quick_cache::sync::Cache<(ObjectId, u32), ObjectId>,
}

/// The only folder that is accepted as the working tree of the repository at this path: the path itself, or the
/// parent of `.git`. The repository may also have no working tree.
fn named_work_tree(path: &Path) -> &Path {
    path.parent().filter(|_| path.ends_with(".git")).unwrap_or(path)
}

/// The state of the git library.
struct OpenRepository {
    repository: gix::ThreadSafeRepository,
    /// Idle handles, with their caches.
    idle: Vec<gix::Repository>,
    /// Generation: bumped when the repository is opened again.
    generation: u64,
    opened: Instant,
    /// Whether an object was missing since `opened`. If the library once failed to open a pack, for lack of file
    /// descriptors or memory, it never retries. All objects of that pack would be missing until the repository is
    /// reopened.
    suspect: bool,
}

impl OpenRepository {
    fn open(path: &Path, generation: u64) -> gix::Result<Self> {
        // Isolated: the library ignores the environment and the user's configuration. No operation of this source
        // runs a subprocess.
        let options = gix::open::Options::isolated()
            .config_overrides([format!("gitoxide.objects.allocLimit={MAX_ALLOCATION_BYTES}")]);
        let repository = options.open(path)?;
        Ok(Self { repository, idle: Vec::new(), generation, opened: Instant::now(), suspect: false })
    }
}

impl SharedRepository {
    pub(super) fn open(path: &Path) -> gix::Result<Self> {
        let opened = OpenRepository::open(path, 0)?;
        let shared = &opened.repository;
        let common = shared.common_dir.as_deref().unwrap_or_else(|| shared.git_dir());
        let hash = shared.to_thread_local().object_hash();
        Ok(Self {
            path: path.to_owned(),
            work_root: RootPath::open(named_work_tree(path)).ok().map(|(root, _)| root),
            git_dir: shared.git_dir().to_owned(),
            common_dir: common.to_owned(),
            remote: is_remote(common),
            refs: RefStore::new(shared.git_dir(), common, hash),
            alternates: Alternates::new(common),
            shallow: Mutex::default(),
            shared: Mutex::new(opened),
            directories: quick_cache::sync::Cache::with_weighter(1000, TREE_CACHE_BYTES, TreeListingWeight),
            modification_times: quick_cache::sync::Cache::new(MODIFICATION_TIMES_CAPACITY),
            ancestors: quick_cache::sync::Cache::new(ANCESTOR_CAPACITY),
        })
    }

    /// The git directory, with `HEAD`.
    pub(super) fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// The common directory, with branches and tags; differs for a linked working tree.
    pub(super) fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Opens the working tree: the folder at `path`, or the parent of that folder if it is `.git`. The outer error is a
    /// failed system call; the inner one says why the repository has no usable working tree.
    ///
    /// A working tree elsewhere (`core.worktree`) is not used: whoever can write to `.git` could choose any folder.
    pub(super) fn work_tree(&self, repository: &gix::Repository) -> Result<Result<Dir, &'static str>> {
        let Some(found) = repository.workdir() else {
            return Ok(Err(
                "a bare repository has no working tree, so it has no status; read `log/HEAD` or `refs`",
            ));
        };
        let named = named_work_tree(&self.path);
        let is_same =
            named.canonicalize().is_ok_and(|named| found.canonicalize().is_ok_and(|found| found == named));
        match self.work_root.as_ref().filter(|_| is_same) {
            Some(root) => root.reopen().map(Ok).map_err(worktree::failed),
            None => Ok(Err("the working tree is another folder; serve that folder to get its status")),
        }
    }

    /// The path of the working tree, if there is one.
    pub(super) fn work_tree_path(&self) -> Option<PathBuf> {
        let repository = self.shared().repository.to_thread_local();
        self.work_tree(&repository).ok()?.ok()?;
        Some(named_work_tree(&self.path).to_owned())
    }

    /// Fails if the repository is gone, or has a file that the library must not open.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        // Without this check, a missing repository would look like an empty one.
        match GitFileStamp::of(&self.git_dir().join("HEAD")) {
            Ok(Some(_)) => self.alternates.check(),
            Ok(None) => Err(Error::Unavailable(format!(
                "the repository `{name}` does not exist now; hint: restore it, or remove it from the configuration"
            ))),
            Err(cause) => Err(Error::failed("read the repository", cause)),
        }
    }

    /// The boundary commits of a shallow clone, sorted; empty for other repositories.
    fn shallow(&self) -> Result<Arc<[ObjectId]>> {
        const NAME: &str = "shallow";
        let path = self.common_dir().join(NAME);
        let stamp = GitFileStamp::of(&path).map_err(|cause| Error::failed("read the repository", cause))?;
        let Some(stamp) = stamp else { return Ok(Arc::default()) };
        let mut cached = self.shallow.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, commits)) = &*cached
            && *of == stamp
        {
            return Ok(commits.clone());
        }
        let file = regular::read(&path, MAX_SHALLOW_BYTES).map_err(|cause| cause.into_error(NAME))?;
        let Some(file) = file else { return Ok(Arc::default()) };
        let lines = file.data.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let ids = lines.filter(|line| !line.is_empty()).map(ObjectId::from_hex);
        let mut commits = ids.collect::<Result<Vec<_>, _>>().map_err(fault)?;
        commits.sort();
        let commits: Arc<[ObjectId]> = commits.into();
        *cached = Some((file.stamp, commits.clone()));
        Ok(commits)
    }

    fn shared(&self) -> MutexGuard<'_, OpenRepository> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reopen(&self, shared: &mut OpenRepository) {
        shared.opened = Instant::now();
        shared.suspect = false;
        let checked = guard::check_repository(&self.path);
        let opened = checked.and_then(|()| {
            OpenRepository::open(&self.path, shared.generation + 1).map_err(|cause| cause.to_string())
        });
        match opened {
            Ok(opened) => *shared = opened,
            Err(why) => tracing::warn!(why, "the repository cannot be opened again"),
        }
    }

    /// A handle for one task. If an object was missing, first opens the repository again, unless that was done within
    /// [`REOPEN_INTERVAL`].
    pub(super) fn for_task(&self, task: Task) -> TaskRepository<'_> {
        let mut shared = self.shared();
        if shared.suspect && shared.opened.elapsed() > REOPEN_INTERVAL {
            self.reopen(&mut shared);
        }
        let handle = shared.idle.pop().unwrap_or_else(|| {
            let mut handle = shared.repository.to_thread_local();
            handle.object_cache_size(OBJECT_CACHE_BYTES);
            handle.objects.set_pack_cache(|| Box::new(StaticLinkedList::<64>::new(DELTA_CACHE_BYTES)));
            handle
        });
        TaskRepository {
            handle: Some(handle),
            repo: self,
            task,
            memory: TaskMemory::default(),
            generation: shared.generation,
            decoded_tree_bytes: Cell::new(0),
            shallow: OnceCell::new(),
        }
    }
}

/// The deadline of a task, and whether its caller is gone.
#[derive(Clone)]
pub(super) struct Deadline {
    until: Instant,
    limit: Duration,
    gone: Arc<AtomicBool>,
}

impl Deadline {
    /// `gone` is set when the caller is gone.
    pub(super) fn new(from: Instant, limit: Duration, gone: Arc<AtomicBool>) -> Self {
        Self { until: from + limit, limit, gone }
    }

    /// The time of the deadline.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Fails after the deadline or when the caller is gone. Nothing else stops a blocking task, so it calls this
    /// regularly.
    pub(super) fn check(&self) -> Result<()> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(Error::Unavailable("the caller is gone".into()));
        }
        if Instant::now() > self.until {
            let limit = self.limit;
            return Err(Error::Unavailable(format!(
                "this took longer than {limit:?}; hint: ask for less, such as one path or fewer commits"
            )));
        }
        Ok(())
    }
}

/// A blocking task and its request.
pub(super) struct Task {
    /// The requested URI.
    pub(super) uri: Uri,
    /// The context of the request. It also holds the concurrency permit of the catalog until the task ends.
    pub(super) context: Context,
    pub(super) deadline: Deadline,
}

/// The repository as seen by one task: a handle with its own caches, the task's deadline and its memory.
pub(super) struct TaskRepository<'r> {
    handle: Option<gix::Repository>,
    repo: &'r SharedRepository,
    pub(super) task: Task,
    pub(super) memory: TaskMemory,
    /// Generation of the repository that the handle belongs to.
    generation: u64,
    /// The bytes of trees decoded so far.
    decoded_tree_bytes: Cell<u64>,
    /// The boundary commits of a shallow clone. Read once, so that the whole task sees the same ones.
    shallow: OnceCell<Arc<[ObjectId]>>,
}

impl Drop for TaskRepository<'_> {
    fn drop(&mut self) {
        // The number of idle handles is bounded by the number of concurrent tasks.
        let mut shared = self.repo.shared();
        if shared.generation == self.generation {
            shared.idle.extend(self.handle.take());
        }
    }
}

impl Deref for TaskRepository<'_> {
    type Target = gix::Repository;

    fn deref(&self) -> &gix::Repository {
        self.handle.as_ref().expect("the handle is given back when this is dropped")
    }
}

/// The fields of a commit that a history walk needs.
#[derive(Clone, Debug)]
pub(super) struct CommitNode {
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
    /// The committer time, in seconds.
    pub(super) time: i64,
}

/// An entry of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeEntry {
    pub(super) kind: EntryKind,
    pub(super) id: ObjectId,
}

/// A tree entry with its name.
pub(super) type NamedEntry = (Vec<u8>, TreeEntry);

impl TaskRepository<'_> {
    /// The deadline of the task.
    pub(super) fn deadline(&self) -> &Deadline {
        &self.task.deadline
    }

    /// The error for an object that must exist but could not be loaded. A missing one marks the repository as suspect.
    pub(super) fn fault(&self, cause: gix::Error) -> Error {
        if cause.is_not_found() {
            self.mark_suspect();
        }
        fault(cause)
    }

    /// Records that a required object is missing, so that the repository is reopened.
    pub(super) fn mark_suspect(&self) {
        self.repo.shared().suspect = true;
    }

    /// Whether other machines may write to the repository.
    pub(super) fn is_remote(&self) -> bool {
        self.repo.remote
    }

    /// The size of an object; `None` if it is missing, as in a partial clone.
    pub(super) fn size(&self, id: ObjectId) -> Result<Option<u64>> {
        Ok(self.try_find_header(id).map_err(fault)?.map(|header| header.size()))
    }

    /// The data of a blob. The caller must have checked its size.
    pub(super) fn blob(&self, id: ObjectId) -> Result<Vec<u8>> {
        self.deadline().check()?;
        let mut blob = self.find_blob(id).map_err(fault)?;
        Ok(blob.take_data())
    }

    /// A commit; the boundary commits of a shallow clone have no parents.
    pub(super) fn node(&self, id: ObjectId) -> Result<CommitNode> {
        let object = self.load(id, Kind::Commit)?;
        let iter = || CommitRefIter::from_bytes(&object.data, self.object_hash());
        let tree = iter().tree_id().map_err(fault)?;
        let parents = if self.is_boundary(id)? { Vec::new() } else { self.parents(id, iter().parent_ids())? };
        let time = iter().committer().map_or(0, |committer| committer.seconds());
        Ok(CommitNode { tree, parents, time })
    }

    /// Whether this is a boundary commit of a shallow clone.
    pub(super) fn is_boundary(&self, id: ObjectId) -> Result<bool> {
        Ok(self.boundaries()?.binary_search(&id).is_ok())
    }

    /// Whether this is a shallow clone.
    pub(super) fn is_shallow(&self) -> Result<bool> {
        Ok(!self.boundaries()?.is_empty())
    }

    fn boundaries(&self) -> Result<&[ObjectId]> {
        if let Some(known) = self.shallow.get() {
            return Ok(known);
        }
        let read = self.repo.shallow()?;
        Ok(self.shallow.get_or_init(|| read))
    }

    pub(super) fn refs(&self) -> &RefStore {
        &self.repo.refs
    }

    /// The entries of a tree in git's order, without those with invalid names (see [`is_name`]). Keep the
    /// returned memory reservation as long as the entries.
    pub(super) fn tree(&self, id: ObjectId) -> Result<(Vec<NamedEntry>, HeldMemory<'_>)> {
        let object = self.tree_object(id)?;
        let held = self.hold(object.data.len() as u64 * DECODED_TREE_FACTOR)?;
        let mut entries = Vec::new();
        for entry in TreeRefIter::from_bytes(&object.data, self.object_hash()) {
            let entry = entry.map_err(fault)?;
            if is_name(entry.filename) {
                let found = TreeEntry { kind: entry.mode.kind(), id: entry.oid.to_owned() };
                entries.push((entry.filename.to_vec(), found));
            }
        }
        Ok((entries, held))
    }

    /// The entry of a tree with a given name, found without decoding the other entries into a list.
    fn entry(&self, id: ObjectId, name: &[u8]) -> Result<Option<TreeEntry>> {
        let object = self.tree_object(id)?;
        for entry in TreeRefIter::from_bytes(&object.data, self.object_hash()) {
            let entry = entry.map_err(fault)?;
            if *entry.filename == *name {
                return Ok(Some(TreeEntry { kind: entry.mode.kind(), id: entry.oid.to_owned() }));
            }
        }
        Ok(None)
    }

    fn tree_object(&self, id: ObjectId) -> Result<gix::Object<'_>> {
        let object = self.load(id, Kind::Tree)?;
        self.decoded_tree_bytes.set(self.decoded_tree_bytes.get() + object.data.len() as u64);
        Ok(object)
    }

    /// The bytes of trees decoded so far.
    pub(super) fn decoded_tree_bytes(&self) -> u64 {
        self.decoded_tree_bytes.get()
    }

    /// The entries of a tree in the order of their URIs; cached.
    pub(super) fn directory(&self, id: ObjectId) -> Result<Arc<TreeListing>> {
        if let Some(kept) = self.repo.directories.get(&id) {
            return Ok(kept);
        }
        let (entries, _held) = self.tree(id)?;
        let directory = Arc::new(TreeListing::new(entries));
        self.repo.directories.insert(id, Arc::clone(&directory));
        Ok(directory)
    }

    /// The modification times of the files of a commit; cached.
    pub(super) fn modification_times(&self, commit: ObjectId) -> Result<Arc<ModificationTimes>> {
        if let Some(kept) = self.repo.modification_times.get(&commit) {
            return Ok(kept);
        }
        let times = Arc::new(ModificationTimes::read(self, commit)?);
        self.repo.modification_times.insert(commit, Arc::clone(&times));
        Ok(times)
    }

    /// The ancestor of a commit, `back` steps along first parents; cached. `None` if the history is shorter.
    pub(super) fn ancestor(&self, commit: ObjectId, back: u32) -> Result<Option<ObjectId>> {
        if let Some(kept) = self.repo.ancestors.get(&(commit, back)) {
            return Ok(Some(kept));
        }
        let mut id = commit;
        for _ in 0..back {
            match self.node(id)?.parents.first() {
                Some(parent) => id = *parent,
                None => return Ok(None),
            }
        }
        self.repo.ancestors.insert((commit, back), id);
        Ok(Some(id))
    }

    /// The entry at a path below a tree; the tree itself if the path is empty.
    pub(super) fn entry_at(&self, tree: ObjectId, path: &[&[u8]]) -> Result<Option<TreeEntry>> {
        let mut found = TreeEntry { kind: EntryKind::Tree, id: tree };
        for name in path {
            if found.kind != EntryKind::Tree || !is_name(name) {
                return Ok(None);
            }
            match self.entry(found.id, name)? {
                Some(entry) => found = entry,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }
}

/// The longest name of a tree entry, in bytes. No file system has longer ones.
const MAX_NAME_BYTES: usize = 4096;

/// Whether git allows this name of a tree entry. A crafted tree can contain any name; entries with invalid ones, such
/// as `..`, are treated as missing.
pub(super) fn is_name(name: &[u8]) -> bool {
    let reserved = name.is_empty()
        || name.len() > MAX_NAME_BYTES
        || matches!(name, b"." | b"..")
        || name.eq_ignore_ascii_case(b".git");
    !reserved && !name.contains(&b'/') && !name.contains(&0)
}

/// The decoded names of a percent-encoded path; `None` if one is invalid.
pub(super) fn names(path: &str) -> Option<Vec<Vec<u8>>> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Some(Vec::new());
    }
    path.split('/').map(|segment| Uri::decode_segment(segment).filter(|name| is_name(name))).collect()
}

/// The error for an object that could not be loaded or decoded.
pub(super) fn fault(cause: gix::Error) -> Error {
    if cause.is_not_found() {
        tracing::warn!(%cause, "an object is missing");
        return Error::Unavailable(
            "the repository lacks this object: it is a partial clone, or damaged; hint: run `git fsck`, or `git fetch --refetch` in a partial clone".into(),
        );
    }
    Error::failed("read the repository", cause)
}

/// The error for an object with unexpected contents.
pub(super) fn damaged(what: &'static str) -> Error {
    Error::failed("read the repository", what)
}

#[cfg(target_os = "linux")]
fn is_remote(folder: &Path) -> bool {
    use std::os::fd::AsFd;
    std::fs::File::open(folder).is_ok_and(|folder| crate::remote::is_remote(folder.as_fd()))
}

#[cfg(not(target_os = "linux"))]
fn is_remote(_: &Path) -> bool {
    false
}
