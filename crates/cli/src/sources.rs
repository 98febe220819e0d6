//! The sources that the command line and the configuration file define.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use clap::{Args, ValueHint};
use libris::Source;
use libris_sources::registry::{
    self, ConfigFile, Definition, KEYS, KeyedDefinition, OpenedSource, SourceRoot,
};

use crate::config::{self, Config};
#[cfg(feature = "text-documents")]
use crate::documents::DocumentLayer;
use crate::recognise::Argument;
use crate::terminal::{advice, shown};
use crate::unopened::UnopenedSource;

/// The configuration file that is read if none is given.
const DEFAULT_FILE: &str = "libris.toml";

/// The arguments that select sources.
#[derive(Clone, Debug, Args)]
pub(crate) struct SourceArguments {
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath, help = format!("What to serve: {}", forms()))]
    sources: Vec<OsString>,
    /// The configuration file [default: `libris.toml`, if it exists and no SOURCE is given]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The command line of an MCP server to start, whose resources are served too
    #[cfg(feature = "mcp")]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A source of the configuration: open, or unavailable because it could not be opened.
#[derive(Clone)]
pub(crate) struct ConfiguredSource {
    definition: Arc<Mutex<Box<dyn Definition>>>,
    key: &'static str,
    /// The name of the source in messages.
    pub(crate) label: String,
    /// The source, or an [`UnopenedSource`].
    pub(crate) source: Arc<dyn Source>,
    root: Option<SourceRoot>,
    /// The layer over the source that serves office documents and PDFs as text; `None` if it is off.
    #[cfg(feature = "text-documents")]
    documents: Option<DocumentLayer>,
    /// Why the source could not be opened; `None` if it is open.
    pub(crate) failure: Option<Arc<anyhow::Error>>,
}

/// A configuration with its sources.
pub(crate) struct OpenedConfig {
    pub(crate) config: Config,
    pub(crate) sources: Vec<ConfiguredSource>,
    /// The errors of the sources that could not be opened.
    pub(crate) errors: Vec<Arc<anyhow::Error>>,
}

impl ConfiguredSource {
    /// Loads the definition and opens the source, with the layers over it.
    pub(crate) fn open(KeyedDefinition { key, definition }: KeyedDefinition, layers: &SourceLayers) -> Self {
        #[cfg(not(feature = "text-documents"))]
        let SourceLayers {} = layers;
        let label = definition.label();
        let unopened = UnopenedSource::new(key, &label, definition.uri_prefix(), String::new());
        let mut source = Self {
            definition: Arc::new(Mutex::new(definition)),
            key,
            label,
            source: Arc::new(unopened),
            root: None,
            #[cfg(feature = "text-documents")]
            documents: layers.documents.clone(),
            failure: None,
        };
        source.open_again();
        source
    }

    /// Tries to open the source, and returns whether that succeeded.
    pub(crate) fn open_again(&mut self) -> bool {
        let (opened, prefix) = {
            let mut definition = lock(&self.definition);
            (load_and_open(&mut **definition, &self.label), definition.uri_prefix())
        };
        match opened {
            Ok(OpenedSource { source, root }) => {
                #[cfg(feature = "text-documents")]
                let source = match &self.documents {
                    // Another server decides itself what it serves as text.
                    Some(documents) if !self.is_server() => documents.over(source),
                    _ => source,
                };
                (self.source, self.root, self.failure) = (source, root, None);
                true
            }
            Err(error) => {
                let reason = error.chain().skip(1).map(ToString::to_string).collect::<Vec<_>>().join(": ");
                self.source = Arc::new(UnopenedSource::new(self.key, &self.label, prefix, reason));
                (self.root, self.failure) = (None, Some(Arc::new(error)));
                false
            }
        }
    }

    /// Whether this is another MCP server.
    #[cfg(feature = "text-documents")]
    pub(crate) fn is_server(&self) -> bool {
        self.key == "mcp"
    }

    /// The source, with the layer for documents also if it is another server.
    #[cfg(feature = "text-documents")]
    pub(crate) fn with_documents(&self) -> Arc<dyn Source> {
        match &self.documents {
            Some(documents) if self.is_server() => documents.over(self.source.clone()),
            _ => self.source.clone(),
        }
    }

    /// A hint if another kind of source would serve more: `git:` for a folder that is a repository.
    pub(crate) fn tip(&self) -> Option<String> {
        let is_repository = self.key == "files" && Path::new(&self.label).join(".git").exists();
        let path = shown(&self.label);
        (is_repository && KEYS.contains(&"git")).then(|| {
            format!("`{path}` is a git repository: `git:{path}` serves its branches, history and diffs")
        })
    }

