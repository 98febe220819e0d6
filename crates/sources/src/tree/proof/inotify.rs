//! The generation counters of directories, kept up to date from inotify events.
//!
//! The whole process shares one inotify instance, because the system limits their number per user
//! (`fs.inotify.max_user_instances`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{Event, ReadFlags, WatchFlags};

use super::super::filter::IgnoreRules;
use super::super::inotify::{
    CONTENT_EVENTS, ENTRY_EVENTS, EventBuffer, Inotify, InotifyItem, WatchDescriptor,
};
use super::super::root::{DirectoryHandle, is_missing};
use super::{ChangeScope, Generations, ObservedGeneration};
use crate::remote::is_remote;

/// The events for a directory of the tree. `CLOSE_WRITE` is not among them: the writes before it caused `MODIFY`.
const DIRECTORY_EVENTS: WatchFlags = ENTRY_EVENTS.union(CONTENT_EVENTS).union(MOVE_EVENTS);

/// The events for a directory in which only one subdirectory matters.
const SUBDIRECTORY_EVENTS: WatchFlags = ENTRY_EVENTS.union(WatchFlags::ONLYDIR);

/// The events for a directory above the root, which matters only for the path of the root.
const MOVE_EVENTS: WatchFlags =
    WatchFlags::MOVE_SELF.union(WatchFlags::DELETE_SELF).union(WatchFlags::ONLYDIR);

/// The events after which a name denotes a different file, or none.
const RENAMING: ReadFlags =
    ReadFlags::CREATE.union(ReadFlags::DELETE).union(ReadFlags::MOVED_FROM).union(ReadFlags::MOVED_TO);

/// The maximum number of watches of this instance.
const MAX_WATCHES: usize = 16_384;
/// This instance uses at most one in this many of the watches that the system allows the user
/// (`fs.inotify.max_user_watches`), because the watchers behind subscriptions need watches too.
const USER_SHARE: usize = 4;

/// The watched directories of the process with their generation counters.
pub(super) struct GenerationTracker {
    inotify: Inotify,
    max_watches: usize,
    /// Whether a thread is reading events and applying them to the counters.
    draining: AtomicBool,
    table: Mutex<WatchTable>,
}

struct WatchTable {
    directories: HashMap<WatchDescriptor, WatchedDirectory>,
    buffer: EventBuffer,
}

struct WatchedDirectory {
    generations: Arc<Generations>,
    /// Whether its file system reports all changes, which a remote one does not; `None` if not checked yet.
    reports_changes: Option<bool>,
    /// The only name whose events count; `None` if all do.
    only_name: Option<&'static [u8]>,
}

