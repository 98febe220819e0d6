//! Hints where one watch sees everything below a directory: macOS, Windows and others, by `notify`.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::super::dirty::{DirtySet, EntryEvent};
use crate::tree::name;
use crate::tree::stamp::FileId;
use crate::tree::{OpenFolder, Tree};

/// Wakes the one who waits for hints.
#[derive(Clone, Default)]
pub(in super::super) struct WakeHandle {
    shared: Arc<WakeShared>,
}

#[derive(Default)]
struct WakeShared {
    state: Mutex<WakeState>,
    ready: Condvar,
}

#[derive(Default)]
struct WakeState {
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

    fn lock(&self) -> MutexGuard<'_, WakeState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, root: &Path, event: notify::Result<notify::Event>) {
        {
            let dirty = &mut self.lock().dirty;
            match event {
                Ok(event) if event.need_rescan() => dirty.mark_lost(),
                Ok(event) => {
                    let Some(entry_event) = entry_event(event.kind) else { return };
                    for path in &event.paths {
                        mark(dirty, root, path, entry_event);
                    }
                }
                Err(cause) => {
                    tracing::debug!(%cause, "hints about a folder were lost");
                    dirty.mark_lost();
                }
            }
        }
        self.shared.ready.notify_all();
    }
}

/// What the system says.
pub(in super::super) struct EventSource {
    wake_handle: WakeHandle,
    path: PathBuf,
    mount: String,
    polling: bool,
    /// With the root that it watches.
    watcher: Option<(FileId, RecommendedWatcher)>,
}

impl EventSource {
    pub(in super::super) fn open(wake_handle: WakeHandle, tree: &Tree, mount: &str) -> Self {
        Self {
            wake_handle,
            path: tree.root.path().to_owned(),
            mount: mount.to_owned(),
            polling: false,
            watcher: None,
        }
    }

    /// No hints at all.
    pub(in super::super) fn polling(wake_handle: WakeHandle) -> Self {
        Self { wake_handle, path: PathBuf::new(), mount: String::new(), polling: true, watcher: None }
    }

    /// Whether there are no hints, so that one must look from time to time.
    pub(in super::super) fn needs_polling(&self) -> bool {
        self.polling
    }

    /// Watches a directory. Returns whether it was not watched before.
    pub(in super::super) fn add(&mut self, folder: &OpenFolder) -> io::Result<bool> {
        let file_id = folder.stamp.file_id;
        let known = matches!(&self.watcher, Some((root, _)) if *root == file_id);
        if self.polling || known || !folder.logical.key.is_empty() {
            return Ok(false);
        }
        // What it has been told of another root says nothing of this one.
        self.watcher = None;
        match self.watch() {
            Ok(watcher) => {
                self.watcher = Some((file_id, watcher));
                Ok(true)
            }
            Err(cause) => {
                self.polling = true;
                let (mount, why) = (&self.mount, cause);
                tracing::warn!(mount, %why, "the folder cannot be watched and is looked through every `poll` instead");
                Ok(false)
            }
        }
    }

    fn watch(&self) -> notify::Result<RecommendedWatcher> {
        // Events name what was really watched, as in `/private/var` for `/var`.
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

    /// Waits for a hint or the bell. Returns whether there are hints.
    pub(in super::super) fn wait(&mut self, timeout: Duration) -> bool {
        let idle = |state: &mut WakeState| !state.woken && state.dirty.is_empty();
        let waited = self.wake_handle.shared.ready.wait_timeout_while(self.wake_handle.lock(), timeout, idle);
        !waited.unwrap_or_else(PoisonError::into_inner).0.dirty.is_empty()
    }

    /// Takes the hints that there are. Returns whether those were all.
    pub(in super::super) fn drain(&mut self, dirty: &mut DirtySet) -> bool {
        dirty.merge(std::mem::take(&mut self.wake_handle.lock().dirty));
        true
    }
}

fn mark(dirty: &mut DirtySet, root: &Path, path: &Path, entry_event: EntryEvent) {
    let Ok(path) = path.strip_prefix(root) else { return };
    let Some(name) = path.file_name() else { return dirty.mark_directory("", entry_event) };
    let mut key = String::new();
    for part in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(part) = part else { return };
        let Some(segment) = name::to_segment(part) else { return };
        key.push_str(&segment);
        key.push('/');
    }
    dirty.mark_entry(&key, name, entry_event);
}

/// What an event says; `None` for what is merely read.
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
