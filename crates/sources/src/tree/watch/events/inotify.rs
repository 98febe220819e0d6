//! Hints on Linux: a watch for each directory.
//!
//! Not through `notify`, which would watch a path rather than the directory that was opened, and would
//! hear of each file that is merely read.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::super::dirty::{DirtySet, EntryEvent};
use crate::remote::is_remote;
use crate::tree::root::{DirectoryHandle, is_missing};
use crate::tree::{OpenFolder, Tree};

/// What to hear of a directory. Not what is merely opened or read.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// What to hear of `.git`, in which much comes and goes.
const ARRIVALS: WatchFlags = WatchFlags::CREATE.union(WatchFlags::MOVED_TO).union(WatchFlags::ONLYDIR);

/// The keys of directories that are watched and never shown.
const GIT: &str = ".git/";
const GIT_INFO: &str = ".git/info/";

/// The most events that are taken at once, however fast they come.
const EVENTS: usize = 1_000_000;

const BUFFER: usize = 64 * 1024;

/// Wakes the one who waits for hints.
#[derive(Clone)]
pub(in super::super) struct WakeHandle {
    event: Arc<OwnedFd>,
}

impl WakeHandle {
    pub(in super::super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event: Arc::new(event) })
    }

    pub(in super::super) fn wake(&self) {
        // It can fail only where it rings already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// What the system says.
pub(in super::super) struct EventSource {
    wake_handle: WakeHandle,
    queue: Option<DirectoryWatches>,
    mount: String,
}

struct DirectoryWatches {
    inotify: OwnedFd,
    watches: HashMap<Arc<str>, i32>,
    /// Two of them may be one directory, where links are followed.
    keys: HashMap<i32, Vec<Arc<str>>>,
    /// Those that are known to tell what changes.
    devices: Vec<u64>,
    gitignore: bool,
    buffer: Box<[MaybeUninit<u8>]>,
}

/// Why there are no hints.
enum Unwatchable {
    Watches,
    Instances,
    Remote,
    Proc,
    Failed(Errno),
}

impl fmt::Display for Unwatchable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Watches => "no more watches are allowed; hint: raise `fs.inotify.max_user_watches`",
            Self::Instances => "no more watchers are allowed; hint: raise `fs.inotify.max_user_instances`",
            Self::Remote => "its file system does not tell what others change",
            Self::Proc => "`/proc` is not mounted",
            Self::Failed(errno) => return errno.fmt(f),
        })
    }
}

impl EventSource {
    pub(in super::super) fn open(wake_handle: WakeHandle, tree: &Tree, mount: &str) -> Self {
        let mut events = Self { wake_handle, queue: None, mount: mount.to_owned() };
        match DirectoryWatches::open(tree.gitignore) {
            Ok(queue) => events.queue = Some(queue),
            Err(why) => events.fall_back_to_polling(&why),
        }
        events
    }

    /// No hints at all.
    pub(in super::super) fn polling(wake_handle: WakeHandle) -> Self {
        Self { wake_handle, queue: None, mount: String::new() }
    }

    /// Whether there are no hints, so that one must look from time to time.
    pub(in super::super) fn needs_polling(&self) -> bool {
        self.queue.is_none()
    }

    /// Watches a directory. Returns whether it was not watched before.
    pub(in super::super) fn add(&mut self, folder: &OpenFolder) -> io::Result<bool> {
        let Some(queue) = &mut self.queue else { return Ok(false) };
        match queue.add(folder) {
            Ok(new) => Ok(new),
            // Too many open files is a state that passes: it is tried again.
            Err(Unwatchable::Failed(
                errno @ (Errno::ACCESS | Errno::NOENT | Errno::MFILE | Errno::NFILE),
            )) => Err(errno.into()),
            Err(why) => {
                self.fall_back_to_polling(&why);
                Ok(false)
            }
        }
    }

    pub(in super::super) fn remove(&mut self, key: &str) {
        if let Some(queue) = &mut self.queue {
            queue.remove(key);
            if key.is_empty() {
                queue.remove(GIT);
                queue.remove(GIT_INFO);
            }
        }
    }

    /// Waits for a hint or the bell. Returns whether there are hints.
    pub(in super::super) fn wait(&mut self, timeout: Duration) -> bool {
        let wake_handle = PollFd::new(&*self.wake_handle.event, PollFlags::IN);
        let timeout = Timespec::try_from(timeout).ok();
        let ready = match &self.queue {
            Some(queue) => {
                let mut both = [PollFd::new(&queue.inotify, PollFlags::IN), wake_handle];
                poll(&mut both, timeout.as_ref()).map(|_| !both[0].revents().is_empty())
            }
            None => poll(&mut [wake_handle], timeout.as_ref()).map(|_| false),
        };
        ready.unwrap_or(false)
    }

