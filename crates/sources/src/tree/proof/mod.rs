//! Knowing that nothing has changed, so that an answer given before can be given again.
//!
//! The system queues an event in the same call that changes a directory. So when the queue is empty,
//! every directory that is under watch is as it was when it was marked: one question to the system
//! proves a whole page. What the queue is not told of, a file is asked itself. Some changes show in neither:
//! what is written through a memory map or under a name that is gone, and what is mounted. So nothing is
//! trusted for longer than [`MAX_AGE`] without being looked at again.

#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only a queue writes journals"))]
mod journal;

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

/// For how long anything is trusted: the longest that a change of which the system says nothing stays unseen.
pub(super) const MAX_AGE: Duration = Duration::from_secs(2);

/// How often something has happened to a directory since it was first watched.
#[derive(Debug, Default)]
struct Generations {
    /// To itself, to a directory in it, or to its rules for what is shown.
    structure: AtomicU64,
    /// To that, or to which files are in it.
    names: AtomicU64,
    /// To that, or to one of these files.
    files: AtomicU64,
    journals: NameJournals,
}

/// What an event is about, from the least to the most that depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only a queue makes marks"))]
enum ChangeScope {
    Files,
    Names,
    Structure,
}

impl Generations {
    #[cfg(target_os = "linux")]
    fn set(&self, scope: ChangeScope) {
        if scope >= ChangeScope::Structure {
            self.structure.fetch_add(1, Ordering::Release);
        }
        if scope >= ChangeScope::Names {
            self.names.fetch_add(1, Ordering::Release);
        }
        self.files.fetch_add(1, Ordering::Release);
    }

    fn count(&self, scope: ChangeScope) -> u64 {
        let counter = match scope {
            ChangeScope::Structure => &self.structure,
            ChangeScope::Names => &self.names,
            ChangeScope::Files => &self.files,
        };
        counter.load(Ordering::Acquire)
    }
}

/// A mark as it was when something was looked at.
#[derive(Clone, Debug)]
struct ObservedGeneration {
    generations: Arc<Generations>,
    scope: ChangeScope,
    count: u64,
}

impl ObservedGeneration {
    fn now(generations: &Arc<Generations>, scope: ChangeScope) -> Self {
        Self { generations: Arc::clone(generations), scope, count: generations.count(scope) }
    }

    /// The same directory as it is now, to this depth.
    fn to(&self, scope: ChangeScope) -> Self {
        Self::now(&self.generations, scope)
    }

    fn holds(&self) -> bool {
        self.generations.count(self.scope) == self.count
    }
}

/// That a directory is still where it was opened, with the same rules for what is shown in it.
#[derive(Debug)]
pub(super) struct PathEvidence {
    seen: ObservedGeneration,
    /// What else must be as it was: only the root has something.
    also: Vec<ObservedGeneration>,
    /// Where the root must still be found, if nothing would tell that it no longer is.
    root_at: Option<(PathBuf, FileId)>,
    above: Option<Arc<PathEvidence>>,
    /// When it was begun, since what the system does not tell must be looked at again.
    began: Instant,
}

impl PathEvidence {
    /// Whether it may still be trusted, if nothing was told.
    pub(super) fn is_recent(&self) -> bool {
        self.began.elapsed() <= MAX_AGE
    }

    fn holds(&self) -> bool {
        let now = Instant::now();
        let mut link = Some(self);
        while let Some(here) = link {
            if now.saturating_duration_since(here.began) > MAX_AGE {
                return false;
            }
            let found = here.root_at.as_ref().is_none_or(|(path, root)| root.is_at(path));
            if !(found && here.seen.holds() && here.also.iter().all(ObservedGeneration::holds)) {
                return false;
            }
            link = here.above.as_deref();
        }
        true
    }
}

/// That the same files are in a directory as when it was looked at, or also that none has changed.
#[derive(Clone, Debug)]
pub(super) struct DirectoryEvidence(ObservedGeneration);

impl PathEvidence {
    /// Which files are in the directory now.
    pub(super) fn names_evidence(&self) -> DirectoryEvidence {
        DirectoryEvidence(self.seen.to(ChangeScope::Names))
    }

    /// A journal of the names in the directory that change from now on, where there can be one.
    pub(super) fn journal(&self) -> Option<Arc<NameJournal>> {
        self.seen.generations.journals.open()
    }

    /// The files that are in the directory now, as they are now.
    pub(super) fn files_evidence(&self) -> DirectoryEvidence {
        DirectoryEvidence(self.seen.to(ChangeScope::Files))
    }
}

impl DirectoryEvidence {
    /// Whether they are still these. True only of a directory whose chain holds.
    pub(super) fn holds(&self) -> bool {
        self.0.holds()
    }
}

