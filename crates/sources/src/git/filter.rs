//! What of a repository is shown.

use std::path::Path;

use ignore::gitignore::Gitignore;
use libris_core::Result;

use super::Config;
use crate::patterns::patterns;

/// What the configuration says about showing paths.
pub(super) struct PathFilter {
    include: Gitignore,
    exclude: Gitignore,
}

impl PathFilter {
    pub(super) fn new(config: &Config) -> Result<Self> {
        Ok(Self {
            include: patterns("include", &config.include)?,
            exclude: patterns("exclude", &config.exclude)?,
        })
    }

    /// One that shows everything.
    pub(super) fn open() -> Self {
        Self { include: Gitignore::empty(), exclude: Gitignore::empty() }
    }

    /// Whether everything is shown.
    pub(super) fn is_open(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether a path is shown, given that what it is in is.
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

    /// Whether a path and all that it is in is shown.
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
