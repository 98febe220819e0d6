//! Change detection by polling: a command runs while its resource is followed, and a different output is a change.

use super::Bench;
use futures_util::StreamExt as _;
use libris_core::{Change, Client, Source as _, Uri};
use std::time::{Duration, Instant};

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
    let before = bench.read("file://watched").await.unwrap().freshness.proof.unwrap();
    let mut changes = bench.commands.watch().await.unwrap().expect("a watch");
    // The program does not run before the resource is followed.
    assert_eq!(runs(), "watched\n");
    assert!(before.holds());
    let told = Change::Updated(Uri::parse("file://watched").unwrap());
    let mut next =
        async || tokio::time::timeout(Duration::from_secs(20), changes.next()).await.expect("a change");
    write("watched", "two");
    assert_eq!(next().await, Some(told.clone()));
    // The cached output is no longer served.
    assert!(!before.holds());
    std::fs::remove_file(bench.dir.path().join("watched")).unwrap();
    assert_eq!(next().await, Some(told.clone()));
    write("watched", "three");
    assert_eq!(next().await, Some(told));
    assert!(!runs().contains("other"));
}

#[tokio::test]
async fn whatever_is_subscribed_to_is_told() {
    let bench = Bench::with(
        r#"
        [[command]]
        uri = "one://{name}"
        run = ["./look", "{{name}}"]
        poll = "1s"

        [[command]]
        uri = "some://file{?name}"
        run = ["./look", "{{name}}"]
        default = { name = "a" }
        poll = "1s"

        [[command]]
        uri = "log://file{?lines}"
        run = ["./look", "log"]
        default = { lines = "1-2" }
        poll = "1s"
        "#,
        &[("look", "#!/bin/sh\necho $1 >> runs\ncat $1\n")],
    );
    let write = |name: &str, text: &str| std::fs::write(bench.dir.path().join(name), text).unwrap();
    let runs = || std::fs::read_to_string(bench.dir.path().join("runs")).unwrap_or_default();
    for name in ["a", "b", "c", "d"] {
        write(name, "before");
    }
    write("log", "1\n2\n3\n");
    let uri = |text: &str| Uri::parse(text).unwrap();
    // The program does not run while nobody follows the resource.
    bench.commands.follow(&uri("one://d"), Client::default());
    let mut changes = bench.commands.watch().await.unwrap().expect("a watch");
    let mut told = async |wanted: &str| {
        let wanted = Some(Change::Updated(uri(wanted)));
        // A partially written file may be reported as a change, too.
        let look = async { while changes.next().await != wanted {} };
        tokio::time::timeout(Duration::from_secs(20), look).await.expect("a change");
    };
    for (name, subscribed, told_of) in [
        ("b", "some://file?name=b", "some://file?name=b"),
        ("c", "one://c", "one://c"),
        ("log", "log://file?lines=-1", "log://file"),
    ] {
        let subject = bench.commands.subject(&uri(subscribed));
        assert_eq!(subject, uri(told_of));
        let _ = bench.read(subject.as_str()).await.unwrap();
        let _ = bench.read(subscribed).await.unwrap();
        bench.commands.follow(&subject, Client::default());
        write(name, "1\n2\n3\n4\n");
        told(told_of).await;
    }
    assert!(!runs().contains('d'));
    bench.commands.unfollow(&uri("one://c"));
    let mut rounds = async |texts: [&str; 2]| {
        for text in texts {
            write("b", text);
            told("some://file?name=b").await;
        }
    };
    // A poll may have been in flight.
    rounds(["5", "6"]).await;
    let count = || runs().lines().filter(|name| *name == "c").count();
    let before = count();
    rounds(["7", "8"]).await;
    assert_eq!(count(), before);
}

#[tokio::test]
async fn where_too_much_is_subscribed_to_everybody_looks_again() {
    let bench = Bench::new("[[command]]\nuri = \"a://{b}\"\nrun = [\"true\", \"{{b}}\"]\npoll = \"1s\"");
    let mut changes = bench.commands.watch().await.unwrap().expect("a watch");
    for number in 0..1_001 {
        // The program does not run for invalid values of a variable.
        bench.commands.follow(&Uri::parse(&format!("a://%00{number}")).unwrap(), Client::default());
    }
    let next = tokio::time::timeout(Duration::from_secs(20), changes.next()).await;
    assert_eq!(next.expect("a change"), Some(Change::Lost));
}

#[tokio::test]
async fn there_is_no_watch_where_nothing_polls() {
    let bench = Bench::new("[[command]]\nuri = \"a://b\"\nrun = [\"true\"]");
    assert!(bench.commands.watch().await.unwrap().is_none());
}

#[tokio::test]
async fn output_is_cached_for_a_time() {
    let bench = Bench::with(
        r#"
        [[command]]
        uri = "file://long"
        run = ["./look"]
        cache = "1h"

        [[command]]
        uri = "file://brief"
        run = ["./look"]
        cache = "100ms"

        [[command]]
        uri = "file://never"
        run = ["./look"]
        "#,
        &[("look", "#!/bin/sh\necho seen\n")],
    );
    let proof = async |uri: &str| bench.read(uri).await.unwrap().freshness.proof;
    assert!(proof("file://long").await.unwrap().holds());
    assert!(proof("file://never").await.is_none());
    let begun = Instant::now();
    let brief = proof("file://brief").await.unwrap();
    while brief.holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the time is over");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(100), "{:?}", begun.elapsed());
}
