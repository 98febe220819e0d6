//! The table of sources, with their arguments on the command line and their keys in the configuration file.
//!
//! To add a source, implement [`SourceConfig`] for its configuration and [`Definition`] for the type that opens
//! it. Then add a line to `sources!` at the end of this file. CONTRIBUTING.md has an example.

use std::any::Any;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use libris_core::{Result, Source, Uri};
use serde::de::{DeserializeOwned, Error as _, MapAccess};

/// A configured source that is not open yet.
#[async_trait]
pub trait Definition: Any + Debug + DynamicEq + Send + Sync {
    /// The name of the source in messages, without secrets.
    fn label(&self) -> String;

    /// Loads external parts of the definition, such as an API description, so that the comparison of definitions
    /// detects their changes.
    async fn load(&mut self) -> Result<()> {
        Ok(())
    }

    /// Opens the source.
    fn open(&self) -> Result<OpenedSource>;

    /// The common prefix of all URIs of the source, as far as it is known before the source is open. Default: empty, so
    /// that any URI is possible.
    fn uri_prefix(&self) -> String {
        String::new()
    }
}

/// A URL for messages: without its query, its fragment, its user and its password, which may be secrets. A text without
/// `://`, such as the path of a file, is returned unchanged.
#[cfg(any(feature = "http", feature = "mcp"))]
pub(crate) fn url_label(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Equality of definitions of any type: an unchanged definition needs no new source when the configuration is reloaded.
pub trait DynamicEq {
    /// Whether the other value has the same type and is equal.
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<T: Any + PartialEq> DynamicEq for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref().is_some_and(|other| self == other)
    }
}

/// An open source.
#[derive(Clone)]
pub struct OpenedSource {
    /// The source.
    pub source: Arc<dyn Source>,
    /// The root of its URIs, if it has a root that no other source may share.
    pub root: Option<SourceRoot>,
}

/// The URI that the resources of one source begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRoot {
    /// The URI. No other source may have the same one.
    pub uri: Uri,
    /// The configuration key that sets the URI.
    pub key: &'static str,
}

impl OpenedSource {
    /// A source without a root of its own.
    pub fn new(source: impl Source) -> Self {
        Self { source: Arc::new(source), root: None }
    }

    /// A source whose URIs begin with `uri`, which the configuration key `key` sets.
    pub fn with_root(source: impl Source, uri: Uri, key: &'static str) -> Self {
        Self { source: Arc::new(source), root: Some(SourceRoot { uri, key }) }
    }
}

/// The configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// The path of the file; empty if there is no file.
    pub path: PathBuf,
}

impl ConfigFile {
    /// The folder that relative paths in the file start from.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Resolves a path in the file. An empty path, which is an error of the user, stays empty.
    pub fn resolve(&self, path: PathBuf) -> PathBuf {
        if path.as_os_str().is_empty() { path } else { self.folder().join(path) }
    }
}

/// How an argument of the command line names a source.
#[derive(Clone, Copy, Debug)]
pub struct CommandLine {
    /// The prefixes of its arguments, such as `git:`. A source without prefixes accepts paths that begin with no prefix
    /// of another source.
    pub prefixes: &'static [&'static str],
    /// The form of its arguments as part of a list, such as "a git repository as `git:PATH`".
    pub form: &'static str,
    /// An example for the help text: an argument, and what it serves.
    pub example: (&'static str, &'static str),
    /// The source that an argument of this form names.
    pub define: fn(&OsStr) -> Box<dyn Definition>,
}

/// The configuration of one source. A file may have several of the same kind.
pub trait SourceConfig: DeserializeOwned {
    /// How a source of this kind is named on the command line; `None` if it can only be configured in a file.
    const COMMAND_LINE: Option<CommandLine> = None;

    /// The source that this configuration defines.
    fn definition(self, file: &ConfigFile) -> Box<dyn Definition>;
}

/// The value of a key of the configuration file: all sources of one kind.
///
/// `Vec<C>` is an array of tables (`[[git]]`), and `Option<C>` is at most one table (`[notion]`).
pub trait Section: Default + DeserializeOwned {
    /// How a source is named on the command line.
    const COMMAND_LINE: Option<CommandLine> = None;

    /// The sources that this section defines.
    fn definitions(self, file: &ConfigFile) -> Vec<Box<dyn Definition>>;
}

impl<C: SourceConfig> Section for Vec<C> {
    const COMMAND_LINE: Option<CommandLine> = C::COMMAND_LINE;

    fn definitions(self, file: &ConfigFile) -> Vec<Box<dyn Definition>> {
        self.into_iter().map(|config| config.definition(file)).collect()
    }
}

impl<C: SourceConfig> Section for Option<C> {
    const COMMAND_LINE: Option<CommandLine> = C::COMMAND_LINE;

    fn definitions(self, file: &ConfigFile) -> Vec<Box<dyn Definition>> {
        self.into_iter().map(|config| config.definition(file)).collect()
    }
}

/// A section whose entries form one source together.
#[cfg(any(feature = "inline", feature = "prompts", feature = "command"))]
pub(crate) trait CombinedSection: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Whether the section has no entries.
    fn has_no_entries(&self) -> bool;

    /// Opens the source. Relative paths start from the folder of the configuration file.
    fn open(&self, folder: &Path) -> Result<OpenedSource>;

    /// The definition of the source; none if the section has no entries.
    fn combined_definition(self, file: &ConfigFile) -> Vec<Box<dyn Definition>> {
        match self.has_no_entries() {
            true => Vec::new(),
            false => vec![Box::new(CombinedDefinition { section: self, file: file.clone() })],
        }
    }
}

