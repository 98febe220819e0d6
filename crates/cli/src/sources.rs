//! The sources that the command line and the configuration file define.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::Source;
use libris_sources::registry::{self, ConfigFile, Definition, SourceRoot};

use crate::config::{self, Config};
use crate::terminal::advice;

/// The configuration file that is read if none is given.
const DEFAULT_FILE: &str = "libris.toml";

/// The arguments that select sources.
#[derive(Debug, Args)]
pub(crate) struct SourceArguments {
    #[arg(value_name = "SOURCE", help = format!("What to serve: {}", forms()))]
    sources: Vec<OsString>,
    /// The configuration file [default: `libris.toml`, if it exists and no SOURCE is given]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// An open source.
#[derive(Clone)]
pub(crate) struct OpenSource {
    definition: Arc<dyn Definition>,
    /// The name of the source in messages.
    pub(crate) label: String,
    pub(crate) source: Arc<dyn Source>,
    root: Option<SourceRoot>,
}

impl OpenSource {
    fn open(definition: Box<dyn Definition>) -> Result<Self> {
        let label = definition.label();
        let opened = definition.open().with_context(|| format!("could not serve `{label}`"))?;
        Ok(Self { definition: definition.into(), label, source: opened.source, root: opened.root })
    }
}

impl SourceArguments {
    /// The configuration file, given or default.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| {
            (self.sources.is_empty() && Path::new(DEFAULT_FILE).is_file())
                .then(|| PathBuf::from(DEFAULT_FILE))
        })
    }

    /// Reads the configuration and opens its sources and those on the command line. `open` are the sources that are
    /// open already: those whose definition is unchanged are reused.
    pub(crate) fn open(&self, open: &[OpenSource]) -> Result<(Config, Vec<OpenSource>)> {
        let (config, definitions) = self.definitions()?;
        // The source that was opened with an equal definition.
        let reusable = |definition: &dyn Definition| {
            open.iter().find(|open| definition.equals(&*open.definition as &dyn Any))
        };
        let opened = definitions
            .into_iter()
            .map(|definition| match reusable(&*definition) {
                Some(open) => Ok(open.clone()),
                None => OpenSource::open(definition),
            })
            .collect::<Result<Vec<_>>>()?;
        check_roots(&opened)?;
        Ok((config, opened))
    }

    /// The databases among the sources.
    #[cfg(feature = "postgres")]
    pub(crate) fn databases(&self) -> Result<Vec<libris_sources::Sql>> {
        let (_, definitions) = self.definitions()?;
        let databases = definitions.iter().filter_map(|definition| {
            (&**definition as &dyn Any).downcast_ref::<libris_sources::sql::Database>()
        });
        databases
            .map(|database| database.open().with_context(|| format!("could not open `{}`", database.label())))
            .collect()
    }

    /// Reads the configuration, and loads the definitions of its sources and of those on the command line.
    fn definitions(&self) -> Result<(Config, Vec<Box<dyn Definition>>)> {
        let file = self.file();
        let mut config = file.as_deref().map(config::read).transpose()?.unwrap_or_default();
        let file = ConfigFile { path: file.unwrap_or_default() };
        let mut definitions = std::mem::take(&mut config.sources).definitions(&file);
        for source in &self.sources {
            definitions.push(define(source)?);
        }
        if definitions.is_empty() {
            return Err(advice(
                "there is nothing to serve",
                format!(
                    "name a folder or a database, as in `libris serve ./docs`, or create a `{DEFAULT_FILE}`"
                ),
            ));
        }
        for definition in &mut definitions {
            // Blocking is acceptable, also on a reload while the server runs: `block_in_place` leaves the other workers
            // free for other tasks.
            let loaded =
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(definition.load()));
            loaded.with_context(|| format!("could not read `{}`", definition.label()))?;
        }
        Ok((config, definitions))
    }
}

/// The source that an argument of the command line names.
fn define(argument: &OsStr) -> Result<Box<dyn Definition>> {
    registry::define(argument).ok_or_else(|| {
        let text = argument.to_string_lossy();
        // The text after the scheme may contain a password.
        let shown = text.split_once("://").map_or(text.to_string(), |(scheme, _)| format!("{scheme}://"));
        advice(format!("`{shown}` is not a supported source"), format!("name {}", forms()))
    })
}

/// The forms of the arguments that name sources, as a list in prose.
fn forms() -> String {
    let forms: Vec<_> = registry::command_lines().map(|line| line.form).collect();
    match &forms[..] {
        [] => "sources in a configuration file".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{}, or {last}", first.join(", ")),
    }
}

/// Examples for the help text: a line for each kind of source.
pub(crate) fn examples() -> String {
    let lines = registry::command_lines().map(|line| line.example);
    lines.map(|(argument, what)| example(&format!("libris serve {argument}"), what)).collect()
}

/// A line of examples in a help text.
pub(crate) fn example(command: &str, what: &str) -> String {
    format!("  {command:<43}  {what}\n")
}

/// Fails if two sources have the same root URI: clients could not tell their resources apart.
fn check_roots(opened: &[OpenSource]) -> Result<()> {
    let mut seen = HashMap::new();
    for OpenSource { root, label, .. } in opened {
        let Some(SourceRoot { uri, key }) = root else { continue };
        if let Some(other) = seen.insert(uri, label) {
            return Err(advice(
                format!("`{other}` and `{label}` would both have the URI `{uri}`"),
                format!("set a different `{key}` for one of them in a configuration file"),
            ));
        }
    }
    Ok(())
}
