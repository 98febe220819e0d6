//! A failing system call is an error of the request: it never shows what is hidden, and never passes for
//! "nothing is there".

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

use libris_core::{Change, Context, Error, Partial, Result, Source, Uri};
use libris_sources::Files;
use libris_sources::files::{Config, Watching};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::sandbox::{Sandbox, listed, read, uri};
use super::watch::{WAYS, Watched};

/// Set in the child process in which a test exhausts the file descriptors.
const CHILD: &str = "LIBRIS_TEST_DESCRIPTORS";

/// The soft limit on file descriptors in that process.
const DESCRIPTORS: u64 = 128;

/// Runs the test of this name again in a process of its own, whose limits are no other test's concern.
/// Returns whether this is that process.
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

/// All descriptors of the process but `free`, for as long as this lives.
struct Descriptors(#[expect(dead_code, reason = "dropping it closes them")] Vec<File>);

impl Descriptors {
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
    let asked = Partial { template: &templates[0].uri, variable: "path", typed, known: &known, limit: 100 };
    Ok(files.complete(asked, &Context::default()).await?.values)
}

/// The URIs of everything, or of what is directly in a folder.
async fn names(page: Result<libris_core::Page>) -> Result<Vec<String>> {
    let name = |resource: libris_core::Resource| resource.uri.as_str()["file:///root/".len()..].to_owned();
    Ok(page?.resources.into_iter().map(name).collect())
}

fn is_failure(error: &Error) -> bool {
    matches!(error, Error::Failed { .. } | Error::Unavailable(_))
}

#[test]
fn no_ignored_file_is_shown_when_descriptors_run_out() {
    if !is_child("failures::no_ignored_file_is_shown_when_descriptors_run_out") {
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
        // Threads and the event queue of the process take their descriptors before these run out.
        assert_eq!(listed(&sandbox.files()).await, shown);
        for watch in WAYS {
            let files = sandbox.files_with(|config| config.watch = watch);
            for free in 0..16 {
                // So that the rules are read anew.
                for rules in [".gitignore", "sub/.ignore", ".git/info/exclude"] {
                    sandbox.write(rules, fs::read(sandbox.path(rules)).unwrap());
                }
                let descriptors = Descriptors::all_but(free);
                match names(files.list(None, 100, &Context::default()).await).await {
                    Ok(listed) => assert_eq!(listed, shown, "{free} descriptors"),
                    Err(error) => assert!(is_failure(&error), "{free} descriptors: {error:?}"),
                }
                drop(descriptors);
                // Nothing of the failure may last.
                assert_eq!(listed(&files).await, shown, "after {free} descriptors");
                for path in ["secret", "excluded", "sub/secret", "sub/hidden"] {
                    let read = read(&files, path).await;
                    assert!(matches!(read, Err(Error::NotFound(_))), "after {free}: {path}: {read:?}");
                }
            }
        }
    });
}

#[test]
fn what_cannot_be_opened_for_want_of_descriptors_is_not_missing() {
    if !is_child("failures::what_cannot_be_opened_for_want_of_descriptors_is_not_missing") {
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
                    let _descriptors = Descriptors::all_but(free);
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

/// Puts something in the place of an ignore file that cannot be read as one.
type Spoil = fn(&Sandbox, &str);

const SPOILED: [(&str, Spoil); 8] = [
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
    ("latin-1", |sandbox, path| sandbox.write(path, b"secr\xe9t\nsecret\n")),
    ("pattern", |sandbox, path| sandbox.write(path, "[z-a]\nsecret\n")),
];

#[tokio::test]
async fn an_ignore_file_that_cannot_be_read_hides_its_folder() {
    for rules in [".gitignore", ".ignore"] {
        let sandbox = Sandbox::with(&[("ok/.gitignore", "# caf\n*.log\n"), ("ok/shown", "x")]);
        sandbox.write("ok/.ignore", b"# a comment may be in any encoding: \xe9\nx.log\n");
        for (name, spoil) in SPOILED {
            sandbox.write(format!("{name}/deep/secret"), "x");
            sandbox.write(format!("{name}/secret"), "x");
            spoil(&sandbox, &format!("{name}/{rules}"));
        }
        for watch in WAYS {
            let files = sandbox.files_with(|config| config.watch = watch);
            for _ in 0..2 {
                assert_eq!(listed(&files).await, ["", "ok/", "ok/shown"]);
                assert_eq!(
                    names(files.children(files.root(), None, 100, &Context::default()).await).await.unwrap(),
                    ["ok/"]
                );
                assert_eq!(completed(&files, "").await.unwrap(), ["ok/"]);
                for (name, _) in SPOILED {
                    for path in ["", "secret", "deep/", "deep/secret"] {
                        let path = format!("{name}/{path}");
                        let read = read(&files, &path).await;
                        assert!(matches!(read, Err(Error::NotFound(_))), "{path}: {read:?}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_root_whose_ignore_file_cannot_be_read_is_unavailable() {
    for rules in [".gitignore", ".ignore", ".git/info/exclude"] {
        for (name, spoil) in SPOILED {
            let sandbox = Sandbox::with(&[("secret", "x"), ("shown", "x"), (".git/info/other", "")]);
            let files = sandbox.files();
            assert_eq!(listed(&files).await, ["", "secret", "shown"]);
            spoil(&sandbox, rules);
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
async fn git_that_is_kept_elsewhere_excludes_nothing() {
    // A worktree has a file, and some tools make links.
    let file: Spoil = |sandbox, path| sandbox.write(path, "gitdir: elsewhere\n");
    let link: Spoil = |sandbox, path| symlink("elsewhere", sandbox.path(path)).unwrap();
    for spoil in [file, link] {
        let sandbox = Sandbox::with(&[("shown", "x")]);
        spoil(&sandbox, ".git");
        assert_eq!(listed(&sandbox.files()).await, ["", "shown"]);
    }
}

#[tokio::test]
async fn subscribers_hear_when_an_ignore_file_can_be_read_again() {
    for watch in [Watching::Auto, Watching::Poll] {
        let sandbox =
            Sandbox::with(&[("sub/.gitignore", "secret\n"), ("sub/secret", "x"), ("sub/shown", "x")]);
        let mut watched = Watched::new(sandbox, watch).await;
        let shown = |uri: &Uri| uri.as_str() == "file:///root/sub/shown";
        fs::remove_file(watched.sandbox.path("sub/.gitignore")).unwrap();
        fs::create_dir(watched.sandbox.path("sub/.gitignore")).unwrap();
        watched.until("it goes", |change| matches!(change, Change::Removed(uri) if shown(uri))).await;
        fs::remove_dir(watched.sandbox.path("sub/.gitignore")).unwrap();
        watched.sandbox.write("sub/.gitignore", "secret\n");
        watched.until("it comes back", |change| matches!(change, Change::Added(uri) if shown(uri))).await;
        assert_eq!(listed(&watched.files).await, ["", "sub/", "sub/shown", "~/"]);
    }
}
