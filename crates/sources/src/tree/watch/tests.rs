//! Tests that control when the watcher reads events.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use libris_core::{Change, Uri};

use super::super::{Root, Tree, TreeOptions};
use super::pending::{ChangeStream, PendingChanges};
use super::snapshot::{SnapshotDirectory, SnapshotEntry};
use super::{EventSource, TreeWatcher, WakeHandle};

struct WatchedTree {
    folder: tempfile::TempDir,
    watcher: TreeWatcher,
    changes: ChangeStream,
}

impl WatchedTree {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/old"), "").unwrap();
        let tree = Tree::open(&TreeOptions::default(), Root::open(folder.path()).unwrap()).unwrap();
        let root_uri = Uri::parse("file:///m/").unwrap();
        let wake_handle = WakeHandle::new().unwrap();
        let pending = Arc::<PendingChanges>::default();
        let changes = ChangeStream::new(Arc::clone(&pending), wake_handle.clone());
        Self {
            folder,
            watcher: TreeWatcher::open(Arc::new(tree), root_uri, "m", pending, wake_handle),
            changes,
        }
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }

    /// Runs the watcher until nothing is dirty, and returns the changes of the stream.
    fn emitted(&mut self) -> Vec<String> {
        self.watcher.run_once();
        while !self.watcher.dirty.is_empty() {
            self.watcher.run_once();
        }
        let emitted = std::iter::from_fn(|| self.changes.next().now_or_never().flatten());
        emitted
            .map(|change| match change {
                Change::Added(uri) => format!("+ {}", &uri.as_str()[10..]),
                Change::Removed(uri) => format!("- {}", &uri.as_str()[10..]),
                Change::Updated(uri) => format!("~ {}", &uri.as_str()[10..]),
                Change::Described(uri) => format!("i {}", &uri.as_str()[10..]),
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn snapshot(&self) -> Vec<String> {
        let mut keys = Vec::new();
        collect("", self.watcher.root.as_ref().unwrap(), &mut keys);
        keys
    }
}

fn collect(key: &str, directory: &SnapshotDirectory, into: &mut Vec<String>) {
    for (name, node) in &directory.entries {
        let key = format!("{key}{name}");
        match node {
            SnapshotEntry::File(_) => into.push(key),
            SnapshotEntry::Directory(below) => collect(&key, below, into),
        }
    }
}

fn queue_length() -> usize {
    fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap()
}

#[test]
fn a_queue_overflow_emits_the_actual_differences() {
    let mut watched = WatchedTree::new();
    let busy = [watched.path("d/busy-1"), watched.path("d/busy-2")];
    // Alternately, since inotify coalesces identical consecutive events.
    for n in 0..queue_length() {
        fs::write(&busy[n % 2], "").unwrap();
    }
    // These events exceed the queue.
    fs::remove_file(watched.path("d/old")).unwrap();
    fs::create_dir_all(watched.path("new/deep")).unwrap();
    fs::write(watched.path("new/deep/file"), "").unwrap();
    let mut emitted = watched.emitted();
    emitted.retain(|line| !line.starts_with(['~', 'i']));
    assert_eq!(emitted, ["+ d/busy-1", "+ d/busy-2", "- d/old", "+ new/", "+ new/deep/", "+ new/deep/file"]);
    assert_eq!(watched.snapshot(), ["d/busy-1", "d/busy-2", "new/deep/file"]);
    // Directories that appeared during the overflow are watched, and unchanged files cause no change.
    watched.emitted();
    fs::write(watched.path("new/deep/more"), "").unwrap();
    assert_eq!(watched.emitted(), ["~ new/deep/", "+ new/deep/more", "i new/deep/"]);
}

#[test]
fn polling_detects_changes_without_watches() {
    let mut watched = WatchedTree::new();
    // As if the limit of watches were reached.
    watched.watcher.events = EventSource::polling(WakeHandle::new().unwrap());
    fs::write(watched.path("d/new"), "").unwrap();
    watched.watcher.poll_at = std::time::Instant::now();
    assert!(watched.emitted().contains(&"+ d/new".into()));
    assert_eq!(watched.snapshot(), ["d/new", "d/old"]);
}

#[test]
fn a_tree_that_fell_back_to_polling_is_watched_again() {
    let mut watched = WatchedTree::new();
    watched.watcher.events.lose_watches();
    fs::create_dir(watched.path("new")).unwrap();
    watched.watcher.poll_at = std::time::Instant::now();
    assert!(watched.emitted().contains(&"+ new/".into()));
    assert!(watched.watcher.events.needs_polling(), "a retry before it is due");
    let retry = watched.watcher.events.retry.as_mut().unwrap();
    retry.at = std::time::Instant::now();
    watched.watcher.poll_at = retry.at;
    watched.emitted();
    assert!(!watched.watcher.events.needs_polling());
    // By events alone, since the next poll is not due.
    for path in ["d/more", "new/more"] {
        fs::write(watched.path(path), "").unwrap();
        assert!(watched.emitted().contains(&format!("+ {path}")));
    }
}

#[test]
fn a_slow_consumer_receives_lost() {
    let mut watched = WatchedTree::new();
    let uri = |n: usize| Uri::parse(&format!("file:///m/{n}")).unwrap();
    for n in 0..200_000 {
        watched.watcher.pending.put(Change::Added(uri(n)));
    }
    assert_eq!(watched.emitted(), ["Lost"]);
    watched.watcher.pending.put(Change::Added(uri(7)));
    assert_eq!(watched.emitted(), ["+ 7"]);
}

#[test]
fn changes_of_one_resource_are_coalesced() {
    let mut watched = WatchedTree::new();
    let uri = |n: usize| Uri::parse(&format!("file:///m/{n}")).unwrap();
    let all = [
        Change::Added(uri(1)),
        Change::Updated(uri(1)),
        Change::Removed(uri(2)),
        Change::Added(uri(2)),
        Change::Added(uri(3)),
        Change::Described(uri(3)),
        Change::Removed(uri(3)),
        Change::Updated(uri(4)),
        Change::Removed(uri(4)),
        Change::Updated(uri(5)),
        Change::Updated(uri(5)),
    ];
    all.into_iter().for_each(|change| watched.watcher.pending.put(change));
    assert_eq!(watched.emitted(), ["+ 1", "~ 2", "- 4", "~ 5", "i 2"]);
}

#[test]
fn the_stream_ends_with_the_watcher() {
    let WatchedTree { watcher, mut changes, folder } = WatchedTree::new();
    drop(watcher);
    assert_eq!(changes.next().now_or_never(), Some(None));
    assert!(Path::exists(folder.path()));
}
