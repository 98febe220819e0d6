//! A command that polls tells when it prints something else, while somebody listens.

use super::Bench;
use futures_util::StreamExt as _;
use libris_core::{Change, Source as _, Uri};
use std::time::Duration;

#[tokio::test]
async fn another_output_is_told() {
    let bench = Bench::with(
        r#"
        [[command]]
        uri = "file://watched"
        run = ["./look", "watched"]
        poll = "1s"
        cache = "1h"

        [[command]]
        uri = "file://other"
        run = ["./look", "other"]
        "#,
        &[("look", "#!/bin/sh\necho $1 >> runs\ncat $1\n")],
    );
    let write = |name: &str, text: &str| std::fs::write(bench.dir.path().join(name), text).unwrap();
    let runs = || std::fs::read_to_string(bench.dir.path().join("runs")).unwrap_or_default();
    write("watched", "one");
    let before = bench.read("file://watched").await.unwrap().proof.unwrap();
    let mut changes = bench.commands.watch().await.unwrap().expect("a watch");
    // Nothing is run before somebody listens.
    assert_eq!(runs(), "watched\n");
    assert!(before.holds());
    let told = Change::Updated(Uri::parse("file://watched").unwrap());
    let mut next =
        async || tokio::time::timeout(Duration::from_secs(20), changes.next()).await.expect("a change");
    write("watched", "two");
    assert_eq!(next().await, Some(told.clone()));
    // What was kept is not given any more.
    assert!(!before.holds());
    std::fs::remove_file(bench.dir.path().join("watched")).unwrap();
    assert_eq!(next().await, Some(told.clone()));
    write("watched", "three");
    assert_eq!(next().await, Some(told));
    assert!(!runs().contains("other"));
}

#[tokio::test]
async fn there_is_no_watch_where_nothing_polls() {
    let bench = Bench::new("[[command]]\nuri = \"a://b\"\nrun = [\"true\"]");
    assert!(bench.commands.watch().await.unwrap().is_none());
}