    /// Takes the hints that there are. Returns whether those were all.
    pub(in super::super) fn drain(&mut self, dirty: &mut DirtySet) -> bool {
        self.queue.as_mut().is_none_or(|queue| queue.drain(dirty))
    }

    fn fall_back_to_polling(&mut self, why: &Unwatchable) {
        self.queue = None;
        let mount = &self.mount;
        tracing::warn!(mount, %why, "the folder cannot be watched and is looked through every `poll` instead");
    }
}

impl DirectoryWatches {
    fn open(gitignore: bool) -> Result<Self, Unwatchable> {
        if !Path::new("/proc/self/fd").is_dir() {
            return Err(Unwatchable::Proc);
        }
        let inotify = match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(inotify) => inotify,
            Err(Errno::MFILE) => return Err(Unwatchable::Instances),
            Err(errno) => return Err(Unwatchable::Failed(errno)),
        };
        Ok(Self {
            inotify,
            watches: HashMap::new(),
            keys: HashMap::new(),
            devices: Vec::new(),
            gitignore,
            buffer: vec![MaybeUninit::uninit(); BUFFER].into(),
        })
    }

    fn add(&mut self, folder: &OpenFolder) -> Result<bool, Unwatchable> {
        let device = folder.stamp.file_id.device;
        if !self.devices.contains(&device) {
            if is_remote(folder.handle.as_fd()) {
                return Err(Unwatchable::Remote);
            }
            self.devices.push(device);
        }
        let new = self.watch(&folder.logical.key, folder.handle.as_fd(), CHANGES)?;
        Ok((folder.logical.key.is_empty() && self.gitignore && self.watch_excludes(folder)?) | new)
    }

    /// Watches `.git/info`, or waits for it in `.git`.
    fn watch_excludes(&mut self, root: &OpenFolder) -> Result<bool, Unwatchable> {
        let mut new = false;
        // Twice, for what comes just before the watch for it.
        for _ in 0..2 {
            if let Some(info) = open_child(&root.handle, &[".git", "info"])? {
                self.remove(GIT);
                return Ok(self.watch(GIT_INFO, info.as_fd(), CHANGES)? | new);
            }
            self.remove(GIT_INFO);
            let Some(git) = open_child(&root.handle, &[".git"])? else { break };
            new |= self.watch(GIT, git.as_fd(), ARRIVALS)?;
        }
        Ok(new)
    }

    fn watch(
        &mut self,
        key: &str,
        directory: BorrowedFd<'_>,
        events: WatchFlags,
    ) -> Result<bool, Unwatchable> {
        // The directory that was opened, wherever its path leads by now.
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let watch = match inotify::add_watch(&self.inotify, path, events) {
            Ok(watch) => watch,
            Err(Errno::NOSPC | Errno::NOMEM) => return Err(Unwatchable::Watches),
            Err(errno) => return Err(Unwatchable::Failed(errno)),
        };
        if self.watches.get(key) == Some(&watch) {
            return Ok(false);
        }
        self.remove(key);
        let key: Arc<str> = key.into();
        self.watches.insert(Arc::clone(&key), watch);
        self.keys.entry(watch).or_default().push(key);
        Ok(true)
    }

    fn remove(&mut self, key: &str) {
        let Some(watch) = self.watches.remove(key) else { return };
        let Some(keys) = self.keys.get_mut(&watch) else { return };
        keys.retain(|other| **other != *key);
        if keys.is_empty() {
            self.keys.remove(&watch);
            // It fails where the directory is gone, and the watch with it.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    fn drain(&mut self, dirty: &mut DirtySet) -> bool {
        let mut reader = inotify::Reader::new(&self.inotify, &mut self.buffer);
        let mut taken = 0;
        while taken < EVENTS || !reader.is_buffer_empty() {
            taken += 1;
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    tracing::warn!(%errno, "hints about a folder could not be read");
                    dirty.mark_lost();
                    return true;
                }
            };
            let events = event.events();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                dirty.mark_lost();
                continue;
            }
            let entry_event = entry_event(events);
            if events.contains(ReadFlags::IGNORED) {
                for key in self.keys.remove(&event.wd()).into_iter().flatten() {
                    self.watches.remove(&key);
                    dirty.mark_directory(&key, entry_event);
                }
                continue;
            }
            for key in self.keys.get(&event.wd()).into_iter().flatten() {
                match event.file_name() {
                    Some(name) => dirty.mark_entry(key, OsStr::from_bytes(name.to_bytes()), entry_event),
                    None => dirty.mark_directory(key, entry_event),
                }
            }
        }
        false
    }
}

/// A directory of the source's own concern; `None` where there is none.
fn open_child(root: &DirectoryHandle, path: &[&str]) -> Result<Option<Arc<Dir>>, Unwatchable> {
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
        // What is closed after it was written was told by the writing.
        EntryEvent::Touched
    }
}
