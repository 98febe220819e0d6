//! What can be said about a repository in the configuration.

use std::path::PathBuf;
use std::time::Duration;

use libris_core::Scope;
use serde::Deserialize;

/// A git repository whose files and history are resources.
///
/// ```toml
/// [[git]]
/// path = "./project"
/// exclude = ["vendor/"]
/// ```
///
/// Patterns (`include` and `exclude`) are written as in a `.gitignore` file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The repository: the folder of a working tree, a `.git` folder or a bare repository. It must be said.
    pub path: PathBuf,
    /// What its URIs begin with, as in `git://<name>/refs`. The folder's own name, without `.git`, where it is
    /// not said.
    pub name: Option<String>,
    /// A name for people, for the repository as a whole.
    pub title: Option<String>,
    /// What is in the repository.
    pub description: Option<String>,
    /// Patterns of which a file must match one. Empty: all files.
    pub include: Vec<String>,
    /// Patterns of files and folders to leave out, at every commit: from trees, diffs and logs.
    pub exclude: Vec<String>,
    /// The most bytes that are read at once. Larger files are read by ranges, larger diffs by paths. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_size: u64,
    /// The most entries that reading a folder gives. At most 100,000.
    #[serde(deserialize_with = "crate::settings::folder_entries")]
    pub directory_entries: usize,
    /// The most bytes of its files that reading a folder gives. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::folder_bytes")]
    pub directory_bytes: u64,
    /// The longest that one answer may take, as in `"10s"`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub timeout: Duration,
    /// The time between two looks at the refs while somebody wants to hear of changes, as in `"1s"`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub poll: Duration,
    /// How long callers may keep an answer, as in `"30s"`. What is read by a full commit id never changes and may
    /// be kept for a year.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub ttl: Duration,
    /// Who may share a kept answer: `"private"` or `"public"`.
    pub scope: Scope,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            name: None,
            title: None,
            description: None,
            include: Vec::new(),
            exclude: Vec::new(),
            max_size: 8 * 1024 * 1024,
            directory_entries: 100,
            directory_bytes: 256 * 1024,
            timeout: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            ttl: Duration::ZERO,
            scope: Scope::Private,
        }
    }
}

impl Config {
    /// The defaults for this repository.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }
}