/// Watches directories so that answers about them can be proven.
pub(crate) struct Prover {
    tracker: Option<&'static GenerationTracker>,
}

impl Prover {
    pub(super) fn new() -> Self {
        Self { tracker: GenerationTracker::shared() }
    }

    /// One that proves nothing.
    pub(super) fn disabled() -> Self {
        Self { tracker: None }
    }

    /// Begins to watch the root, which was found at `path`. Everything that is to be proven must be looked
    /// at after this, also whether the root is still there. `None` where nothing can be proven.
    pub(super) fn watch_root(
        &self,
        path: &Path,
        handle: &DirectoryHandle,
        root: FileId,
    ) -> Option<Arc<PathEvidence>> {
        let began = Instant::now();
        let tracker = self.tracker?;
        let mut also = Vec::new();
        let above = tracker.watch_ancestors(path);
        let root_at = above.is_none().then(|| (path.to_owned(), root));
        also.extend(above.into_iter().flatten());
        also.extend(tracker.watch_git_excludes(handle)?.iter().map(|seen| seen.to(ChangeScope::Files)));
        let seen = tracker.watch_directory(handle)?;
        Some(Arc::new(PathEvidence { seen, also, root_at, above: None, began }))
    }

    /// Begins to watch a directory below one that is watched.
    pub(super) fn watch_child(
        &self,
        above: &Arc<PathEvidence>,
        handle: &DirectoryHandle,
    ) -> Option<Arc<PathEvidence>> {
        let began = Instant::now();
        let seen = self.tracker?.watch_directory(handle)?;
        let above = Some(Arc::clone(above));
        Some(Arc::new(PathEvidence { seen, also: Vec::new(), root_at: None, above, began }))
    }

    /// Whether a directory is still where it was opened, and as it was then.
    pub(super) fn holds(&self, path_evidence: &PathEvidence) -> bool {
        self.drain() && path_evidence.holds()
    }

    /// Drains the event queue, so that marks and journals know of every change that ended before this was
    /// called. Returns whether that was possible.
    pub(super) fn drain(&self) -> bool {
        self.tracker.is_some_and(GenerationTracker::catch_up)
    }
}

/// What an answer rests on, gathered while it is made.
pub(crate) struct ProofBuilder {
    began: Instant,
    dependencies: Option<Dependencies>,
}

struct Dependencies {
    tracker: &'static GenerationTracker,
    /// The way to the first directory that was looked at.
    path: Option<Arc<PathEvidence>>,
    /// The directories that matter with their files.
    directories: Vec<ObservedGeneration>,
    /// The file that matters by itself.
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

    /// The answer rests on what is in a directory and on the files there. To be said before they are
    /// looked at, and after the same was said of the directories above or of none.
    pub(crate) fn add_directory(&mut self, folder: &OpenFolder) {
        if let (Some(path_evidence), Some(names_evidence), Some(dependencies)) =
            (&folder.path_evidence, &folder.names_evidence, &mut self.dependencies)
        {
            dependencies.directories.push(path_evidence.seen.to(ChangeScope::Files));
            dependencies.path.get_or_insert_with(|| Arc::clone(path_evidence));
            // What is in it was looked up after it was opened, and perhaps before this: if it has changed
            // in between, what was just counted came too late to tell.
            if names_evidence.holds() {
                return;
            }
        }
        self.dependencies = None;
    }

    /// Of the one directory that was said, only this file matters, which had this stamp when it was opened.
    pub(crate) fn add_file(&mut self, path: PathFromRoot, stamp: StatStamp) {
        if let Some(dependencies) = &mut self.dependencies {
            // Two changes within a tick of the clock leave the same stamp. So while it is young, the
            // directory must not have told of any.
            if stamp.settled(SystemTime::now()) {
                dependencies.directories.clear();
            }
            dependencies.file = Some((path, stamp));
        }
    }

    /// The answer rests on something that cannot be proven.
    pub(crate) fn invalidate(&mut self) {
        self.dependencies = None;
    }

    /// The proof, where there is one.
    pub(crate) fn build(self) -> Option<Proof> {
        let (dependencies, began) = (self.dependencies?, self.began);
        dependencies.path.as_ref()?;
        Some(Proof::new(move || began.elapsed() < MAX_AGE && dependencies.holds()))
    }
}

impl Dependencies {
    fn holds(&self) -> bool {
        self.tracker.catch_up()
            && self.path.as_ref().is_some_and(|way| way.holds())
            && self.directories.iter().all(ObservedGeneration::holds)
            && self.file.as_ref().is_none_or(|(path, stamp)| path.stamp().is_ok_and(|now| now == *stamp))
    }
}