#[cfg(any(feature = "inline", feature = "prompts", feature = "command"))]
#[derive(Debug, PartialEq)]
struct CombinedDefinition<S> {
    section: S,
    file: ConfigFile,
}

#[cfg(any(feature = "inline", feature = "prompts", feature = "command"))]
impl<S: CombinedSection> Definition for CombinedDefinition<S> {
    fn label(&self) -> String {
        self.file.path.display().to_string()
    }

    fn open(&self) -> Result<OpenedSource> {
        self.section.open(self.file.folder())
    }
}

/// A definition, with the key of its section in the configuration file.
pub struct KeyedDefinition {
    /// The key, such as `files`: one of the [`KEYS`].
    pub key: &'static str,
    /// The definition.
    pub definition: Box<dyn Definition>,
}

/// The sources that an argument of the command line can name.
pub fn command_lines() -> impl Iterator<Item = &'static CommandLine> {
    COMMAND_LINES.iter().flatten()
}

/// The source that an argument of the command line names; `None` if no source accepts it.
pub fn define(argument: &OsStr) -> Option<KeyedDefinition> {
    let text = argument.to_str().unwrap_or_default();
    let lines = || KEYS.iter().zip(COMMAND_LINES).filter_map(|(key, line)| Some((*key, line.as_ref()?)));
    let has_prefix =
        |(_, line): &(_, &CommandLine)| line.prefixes.iter().any(|prefix| text.starts_with(prefix));
    // A path may contain `://`, but a URL with an unknown scheme is more likely a typing error.
    let is_path = !text.contains("://") || Path::new(argument).exists();
    let takes_paths = |(_, line): &(_, &CommandLine)| line.prefixes.is_empty() && is_path;
    let (key, line) = lines().find(has_prefix).or_else(|| lines().find(takes_paths))?;
    Some(KeyedDefinition { key, definition: (line.define)(argument) })
}

macro_rules! sources {
    ($($(#[$condition:meta])* $key:ident: $section:ty,)*) => {
        /// The keys of the configuration file that define sources.
        pub const KEYS: &[&str] = &[$($(#[$condition])* stringify!($key),)*];

        const COMMAND_LINES: &[Option<CommandLine>] =
            &[$($(#[$condition])* <$section as Section>::COMMAND_LINE,)*];

        /// The part of a configuration file that defines sources.
        #[derive(Default)]
        pub struct Sections {
            $($(#[$condition])* $key: $section,)*
        }

        #[allow(unreachable_code, unused_variables, unused_mut, reason = "without any source, the repetitions expand to nothing")]
        impl Sections {
            /// Deserializes the value of one of the [`KEYS`].
            pub fn deserialize<'de, A: MapAccess<'de>>(
                &mut self,
                key: &str,
                map: &mut A,
            ) -> std::result::Result<(), A::Error> {
                match key {
                    $($(#[$condition])* _ if key == stringify!($key) => self.$key = map.next_value()?,)*
                    _ => return Err(A::Error::unknown_field(key, KEYS)),
                }
                Ok(())
            }

            /// The sources, in the order of the table.
            pub fn definitions(self, file: &ConfigFile) -> Vec<KeyedDefinition> {
                let mut definitions = Vec::new();
                $($(#[$condition])* {
                    let keyed = |definition| KeyedDefinition { key: stringify!($key), definition };
                    definitions.extend(self.$key.definitions(file).into_iter().map(keyed));
                })*
                definitions
            }
        }
    };
}

// The key in the configuration file, and the type of its value.
sources! {
    #[cfg(feature = "files")]
    files: Vec<crate::files::Config>,
    #[cfg(feature = "database")]
    sql: Vec<crate::sql::Config>,
    #[cfg(feature = "git")]
    git: Vec<crate::git::Config>,
    #[cfg(feature = "http")]
    http: Vec<crate::http::Config>,
    #[cfg(feature = "http")]
    openapi: Vec<crate::http::openapi::Config>,
    #[cfg(feature = "inline")]
    inline: crate::inline::Config,
    #[cfg(feature = "command")]
    command: Vec<crate::command::Config>,
    #[cfg(feature = "mcp")]
    mcp: Vec<crate::mcp::Config>,
    #[cfg(feature = "notion")]
    notion: Option<crate::notion::Config>,
    #[cfg(feature = "prompts")]
    prompt: crate::prompts::PromptsConfig,
    #[cfg(feature = "skills")]
    skills: Vec<crate::skills::Config>,
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::url_label;

    #[test]
    fn labels_show_no_secrets() {
        for (url, label) in [
            ("https://api.example/v1", "https://api.example/v1"),
            ("https://ada:s3cret@api.example:8443/v1?key=s3cret#s3cret", "https://api.example:8443/v1"),
            ("https://s3cret@api.example", "https://api.example"),
            ("https://api.example?key=s3cret/x@y", "https://api.example"),
            ("./apis/shop#2.yaml", "./apis/shop#2.yaml"),
        ] {
            assert_eq!(url_label(url), label);
        }
    }
}
