//! The configuration file, and the sources it or the command line names.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::{Source, Uri, catalog};
use libris_sources::http::openapi;
#[cfg(unix)]
use libris_sources::{Commands, command};
use libris_sources::{
    Files, Git, Http, Inline, Notion, Sql, files, git, http, inline, notion, regular_file, sql,
};
use serde::{Deserialize, Deserializer};

use crate::terminal::advice;

/// The file that is looked for where none is named.
const DEFAULT: &str = "libris.toml";

/// The most bytes of a configuration file.
const LARGEST: u64 = 4 << 20;

/// The longest time that changes are gathered for.
const LONGEST_WINDOW: Duration = Duration::from_secs(60 * 60);

/// The shortest and the longest time limit of a source.
const SOURCE_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(10 * 60);

/// What to serve.
#[derive(Debug, Args)]
pub(crate) struct What {
    /// What to serve: paths of folders, git repositories as `git:PATH`, databases as `sqlite:FILE`,
    /// `postgres://…` or `mysql://…`, and APIs as `openapi:FILE` or `openapi:URL`
    #[arg(value_name = "SOURCE")]
    sources: Vec<OsString>,
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
    /// How changes are told.
    pub(crate) live: Live,
    /// How HTTP is served.
    pub(crate) listen: Listen,
    /// Folders.
    files: Vec<files::Config>,
    /// Databases.
    sql: Vec<sql::Config>,
    /// Git repositories.
    git: Vec<git::Config>,
    /// HTTP APIs.
    http: Vec<http::Config>,
    /// HTTP APIs that an OpenAPI document describes.
    openapi: Vec<openapi::Config>,
    /// Resources and templates that stand in this file.
    inline: inline::Config,
    /// Programs whose output is served.
    #[cfg(unix)]
    command: Vec<command::Config>,
    /// A Notion workspace.
    notion: Option<notion::Config>,
}

/// How the server presents itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
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
    /// How many resources or templates one page of a list holds. From 1 to 10,000.
    #[serde(deserialize_with = "page_size")]
    pub(crate) page_size: usize,
    /// The size of the response cache in bytes; 0 disables it. At most 1 TiB.
    #[serde(deserialize_with = "cache_bytes")]
    pub(crate) cache_bytes: u64,
    /// How long a source may take to list its resources or templates, as in `"5s"`, before the others are listed
    /// without it. From 10 milliseconds to 10 minutes.
    #[serde(deserialize_with = "source_timeout")]
    pub(crate) source_timeout: Duration,
    /// Whether a source that fails makes the whole list fail.
    pub(crate) strict: bool,
}

impl Default for Server {
    fn default() -> Self {
        let libris::Config { name, page, cache_bytes, .. } = libris::Config::default();
        let catalog::Config { source_timeout, strict } = catalog::Config::default();
        Self {
            name,
            title: None,
            description: None,
            instructions: None,
            page_size: page,
            cache_bytes,
            source_timeout,
            strict,
        }
    }
}

/// How changes are told.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Live {
    /// The debounce window, as in `"50ms"`: changes within it cause one notification. At most an hour.
    #[serde(deserialize_with = "window")]
    pub(crate) window: Duration,
    /// How many resources one client may subscribe to. From 1 to 1,000,000.
    #[serde(deserialize_with = "subscriptions")]
    pub(crate) subscriptions: usize,
    /// How many bytes of memory the subscriptions of all clients may use.
    #[serde(deserialize_with = "subscription_bytes")]
    pub(crate) subscription_bytes: usize,
    /// How many bytes of memory the subscriptions of one client may use.
    #[serde(deserialize_with = "subscription_bytes")]
    pub(crate) client_subscription_bytes: usize,
}

impl Default for Live {
    fn default() -> Self {
        let libris::SubscriptionConfig {
            window,
            subscriptions,
            subscription_bytes,
            client_subscription_bytes,
            ..
        } = libris::SubscriptionConfig::default();
        Self { window, subscriptions, subscription_bytes, client_subscription_bytes }
    }
}

/// How HTTP is served.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Listen {
    /// Host names, beside `localhost` and IP addresses, under which the server may be asked.
    pub(crate) allow_hosts: Vec<String>,
    /// Origins, beside local ones and the server's own, whose pages may ask.
    pub(crate) allow_origins: Vec<String>,
}

fn page_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=10_000)
}

fn subscriptions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=1_000_000)
}

fn subscription_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(deserializer, 1..=1 << 40)
}

fn cache_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    within(deserializer, 0..=1 << 40)
}

/// A number that is out of bounds would otherwise be a panic later, or take all memory.
fn within<'de, D: Deserializer<'de>, N: TryFrom<u64>>(
    deserializer: D,
    bounds: RangeInclusive<u64>,
) -> Result<N, D::Error> {
    let number = i64::deserialize(deserializer)?;
    let inside = u64::try_from(number).ok().filter(|number| bounds.contains(number));
    inside.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
        let (least, most) = bounds.into_inner();
        serde::de::Error::custom(format!(
            "`{number}` is out of bounds; hint: say a number from {least} to {most}"
        ))
    })
}

