//! A failing system call fails the request: it exposes no hidden file and does not look like absence.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

use libris_core::{Change, CompletionRequest, Context, Error, Result, Source, Uri};
use libris_sources::Files;
use libris_sources::files::{ChangeDetection, Config};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::sandbox::{Sandbox, is_not_found, listed, read, uri};
use super::watch::{MODES, WatchedFolder};

/// The environment variable that marks the child process in which a test exhausts the file descriptors.
const CHILD: &str = "LIBRIS_TEST_DESCRIPTORS";

/// The soft limit on file descriptors in that process.
const DESCRIPTORS: u64 = 128;

/// Runs the test of this name again in a child process, so that its resource limits affect no other test. Returns
/// whether this is the child process.
fn is_child(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        let limit = Rlimit { current: Some(DESCRIPTORS), ..getrlimit(Resource::Nofile) };
        setrlimit(Resource::Nofile, limit).unwrap();
        return true;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
    false
}

/// Holds all file descriptors of the process but `free`, until it is dropped.
struct HeldDescriptors(#[expect(dead_code, reason = "dropping it closes them")] Vec<File>);

impl HeldDescriptors {
    fn all_but(free: usize) -> Self {
        let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        assert!(taken.len() > free);
        taken.truncate(taken.len() - free);
        Self(taken)
    }
}

fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work);
}

async fn completed(files: &Files, typed: &str) -> Result<Vec<String>> {
    let templates = files.templates(&Context::default()).await.unwrap().templates;
    let known = BTreeMap::new();
    let asked =
        CompletionRequest { template: &templates[0].uri, variable: "path", typed, known: &known, limit: 100 };
    Ok(files.complete(asked, &Context::default()).await?.values)
}

/// The keys of the resources of a page.
async fn names(page: Result<libris_core::Page>) -> Result<Vec<String>> {
    let name = |resource: libris_core::Resource| resource.uri.as_str()["file:///root/".len()..].to_owned();
    Ok(page?.resources.into_iter().map(name).collect())
}

fn is_failure(error: &Error) -> bool {
    matches!(error, Error::Failed { .. } | Error::Unavailable(_))
}

#[test]
fn ignored_files_stay_hidden_without_file_descriptors() {
    if !is_child("failures::ignored_files_stay_hidden_without_file_descriptors") {
        return;
    }
    let sandbox = Sandbox::with(&[
        (".gitignore", "secret\n"),
        (".git/info/exclude", "excluded\n"),
        ("excluded", "x"),
        ("secret", "x"),
        ("sub/.ignore", "hidden\n"),
        ("sub/hidden", "x"),
        ("sub/secret", "x"),
        ("sub/shown", "x"),
    ]);
    let shown = ["", "sub/", "sub/shown"];
    run(async {
        // Threads and the inotify instance of the process get their descriptors before these run out.
        assert_eq!(listed(&sandbox.files()).await, shown);
        for watch in MODES {
            let files = sandbox.files_with(|config| config.watch = watch);
            for free in 0..16 {
                // Written again so that the rules are read again.
                for rules in [".gitignore", "sub/.ignore", ".git/info/exclude"] {
                    sandbox.write(rules, fs::read(sandbox.path(rules)).unwrap());
                }
                let descriptors = HeldDescriptors::all_but(free);
                match names(files.list(None, 100, &Context::default()).await).await {
                    Ok(listed) => assert_eq!(listed, shown, "{free} descriptors"),
                    Err(error) => assert!(is_failure(&error), "{free} descriptors: {error:?}"),
                }
                drop(descriptors);
                // No failure may be cached.
                assert_eq!(listed(&files).await, shown, "after {free} descriptors");
                for path in ["secret", "excluded", "sub/secret", "sub/hidden"] {
                    let read = read(&files, path).await;
                    assert!(is_not_found(&read), "after {free}: {path}: {read:?}");
                }
            }
        }
    });
}

#[test]
fn a_lack_of_file_descriptors_is_an_error_and_not_absence() {
    if !is_child("failures::a_lack_of_file_descriptors_is_an_error_and_not_absence") {
        return;
    }
    let sandbox = Sandbox::with(&[
        ("a/deep/file.md", "---\ntitle: A title\n---\n"),
        ("a/page", "<!doctype html><p>"),
        ("a/file.md", "---\ntitle: A title\n---\n"),
    ]);
    symlink("deep", sandbox.path("a/link")).unwrap();
    run(async {
        assert_eq!(listed(&sandbox.files()).await.len(), 6);
        for follow in [false, true] {
            for free in 0..16 {
                let files = sandbox.files_with(|config| config.symlinks = follow);
                let described = async || {
                    let page = files.list(None, 100, &Context::default()).await?;
                    let line =
                        |it: &libris_core::Resource| format!("{} {:?} {:?}", it.uri, it.title, it.mime);
                    Ok::<_, Error>(page.resources.iter().map(line).collect::<Vec<_>>())
                };
                let children = async || {
                    names(files.children(&uri("file:///root/a"), None, 100, &Context::default()).await).await
                };
                let parts = async || {
                    let read = files.read(&uri("file:///root/a/"), &Context::default()).await?;
                    Ok::<_, Error>(read.parts.iter().map(|part| part.uri.to_string()).collect::<Vec<_>>())
                };
                let complete = async || completed(&files, "a/").await;
                let failing = {
                    let _descriptors = HeldDescriptors::all_but(free);
                    [described().await, children().await, parts().await, complete().await]
                };
                let right = [described().await, children().await, parts().await, complete().await];
                for (at, (failing, right)) in failing.into_iter().zip(right).enumerate() {
                    match failing {
                        Ok(failing) => assert_eq!(failing, right.unwrap(), "{free} descriptors, answer {at}"),
                        Err(error) => assert!(is_failure(&error), "{free} descriptors: {error:?}"),
                    }
                }
            }
        }
    });
}

