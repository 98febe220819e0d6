//! File system events on Linux: one inotify watch for each visible directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cap_std::fs::Dir;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{Event, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::super::dirty::{DirtySet, EntryEvent};
use super::retry::WatchRetry;
use crate::remote::is_remote;
use crate::tree::inotify::{
    CONTENT_EVENTS, ENTRY_EVENTS, EventBuffer, Inotify, InotifyItem, WatchDescriptor,
};
use crate::tree::root::{DirectoryHandle, is_missing};
use crate::tree::{OpenFolder, Tree};

/// The events for a directory. Opening and reading files causes none of them.
const DIRECTORY_EVENTS: WatchFlags = ENTRY_EVENTS
    .union(CONTENT_EVENTS)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The events for `.git`, in which only the creation of `info` matters. Git creates and deletes many other files
/// there.
const ARRIVAL_EVENTS: WatchFlags = WatchFlags::CREATE.union(WatchFlags::MOVED_TO).union(WatchFlags::ONLYDIR);

/// The keys of the directories that are watched without being visible.
const GIT: &str = ".git/";
const GIT_INFO: &str = ".git/info/";

/// The maximum number of events that one call of [`EventSource::drain`] reads, so that it returns while events keep
/// coming.
const MAX_EVENTS: usize = 1_000_000;

/// Wakes the watcher thread from another thread.
#[derive(Clone)]
pub(in super::super) struct WakeHandle {
    eventfd: Arc<OwnedFd>,
}

impl WakeHandle {
    pub(in super::super) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { eventfd: Arc::new(eventfd) })
    }

    pub(in super::super) fn wake(&self) {
        // Fails only if the counter is at its maximum, which wakes the thread as well.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }
}

/// The events of the watched directories; none after a fallback to polling.
pub(in super::super) struct EventSource {
    wake_handle: WakeHandle,
    watches: Option<DirectoryWatches>,
    /// The name of the tree in log messages.
    mount: String,
    gitignore: bool,
    /// When to try again to watch the tree; `None` unless it fell back to polling for a cause that may be
    /// temporary.
    pub(in super::super) retry: Option<WatchRetry>,
}

/// The watches of an inotify instance by the keys of their directories.
struct DirectoryWatches {
    inotify: Inotify,
    by_key: HashMap<Arc<str>, WatchDescriptor>,
    /// A directory has several keys if followed symbolic links point to it.
    keys: HashMap<WatchDescriptor, Vec<Arc<str>>>,
    /// The devices whose file systems are known to report changes.
    devices: Vec<u64>,
    gitignore: bool,
    buffer: EventBuffer,
}

/// Why a directory cannot be watched.
enum Unwatchable {
    TooManyWatches,
    TooManyInstances,
    RemoteFileSystem,
    NoProc,
    Failed(Errno),
}

impl fmt::Display for Unwatchable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyWatches => "no more watches are allowed; hint: raise `fs.inotify.max_user_watches`",
            Self::TooManyInstances => {
                "no more watchers are allowed; hint: raise `fs.inotify.max_user_instances`"
            }
            Self::RemoteFileSystem => "its file system does not report changes by other machines",
            Self::NoProc => "`/proc` is not mounted",
            Self::Failed(errno) => return errno.fmt(f),
        })
    }
}

impl EventSource {
    pub(in super::super) fn open(wake_handle: WakeHandle, tree: &Tree, mount: &str) -> Self {
        let (mount, gitignore) = (mount.to_owned(), tree.gitignore);
        let mut events = Self { wake_handle, watches: None, mount, gitignore, retry: None };
        match DirectoryWatches::open(tree.gitignore) {
            Ok(watches) => events.watches = Some(watches),
            Err(why) => events.fall_back_to_polling(&why),
        }
        events
    }

    /// A source without events.
    pub(in super::super) fn polling(wake_handle: WakeHandle) -> Self {
        Self { wake_handle, watches: None, mount: String::new(), gitignore: false, retry: None }
    }

    /// Whether there are no events, so that only polling detects changes.
    pub(in super::super) fn needs_polling(&self) -> bool {
        self.watches.is_none()
    }

