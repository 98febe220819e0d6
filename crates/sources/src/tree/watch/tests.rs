//! Tests that control when the watcher reads events.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use libris_core::{Change, Uri};

use super::super::root::NameMatching;
use super::super::{ResolvedPath, Root, Tree, TreeOptions};
use super::dirty::EntryEvent;
use super::events::event_path::mark_path;
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
        Self::with(NameMatching::PLATFORM)
    }

    fn with(name_matching: NameMatching) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/old"), "").unwrap();
        let mut tree = Tree::open(&TreeOptions::default(), Root::open(folder.path()).unwrap()).unwrap();
        tree.name_matching = name_matching;
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

/// A watcher whose only events are those that a test marks, on a tree whose file system finds names by other spellings.
fn lenient() -> WatchedTree {
    let mut watched = WatchedTree::with(NameMatching::Lenient);
    watched.watcher.events = EventSource::polling(WakeHandle::new().unwrap());
    watched.watcher.poll_at = std::time::Instant::now() + std::time::Duration::from_secs(3600);
    watched
}

impl WatchedTree {
    /// Marks the path of an event of a recursive watch, and returns the changes that the scan finds.
    fn emitted_by(&mut self, path: &str, event: EntryEvent) -> Vec<String> {
        let path = self.path(path);
        mark_path(&mut self.watcher.dirty, self.folder.path(), &path, event);
        self.emitted()
    }
}

const COMPOSED: &str = "caf\u{e9}";
const DECOMPOSED: &str = "cafe\u{301}";

#[test]
fn events_with_another_spelling_of_a_name_are_not_lost() {
    for (listed, spelling) in [
        ("old", "OLD"),
        (DECOMPOSED, COMPOSED),
        (COMPOSED, DECOMPOSED),
        ("a long name.text", "ALONGN~1.TEX"),
        ("K", "\u{212a}"),
    ] {
        let mut watched = lenient();
        let (path, spelling) = (format!("d/{listed}"), format!("d/{spelling}"));
        let key = Uri::encode_segment(listed.as_bytes());
        fs::write(watched.path("d/other"), "").unwrap();
        watched.emitted_by("d/other", EntryEvent::Replaced);
        if listed != "old" {
            fs::write(watched.path(&path), "").unwrap();
            let emitted = watched.emitted_by(&spelling, EntryEvent::Replaced);
            assert!(emitted.contains(&format!("+ d/{key}")), "{spelling}: {emitted:?}");
        }
        fs::write(watched.path(&path), "more").unwrap();
        let emitted = watched.emitted_by(&spelling, EntryEvent::Modified);
        assert!(emitted.contains(&format!("~ d/{key}")), "{spelling}: {emitted:?}");
        fs::remove_file(watched.path(&path)).unwrap();
        let emitted = watched.emitted_by(&spelling, EntryEvent::Touched);
        assert!(emitted.contains(&format!("- d/{key}")), "{spelling}: {emitted:?}");
    }
}

#[test]
fn events_with_another_spelling_of_a_directory_are_not_lost() {
    for (listed, spelling) in [("Guide", "GUIDE"), (DECOMPOSED, COMPOSED), ("a long name", "ALONGN~1")] {
        let mut watched = lenient();
        fs::create_dir_all(watched.path(listed).join("deep")).unwrap();
        fs::write(watched.path(listed).join("deep/file"), "").unwrap();
        let key = Uri::encode_segment(listed.as_bytes());
        // The directory is new.
        let emitted = watched.emitted_by(&format!("{spelling}/DEEP/file"), EntryEvent::Modified);
        assert!(emitted.contains(&format!("+ {key}/deep/file")), "{spelling}: {emitted:?}");
        fs::write(watched.path(listed).join("deep/file"), "more").unwrap();
        let emitted = watched.emitted_by(&format!("{spelling}/DEEP/FILE"), EntryEvent::Modified);
        assert!(emitted.contains(&format!("~ {key}/deep/file")), "{spelling}: {emitted:?}");
        fs::remove_dir_all(watched.path(listed)).unwrap();
        let emitted = watched.emitted_by(&format!("{spelling}/deep/file"), EntryEvent::Touched);
        assert!(emitted.contains(&format!("- {key}/")), "{spelling}: {emitted:?}");
    }
}

#[test]
fn the_short_name_of_an_ignore_file_applies_its_rules_to_the_subtree() {
    let mut watched = lenient();
    fs::create_dir(watched.path("d/e")).unwrap();
    fs::write(watched.path("d/e/secret"), "").unwrap();
    watched.emitted_by("d/e", EntryEvent::Replaced);
    fs::write(watched.path("d/.ignore"), "secret\n").unwrap();
    assert!(watched.emitted_by("d/IGNORE~1", EntryEvent::Modified).contains(&"- d/e/secret".into()));
}

#[test]
fn events_of_hidden_entries_scan_no_other_entry() {
    let mut watched = lenient();
    fs::create_dir(watched.path("d/.git")).unwrap();
    fs::write(watched.path("d/.hidden"), "").unwrap();
    watched.emitted_by("d/.hidden", EntryEvent::Replaced);
    fs::write(watched.path("d/old"), "changed without an event").unwrap();
    for path in ["d/.hidden", "d/.git", "d/.git/index"] {
        assert_eq!(watched.emitted_by(path, EntryEvent::Modified), [""; 0], "{path}");
    }
    // Beyond the limit of lookups, a scan of the directory costs less.
    let many: Vec<_> = (0..200).map(|number| watched.path(&format!("d/.hidden-{number}"))).collect();
    for path in &many {
        fs::write(path, "").unwrap();
        mark_path(&mut watched.watcher.dirty, watched.folder.path(), path, EntryEvent::Modified);
    }
    assert!(watched.emitted().contains(&"~ d/old".into()));
}

#[test]
fn with_exact_names_a_missing_entry_scans_no_other_entry() {
    let mut watched = lenient();
    let tree = Arc::get_mut(&mut watched.watcher.tree).unwrap();
    tree.name_matching = NameMatching::Exact;
    fs::write(watched.path("d/old"), "changed without an event").unwrap();
    for path in ["d/OLD", "d/temporary", "D/old"] {
        assert_eq!(watched.emitted_by(path, EntryEvent::Touched), [""; 0], "{path}");
    }
}

#[test]
fn only_the_listed_spelling_of_a_name_is_served() {
    let watched = lenient();
    let root = Arc::new(watched.watcher.tree.root().unwrap());
    assert!(watched.watcher.tree.resolve(Arc::clone(&root), "d/old").is_ok());
    let folder = watched.watcher.tree.resolve(root, "d").unwrap();
    let ResolvedPath::Folder(folder) = folder else { panic!("a directory") };
    assert!(folder.handle.lists("old".as_ref()).unwrap());
    assert!(!folder.handle.lists("OLD".as_ref()).unwrap());
}
