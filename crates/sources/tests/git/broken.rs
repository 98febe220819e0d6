//! Repositories with FIFOs or huge files in `.git`: only reads that need these files fail.

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use futures_util::StreamExt as _;
use libris_core::{Change, Context, Error, Source as _};
use libris_sources::Git;

use crate::sandbox::{Sandbox, ask, complete, json, listed, text};

/// Distinguishes slow operations from blocked ones.
const LONG: Duration = Duration::from_secs(8);

/// The limit on the peak resident memory of these tests, in KiB.
const MEMORY: u64 = 1024 * 1024;

/// Runs a test that may leave a thread blocked forever.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { tokio::time::timeout(LONG, test).await.expect("it does not end") });
    }));
    runtime.shutdown_background();
    outcome.unwrap_or_else(|cause| resume_unwind(cause));
    assert!(memory() < MEMORY, "{} KiB were needed", memory());
}

/// The peak resident memory of this process, in KiB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// Replaces a file by a named pipe.
fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Replaces a file by a sparse file of 4 GiB.
fn huge(path: &Path) {
    let _ = fs::remove_file(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    File::create(path).unwrap().set_len(4 << 30).unwrap();
}

/// Two branches, a tag, and two files; one branch and the tag are packed.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with(&[("a", "one"), ("b", "two")]);
    sandbox.git(&["branch", "good"]);
    sandbox.git(&["tag", "v1"]);
    sandbox.git(&["pack-refs", "--all"]);
    sandbox.write("a", b"three");
    sandbox.commit("second");
    sandbox
}

async fn assert_unavailable(source: &Git, rest: &str) {
    match ask(source, rest).await {
        Err(Error::Unavailable(_)) => {}
        other => panic!("{rest}: {other:?}"),
    }
}

#[test]
fn a_broken_ref_costs_only_itself() {
    for (kind, break_file) in [("pipe", pipe as fn(&Path)), ("huge", huge)] {
        let sandbox = sandbox();
        let source = sandbox.open();
        break_file(&sandbox.work.join(".git/refs/heads/x"));
        break_file(&sandbox.work.join(".git/refs/tags/deep/x"));
        run(async {
            let asked = (0..16).map(|_| assert_unavailable(&source, "blob/x/a"));
            futures_util::future::join_all(asked).await;
            assert_unavailable(&source, "blob/deep%2Fx/a").await;
            assert_eq!(text(&source, "blob/good/a").await, "one", "{kind}");
            assert_eq!(text(&source, "blob/HEAD/a").await, "three", "{kind}");
            assert_eq!(listed(&source).await.len(), 8, "{kind}");
            let refs = json(&source, "refs?format=json").await;
            let names = refs["refs"].as_array().unwrap().iter().map(|one| one["ref"].as_str().unwrap());
            assert_eq!(names.collect::<Vec<_>>(), ["good", "main", "v1"], "{kind}");
            assert_eq!(refs["unreadable"], 2, "{kind}");
            assert!(text(&source, "refs").await.contains("2 refs cannot be read"), "{kind}");
            let completed = complete(&source, "log/{ref}{?path,limit,format}", "ref", "go", &[]).await;
            assert_eq!(completed.values, ["good"], "{kind}");
        });
    }
}

#[test]
fn broken_packed_refs_cost_only_what_is_packed() {
    for (kind, break_file) in [("pipe", pipe as fn(&Path)), ("huge", huge)] {
        let sandbox = sandbox();
        let source = sandbox.open();
        break_file(&sandbox.work.join(".git/packed-refs"));
        run(async {
            assert_eq!(text(&source, "blob/heads%2Fmain/a").await, "three", "{kind}");
            assert_eq!(listed(&source).await.len(), 8, "{kind}");
            // A ref that the unreadable file may contain is not reported as missing.
            assert_unavailable(&source, "blob/v1/a").await;
            assert_unavailable(&source, "blob/nowhere/a").await;
            assert_unavailable(&source, "refs").await;
        });
    }
}

#[test]
fn a_broken_head_costs_only_what_is_asked_by_it() {
    for (kind, break_file) in [("pipe", pipe as fn(&Path)), ("huge", huge)] {
        let sandbox = sandbox();
        let source = sandbox.open();
        let head = fs::read(sandbox.work.join(".git/HEAD")).unwrap();
        break_file(&sandbox.work.join(".git/HEAD"));
        run(async {
            assert_eq!(text(&source, "blob/main/a").await, "three", "{kind}");
            assert_unavailable(&source, "blob/HEAD/a").await;
            assert!(
                matches!(source.list(None, 100, &Context::default()).await, Err(Error::Unavailable(_))),
                "{kind}"
            );
            fs::remove_file(sandbox.work.join(".git/HEAD")).unwrap();
            fs::write(sandbox.work.join(".git/HEAD"), head).unwrap();
            assert_eq!(listed(&source).await.len(), 8, "{kind}");
        });
    }
}

