//! What is told of changes, by events and by polling alike.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use libris_core::{Change, Source};
use libris_sources::Files;
use libris_sources::files::{Config, Watching};

use crate::sandbox::{Sandbox, listed, read, uri};

/// Both ways of noticing changes.
pub(crate) const WAYS: [Watching; 2] = [Watching::Auto, Watching::Poll];

/// A folder that is watched, and what was told of it.
pub(crate) struct Watched {
    pub(crate) sandbox: Sandbox,
    pub(crate) files: Files,
    changes: BoxStream<'static, Change>,
    /// What is there, by what was told.
    pub(crate) there: BTreeSet<String>,
    /// What was told since the last time somebody asked.
    pub(crate) told: BTreeMap<String, Told>,
}

#[derive(Default)]
pub(crate) struct Told {
    was_there: bool,
    pub(crate) added: bool,
    pub(crate) updated: bool,
}

impl Watched {
    pub(crate) async fn new(sandbox: Sandbox, watch: Watching) -> Self {
        Self::with(sandbox, watch, |_| ()).await
    }

    async fn with(sandbox: Sandbox, watch: Watching, change: impl FnOnce(&mut Config)) -> Self {
        fs::create_dir_all(sandbox.path("~")).unwrap();
        let files = sandbox.files_with(|config| {
            config.watch = watch;
            config.poll = Duration::from_millis(10);
            change(config);
        });
        let changes = files.watch().await.unwrap().unwrap();
        let there = listed(&files).await.into_iter().collect();
        let mut watched = Self { sandbox, files, changes, there, told: BTreeMap::new() };
        watched.calm().await;
        watched
    }

    /// Waits until nothing more is told. Polling tells twice of what changed just before a look, because
    /// it may have changed again just after.
    pub(crate) async fn calm(&mut self) {
        while {
            self.settle().await;
            std::mem::take(&mut self.told).into_keys().any(|path| !path.starts_with('~'))
        } {}
    }

    fn apply(&mut self, change: Change) {
        let (Change::Added(at) | Change::Removed(at) | Change::Updated(at) | Change::Described(at)) = &change
        else {
            panic!("{change:?}")
        };
        let path = at.as_str().strip_prefix("file:///root/").unwrap().to_owned();
        let is_there = self.there.contains(&path);
        let told =
            self.told.entry(path.clone()).or_insert_with(|| Told { was_there: is_there, ..Told::default() });
        match change {
            Change::Added(_) => {
                assert!(self.there.insert(path), "{at} was there");
                told.added = true;
            }
            Change::Removed(_) => assert!(self.there.remove(&path), "{at} was not there"),
            Change::Updated(_) => {
                assert!(is_there, "{at} is not there");
                told.updated = true;
            }
            _ => assert!(is_there, "{at} is not there"),
        }
    }

