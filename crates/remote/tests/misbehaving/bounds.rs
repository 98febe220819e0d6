//! The memory and the time that a server costs its client by misbehaving. Each client is a process of its own.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::{Duration, Instant};

use libris_core::{Context, Source as _};
use libris_remote::RemoteLimits;

use crate::{call, limits, list, read, remote_with, still_answers};

/// The time-out of a request.
const TIMEOUT: Duration = Duration::from_secs(2);

/// More than this beyond the time-outs means that they do not apply. It is for a busy machine.
const SLACK: Duration = Duration::from_secs(10);

/// How much more memory a client may take than that of a server that behaves: a few messages of the maximum size, and the
/// decoded form of one.
const MAX_EXTRA_KIB: u64 = 16 << 10;

const MISBEHAVIOURS: [&str; 21] = [
    "looping cursor",
    "endless pages",
    "many resources",
    "large templates",
    "many tools",
    "large tools",
    "huge, id first",
    "huge, id last",
    "endless line",
    "many values",
    "fewer values",
    "not UTF-8",
    "wrong types",
    "base64",
    "escapes",
    "silent",
    "garbage",
    "some garbage",
    "half an answer",
    "talkative",
    "flood",
];

/// The peak of the resident memory of this process, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// The client of the other test, which starts this program for it. Prints its peak memory and its longest request.
#[tokio::test]
async fn client_process() {
    let Ok(how) = std::env::var("HOSTILE_CLIENT") else { return };
    let remote = remote_with(&how, RemoteLimits { timeout: TIMEOUT, ..limits() });
    remote.identity().await.unwrap();
    let mut longest = Duration::ZERO;
    let context = Context::default();
    for request in 0..5 {
        let began = Instant::now();
        // What the answers are is the subject of other tests.
        let _ = match request {
            0 => list(&remote).await.map(drop),
            1 => remote.templates(&context).await.map(drop),
            2 => remote.tools(&context).await.map(drop),
            3 => read(&remote, "odd://bad").await.map(drop),
            _ => call(&remote, "bad").await.map(drop),
        };
        longest = longest.max(began.elapsed());
    }
    println!("\nMEASURED {} {}", peak_memory(), longest.as_millis());
}

/// The peak memory of a client of such a server, in KiB, and the time of its longest request.
fn measured(how: &str) -> (u64, Duration) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bounds::client_process", "--nocapture"])
        .env("HOSTILE_CLIENT", how)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = text
        .lines()
        .find_map(|line| line.strip_prefix("MEASURED "))
        .unwrap_or_else(|| panic!("{how}: {text}"));
    let (memory, time) = numbers.split_once(' ').unwrap();
    (memory.parse().unwrap(), Duration::from_millis(time.parse().unwrap()))
}

#[test]
fn a_server_that_misbehaves_costs_bounded_memory_and_time() {
    let (usual, _) = measured("well");
    for how in MISBEHAVIOURS {
        let (memory, time) = measured(how);
        println!("{how}: {} KiB more, {time:?}", memory.saturating_sub(usual));
        assert!(memory < usual + MAX_EXTRA_KIB, "{how}: {memory} KiB, and usually {usual} KiB");
        // A whole list may take four times as long as a request.
        assert!(time < 4 * TIMEOUT + SLACK, "{how}: {time:?}");
    }
}

#[tokio::test]
async fn a_message_of_very_many_values_fails_one_read() {
    let remote = remote_with("many values", limits());
    let error = read(&remote, "odd://bad").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` sent a message of so many JSON values that it would take more than 8388608 bytes of memory; \
         hint: raise `max_message` in an `[[mcp]]` section of `libris.toml` if the server is to be trusted"
    );
    still_answers(&remote).await;
}
