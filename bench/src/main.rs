//! Measures Libris beside its aims: it parses, runs one benchmark, and shows what came out.
//!
//! A benchmark is a folder with an `Options` and a `run` that fills a [`Report`]; what several of them
//! need stands beside this file. Everything is on loopback and in temporary folders, and everything is
//! bounded in count and in time.

mod http;
mod live;
mod machine;
mod mcp;
mod process;
mod program;
mod report;
mod statistics;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::program::Binary;
use crate::report::Report;

/// Measure Libris beside its aims
///
/// Each benchmark starts the `libris` of a release build itself, on free ports of this machine and in
/// temporary folders, prints a Markdown table, and stops by itself. A missed aim is shown in the table
/// and is no failure; an answer or a notification that is missing is one.
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    max_term_width = 100,
    after_help = "Examples:
  cargo run --release -p bench -- live                     everything about live resources
  cargo run --release -p bench -- live --json live.json    and the numbers in a file
  cargo run --release -p bench -- live --streams 1000 --writes 50 --rounds 2
                                                           a quick look

The server is built by `cargo build --release -p libris-cli` before it is measured. Name another one in
the environment variable LIBRIS_BIN, and that one is measured as it is."
)]
struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Also write the numbers to this file, as JSON
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    Live(live::Options),
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
    let binary = Binary::find()?;
    let mut report = Report::new(binary.version()?);
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    let outcome = runtime.block_on(async {
        match &arguments.what {
            What::Live(options) => live::run(options, &binary, &mut report).await,
        }
    });
    // What was measured before something failed is worth a look too.
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", report.json());
        std::fs::write(path, text).with_context(|| format!("could not write `{}`", path.display()))?;
    }
    if !report.is_empty() {
        println!("{report}");
    }
    outcome
}
