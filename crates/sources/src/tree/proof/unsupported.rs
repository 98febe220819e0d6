//! Replaces the generation tracker on systems other than Linux. Their change notifications arrive some time after
//! the change, so they prove nothing.

use std::path::Path;

use super::super::root::DirectoryHandle;
use super::ObservedGeneration;

/// Never exists.
pub(super) enum GenerationTracker {}

impl GenerationTracker {
    pub(super) fn shared() -> Option<&'static Self> {
        None
    }

    pub(super) fn watch_directory(&self, _handle: &DirectoryHandle) -> Option<ObservedGeneration> {
        match *self {}
    }

    pub(super) fn watch_path(&self, _path: &Path) -> Option<ObservedGeneration> {
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
