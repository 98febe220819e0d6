//! The configuration of the files source.

use std::path::PathBuf;
use std::time::Duration;

use libris_core::{Audience, CacheScope};
use serde::Deserialize;

use crate::tree::{ChangeDetection, TreeOptions};

/// A folder whose files are resources, or a single file.
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
/// Patterns (`include`, `exclude` and the `glob` of a rule) are written as in a `.gitignore` file: `*.md`
/// matches at any depth, `/guide/*.md` only directly in the folder `guide`, `guide/` is a folder with all that is in
/// it, and a pattern that begins with `!` cancels the matches of earlier ones in the same list.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The path of the folder, or of a single file. Required.
    pub path: PathBuf,
    /// The first segment of its URIs, as in `file:///<mount>/guide/start.md`. Default: the name of the folder; none for
    /// a single file, as in `file:///notes.md`.
    pub mount: Option<String>,
    /// The scheme of the URIs, as in `docs://<mount>/guide/start.md` for `"docs"`. Default: `file`, as in
    /// `file:///<mount>/guide/start.md`.
    pub scheme: Option<String>,
    /// A human-readable title of the folder as a whole.
    pub title: Option<String>,
    /// A description of the folder.
    pub description: Option<String>,
    /// Only files that match one of these patterns are visible. Default: all files.
    pub include: Vec<String>,
    /// Patterns of files and folders that are not visible.
    pub exclude: Vec<String>,
    /// Whether names that begin with a dot are visible. `.git` never is.
    pub hidden: bool,
    /// Whether `.gitignore`, `.ignore` and `.git/info/exclude` in the folder apply. An ignore file that cannot be
    /// read hides the folder that it is in.
    pub gitignore: bool,
    /// Whether symbolic links are followed. Absolute links and links that lead out of the folder never are. A link is
    /// visible only if both its own name and its target are: a link to `.git`, or to a file that is hidden, excluded,
    /// ignored or not included, does not exist.
    pub symlinks: bool,
    /// Whether lists contain the folders. With `include`, they contain only the folders of listed files.
    pub folders: bool,
    /// How deep lists go: 1 lists only what is directly in the folder. Deeper files and folders can still be read.
    /// Default: no limit.
    #[serde(deserialize_with = "crate::settings::optional_depth")]
    pub depth: Option<usize>,
    /// The maximum number of files and folders that are listed, in the order of their URIs. Others can still be read.
    /// Default: no limit.
    #[serde(deserialize_with = "crate::settings::optional_listed")]
    pub max_listed: Option<usize>,
    /// The maximum size of a read, in bytes. Reading a larger file as a whole fails; clients can read it in ranges. At
    /// most 1 GiB.
    #[serde(deserialize_with = "crate::settings::content_bytes")]
    pub max_size: u64,
    /// The maximum number of entries on one page of the listing of a folder. At most 100,000.
    #[serde(deserialize_with = "crate::settings::folder_entries")]
    pub directory_entries: usize,
    /// When a folder without subfolders is read, text files of at most 4 KiB each follow its listing, as far as the
    /// listing and these texts fit into this many bytes. At most 1 GiB; 0 for the listing alone.
    #[serde(deserialize_with = "crate::settings::folder_bytes")]
    pub directory_bytes: u64,
    /// Whether folders with a `SKILL.md` are published as skills too, with their `file:` URIs. If so, no text is
    /// converted to UTF-8, so that hosts can verify the digests of skills: a file in UTF-8 is returned as `text`, a
    /// file in another encoding as `blob`.
    #[cfg(feature = "skills")]
    pub skills: bool,
    /// Metadata for files that match a pattern. If several rules set a field, the last one wins.
    #[serde(rename = "rule")]
    pub rules: Vec<MetadataRule>,
    /// How changes are detected: `"auto"`, by file system events where the operating system reports them and
    /// otherwise by polling, or `"poll"`, by polling always.
    pub watch: ChangeDetection,
    /// The polling interval, as in `"5s"`. It is longer for a folder that takes long to scan. With `symlinks`, the
    /// folder is polled even if the operating system reports events, because the target of a link can change without an
    /// event.
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
            mount: None,
            scheme: None,
            title: None,
            description: None,
            include: Vec::new(),
            exclude: Vec::new(),
            hidden: false,
            gitignore: true,
            symlinks: false,
            folders: true,
            depth: None,
            max_listed: None,
            max_size: 8 * 1024 * 1024,
            directory_entries: 200,
            directory_bytes: 32 * 1024,
            #[cfg(feature = "skills")]
            skills: false,
            rules: Vec::new(),
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

/// Metadata for the files that match a pattern.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetadataRule {
    /// The pattern. Required.
    pub glob: String,
    /// How important the files are, from 0 to 1.
    pub priority: Option<f64>,
    /// The intended audience: `"user"`, `"assistant"` or both.
    pub audience: Option<Vec<Audience>>,
    /// A description for files without one in their front matter.
    pub description: Option<String>,
}
