//! Attacks a server, and measures the server's resources and the latency of bystanders.
//!
//! An attack is a function that prepares a [`site::Site`], serves it, and attacks it between [`watch::Watch::begin`] and
//! [`watch::Watch::end`]. Each attack is limited in number and time.

mod bodies;
mod bystander;
mod client;
mod databases;
mod exhaustion;
mod folders;
mod http2;
mod priority;
mod probe;
mod programs;
mod sessions;
mod site;
mod subscriptions;
mod unread;
mod watch;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};

use self::bystander::{Experiences, Phase};
use self::site::Site;
use self::watch::{Measured, Usage, Watch};
use crate::machine;
use crate::program::Binary;
use crate::report::{Aim, Report};
use crate::table::{Cell, Table, shown};

/// The target for the p99 of a bystander during an attack, as a multiple of the p99 without an attack.
const SLOWDOWN: f64 = 2.0;

/// The target for the resident memory of the server, in MiB.
const RESIDENT: f64 = 256.0;

/// The time-out of one attack, including its preparation.
const PATIENCE: Duration = Duration::from_secs(400);

/// How many file descriptors the attacker needs.
const DESCRIPTORS: usize = 4_096;

/// Attack a server, and measure the latency of bystanders
///
/// Each attack has its own server with the default configuration. Two bystanders read a small file every 5 ms, one from
/// another address (127.0.0.2) and one from the attacker's (127.0.0.1). Their latencies are compared before, during and
/// after the attack, and while an attacker only holds what it has got, as are the resident memory, descriptors and threads of the server. A third bystander reads from a
/// second server that is not attacked, the control: if it slows down too, the cause is the machine. A p99 is the median
/// of the p99 of each second. Attackers run only when nobody else needs the processor (`SCHED_IDLE`), as if they had
/// their own machine. Slow bystanders and large servers are shown in the table; the run fails only if something leaked.
/// A server may use at most 14 GiB of address space, and attacks at full size need as much memory as the server uses:
/// choose a smaller `--scale` on a small machine.
#[derive(Debug, Args)]
#[command(after_long_help = "Attacks, to be named with --only:
  none           no attack, to show what the machine does by itself
  ignored        the server has no descriptor left while `.gitignore`d files are asked for
  root-race      the served folder and a link to one outside are exchanged as fast as possible
  slow-command   1,000 reads of a command that takes 8 s
  sparse-lines   64 reads of `?lines=3000-` of a sparse file of 1 TB
  untaken-h2     2,000 reads of 8 MiB over HTTP/2 that are not taken
  bodies         500 bodies of 4 MiB that lack their last byte
  bodies-h2      384 of them over three connections of HTTP/2
  subscriptions  50 sessions with 1,000 subscriptions of 8 KiB each
  listens        100 streams with 1,000 URIs of 4 KB each
  abandoned-sql  48 slow queries that nobody waits for, PostgreSQL and MariaDB where they are installed
  old-sse        25 clients of `--sse` that ask for 8 MiB twelve times and do not read
  sessions       one client opens 10,000 sessions and uses them all
  exhaustion     one client holds all that it can get of everything, while new clients arrive
  stalled        18, then 70 sockets that ask for 8 MiB and do not read
  git-fifo       repositories with a FIFO and with a sparse file of 4 GB among their refs
  million        100 lists at once of a folder of 1,000,000 files that keeps changing
  sqlite-huge    a query that gives a value of 900 MB
  sqlite-locked  1,000 reads of a locked database that are given up after 50 ms

Examples:
  cargo run --profile dist -p bench -- hostile --markdown hostile.md
  cargo run --profile dist -p bench -- hostile --pin --only listens,stalled
  cargo run --profile dist -p bench -- hostile --only ignored,root-race --scale 0.1")]
pub(crate) struct Options {
    /// Attack with this share of the full numbers
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share)]
    scale: f64,
    /// Give the attackers the last processor, and the servers and bystanders the others
    ///
    /// The server then never waits for a time slice behind an attacker. If bystanders still slow down, the cause is the
    /// server; the control, on the same processors, shows how much of it is only the processor time that the attacked
    /// server uses. A server starts as many threads as it has processors: on a machine with two of them, one.
    #[arg(long)]
    pin: bool,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.001..=1.0).contains(&share) => Ok(share),
        _ => Err("use a number from 0.001 to 1".to_owned()),
    }
}

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attack {
    None,
    Ignored,
    RootRace,
    SlowCommand,
    SparseLines,
    #[value(name = "untaken-h2")]
    UntakenHttp2,
    Bodies,
    #[value(name = "bodies-h2")]
    BodiesHttp2,
    Subscriptions,
    Listens,
    AbandonedSql,
    OldSse,
    Sessions,
    Exhaustion,
    Stalled,
    GitFifo,
    Million,
    SqliteHuge,
    SqliteLocked,
}

