//! Benchmarks: compares Libris with its targets (aims), with other servers (peers) and with lower bounds (limits). This
//! file parses the command line, runs the benchmarks and prints the report.
//!
//! A benchmark is a folder with a function `run` that fills a [`Report`]; modules that several benchmarks use are beside
//! this file. Everything runs on loopback and in temporary folders, and is limited in number and time.

mod chart;
mod cluster;
mod compare;
#[path = "../../crates/sources/tests/sql/server.rs"]
#[expect(dead_code, reason = "the tests of the source need more of it")]
mod database_server;
mod documents;
mod drive;
mod embedded;
mod git;
mod growth;
mod hostile;
mod http;
mod limit;
mod live;
mod machine;
mod mcp;
mod minimal;
mod process;
mod program;
mod report;
mod search;
mod servers;
mod shelf;
mod sources;
mod start;
mod statistics;
mod table;
mod tasks;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::mcp::{Era, Sender};
use crate::program::Binary;
use crate::report::Report;
use crate::servers::{Server, Servers};
use crate::tree::Trees;

/// Compare Libris with its targets, with other servers and with lower bounds
///
/// Each benchmark starts the `libris` binary, built with the profile `dist`, on free ports of this machine and in
/// temporary folders, prints Markdown tables, and exits. Other servers are installed from their registries when they
/// are first needed. A missed target (`aim`) is shown in the table and is not a failure; a missing or wrong response
/// or notification is.
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    max_term_width = 100,
    after_help = "Examples:
  cargo run --profile dist -p bench                        compare, start and growth
  cargo run --profile dist -p bench -- --quick             a quick look at them
  cargo run --profile dist -p bench -- compare --only libris,limit --workload read-1k
                                                           two servers, reads of 1 KiB
  cargo run --profile dist -p bench -- compare --only embedded --workload read-1k
                                                           identified beside anonymous callers
  cargo run --profile dist -p bench -- --json all.json --markdown all.md --svg all.svg
                                                           and the numbers in files
  cargo run --profile dist -p bench -- live                everything about live resources
  cargo run --profile dist -p bench -- git                 a large git repository, beside `git`
  cargo run --profile dist -p bench -- sources             each source beside its own limit
  cargo run --profile dist -p bench -- documents           the text of real documents, beside `pdftotext`
  cargo run --profile dist -p bench -- cluster             replicas on Redis; needs `redis-server`
  cargo run --profile dist -p bench -- search              quality and cost of search, beside plain BM25
  cargo run --profile dist -p bench -- tasks               questions answered with tools, and bundles
  cargo run --profile dist -p bench -- hostile --scale 0.1 attacks on a server, a tenth of each

The server is built with `cargo build --profile dist -p libris-cli` before it is measured. To measure another
binary, set the environment variable LIBRIS_BIN to its path."
)]
struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    output: Output,
    /// Only these servers, separated by commas; for `hostile`, only these attacks
    ///
    /// Servers: limit, reading-limit, libris, embedded, rmcp, typescript, typescript1, python, fastmcp, gateway,
    /// uncached-gateway, stdio-gateway, mcp-proxy.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', global = true)]
    only: Vec<String>,
    /// Measure fewer and shorter turns, and no folder of a million files: quick, but imprecise
    #[arg(long, global = true)]
    quick: bool,
    /// Keep the generated folders for the next run
    #[arg(long, global = true)]
    keep: bool,
}

/// Files for the results, in addition to standard output.
#[derive(Debug, Args)]
struct Output {
    /// Also write the numbers to this file, as JSON
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
    /// Also write the tables to this file, as Markdown
    #[arg(long, value_name = "FILE", global = true)]
    markdown: Option<PathBuf>,
    /// Also write a chart of the comparison to this file, as SVG
    #[arg(long, value_name = "FILE", global = true)]
    svg: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    Compare(compare::Options),
    /// The time from the start of each server to its first response, and to the end of a list of 100,000 files
    Start,
    /// The cost of operations, and of a resource, with a thousand to a million resources
    Growth,
    /// A git repository of 100,000 files and 2,000 commits, compared with the `git` program
    Git,
    /// Each source compared with its lower bound, and with the reference servers for git and SQLite and FastMCP
    Sources,
    Documents(documents::Options),
    Cluster(cluster::Options),
    Live(live::Options),
    Search(search::Options),
    /// A scripted host that answers questions with the tools, and the passages that bundles contain
    Tasks,
    Hostile(hostile::Options),
    #[command(flatten)]
    Serve(Serve),
}