    /// Watches a directory. Returns whether the watch is new.
    pub(in super::super) fn add(&mut self, folder: &OpenFolder) -> io::Result<bool> {
        let Some(watches) = &mut self.watches else { return Ok(false) };
        match watches.add(folder) {
            Ok(new) => Ok(new),
            // The directory was removed, or no file descriptor is free at the moment: the caller tries again.
            Err(Unwatchable::Failed(
                errno @ (Errno::ACCESS | Errno::NOENT | Errno::MFILE | Errno::NFILE),
            )) => Err(errno.into()),
            Err(why) => {
                self.fall_back_to_polling(&why);
                Ok(false)
            }
        }
    }

    /// Removes the watch of the directory with this key.
    pub(in super::super) fn remove(&mut self, key: &str) {
        if let Some(watches) = &mut self.watches {
            watches.remove(key);
            if key.is_empty() {
                watches.remove(GIT);
                watches.remove(GIT_INFO);
            }
        }
    }

    /// Waits for an event, for the wake handle or for the timeout. Returns whether there are events.
    pub(in super::super) fn wait(&mut self, timeout: Duration) -> bool {
        let woken = PollFd::new(&*self.wake_handle.eventfd, PollFlags::IN);
        let timeout = Timespec::try_from(timeout).ok();
        let ready = match &self.watches {
            Some(watches) => {
                let mut both = [PollFd::new(&watches.inotify, PollFlags::IN), woken];
                poll(&mut both, timeout.as_ref()).map(|_| !both[0].revents().is_empty())
            }
            None => poll(&mut [woken], timeout.as_ref()).map(|_| false),
        };
        ready.unwrap_or(false)
    }

    /// Moves the queued events into the dirty set. Returns whether the queue is empty.
    pub(in super::super) fn drain(&mut self, dirty: &mut DirtySet) -> bool {
        self.watches.as_mut().is_none_or(|watches| watches.drain(dirty))
    }

    /// Falls back to polling, as if the limit of watches were reached.
    #[cfg(test)]
    pub(in super::super) fn lose_watches(&mut self) {
        self.fall_back_to_polling(&Unwatchable::TooManyWatches);
    }

    /// Opens a new watcher if a retry is due. The caller must then scan the whole tree, which adds its directories,
    /// and call [`confirm_watching`](Self::confirm_watching).
    pub(in super::super) fn retry_watching(&mut self) {
        if self.watches.is_some() || !self.retry.as_ref().is_some_and(|retry| retry.is_due(Instant::now())) {
            return;
        }
        match DirectoryWatches::open(self.gitignore) {
            Ok(watches) => self.watches = Some(watches),
            Err(why) => self.fall_back_to_polling(&why),
        }
    }

    /// Ends the fallback to polling if all directories were added to the new watcher.
    pub(in super::super) fn confirm_watching(&mut self) {
        if self.watches.is_some() && self.retry.take().is_some() {
            tracing::info!(mount = self.mount, "the folder is watched again and no longer polled");
        }
    }

    fn fall_back_to_polling(&mut self, why: &Unwatchable) {
        self.watches = None;
        let mount = &self.mount;
        if let Some(retry) = &mut self.retry {
            retry.failed(Instant::now());
            tracing::debug!(mount, %why, "the folder still cannot be watched");
            return;
        }
        let passing = !matches!(why, Unwatchable::RemoteFileSystem);
        self.retry = passing.then(|| WatchRetry::new(Instant::now()));
        tracing::warn!(mount, %why, "the folder cannot be watched and is polled at the interval `poll` instead");
    }
}

impl DirectoryWatches {
    fn open(gitignore: bool) -> Result<Self, Unwatchable> {
        if !Path::new("/proc/self/fd").is_dir() {
            return Err(Unwatchable::NoProc);
        }
        let inotify = match Inotify::open() {
            Ok(inotify) => inotify,
            Err(Errno::MFILE) => return Err(Unwatchable::TooManyInstances),
            Err(errno) => return Err(Unwatchable::Failed(errno)),
        };
        Ok(Self {
            inotify,
            by_key: HashMap::new(),
            keys: HashMap::new(),
            devices: Vec::new(),
            gitignore,
            buffer: EventBuffer::new(),
        })
    }

    fn add(&mut self, folder: &OpenFolder) -> Result<bool, Unwatchable> {
        let device = folder.stamp.file_id.device;
        if !self.devices.contains(&device) {
            if is_remote(folder.handle.as_fd()) {
                return Err(Unwatchable::RemoteFileSystem);
            }
            self.devices.push(device);
        }
        let new = self.watch(&folder.logical.key, folder.handle.as_fd(), DIRECTORY_EVENTS)?;
        Ok((folder.logical.key.is_empty() && self.gitignore && self.watch_git_excludes(folder)?) | new)
    }

