//! What only happens when nobody reads the events for a while.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use libris_core::{Change, Uri};

use super::super::{Options, Root, Tree};
use super::pending::{Changes, Outbox};
use super::snapshot::{Directory, Node};
use super::{Bell, Hints, Watcher};

struct Bench {
    folder: tempfile::TempDir,
    watcher: Watcher,
    changes: Changes,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/old"), "").unwrap();
        let tree = Tree::open(&Options::default(), Root::open(folder.path()).unwrap()).unwrap();
        let root_uri = Uri::parse("file:///m/").unwrap();
        let bell = Bell::new().unwrap();
        let outbox = Arc::<Outbox>::default();
        let changes = Changes::new(Arc::clone(&outbox), bell.clone());
        Self { folder, watcher: Watcher::open(Arc::new(tree), root_uri, "m", outbox, bell), changes }
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }

    /// Everything that is told now.
    fn told(&mut self) -> Vec<String> {
        self.watcher.turn();
        while !self.watcher.dirt.is_empty() {
            self.watcher.turn();
        }
        let told = std::iter::from_fn(|| self.changes.next().now_or_never().flatten());
        told.map(|change| match change {
            Change::Added(uri) => format!("+ {}", &uri.as_str()[10..]),
            Change::Removed(uri) => format!("- {}", &uri.as_str()[10..]),
            Change::Updated(uri) => format!("~ {}", &uri.as_str()[10..]),
            Change::Described(uri) => format!("i {}", &uri.as_str()[10..]),
            other => format!("{other:?}"),
        })
        .collect()
    }

    fn known(&self) -> Vec<String> {
        let mut known = Vec::new();
        collect("", self.watcher.root.as_ref().unwrap(), &mut known);
        known
    }
}

fn collect(key: &str, directory: &Directory, into: &mut Vec<String>) {
    for (name, node) in &directory.entries {
        let key = format!("{key}{name}");
        match node {
            Node::File(_) => into.push(key),
            Node::Directory(below) => collect(&key, below, into),
        }
    }
}

fn queue_length() -> usize {
    fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap()
}

#[test]
fn an_overflow_tells_the_true_difference() {
    let mut bench = Bench::new();
    let busy = [bench.path("d/busy-1"), bench.path("d/busy-2")];
    // By turns, since the system takes two events for one where they are the same.
    for n in 0..queue_length() {
        fs::write(&busy[n % 2], "").unwrap();
    }
    // All of this falls beyond what the queue holds.
    fs::remove_file(bench.path("d/old")).unwrap();
    fs::create_dir_all(bench.path("new/deep")).unwrap();
    fs::write(bench.path("new/deep/file"), "").unwrap();
    let mut told = bench.told();
    told.retain(|line| !line.starts_with(['~', 'i']));
    assert_eq!(told, ["+ d/busy-1", "+ d/busy-2", "- d/old", "+ new/", "+ new/deep/", "+ new/deep/file"]);
    assert_eq!(bench.known(), ["d/busy-1", "d/busy-2", "new/deep/file"]);
    // What came while nobody heard is watched all the same, and what did not change is not told.
    bench.told();
    fs::write(bench.path("new/deep/more"), "").unwrap();
    assert_eq!(bench.told(), ["~ new/deep/", "i new/deep/", "+ new/deep/more"]);
}

#[test]
fn without_watches_there_is_polling() {
    let mut bench = Bench::new();
    // As when the limit is reached halfway.
    bench.watcher.hints = Hints::none(Bell::new().unwrap());
    fs::write(bench.path("d/new"), "").unwrap();
    bench.watcher.poll_at = std::time::Instant::now();
    assert!(bench.told().contains(&"+ d/new".into()));
    assert_eq!(bench.known(), ["d/new", "d/old"]);
}

#[test]
fn a_listener_who_falls_behind_is_told_to_look() {
    let mut bench = Bench::new();
    let uri = |n: usize| Uri::parse(&format!("file:///m/{n}")).unwrap();
    for n in 0..200_000 {
        bench.watcher.outbox.put(Change::Added(uri(n)));
    }
    assert_eq!(bench.told(), ["Lost"]);
    bench.watcher.outbox.put(Change::Added(uri(7)));
    assert_eq!(bench.told(), ["+ 7"]);
}

#[test]
fn changes_of_one_resource_are_taken_together() {
    let mut bench = Bench::new();
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
    all.into_iter().for_each(|change| bench.watcher.outbox.put(change));
    assert_eq!(bench.told(), ["+ 1", "~ 2", "i 2", "- 4", "~ 5"]);
}

#[test]
fn a_watch_that_ends_ends_its_stream() {
    let Bench { watcher, mut changes, folder } = Bench::new();
    drop(watcher);
    assert_eq!(changes.next().now_or_never(), Some(None));
    assert!(Path::exists(folder.path()));
}
