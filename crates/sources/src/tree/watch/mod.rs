//! Telling what changes in a folder.
//!
//! Events of the system are hints about where to look, never the truth: `hints` gathers them as `dirt`,
//! a `look` compares what is there with the `snapshot` of what was, and the difference goes to the
//! `outbox`. So an event too many tells nobody anything, and where events were lost, looking at
//! everything is enough.

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
use super::{Tree, Watching};

/// For how long events are gathered, so that a file that is written in several steps, or under a name
/// that does not last, is looked at once.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// How often to see whether the root is still at its path: nothing tells that a folder above it was
/// moved, or that a root that was gone is back. What could not be looked at is tried again as often.
const ROOT_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// How many directories with an unreadable ignore file are looked at by themselves. Beyond, everything is.
const MAX_HIDDEN: usize = 1_000;

/// The most of its time that polling may spend looking: one part in this many.
const POLL_IDLE_FACTOR: u32 = 10;

/// The shortest time between two looks at everything.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Begins to watch. Every change after this has returned is told, until what it returned is dropped.
pub(crate) async fn start(tree: &Arc<Tree>, root_uri: &Uri, mount: &str) -> io::Result<ChangeStream> {
    let wake_handle = WakeHandle::new()?;
    let pending = Arc::<PendingChanges>::default();
    // Before the first look, which ends early once this is dropped.
    let changes = ChangeStream::new(Arc::clone(&pending), wake_handle.clone());
    let (tree, root_uri, mount) = (Arc::clone(tree), root_uri.clone(), mount.to_owned());
    let watcher =
        tokio::task::spawn_blocking(move || TreeWatcher::open(tree, root_uri, &mount, pending, wake_handle))
            .await?;
    std::thread::Builder::new().name("libris-watch".into()).spawn(move || watcher.run())?;
    Ok(changes)
}

/// A running watch, on a thread of its own.
struct TreeWatcher {
    tree: Arc<Tree>,
    root_uri: Uri,
    events: EventSource,
    pending: Arc<PendingChanges>,
    /// What was there at the last look; nothing while the root is gone.
    root: Option<SnapshotDirectory>,
    /// What is still to be looked at.
    dirty: DirtySet,
    /// Every event of before is known.
    drained: SystemTime,
    /// When everything was last looked at because of the time, and when to do so again.
    polled: SystemTime,
    poll_at: Instant,
    /// When to look after the root, and at what could not be looked at.
    root_check_at: Instant,
    retry: bool,
    /// Directories that are hidden because an ignore file in them cannot be read.
    hidden: BTreeSet<String>,
}

impl TreeWatcher {
    /// Begins to watch and looks at everything once. A change after this has returned is told.
    fn open(
        tree: Arc<Tree>,
        root_uri: Uri,
        mount: &str,
        pending: Arc<PendingChanges>,
        wake_handle: WakeHandle,
    ) -> Self {
        let events = match tree.watching {
            Watching::Auto => EventSource::open(wake_handle, &tree, mount),
            Watching::Poll => EventSource::polling(wake_handle),
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

    /// Runs until nobody listens any more.
    fn run(mut self) {
        while !self.pending.is_closed() {
            self.run_once();
        }
    }

    /// Waits for something to do, and does it.
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

    /// Whether to look at everything from time to time. What a link leads to may change unseen.
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

    /// Sees to it that hidden directories are looked at again.
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
        self.dirty.mark_lost();
        self.rescan_dirty(since);
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

    /// Looks at all that is dirty. Every change before `since` is known.
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
            self.drained = since;
        }
        if !was_polling && self.events.needs_polling() {
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
        // However it came to this, whoever listens must not wait for ever.
        self.pending.close();
        self.pending.wake();
    }
}
