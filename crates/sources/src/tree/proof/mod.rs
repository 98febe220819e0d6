//! Proofs that a response about the tree is still valid, so that it can be served from a cache.
//!
//! Each watched directory has generation counters, which inotify events advance. The kernel queues an event within the
//! system call that changes the directory. So once the queue is drained, an unchanged counter proves an unchanged
//! directory, and one drain proves a whole page of a listing. For a response about a single file, its `stat` result is
//! compared too, which also reveals changes through other hard links.
//!
//! Some changes are detected in neither way: writes through a memory map or through a name that was deleted since, a
//! change of an ignore file through another hard link, and mounts. That is why no evidence is trusted for longer than
//! [`MAX_AGE`].

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only inotify events are recorded in journals")
)]
mod journal;

mod quiet;

#[cfg(target_os = "linux")]
mod inotify;
#[cfg(target_os = "linux")]
use inotify::GenerationTracker;

#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(not(target_os = "linux"))]
use unsupported::GenerationTracker;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use libris_core::Proof;

use super::OpenFolder;
use super::root::{DirectoryHandle, PathFromRoot};
use super::stamp::{FileId, StatStamp};
pub(super) use journal::NameJournal;
use journal::NameJournals;
pub(crate) use quiet::QuietPaths;

/// For how long evidence is trusted: the longest that a change without an event can go unnoticed.
pub(super) const MAX_AGE: Duration = Duration::from_secs(2);

/// The generation counters of a watched directory.
#[derive(Debug, Default)]
struct Generations {
    /// Advances when the directory itself, a subdirectory or an ignore file in it changes.
    structure: AtomicU64,
    /// Advances also when files are created, deleted or renamed in the directory.
    names: AtomicU64,
    /// Advances also when the content or metadata of a file in the directory changes.
    files: AtomicU64,
    journals: NameJournals,
}

/// What a change invalidates. A larger scope includes the smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only inotify events advance generations"))]
enum ChangeScope {
    /// The content or metadata of files.
    Files,
    /// The names of files.
    Names,
    /// Subdirectories, ignore rules, or the directory itself.
    Structure,
}

impl Generations {
    #[cfg(target_os = "linux")]
    fn advance(&self, scope: ChangeScope) {
        if scope >= ChangeScope::Structure {
            self.structure.fetch_add(1, Ordering::Release);
        }
        if scope >= ChangeScope::Names {
            self.names.fetch_add(1, Ordering::Release);
        }
        self.files.fetch_add(1, Ordering::Release);
    }

    fn current(&self, scope: ChangeScope) -> u64 {
        let counter = match scope {
            ChangeScope::Structure => &self.structure,
            ChangeScope::Names => &self.names,
            ChangeScope::Files => &self.files,
        };
        counter.load(Ordering::Acquire)
    }
}

/// The value of a generation counter when a directory was observed.
#[derive(Clone, Debug)]
struct ObservedGeneration {
    generations: Arc<Generations>,
    scope: ChangeScope,
    value: u64,
}

impl ObservedGeneration {
    fn now(generations: &Arc<Generations>, scope: ChangeScope) -> Self {
        Self { generations: Arc::clone(generations), scope, value: generations.current(scope) }
    }

    /// The current generation of the same directory for another scope.
    fn observe(&self, scope: ChangeScope) -> Self {
        Self::now(&self.generations, scope)
    }

    /// Whether the counter has not advanced.
    fn holds(&self) -> bool {
        self.generations.current(self.scope) == self.value
    }
}

/// Evidence that a directory's path from the root, and the ignore rules on it, are unchanged.
#[derive(Debug)]
pub(super) struct PathEvidence {
    observed: ObservedGeneration,
    /// For the root only: its ancestors, `.git` and `.git/info`.
    also_observed: Vec<ObservedGeneration>,
    /// For a root whose ancestors cannot be watched: its path, at which a directory of this identity must still be.
    expected_root: Option<(PathBuf, FileId)>,
    parent: Option<Arc<PathEvidence>>,
    began: Instant,
}

impl PathEvidence {
    /// Whether this evidence is not older than [`MAX_AGE`].
    pub(super) fn is_recent(&self) -> bool {
        self.began.elapsed() <= MAX_AGE
    }