    /// Watches `.git/info` if it exists, otherwise `.git`, in which it may appear. Returns whether a watch is new.
    fn watch_git_excludes(&mut self, root: &OpenFolder) -> Result<bool, Unwatchable> {
        let mut new = false;
        // Twice, since `.git/info` may have appeared just before `.git` was watched.
        for _ in 0..2 {
            if let Some(info) = open_control_directory(&root.handle, &[".git", "info"])? {
                self.remove(GIT);
                return Ok(self.watch(GIT_INFO, info.as_fd(), DIRECTORY_EVENTS)? | new);
            }
            self.remove(GIT_INFO);
            let Some(git) = open_control_directory(&root.handle, &[".git"])? else { break };
            new |= self.watch(GIT, git.as_fd(), ARRIVAL_EVENTS)?;
        }
        Ok(new)
    }

    /// Watches a directory under a key. Returns whether the watch is new; then it replaces the watch of the directory
    /// that had the key before.
    fn watch(
        &mut self,
        key: &str,
        directory: BorrowedFd<'_>,
        events: WatchFlags,
    ) -> Result<bool, Unwatchable> {
        let watch = match self.inotify.watch_handle(directory, events) {
            Ok(watch) => watch,
            Err(Errno::NOSPC | Errno::NOMEM) => return Err(Unwatchable::TooManyWatches),
            Err(errno) => return Err(Unwatchable::Failed(errno)),
        };
        if self.by_key.get(key) == Some(&watch) {
            return Ok(false);
        }
        self.remove(key);
        let key: Arc<str> = key.into();
        self.by_key.insert(Arc::clone(&key), watch);
        self.keys.entry(watch).or_default().push(key);
        Ok(true)
    }

    fn remove(&mut self, key: &str) {
        let Some(watch) = self.by_key.remove(key) else { return };
        let Some(keys) = self.keys.get_mut(&watch) else { return };
        keys.retain(|other| **other != *key);
        if keys.is_empty() {
            self.keys.remove(&watch);
            self.inotify.remove_watch(watch);
        }
    }

    fn drain(&mut self, dirty: &mut DirtySet) -> bool {
        let Self { inotify, by_key, keys, buffer, .. } = self;
        inotify.read_events(buffer, MAX_EVENTS, |received| match received {
            InotifyItem::Event(event) => mark_dirty(dirty, by_key, keys, event),
            InotifyItem::Lost(errno) => {
                if let Some(errno) = errno {
                    tracing::warn!(%errno, "the events of a folder could not be read");
                }
                dirty.mark_lost();
            }
        })
    }
}

/// Marks the entry of an event as dirty, under every key of the directory.
fn mark_dirty(
    dirty: &mut DirtySet,
    by_key: &mut HashMap<Arc<str>, WatchDescriptor>,
    keys: &mut HashMap<WatchDescriptor, Vec<Arc<str>>>,
    event: &Event<'_>,
) {
    let entry_event = entry_event(event.events());
    // The kernel has removed the watch.
    if event.events().contains(ReadFlags::IGNORED) {
        for key in keys.remove(&event.wd()).into_iter().flatten() {
            by_key.remove(&key);
            dirty.mark_directory(&key, entry_event);
        }
        return;
    }
    for key in keys.get(&event.wd()).into_iter().flatten() {
        match event.file_name() {
            Some(name) => dirty.mark_entry(key, OsStr::from_bytes(name.to_bytes()), entry_event),
            None => dirty.mark_directory(key, entry_event),
        }
    }
}

/// Opens a directory such as `.git`; `None` if there is none.
fn open_control_directory(root: &DirectoryHandle, path: &[&str]) -> Result<Option<Arc<Dir>>, Unwatchable> {
    match root.open_control_directory(path) {
        Ok(directory) => Ok(Some(directory)),
        Err(cause) if is_missing(&cause) => Ok(None),
        Err(cause) => Err(Unwatchable::Failed(Errno::from_io_error(&cause).unwrap_or(Errno::IO))),
    }
}

fn entry_event(events: ReadFlags) -> EntryEvent {
    if events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO | ReadFlags::IGNORED) {
        EntryEvent::Replaced
    } else if events.intersects(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
        EntryEvent::Modified
    } else {
        // `CLOSE_WRITE` too: the writes before it caused `MODIFY`.
        EntryEvent::Touched
    }
}
