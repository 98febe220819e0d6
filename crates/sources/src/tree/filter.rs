//! Which paths are visible: by the options of the tree and by compiled ignore rules.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::Gitignore;
use libris_core::Result;

use super::Options;
use crate::patterns::patterns;

/// The visibility rules of the options: hidden names, `include` and `exclude`.
pub(super) struct PathFilter {
    hidden: bool,
    include: Gitignore,
    exclude: Gitignore,
}

impl PathFilter {
    pub(super) fn new(options: &Options) -> Result<Self> {
        Ok(Self {
            hidden: options.hidden,
            include: patterns("include", &options.include)?,
            exclude: patterns("exclude", &options.exclude)?,
        })
    }

    /// Whether `path`, relative to the root, is visible, given that its parent directory is.
    pub(super) fn shows(&self, path: &Path, directory: bool, ignore_rules: Option<&IgnoreRules>) -> bool {
        let name = path.file_name().unwrap_or_default();
        if is_git(name) || (!self.hidden && is_hidden(name)) {
            return false;
        }
        if self.exclude.matched(path, directory).is_ignore() {
            return false;
        }
        if ignore_rules.is_some_and(|ignore_rules| ignore_rules.matches(path, directory)) {
            return false;
        }
        directory
            || self.include.is_empty()
            || self.include.matched_path_or_any_parents(path, false).is_ignore()
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn is_git(name: &OsStr) -> bool {
    // On a case-insensitive file system `.GIT` is the same directory.
    name.eq_ignore_ascii_case(".git")
}

/// The compiled ignore rules of a directory and of its ancestors.
pub(super) struct IgnoreRules {
    /// The directory, relative to the root.
    pub(super) path: PathBuf,
    pub(super) above: Option<Arc<IgnoreRules>>,
    /// One for each of [`FILES`](Self::FILES), and the last for `.git/info/exclude`.
    pub(super) files: [Gitignore; 3],
}

impl IgnoreRules {
    /// The names of ignore files, by precedence: a match in any `.ignore` up to the root goes before one in a
    /// `.gitignore`.
    pub(super) const FILES: [&str; 2] = [".ignore", ".gitignore"];

    fn matches(&self, path: &Path, directory: bool) -> bool {
        for kind in 0..self.files.len() {
            let mut level = Some(self);
            while let Some(here) = level {
                // Patterns are relative to the directory of their file.
                let below = path.strip_prefix(&here.path).unwrap_or(path);
                match here.files[kind].matched(below, directory) {
                    Match::None => level = here.above.as_deref(),
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{Options, PathFilter};
    use std::path::Path;

    fn filter(include: &[&str], exclude: &[&str]) -> PathFilter {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        PathFilter::new(&Options { include: owned(include), exclude: owned(exclude), ..Options::default() })
            .unwrap()
    }

    #[test]
    fn patterns_are_those_of_gitignore() {
        let shown = |filter: &PathFilter, path: &str| filter.shows(Path::new(path), false, None);
        let markdown = filter(&["*.md", "!README.md"], &[]);
        assert!(shown(&markdown, "guide/start.md"));
        assert!(!shown(&markdown, "guide/README.md"));
        assert!(!shown(&markdown, "main.rs"));
        assert!(markdown.shows(Path::new("guide"), true, None));
        let folder = filter(&["guide/"], &["*.tmp"]);
        assert!(shown(&folder, "guide/deep/er/x"));
        assert!(!shown(&folder, "guide/deep/er/x.tmp"));
        assert!(!shown(&folder, "x"));
    }

    #[test]
    fn an_invalid_pattern_is_an_error() {
        let wrong = PathFilter::new(&Options { exclude: vec!["a{b".into()], ..Options::default() });
        insta::assert_snapshot!(wrong.err().unwrap(), @"`exclude` has a pattern that makes no sense: error parsing glob 'a{b': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)");
    }
}
