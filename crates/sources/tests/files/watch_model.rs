//! Model-based tests of the watcher: random changes on disk are compared with the reported ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use libris_sources::files::ChangeDetection;

use crate::sandbox::Sandbox;
use crate::watch::{MODES, WatchedFolder};

/// A seeded pseudo-random generator, so that failures are reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { all.get(self.below(all.len())) }
    }
}

/// The state of a file on disk.
#[derive(Clone, Debug, PartialEq)]
struct FileState {
    content: Vec<u8>,
    identity: (u64, i64, i64),
}

/// What changes whenever the file changes or is replaced: the inode number and the time of the last change.
#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> (u64, i64, i64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

/// What changes whenever the file changes: the time of the last change.
#[cfg(windows)]
fn identity(metadata: &fs::Metadata) -> (u64, i64, i64) {
    (std::os::windows::fs::MetadataExt::last_write_time(metadata), 0, 0)
}

/// Changes who may read the file.
#[cfg(unix)]
fn restrict(file: &Path, restricted: bool) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = if restricted { 0o600 } else { 0o644 };
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

/// Nothing: permissions are no part of a file's metadata.
#[cfg(windows)]
fn restrict(_: &Path, _: bool) {}

/// The served folder on disk, to which random changes are made.
struct DiskModel {
    root: PathBuf,
    outside: PathBuf,
    random: Random,
    /// The number of names that were made up so far.
    names: usize,
}

impl DiskModel {
    fn files(&self) -> BTreeMap<String, FileState> {
        let mut files = BTreeMap::new();
        self.walk(&self.root, &mut |path, metadata| {
            if metadata.is_file() {
                let key = path.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned();
                let key = key.replace('\\', "/");
                files.insert(
                    key,
                    FileState { content: fs::read(path).unwrap(), identity: identity(metadata) },
                );
            }
        });
        files
    }

    /// The modification time of each directory.
    fn directory_times(&self) -> BTreeMap<String, SystemTime> {
        let mut times = BTreeMap::new();
        self.walk(&self.root, &mut |path, metadata| {
            if metadata.is_dir() {
                let key = format!("{}/", path.strip_prefix(&self.root).unwrap().to_str().unwrap());
                times.insert(key.replace('\\', "/"), metadata.modified().unwrap());
            }
        });
        times
    }

    fn walk(&self, at: &Path, each: &mut impl FnMut(&Path, &fs::Metadata)) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path == self.root.join("~") {
                continue;
            }
            let metadata = path.symlink_metadata().unwrap();
            each(&path, &metadata);
            if metadata.is_dir() {
                self.walk(&path, each);
            }
        }
    }

    fn all(&self, wanted: impl Fn(&fs::Metadata) -> bool) -> Vec<PathBuf> {
        let mut all = Vec::new();
        self.walk(&self.root, &mut |path, metadata| {
            if wanted(metadata) {
                all.push(path.to_owned());
            }
        });
        all.sort();
        all
    }

    /// A new name, so that nothing is moved away and back between two scans.
    fn fresh(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    /// Makes one random change.
    fn change(&mut self) {
        let files = self.all(fs::Metadata::is_file);
        let inner = self.all(fs::Metadata::is_dir);
        let folders = [std::slice::from_ref(&self.root), &inner].concat();
        let folder = self.random.one_of(&folders).unwrap().clone();
        let file = self.random.one_of(&files).cloned().unwrap_or_else(|| self.root.join("first"));
        let target = folder.join(["one", "two", "three", "four"][self.random.below(4)]);
        let content = ["", "a", "b", "long"][self.random.below(4)];
        match self.random.below(14) {
            0..=2 if !target.is_dir() => fs::write(&target, content).unwrap(),
            3 if file.exists() => fs::write(&file, content).unwrap(),
            4 if file.exists() => fs::remove_file(&file).unwrap(),
            5 if file.exists() && !target.is_dir() => fs::rename(&file, &target).unwrap(),
            6 if file.exists() => {
                let temporary = file.with_file_name(".saving");
                fs::write(&temporary, content).unwrap();
                fs::rename(&temporary, &file).unwrap();
            }
            7 if file.exists() => {
                let restricted = self.random.below(2) == 0;
                restrict(&file, restricted);
            }
            8 => {
                let deep = folder.join(self.fresh("d")).join(self.fresh("d"));
                fs::create_dir_all(&deep).unwrap();
                fs::write(deep.join("leaf"), content).unwrap();
            }
            9 => {
                if let Some(gone) = self.random.one_of(&inner) {
                    fs::remove_dir_all(gone).unwrap();
                }
            }
            10 | 11 => {
                let Some(moved) = self.random.one_of(&inner).cloned() else { return };
                let to = folder.join(self.fresh("d"));
                if !to.starts_with(&moved) {
                    fs::rename(moved, to).unwrap();
                }
            }
            12 => {
                if let Some(moved) = self.random.one_of(&inner).cloned() {
                    let name = self.fresh("d");
                    fs::rename(moved, self.outside.join(name)).unwrap();
                }
            }
            13 => {
                let waiting = fs::read_dir(&self.outside).unwrap().next().map(|entry| entry.unwrap().path());
                if let Some(moved) = waiting {
                    fs::rename(moved, folder.join(self.fresh("d"))).unwrap();
                }
            }
            _ => {}
        }
    }
}

