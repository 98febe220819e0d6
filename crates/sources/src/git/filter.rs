//! Which paths of a repository are visible.

use std::path::Path;

use ignore::gitignore::Gitignore;
use libris_core::Result;

use super::Config;
use crate::patterns::patterns;

/// The `include` and `exclude` patterns of the configuration.
pub(super) struct VisibilityFilter {
    include: Gitignore,
    exclude: Gitignore,
}

impl VisibilityFilter {
    pub(super) fn new(config: &Config) -> Result<Self> {
        Ok(Self {
            include: patterns("include", &config.include)?,
            exclude: patterns("exclude", &config.exclude)?,
        })
    }

    /// A filter without patterns.
    pub(super) fn open() -> Self {
        Self { include: Gitignore::empty(), exclude: Gitignore::empty() }
    }

    /// Whether all paths are visible.
    pub(super) fn is_open(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether a path is visible, if its parent is.
    pub(super) fn shows(&self, path: &[u8], directory: bool) -> bool {
        if self.is_open() || path.is_empty() {
            return true;
        }
        let path = to_path(path);
        if self.exclude.matched(&path, directory).is_ignore() {
            return false;
        }
        directory
            || self.include.is_empty()
            || self.include.matched_path_or_any_parents(&path, false).is_ignore()
    }

    /// Whether a path and all its parents are visible.
    pub(super) fn shows_all(&self, names: &[&[u8]], directory: bool) -> bool {
        (1..=names.len())
            .all(|count| self.shows(&names[..count].join(&b'/'), directory || count < names.len()))
    }
}

#[cfg(unix)]
fn to_path(path: &[u8]) -> std::borrow::Cow<'_, Path> {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path)).into()
}

#[cfg(not(unix))]
fn to_path(path: &[u8]) -> std::borrow::Cow<'_, Path> {
    std::path::PathBuf::from(String::from_utf8_lossy(path).into_owned()).into()
}
