//! The queue on Linux: one for the whole process, since a user may have few of them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::super::filter::IgnoreRules;
use super::super::root::{DirectoryHandle, is_missing};
use super::{ChangeScope, Generations, ObservedGeneration};
use crate::remote::is_remote;

/// What to hear of a directory. What is closed after it was written was told by the writing.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(MOVES);

/// What to hear of a directory in which one other matters.
const COMINGS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);

/// What to hear of a directory above the root.
const MOVES: WatchFlags = WatchFlags::MOVE_SELF.union(WatchFlags::DELETE_SELF).union(WatchFlags::ONLYDIR);

/// What makes another thing of a name.
const NAMES: ReadFlags =
    ReadFlags::CREATE.union(ReadFlags::DELETE).union(ReadFlags::MOVED_FROM).union(ReadFlags::MOVED_TO);

/// The most directories that are watched, and the part of what the user may watch in all: the watches of
/// subscribers must not go short.
const WATCHES: usize = 16_384;
const SHARE: usize = 4;

const BUFFER: usize = 64 * 1024;

/// Directories that are watched, and the events that were not looked at yet.
pub(super) struct GenerationTracker {
    inotify: OwnedFd,
    limit: usize,
    /// Whether events were taken out whose marks are not set yet.
    draining: AtomicBool,
    table: Mutex<WatchTable>,
}

struct WatchTable {
    by_watch: HashMap<i32, WatchedDirectory>,
    buffer: Box<[MaybeUninit<u8>]>,
}

struct WatchedDirectory {
    generations: Arc<Generations>,
    /// Whether its file system tells what changes, once that was asked.
    reports_changes: Option<bool>,
    /// The one name that matters in it, where others do not.
    only: Option<&'static [u8]>,
}

