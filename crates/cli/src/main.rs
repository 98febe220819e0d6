//! The `libris` command: it parses, calls one function, and returns an exit code.

mod check;
mod config;
mod log;
mod reload;
mod serve;
mod terminal;
mod triggers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Your data as MCP resources: point it at a folder or a database, and any MCP client can list, complete
/// and read it.
#[derive(Debug, Parser)]
#[command(name = "libris", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: log::Options,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Options),
    Check(check::Options),
    Triggers(triggers::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = arguments.log.start() {
        return terminal::fail(&error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => return terminal::fail(&anyhow::Error::new(cause).context("could not start")),
    };
    let outcome = runtime.block_on(async {
        match arguments.command {
            Command::Serve(options) => serve::run(options).await,
            Command::Check(options) => check::run(options).await,
            Command::Triggers(options) => triggers::run(options).await,
        }
    });
    #[cfg(unix)]
    libris_sources::command::kill_all();
    // A read of standard input cannot be interrupted, so nothing waits for it.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => terminal::fail(&error),
    }
}
