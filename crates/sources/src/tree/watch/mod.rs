//! The watcher of a tree: reports its changes as a stream.
//!
//! Events of the operating system are only hints. [`events`] collects them in a [`dirty`] set. A [`rescan`]
//! compares the dirty entries with the [`snapshot`] of the last scan and adds the differences to the [`pending`]
//! changes of the stream. So a superfluous event causes no change, and after lost events (an inotify queue
//! overflow) a full rescan finds the missed changes. Without events, the watcher polls by a full scan at an
//! interval.

mod dirty;
mod events;
mod pending;
mod rescan;
mod snapshot;

#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dirty::{DirtySet, EntryEvent};
use events::{EventSource, WakeHandle};
pub(crate) use pending::ChangeStream;
use pending::PendingChanges;
use rescan::Rescan;
use snapshot::SnapshotDirectory;

use libris_core::Uri;

use super::symlink::Symlinks;
use super::{ChangeDetection, Tree};

/// The debounce time: a file that is written in several steps, or under a temporary name, is scanned once.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// The interval at which to check whether the root is still at its path. No event reports that a directory above
/// it was moved, or that a deleted root was restored. Failed scans are retried at the same interval.
const ROOT_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum number of directories with an unreadable ignore file that are checked one by one. Beyond that, the whole
/// tree is scanned.
const MAX_HIDDEN: usize = 1_000;

/// Polling is idle for this many times the duration of a scan, so that it takes at most about a tenth of a processor.
const POLL_IDLE_FACTOR: u32 = 10;

/// The shortest interval between two polls.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Starts to watch a tree. Every change after this has returned is reported, with URIs below `root_uri`, until the
/// stream is dropped. `mount` names the tree in log messages.
pub(crate) async fn start(tree: &Arc<Tree>, root_uri: &Uri, mount: &str) -> io::Result<ChangeStream> {
    let wake_handle = WakeHandle::new()?;
    let pending = Arc::<PendingChanges>::default();
    // Created before the first scan, which ends early if this is dropped.
    let changes = ChangeStream::new(Arc::clone(&pending), wake_handle.clone());
    let (tree, root_uri, mount) = (Arc::clone(tree), root_uri.clone(), mount.to_owned());
    let watcher =
        tokio::task::spawn_blocking(move || TreeWatcher::open(tree, root_uri, &mount, pending, wake_handle))
            .await?;
    std::thread::Builder::new().name("libris-watch".into()).spawn(move || watcher.run())?;
    Ok(changes)
}

/// A running watcher, on a thread of its own.
struct TreeWatcher {
    tree: Arc<Tree>,
    root_uri: Uri,
    events: EventSource,
    pending: Arc<PendingChanges>,
    /// The result of the last scan; `None` while the root does not exist.
    root: Option<SnapshotDirectory>,
    /// The entries that are still to be scanned.
    dirty: DirtySet,
    /// The time up to which all events were drained.
    drained: SystemTime,
    /// The time of the last poll, and when the next one is due.
    polled: SystemTime,
    poll_at: Instant,
    /// When to check the root and to retry failed scans.
    root_check_at: Instant,
    /// Whether a scan failed, so that the whole tree must be scanned again.
    retry: bool,
    /// The directories that are hidden because their ignore file cannot be read.
    hidden: BTreeSet<String>,
}

impl TreeWatcher {
    /// Watches the tree and scans it once. Every change after this has returned is reported.
    fn open(
        tree: Arc<Tree>,
        root_uri: Uri,
        mount: &str,
        pending: Arc<PendingChanges>,
        wake_handle: WakeHandle,
    ) -> Self {
        let events = match tree.watching {
            ChangeDetection::Auto => EventSource::open(wake_handle, &tree, mount),
            ChangeDetection::Poll => EventSource::polling(wake_handle),
        };
        let began = Instant::now();
        let now = SystemTime::now();
        let mut watcher = Self {
            tree,
            root_uri,
            events,
            pending,
            root: None,
            dirty: DirtySet::default(),
            drained: now,
            polled: now,
            poll_at: began,
            root_check_at: began + ROOT_CHECK_INTERVAL,
            retry: false,
            hidden: BTreeSet::new(),
        };
        let mut rescan = watcher.rescan(now);
        let root = rescan.initial_snapshot();
        let hidden = std::mem::take(&mut rescan.hidden);
        watcher.retry = rescan.retry;
        watcher.root = root;
        watcher.retry_hidden(hidden);
        watcher.schedule_poll(began);
        watcher
    }

