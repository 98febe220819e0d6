//! Where the system has no queue that is true at the moment it is asked, nothing is proven.

use std::path::Path;

use super::super::root::DirectoryHandle;
use super::ObservedGeneration;

/// There is none.
pub(super) enum GenerationTracker {}

impl GenerationTracker {
    pub(super) fn shared() -> Option<&'static Self> {
        None
    }

    pub(super) fn watch_directory(&self, _place: &DirectoryHandle) -> Option<ObservedGeneration> {
        match *self {}
    }

    pub(super) fn watch_git_excludes(&self, _root: &DirectoryHandle) -> Option<Vec<ObservedGeneration>> {
        match *self {}
    }

    pub(super) fn watch_ancestors(&self, _path: &Path) -> Option<Vec<ObservedGeneration>> {
        match *self {}
    }

    pub(super) fn catch_up(&self) -> bool {
        match *self {}
    }
}
