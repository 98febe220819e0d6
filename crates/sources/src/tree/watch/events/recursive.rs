//! File system events by one recursive watch of the `notify` crate: on macOS, Windows and other systems than Linux.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::super::dirty::{DirtySet, EntryEvent};
use super::event_path::mark_path;
use super::retry::WatchRetry;
use crate::tree::stamp::FileId;
use crate::tree::{OpenFolder, Tree};

/// Wakes the watcher thread from another thread.
#[derive(Clone, Default)]
pub(in super::super) struct WakeHandle {
    shared: Arc<SharedEvents>,
}

/// The state that the callback of `notify` and the watcher thread share.
#[derive(Default)]
struct SharedEvents {
    state: Mutex<ReceivedEvents>,
    ready: Condvar,
}

#[derive(Default)]
struct ReceivedEvents {
    dirty: DirtySet,
    woken: bool,
}

impl WakeHandle {
    pub(in super::super) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    pub(in super::super) fn wake(&self) {
        self.lock().woken = true;
        self.shared.ready.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ReceivedEvents> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event and wakes the watcher thread.
    fn receive(&self, root: &Path, event: notify::Result<notify::Event>) {
        {
            let dirty = &mut self.lock().dirty;
            match event {
                Ok(event) if event.need_rescan() => dirty.mark_lost(),
                Ok(event) => {
                    let Some(entry_event) = entry_event(event.kind) else { return };
                    for path in &event.paths {
                        mark_path(dirty, root, path, entry_event);
                    }
                }
                Err(cause) => {
                    tracing::debug!(%cause, "events of a folder were lost");
                    dirty.mark_lost();
                }
            }
        }
        self.shared.ready.notify_all();
    }
}

/// The events of the tree; none after a fallback to polling.
pub(in super::super) struct EventSource {
    wake_handle: WakeHandle,
    path: PathBuf,
    mount: String,
    polling: bool,
    /// The watcher, with the identity of the root directory that it watches.
    watcher: Option<(FileId, RecommendedWatcher)>,
    /// When to try again to watch the tree; `None` unless it fell back to polling.
    pub(in super::super) retry: Option<WatchRetry>,
}

impl EventSource {
    pub(in super::super) fn open(wake_handle: WakeHandle, tree: &Tree, mount: &str) -> Self {
        Self {
            wake_handle,
            path: tree.root.path().to_owned(),
            mount: mount.to_owned(),
            polling: false,
            watcher: None,
            retry: None,
        }
    }

    /// A source without events.
    pub(in super::super) fn polling(wake_handle: WakeHandle) -> Self {
        Self {
            wake_handle,
            path: PathBuf::new(),
            mount: String::new(),
            polling: true,
            watcher: None,
            retry: None,
        }
    }

    /// Whether there are no events, so that only polling detects changes.
    pub(in super::super) fn needs_polling(&self) -> bool {
        self.polling
    }

    /// Watches the tree when its root is added. Returns whether the watch is new.
    pub(in super::super) fn add(&mut self, folder: &OpenFolder) -> io::Result<bool> {
        let file_id = folder.stamp.file_id;
        let known = matches!(&self.watcher, Some((root, _)) if *root == file_id);
        if self.polling || known || !folder.logical.key.is_empty() {
            return Ok(false);
        }
        // Events of the previous root do not apply to this one.
        self.watcher = None;
        match self.watch() {
            Ok(watcher) => {
                self.watcher = Some((file_id, watcher));
                Ok(true)
            }
            Err(cause) => {
                self.polling = true;
                let (mount, why) = (&self.mount, cause);
                if let Some(retry) = &mut self.retry {
                    retry.failed(Instant::now());
                    tracing::debug!(mount, %why, "the folder still cannot be watched");
                } else {
                    self.retry = Some(WatchRetry::new(Instant::now()));
                    tracing::warn!(mount, %why, "the folder cannot be watched and is polled at the interval `poll` instead");
                }
                Ok(false)
            }
        }
    }

    /// Allows another attempt if a retry is due. The caller must then scan the tree, which adds its root, and call
    /// [`confirm_watching`](Self::confirm_watching).
    pub(in super::super) fn retry_watching(&mut self) {
        if self.retry.as_ref().is_some_and(|retry| retry.is_due(Instant::now())) {
            self.polling = false;
        }
    }

    /// Ends the fallback to polling if the tree is watched.
    pub(in super::super) fn confirm_watching(&mut self) {
        if self.watcher.is_some() && self.retry.take().is_some() {
            tracing::info!(mount = self.mount, "the folder is watched again and no longer polled");
        } else if self.watcher.is_none() && self.retry.is_some() {
            self.polling = true;
        }
    }

    fn watch(&self) -> notify::Result<RecommendedWatcher> {
        // Events have the real path, such as `/private/var` for `/var`.
        let root = self.path.canonicalize()?;
        let (wake_handle, prefix) = (self.wake_handle.clone(), root.clone());
        let mut watcher = notify::recommended_watcher(move |event| wake_handle.receive(&prefix, event))?;
        watcher.watch(&root, RecursiveMode::Recursive)?;
        Ok(watcher)
    }

    pub(in super::super) fn remove(&mut self, key: &str) {
        if key.is_empty() {
            self.watcher = None;
        }
    }

    /// Waits for an event, for the wake handle or for the timeout. Returns whether there are events.
    pub(in super::super) fn wait(&mut self, timeout: Duration) -> bool {
        let idle = |state: &mut ReceivedEvents| !state.woken && state.dirty.is_empty();
        let waited = self.wake_handle.shared.ready.wait_timeout_while(self.wake_handle.lock(), timeout, idle);
        !waited.unwrap_or_else(PoisonError::into_inner).0.dirty.is_empty()
    }

    /// Moves the received events into the dirty set. Returns whether the queue is empty, which it always is here.
    pub(in super::super) fn drain(&mut self, dirty: &mut DirtySet) -> bool {
        dirty.merge(std::mem::take(&mut self.wake_handle.lock().dirty));
        true
    }
}

/// The event of an entry; `None` if it was only read.
fn entry_event(kind: EventKind) -> Option<EntryEvent> {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Remove(_) => {
            Some(EntryEvent::Touched)
        }
        EventKind::Access(_) => None,
        EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_)) => Some(EntryEvent::Modified),
        _ => Some(EntryEvent::Replaced),
    }
}
