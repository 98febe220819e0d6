//! Live resources: memory of idle streams, and the latency of notifications to many streams and to one.

mod latency;
mod reads;
mod revocation;
mod streams;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use tempfile::TempDir;

use self::latency::Latency;
use self::reads::Slice;
use self::streams::{FanOut, Streams};
use crate::mcp::Era;
use crate::program::{Binary, OverHttp};
use crate::report::{Aim, Report};
use crate::statistics::{median, milliseconds, percentile};
use crate::{http, machine, process};

/// The default debounce window of the server.
const WINDOW: f64 = 50.0;

/// How long memory and streams may take to become stable.
const SETTLE: Duration = Duration::from_secs(1);

/// Longer than the interval between keep-alive comments on a stream.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Measure live resources: many idle streams, and the time from a write to its notification
///
/// Opens many `subscriptions/listen` streams to one file of one server; one of them never reads. Prints the memory per
/// stream, the time until a change of the file reaches all other streams, the rate of reads beside the streams (compared
/// with a server without streams, in alternating slices of a second), the time from a write to the notification of
/// one subscriber over HTTP and one over stdio, the time until 1,000 streams of a revoked key have ended, and the time until a new
/// rule has effect on 1,000 streams. With the defaults, it takes about a minute and a half.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many streams to open
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u16).range(2..=15_000))]
    streams: u16,
    /// How many changes to send to all streams
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=100))]
    changes: u16,
    /// How many pairs of slices, without and with streams, to read in
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(1..=60))]
    rounds: u16,
    /// How many connections read at once
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// How many writes to time for one subscriber
    #[arg(long, value_name = "N", default_value = "300", value_parser = clap::value_parser!(u16).range(1..=3_000))]
    writes: u16,
}

/// Measures everything about live resources.
pub(crate) async fn run(options: &Options, binary: &Binary, report: &mut Report) -> Result<()> {
    // The readers, and a reserve for other files, in addition to the streams.
    machine::raise_open_files(usize::from(options.streams) + usize::from(options.connections) + 100)?;
    under_load(options, binary, report).await.context("with many streams")?;
    one_by_one(options, binary, report).await.context("with one subscriber")?;
    revocation::run(binary, report).await.context("with a revoked key")?;
    revocation::hide(binary, report).await.context("with a new rule")
}

/// A folder of a few small files, one of which will change.
struct Folder {
    root: TempDir,
}

