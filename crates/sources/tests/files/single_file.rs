//! A single file as a source.

use std::fs;
use std::time::Duration;

use futures_util::StreamExt;
use libris_core::{Change, Context, Error, Source};
use libris_sources::Files;
use libris_sources::files::{ChangeDetection, Config};

use super::sandbox::{Sandbox, is_not_found, uri};

fn open(sandbox: &Sandbox, path: &str, change: impl FnOnce(&mut Config)) -> Files {
    let mut config = Config::new(sandbox.path(path));
    change(&mut config);
    Files::open(config).unwrap()
}

async fn uris(files: &Files) -> Vec<String> {
    let page = files.list(None, 10, &Context::default()).await.unwrap();
    page.resources.into_iter().map(|resource| resource.uri.as_str().to_owned()).collect()
}

#[tokio::test]
async fn nothing_else_in_its_folder_is_served() {
    let sandbox = Sandbox::with(&[("notes.md", "# Notes"), ("notes.md.bak", "no"), ("other/x", "no")]);
    let files = open(&sandbox, "notes.md", |_| ());
    assert_eq!(uris(&files).await, ["file:///notes.md"]);
    assert_eq!(files.root().as_str(), "file:///notes.md");
    for other in ["notes.md.bak", "other/x", "other/", "", "notes.md/", "root/notes.md"] {
        let other = uri(&format!("file:///{other}"));
        assert!(files.covers(&other).is_none(), "{other}");
        assert!(is_not_found(&files.read(&other, &Context::default()).await), "{other}");
    }
    let children = files.children(files.root(), None, 10, &Context::default()).await;
    assert!(matches!(children, Err(Error::NotDirectory(_))));
}

#[tokio::test]
async fn its_uri_is_configurable() {
    let sandbox = Sandbox::with(&[(".notes", "x"), (".gitignore", "*\n")]);
    // Named by the user, so neither hidden nor ignored.
    assert_eq!(uris(&open(&sandbox, ".notes", |_| ())).await, ["file:///.notes"]);
    let mounted = open(&sandbox, ".notes", |config| {
        config.mount = Some("mine".into());
        config.scheme = Some("docs".into());
    });
    assert_eq!(uris(&mounted).await, ["docs://mine/.notes"]);
    assert!(mounted.read(&uri("docs://mine/.notes"), &Context::default()).await.is_ok());
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_stands_for_its_target() {
    let sandbox = Sandbox::with(&[("real.md", "real")]);
    std::os::unix::fs::symlink("real.md", sandbox.path("link.md")).unwrap();
    assert_eq!(uris(&open(&sandbox, "link.md", |_| ())).await, ["file:///real.md"]);
}

#[tokio::test]
async fn its_changes_are_reported() {
    for watch in [ChangeDetection::Auto, ChangeDetection::Poll] {
        let sandbox = Sandbox::with(&[("notes.md", "1"), ("other.md", "1")]);
        let files = open(&sandbox, "notes.md", |config| {
            config.watch = watch;
            config.poll = Duration::from_millis(10);
        });
        let mut changes = files.watch().await.unwrap().unwrap();
        fs::write(sandbox.path("other.md"), "22").unwrap();
        fs::write(sandbox.path("new.md"), "22").unwrap();
        fs::remove_file(sandbox.path("notes.md")).unwrap();
        while let Some(change) = changes.next().await {
            match change {
                Change::Removed(at) => {
                    assert_eq!(at.as_str(), "file:///notes.md");
                    break;
                }
                Change::Updated(at) | Change::Described(at) | Change::Added(at) => {
                    assert_eq!(at.as_str(), "file:///notes.md");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(is_not_found(&files.read(&uri("file:///notes.md"), &Context::default()).await));
    }
}