/// Hidden subcommands: this program is also some of the servers that it measures.
#[derive(Debug, Subcommand)]
enum Serve {
    #[command(hide = true)]
    LimitHttp {
        folder: PathBuf,
        #[arg(long)]
        fresh: bool,
    },
    #[command(hide = true)]
    LimitStdio { folder: PathBuf },
    #[command(hide = true)]
    LimitSqlite { file: PathBuf },
    #[command(hide = true)]
    LimitGit { repository: PathBuf },
    #[command(hide = true)]
    LimitCatFile { repository: PathBuf },
    #[command(hide = true)]
    LimitPostgres { url: String },
    #[command(hide = true)]
    LimitProxy { upstream: String },
    #[command(hide = true)]
    UncachedApi,
    #[command(hide = true)]
    RmcpHttp {
        folder: PathBuf,
        era: Era,
        #[arg(long)]
        fresh: bool,
        #[arg(long)]
        cacheable: bool,
    },
    #[command(hide = true)]
    RmcpStdio { folder: PathBuf },
    #[command(hide = true)]
    EmbeddedHttp { folder: PathBuf, sender: Sender },
    #[command(hide = true)]
    SearchPart { part: search::LargePart, folder: PathBuf, documents: usize },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(What::Serve(which)) = &arguments.what {
        return serve(which);
    }
    let binary = Binary::find()?;
    let mut report = Report::new(binary.version()?);
    let outcome = match &arguments.what {
        Some(What::Live(options)) => runtime()?.block_on(live::run(options, &binary, &mut report)),
        Some(What::Hostile(options)) => {
            let attacks = named(&arguments.only)?;
            runtime()?.block_on(hostile::run(options, &attacks, &binary, &mut report))
        }
        Some(What::Search(options)) => search::run(options, &mut report),
        Some(What::Tasks) => tasks::run(&binary, &mut report),
        Some(What::Git) => git::run(arguments.quick, &binary, &mut report),
        Some(What::Cluster(options)) => cluster::run(options, arguments.quick, &binary, &mut report),
        Some(What::Sources) => sources::run(arguments.quick, &binary, &mut report),
        Some(What::Documents(options)) => documents::run(options, &binary, &mut report),
        what => measure(what.as_ref(), arguments, &binary, &mut report),
    };
    // Shows also what was measured before a failure.
    if !report.is_empty() {
        arguments.output.write(&report)?;
        println!("{report}");
    }
    outcome
}

/// Runs a benchmark that compares servers, or all of them.
fn measure(what: Option<&What>, arguments: &Arguments, binary: &Binary, report: &mut Report) -> Result<()> {
    let quick = arguments.quick;
    let trees = Trees::new(arguments.keep)?;
    let servers = Servers::new(&named::<Server>(&arguments.only)?, binary)?;
    report.table(servers.table()?);
    let everything = what.is_none();
    if let Some(What::Compare(options)) = what {
        compare::run(options, quick, &servers, report)?;
    } else if everything {
        compare::run(&compare::Options::default(), quick, &servers, report)?;
    }
    if everything || matches!(what, Some(What::Start)) {
        start::run(quick, &servers, &trees, report)?;
    }
    if everything || matches!(what, Some(What::Growth)) {
        growth::run(quick, &servers, &trees, report)?;
    }
    Ok(())
}

/// Parses the names of servers or attacks.
fn named<T: ValueEnum>(names: &[String]) -> Result<Vec<T>> {
    let named = |name: &String| {
        T::from_str(name, true).map_err(|_| {
            let known = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let known: Vec<_> = known.map(|value| value.get_name().to_owned()).collect();
            anyhow!("there is no `{name}`\nhint: name some of {}", known.join(", "))
        })
    };
    names.iter().map(named).collect()
}

impl Output {
    fn write(&self, report: &Report) -> Result<()> {
        let put =
            |path: &Option<PathBuf>, text: String| path.as_deref().map_or(Ok(()), |path| put(path, &text));
        put(&self.json, format!("{:#}\n", report.json()))?;
        put(&self.markdown, report.to_string())?;
        put(&self.svg, report.picture())
    }
}

fn put(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("could not write `{}`", path.display()))
}

fn serve(which: &Serve) -> Result<()> {
    match which {
        Serve::LimitHttp { folder, fresh } => runtime()?.block_on(limit::over_http(folder, *fresh)),
        Serve::LimitStdio { folder } => limit::over_stdio(folder),
        Serve::LimitSqlite { file } => runtime()?.block_on(sources::limit_of_sqlite(file)),
        Serve::LimitGit { repository } => runtime()?.block_on(sources::limit_of_git(repository)),
        Serve::LimitCatFile { repository } => runtime()?.block_on(sources::limit_of_cat_file(repository)),
        Serve::LimitPostgres { url } => runtime()?.block_on(sources::limit_of_postgres(url)),
        Serve::LimitProxy { upstream } => runtime()?.block_on(sources::limit_of_proxy(upstream)),
        Serve::UncachedApi => runtime()?.block_on(sources::uncached_api()),
        Serve::RmcpHttp { folder, era, fresh, cacheable } => {
            runtime()?.block_on(minimal::over_http(folder, *era, *fresh, *cacheable))
        }
        Serve::RmcpStdio { folder } => runtime()?.block_on(minimal::over_stdio(folder)),
        Serve::SearchPart { part, folder, documents } => search::part(*part, folder, *documents),
        Serve::EmbeddedHttp { folder, sender } => runtime()?.block_on(embedded::over_http(folder, *sender)),
    }
}

/// A runtime like the one in which Libris runs: multi-threaded, with default settings.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("could not start")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{CommandFactory as _, Parser as _, ValueEnum as _};

    use super::{Arguments, Server};

    #[test]
    fn the_commands_in_the_manual_are_valid() {
        let mut checked = 0;
        for page in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")).unwrap() {
            let path = page.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for line in text.lines() {
                let Some(rest) = line.strip_prefix("cargo run --profile dist -p bench") else { continue };
                // A comment is set off by spaces.
                let words = rest.split("  ").next().unwrap().trim();
                let words = words.strip_prefix("-- ").unwrap_or(words).split_whitespace();
                let parsed = Arguments::try_parse_from(std::iter::once("bench").chain(words));
                assert!(parsed.is_ok(), "{}: `{line}` {parsed:?}", path.display());
                checked += 1;
            }
        }
        assert!(checked >= 10, "only {checked} commands were found");
    }

    #[test]
    fn the_help_lists_every_server() {
        let help = Arguments::command().render_long_help().to_string();
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let servers = Server::value_variants().iter().filter_map(Server::to_possible_value);
        let servers: Vec<_> = servers.map(|server| server.get_name().to_owned()).collect();
        assert!(words.contains(&format!("Servers: {}", servers.join(", "))), "{help}");
    }
}