impl Folder {
    fn new() -> Result<Self> {
        let folder = Self { root: tempfile::tempdir()? };
        std::fs::create_dir(folder.path())?;
        for name in ["changing.txt", "kilobyte.txt", "one.md", "two.md"] {
            std::fs::write(folder.path().join(name), reads::TEXT.repeat(1024 / reads::TEXT.len()))?;
        }
        Ok(folder)
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn changing(&self) -> PathBuf {
        self.path().join("changing.txt")
    }
}

const CHANGING: &str = "file:///data/changing.txt";
const KILOBYTE: &str = "file:///data/kilobyte.txt";

/// Changes a file without changing its size, so that only its time changes in the list.
fn change(file: &Path, count: usize) -> Result<()> {
    std::fs::write(file, format!("{count:01024}")).context("could not change the file")
}

async fn under_load(options: &Options, binary: &Binary, report: &mut Report) -> Result<()> {
    let count = usize::from(options.streams);
    let folder = Folder::new()?;
    let (bare, loaded) = (binary.over_http(&folder.path())?, binary.over_http(&folder.path())?);
    // Memory that the first requests of any kind allocate must not count as the cost of streams.
    for server in [&bare, &loaded] {
        slice(options, server, SETTLE).await?;
    }
    drop(Streams::open(loaded.address, CHANGING, 2).await?);
    tokio::time::sleep(SETTLE).await;
    let before = process::memory(loaded.id())?;

    eprintln!("opening {count} streams …");
    let mut streams = Streams::open(loaded.address, CHANGING, count).await?;
    tokio::time::sleep(SETTLE).await;
    // A server notices the end of an earlier stream at the next keep-alive comment at the latest.
    let deadline = Instant::now() + KEEP_ALIVE;
    loop {
        let open = http::metric(loaded.address, "listen_streams").await?;
        if open == count {
            break;
        }
        ensure!(Instant::now() < deadline, "the server has {open} streams open, not {count}");
        tokio::time::sleep(SETTLE).await;
    }
    let per_stream = |after: u64| after.saturating_sub(before) as f64 / 1024.0 / count as f64;
    let after = process::memory(loaded.id())?;
    report.add("memory at rest", before as f64 / f64::from(1 << 20), "MiB");
    report.add("idle streams", count as f64, "");
    report.judge("memory per idle stream", per_stream(after), "KiB", Aim::AtMost(20.0));
    report.add("streams opened per second", streams.rate, "/s");

    eprintln!("changing the file that they listen to …");
    let mut told = Vec::new();
    for n in 0..options.changes {
        told.push(streams.fan_out(|| change(&folder.changing(), n.into())).await?);
        tokio::time::sleep(SETTLE).await;
    }
    fan_out(&told, count - 1, report)?;
    let after = process::memory(loaded.id())?;
    report.add("memory per stream after the changes", per_stream(after), "KiB");

    eprintln!("reading beside them …");
    let mut slices: [Vec<Slice>; 2] = Default::default();
    for round in 0..options.rounds {
        // The order alternates, so that disturbances by other programs affect both equally.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for which in order {
            slices[which].push(slice(options, [&bare, &loaded][which], SETTLE).await?);
        }
    }
    let speed = slices.each_ref().map(|all| median(all.iter().map(Slice::rate)));
    let cost = slices.each_ref().map(|all| median(all.iter().map(Slice::microseconds)));
    report.add("reads without streams", speed[0], "/s");
    report.add("reads beside the streams", speed[1], "/s");
    report.judge("reads, ratio", speed[1] / speed[0], "", Aim::AtLeast(0.8));
    report.add("computing per read without streams", cost[0], "µs");
    report.add("computing per read beside the streams", cost[1], "µs");
    let ended = streams.ended();
    ensure!(ended == 0, "{ended} streams were closed by the server");
    Ok(())
}

fn fan_out(told: &[FanOut], readers: usize, report: &mut Report) -> Result<()> {
    let times: Vec<_> = told.iter().flat_map(|told| milliseconds(&told.times)).collect();
    let least = told.iter().map(|told| told.times.len()).min().unwrap_or_default();
    report.judge("streams told of each change", least as f64, "", Aim::AtLeast(readers as f64));
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        report.add(format!("change to all streams, {name}"), percentile(&times, share), "ms");
    }
    let again: usize = told.iter().map(|told| told.again).sum();
    report.add("told more than once", again as f64, "");
    ensure!(least == readers, "a change reached only {least} of {readers} streams that read");
    Ok(())
}

async fn slice(options: &Options, server: &OverHttp, time: Duration) -> Result<Slice> {
    let request = Era::Modern.posted(server.address, None, &Era::Modern.read(KILOBYTE));
    reads::slice(server, request, options.connections.into(), time).await
}

async fn one_by_one(options: &Options, binary: &Binary, report: &mut Report) -> Result<()> {
    eprintln!("timing {} writes …", options.writes);
    let control = tokio::spawn(latency::sleeps(options.writes.into()));
    let (over_http, over_stdio) = tokio::join!(
        latency::over_http(binary, options.writes.into()),
        latency::over_stdio(binary, options.writes.into()),
    );
    let control = milliseconds(&control.await?);
    report.add("a sleep of 50 ms meanwhile, p99", percentile(&control, 0.99), "ms");
    for (name, measured) in [("HTTP", over_http?), ("stdio", over_stdio?)] {
        let Latency { times, missed, again } = measured;
        let times = milliseconds(&times);
        report.add(format!("write to notification over {name}, p50"), percentile(&times, 0.5), "ms");
        let p99 = percentile(&times, 0.99);
        let aim = Aim::AtMost(WINDOW + 50.0);
        report.judge(format!("write to notification over {name}, p99"), p99, "ms", aim);
        report.add(format!("write to notification over {name}, max"), percentile(&times, 1.0), "ms");
        report.judge(format!("writes not told over {name}"), missed as f64, "", Aim::AtMost(0.0));
        report.add(format!("writes told twice over {name}"), again as f64, "");
        ensure!(missed == 0, "{missed} writes were not told over {name}");
    }
    Ok(())
}