/// The directory on which to put a watch.
enum WatchTarget<'a> {
    /// A directory whose content matters. Its file system must report changes.
    Handle(BorrowedFd<'a>),
    /// A directory of which only moves and deletions matter, or whose file system is known to report changes.
    Path(&'a Path),
}

impl GenerationTracker {
    /// The tracker of this process; `None` if inotify is not available.
    pub(super) fn shared() -> Option<&'static Self> {
        static SHARED: LazyLock<Option<GenerationTracker>> = LazyLock::new(|| {
            GenerationTracker::open()
                .inspect_err(|cause| tracing::debug!(%cause, "responses about folders cannot be cached"))
                .ok()
        });
        SHARED.as_ref()
    }

    fn open() -> rustix::io::Result<Self> {
        let allowed = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
            .ok()
            .and_then(|number| number.trim().parse().ok())
            .unwrap_or(0);
        Ok(Self {
            inotify: Inotify::open()?,
            max_watches: MAX_WATCHES.min(allowed / USER_SHARE),
            draining: AtomicBool::new(false),
            table: Mutex::new(WatchTable { directories: HashMap::new(), buffer: EventBuffer::new() }),
        })
    }

    /// Watches a directory of the tree; `None` if it cannot be watched.
    pub(super) fn watch_directory(&self, handle: &DirectoryHandle) -> Option<ObservedGeneration> {
        self.watch(WatchTarget::Handle(handle.as_fd()), DIRECTORY_EVENTS, None)
    }

    /// Watches a directory by its path; `None` if it cannot be watched. The caller must check that the file system is
    /// local.
    pub(super) fn watch_path(&self, path: &Path) -> Option<ObservedGeneration> {
        self.watch(WatchTarget::Path(path), DIRECTORY_EVENTS, None)
    }

    /// Watches `.git`, in which `info` may appear, and `.git/info`, in which `exclude` may appear. `None` if one
    /// of them exists but cannot be watched.
    pub(super) fn watch_git_excludes(&self, root: &DirectoryHandle) -> Option<Vec<ObservedGeneration>> {
        let mut observed = Vec::new();
        // Git creates and deletes many files in `.git`; only `info` concerns the ignore rules.
        for (path, events, only_name) in [
            (&[".git"][..], SUBDIRECTORY_EVENTS, Some(&b"info"[..])),
            (&[".git", "info"], DIRECTORY_EVENTS, None),
        ] {
            match root.open_control_directory(path) {
                Ok(directory) => {
                    observed.push(self.watch(WatchTarget::Handle(directory.as_fd()), events, only_name)?);
                }
                Err(cause) if is_missing(&cause) => break,
                Err(_) => return None,
            }
        }
        Some(observed)
    }

    /// Watches the ancestors of a path. `None` if one of them cannot be watched, or if the path has symbolic
    /// links: a link can be replaced without an event in an ancestor.
    pub(super) fn watch_ancestors(&self, path: &Path) -> Option<Vec<ObservedGeneration>> {
        if path.canonicalize().ok()? != path {
            return None;
        }
        // While a directory is open, its deletion causes no `DELETE_SELF`, but a `DELETE` in its parent. The root is
        // open, so its parent is watched for `DELETE` too.
        let mut events = MOVE_EVENTS | WatchFlags::DELETE;
        let mut observed = Vec::new();
        for path in path.ancestors().skip(1) {
            let events = std::mem::replace(&mut events, MOVE_EVENTS);
            observed.push(self.watch(WatchTarget::Path(path), events, None)?);
        }
        Some(observed)
    }

    /// Applies all queued events, so that the counters reflect every change that ended before this call. Returns
    /// whether that was possible.
    pub(super) fn catch_up(&self) -> bool {
        match self.inotify.has_queued_events() {
            // A thread sets `draining` before it reads events. It is not set, so all events that were read are applied.
            Ok(false) if !self.draining.load(Ordering::SeqCst) => true,
            // Waits until the other thread has applied the events that it has read.
            Ok(false) => {
                drop(self.lock());
                true
            }
            Ok(true) => {
                self.drain();
                true
            }
            Err(_) => false,
        }
    }

    /// Watches a directory and returns its current generation; `None` if its changes cannot be detected.
    fn watch(
        &self,
        target: WatchTarget<'_>,
        events: WatchFlags,
        only_name: Option<&'static [u8]>,
    ) -> Option<ObservedGeneration> {
        let mut table = self.lock();
        if table.directories.len() >= self.max_watches {
            // Directories in use are watched again when they are next opened.
            table.remove_all(&self.inotify);
        }
        // The same directory may be watched for several reasons: its events add up.
        let events = events | WatchFlags::MASK_ADD;
        let watch = match target {
            WatchTarget::Handle(directory) => self.inotify.watch_handle(directory, events),
            WatchTarget::Path(path) => self.inotify.watch_path(path, events),
        };
        let new = || WatchedDirectory { generations: Arc::default(), reports_changes: None, only_name };
        let watched = table.directories.entry(watch.ok()?).or_insert_with(new);
        watched.only_name = watched.only_name.filter(|_| only_name.is_some());
        if let WatchTarget::Handle(directory) = target
            && !*watched.reports_changes.get_or_insert_with(|| !is_remote(directory))
        {
            return None;
        }
        Some(ObservedGeneration::now(&watched.generations, ChangeScope::Structure))
    }

    fn drain(&self) {
        let mut table = self.lock();
        self.draining.store(true, Ordering::SeqCst);
        table.drain(&self.inotify);
        self.draining.store(false, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, WatchTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchTable {
    fn drain(&mut self, inotify: &Inotify) {
        let Self { directories, buffer } = self;
        inotify.read_events(buffer, usize::MAX, |received| match received {
            InotifyItem::Event(event) => apply(directories, event),
            InotifyItem::Lost(_) => invalidate_all(directories),
        });
    }

    /// Removes all watches and invalidates all evidence that rests on them.
    fn remove_all(&mut self, inotify: &Inotify) {
        for (watch, watched) in self.directories.drain() {
            watched.generations.journals.close();
            watched.generations.advance(ChangeScope::Structure);
            inotify.remove_watch(watch);
        }
    }
}

/// Advances the counters of the directory that an event is about, and records changed names in its journals.
fn apply(directories: &mut HashMap<WatchDescriptor, WatchedDirectory>, event: &Event<'_>) {
    let events = event.events();
    let Some(watched) = directories.get(&event.wd()) else { return };
    let counts = |only| event.file_name().is_none_or(|name| name.to_bytes() == only);
    if watched.only_name.is_none_or(counts) {
        if let Some(name) = event.file_name().filter(|_| events.intersects(RENAMING)) {
            watched.generations.journals.record(OsStr::from_bytes(name.to_bytes()));
        }
        watched.generations.advance(scope(event));
    }
    // The kernel has removed the watch.
    if events.contains(ReadFlags::IGNORED) {
        watched.generations.journals.close();
        directories.remove(&event.wd());
    }
}

/// Invalidates all evidence after events were lost.
fn invalidate_all(directories: &HashMap<WatchDescriptor, WatchedDirectory>) {
    for watched in directories.values() {
        watched.generations.journals.mark_incomplete();
        watched.generations.advance(ChangeScope::Structure);
    }
}

/// What an event in a directory invalidates.
fn scope(event: &Event<'_>) -> ChangeScope {
    let events = event.events();
    let Some(name) = event.file_name() else { return ChangeScope::Structure };
    let is_ignore_file = || IgnoreRules::FILES.iter().any(|file| file.as_bytes() == name.to_bytes());
    if events.contains(ReadFlags::ISDIR) || is_ignore_file() {
        ChangeScope::Structure
    } else if events.intersects(RENAMING) {
        ChangeScope::Names
    } else {
        ChangeScope::Files
    }
}