fn window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let window = duration(&text, "50ms")?;
    match window > LONGEST_WINDOW {
        true => Err(serde::de::Error::custom(format!("`{text}` is out of bounds; hint: say at most `1h`"))),
        false => Ok(window),
    }
}

fn source_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let timeout = duration(&text, "5s")?;
    match SOURCE_TIMEOUTS.contains(&timeout) {
        true => Ok(timeout),
        false => Err(serde::de::Error::custom(format!(
            "`{text}` is out of bounds; hint: say a time from `10ms` to `10m`"
        ))),
    }
}

fn duration<E: serde::de::Error>(text: &str, example: &str) -> Result<Duration, E> {
    humantime::parse_duration(text)
        .map_err(|cause| E::custom(format!("`{text}` is not a duration such as `{example}`: {cause}")))
}

/// A source as it is configured.
#[derive(Clone, Debug, PartialEq)]
enum Configured {
    Files(files::Config),
    Sql {
        config: Box<sql::Config>,
        folder: PathBuf,
    },
    Git(git::Config),
    Http(Box<http::Config>),
    /// With the document as it was read, so that one that has changed is opened again.
    OpenApi {
        config: Box<openapi::Config>,
        document: String,
    },
    Inline {
        config: inline::Config,
        folder: PathBuf,
        file: PathBuf,
    },
    #[cfg(unix)]
    Commands {
        config: Vec<command::Config>,
        folder: PathBuf,
        file: PathBuf,
    },
    Notion(notion::Config),
}

/// A source that is open.
#[derive(Clone)]
pub(crate) struct Opened {
    configured: Configured,
    /// What to call it.
    pub(crate) name: String,
    pub(crate) source: Arc<dyn Source>,
    /// The URI that everything in it begins with, where there is one.
    root: Option<Uri>,
}

impl Configured {
    /// What a SOURCE of the command line stands for: a folder, unless it begins like something else.
    fn named(source: &OsStr) -> Result<Self> {
        let files = || Self::Files(files::Config::new(source));
        let Some(text) = source.to_str() else { return Ok(files()) };
        if sql::Url::is_meant(text) {
            return Ok(Self::Sql { config: Box::new(sql::Config::new(text)), folder: PathBuf::new() });
        }
        if let Some(path) = text.strip_prefix("git:") {
            return Ok(Self::Git(git::Config::new(path)));
        }
        if let Some(document) = text.strip_prefix("openapi:") {
            return Self::openapi(openapi::Config::new(document), Path::new(""));
        }
        match text.split_once("://") {
            // The rest may hold a password.
            Some((scheme, _)) if !Path::new(text).exists() => Err(advice(
                format!("`{scheme}://` is no source that can be served"),
                "name a folder by its path, a git repository as `git:PATH`, a database as `sqlite:FILE`, \
                 `postgres://…` or `mysql://…`, or an API as `openapi:FILE`",
            )),
            _ => Ok(files()),
        }
    }

    fn openapi(config: openapi::Config, folder: &Path) -> Result<Self> {
        // Nothing else is to be done before it is known what is to be served.
        let document = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(openapi::read(&config, folder))
        });
        let document = document.with_context(|| format!("could not read `openapi:{}`", config.document))?;
        Ok(Self::OpenApi { config: Box::new(config), document })
    }

    fn open(self) -> Result<Opened> {
        let name = match &self {
            Self::Files(config) => config.path.display().to_string(),
            Self::Sql { config, .. } => config.shown(),
            Self::Git(config) => format!("git:{}", config.path.display()),
            Self::Http(config) => {
                config.name.clone().or(config.base.clone()).unwrap_or_else(|| "[[http]]".to_owned())
            }
            Self::OpenApi { config, .. } => format!("openapi:{}", config.document),
            Self::Inline { file, .. } => file.display().to_string(),
            #[cfg(unix)]
            Self::Commands { file, .. } => file.display().to_string(),
            Self::Notion(_) => "Notion".to_owned(),
        };
        let failed = || format!("could not serve `{name}`");
        let (root, source): (_, Arc<dyn Source>) = match &self {
            Self::Files(config) => {
                let files = Files::open(config.clone()).with_context(failed)?;
                (Some(files.root().clone()), Arc::new(files))
            }
            Self::Sql { config, folder } => {
                let sql = Sql::open((**config).clone(), folder).with_context(failed)?;
                (Some(sql.root().clone()), Arc::new(sql))
            }
            Self::Git(config) => {
                let git = Git::open(config.clone()).with_context(failed)?;
                (Some(git.root().clone()), Arc::new(git))
            }
            Self::Http(config) => (None, Arc::new(Http::new((**config).clone()).with_context(failed)?)),
            Self::OpenApi { config, document } => {
                let config = openapi::derive(config, document).with_context(failed)?;
                (None, Arc::new(Http::new(config).with_context(failed)?))
            }
            Self::Inline { config, folder, .. } => {
                (None, Arc::new(Inline::new(config.clone(), folder).with_context(failed)?))
            }
            #[cfg(unix)]
            Self::Commands { config, folder, .. } => {
                (None, Arc::new(Commands::new(config.clone(), folder).with_context(failed)?))
            }
            Self::Notion(config) => (None, Arc::new(Notion::new(config.clone()).with_context(failed)?)),
        };
        Ok(Opened { configured: self, name, source, root })
    }
}