/// Puts something at the path of an ignore file that cannot be read as one.
type MakeUnreadable = fn(&Sandbox, &str);

const UNREADABLE: [(&str, MakeUnreadable); 7] = [
    ("directory", |sandbox, path| fs::create_dir_all(sandbox.path(path)).unwrap()),
    ("pipe", |sandbox, path| {
        mknodat(CWD, sandbox.path(path), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }),
    ("socket", |sandbox, path| drop(UnixListener::bind(sandbox.path(path)).unwrap())),
    ("link", |sandbox, path| {
        fs::write(sandbox.outside().join("rules"), "secret\n").unwrap();
        symlink(sandbox.outside().join("rules"), sandbox.path(path)).unwrap();
    }),
    ("dangling", |sandbox, path| symlink("nowhere", sandbox.path(path)).unwrap()),
    ("large", |sandbox, path| sandbox.write(path, "#".repeat(1024 * 1024) + "\nsecret\n")),
    ("patterns", |sandbox, path| sandbox.write(path, "x\n".repeat(5_000) + "secret\n")),
];

#[tokio::test]
async fn an_unreadable_ignore_file_hides_its_directory() {
    for rules in [".gitignore", ".ignore"] {
        let sandbox = Sandbox::with(&[("ok/.gitignore", "# caf\n*.log\n"), ("ok/shown", "x")]);
        // Any encoding and incomplete patterns are fine, as in git.
        sandbox.write("ok/.ignore", b"# \xe9\nsecr\xe9t\n[z-a]\n[a\n[[:x:]]\nx.log\n");
        for (name, make_unreadable) in UNREADABLE {
            sandbox.write(format!("{name}/deep/secret"), "x");
            sandbox.write(format!("{name}/secret"), "x");
            make_unreadable(&sandbox, &format!("{name}/{rules}"));
        }
        for watch in MODES {
            let files = sandbox.files_with(|config| config.watch = watch);
            for _ in 0..2 {
                assert_eq!(listed(&files).await, ["", "ok/", "ok/shown"]);
                assert_eq!(
                    names(files.children(files.root(), None, 100, &Context::default()).await).await.unwrap(),
                    ["ok/"]
                );
                assert_eq!(completed(&files, "").await.unwrap(), ["ok/"]);
                for (name, _) in UNREADABLE {
                    for path in ["", "secret", "deep/", "deep/secret"] {
                        let path = format!("{name}/{path}");
                        let read = read(&files, &path).await;
                        assert!(is_not_found(&read), "{path}: {read:?}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn an_unreadable_ignore_file_makes_the_root_unavailable() {
    for rules in [".gitignore", ".ignore", ".git/info/exclude"] {
        for (name, make_unreadable) in UNREADABLE {
            let sandbox = Sandbox::with(&[("secret", "x"), ("shown", "x"), (".git/info/other", "")]);
            let files = sandbox.files();
            assert_eq!(listed(&files).await, ["", "secret", "shown"]);
            make_unreadable(&sandbox, rules);
            let listed_now = files.list(None, 10, &Context::default()).await;
            assert!(matches!(listed_now, Err(Error::Unavailable(_))), "{rules} {name}: {listed_now:?}");
            let read_now = read(&files, "shown").await;
            assert!(matches!(read_now, Err(Error::Unavailable(_))), "{rules} {name}: {read_now:?}");
            let opened = Files::open(Config::new(sandbox.path("")));
            assert!(matches!(opened.err(), Some(Error::Unavailable(_))), "{rules} {name}");
            let path = sandbox.path(rules);
            fs::remove_dir(&path).or_else(|_| fs::remove_file(&path)).unwrap();
            sandbox.write(rules, "secret\n");
            assert_eq!(listed(&files).await, ["", "shown"]);
        }
    }
}

#[tokio::test]
async fn excludes_of_a_repository_elsewhere_do_not_apply() {
    // In a worktree `.git` is a file, and some tools make it a symbolic link.
    let file: MakeUnreadable = |sandbox, path| sandbox.write(path, "gitdir: elsewhere\n");
    let link: MakeUnreadable = |sandbox, path| symlink("elsewhere", sandbox.path(path)).unwrap();
    for make_unreadable in [file, link] {
        let sandbox = Sandbox::with(&[("shown", "x")]);
        make_unreadable(&sandbox, ".git");
        assert_eq!(listed(&sandbox.files()).await, ["", "shown"]);
    }
}

#[tokio::test]
async fn an_ignore_file_that_becomes_readable_again_is_noticed() {
    for watch in [ChangeDetection::Auto, ChangeDetection::Poll] {
        let sandbox =
            Sandbox::with(&[("sub/.gitignore", "secret\n"), ("sub/secret", "x"), ("sub/shown", "x")]);
        let mut watched = WatchedFolder::new(sandbox, watch).await;
        let shown = |uri: &Uri| uri.as_str() == "file:///root/sub/shown";
        fs::remove_file(watched.sandbox.path("sub/.gitignore")).unwrap();
        fs::create_dir(watched.sandbox.path("sub/.gitignore")).unwrap();
        watched.wait_for("it goes", |change| matches!(change, Change::Removed(uri) if shown(uri))).await;
        fs::remove_dir(watched.sandbox.path("sub/.gitignore")).unwrap();
        watched.sandbox.write("sub/.gitignore", "secret\n");
        watched.wait_for("it comes back", |change| matches!(change, Change::Added(uri) if shown(uri))).await;
        assert_eq!(listed(&watched.files).await, ["", "sub/", "sub/shown", "~/"]);
    }
}