impl Attack {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    async fn run(self, stage: &Stage<'_>) -> Result<Outcome> {
        match self {
            Self::None => none(stage).await,
            Self::Ignored => folders::ignored(stage).await,
            Self::RootRace => folders::root_race(stage).await,
            Self::SlowCommand => programs::slow_command(stage).await,
            Self::SparseLines => folders::sparse_lines(stage).await,
            Self::UntakenHttp2 => unread::over_http2(stage).await,
            Self::Bodies => bodies::over_http1(stage).await,
            Self::BodiesHttp2 => bodies::over_http2(stage).await,
            Self::Subscriptions => subscriptions::of_sessions(stage).await,
            Self::Listens => subscriptions::of_streams(stage).await,
            Self::AbandonedSql => databases::abandoned(stage).await,
            Self::OldSse => unread::old_sse(stage).await,
            Self::Sessions => sessions::run(stage).await,
            Self::Exhaustion => exhaustion::run(stage).await,
            Self::Stalled => unread::stalled(stage).await,
            Self::GitFifo => programs::git_fifo(stage).await,
            Self::Million => folders::million(stage).await,
            Self::SqliteHuge => databases::huge_value(stage).await,
            Self::SqliteLocked => databases::locked(stage).await,
        }
    }
}

/// The parameters of all attacks.
struct Stage<'b> {
    binary: &'b Binary,
    scale: f64,
}

impl Stage<'_> {
    /// A number of the full-size attack, scaled; at least one.
    fn scaled(&self, full: usize) -> usize {
        ((full as f64 * self.scale).round() as usize).max(1)
    }

    /// A duration of the full-size attack, scaled; at least three seconds, unless the full one is shorter.
    fn time(&self, full: Duration) -> Duration {
        full.mul_f64(self.scale).max(Duration::from_secs(3)).min(full)
    }
}

/// The result of an attack.
struct Outcome {
    /// `None` if the attack was skipped or failed.
    measured: Option<Measured>,
    /// What the attacker saw.
    observed: String,
    /// How often the server revealed something that it must not.
    leaks: usize,
}

impl Outcome {
    fn new(measured: Measured, observed: String) -> Self {
        Self { measured: Some(measured), observed, leaks: 0 }
    }

    fn skipped(why: &str) -> Self {
        Self { measured: None, observed: format!("skipped: {why}"), leaks: 0 }
    }
}

/// No attack: shows how much latencies vary by themselves.
async fn none(stage: &Stage<'_>) -> Result<Outcome> {
    let target = Site::new()?.serve(stage)?;
    let watch = Watch::begin(&target).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    Ok(Outcome::new(watch.end().await?, "no attack".to_owned()))
}