    /// Waits until this is told.
    pub(crate) async fn until(&mut self, what: &str, wanted: impl Fn(&Change) -> bool) {
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

    /// Waits until everything of before is told.
    pub(crate) async fn settle(&mut self) {
        // The look that sees it gone began after that which saw it come, and so after all before it.
        let marker = uri("file:///root/~/marker");
        self.sandbox.write("~/marker", "");
        self.until("a marker", |change| *change == Change::Added(marker.clone())).await;
        fs::remove_file(self.sandbox.path("~/marker")).unwrap();
        self.until("no marker", |change| *change == Change::Removed(marker.clone())).await;
        while let Some(change) = self.changes.next().now_or_never() {
            self.apply(change.expect("the watch ended"));
        }
        assert_eq!(self.there, listed(&self.files).await.into_iter().collect(), "what was told is not so");
    }

    /// What was told in the end: `+` what came, `-` what went, `~` what reads otherwise, `i` what is only
    /// listed otherwise.
    async fn news(&mut self) -> Vec<String> {
        self.settle().await;
        let told = std::mem::take(&mut self.told);
        self.calm().await;
        let news = told.into_iter().filter_map(|(path, told)| {
            let sign = match (told.was_there, self.there.contains(&path)) {
                (false, true) => '+',
                (true, false) => '-',
                (false, false) => return None,
                (true, true) if told.updated || told.added => '~',
                (true, true) => 'i',
            };
            Some(format!("{sign} {path}"))
        });
        news.filter(|news| !news[2..].starts_with('~')).collect()
    }
}

async fn watched(files: &[&str], watch: Watching) -> Watched {
    let files: Vec<_> = files.iter().map(|path| (*path, *path)).collect();
    Watched::new(Sandbox::with(&files), watch).await
}

#[tokio::test]
async fn a_file_is_made_written_and_deleted() {
    for way in WAYS {
        let mut watched = watched(&["a/b.txt"], way).await;
        assert_eq!(watched.news().await, [""; 0]);
        watched.sandbox.write("a/new.txt", "one");
        assert_eq!(watched.news().await, ["~ a/", "+ a/new.txt"]);
        watched.sandbox.write("a/new.txt", "two");
        assert_eq!(watched.news().await, ["~ a/", "~ a/new.txt"]);
        fs::remove_file(watched.sandbox.path("a/new.txt")).unwrap();
        assert_eq!(watched.news().await, ["~ a/", "- a/new.txt"]);
    }
}

#[tokio::test]
async fn reading_and_looking_is_no_change() {
    for way in WAYS {
        let mut watched = watched(&["a/b.txt"], way).await;
        read(&watched.files, "a/b.txt").await.unwrap();
        read(&watched.files, "a/").await.unwrap();
        fs::read(watched.sandbox.path("a/b.txt")).unwrap();
        fs::File::options().append(true).open(watched.sandbox.path("a/b.txt")).unwrap();
        assert_eq!(watched.news().await, [""; 0]);
    }
}

#[tokio::test]
async fn an_editor_saves_by_renaming() {
    for way in WAYS {
        let mut watched = watched(&["a.txt", "b.txt"], way).await;
        for content in ["one", "two", "six"] {
            watched.sandbox.write(".a.txt.swp", content);
            fs::rename(watched.sandbox.path(".a.txt.swp"), watched.sandbox.path("a.txt")).unwrap();
            assert_eq!(watched.news().await, ["~ ", "~ a.txt"]);
        }
        watched.sandbox.write("a.txt~1", "more");
        fs::rename(watched.sandbox.path("a.txt"), watched.sandbox.path("a.txt.bak")).unwrap();
        fs::rename(watched.sandbox.path("a.txt~1"), watched.sandbox.path("a.txt")).unwrap();
        fs::remove_file(watched.sandbox.path("a.txt.bak")).unwrap();
        assert_eq!(watched.news().await, ["~ ", "~ a.txt"]);
    }
}

#[tokio::test]
async fn what_comes_and_goes_is_not_lasting() {
    for way in WAYS {
        let mut watched = watched(&["a/b.txt"], way).await;
        watched.sandbox.write("a/c/d/e.txt", "");
        fs::remove_dir_all(watched.sandbox.path("a/c")).unwrap();
        let news = watched.news().await;
        assert!(news == ["i a/"] || news == ["~ a/"], "{news:?}");
    }
}

#[tokio::test]
async fn directories_are_moved() {
    for way in WAYS {
        let mut watched = watched(&["a/b.txt"], way).await;
        let outside = watched.sandbox.outside().join("tree");
        fs::create_dir_all(outside.join("deep/er")).unwrap();
        fs::write(outside.join("deep/er/x.txt"), "x").unwrap();
        fs::rename(&outside, watched.sandbox.path("a/tree")).unwrap();
        let added = ["~ a/", "+ a/tree/", "+ a/tree/deep/", "+ a/tree/deep/er/", "+ a/tree/deep/er/x.txt"];
        assert_eq!(watched.news().await, added);
        watched.sandbox.write("a/tree/deep/er/x.txt", "changed");
        assert_eq!(watched.news().await, ["~ a/tree/deep/er/", "~ a/tree/deep/er/x.txt"]);

        fs::rename(watched.sandbox.path("a/tree"), watched.sandbox.path("a/wood")).unwrap();
        let mut renamed = Vec::from(["~ a/"]);
        renamed.extend(["- a/tree/", "- a/tree/deep/", "- a/tree/deep/er/", "- a/tree/deep/er/x.txt"]);
        renamed.extend(["+ a/wood/", "+ a/wood/deep/", "+ a/wood/deep/er/", "+ a/wood/deep/er/x.txt"]);
        assert_eq!(watched.news().await, renamed);
        watched.sandbox.write("a/wood/deep/er/x.txt", "changed again");
        assert_eq!(watched.news().await, ["~ a/wood/deep/er/", "~ a/wood/deep/er/x.txt"]);

        fs::rename(watched.sandbox.path("a/wood"), &outside).unwrap();
        let removed = ["~ a/", "- a/wood/", "- a/wood/deep/", "- a/wood/deep/er/", "- a/wood/deep/er/x.txt"];
        assert_eq!(watched.news().await, removed);
        fs::write(outside.join("deep/er/x.txt"), "unseen").unwrap();
        assert_eq!(watched.news().await, [""; 0]);
    }
}

#[tokio::test]
async fn something_else_takes_a_name() {
    for way in WAYS {
        let mut watched = watched(&["a.txt", "d/both.txt", "d/old.txt", "d/e/f.txt"], way).await;
        fs::remove_file(watched.sandbox.path("a.txt")).unwrap();
        watched.sandbox.write("a.txt", "a.txt");
        assert_eq!(watched.news().await, ["~ ", "~ a.txt"]);

        fs::remove_dir_all(watched.sandbox.path("d")).unwrap();
        watched.sandbox.write("d/both.txt", "d/both.txt");
        watched.sandbox.write("d/new.txt", "");
        let news = watched.news().await;
        let rest: Vec<_> = news.iter().filter(|news| !matches!(news.as_str(), "~ " | "i ")).collect();
        assert_eq!(rest, ["~ d/", "~ d/both.txt", "- d/e/", "- d/e/f.txt", "+ d/new.txt", "- d/old.txt"]);
        watched.sandbox.write("d/new.txt", "it is still watched");
        assert_eq!(watched.news().await, ["~ d/", "~ d/new.txt"]);

        fs::remove_dir_all(watched.sandbox.path("d")).unwrap();
        watched.sandbox.write("d", "a file");
        assert_eq!(watched.news().await, ["~ ", "+ d", "- d/", "- d/both.txt", "- d/new.txt"]);
        fs::remove_file(watched.sandbox.path("d")).unwrap();
        watched.sandbox.write("d/x", "a file in a directory");
        assert_eq!(watched.news().await, ["~ ", "- d", "+ d/", "+ d/x"]);
    }
}

#[tokio::test]
async fn a_deep_tree_comes_at_once() {
    for way in WAYS {
        let mut watched = watched(&["a/b.txt"], way).await;
        for round in 0..20 {
            let path = format!("r{round}/a/b/c/d/e/f");
            fs::create_dir_all(watched.sandbox.path(&path)).unwrap();
            for depth in path.match_indices('/').map(|(slash, _)| &path[..slash]) {
                watched.sandbox.write(format!("{depth}/x"), "");
            }
        }
        assert_eq!(watched.news().await.len(), 1 + 20 * 13);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn permissions_change() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |mode| fs::Permissions::from_mode(mode);
    for way in WAYS {
        let mut watched = watched(&["a/b.txt", "a/c/d.txt"], way).await;
        fs::set_permissions(watched.sandbox.path("a/b.txt"), mode(0o600)).unwrap();
        assert_eq!(watched.news().await, ["~ a/", "~ a/b.txt"]);
        fs::set_permissions(watched.sandbox.path("a/c"), mode(0o000)).unwrap();
        let may_read_anything = fs::read_dir(watched.sandbox.path("a/c")).is_ok();
        let hidden = watched.news().await;
        fs::set_permissions(watched.sandbox.path("a/c"), mode(0o700)).unwrap();
        let shown = watched.news().await;
        if may_read_anything {
            assert_eq!((hidden.len(), shown.len()), (0, 0));
        } else {
            assert_eq!(hidden, ["~ a/", "- a/c/", "- a/c/d.txt"]);
            assert_eq!(shown, ["~ a/", "+ a/c/", "+ a/c/d.txt"]);
        }
    }
}

#[tokio::test]
async fn ignore_files_change() {
    for way in WAYS {
        let mut watched = watched(&["a/b.log", "a/c.txt", "d/e/f.log", "d/e/g.txt", "out/x"], way).await;
        watched.sandbox.write(".gitignore", "*.log\nout/\n");
        assert_eq!(
            watched.news().await,
            ["~ ", "~ a/", "- a/b.log", "~ d/e/", "- d/e/f.log", "- out/", "- out/x"]
        );
        watched.sandbox.write("out/y", "unseen");
        assert_eq!(watched.news().await, [""; 0]);
        watched.sandbox.write("d/.ignore", "!*.log\n");
        assert_eq!(watched.news().await, ["i d/", "~ d/e/", "+ d/e/f.log"]);
        watched.sandbox.write(".gitignore", "*.log\n");
        assert_eq!(watched.news().await, ["~ ", "+ out/", "+ out/x", "+ out/y"]);
        fs::remove_file(watched.sandbox.path("d/.ignore")).unwrap();
        assert_eq!(watched.news().await, ["i d/", "~ d/e/", "- d/e/f.log"]);
        fs::rename(watched.sandbox.path(".gitignore"), watched.sandbox.path(".unused")).unwrap();
        assert_eq!(watched.news().await, ["i ", "~ a/", "+ a/b.log", "~ d/e/", "+ d/e/f.log"]);
        fs::create_dir(watched.sandbox.path(".git")).unwrap();
        assert_eq!(watched.news().await, ["i "]);
        watched.sandbox.write(".git/index.lock", "");
        assert_eq!(watched.news().await, [""; 0]);
        watched.sandbox.write(".git/info/exclude", "*.txt\n");
        assert_eq!(watched.news().await, ["~ a/", "- a/c.txt", "~ d/e/", "- d/e/g.txt"]);
        watched.sandbox.write(".git/info/exclude", "");
        assert_eq!(watched.news().await, ["~ a/", "+ a/c.txt", "~ d/e/", "+ d/e/g.txt"]);
    }
}

#[tokio::test]
async fn the_root_goes_and_comes_back() {
    for way in WAYS {
        let mut watched = watched(&["a/b.txt"], way).await;
        let root = uri("file:///root/");
        let away = watched.sandbox.outside().join("away");
        fs::rename(watched.sandbox.path(""), &away).unwrap();
        watched.until("gone", |change| *change == Change::Removed(root.clone())).await;
        while !watched.there.is_empty() {
            watched.until("all of it gone", |_| true).await;
        }
        fs::write(away.join("a/b.txt"), "elsewhere").unwrap();
        fs::rename(&away, watched.sandbox.path("")).unwrap();
        watched.until("back", |change| *change == Change::Added(root.clone())).await;
        watched.calm().await;
        watched.sandbox.write("a/b.txt", "back");
        assert_eq!(watched.news().await, ["~ a/", "~ a/b.txt"]);

        fs::remove_dir_all(watched.sandbox.path("")).unwrap();
        watched.until("gone", |change| *change == Change::Removed(root.clone())).await;
        while !watched.there.is_empty() {
            watched.until("all of it gone", |_| true).await;
        }
        watched.sandbox.write("new/file.txt", "");
        fs::create_dir_all(watched.sandbox.path("~")).unwrap();
        watched.until("back", |change| *change == Change::Added(root.clone())).await;
        watched.calm().await;
        watched.sandbox.write("new/file.txt", "written");
        assert_eq!(watched.news().await, ["~ new/", "~ new/file.txt"]);

        // At once: what is in it is compared, not told as gone and come.
        fs::rename(watched.sandbox.path(""), &away).unwrap();
        watched.sandbox.write("new/other.txt", "");
        fs::create_dir_all(watched.sandbox.path("~")).unwrap();
        let other = uri("file:///root/new/other.txt");
        watched.until("another root", |change| *change == Change::Added(other.clone())).await;
        watched.settle().await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn links_are_followed() {
    for way in WAYS {
        let sandbox = Sandbox::with(&[("shown/file.txt", "one"), ("shown/dir/x", "x"), ("a", "")]);
        std::os::unix::fs::symlink("shown/file.txt", sandbox.path("link.txt")).unwrap();
        std::os::unix::fs::symlink("shown/dir", sandbox.path("one")).unwrap();
        std::os::unix::fs::symlink("shown/dir", sandbox.path("two")).unwrap();
        let mut watched = Watched::with(sandbox, way, |config| config.symlinks = true).await;
        watched.sandbox.write("shown/dir/y", "y");
        while !["one/y", "two/y"].iter().all(|path| watched.there.contains(*path)) {
            watched.until("one/y and two/y", |change| matches!(change, Change::Added(_))).await;
        }
        watched.sandbox.write("shown/file.txt", "changed");
        let link = uri("file:///root/link.txt");
        watched.until("the link", |change| *change == Change::Updated(link.clone())).await;
        watched.settle().await;
    }
}

#[tokio::test]
async fn parts_and_slashes_have_one_subject() {
    let files = Sandbox::with(&[("a/b.txt", "")]).files();
    let subject = |text| files.subject(&uri(text)).to_string();
    assert_eq!(subject("file:///root/a/b.txt?lines=1-2"), "file:///root/a/b.txt");
    assert_eq!(subject("file:///root/a/b.txt"), "file:///root/a/b.txt");
    assert_eq!(subject("file:///root/a/"), "file:///root/a");
    assert_eq!(subject("file:///root/a"), "file:///root/a");
    assert_eq!(subject("file:///root/"), "file:///root");
    assert_eq!(subject("file:///root"), "file:///root");
}

/// How many of these directories this process watches for somebody who listens.
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
    // Those that prove that answers are still right do not ask when a file is closed.
    let is_for_listening = |line: &str| {
        let mask = line.split_once("mask:").and_then(|(_, rest)| rest.split(' ').next());
        mask.is_some_and(|mask| u32::from_str_radix(mask, 16).unwrap() & IN_CLOSE_WRITE != 0)
    };
    let found = lines.iter().filter(|line| line.starts_with("inotify") && is_for_listening(line));
    found.filter(|line| wanted.iter().any(|ino| line.contains(ino))).count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn only_what_is_shown_is_watched_and_only_while_somebody_listens() {
    let sandbox = Sandbox::with(&[
        (".gitignore", "target/"),
        ("target/debug/x", ""),
        (".hidden/x", ""),
        ("a/b/x", ""),
        ("excluded/x", ""),
    ]);
    let exclude = |config: &mut Config| config.exclude = vec!["excluded/".into()];
    let mut watched = Watched::with(sandbox, Watching::Auto, exclude).await;
    let paths = |names: &[&str]| names.iter().map(|name| watched.sandbox.path(name)).collect::<Vec<_>>();
    let shown = paths(&["", "a", "a/b"]);
    let hidden = paths(&["target", "target/debug", ".hidden", "excluded"]);
    assert_eq!((watches(&shown), watches(&hidden)), (3, 0));
    watched.sandbox.write("target/debug/y", "");
    watched.sandbox.write(".gitignore", "target/\nb/\n");
    assert_eq!(watched.news().await, ["~ a/", "- a/b/", "- a/b/x"]);
    assert_eq!((watches(&shown), watches(&hidden)), (2, 0));
    drop(watched.changes);
    let stopped = async {
        while watches(&shown) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), stopped).await.expect("the watches are still there");
}
