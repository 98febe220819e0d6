//! The configuration file, and the sources it or the command line names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::{Catalog, Source};
use libris_sources::{Files, Inline, files, inline};
use serde::Deserialize;

use crate::terminal::advice;

/// The file that is looked for where none is named.
const DEFAULT: &str = "libris.toml";

/// What to serve.
#[derive(Debug, Args)]
pub(crate) struct What {
    /// What to serve: paths of folders
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// The configuration file; `libris.toml` here, if there is one and no SOURCE is named
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// How the server presents itself.
    pub(crate) server: Server,
    /// How HTTP is served.
    pub(crate) http: Http,
    /// Folders.
    files: Vec<files::Config>,
    /// Resources and templates that stand in this file.
    inline: inline::Config,
}

/// How the server presents itself.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    /// The server's name to programs.
    pub(crate) name: String,
    /// Its name to people.
    pub(crate) title: Option<String>,
    /// What it is.
    pub(crate) description: Option<String>,
    /// What a model should know about using it; a text about what is served where it is not said.
    pub(crate) instructions: Option<String>,
    /// How many resources or templates one page of a list holds.
    pub(crate) page_size: usize,
}

impl Default for Server {
    fn default() -> Self {
        Self { name: "libris".into(), title: None, description: None, instructions: None, page_size: 100 }
    }
}

/// How HTTP is served.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Http {
    /// Host names, beside `localhost` and IP addresses, under which the server may be asked.
    pub(crate) allow_hosts: Vec<String>,
    /// Origins, beside local ones and the server's own, whose pages may ask.
    pub(crate) allow_origins: Vec<String>,
}

/// Everything that is served.
pub(crate) struct Served {
    pub(crate) config: Config,
    pub(crate) catalog: Arc<Catalog>,
    /// The sources by what to call them.
    pub(crate) sources: Vec<(String, Arc<dyn Source>)>,
}

impl What {
    /// Reads the configuration and opens the sources.
    pub(crate) fn open(&self) -> Result<Served> {
        let named = self.config.clone().or_else(|| {
            (self.sources.is_empty() && Path::new(DEFAULT).is_file()).then(|| PathBuf::from(DEFAULT))
        });
        let (mut config, base) = match &named {
            Some(path) => (read(path)?, path.parent().unwrap_or(Path::new("")).to_owned()),
            None => (Config::default(), PathBuf::new()),
        };
        for folder in &mut config.files {
            folder.path = base.join(&folder.path);
        }
        config.files.extend(self.sources.iter().map(files::Config::new));
        let mut sources: Vec<(String, Arc<dyn Source>)> = Vec::new();
        for folder in &config.files {
            let shown = folder.path.display().to_string();
            let source = Files::open(folder.clone()).with_context(|| format!("could not serve `{shown}`"))?;
            sources.push((shown, Arc::new(source)));
        }
        let inline = std::mem::take(&mut config.inline);
        if !inline.resources.is_empty() || !inline.templates.is_empty() {
            let shown = named.as_deref().unwrap_or(Path::new(DEFAULT)).display().to_string();
            let source = Inline::new(inline, &base)
                .with_context(|| format!("could not serve what `{shown}` holds"))?;
            sources.push((shown, Arc::new(source)));
        }
        if sources.is_empty() {
            return Err(advice(
                "there is nothing to serve",
                format!("name a folder, as in `libris serve ./docs`, or write a `{DEFAULT}`"),
            ));
        }
        let catalog = Catalog::new(sources.iter().map(|(_, source)| source.clone()).collect());
        Ok(Served { config, catalog: Arc::new(catalog), sources })
    }
}

fn read(path: &Path) -> Result<Config> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("could not read `{shown}`"))?;
    toml::from_str(&text).map_err(|error| {
        let message = format!("`{shown}` is not a valid configuration\n{}", error.to_string().trim_end());
        match suggestion(error.message()) {
            Some(likely) => advice(message, format!("did you mean `{likely}`?")),
            None => anyhow::anyhow!(message),
        }
    })
}

/// The known key that an unknown one is most like, from a message such as "unknown field `a`, expected
/// one of `b`, `c`".
fn suggestion(message: &str) -> Option<&str> {
    let mut names = message.strip_prefix("unknown field")?.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    names
        .map(|known| (strsim::jaro_winkler(unknown, known), known))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}