impl GenerationTracker {
    /// The queue of this process; `None` where the system has none for us.
    pub(super) fn shared() -> Option<&'static Self> {
        static SHARED: LazyLock<Option<GenerationTracker>> = LazyLock::new(|| {
            GenerationTracker::open()
                .inspect_err(|cause| tracing::debug!(%cause, "answers about folders cannot be kept"))
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
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            limit: WATCHES.min(allowed / SHARE),
            draining: AtomicBool::new(false),
            table: Mutex::new(WatchTable {
                by_watch: HashMap::new(),
                buffer: vec![MaybeUninit::uninit(); BUFFER].into(),
            }),
        })
    }

    /// Watches a directory; `None` where that is not possible.
    pub(super) fn watch_directory(&self, handle: &DirectoryHandle) -> Option<ObservedGeneration> {
        self.watch(handle.as_fd(), CHANGES, None)
    }

    /// Watches where the root says what else is ignored, or waits for that to appear. `None` where that is
    /// not possible.
    pub(super) fn watch_git_excludes(&self, root: &DirectoryHandle) -> Option<Vec<ObservedGeneration>> {
        let mut table = Vec::new();
        // Much comes and goes in `.git`, and of it only this matters.
        for (path, events, only) in
            [(&[".git"][..], COMINGS, Some(&b"info"[..])), (&[".git", "info"], CHANGES, None)]
        {
            match root.open_control_directory(path) {
                Ok(directory) => table.push(self.watch(directory.as_fd(), events, only)?),
                Err(cause) if is_missing(&cause) => break,
                Err(_) => return None,
            }
        }
        Some(table)
    }

    /// Watches the directories above a path; `None` where links on it could lead elsewhere unseen, or where
    /// one of them cannot be watched.
    pub(super) fn watch_ancestors(&self, path: &Path) -> Option<Vec<ObservedGeneration>> {
        if path.canonicalize().ok()? != path {
            return None;
        }
        // A directory that is open does not tell itself that it was removed.
        let mut events = MOVES | WatchFlags::DELETE;
        let mut above = Vec::new();
        for path in path.ancestors().skip(1) {
            above.push(self.add(path, std::mem::replace(&mut events, MOVES), None, None)?);
        }
        Some(above)
    }

    /// Brings all marks up to date. Every change that ended before this was called shows in them.
    pub(super) fn catch_up(&self) -> bool {
        match rustix::io::ioctl_fionread(&self.inotify) {
            // Whoever takes events out says so before.
            Ok(0) if !self.draining.load(Ordering::SeqCst) => true,
            Ok(0) => {
                drop(self.lock());
                true
            }
            Ok(_) => {
                self.drain();
                true
            }
            Err(_) => false,
        }
    }

    fn watch(
        &self,
        directory: BorrowedFd<'_>,
        events: WatchFlags,
        only: Option<&'static [u8]>,
    ) -> Option<ObservedGeneration> {
        // The directory that was opened, wherever its path leads by now.
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let reports_changes = || !is_remote(directory);
        self.add(Path::new(&path), events, only, Some(&reports_changes))
    }

    /// Watches what is at a path. `tells` is asked once whether its file system tells what changes, unless
    /// nothing but its moving matters.
    fn add(
        &self,
        path: &Path,
        events: WatchFlags,
        only: Option<&'static [u8]>,
        reports_changes: Option<&dyn Fn() -> bool>,
    ) -> Option<ObservedGeneration> {
        let mut table = self.lock();
        if table.by_watch.len() >= self.limit {
            table.remove_all(&self.inotify);
        }
        let number = inotify::add_watch(&self.inotify, path, events | WatchFlags::MASK_ADD).ok()?;
        let new = || WatchedDirectory { generations: Arc::default(), reports_changes: None, only };
        let watch = table.by_watch.entry(number).or_insert_with(new);
        // Of one that is watched for several reasons, everything matters.
        watch.only = watch.only.filter(|_| only.is_some());
        if let Some(reports_changes) = reports_changes
            && !*watch.reports_changes.get_or_insert_with(reports_changes)
        {
            return None;
        }
        Some(ObservedGeneration::now(&watch.generations, ChangeScope::Structure))
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
    fn drain(&mut self, inotify: &OwnedFd) {
        let mut reader = inotify::Reader::new(inotify, &mut self.buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                Err(_) => return invalidate_all(&self.by_watch),
            };
            let events = event.events();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                invalidate_all(&self.by_watch);
                continue;
            }
            let Some(watch) = self.by_watch.get(&event.wd()) else { continue };
            let matters = |only| event.file_name().is_none_or(|name| name.to_bytes() == only);
            if watch.only.is_none_or(matters) {
                if let Some(name) = event.file_name().filter(|_| events.intersects(NAMES)) {
                    watch.generations.journals.record(OsStr::from_bytes(name.to_bytes()));
                }
                watch.generations.set(scope(&event));
            }
            if events.contains(ReadFlags::IGNORED) {
                watch.generations.journals.close();
                self.by_watch.remove(&event.wd());
            }
        }
    }

    /// Lets go of all watches. Whatever rests on them must be looked at again.
    fn remove_all(&mut self, inotify: &OwnedFd) {
        for (number, watch) in self.by_watch.drain() {
            watch.generations.journals.close();
            watch.generations.set(ChangeScope::Structure);
            // It fails where the directory is gone, and the watch with it.
            let _ = inotify::remove_watch(inotify, number);
        }
    }
}

/// Events were lost: anything may have changed.
fn invalidate_all(watches: &HashMap<i32, WatchedDirectory>) {
    for watch in watches.values() {
        watch.generations.journals.mark_incomplete();
        watch.generations.set(ChangeScope::Structure);
    }
}

fn scope(event: &inotify::Event<'_>) -> ChangeScope {
    let events = event.events();
    let Some(name) = event.file_name() else { return ChangeScope::Structure };
    let rules = || IgnoreRules::FILES.iter().any(|file| file.as_bytes() == name.to_bytes());
    if events.contains(ReadFlags::ISDIR) || rules() {
        ChangeScope::Structure
    } else if events.intersects(NAMES) {
        ChangeScope::Names
    } else {
        ChangeScope::Files
    }
}