    /// Whether the evidence holds for this directory and for all directories above it, up to the root. The event queue
    /// must have been drained.
    fn holds(&self) -> bool {
        let now = Instant::now();
        let mut current = Some(self);
        while let Some(here) = current {
            if now.saturating_duration_since(here.began) > MAX_AGE {
                return false;
            }
            let in_place = here.expected_root.as_ref().is_none_or(|(path, root)| root.is_at(path));
            if !(in_place
                && here.observed.holds()
                && here.also_observed.iter().all(ObservedGeneration::holds))
            {
                return false;
            }
            current = here.parent.as_deref();
        }
        true
    }

    /// Evidence that holds until a file is created, deleted or renamed in the directory.
    pub(super) fn names_evidence(&self) -> DirectoryEvidence {
        DirectoryEvidence(self.observed.observe(ChangeScope::Names))
    }

    /// Evidence that holds until a file in the directory changes in any way.
    pub(super) fn files_evidence(&self) -> DirectoryEvidence {
        DirectoryEvidence(self.observed.observe(ChangeScope::Files))
    }

    /// A journal of the names in the directory that change from now on; `None` if the watch has ended.
    pub(super) fn journal(&self) -> Option<Arc<NameJournal>> {
        self.observed.generations.journals.open()
    }
}

/// Evidence that the names, or also the files, in a directory are unchanged. It proves something only while the
/// [`PathEvidence`] of the directory holds too.
#[derive(Clone, Debug)]
pub(super) struct DirectoryEvidence(ObservedGeneration);

impl DirectoryEvidence {
    /// Whether it holds. The event queue must have been drained.
    pub(super) fn holds(&self) -> bool {
        self.0.holds()
    }
}

/// Watches directories, so that responses about them can be proven valid.
pub(crate) struct Prover {
    /// `None`: nothing can be proven.
    tracker: Option<&'static GenerationTracker>,
}

impl Prover {
    pub(super) fn new() -> Self {
        Self { tracker: GenerationTracker::shared() }
    }

    /// A prover that proves nothing.
    pub(super) fn disabled() -> Self {
        Self { tracker: None }
    }

    /// Watches the root, which was found at `path`; `None` if nothing can be proven about it.
    ///
    /// After this call, the caller must read everything that is to be proven, and check again that the root is
    /// still at `path`.
    pub(super) fn watch_root(
        &self,
        path: &Path,
        handle: &DirectoryHandle,
        root: FileId,
    ) -> Option<Arc<PathEvidence>> {
        let began = Instant::now();
        let tracker = self.tracker?;
        let mut also_observed = Vec::new();
        let ancestors = tracker.watch_ancestors(path);
        let expected_root = ancestors.is_none().then(|| (path.to_owned(), root));
        also_observed.extend(ancestors.into_iter().flatten());
        let excludes = tracker.watch_git_excludes(handle)?;
        also_observed.extend(excludes.iter().map(|observed| observed.observe(ChangeScope::Files)));
        let observed = tracker.watch_directory(handle)?;
        Some(Arc::new(PathEvidence { observed, also_observed, expected_root, parent: None, began }))
    }

    /// Watches a directory whose parent is watched; `None` if it cannot be watched.
    pub(super) fn watch_child(
        &self,
        parent: &Arc<PathEvidence>,
        handle: &DirectoryHandle,
    ) -> Option<Arc<PathEvidence>> {
        let began = Instant::now();
        let observed = self.tracker?.watch_directory(handle)?;
        let parent = Some(Arc::clone(parent));
        Some(Arc::new(PathEvidence {
            observed,
            also_observed: Vec::new(),
            expected_root: None,
            parent,
            began,
        }))
    }

    /// Drains the event queue and returns whether this evidence holds.
    pub(super) fn holds(&self, evidence: &PathEvidence) -> bool {
        self.drain() && evidence.holds()
    }

    /// Drains the event queue, so that generations and journals reflect every change that ended before this call.
    /// Returns whether that was possible.
    pub(super) fn drain(&self) -> bool {
        self.tracker.is_some_and(GenerationTracker::catch_up)
    }
}

