//! Logging, to standard error only: standard output carries the protocol.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use clap::{Args, ValueEnum};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::terminal::advice;
use crate::unopened;

/// The options for logging.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogOptions {
    /// The log level (error, warn, info, debug, trace, off), or a filter such as `libris_wire=debug` [default: warn;
    /// error for ls, read, templates, complete, prompts and info; off for check, whose report has the warnings]
    #[arg(long, global = true, env = "LIBRIS_LOG", value_name = "LEVEL")]
    log: Option<String>,
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
    /// Installs the logger. `default` is the level if none is given.
    pub(crate) fn start(&self, default: &str) -> Result<()> {
        let level = self.log.as_deref().unwrap_or(default);
        // `Targets` accepts any word as a target name, so a misspelt level would silently become a filter.
        let filter = level.parse::<Targets>().ok().filter(|_| !level.contains(' '));
        let known = ["error", "warn", "info", "debug", "trace", "off"];
        let is_word = level.chars().all(char::is_alphabetic);
        let filter = filter.filter(|_| !is_word || known.contains(&&*level.to_ascii_lowercase()));
        // `rmcp`, the MCP client library, is off unless the filter names it: Libris reports the same failures more
        // clearly, and the events of rmcp contain text from remote servers.
        let without_rmcp = |filter: Targets| filter.with_target("rmcp", LevelFilter::OFF);
        let filter = filter.map(|filter| if level.contains("rmcp") { filter } else { without_rmcp(filter) });
        let Some(filter) = filter else {
            return Err(advice(
                format!("`{level}` is not a log level"),
                "use error, warn, info, debug, trace, off, or a filter such as `libris_wire=debug`",
            ));
        };
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            // A failure to write the log must not fail a request.
            .log_internal_errors(false)
            .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
        let layer = match self.log_format {
            LogFormat::Human if std::io::stderr().is_terminal() => layer.with_filter(HideReported).boxed(),
            LogFormat::Human => layer.boxed(),
            LogFormat::Json => layer.json().boxed(),
        };
        let mut collected = without_rmcp(Targets::new().with_default(LevelFilter::WARN));
        // Only the report of `check` contains the entries that are left out. For other commands, sources do not collect
        // them.
        if default == OFF {
            collected = collected.with_target(LEFT_OUT, LevelFilter::DEBUG);
        }
        let collector = Collector.with_filter(collected);
        tracing_subscriber::registry().with(layer.with_filter(filter)).with(collector).init();
        Ok(())
    }
}

/// Drops warnings about sources that could not be opened: the command already printed each error and its hint to this
/// terminal.
struct HideReported;

impl<S> Filter<S> for HideReported {
    fn enabled(&self, _metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _context: &Context<'_, S>) -> bool {
        let mut text = EventText::default();
        event.record(&mut text);
        !text.reason.is_some_and(|reason| unopened::is_reason(&reason))
    }
}

/// Warnings since the last call of [`take_warnings`]; `None` until its first call.
static WARNINGS: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// The maximum number of warnings that are collected between two calls of [`take_warnings`].
const MAX_WARNINGS: usize = 1000;

/// The default log level of `check`, whose report has the warnings.
pub(crate) const OFF: &str = "off";

/// The target of the events about entries of folders that are not served.
const LEFT_OUT: &str = "libris_sources::left_out";

/// The entries of folders that are not served, with the reason of each, since the last call of [`take_left_out`].
static OMISSIONS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Takes the paths of the entries that were left out since the last call, with the reason of each.
pub(crate) fn take_left_out() -> BTreeMap<String, String> {
    std::mem::take(&mut *OMISSIONS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Takes the warnings since the last call. The first call starts the collection.
pub(crate) fn take_warnings() -> Vec<String> {
    let mut warnings = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    warnings.replace(Vec::new()).unwrap_or_default()
}

/// Collects warnings and errors for the report of `libris check`.
struct Collector;

impl<S: Subscriber> Layer<S> for Collector {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if event.metadata().target() == LEFT_OUT {
            let mut text = EventText::default();
            event.record(&mut text);
            let mut omissions = OMISSIONS.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(path), Some(why)) = (text.path, text.why)
                && omissions.len() < MAX_WARNINGS
            {
                omissions.insert(path, why);
            }
            return;
        }
        let mut warnings = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(warnings) = warnings.as_mut().filter(|warnings| warnings.len() < MAX_WARNINGS) else {
            return;
        };
        let mut text = EventText::default();
        event.record(&mut text);
        warnings.push(text.message + &text.fields);
    }
}

/// The message of an event, and its fields as ` (path: a/b) (cause: …)`.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
    /// The field `reason`.
    reason: Option<String>,
    /// The field `path`.
    path: Option<String>,
    /// The field `why`.
    why: Option<String>,
}

impl Visit for EventText {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "reason" => self.reason = Some(format!("{value:?}")),
            "path" => self.path = Some(format!("{value:?}")),
            "why" => self.why = Some(format!("{value:?}")),
            _ => {}
        }
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " ({name}: {value:?})"),
        };
    }
}
