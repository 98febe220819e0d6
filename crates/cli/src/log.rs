//! Logging, to standard error only: standard output carries the protocol.

use std::io::IsTerminal as _;

use anyhow::Result;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::terminal::advice;

/// The options for logging.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogOptions {
    /// The log level (error, warn, info, debug, trace, off), or a filter such as `libris_wire=debug`
    #[arg(long, global = true, env = "LIBRIS_LOG", default_value = "warn", value_name = "LEVEL")]
    log: String,
    /// The log format
    #[arg(long, global = true, default_value = "human", value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// Human-readable lines
    Human,
    /// One JSON object per line
    Json,
}

impl LogOptions {
    /// Installs the logger.
    pub(crate) fn start(&self) -> Result<()> {
        let filter = EnvFilter::builder().parse(&self.log).ok().filter(|_| !self.log.contains(' '));
        let known = ["error", "warn", "info", "debug", "trace", "off"];
        let plain = self.log.chars().all(char::is_alphabetic);
        let filter = filter.filter(|_| !plain || known.contains(&&*self.log.to_ascii_lowercase()));
        let Some(filter) = filter else {
            return Err(advice(
                format!("`{}` is not a log level", self.log),
                "use error, warn, info, debug, trace, off, or a filter such as `libris_wire=debug`",
            ));
        };
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            // A failure to write the log must not fail a request.
            .log_internal_errors(false)
            .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
        match self.log_format {
            LogFormat::Human => builder.init(),
            LogFormat::Json => builder.json().init(),
        }
        Ok(())
    }
}
