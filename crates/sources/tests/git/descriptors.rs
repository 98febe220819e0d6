//! Without file descriptors a request fails: a working tree must not look clean, empty or deleted.

use std::fs::File;
use std::process::Command;

use libris_core::{ContentBody, Context, Error, Source};
use libris_sources::Git;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sandbox::{Sandbox, ask};

/// The environment variable that marks the child process in which the descriptors are exhausted.
const CHILD: &str = "LIBRIS_TEST_GIT_DESCRIPTORS";

/// The soft limit on file descriptors in that process.
const DESCRIPTORS: u64 = 160;

/// What is read and listed.
const RESOURCES: [&str; 6] =
    ["status", "diff/worktree", "diff/staged", "blob/HEAD/a.txt", "tree/HEAD/", "log/HEAD"];

/// The contents of a resource as text.
async fn contents(source: &Git, resource: &str) -> Result<String, Error> {
    let body = |body: ContentBody| match body {
        ContentBody::Text(text) => text,
        ContentBody::Bytes(bytes) => format!("{bytes:?}"),
    };
    Ok(ask(source, resource).await?.parts.into_iter().map(|part| body(part.body)).collect())
}

async fn listed(source: &Git) -> Result<Vec<String>, Error> {
    let page = source.list(None, 1_000, &Context::default()).await?;
    Ok(page.resources.into_iter().map(|resource| resource.uri.to_string()).collect())
}

fn assert_failure(error: &Error, doing: &str) {
    assert!(matches!(error, Error::Failed { .. } | Error::Unavailable(_)), "{doing}: {error:?}");
}

#[test]
fn a_lack_of_file_descriptors_is_not_a_clean_tree() {
    if std::env::var_os(CHILD).is_none() {
        // In a process of its own, so that the limit affects no other test.
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["descriptors::a_lack_of_file_descriptors_is_not_a_clean_tree", "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let sandbox = Sandbox::with(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("deep/er/c.txt", "c\n")]);
    sandbox.write(".gitignore", b"secret.txt\n");
    sandbox.write("secret.txt", b"x\n");
    sandbox.write("a.txt", b"changed\n");
    sandbox.write("deep/er/new.txt", b"new\n");
    sandbox.git(&["rm", "--quiet", "b.txt"]);
    let limit = Rlimit { current: Some(DESCRIPTORS), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut expected = Vec::new();
        let first = sandbox.open();
        for resource in RESOURCES {
            expected.push(contents(&first, resource).await.unwrap());
        }
        let all = listed(&first).await.unwrap();
        assert!(
            expected[0].contains("deep/er/new.txt") && !expected[0].contains("secret"),
            "{}",
            expected[0]
        );
        for free in 0..20 {
            // Opened anew, so that nothing is cached.
            let source = sandbox.open();
            let mut held: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            held.truncate(held.len() - free);
            for (resource, expected) in RESOURCES.iter().zip(&expected) {
                match contents(&source, resource).await {
                    Ok(found) => assert_eq!(found, *expected, "{resource} with {free} descriptors"),
                    Err(error) => assert_failure(&error, &format!("{resource} with {free} descriptors")),
                }
            }
            match listed(&source).await {
                Ok(found) => assert_eq!(found, all, "with {free} descriptors"),
                Err(error) => assert_failure(&error, &format!("list with {free} descriptors")),
            }
            drop(held);
            // No failure may be cached.
            for (resource, expected) in RESOURCES.iter().zip(&expected) {
                assert_eq!(contents(&source, resource).await.unwrap(), *expected, "{resource} after {free}");
            }
            assert_eq!(listed(&source).await.unwrap(), all, "after {free} descriptors");
        }
    });
}