#[test]
fn a_broken_object_costs_only_itself() {
    for (kind, break_file) in [("pipe", pipe as fn(&Path)), ("huge", huge)] {
        let sandbox = sandbox();
        let source = sandbox.open();
        let id = sandbox.git(&["rev-parse", "HEAD:b"]);
        break_file(&sandbox.work.join(format!(".git/objects/{}/{}", &id[..2], &id[2..])));
        run(async {
            assert_eq!(text(&source, "blob/HEAD/a").await, "three", "{kind}");
            let asked = ask(&source, "blob/HEAD/b").await;
            assert!(matches!(asked, Err(Error::Unavailable(_) | Error::Failed { .. })), "{kind}: {asked:?}");
        });
    }
}

#[test]
fn a_branch_whose_commit_is_missing_is_not_an_empty_one() {
    let sandbox = sandbox();
    let source = sandbox.open();
    let id = sandbox.git(&["rev-parse", "HEAD"]);
    fs::remove_file(sandbox.work.join(format!(".git/objects/{}/{}", &id[..2], &id[2..]))).unwrap();
    run(async {
        assert!(matches!(source.list(None, 100, &Context::default()).await, Err(Error::Unavailable(_))));
        assert_unavailable(&source, "blob/main/a").await;
        assert_eq!(text(&source, "blob/good/a").await, "one");
    });
}

#[test]
fn files_that_the_library_opens_itself_are_checked_before() {
    for (kind, break_file) in [("pipe", pipe as fn(&Path)), ("huge", huge)] {
        let sandbox = sandbox();
        let source = sandbox.open();
        for file in ["objects/info/alternates", "shallow"] {
            let path = sandbox.work.join(".git").join(file);
            break_file(&path);
            run(async {
                // What the repository does not hold makes the library look again at where objects are.
                assert_unavailable(&source, "log/HEAD").await;
                let unknown = ask(&source, &format!("commit/{}", "1".repeat(40))).await;
                assert!(unknown.is_err(), "{kind}, {file}");
                fs::remove_file(&path).unwrap();
                assert!(text(&source, "log/HEAD").await.contains("second"), "{kind}, {file}");
            });
        }
    }
}

#[test]
fn a_repository_of_broken_files_is_refused() {
    for (kind, break_file) in [("pipe", pipe as fn(&Path)), ("huge", huge)] {
        for file in [
            "HEAD",
            "config",
            "commondir",
            "packed-refs",
            "objects/info/alternates",
            "refs/replace/1111111111111111111111111111111111111111",
        ] {
            let sandbox = sandbox();
            break_file(&sandbox.work.join(".git").join(file));
            let (send, receive) = mpsc::channel();
            let config = sandbox.config();
            std::thread::spawn(move || {
                send.send(Git::open(config).map(|_| ()).map_err(|error| error.to_string()))
            });
            let opened =
                receive.recv_timeout(LONG).unwrap_or_else(|_| panic!("{kind}, {file}: it does not end"));
            let said = opened.expect_err(&format!("{kind}, {file}"));
            assert!(said.contains(file.rsplit('/').next().unwrap()), "{kind}, {file}: {said}");
        }
    }
}

#[test]
fn a_watch_begins_although_refs_cannot_be_read() {
    let sandbox = sandbox();
    let source = sandbox.open();
    let packed = sandbox.work.join(".git/packed-refs");
    let content = fs::read(&packed).unwrap();
    pipe(&packed);
    run(async {
        let mut changes = source.watch().await.unwrap().unwrap();
        fs::remove_file(&packed).unwrap();
        fs::write(&packed, content).unwrap();
        // Changes during the failure are unknown.
        assert_eq!(changes.next().await, Some(Change::Lost));
    });
}

#[test]
fn a_pack_that_could_not_be_opened_is_tried_again() {
    let sandbox = sandbox();
    sandbox.git(&["gc", "--quiet", "--prune=now"]);
    let packs = fs::read_dir(sandbox.work.join(".git/objects/pack")).unwrap();
    let mut files = packs.map(|entry| entry.unwrap().path());
    let index = files.find(|path| path.extension().is_some_and(|ending| ending == "idx")).unwrap();
    let content = fs::read(&index).unwrap();
    // As it is when the system has no file descriptors or no memory left.
    fs::set_permissions(&index, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(&index, b"").unwrap();
    let source = sandbox.open();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_unavailable(&source, "blob/main/a").await;
        assert!(matches!(source.list(None, 10, &Context::default()).await, Err(Error::Unavailable(_))));
        fs::write(&index, content).unwrap();
        let began = std::time::Instant::now();
        while ask(&source, "blob/main/a").await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "it is never tried again");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(text(&source, "blob/main/a").await, "three");
    });
}
