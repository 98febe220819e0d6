//! Limits on time, output size and concurrency; no process is left behind.

use super::{Bench, kind};
use libris_core::{Context, Error, Source as _, Uri};
use std::path::Path;
use std::time::{Duration, Instant};

/// A script that starts processes which ignore SIGTERM, one of them in the background of another shell, writes their
/// process ids to a file, and waits.
const FORKS: &str = "#!/bin/sh
trap '' TERM
sleep 1000 & echo $! >> pids
sh -c 'trap \"\" TERM; sleep 1000 & echo $! >> pids; wait' &
echo $! >> pids
echo $$ >> pids
echo started
wait
";

fn is_alive(pid: &str) -> bool {
    // A zombie counts as dead.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

/// Waits until a condition holds; panics after a time-out.
pub(super) async fn until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn pids(dir: &Path) -> Vec<String> {
    std::fs::read_to_string(dir.join("pids")).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_time_out_kills_grandchildren_too() {
    let config = "[[command]]\nuri = \"slow://x\"\nrun = [\"./forks\"]\ntimeout = \"1s\"";
    let bench = Bench::with(config, &[("forks", FORKS)]);
    let error = bench.read("slow://x").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "`slow://x` took longer than 1s; ask for less, or let the administrator raise `timeout`"
    );
    assert!(matches!(error, Error::Unavailable(_)));
    let pids = pids(bench.dir.path());
    assert_eq!(pids.len(), 4);
    until("the end of all", || !pids.iter().any(|pid| is_alive(pid))).await;
}

#[tokio::test]
async fn nothing_goes_on_for_a_caller_who_left() {
    let config = "[[command]]\nuri = \"slow://x\"\nrun = [\"./forks\"]\ntimeout = \"1h\"";
    let bench = Bench::with(config, &[("forks", FORKS)]);
    let uri = Uri::parse("slow://x").unwrap();
    let context = Context::default();
    tokio::select! {
        read = bench.commands.read(&uri, &context) => panic!("{read:?}"),
        () = until("the start", || pids(bench.dir.path()).len() == 4) => {}
    }
    let pids = pids(bench.dir.path());
    until("the end of all", || !pids.iter().any(|pid| is_alive(pid))).await;
}

#[tokio::test]
async fn what_a_program_leaves_running_is_killed() {
    let script = "#!/bin/sh\nsleep 1000 & echo $! >> pids\necho done\n";
    let bench = Bench::with("[[command]]\nuri = \"a://b\"\nrun = [\"./leaves\"]", &[("leaves", script)]);
    assert_eq!(bench.text("a://b").await, "done\n");
    let pids = pids(bench.dir.path());
    until("the end of it", || !pids.iter().any(|pid| is_alive(pid))).await;
}

#[tokio::test]
async fn the_end_of_the_runtime_is_the_end_of_all() {
    let dir = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = "[[command]]\nuri = \"slow://x\"\nrun = [\"./forks\"]\ntimeout = \"1h\"";
        let bench = Bench::with(config, &[("forks", FORKS)]);
        let uri = Uri::parse("slow://x").unwrap();
        runtime.block_on(async {
            let context = Context::default();
            tokio::select! {
                read = bench.commands.read(&uri, &context) => panic!("{read:?}"),
                () = until("the start", || pids(bench.dir.path()).len() == 4) => {}
            }
        });
        bench.dir
    });
    let dir = tokio::task::spawn_blocking(|| dir.join().unwrap()).await.unwrap();
    let pids = pids(dir.path());
    until("the end of all", || !pids.iter().any(|pid| is_alive(pid))).await;
}

#[tokio::test]
async fn an_endless_output_is_cut_off() {
    let bench = Bench::new(
        r#"
        [[command]]
        uri = "yes://{word}{?lines,bytes}"
        run = ["yes", "{{word}}"]
        max_size = 1000
        timeout = "1h"

        [[command]]
        uri = "whole://yes"
        run = ["yes"]
        max_size = 1000
        timeout = "1h"
        "#,
    );
    let error = bench.read("yes://y").await.unwrap_err();
    let Error::TooLarge { size, limit: 1000, hint: Some(hint), .. } = &error else { panic!("{error:?}") };
    assert!(*size > 1000 && hint.contains("?lines=1-500"), "{size} {hint}");
    let error = bench.read("whole://yes").await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { hint: None, .. }), "{error:?}");
    // Endless output is cut off at the limit.
    assert_eq!(bench.text("yes://y?lines=999999-1000000").await, "y\ny\n");
    assert_eq!(bench.text("yes://yes?bytes=4-10").await, "yes\nyes");
}

#[tokio::test]
async fn no_more_run_at_once_than_may() {
    let script = "#!/bin/sh\nmkdir lock || exit 9\nsleep 0.1\nrmdir lock\necho done\n";
    let bench = Bench::with(
        "[[command]]\nuri = \"one://{at}\"\nrun = [\"./alone\", \"{{at}}\"]\nconcurrent = 1\ntimeout = \"1m\"
         [[command]]\nuri = \"busy://{at}\"\nrun = [\"sleep\", \"{{at}}\"]\nconcurrent = 1\ntimeout = \"1s\"",
        &[("alone", script)],
    );
    let read = async |at: usize| assert_eq!(bench.text(&format!("one://{at}")).await, "done\n");
    futures_util::future::join_all((0..8).map(read)).await;

    // Whoever waits for a turn until its time is over is told so, and the next one finds it free.
    let (one, other) = tokio::join!(bench.read("busy://100"), bench.read("busy://101"));
    assert_eq!(kind(&one.unwrap_err()), "unavailable");
    assert_eq!(kind(&other.unwrap_err()), "unavailable");
    let freed = async { while !bench.text("busy://wrong").await.contains("exit code 1") {} };
    tokio::time::timeout(Duration::from_secs(20), freed).await.expect("a free turn");
}

#[tokio::test]
async fn printed_values_are_bounded() {
    let config = "[[command]]\nuri = \"a://{b}\"\nrun = [\"echo\", \"{{b}}\"]\ncomplete = { b = { run = [\"seq\", \"30000\"] } }";
    let bench = Bench::new(config);
    let template = libris_core::UriTemplate::parse("a://{b}").unwrap();
    let known = std::collections::BTreeMap::new();
    let asked = libris_core::CompletionRequest {
        template: &template,
        variable: "b",
        typed: "",
        known: &known,
        limit: 100,
    };
    let completion = bench.commands.complete(asked, &Context::default()).await.unwrap();
    assert_eq!((completion.total, completion.more), (Some(10_000), true));
}
