//! Knowing that nothing has changed, so that an answer given before can be given again.
//!
//! The system queues an event in the same call that changes a directory. So when the queue is empty,
//! every directory that is under watch is as it was when it was marked: one question to the system
//! proves a whole page. What the queue is not told of, a file is asked itself. Some changes show in neither:
//! what is written through a memory map or under a name that is gone, and what is mounted. So nothing is
//! trusted for longer than [`LONGEST`] without being looked at again.

#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only a queue writes journals"))]
mod journal;

#[cfg(target_os = "linux")]
mod inotify;
#[cfg(target_os = "linux")]
use inotify::Queue;

#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(not(target_os = "linux"))]
use unsupported::Queue;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use libris_core::Proof;

use super::Folder;
use super::root::{Place, Spot};
use super::stamp::{Identity, Stamp};
pub(super) use journal::Journal;
use journal::Journals;

/// For how long anything is trusted: the longest that a change of which the system says nothing stays unseen.
pub(super) const LONGEST: Duration = Duration::from_secs(2);

/// How often something has happened to a directory since it was first watched.
#[derive(Debug, Default)]
struct Mark {
    /// To itself, to a directory in it, or to its rules for what is shown.
    way: AtomicU64,
    /// To that, or to which files are in it.
    names: AtomicU64,
    /// To that, or to one of these files.
    files: AtomicU64,
    journals: Journals,
}

/// What an event is about, from the least to the most that depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only a queue makes marks"))]
enum Depth {
    Files,
    Names,
    Way,
}

impl Mark {
    #[cfg(target_os = "linux")]
    fn set(&self, depth: Depth) {
        if depth >= Depth::Way {
            self.way.fetch_add(1, Ordering::Release);
        }
        if depth >= Depth::Names {
            self.names.fetch_add(1, Ordering::Release);
        }
        self.files.fetch_add(1, Ordering::Release);
    }

    fn count(&self, depth: Depth) -> u64 {
        let counter = match depth {
            Depth::Way => &self.way,
            Depth::Names => &self.names,
            Depth::Files => &self.files,
        };
        counter.load(Ordering::Acquire)
    }
}

/// A mark as it was when something was looked at.
#[derive(Clone, Debug)]
struct Seen {
    mark: Arc<Mark>,
    depth: Depth,
    count: u64,
}

impl Seen {
    fn now(mark: &Arc<Mark>, depth: Depth) -> Self {
        Self { mark: Arc::clone(mark), depth, count: mark.count(depth) }
    }

    /// The same directory as it is now, to this depth.
    fn to(&self, depth: Depth) -> Self {
        Self::now(&self.mark, depth)
    }

    fn is_so(&self) -> bool {
        self.mark.count(self.depth) == self.count
    }
}

/// That a directory is still where it was opened, with the same rules for what is shown in it.
#[derive(Debug)]
pub(super) struct Chain {
    seen: Seen,
    /// What else must be as it was: only the root has something.
    besides: Vec<Seen>,
    /// Where the root must still be found, if nothing would tell that it no longer is.
    found: Option<(PathBuf, Identity)>,
    above: Option<Arc<Chain>>,
    /// When it was begun, since what the system does not tell must be looked at again.
    began: Instant,
}

impl Chain {
    /// Whether it may still be trusted, if nothing was told.
    pub(super) fn is_recent(&self) -> bool {
        self.began.elapsed() <= LONGEST
    }

    fn is_so(&self) -> bool {
        let now = Instant::now();
        let mut link = Some(self);
        while let Some(here) = link {
            if now.saturating_duration_since(here.began) > LONGEST {
                return false;
            }
            let found = here.found.as_ref().is_none_or(|(path, root)| root.is_at(path));
            if !(found && here.seen.is_so() && here.besides.iter().all(Seen::is_so)) {
                return false;
            }
            link = here.above.as_deref();
        }
        true
    }
}

/// That the same files are in a directory as when it was looked at, or also that none has changed.
#[derive(Clone, Debug)]
pub(super) struct Entries(Seen);

impl Chain {
    /// Which files are in the directory now.
    pub(super) fn entries(&self) -> Entries {
        Entries(self.seen.to(Depth::Names))
    }

    /// A journal of the names in the directory that change from now on, where there can be one.
    pub(super) fn journal(&self) -> Option<Arc<Journal>> {
        self.seen.mark.journals.begin()
    }

    /// The files that are in the directory now, as they are now.
    pub(super) fn files(&self) -> Entries {
        Entries(self.seen.to(Depth::Files))
    }
}

