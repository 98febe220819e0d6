//! Options: which entries of a directory tree are visible, and how changes are detected.

use std::ffi::OsString;
use std::time::Duration;

use serde::Deserialize;

/// Options of a [`Tree`](super::Tree) and of the watcher on it. Patterns have the syntax of `.gitignore` files.
#[derive(Clone, Debug)]
pub(crate) struct TreeOptions {
    /// The name of a file directly in the root. If set, only this file is visible.
    pub(crate) only: Option<OsString>,
    /// Only files that match one of these patterns are visible. If empty, this option hides no files.
    pub(crate) include: Vec<String>,
    /// Patterns of files and directories that are not visible.
    pub(crate) exclude: Vec<String>,
    /// Whether names that begin with a dot are visible. `.git` never is.
    pub(crate) hidden: bool,
    /// Whether `.gitignore`, `.ignore` and `.git/info/exclude` apply.
    pub(crate) gitignore: bool,
    /// Whether symbolic links to targets within the tree are followed.
    pub(crate) symlinks: bool,
    /// How changes are detected.
    pub(crate) watch: ChangeDetection,
    /// The interval of polling.
    pub(crate) poll: Duration,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            only: None,
            include: Vec::new(),
            exclude: Vec::new(),
            hidden: false,
            gitignore: true,
            symlinks: false,
            watch: ChangeDetection::Auto,
            poll: Duration::from_secs(5),
        }
    }
}

/// How changes are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeDetection {
    /// By file system events where the operating system reports them, otherwise by polling.
    #[default]
    Auto,
    /// By polling.
    Poll,
}