/// Runs the named attacks, or all.
pub(crate) async fn run(
    options: &Options,
    only: &[Attack],
    binary: &Binary,
    report: &mut Report,
) -> Result<()> {
    machine::raise_open_files(DESCRIPTORS)?;
    priority::lower(options.pin)?;
    let stage = Stage { binary, scale: options.scale };
    let title = format!(
        "Attacks at {} × the full size: before → during → held → after, times in ms, memory in MiB",
        shown(options.scale)
    );
    let mut table = Table::new(title, COLUMNS);
    let (mut leaks, mut failed) = (0, Vec::new());
    let (mut made, mut quick, mut small) = (0.0, 0.0, 0.0);
    for &attack in Attack::value_variants() {
        if !only.is_empty() && !only.contains(&attack) {
            continue;
        }
        eprintln!("{} …", attack.name());
        let outcome = tokio::time::timeout(PATIENCE, attack.run(&stage)).await;
        let outcome = outcome.unwrap_or_else(|_| bail!("it took longer than {PATIENCE:?}"));
        let outcome = outcome.with_context(|| format!("the attack `{}`", attack.name()));
        let row = match outcome {
            Ok(outcome) => {
                leaks += outcome.leaks;
                if let Some(measured) = &outcome.measured {
                    made += 1.0;
                    quick += f64::from(u8::from(is_quick(measured)));
                    small += f64::from(u8::from(is_small(measured)));
                }
                let slowdown = outcome.measured.as_ref().and_then(Measured::slowdown);
                if let Some(slowdown) = slowdown.filter(|_| attack == Attack::Exhaustion) {
                    // Judged more strictly than the others: a client that only holds what it has got takes no time of the
                    // processor.
                    let name =
                        "p99 of another address while one client holds all it can get, compared with before";
                    report.judge(name, slowdown.of_before, "×", Aim::AtMost(SLOWDOWN));
                }
                row(attack, &outcome)
            }
            Err(error) => {
                let observed = format!("failed: {error:#}");
                failed.push(observed.clone());
                row(attack, &Outcome { measured: None, observed, leaks: 0 })
            }
        };
        let shown: Vec<_> =
            COLUMNS.iter().zip(&row).map(|(column, cell)| format!("{column}: {cell}")).collect();
        eprintln!("  {}", shown.join("\n  "));
        table.row(row);
    }
    report.table(table);
    report.add("attacks made", made, "");
    report.judge("attacks that slow a bystander down by 2 × at most", quick, "", Aim::AtLeast(made));
    report.judge("attacks that the server survives within 256 MiB", small, "", Aim::AtLeast(made));
    report.judge("leaks", leaks as f64, "", Aim::AtMost(0.0));
    ensure!(leaks == 0, "the server gave away what it must not, {leaks} times");
    ensure!(failed.is_empty(), "attacks could not be made: {}", failed.join("; "));
    Ok(())
}

const COLUMNS: [&str; 13] = [
    "attack",
    "bystander p50",
    "bystander p99",
    "p99, attacker's address",
    "p99, control",
    "resident",
    "peak",
    "descriptors",
    "threads",
    "p99 / before, / control",
    "p99 ≤ 2 ×",
    "≤ 256 MiB",
    "what the attacker saw",
];

fn row(attack: Attack, outcome: &Outcome) -> Vec<Cell> {
    let text = |text: String| Cell::Text(text);
    let mut observed = outcome.observed.replace('|', "/");
    if outcome.leaks > 0 {
        observed = format!("**{} leaks**; {observed}", outcome.leaks);
    }
    let Some(measured) = &outcome.measured else {
        let cells = std::iter::repeat_n(text(nothing()), COLUMNS.len() - 2);
        return [text(attack.name())].into_iter().chain(cells).chain([text(observed)]).collect();
    };
    let verdict = |good: bool| text(if good { "yes" } else { "**no**" }.to_owned());
    let usages = &measured.usages;
    let each = |show: &dyn Fn(Usage) -> f64| {
        let phases = usages.phases.map(|usage| usage.map_or_else(nothing, |usage| shown(show(usage))));
        text(phases.join(" → "))
    };
    vec![
        text(attack.name()),
        text(times(&measured.elsewhere, 0.5)),
        text(times(&measured.elsewhere, 0.99)),
        text(times(&measured.beside, 0.99)),
        text(times(&measured.control, 0.99)),
        each(&|usage| mebibytes(usage.memory).round()),
        text(shown(mebibytes(usages.peak).round())),
        each(&|usage| usage.descriptors as f64),
        each(&|usage| usage.threads as f64),
        text(measured.slowdown().map_or_else(nothing, |slowdown| {
            format!("{} / {}", shown(slowdown.of_before), shown(slowdown.of_control))
        })),
        verdict(is_quick(measured)),
        verdict(is_small(measured)),
        text(if usages.ended { format!("**the server ended**; {observed}") } else { observed }),
    ]
}

/// A percentile of the latencies in each phase, and how many requests failed.
fn times(experiences: &Experiences, share: f64) -> String {
    let all = Phase::ALL.map(|phase| {
        let experience = &experiences[phase as usize];
        let time = experience.percentile(share).map_or_else(nothing, shown);
        match experience.errors {
            errors @ 1.. if share > 0.5 => format!("{time} ({errors} failed)"),
            _ => time,
        }
    });
    all.join(" → ")
}

/// The cell of what was not measured.
fn nothing() -> String {
    "–".to_owned()
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Whether bystanders were served quickly. An attack without samples was over before a bystander sent a request.
fn is_quick(measured: &Measured) -> bool {
    measured.slowdown().is_none_or(|slowdown| slowdown.smaller() <= SLOWDOWN)
        && measured.errors() == 0
        && !measured.usages.ended
}

fn is_small(measured: &Measured) -> bool {
    mebibytes(measured.usages.peak) <= RESIDENT && !measured.usages.ended
}
