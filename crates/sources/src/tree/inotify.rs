//! An inotify instance (Linux): registers watches on open directories and reads the event queue.
//!
//! [`proof`](super::proof) and [`watch`](super::watch) each have an instance of their own, since they subscribe to
//! different events. The `notify` crate is unsuitable: it watches a path rather than an open directory, and it
//! subscribes to events for every file that is merely opened or read.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// Events for names that are created, deleted or renamed in a directory.
pub(super) const ENTRY_EVENTS: WatchFlags =
    WatchFlags::CREATE.union(WatchFlags::DELETE).union(WatchFlags::MOVED_FROM).union(WatchFlags::MOVED_TO);

/// Events for files in a directory whose content or metadata changes.
pub(super) const CONTENT_EVENTS: WatchFlags = WatchFlags::MODIFY.union(WatchFlags::ATTRIB);

/// The size of the buffer for one `read(2)` of the queue.
const BUFFER_SIZE: usize = 64 * 1024;

/// Identifies a watched inode within one inotify instance.
pub(super) type WatchDescriptor = i32;

/// An inotify instance.
pub(super) struct Inotify(OwnedFd);

/// Memory into which events are read.
pub(super) struct EventBuffer(Box<[MaybeUninit<u8>]>);

impl EventBuffer {
    pub(super) fn new() -> Self {
        Self(vec![MaybeUninit::uninit(); BUFFER_SIZE].into())
    }
}

/// One item read from the event queue.
pub(super) enum InotifyItem<'e> {
    Event(&'e Event<'e>),
    /// Events were lost: by an inotify queue overflow (`None`), or because reading the queue failed with this
    /// error.
    Lost(Option<Errno>),
}

impl Inotify {
    pub(super) fn open() -> rustix::io::Result<Self> {
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map(Self)
    }

    /// Watches an open directory, even if it is no longer at its path. Needs `/proc`.
    pub(super) fn watch_handle(
        &self,
        directory: BorrowedFd<'_>,
        events: WatchFlags,
    ) -> rustix::io::Result<WatchDescriptor> {
        inotify::add_watch(&self.0, format!("/proc/self/fd/{}", directory.as_raw_fd()), events)
    }

    /// Watches the directory that is at a path now.
    pub(super) fn watch_path(&self, path: &Path, events: WatchFlags) -> rustix::io::Result<WatchDescriptor> {
        inotify::add_watch(&self.0, path, events)
    }

    pub(super) fn remove_watch(&self, watch: WatchDescriptor) {
        // Fails if the directory was deleted, which has removed the watch.
        let _ = inotify::remove_watch(&self.0, watch);
    }

    /// Whether events are queued that were not read yet.
    pub(super) fn has_queued_events(&self) -> rustix::io::Result<bool> {
        rustix::io::ioctl_fionread(&self.0).map(|bytes| bytes > 0)
    }

    /// Reads queued events until none is left, reading fails, or about `limit` events were read. Returns `false` only
    /// in the last case.
    pub(super) fn read_events(
        &self,
        buffer: &mut EventBuffer,
        limit: usize,
        mut receive: impl FnMut(InotifyItem<'_>),
    ) -> bool {
        let mut reader = inotify::Reader::new(&self.0, &mut buffer.0);
        let mut count = 0;
        while count < limit || !reader.is_buffer_empty() {
            count += 1;
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    receive(InotifyItem::Lost(None))
                }
                Ok(event) => receive(InotifyItem::Event(&event)),
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    receive(InotifyItem::Lost(Some(errno)));
                    return true;
                }
            }
        }
        false
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
