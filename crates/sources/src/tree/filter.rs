//! Which paths are visible: by the options of the tree and by its ignore files.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Add;
use std::path::Path;
use std::sync::Arc;

use libris_core::Result;

use super::TreeOptions;
use crate::ignore_patterns::{IgnorePatterns, PatternVerdict};
use crate::patterns::{ConfiguredPatterns, with_slashes};

/// The visibility rules of the options: hidden names, `include` and `exclude`.
pub(super) struct PathFilter {
    /// The name of the only visible file, which is directly in the root.
    only: Option<OsString>,
    hidden: bool,
    include: ConfiguredPatterns,
    exclude: ConfiguredPatterns,
}

impl PathFilter {
    pub(super) fn new(options: &TreeOptions) -> Result<Self> {
        Ok(Self {
            only: options.only.clone(),
            hidden: options.hidden,
            include: ConfiguredPatterns::new("include", &options.include)?,
            exclude: ConfiguredPatterns::new("exclude", &options.exclude)?,
        })
    }

    /// Whether the root itself is a visible directory; `false` if only one file in it is served.
    pub(super) fn shows_root(&self) -> bool {
        self.only.is_none()
    }

    /// Whether files must match a pattern to be visible.
    pub(super) fn has_include(&self) -> bool {
        !self.include.is_empty()
    }

    /// Why `path`, relative to the root, is not visible, given that its parent directory is; `None` if it is visible.
    pub(super) fn omission(
        &self,
        path: &Path,
        directory: bool,
        ignore_rules: Option<&IgnoreRules>,
    ) -> Option<Omission> {
        if let Some(only) = &self.only {
            return (directory || path != Path::new(only)).then_some(Omission::NotSelected);
        }
        let name = path.file_name().unwrap_or_default();
        if is_git(name) {
            return Some(Omission::NotSelected);
        }
        if !self.hidden && is_hidden(name) {
            return Some(Omission::Hidden);
        }
        let path = with_slashes(path);
        if self.exclude.matches(&path, directory) {
            return Some(Omission::Excluded);
        }
        if ignore_rules.is_some_and(|ignore_rules| ignore_rules.matches(&path, directory)) {
            return Some(Omission::Ignored);
        }
        let is_included =
            directory || self.include.is_empty() || self.include.matches_path_or_parent(&path, false);
        (!is_included).then_some(Omission::NotSelected)
    }
}

/// Why an entry of a directory is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Omission {
    /// It is `.git`, not the single file that is served, or not in `include`.
    NotSelected,
    Hidden,
    Excluded,
    Ignored,
    SymbolicLink,
    /// A socket, a device or a named pipe.
    SpecialFile,
}

impl fmt::Display for Omission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Hidden => "hidden",
            Self::Excluded => "`exclude`",
            Self::Ignored => "ignore file",
            Self::NotSelected => "not selected",
            Self::SymbolicLink => "symbolic link",
            Self::SpecialFile => "special file",
        })
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn is_git(name: &OsStr) -> bool {
    // On a case-insensitive file system `.GIT` is the same directory.
    name.eq_ignore_ascii_case(".git")
}

/// The ignore rules of a directory and of its ancestors.
pub(super) struct IgnoreRules {
    /// A unique number of these rules together with those of the ancestors.
    pub(super) identity: u64,
    /// The length in bytes of the directory's path from the root, including a slash at its end.
    pub(super) base: usize,
    pub(super) parent: Option<Arc<IgnoreRules>>,
    pub(super) files: Arc<IgnoreFiles>,
    /// The total size of the ignore files in the directory and its ancestors.
    pub(super) size: RulesSize,
}

/// The patterns of the ignore files in one directory: one for each of [`FILES`](IgnoreRules::FILES), and the last for
/// `.git/info/exclude`.
pub(super) type IgnoreFiles = [Option<IgnorePatterns>; 3];

/// The size of ignore files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RulesSize {
    /// The total length of the files, in bytes.
    pub(super) text: usize,
    pub(super) patterns: usize,
}

impl RulesSize {
    /// The memory of the rules, in bytes.
    pub(super) fn bytes(self) -> usize {
        self.text + self.patterns * IgnorePatterns::PATTERN_SIZE
    }
}

impl Add for RulesSize {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { text: self.text + other.text, patterns: self.patterns + other.patterns }
    }
}

impl IgnoreRules {
    /// The names of ignore files, highest precedence first: a match in a `.ignore` file, of the directory or of
    /// any ancestor, overrides matches in all `.gitignore` files.
    pub(super) const FILES: [&str; 2] = [".ignore", ".gitignore"];

    /// Whether a path, with slashes between names, is ignored.
    pub(super) fn matches(&self, path: &[u8], directory: bool) -> bool {
        let name = memchr::memrchr(b'/', path).map_or(path, |slash| &path[slash + 1..]);
        for kind in 0..self.files.len() {
            let mut level = Some(self);
            while let Some(here) = level {
                // Patterns are relative to the directory of their file.
                let below = path.get(here.base..).unwrap_or(path);
                let verdict = here.files[kind].as_ref().and_then(|file| file.matched(below, name, directory));
                match verdict {
                    None => level = here.parent.as_deref(),
                    Some(verdict) => return verdict == PatternVerdict::Ignored,
                }
            }
        }
        false
    }
}

#[cfg(all(test, unix))]
mod git_tests;

#[cfg(test)]
mod tests {
    use super::{PathFilter, TreeOptions};
    use std::path::Path;

    fn filter(include: &[&str], exclude: &[&str]) -> PathFilter {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        PathFilter::new(&TreeOptions {
            include: owned(include),
            exclude: owned(exclude),
            ..TreeOptions::default()
        })
        .unwrap()
    }

    #[test]
    fn patterns_are_those_of_gitignore() {
        let shown = |filter: &PathFilter, path: &str| filter.omission(Path::new(path), false, None).is_none();
        let markdown = filter(&["*.md", "!README.md"], &[]);
        assert!(shown(&markdown, "guide/start.md"));
        assert!(!shown(&markdown, "guide/README.md"));
        assert!(!shown(&markdown, "main.rs"));
        assert_eq!(markdown.omission(Path::new("guide"), true, None), None);
        let folder = filter(&["guide/"], &["*.tmp"]);
        assert!(shown(&folder, "guide/deep/er/x"));
        assert!(!shown(&folder, "guide/deep/er/x.tmp"));
        assert!(!shown(&folder, "x"));
    }

    #[test]
    fn an_invalid_pattern_is_an_error() {
        let wrong = PathFilter::new(&TreeOptions { exclude: vec!["a{b".into()], ..TreeOptions::default() });
        insta::assert_snapshot!(wrong.err().unwrap(), @r"`exclude` has the invalid pattern `a{b`: its `{` has no `}`; write `\{` for the character");
    }
}