impl What {
    /// The configuration file, if there is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| {
            (self.sources.is_empty() && Path::new(DEFAULT).is_file()).then(|| PathBuf::from(DEFAULT))
        })
    }

    /// Reads the configuration and opens the sources. What is in `open` and configured as it was is
    /// kept as it is.
    pub(crate) fn open(&self, open: &[Opened]) -> Result<(Config, Vec<Opened>)> {
        let (config, wanted) = self.wanted()?;
        let kept = |configured: &Configured| open.iter().find(|opened| opened.configured == *configured);
        let opened = wanted
            .into_iter()
            .map(|configured| kept(&configured).cloned().map_or_else(|| configured.open(), Ok))
            .collect::<Result<Vec<_>>>()?;
        check_mounts(&opened)?;
        Ok((config, opened))
    }

    /// The databases among the sources.
    pub(crate) fn databases(&self) -> Result<Vec<Sql>> {
        let (_, wanted) = self.wanted()?;
        let databases = wanted.into_iter().filter_map(|configured| match configured {
            Configured::Sql { config, folder } => Some((config, folder)),
            _ => None,
        });
        databases
            .map(|(config, folder)| {
                let shown = config.shown();
                Sql::open(*config, &folder).with_context(|| format!("could not open `{shown}`"))
            })
            .collect()
    }

    /// Reads the configuration, and says what it and the command line name.
    fn wanted(&self) -> Result<(Config, Vec<Configured>)> {
        let file = self.file();
        let mut config = file.as_deref().map(read).transpose()?.unwrap_or_default();
        let folder = file.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
        let mut wanted = Vec::new();
        for mut files in std::mem::take(&mut config.files) {
            if !files.path.as_os_str().is_empty() {
                files.path = folder.join(&files.path);
            }
            wanted.push(Configured::Files(files));
        }
        for sql in std::mem::take(&mut config.sql) {
            wanted.push(Configured::Sql { config: Box::new(sql), folder: folder.clone() });
        }
        for mut git in std::mem::take(&mut config.git) {
            if !git.path.as_os_str().is_empty() {
                git.path = folder.join(&git.path);
            }
            wanted.push(Configured::Git(git));
        }
        wanted.extend(
            std::mem::take(&mut config.http).into_iter().map(|http| Configured::Http(Box::new(http))),
        );
        for openapi in std::mem::take(&mut config.openapi) {
            wanted.push(Configured::openapi(openapi, &folder)?);
        }
        for source in &self.sources {
            wanted.push(Configured::named(source)?);
        }
        let inline = std::mem::take(&mut config.inline);
        let file = file.unwrap_or_default();
        if !inline.resources.is_empty() || !inline.templates.is_empty() {
            let (folder, file) = (folder.clone(), file.clone());
            wanted.push(Configured::Inline { config: inline, folder, file });
        }
        #[cfg(unix)]
        if !config.command.is_empty() {
            wanted.push(Configured::Commands { config: std::mem::take(&mut config.command), folder, file });
        }
        wanted.extend(config.notion.take().map(Configured::Notion));
        if wanted.is_empty() {
            return Err(advice(
                "there is nothing to serve",
                format!("name a folder or a database, as in `libris serve ./docs`, or write a `{DEFAULT}`"),
            ));
        }
        Ok((config, wanted))
    }
}

/// Two sources of one name would show as one, with resources of both.
fn check_mounts(opened: &[Opened]) -> Result<()> {
    let mut seen = HashMap::new();
    for Opened { root, name, .. } in opened {
        let Some(root) = root else { continue };
        if let Some(other) = seen.insert(root, name) {
            let key = if root.scheme() == "file" { "mount" } else { "name" };
            return Err(advice(
                format!("`{other}` and `{name}` would both be `{root}`"),
                format!("give one of them another `{key}` in a configuration file"),
            ));
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Config> {
    let shown = path.display();
    let data = regular_file::read(path, LARGEST).map_err(|cause| {
        let message = format!("could not read `{shown}`: {cause}");
        match cause.kind() {
            io::ErrorKind::InvalidInput => advice(message, "write the configuration to a file of its own"),
            io::ErrorKind::FileTooLarge => advice(
                message,
                "is it the right file? put large texts into files that are served from a folder",
            ),
            _ => anyhow::Error::new(cause).context(format!("could not read `{shown}`")),
        }
    })?;
    let text = String::from_utf8(data).with_context(|| format!("could not read `{shown}`"))?;
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
