//! `libris bench`: measures how fast a server reads its resources.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use futures_util::{StreamExt as _, stream};
use libris::{Context, DIRECTORY, Source as _, Uri};
use serde_json::json;

use crate::sources::SourceArguments;
use crate::target::{EXIT_CODES, OpenedTarget, json_line};
use crate::terminal::{HEADING, ProgressLine, advice, bytes, counted, grouped, print, styled, warn};

/// The maximum number of resources that are read, if none are named.
const MAX_RESOURCES: usize = 20;

/// Measure how fast a server reads its resources
///
/// Connects, lists the resources, and reads some of them again and again. This command caches nothing, so the times are
/// those of the target and of the connection to it. Compare two servers by running it on both.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris bench https://mcp.example/mcp                  200 reads of the first resources, one after the other
  libris bench --requests 5000 --concurrency 16 -- npx -y some-server
  libris bench ./docs --uri file:///docs/intro.md --json

{EXIT_CODES}"))]
pub(crate) struct BenchOptions {
    #[command(flatten)]
    pub(crate) sources: SourceArguments,
    /// Read this resource [default: the first 20 of the list]; may be given several times
    #[arg(long, value_name = "URI")]
    pub(crate) uri: Vec<Uri>,
    /// How many reads
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    requests: u32,
    /// How many reads at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: u32,
    /// Print JSON: one object, with times in milliseconds
    #[arg(long)]
    json: bool,
}

/// The results of the measurement.
struct Measured {
    /// How long connecting and listing took.
    connected: Duration,
    listed: usize,
    /// The number of different resources that were read.
    uris: usize,
    /// The durations of the successful reads, sorted.
    times: Vec<Duration>,
    failed: usize,
    bytes: u64,
    /// The time from the start of the first read to the end of the last.
    took: Duration,
}

/// Measures, and prints the result.
pub(crate) async fn run(options: BenchOptions) -> Result<ExitCode> {
    let began = Instant::now();
    let target = OpenedTarget::open(&options.sources)?;
    let outcome = measure(&options, &target, began).await;
    target.close().await;
    let measured = outcome?;
    print(&if options.json { measured.json(&options) } else { measured.text(&options) })
        .context("could not print")?;
    Ok(if measured.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(options: &BenchOptions, target: &OpenedTarget, began: Instant) -> Result<Measured> {
    let page = target.catalog.list(None, MAX_RESOURCES * 10, &Context::default()).await;
    let page = page.context("could not list the resources")?;
    let connected = began.elapsed();
    let listed = page.resources.len();
    let readable = page.resources.into_iter().filter(|resource| resource.mime.as_deref() != Some(DIRECTORY));
    let uris: Vec<Uri> = match options.uri.is_empty() {
        true => readable.take(MAX_RESOURCES).map(|resource| resource.uri).collect(),
        false => options.uri.clone(),
    };
    if uris.is_empty() {
        return Err(advice("the target lists no resources", "name one with `--uri`"));
    }
    let mut progress = ProgressLine::new();
    let began = Instant::now();
    let requested = uris.iter().cycle().take(options.requests as usize);
    let reads = stream::iter(requested).map(async |uri| {
        let began = Instant::now();
        let contents = target.catalog.read(uri, &Context::default()).await;
        (
            contents.map(|contents| contents.parts.iter().map(|part| part.body.len() as u64).sum::<u64>()),
            began.elapsed(),
        )
    });
    let mut reads = std::pin::pin!(reads.buffer_unordered(options.concurrency as usize));
    let (mut times, mut failed, mut bytes) = (Vec::new(), 0, 0);
    while let Some((read, took)) = reads.next().await {
        match read {
            Ok(size) => {
                bytes += size;
                times.push(took);
            }
            Err(error) => {
                progress.clear();
                if failed == 0 {
                    warn(format_args!("a read failed: {error}"));
                }
                failed += 1;
            }
        }
        progress.update(format_args!("{} …", counted(times.len() as u64, "read")));
    }
    progress.clear();
    times.sort_unstable();
    Ok(Measured { connected, listed, uris: uris.len(), times, failed, bytes, took: began.elapsed() })
}

impl Measured {
    /// The time within which this share of the successful reads completed; zero if no read was successful.
    fn percentile(&self, share: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }

    fn per_second(&self) -> f64 {
        self.times.len() as f64 / self.took.as_secs_f64().max(1e-9)
    }

    fn text(&self, options: &BenchOptions) -> String {
        let line =
            |key: &str, value: String| format!("{}  {value}\n", styled(HEADING, format_args!("{key:<9}")));
        let mut text = line(
            "connected",
            format!("{}, with a list of {}", time(self.connected), counted(self.listed as u64, "resource")),
        );
        let what = format!(
            "{} of {}, {} at a time",
            counted(self.times.len() as u64, "read"),
            counted(self.uris as u64, "resource"),
            options.concurrency
        );
        text.push_str(&line("read", what));
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("longest", 1.0)] {
            text.push_str(&line(name, time(self.percentile(share))));
        }
        let rate =
            format!("{} reads per second, {} in all", grouped(self.per_second() as u64), bytes(self.bytes));
        text.push_str(&line("rate", rate));
        if self.failed > 0 {
            text.push_str(&line("failed", counted(self.failed as u64, "read")));
        }
        text
    }

    fn json(&self, options: &BenchOptions) -> String {
        let milliseconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        json_line(&json!({
            "connectedMs": milliseconds(self.connected),
            "listed": self.listed,
            "resources": self.uris,
            "concurrency": options.concurrency,
            "reads": self.times.len(),
            "failed": self.failed,
            "bytes": self.bytes,
            "p50Ms": milliseconds(self.percentile(0.5)),
            "p90Ms": milliseconds(self.percentile(0.9)),
            "p99Ms": milliseconds(self.percentile(0.99)),
            "longestMs": milliseconds(self.percentile(1.0)),
            "readsPerSecond": self.per_second().round(),
        }))
    }
}

/// A duration in milliseconds: with three decimal places below 1 ms, one below 100 ms, and none from 100 ms on.
fn time(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        small if small < 1.0 => format!("{small:.3} ms"),
        medium if medium < 100.0 => format!("{medium:.1} ms"),
        large => format!("{large:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Measured, time};

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let mut measured = Measured {
            connected: Duration::ZERO,
            listed: 0,
            uris: 1,
            times: (0..=100).map(Duration::from_millis).collect(),
            failed: 0,
            bytes: 0,
            took: Duration::from_secs(2),
        };
        assert_eq!(
            [0.5, 0.9, 0.99, 1.0].map(|share| measured.percentile(share).as_millis()),
            [50, 90, 99, 100]
        );
        assert_eq!(measured.per_second(), 50.5);
        measured.times.clear();
        assert_eq!(measured.percentile(0.5), Duration::ZERO);
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [0.4567, 4.567, 456.7].map(|ms| time(Duration::from_secs_f64(ms / 1e3))),
            ["0.457 ms", "4.6 ms", "457 ms"]
        );
    }
}
