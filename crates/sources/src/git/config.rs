//! The configuration of the git source.

use std::path::PathBuf;
use std::time::Duration;

use libris_core::CacheScope;
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
    /// The repository: the folder of a working tree, a `.git` folder or a bare repository. Required.
    pub path: PathBuf,
    /// The authority of its URIs, as in `git://<name>/refs`. Default: the name of the folder, without `.git`.
    pub name: Option<String>,
    /// A human-readable title of the repository as a whole.
    pub title: Option<String>,
    /// A description of the repository.
    pub description: Option<String>,
    /// Only files that match one of these patterns are visible. Default: all files.
    pub include: Vec<String>,
    /// Patterns of files and folders that are not visible in the trees, diffs and logs of any commit.
    pub exclude: Vec<String>,
    /// The maximum size of a response, in bytes. A larger read fails; clients can read a file in ranges, and a diff by
    /// path. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_size: u64,
    /// The maximum number of entries on one page of a folder's listing. At most 100,000.
    #[serde(deserialize_with = "crate::settings::folder_entries")]
    pub directory_entries: usize,
    /// The maximum number of bytes of a folder's listing and of the text files that follow it. At most 1 GiB.
    #[serde(deserialize_with = "crate::settings::folder_bytes")]
    pub directory_bytes: u64,
    /// The polling interval of the refs and the index while there are subscriptions, as in `"1s"`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub poll: Duration,
    /// The time-out of a request, as in `"10s"`.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub timeout: Duration,
    /// How long clients may cache a response, as in `"30s"`. Instead, a response to a URI that names only full commit
    /// ids may be cached for a year, unless it depends on the history of a shallow clone.
    #[serde(deserialize_with = "crate::settings::duration")]
    pub ttl: Duration,
    /// Who may share a cached response: `"private"` or `"public"`.
    pub scope: CacheScope,
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
            directory_bytes: 32 * 1024,
            timeout: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            ttl: Duration::ZERO,
            scope: CacheScope::Private,
        }
    }
}

impl Config {
    /// The default configuration for the repository at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }
}
