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

use dirty::{Dirt, Touch};
use events::{Bell, Hints};
pub(crate) use pending::Changes;
use pending::Outbox;
use rescan::Look;
use snapshot::Directory;

use libris_core::Uri;

use super::symlink::Symlinks;
use super::{Tree, Watching};

/// For how long events are gathered, so that a file that is written in several steps, or under a name
/// that does not last, is looked at once.
const GATHER: Duration = Duration::from_millis(10);

/// How often to see whether the root is still at its path: nothing tells that a folder above it was
/// moved, or that a root that was gone is back. What could not be looked at is tried again as often.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// How many directories with an unreadable ignore file are looked at by themselves. Beyond, everything is.
const HIDDEN: usize = 1_000;

/// The most of its time that polling may spend looking: one part in this many.
const REST: u32 = 10;

/// The shortest time between two looks at everything.
const BREATH: Duration = Duration::from_millis(10);

/// Begins to watch. Every change after this has returned is told, until what it returned is dropped.
pub(crate) async fn start(tree: &Arc<Tree>, root_uri: &Uri, mount: &str) -> io::Result<Changes> {
    let bell = Bell::new()?;
    let outbox = Arc::<Outbox>::default();
    // Before the first look, which ends early once this is dropped.
    let changes = Changes::new(Arc::clone(&outbox), bell.clone());
    let (tree, root_uri, mount) = (Arc::clone(tree), root_uri.clone(), mount.to_owned());
    let watcher =
        tokio::task::spawn_blocking(move || Watcher::open(tree, root_uri, &mount, outbox, bell)).await?;
    std::thread::Builder::new().name("libris-watch".into()).spawn(move || watcher.run())?;
    Ok(changes)
}

/// A running watch, on a thread of its own.
struct Watcher {
    tree: Arc<Tree>,
    root_uri: Uri,
    hints: Hints,
    outbox: Arc<Outbox>,
    /// What was there at the last look; nothing while the root is gone.
    root: Option<Directory>,
    /// What is still to be looked at.
    dirt: Dirt,
    /// Every event of before is known.
    drained: SystemTime,
    /// When everything was last looked at because of the time, and when to do so again.
    polled: SystemTime,
    poll_at: Instant,
    /// When to look after the root, and at what could not be looked at.
    beat_at: Instant,
    retry: bool,
    /// Directories that are hidden because an ignore file in them cannot be read.
    hidden: BTreeSet<String>,
}

impl Watcher {
    /// Begins to watch and looks at everything once. A change after this has returned is told.
    fn open(tree: Arc<Tree>, root_uri: Uri, mount: &str, outbox: Arc<Outbox>, bell: Bell) -> Self {
        let hints = match tree.watching {
            Watching::Auto => Hints::open(bell, &tree, mount),
            Watching::Poll => Hints::none(bell),
        };
        let began = Instant::now();
        let now = SystemTime::now();
        let mut watcher = Self {
            tree,
            root_uri,
            hints,
            outbox,
            root: None,
            dirt: Dirt::default(),
            drained: now,
            polled: now,
            poll_at: began,
            beat_at: began + HEARTBEAT,
            retry: false,
            hidden: BTreeSet::new(),
        };
        let mut look = watcher.look(now);
        let root = look.at_root_first();
        let hidden = std::mem::take(&mut look.hidden);
        watcher.retry = look.retry;
        watcher.root = root;
        watcher.hide(hidden);
        watcher.rest(began);
        watcher
    }

    /// Runs until nobody listens any more.
    fn run(mut self) {
        while !self.outbox.is_closed() {
            self.turn();
        }
    }

    /// Waits for something to do, and does it.
    fn turn(&mut self) {
        let told = self.hints.wait(self.patience());
        if self.outbox.is_closed() {
            return;
        }
        if told {
            std::thread::sleep(GATHER);
        }
        let since = self.drained;
        let now = SystemTime::now();
        if self.hints.drain(&mut self.dirt) {
            self.drained = now;
        }
        if self.polls() && Instant::now() >= self.poll_at {
            self.poll();
        }
        if Instant::now() >= self.beat_at {
            self.beat();
        }
        if !self.dirt.is_empty() {
            self.clean(since);
        }
    }

    /// Whether to look at everything from time to time. What a link leads to may change unseen.
    fn polls(&self) -> bool {
        self.hints.is_blind() || self.tree.symlinks == Symlinks::Follow
    }

    fn patience(&self) -> Duration {
        if !self.dirt.is_empty() {
            return Duration::ZERO;
        }
        let next = if self.polls() { self.beat_at.min(self.poll_at) } else { self.beat_at };
        next.saturating_duration_since(Instant::now())
    }

    fn beat(&mut self) {
        self.beat_at = Instant::now() + HEARTBEAT;
        for key in std::mem::take(&mut self.hidden) {
            self.dirt.directory(&key, Touch::Seen);
        }
        if std::mem::take(&mut self.retry) {
            self.dirt.lose();
        } else if self.root_moved() {
            self.dirt.everything();
        }
    }

    /// Sees to it that hidden directories are looked at again.
    fn hide(&mut self, keys: Vec<String>) {
        self.hidden.extend(keys);
        if self.hidden.len() > HIDDEN {
            self.hidden.clear();
            self.retry = true;
        }
    }

    fn poll(&mut self) {
        let began = Instant::now();
        let since = std::mem::replace(&mut self.polled, SystemTime::now());
        self.dirt.lose();
        self.clean(since);
        self.rest(began);
    }

    fn rest(&mut self, began: Instant) {
        let pause = self.tree.poll.max(began.elapsed() * REST).max(BREATH);
        self.poll_at = Instant::now() + pause;
    }

    fn root_moved(&self) -> bool {
        let now = self.tree.identity();
        match (&self.root, now) {
            (Some(root), Ok(identity)) => root.stamp.identity != identity,
            (None, Ok(_)) | (Some(_), Err(_)) => true,
            (None, Err(_)) => false,
        }
    }

    /// Looks at all that is dirty. Every change before `since` is known.
    fn clean(&mut self, since: SystemTime) {
        let dirt = std::mem::take(&mut self.dirt);
        let mut root = self.root.take();
        let was_blind = self.hints.is_blind();
        let mut look = self.look(since);
        look.at(dirt, &mut root);
        let (later, retry, hidden) = (look.later, look.retry, look.hidden);
        self.root = root;
        self.dirt = later;
        self.retry |= retry;
        self.hide(hidden);
        if retry {
            self.drained = since;
        }
        if !was_blind && self.hints.is_blind() {
            self.polled = since;
        }
        self.outbox.send();
    }

    fn look(&mut self, since: SystemTime) -> Look<'_> {
        Look::new(&self.tree, &self.root_uri, &mut self.hints, &self.outbox, since)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // However it came to this, whoever listens must not wait for ever.
        self.outbox.close();
        self.outbox.send();
    }
}