/// Collects the dependencies of a response while it is built, and converts them to a [`Proof`].
pub(crate) struct ProofBuilder {
    began: Instant,
    /// `None`: the response depends on something that cannot be proven unchanged.
    dependencies: Option<Dependencies>,
}

/// What must be unchanged for a response to be valid.
struct Dependencies {
    tracker: &'static GenerationTracker,
    /// The path to the first directory that was added; those added later are below it.
    path: Option<Arc<PathEvidence>>,
    /// The directories whose names and files must be unchanged.
    directories: Vec<ObservedGeneration>,
    /// The file, if the response is about a single one.
    file: Option<(PathFromRoot, StatStamp)>,
}

impl ProofBuilder {
    pub(crate) fn new(prover: &Prover) -> Self {
        let dependencies = prover.tracker.map(|tracker| Dependencies {
            tracker,
            path: None,
            directories: Vec::new(),
            file: None,
        });
        Self { began: Instant::now(), dependencies }
    }

    /// Makes the response depend on the names and the files in a directory.
    ///
    /// To be called before these files are read. The first directory must be an ancestor of all others.
    pub(crate) fn add_directory(&mut self, folder: &OpenFolder) {
        if let (Some(path_evidence), Some(names_evidence), Some(dependencies)) =
            (&folder.path_evidence, &folder.names_evidence, &mut self.dependencies)
        {
            dependencies.directories.push(path_evidence.observed.observe(ChangeScope::Files));
            dependencies.path.get_or_insert_with(|| Arc::clone(path_evidence));
            // The names may have been read before this call. If they changed since, the generation observed just now
            // belongs to newer names.
            if names_evidence.holds() {
                return;
            }
        }
        self.dependencies = None;
    }

    /// Narrows the dependency to a single file in the only directory that was added before. `stamp` is that of the file
    /// when it was opened.
    pub(crate) fn add_file(&mut self, path: PathFromRoot, stamp: StatStamp) {
        if let Some(dependencies) = &mut self.dependencies {
            // Two changes within one tick of the file system's clock leave the same stamp. While the stamp is that
            // young, the directory's events are needed too.
            if stamp.settled(SystemTime::now()) {
                dependencies.directories.clear();
            }
            dependencies.file = Some((path, stamp));
        }
    }

    /// Makes the response depend on something that cannot be proven unchanged.
    pub(crate) fn invalidate(&mut self) {
        self.dependencies = None;
    }

    /// Adds all dependencies of `other`. The first directory that was added here must be an ancestor of all its
    /// directories.
    pub(crate) fn include(&mut self, other: &Self) {
        self.began = self.began.min(other.began);
        match (&mut self.dependencies, &other.dependencies) {
            (Some(dependencies), Some(more)) => dependencies.directories.extend_from_slice(&more.directories),
            _ => self.dependencies = None,
        }
    }

    /// The number of directories that the response depends on.
    pub(super) fn directories(&self) -> usize {
        self.dependencies.as_ref().map_or(0, |dependencies| dependencies.directories.len())
    }

    /// Whether the response can be proven valid.
    pub(super) fn is_provable(&self) -> bool {
        self.dependencies.as_ref().is_some_and(|dependencies| dependencies.path.is_some())
    }

    /// Whether the response is still valid.
    pub(crate) fn holds(&self) -> bool {
        self.is_provable()
            && self.began.elapsed() < MAX_AGE
            && self.dependencies.as_ref().is_some_and(Dependencies::hold)
    }

    /// The proof; `None` if the response cannot be proven valid.
    pub(crate) fn build(self) -> Option<Proof> {
        let (dependencies, began) = (self.dependencies?, self.began);
        dependencies.path.as_ref()?;
        Some(Proof::new(move || began.elapsed() < MAX_AGE && dependencies.hold()))
    }
}

impl Dependencies {
    fn hold(&self) -> bool {
        self.tracker.catch_up()
            && self.path.as_ref().is_some_and(|path| path.holds())
            && self.directories.iter().all(ObservedGeneration::holds)
            && self.file.as_ref().is_none_or(|(path, stamp)| path.stamp().is_ok_and(|now| now == *stamp))
    }
}
