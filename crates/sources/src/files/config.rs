//! What can be said about a folder in the configuration.

use std::path::PathBuf;
use std::time::Duration;

use libris_core::{Audience, Scope};
use serde::Deserialize;

use crate::tree::{Options, Watching};

/// A folder whose files are resources.
///
/// ```toml
/// [[files]]
/// path = "./docs"
/// exclude = ["drafts/", "*.tmp"]
///
/// [[files.rule]]
/// glob = "*.md"
/// priority = 0.8
/// audience = ["user", "assistant"]
/// ```
///
/// Patterns (`include`, `exclude` and the `glob` of a rule) are written as in a `.gitignore` file:
/// `*.md` matches at any depth, `/guide/*.md` only there, `guide/` is a folder with all that is in it,
/// and `!` takes back what an earlier pattern of the same list matched.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The folder. It must be said.
    pub path: PathBuf,
    /// The first segment of its URIs, as in `file:///<mount>/guide/start.md`. The folder's own name
    /// where it is not said.
    pub mount: Option<String>,
    /// A name for people, for the folder as a whole.
    pub title: Option<String>,
    /// What is in the folder.
    pub description: Option<String>,
    /// Patterns of which a file must match one. Empty: all files.
    pub include: Vec<String>,
    /// Patterns of files and folders to leave out.
    pub exclude: Vec<String>,
    /// Whether names that begin with a dot are shown. `.git` never is.
    pub hidden: bool,
    /// Whether to leave out what `.gitignore`, `.ignore` and `.git/info/exclude` in the folder say. One that
    /// cannot be read hides the folder that it is in.
    pub gitignore: bool,
    /// Whether symbolic links are followed. Those that lead out of the folder, and those that are
    /// absolute, never are. A link is shown only if both its own name and what it leads to are: one to
    /// `.git`, or to what is hidden, excluded, ignored or not included, does not exist.
    pub symlinks: bool,
    /// The most bytes that are read at once. Larger files are read by ranges. At most 1 GiB.
    #[serde(deserialize_with = "crate::bounds::content")]
    pub max_size: u64,
    /// The most entries that reading a folder gives. At most 100,000.
    #[serde(deserialize_with = "crate::bounds::folder_entries")]
    pub directory_entries: usize,
    /// The most bytes of its files that reading a folder gives. At most 1 GiB.
    #[serde(deserialize_with = "crate::bounds::folder_bytes")]
    pub directory_bytes: u64,
    /// What to say about files that match a pattern. Of several, the last that says it counts.
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
    /// How to notice changes: `"auto"`, by being told where the system tells it, or `"poll"`, by looking
    /// through the folder again and again, as is done anyway where the system cannot tell.
    pub watch: Watching,
    /// The time between two such looks, as in `"5s"`. It is longer for a folder that takes long to look
    /// through. Where links are followed it is also how soon a change behind a link is noticed.
    #[serde(deserialize_with = "crate::duration::parse")]
    pub poll: Duration,
    /// How long callers may keep an answer, as in `"30s"` or `"5m"`.
    #[serde(deserialize_with = "crate::duration::parse")]
    pub ttl: Duration,
    /// Who may share a kept answer: `"private"` or `"public"`.
    pub scope: Scope,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            mount: None,
            title: None,
            description: None,
            include: Vec::new(),
            exclude: Vec::new(),
            hidden: false,
            gitignore: true,
            symlinks: false,
            max_size: 8 * 1024 * 1024,
            directory_entries: 100,
            directory_bytes: 256 * 1024,
            rules: Vec::new(),
            watch: Watching::Auto,
            poll: Duration::from_secs(5),
            ttl: Duration::ZERO,
            scope: Scope::Private,
        }
    }
}

impl Config {
    /// The defaults for this folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// The options that concern the directory tree.
    pub(super) fn tree_options(&self) -> Options {
        Options {
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            hidden: self.hidden,
            gitignore: self.gitignore,
            symlinks: self.symlinks,
            watch: self.watch,
            poll: self.poll,
        }
    }
}

/// What to say about the files that match a pattern.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// The pattern. It must be said.
    pub glob: String,
    /// How important the files are, from 0 to 1.
    pub priority: Option<f64>,
    /// Whom they are for: `"user"`, `"assistant"` or both.
    pub audience: Option<Vec<Audience>>,
    /// What they are about, where a file does not say it itself.
    pub description: Option<String>,
}