    /// Whether the definition of this source equals `definition`.
    fn is_defined_by(&self, definition: &dyn Definition) -> bool {
        definition.equals(&**lock(&self.definition) as &dyn Any)
    }
}

/// The layers that opened sources are wrapped in. The sources share the caches of the layers.
#[derive(Clone)]
pub(crate) struct SourceLayers {
    #[cfg(feature = "text-documents")]
    documents: Option<DocumentLayer>,
}

impl SourceLayers {
    /// The layers of a configuration.
    pub(crate) fn new(config: &Config) -> Self {
        #[cfg(not(feature = "text-documents"))]
        let _ = config;
        Self {
            #[cfg(feature = "text-documents")]
            documents: DocumentLayer::new(&config.documents, config.cache_folder.clone()),
        }
    }

    /// The layers for a reload: those of the open sources, so that the caches are kept. Changed settings of the layers
    /// take effect at the next start.
    fn of(open: &[ConfiguredSource], config: &Config) -> Self {
        match open.first() {
            None => Self::new(config),
            #[cfg(feature = "text-documents")]
            Some(open) => Self { documents: open.documents.clone() },
            #[cfg(not(feature = "text-documents"))]
            Some(_) => Self {},
        }
    }
}

fn load_and_open(definition: &mut dyn Definition, label: &str) -> Result<OpenedSource> {
    load(definition).with_context(|| format!("could not read `{label}`"))?;
    definition.open().with_context(|| format!("could not serve `{label}`"))
}

