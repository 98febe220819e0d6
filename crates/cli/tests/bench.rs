//! `libris bench` on a folder and on a server that is started.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_libris")).arg("bench").args(arguments).output().unwrap()
}

#[test]
fn reads_are_counted_and_timed() {
    let root = tempfile::tempdir().unwrap();
    let docs = root.path().join("docs");
    std::fs::create_dir(&docs).unwrap();
    for number in 0..3 {
        std::fs::write(docs.join(format!("{number}.txt")), "ten bytes\n").unwrap();
    }
    let docs = docs.to_str().unwrap();
    let json = |arguments: &[&str]| {
        let output = bench(arguments);
        let measured: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code(), measured)
    };
    let (code, measured) = json(&[docs, "--json", "--requests", "31", "--concurrency", "4"]);
    assert_eq!(code, Some(0));
    for (key, expected) in
        [("reads", 31), ("failed", 0), ("resources", 3), ("concurrency", 4), ("bytes", 310)]
    {
        assert_eq!(measured[key], expected, "{key} in {measured}");
    }
    let times: Vec<_> =
        ["p50Ms", "p90Ms", "p99Ms", "longestMs"].map(|key| measured[key].as_f64().unwrap()).into();
    assert!(times.is_sorted() && times[0] > 0.0, "{measured}");
    // The same over stdio, from a server that is started.
    let server = ["--", env!("CARGO_BIN_EXE_libris"), "serve", "--stdio", docs];
    let (code, measured) =
        json(&[&["--json", "--requests", "10", "--uri", "file:///docs/0.txt"][..], &server].concat());
    assert_eq!(
        (code, &measured["reads"], &measured["bytes"]),
        (Some(0), &10.into(), &100.into()),
        "{measured}"
    );
    let (code, measured) = json(&[docs, "--json", "--requests", "4", "--uri", "file:///docs/none.txt"]);
    assert_eq!((code, &measured["failed"]), (Some(1), &4.into()), "{measured}");
}

#[test]
fn the_result_reads_well_and_errors_say_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let empty = bench(&[root.path().to_str().unwrap()]);
    let folder = root.path().join("docs");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.txt"), "a").unwrap();
    let output = bench(&[folder.to_str().unwrap(), "--requests", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let keys: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(keys, ["connected", "read", "p50", "p90", "p99", "longest", "rate"], "{text}");
    assert!(text.contains("2 reads of 1 resource, 1 at a time"), "{text}");
    assert_eq!(empty.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&empty.stderr).contains("name one with `--uri`"));
    for wrong in [&["--requests", "0"][..], &["--concurrency", "1000"]] {
        assert_eq!(bench(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
