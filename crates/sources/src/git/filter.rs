//! Which paths of a repository are visible.

use libris_core::Result;

use super::Config;
use crate::patterns::ConfiguredPatterns;

/// The `include` and `exclude` patterns of the configuration.
#[derive(Default)]
pub(super) struct VisibilityFilter {
    include: ConfiguredPatterns,
    exclude: ConfiguredPatterns,
}

impl VisibilityFilter {
    pub(super) fn new(config: &Config) -> Result<Self> {
        Ok(Self {
            include: ConfiguredPatterns::new("include", &config.include)?,
            exclude: ConfiguredPatterns::new("exclude", &config.exclude)?,
        })
    }

    /// A filter without patterns, which shows all paths.
    pub(super) fn unrestricted() -> Self {
        Self::default()
    }

    /// Whether all paths are visible.
    fn is_unrestricted(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether a path is visible. The caller has made sure that its parent is visible. `include` does not apply to
    /// directories, because a directory that it does not match may contain files that it matches.
    pub(super) fn shows(&self, path: &[u8], directory: bool) -> bool {
        if self.is_unrestricted() || path.is_empty() {
            return true;
        }
        if self.exclude.matches(path, directory) {
            return false;
        }
        directory || self.include.is_empty() || self.include.matches_path_or_parent(path, false)
    }

    /// Whether a path and all its parents are visible.
    pub(super) fn shows_all(&self, names: &[&[u8]], directory: bool) -> bool {
        (1..=names.len())
            .all(|count| self.shows(&names[..count].join(&b'/'), directory || count < names.len()))
    }
}
