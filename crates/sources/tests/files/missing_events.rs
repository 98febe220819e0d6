//! Changes that cause no inotify event.

use std::fs;
use std::time::Duration;

use libris_core::{Context, Source, Uri};

use crate::sandbox::{Sandbox, is_not_found};

#[cfg(unix)]
#[tokio::test]
async fn a_change_through_another_hard_link_is_noticed_within_two_seconds() {
    let sandbox = Sandbox::with(&[("a.txt", "a"), ("b.txt", "b")]);
    let other = sandbox.outside().join("rules");
    fs::write(&other, "# nothing yet\n").unwrap();
    fs::hard_link(&other, sandbox.path(".gitignore")).unwrap();
    let files = sandbox.files();
    let uri = Uri::parse("file:///root/a.txt").unwrap();
    let read = async || files.read(&uri, &Context::default()).await;
    assert!(read().await.is_ok());
    // Through the other hard link, so that no watched directory gets an event.
    fs::write(&other, "a.txt\n").unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert!(is_not_found(&read().await));
    assert_eq!(files.list(None, 10, &Context::default()).await.unwrap().resources.len(), 2);
}
