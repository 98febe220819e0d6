//! The configuration of the skills source.

use std::path::PathBuf;
use std::time::Duration;

use libris_core::CacheScope;
use serde::Deserialize;

use crate::tree::{ChangeDetection, TreeOptions};

/// A folder of skills: each folder with a `SKILL.md`, at any depth in it, is a skill.
///
/// ```toml
/// [[skills]]
/// path = "./skills"
/// prefix = "acme"
/// unlisted = ["drafts/"]
/// ```
///
/// Patterns (`exclude`, `dynamic` and `unlisted`) are written as in a `.gitignore` file: `drafts/` is a folder
/// at any depth with all that is in it, `/drafts/` only the one directly in `path`, and a pattern that begins
/// with `!` cancels the matches of earlier ones in the same list.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The path of the folder. It may be a skill itself. Required.
    pub path: PathBuf,
    /// The first segments of the URIs, as in `skill://acme/billing/refunds/SKILL.md` for `"acme/billing"`. Default:
    /// none, as in `skill://refunds/SKILL.md`.
    pub prefix: Option<String>,
    /// Patterns of files and folders that are not visible.
    pub exclude: Vec<String>,
    /// Patterns of skills whose files change so often that digests of them are useless: their manifest is `"dynamic"`.
    /// Some hosts do not load such skills.
    pub dynamic: Vec<String>,
    /// Patterns of skills that `skills/list` leaves out. `skills/get` returns them to callers that know their URI.
    pub unlisted: Vec<String>,
    /// Whether names that begin with a dot are visible. `.git` never is.
    pub hidden: bool,
    /// Whether `.gitignore`, `.ignore` and `.git/info/exclude` in the folder apply. An ignore file that cannot be
    /// read hides the folder that it is in.
    pub gitignore: bool,
    /// Whether symbolic links are followed, so that their targets are files of the skill. Absolute links and links that
    /// lead out of the folder never are.
    pub symlinks: bool,
    /// How changes are detected: `"auto"`, by file system events where the operating system reports them and
    /// otherwise by polling, or `"poll"`, by polling always.
    pub watch: ChangeDetection,
    /// The polling interval, as in `"5s"`. It is longer for a folder that takes long to scan.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub poll: Duration,
    /// How long clients may cache a response, as in `"30s"` or `"5m"`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub ttl: Duration,
    /// Who may share a cached response: `"private"` or `"public"`.
    pub scope: CacheScope,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            prefix: None,
            exclude: Vec::new(),
            dynamic: Vec::new(),
            unlisted: Vec::new(),
            hidden: false,
            gitignore: true,
            symlinks: false,
            watch: ChangeDetection::Auto,
            poll: Duration::from_secs(5),
            ttl: Duration::ZERO,
            scope: CacheScope::Private,
        }
    }
}

impl Config {
    /// The default configuration for the folder at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// The options that concern the directory tree.
    pub(super) fn tree_options(&self) -> TreeOptions {
        TreeOptions {
            only: None,
            include: Vec::new(),
            exclude: self.exclude.clone(),
            hidden: self.hidden,
            gitignore: self.gitignore,
            symlinks: self.symlinks,
            watch: self.watch,
            poll: self.poll,
        }
    }
}