impl Entries {
    /// Whether they are still these. True only of a directory whose chain holds.
    pub(super) fn are_so(&self) -> bool {
        self.0.is_so()
    }
}

/// Watches directories so that answers about them can be proven.
pub(crate) struct Vigil {
    queue: Option<&'static Queue>,
}

impl Vigil {
    pub(super) fn new() -> Self {
        Self { queue: Queue::shared() }
    }

    /// One that proves nothing.
    pub(super) fn none() -> Self {
        Self { queue: None }
    }

    /// Begins to watch the root, which was found at `path`. Everything that is to be proven must be looked
    /// at after this, also whether the root is still there. `None` where nothing can be proven.
    pub(super) fn begin(&self, path: &Path, place: &Place, root: Identity) -> Option<Arc<Chain>> {
        let began = Instant::now();
        let queue = self.queue?;
        let mut besides = Vec::new();
        let above = queue.mark_above(path);
        let found = above.is_none().then(|| (path.to_owned(), root));
        besides.extend(above.into_iter().flatten());
        besides.extend(queue.mark_excludes(place)?.iter().map(|seen| seen.to(Depth::Files)));
        let seen = queue.mark(place)?;
        Some(Arc::new(Chain { seen, besides, found, above: None, began }))
    }

    /// Begins to watch a directory below one that is watched.
    pub(super) fn go_on(&self, above: &Arc<Chain>, place: &Place) -> Option<Arc<Chain>> {
        let began = Instant::now();
        let seen = self.queue?.mark(place)?;
        let above = Some(Arc::clone(above));
        Some(Arc::new(Chain { seen, besides: Vec::new(), found: None, above, began }))
    }

    /// Whether a directory is still where it was opened, and as it was then.
    pub(super) fn holds(&self, chain: &Chain) -> bool {
        self.drain() && chain.is_so()
    }

    /// Drains the event queue, so that marks and journals know of every change that ended before this was
    /// called. Returns whether that was possible.
    pub(super) fn drain(&self) -> bool {
        self.queue.is_some_and(Queue::is_calm)
    }
}

/// What an answer rests on, gathered while it is made.
pub(crate) struct Witness {
    began: Instant,
    evidence: Option<Evidence>,
}

struct Evidence {
    queue: &'static Queue,
    /// The way to the first directory that was looked at.
    way: Option<Arc<Chain>>,
    /// The directories that matter with their files.
    seen: Vec<Seen>,
    /// The file that matters by itself.
    file: Option<(Spot, Stamp)>,
}

impl Witness {
    pub(crate) fn new(vigil: &Vigil) -> Self {
        let evidence = vigil.queue.map(|queue| Evidence { queue, way: None, seen: Vec::new(), file: None });
        Self { began: Instant::now(), evidence }
    }

    /// The answer rests on what is in a directory and on the files there. To be said before they are
    /// looked at, and after the same was said of the directories above or of none.
    pub(crate) fn directory(&mut self, folder: &Folder) {
        if let (Some(chain), Some(entries), Some(evidence)) =
            (&folder.chain, &folder.entries, &mut self.evidence)
        {
            evidence.seen.push(chain.seen.to(Depth::Files));
            evidence.way.get_or_insert_with(|| Arc::clone(chain));
            // What is in it was looked up after it was opened, and perhaps before this: if it has changed
            // in between, what was just counted came too late to tell.
            if entries.are_so() {
                return;
            }
        }
        self.evidence = None;
    }

    /// Of the one directory that was said, only this file matters, which had this stamp when it was opened.
    pub(crate) fn file(&mut self, spot: Spot, stamp: Stamp) {
        if let Some(evidence) = &mut self.evidence {
            // Two changes within a tick of the clock leave the same stamp. So while it is young, the
            // directory must not have told of any.
            if stamp.settled(SystemTime::now()) {
                evidence.seen.clear();
            }
            evidence.file = Some((spot, stamp));
        }
    }

    /// The answer rests on something that cannot be proven.
    pub(crate) fn give_up(&mut self) {
        self.evidence = None;
    }

    /// The proof, where there is one.
    pub(crate) fn prove(self) -> Option<Proof> {
        let (evidence, began) = (self.evidence?, self.began);
        evidence.way.as_ref()?;
        Some(Proof::new(move || began.elapsed() < LONGEST && evidence.holds()))
    }
}

impl Evidence {
    fn holds(&self) -> bool {
        self.queue.is_calm()
            && self.way.as_ref().is_some_and(|way| way.is_so())
            && self.seen.iter().all(Seen::is_so)
            && self.file.as_ref().is_none_or(|(spot, stamp)| spot.stamp().is_ok_and(|now| now == *stamp))
    }
}