    /// Runs until the stream is dropped.
    fn run(mut self) {
        while !self.pending.is_closed() {
            self.run_once();
        }
    }

    /// Waits until an action is due, and performs it.
    fn run_once(&mut self) {
        let has_events = self.events.wait(self.time_to_wait());
        if self.pending.is_closed() {
            return;
        }
        if has_events {
            std::thread::sleep(DEBOUNCE);
        }
        let since = self.drained;
        let now = SystemTime::now();
        if self.events.drain(&mut self.dirty) {
            self.drained = now;
        }
        if self.needs_polling() && Instant::now() >= self.poll_at {
            self.poll();
        }
        if Instant::now() >= self.root_check_at {
            self.check_root();
        }
        if !self.dirty.is_empty() {
            self.rescan_dirty(since);
        }
    }

    /// Whether the tree must be polled: because there are no events, or because symbolic links are followed,
    /// whose targets can change without an event.
    fn needs_polling(&self) -> bool {
        self.events.needs_polling() || self.tree.symlinks == Symlinks::Follow
    }

    fn time_to_wait(&self) -> Duration {
        if !self.dirty.is_empty() {
            return Duration::ZERO;
        }
        let next =
            if self.needs_polling() { self.root_check_at.min(self.poll_at) } else { self.root_check_at };
        next.saturating_duration_since(Instant::now())
    }

    /// Marks as dirty what no event reports: hidden directories, failed scans, and a root that was moved or restored.
    fn check_root(&mut self) {
        self.root_check_at = Instant::now() + ROOT_CHECK_INTERVAL;
        for key in std::mem::take(&mut self.hidden) {
            self.dirty.mark_directory(&key, EntryEvent::Touched);
        }
        if std::mem::take(&mut self.retry) {
            self.dirty.mark_lost();
        } else if self.root_moved() {
            self.dirty.mark_all();
        }
    }

    /// Remembers hidden directories, to check them again at the next root check.
    fn retry_hidden(&mut self, keys: Vec<String>) {
        self.hidden.extend(keys);
        if self.hidden.len() > MAX_HIDDEN {
            self.hidden.clear();
            self.retry = true;
        }
    }

    fn poll(&mut self) {
        let began = Instant::now();
        let since = std::mem::replace(&mut self.polled, SystemTime::now());
        self.events.retry_watching();
        self.dirty.mark_lost();
        self.rescan_dirty(since);
        self.events.confirm_watching();
        self.schedule_poll(began);
    }

    fn schedule_poll(&mut self, began: Instant) {
        let pause = self.tree.poll.max(began.elapsed() * POLL_IDLE_FACTOR).max(MIN_POLL_INTERVAL);
        self.poll_at = Instant::now() + pause;
    }

    fn root_moved(&self) -> bool {
        let now = self.tree.root_id();
        match (&self.root, now) {
            (Some(root), Ok(file_id)) => root.stamp.file_id != file_id,
            (None, Ok(_)) | (Some(_), Err(_)) => true,
            (None, Err(_)) => false,
        }
    }

    /// Scans the dirty set. All changes before `since` were seen by earlier scans.
    fn rescan_dirty(&mut self, since: SystemTime) {
        let dirty = std::mem::take(&mut self.dirty);
        let mut root = self.root.take();
        let was_polling = self.events.needs_polling();
        let mut rescan = self.rescan(since);
        rescan.run(dirty, &mut root);
        let (later, retry, hidden) = (rescan.later, rescan.retry, rescan.hidden);
        self.root = root;
        self.dirty = later;
        self.retry |= retry;
        self.retry_hidden(hidden);
        if retry {
            // The retry must also find the changes that the failed scan missed.
            self.drained = since;
        }
        if !was_polling && self.events.needs_polling() {
            // The watches were lost during this scan, so the first poll must find the changes since then.
            self.polled = since;
        }
        self.pending.wake();
    }

    fn rescan(&mut self, since: SystemTime) -> Rescan<'_> {
        Rescan::new(&self.tree, &self.root_uri, &mut self.events, &self.pending, since)
    }
}

impl Drop for TreeWatcher {
    fn drop(&mut self) {
        // So that the stream ends instead of waiting for ever, even after a panic.
        self.pending.close();
        self.pending.wake();
    }
}