fn load(definition: &mut dyn Definition) -> libris::Result<()> {
    // Blocking is acceptable, also on a reload while the server runs: `block_in_place` leaves the other workers free
    // for other tasks.
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(definition.load()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SourceArguments {
    /// The sources of a configuration file.
    pub(crate) fn of_config(config: Option<PathBuf>) -> Self {
        Self {
            sources: Vec::new(),
            config,
            #[cfg(feature = "mcp")]
            command: Vec::new(),
        }
    }

    /// The configuration file, given or default.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let default = || {
            (self.names_nothing() && Path::new(DEFAULT_FILE).is_file()).then(|| PathBuf::from(DEFAULT_FILE))
        };
        self.config_files().into_iter().next().or_else(default)
    }

    /// Whether no source is given.
    fn names_nothing(&self) -> bool {
        #[cfg(feature = "mcp")]
        let has_command = !self.command.is_empty();
        #[cfg(not(feature = "mcp"))]
        let has_command = false;
        self.sources.is_empty() && !has_command
    }

    /// The configuration files that are given, with `--config` or as a SOURCE.
    fn config_files(&self) -> Vec<PathBuf> {
        let named = self.sources.iter().filter_map(|source| match Argument::recognise(source) {
            Argument::Config(file) => Some(file),
            Argument::Source(_) => None,
        });
        self.config.iter().cloned().chain(named).collect()
    }

    /// The arguments that select the same sources in any working directory, without the command after `--`.
    pub(crate) fn absolute(&self) -> Vec<String> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let source = |source: &OsString| {
            let text = source.to_string_lossy().into_owned();
            match text.split_once(':') {
                _ if Path::new(source).exists() => absolute(Path::new(source)).display().to_string(),
                Some((kind, path)) if Path::new(path).exists() => {
                    format!("{kind}:{}", absolute(Path::new(path)).display())
                }
                _ => text,
            }
        };
        let config = self.config.clone().or_else(|| self.file().filter(|_| self.names_nothing()));
        let config = config.map(|file| ["--config".to_owned(), absolute(&file).display().to_string()]);
        config.into_iter().flatten().chain(self.sources.iter().map(source)).collect()
    }

    /// The command line that serves the same sources over stdio in any working directory.
    pub(crate) fn stdio_command(&self, program: &Path) -> Vec<String> {
        let mut command = vec![program.display().to_string(), "serve".to_owned()];
        command.extend(self.absolute());
        command.push("--stdio".to_owned());
        let started = self.command();
        if !started.is_empty() {
            command.push("--".to_owned());
            command.extend(started);
        }
        command
    }

    /// Reads the configuration and opens its sources and those on the command line. A source that cannot be opened is
    /// unavailable, and does not affect the others.
    ///
    /// `open` are the sources that are open already. A source is reused if its definition is unchanged, or if the new
    /// definition with the same label cannot be opened.
    pub(crate) fn open(&self, open: &[ConfiguredSource]) -> Result<OpenedConfig> {
        let (config, definitions) = self.definitions()?;
        let layers = SourceLayers::of(open, &config);
        let (mut sources, mut errors) = (Vec::with_capacity(definitions.len()), Vec::new());
        for mut keyed in definitions {
            let is_open = |open: &&ConfiguredSource| open.failure.is_none();
            let is_loaded = !open.is_empty() && load(&mut *keyed.definition).is_ok();
            let is_unchanged = |open: &&ConfiguredSource| is_loaded && open.is_defined_by(&*keyed.definition);
            if let Some(unchanged) = open.iter().filter(is_open).find(is_unchanged) {
                sources.push(unchanged.clone());
                continue;
            }
            let new = ConfiguredSource::open(keyed, &layers);
            let before = open.iter().filter(is_open).find(|open| open.label == new.label);
            errors.extend(new.failure.clone());
            sources.push(match before.filter(|_| new.failure.is_some()) {
                Some(before) => before.clone(),
                None => new,
            });
        }
        check_roots(&sources)?;
        Ok(OpenedConfig { config, sources, errors })
    }

    /// Opens the sources that a shell may query when a user presses the Tab key: those that are named on the command line,
    /// and those of a configuration file that only read local files. No program is started, not even that after `--`, and
    /// no credentials that a configuration file names are sent anywhere: the file may come from somebody else.
    pub(crate) fn open_for_completion(&self) -> Result<Vec<ConfiguredSource>> {
        const LOCAL: [&str; 4] = ["files", "git", "inline", "skills"];
        let (config, definitions) = self.definitions()?;
        let is_source = |argument: &&OsString| matches!(Argument::recognise(argument), Argument::Source(_));
        let command = usize::from(!self.command().is_empty());
        let named = self.sources.iter().filter(is_source).count();
        let (total, layers) = (definitions.len(), SourceLayers::new(&config));
        let from_file = total - named - command;
        let opened = definitions.into_iter().take(total - command).enumerate();
        let opened = opened.filter(|(index, keyed)| *index >= from_file || LOCAL.contains(&keyed.key));
        let opened = opened.map(|(_, keyed)| ConfiguredSource::open(keyed, &layers));
        Ok(opened.filter(|opened| opened.failure.is_none()).collect())
    }

    /// The arguments after `--`: the command line of a server.
    pub(crate) fn command(&self) -> Vec<String> {
        #[cfg(feature = "mcp")]
        return self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        #[cfg(not(feature = "mcp"))]
        Vec::new()
    }

    /// Opens the databases among the sources.
    #[cfg(feature = "postgres")]
    pub(crate) fn databases(&self) -> Result<Vec<libris_sources::Sql>> {
        let (_, definitions) = self.definitions()?;
        let databases = definitions.iter().filter_map(|keyed| {
            (&*keyed.definition as &dyn Any).downcast_ref::<libris_sources::sql::DatabaseDefinition>()
        });
        databases
            .map(|database| database.open().with_context(|| format!("could not open `{}`", database.label())))
            .collect()
    }

    /// Reads the configuration: the definitions of its sources and of those on the command line.
    pub(crate) fn definitions(&self) -> Result<(Config, Vec<KeyedDefinition>)> {
        if let [one, other, ..] = &self.config_files()[..] {
            return Err(advice(
                format!("there are two configuration files, `{}` and `{}`", one.display(), other.display()),
                "name one, and copy the sources of the other into it",
            ));
        }
        let file = self.file();
        let mut config = file.as_deref().map(config::read).transpose()?.unwrap_or_default();
        let file = ConfigFile { path: file.unwrap_or_default() };
        config.cache_folder = config.cache_folder.map(|folder| file.resolve(folder));
        if let Some(search) = &mut config.search {
            search.model = search.model.take().map(|folder| file.resolve(folder));
        }
        let mut definitions = std::mem::take(&mut config.sources).definitions(&file);
        for source in &self.sources {
            if let Argument::Source(source) = Argument::recognise(source) {
                definitions.push(define(&source)?);
            }
        }
        #[cfg(feature = "mcp")]
        if !self.command.is_empty() {
            let definition =
                Box::new(libris_sources::mcp::ServerDefinition::of_command(self.command.clone()));
            definitions.push(KeyedDefinition { key: "mcp", definition });
        }
        if definitions.is_empty() {
            return Err(advice(
                "there is nothing to serve",
                format!(
                    "name a folder or a database, as in `libris serve ./docs`, or create a `{DEFAULT_FILE}`"
                ),
            ));
        }
        Ok((config, definitions))
    }
}

/// The source that an argument of the command line names.
fn define(argument: &OsStr) -> Result<KeyedDefinition> {
    registry::define(argument).ok_or_else(|| {
        let text = argument.to_string_lossy();
        // The text after the scheme may contain a password.
        let public = text.split_once("://").map_or(text.to_string(), |(scheme, _)| format!("{scheme}://"));
        advice(format!("`{public}` is not a supported source"), format!("name {}", forms()))
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
pub(crate) fn check_roots(opened: &[ConfiguredSource]) -> Result<()> {
    let mut seen = HashMap::new();
    for ConfiguredSource { root, label, .. } in opened {
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
