//! The changes that the watcher reports, by events and by polling alike.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use libris_core::{Change, Source};
use libris_sources::Files;
use libris_sources::files::{ChangeDetection, Config};

use crate::sandbox::{Sandbox, listed, read, uri};

/// Both ways of detecting changes.
pub(crate) const MODES: [ChangeDetection; 2] = [ChangeDetection::Auto, ChangeDetection::Poll];

/// A watched folder and the changes that were reported.
pub(crate) struct WatchedFolder {
    pub(crate) sandbox: Sandbox,
    pub(crate) files: Files,
    changes: BoxStream<'static, Change>,
    /// The keys that exist according to the reported changes.
    pub(crate) present: BTreeSet<String>,
    /// The changes since they were last taken.
    pub(crate) reported: BTreeMap<String, ReportedChanges>,
}

#[derive(Default)]
pub(crate) struct ReportedChanges {
    was_present: bool,
    pub(crate) added: bool,
    pub(crate) updated: bool,
}

impl WatchedFolder {
    pub(crate) async fn new(sandbox: Sandbox, watch: ChangeDetection) -> Self {
        Self::with(sandbox, watch, |_| ()).await
    }

    async fn with(sandbox: Sandbox, watch: ChangeDetection, change: impl FnOnce(&mut Config)) -> Self {
        fs::create_dir_all(sandbox.path("~")).unwrap();
        let files = sandbox.files_with(|config| {
            config.watch = watch;
            config.poll = Duration::from_millis(10);
            change(config);
        });
        let changes = files.watch().await.unwrap().unwrap();
        let present = listed(&files).await.into_iter().collect();
        let mut watched = Self { sandbox, files, changes, present, reported: BTreeMap::new() };
        watched.quiesce().await;
        watched
    }

    /// Waits until no more changes are reported. Polling reports a change twice if it happened just before a scan,
    /// because the file may have changed again just after it.
    pub(crate) async fn quiesce(&mut self) {
        while {
            self.settle().await;
            std::mem::take(&mut self.reported).into_keys().any(|path| !path.starts_with('~'))
        } {}
    }

    fn apply(&mut self, change: Change) {
        let (Change::Added(at) | Change::Removed(at) | Change::Updated(at) | Change::Described(at)) = &change
        else {
            panic!("{change:?}")
        };
        let path = at.as_str().strip_prefix("file:///root/").unwrap().to_owned();
        let is_present = self.present.contains(&path);
        let reported = self
            .reported
            .entry(path.clone())
            .or_insert_with(|| ReportedChanges { was_present: is_present, ..ReportedChanges::default() });
        match change {
            Change::Added(_) => {
                assert!(self.present.insert(path), "{at} was there");
                reported.added = true;
            }
            Change::Removed(_) => assert!(self.present.remove(&path), "{at} was not there"),
            Change::Updated(_) => {
                assert!(is_present, "{at} is not there");
                reported.updated = true;
            }
            _ => assert!(is_present, "{at} is not there"),
        }
    }

