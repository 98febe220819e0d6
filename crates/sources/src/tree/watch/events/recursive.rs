//! Hints where one watch sees everything below a directory: macOS, Windows and others, by `notify`.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::super::dirty::{Dirt, Touch};
use crate::tree::name;
use crate::tree::stamp::Identity;
use crate::tree::{Folder, Tree};

/// Wakes the one who waits for hints.
#[derive(Clone, Default)]
pub(in super::super) struct Bell {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    dirt: Dirt,
    rung: bool,
}

impl Bell {
    pub(in super::super) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    pub(in super::super) fn ring(&self) {
        self.lock().rung = true;
        self.shared.ready.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, root: &Path, event: notify::Result<notify::Event>) {
        {
            let dirt = &mut self.lock().dirt;
            match event {
                Ok(event) if event.need_rescan() => dirt.lose(),
                Ok(event) => {
                    let Some(touch) = touch(event.kind) else { return };
                    for path in &event.paths {
                        mark(dirt, root, path, touch);
                    }
                }
                Err(cause) => {
                    tracing::debug!(%cause, "hints about a folder were lost");
                    dirt.lose();
                }
            }
        }
        self.shared.ready.notify_all();
    }
}

/// What the system says.
pub(in super::super) struct Hints {
    bell: Bell,
    path: PathBuf,
    mount: String,
    blind: bool,
    /// With the root that it watches.
    watcher: Option<(Identity, RecommendedWatcher)>,
}

impl Hints {
    pub(in super::super) fn open(bell: Bell, tree: &Tree, mount: &str) -> Self {
        Self { bell, path: tree.root.path().to_owned(), mount: mount.to_owned(), blind: false, watcher: None }
    }

    /// No hints at all.
    pub(in super::super) fn none(bell: Bell) -> Self {
        Self { bell, path: PathBuf::new(), mount: String::new(), blind: true, watcher: None }
    }

    /// Whether there are no hints, so that one must look from time to time.
    pub(in super::super) fn is_blind(&self) -> bool {
        self.blind
    }

    /// Watches a directory. Returns whether it was not watched before.
    pub(in super::super) fn add(&mut self, folder: &Folder) -> io::Result<bool> {
        let identity = folder.stamp.identity;
        let known = matches!(&self.watcher, Some((root, _)) if *root == identity);
        if self.blind || known || !folder.way.key.is_empty() {
            return Ok(false);
        }
        // What it has been told of another root says nothing of this one.
        self.watcher = None;
        match self.watch() {
            Ok(watcher) => {
                self.watcher = Some((identity, watcher));
                Ok(true)
            }
            Err(cause) => {
                self.blind = true;
                let (mount, why) = (&self.mount, cause);
                tracing::warn!(mount, %why, "the folder cannot be watched and is looked through every `poll` instead");
                Ok(false)
            }
        }
    }

    fn watch(&self) -> notify::Result<RecommendedWatcher> {
        // Events name what was really watched, as in `/private/var` for `/var`.
        let root = self.path.canonicalize()?;
        let (bell, prefix) = (self.bell.clone(), root.clone());
        let mut watcher = notify::recommended_watcher(move |event| bell.hear(&prefix, event))?;
        watcher.watch(&root, RecursiveMode::Recursive)?;
        Ok(watcher)
    }

    pub(in super::super) fn remove(&mut self, key: &str) {
        if key.is_empty() {
            self.watcher = None;
        }
    }

    /// Waits for a hint or the bell. Returns whether there are hints.
    pub(in super::super) fn wait(&mut self, patience: Duration) -> bool {
        let idle = |state: &mut State| !state.rung && state.dirt.is_empty();
        let waited = self.bell.shared.ready.wait_timeout_while(self.bell.lock(), patience, idle);
        !waited.unwrap_or_else(PoisonError::into_inner).0.dirt.is_empty()
    }

    /// Takes the hints that there are. Returns whether those were all.
    pub(in super::super) fn drain(&mut self, dirt: &mut Dirt) -> bool {
        dirt.merge(std::mem::take(&mut self.bell.lock().dirt));
        true
    }
}

fn mark(dirt: &mut Dirt, root: &Path, path: &Path, touch: Touch) {
    let Ok(path) = path.strip_prefix(root) else { return };
    let Some(name) = path.file_name() else { return dirt.directory("", touch) };
    let mut key = String::new();
    for part in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(part) = part else { return };
        let Some(segment) = name::to_segment(part) else { return };
        key.push_str(&segment);
        key.push('/');
    }
    dirt.entry(&key, name, touch);
}

/// What an event says; `None` for what is merely read.
fn touch(kind: EventKind) -> Option<Touch> {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Remove(_) => Some(Touch::Seen),
        EventKind::Access(_) => None,
        EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_)) => Some(Touch::Changed),
        _ => Some(Touch::Replaced),
    }
}
