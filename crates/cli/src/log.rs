//! Logging: to standard error only, since standard output belongs to the protocol.

use std::io::IsTerminal as _;

use anyhow::Result;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::terminal::advice;

/// How to log.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct Options {
    /// How much to log: error, warn, info, debug, trace, or a filter such as `libris_wire=debug`
    #[arg(long, global = true, env = "LIBRIS_LOG", default_value = "warn", value_name = "LEVEL")]
    log: String,
    /// The form of the log
    #[arg(long, global = true, default_value = "human", value_name = "FORMAT")]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Lines for people
    Human,
    /// A JSON object a line
    Json,
}

impl Options {
    /// Begins to log.
    pub(crate) fn start(&self) -> Result<()> {
        let filter = EnvFilter::builder().parse(&self.log).ok().filter(|_| !self.log.contains(' '));
        let known = ["error", "warn", "info", "debug", "trace", "off"];
        let plain = self.log.chars().all(char::is_alphabetic);
        let filter = filter.filter(|_| !plain || known.contains(&&*self.log.to_ascii_lowercase()));
        let Some(filter) = filter else {
            return Err(advice(
                format!("`{}` is no level to log at", self.log),
                "say error, warn, info, debug, trace, or a filter such as `libris_wire=debug`",
            ));
        };
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            // A log that cannot be written must not take a request down with it.
            .log_internal_errors(false)
            .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
        match self.log_format {
            Format::Human => builder.init(),
            Format::Json => builder.json().init(),
        }
        Ok(())
    }
}