    /// Waits for a change.
    pub(crate) async fn wait_for(&mut self, what: &str, wanted: impl Fn(&Change) -> bool) {
        let waiting = async {
            loop {
                let change = self.changes.next().await.expect("the watch ended");
                let found = wanted(&change);
                self.apply(change);
                if found {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect(what);
    }

    /// Waits until all changes before this call are reported, and checks that they lead to what a listing shows.
    pub(crate) async fn settle(&mut self) {
        // The scan that reports its removal began after the one that reported its creation, and so after all earlier
        // changes.
        let marker = uri("file:///root/~/marker");
        self.sandbox.write("~/marker", "");
        self.wait_for("a marker", |change| *change == Change::Added(marker.clone())).await;
        fs::remove_file(self.sandbox.path("~/marker")).unwrap();
        self.wait_for("no marker", |change| *change == Change::Removed(marker.clone())).await;
        while let Some(change) = self.changes.next().now_or_never() {
            self.apply(change.expect("the watch ended"));
        }
        assert_eq!(
            self.present,
            listed(&self.files).await.into_iter().collect(),
            "the reported changes do not match the listing"
        );
    }

    /// The net changes: `+` added, `-` removed, `~` updated, `i` only described differently in a listing.
    async fn summary(&mut self) -> Vec<String> {
        self.settle().await;
        let reported = std::mem::take(&mut self.reported);
        self.quiesce().await;
        let lines = reported.into_iter().filter_map(|(path, reported)| {
            let sign = match (reported.was_present, self.present.contains(&path)) {
                (false, true) => '+',
                (true, false) => '-',
                (false, false) => return None,
                (true, true) if reported.updated || reported.added => '~',
                (true, true) => 'i',
            };
            Some(format!("{sign} {path}"))
        });
        lines.filter(|line| !line[2..].starts_with('~')).collect()
    }
}

async fn watched(files: &[&str], watch: ChangeDetection) -> WatchedFolder {
    let files: Vec<_> = files.iter().map(|path| (*path, *path)).collect();
    WatchedFolder::new(Sandbox::with(&files), watch).await
}

#[tokio::test]
async fn creating_writing_and_deleting_a_file() {
    for mode in MODES {
        let mut watched = watched(&["a/b.txt"], mode).await;
        assert_eq!(watched.summary().await, [""; 0]);
        watched.sandbox.write("a/new.txt", "one");
        assert_eq!(watched.summary().await, ["~ a/", "+ a/new.txt"]);
        watched.sandbox.write("a/new.txt", "two");
        assert_eq!(watched.summary().await, ["~ a/", "~ a/new.txt"]);
        fs::remove_file(watched.sandbox.path("a/new.txt")).unwrap();
        assert_eq!(watched.summary().await, ["~ a/", "- a/new.txt"]);
    }
}

#[tokio::test]
async fn reading_is_no_change() {
    for mode in MODES {
        let mut watched = watched(&["a/b.txt"], mode).await;
        read(&watched.files, "a/b.txt").await.unwrap();
        read(&watched.files, "a/").await.unwrap();
        fs::read(watched.sandbox.path("a/b.txt")).unwrap();
        fs::File::options().append(true).open(watched.sandbox.path("a/b.txt")).unwrap();
        assert_eq!(watched.summary().await, [""; 0]);
    }
}

#[tokio::test]
async fn saving_by_renaming_is_an_update() {
    for mode in MODES {
        let mut watched = watched(&["a.txt", "b.txt"], mode).await;
        for content in ["one", "two", "six"] {
            watched.sandbox.write(".a.txt.swp", content);
            fs::rename(watched.sandbox.path(".a.txt.swp"), watched.sandbox.path("a.txt")).unwrap();
            assert_eq!(watched.summary().await, ["~ ", "~ a.txt"]);
        }
        watched.sandbox.write("a.txt~1", "more");
        fs::rename(watched.sandbox.path("a.txt"), watched.sandbox.path("a.txt.bak")).unwrap();
        fs::rename(watched.sandbox.path("a.txt~1"), watched.sandbox.path("a.txt")).unwrap();
        fs::remove_file(watched.sandbox.path("a.txt.bak")).unwrap();
        assert_eq!(watched.summary().await, ["~ ", "~ a.txt"]);
    }
}

#[tokio::test]
async fn a_short_lived_directory_leaves_nothing() {
    for mode in MODES {
        let mut watched = watched(&["a/b.txt"], mode).await;
        watched.sandbox.write("a/c/d/e.txt", "");
        fs::remove_dir_all(watched.sandbox.path("a/c")).unwrap();
        let summary = watched.summary().await;
        assert!(summary == ["i a/"] || summary == ["~ a/"], "{summary:?}");
    }
}

#[tokio::test]
async fn moving_directories() {
    for mode in MODES {
        let mut watched = watched(&["a/b.txt"], mode).await;
        let outside = watched.sandbox.outside().join("tree");
        fs::create_dir_all(outside.join("deep/er")).unwrap();
        fs::write(outside.join("deep/er/x.txt"), "x").unwrap();
        fs::rename(&outside, watched.sandbox.path("a/tree")).unwrap();
        let added = ["~ a/", "+ a/tree/", "+ a/tree/deep/", "+ a/tree/deep/er/", "+ a/tree/deep/er/x.txt"];
        assert_eq!(watched.summary().await, added);
        watched.sandbox.write("a/tree/deep/er/x.txt", "changed");
        assert_eq!(watched.summary().await, ["~ a/tree/deep/er/", "~ a/tree/deep/er/x.txt"]);

        fs::rename(watched.sandbox.path("a/tree"), watched.sandbox.path("a/wood")).unwrap();
        let mut renamed = Vec::from(["~ a/"]);
        renamed.extend(["- a/tree/", "- a/tree/deep/", "- a/tree/deep/er/", "- a/tree/deep/er/x.txt"]);
        renamed.extend(["+ a/wood/", "+ a/wood/deep/", "+ a/wood/deep/er/", "+ a/wood/deep/er/x.txt"]);
        assert_eq!(watched.summary().await, renamed);
        watched.sandbox.write("a/wood/deep/er/x.txt", "changed again");
        assert_eq!(watched.summary().await, ["~ a/wood/deep/er/", "~ a/wood/deep/er/x.txt"]);

        fs::rename(watched.sandbox.path("a/wood"), &outside).unwrap();
        let removed = ["~ a/", "- a/wood/", "- a/wood/deep/", "- a/wood/deep/er/", "- a/wood/deep/er/x.txt"];
        assert_eq!(watched.summary().await, removed);
        fs::write(outside.join("deep/er/x.txt"), "unseen").unwrap();
        assert_eq!(watched.summary().await, [""; 0]);
    }
}

#[tokio::test]
async fn replacing_a_name() {
    for mode in MODES {
        let mut watched = watched(&["a.txt", "d/both.txt", "d/old.txt", "d/e/f.txt"], mode).await;
        fs::remove_file(watched.sandbox.path("a.txt")).unwrap();
        watched.sandbox.write("a.txt", "a.txt");
        assert_eq!(watched.summary().await, ["~ ", "~ a.txt"]);

        fs::remove_dir_all(watched.sandbox.path("d")).unwrap();
        watched.sandbox.write("d/both.txt", "d/both.txt");
        watched.sandbox.write("d/new.txt", "");
        let summary = watched.summary().await;
        let rest: Vec<_> = summary.iter().filter(|line| !matches!(line.as_str(), "~ " | "i ")).collect();
        assert_eq!(rest, ["~ d/", "~ d/both.txt", "- d/e/", "- d/e/f.txt", "+ d/new.txt", "- d/old.txt"]);
        watched.sandbox.write("d/new.txt", "it is still watched");
        assert_eq!(watched.summary().await, ["~ d/", "~ d/new.txt"]);

        fs::remove_dir_all(watched.sandbox.path("d")).unwrap();
        watched.sandbox.write("d", "a file");
        assert_eq!(watched.summary().await, ["~ ", "+ d", "- d/", "- d/both.txt", "- d/new.txt"]);
        fs::remove_file(watched.sandbox.path("d")).unwrap();
        watched.sandbox.write("d/x", "a file in a directory");
        assert_eq!(watched.summary().await, ["~ ", "- d", "+ d/", "+ d/x"]);
    }
}

#[tokio::test]
async fn creating_a_deep_tree() {
    for mode in MODES {
        let mut watched = watched(&["a/b.txt"], mode).await;
        for round in 0..20 {
            let path = format!("r{round}/a/b/c/d/e/f");
            fs::create_dir_all(watched.sandbox.path(&path)).unwrap();
            for depth in path.match_indices('/').map(|(slash, _)| &path[..slash]) {
                watched.sandbox.write(format!("{depth}/x"), "");
            }
        }
        assert_eq!(watched.summary().await.len(), 1 + 20 * 13);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn changing_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let permissions = |bits| fs::Permissions::from_mode(bits);
    for mode in MODES {
        let mut watched = watched(&["a/b.txt", "a/c/d.txt"], mode).await;
        fs::set_permissions(watched.sandbox.path("a/b.txt"), permissions(0o600)).unwrap();
        assert_eq!(watched.summary().await, ["~ a/", "~ a/b.txt"]);
        fs::set_permissions(watched.sandbox.path("a/c"), permissions(0o000)).unwrap();
        let may_read_anything = fs::read_dir(watched.sandbox.path("a/c")).is_ok();
        let hidden = watched.summary().await;
        fs::set_permissions(watched.sandbox.path("a/c"), permissions(0o700)).unwrap();
        let shown = watched.summary().await;
        if may_read_anything {
            assert_eq!((hidden.len(), shown.len()), (0, 0));
        } else {
            assert_eq!(hidden, ["~ a/", "- a/c/", "- a/c/d.txt"]);
            assert_eq!(shown, ["~ a/", "+ a/c/", "+ a/c/d.txt"]);
        }
    }
}

#[tokio::test]
async fn changing_ignore_files() {
    for mode in MODES {
        let mut watched = watched(&["a/b.log", "a/c.txt", "d/e/f.log", "d/e/g.txt", "out/x"], mode).await;
        watched.sandbox.write(".gitignore", "*.log\nout/\n");
        assert_eq!(
            watched.summary().await,
            ["~ ", "~ a/", "- a/b.log", "~ d/e/", "- d/e/f.log", "- out/", "- out/x"]
        );
        watched.sandbox.write("out/y", "unseen");
        assert_eq!(watched.summary().await, [""; 0]);
        watched.sandbox.write("d/.ignore", "!*.log\n");
        assert_eq!(watched.summary().await, ["i d/", "~ d/e/", "+ d/e/f.log"]);
        watched.sandbox.write(".gitignore", "*.log\n");
        assert_eq!(watched.summary().await, ["~ ", "+ out/", "+ out/x", "+ out/y"]);
        fs::remove_file(watched.sandbox.path("d/.ignore")).unwrap();
        assert_eq!(watched.summary().await, ["i d/", "~ d/e/", "- d/e/f.log"]);
        fs::rename(watched.sandbox.path(".gitignore"), watched.sandbox.path(".unused")).unwrap();
        assert_eq!(watched.summary().await, ["i ", "~ a/", "+ a/b.log", "~ d/e/", "+ d/e/f.log"]);
        fs::create_dir(watched.sandbox.path(".git")).unwrap();
        assert_eq!(watched.summary().await, ["i "]);
        watched.sandbox.write(".git/index.lock", "");
        assert_eq!(watched.summary().await, [""; 0]);
        watched.sandbox.write(".git/info/exclude", "*.txt\n");
        assert_eq!(watched.summary().await, ["~ a/", "- a/c.txt", "~ d/e/", "- d/e/g.txt"]);
        watched.sandbox.write(".git/info/exclude", "");
        assert_eq!(watched.summary().await, ["~ a/", "+ a/c.txt", "~ d/e/", "+ d/e/g.txt"]);
    }
}

#[tokio::test]
async fn removing_and_restoring_the_root() {
    for mode in MODES {
        let mut watched = watched(&["a/b.txt"], mode).await;
        let root = uri("file:///root/");
        let away = watched.sandbox.outside().join("away");
        fs::rename(watched.sandbox.path(""), &away).unwrap();
        watched.wait_for("gone", |change| *change == Change::Removed(root.clone())).await;
        while !watched.present.is_empty() {
            watched.wait_for("all of it gone", |_| true).await;
        }
        fs::write(away.join("a/b.txt"), "elsewhere").unwrap();
        fs::rename(&away, watched.sandbox.path("")).unwrap();
        watched.wait_for("back", |change| *change == Change::Added(root.clone())).await;
        watched.quiesce().await;
        watched.sandbox.write("a/b.txt", "back");
        assert_eq!(watched.summary().await, ["~ a/", "~ a/b.txt"]);

        fs::remove_dir_all(watched.sandbox.path("")).unwrap();
        watched.wait_for("gone", |change| *change == Change::Removed(root.clone())).await;
        while !watched.present.is_empty() {
            watched.wait_for("all of it gone", |_| true).await;
        }
        watched.sandbox.write("new/file.txt", "");
        fs::create_dir_all(watched.sandbox.path("~")).unwrap();
        watched.wait_for("back", |change| *change == Change::Added(root.clone())).await;
        watched.quiesce().await;
        watched.sandbox.write("new/file.txt", "written");
        assert_eq!(watched.summary().await, ["~ new/", "~ new/file.txt"]);

        // In one step: the content is compared, rather than reported as removed and added.
        fs::rename(watched.sandbox.path(""), &away).unwrap();
        watched.sandbox.write("new/other.txt", "");
        fs::create_dir_all(watched.sandbox.path("~")).unwrap();
        let other = uri("file:///root/new/other.txt");
        watched.wait_for("another root", |change| *change == Change::Added(other.clone())).await;
        watched.settle().await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn changes_behind_symlinks_are_reported() {
    for mode in MODES {
        let sandbox = Sandbox::with(&[("shown/file.txt", "one"), ("shown/dir/x", "x"), ("a", "")]);
        std::os::unix::fs::symlink("shown/file.txt", sandbox.path("link.txt")).unwrap();
        std::os::unix::fs::symlink("shown/dir", sandbox.path("one")).unwrap();
        std::os::unix::fs::symlink("shown/dir", sandbox.path("two")).unwrap();
        let mut watched = WatchedFolder::with(sandbox, mode, |config| config.symlinks = true).await;
        watched.sandbox.write("shown/dir/y", "y");
        while !["one/y", "two/y"].iter().all(|path| watched.present.contains(*path)) {
            watched.wait_for("one/y and two/y", |change| matches!(change, Change::Added(_))).await;
        }
        watched.sandbox.write("shown/file.txt", "changed");
        let link = uri("file:///root/link.txt");
        watched.wait_for("the link", |change| *change == Change::Updated(link.clone())).await;
        watched.settle().await;
    }
}

#[tokio::test]
async fn ranges_and_slashes_have_one_subject() {
    let files = Sandbox::with(&[("a/b.txt", "")]).files();
    let subject = |text| files.subject(&uri(text)).to_string();
    assert_eq!(subject("file:///root/a/b.txt?lines=1-2"), "file:///root/a/b.txt");
    assert_eq!(subject("file:///root/a/b.txt"), "file:///root/a/b.txt");
    assert_eq!(subject("file:///root/a/"), "file:///root/a");
    assert_eq!(subject("file:///root/a"), "file:///root/a");
    assert_eq!(subject("file:///root/"), "file:///root");
    assert_eq!(subject("file:///root"), "file:///root");
}

/// The number of these directories that watchers of this process watch.
#[cfg(target_os = "linux")]
fn watches(directories: &[std::path::PathBuf]) -> usize {
    use std::os::unix::fs::MetadataExt;
    const IN_CLOSE_WRITE: u32 = 0x8;
    let wanted: BTreeSet<String> =
        directories.iter().map(|path| format!(" ino:{:x} ", fs::metadata(path).unwrap().ino())).collect();
    let lines: Vec<String> = fs::read_dir("/proc/self/fdinfo")
        .unwrap()
        .filter_map(|info| fs::read_to_string(info.unwrap().path()).ok())
        .flat_map(|info| info.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    // The watches for proofs do not ask for `CLOSE_WRITE`.
    let is_of_a_watcher = |line: &str| {
        let mask = line.split_once("mask:").and_then(|(_, rest)| rest.split(' ').next());
        mask.is_some_and(|mask| u32::from_str_radix(mask, 16).unwrap() & IN_CLOSE_WRITE != 0)
    };
    let found = lines.iter().filter(|line| line.starts_with("inotify") && is_of_a_watcher(line));
    found.filter(|line| wanted.iter().any(|ino| line.contains(ino))).count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn only_visible_directories_are_watched_and_only_while_subscribed() {
    let sandbox = Sandbox::with(&[
        (".gitignore", "target/"),
        ("target/debug/x", ""),
        (".hidden/x", ""),
        ("a/b/x", ""),
        ("excluded/x", ""),
    ]);
    let exclude = |config: &mut Config| config.exclude = vec!["excluded/".into()];
    let mut watched = WatchedFolder::with(sandbox, ChangeDetection::Auto, exclude).await;
    let paths = |names: &[&str]| names.iter().map(|name| watched.sandbox.path(name)).collect::<Vec<_>>();
    let shown = paths(&["", "a", "a/b"]);
    let hidden = paths(&["target", "target/debug", ".hidden", "excluded"]);
    assert_eq!((watches(&shown), watches(&hidden)), (3, 0));
    watched.sandbox.write("target/debug/y", "");
    watched.sandbox.write(".gitignore", "target/\nb/\n");
    assert_eq!(watched.summary().await, ["~ a/", "- a/b/", "- a/b/x"]);
    assert_eq!((watches(&shown), watches(&hidden)), (2, 0));
    drop(watched.changes);
    let stopped = async {
        while watches(&shown) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), stopped).await.expect("the watches were not removed");
}

/// With `include`, the listing of a folder shows a child only while there is a file below it.
#[tokio::test]
async fn the_listings_above_change_with_the_first_and_last_included_file() {
    for mode in MODES {
        let sandbox = Sandbox::with(&[("a/b/c/x.txt", ""), ("z.md", "")]);
        let files = sandbox.files_with(|config| {
            config.watch = mode;
            config.poll = Duration::from_millis(10);
            config.include = vec!["*.md".into()];
        });
        let mut changes = files.watch().await.unwrap().unwrap();
        let change = |first: bool| {
            let path = sandbox.path("a/b/c/x.md");
            if first { fs::write(path, "").unwrap() } else { fs::remove_file(path).unwrap() }
        };
        for first in [true, false] {
            change(first);
            let mut expected: BTreeSet<_> = ["", "a/", "a/b/", "a/b/c/"].into();
            let waiting = async {
                while !expected.is_empty() {
                    if let Change::Updated(uri) = changes.next().await.unwrap() {
                        expected.remove(uri.as_str().strip_prefix("file:///root/").unwrap());
                    }
                }
            };
            tokio::time::timeout(Duration::from_secs(20), waiting)
                .await
                .expect("updates of all folders above");
        }
    }
}