/// Makes random changes and checks that exactly those are reported.
async fn run(seed: u64, mode: ChangeDetection) {
    let sandbox = Sandbox::with(&[("one", "1"), ("a/two", "2"), ("a/b/three", "3")]);
    let (root, outside) = (sandbox.path(""), sandbox.outside().join("outside"));
    fs::create_dir(&outside).unwrap();
    let mut watched = WatchedFolder::new(sandbox, mode).await;
    let mut disk = DiskModel { root, outside, random: Random(seed), names: 0 };
    for round in 0..25 {
        let (before, times_before) = (disk.files(), disk.directory_times());
        for _ in 0..=disk.random.below(20) {
            disk.change();
        }
        watched.settle().await;
        let after = disk.files();
        let reported = std::mem::take(&mut watched.reported);
        for (path, is) in &after {
            // Added files were checked by `settle`, which compares the reported state with a listing.
            let Some(was) = before.get(path) else { continue };
            // If a scan happened in between, the file was removed and added.
            let mentioned = reported.get(path).is_some_and(|reported| reported.updated || reported.added);
            assert_eq!(is != was, mentioned, "seed {seed}, {mode:?}, round {round}: `{path}` {was:?} {is:?}");
        }
        for (path, _) in reported.iter().filter(|(path, reported)| reported.updated && path.ends_with('/')) {
            let direct = |other: &&String| {
                let below = other.strip_prefix(path.as_str()).map(|below| below.trim_end_matches('/'));
                below.is_some_and(|below| !below.is_empty() && !below.contains('/'))
            };
            // A file that was created and deleted between two scans changes only its directory.
            let directory_changed = disk.directory_times().get(path) != times_before.get(path);
            assert!(
                directory_changed || reported.keys().any(|other| direct(&other)),
                "seed {seed}, round {round}: `{path}`"
            );
        }
        watched.quiesce().await;
    }
}

#[tokio::test]
async fn reported_changes_match_the_file_system() {
    for mode in MODES {
        for seed in 1..=3 {
            run(seed, mode).await;
        }
    }
}

#[tokio::test]
async fn a_queue_overflow_loses_no_change() {
    let sandbox = Sandbox::large();
    for folder in 0..20 {
        sandbox.write(format!("{folder}/last"), "before");
    }
    let mut watched = WatchedFolder::new(sandbox, ChangeDetection::Auto).await;
    let root = watched.sandbox.path("");
    let burst = tokio::task::spawn_blocking(move || {
        // Each iteration causes at least three events.
        for n in 0..70_000 {
            let file = root.join(format!("{}/{}", n % 20, n % 701));
            if fs::remove_file(&file).is_err() {
                fs::write(&file, "x").unwrap();
            }
        }
        for folder in 0..20 {
            fs::write(root.join(format!("{folder}/last")), "after!").unwrap();
        }
    });
    burst.await.unwrap();
    watched.settle().await;
    for folder in 0..20 {
        assert!(watched.reported[&format!("{folder}/last")].updated);
    }
}
