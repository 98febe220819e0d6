//! Random changes to a watched folder, and whether what was told of them is the truth.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use libris_sources::files::Watching;

use crate::sandbox::Sandbox;
use crate::watch::{WAYS, Watched};

/// A small generator, so that a seed tells all.
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

/// A file as the system sees it.
#[derive(Clone, Debug, PartialEq)]
struct File {
    content: Vec<u8>,
    node: u64,
    changed: (i64, i64),
}

struct Disk {
    root: PathBuf,
    outside: PathBuf,
    random: Random,
    names: usize,
}

impl Disk {
    fn files(&self) -> BTreeMap<String, File> {
        let mut files = BTreeMap::new();
        self.walk(&self.root, &mut |path, metadata| {
            if metadata.is_file() {
                let key = path.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned();
                let changed = (metadata.ctime(), metadata.ctime_nsec());
                files.insert(key, File { content: fs::read(path).unwrap(), node: metadata.ino(), changed });
            }
        });
        files
    }

    /// When each directory last got or lost an entry.
    fn touched(&self) -> BTreeMap<String, (i64, i64)> {
        let mut touched = BTreeMap::new();
        self.walk(&self.root, &mut |path, metadata| {
            if metadata.is_dir() {
                let key = format!("{}/", path.strip_prefix(&self.root).unwrap().to_str().unwrap());
                touched.insert(key, (metadata.mtime(), metadata.mtime_nsec()));
            }
        });
        touched
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

    /// A name that was never used, so that nothing moves away and back between two looks.
    fn fresh(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

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
                let mode = [0o600, 0o644][self.random.below(2)];
                fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
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

async fn run(seed: u64, way: Watching) {
    let sandbox = Sandbox::with(&[("one", "1"), ("a/two", "2"), ("a/b/three", "3")]);
    let (root, outside) = (sandbox.path(""), sandbox.outside().join("outside"));
    fs::create_dir(&outside).unwrap();
    let mut watched = Watched::new(sandbox, way).await;
    let mut disk = Disk { root, outside, random: Random(seed), names: 0 };
    for round in 0..25 {
        let (before, untouched) = (disk.files(), disk.touched());
        for _ in 0..=disk.random.below(20) {
            disk.change();
        }
        watched.settle().await;
        let after = disk.files();
        let told = std::mem::take(&mut watched.told);
        for (path, is) in &after {
            // What came is known to be told: what was told equals the list.
            let Some(was) = before.get(path) else { continue };
            // Where somebody looked in between, it went and came.
            let mentioned = told.get(path).is_some_and(|told| told.updated || told.added);
            assert_eq!(is != was, mentioned, "seed {seed}, {way:?}, round {round}: `{path}` {was:?} {is:?}");
        }
        for (path, _) in told.iter().filter(|(path, told)| told.updated && path.ends_with('/')) {
            let direct = |other: &&String| {
                let below = other.strip_prefix(path.as_str()).map(|below| below.trim_end_matches('/'));
                below.is_some_and(|below| !below.is_empty() && !below.contains('/'))
            };
            // What came and went before it was told left its mark on the directory alone.
            let passed = disk.touched().get(path) != untouched.get(path);
            assert!(
                passed || told.keys().any(|other| direct(&other)),
                "seed {seed}, round {round}: `{path}`"
            );
        }
        watched.calm().await;
    }
}

#[tokio::test]
async fn what_is_told_is_the_truth() {
    for way in WAYS {
        for seed in 1..=3 {
            run(seed, way).await;
        }
    }
}

#[tokio::test]
async fn a_burst_beyond_every_queue_ends_in_the_truth() {
    let sandbox = Sandbox::large();
    for folder in 0..20 {
        sandbox.write(format!("{folder}/last"), "before");
    }
    let mut watched = Watched::new(sandbox, Watching::Auto).await;
    let root = watched.sandbox.path("");
    let burst = tokio::task::spawn_blocking(move || {
        // Each makes at least three events.
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
        assert!(watched.told[&format!("{folder}/last")].updated);
    }
}
