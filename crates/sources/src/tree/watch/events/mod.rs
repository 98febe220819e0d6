//! File system events: the platform-specific part of the watcher.
//!
//! [`EventSource`] has the same methods everywhere. On Linux it has an inotify watch for each visible directory,
//! since a recursive watch would include ignored directories such as `target/`. Elsewhere one recursive watch covers
//! the tree.

#[cfg(any(test, not(target_os = "linux")))]
pub(super) mod event_path;
mod retry;

#[cfg(target_os = "linux")]
mod inotify;
#[cfg(target_os = "linux")]
pub(super) use inotify::{EventSource, WakeHandle};

#[cfg(not(target_os = "linux"))]
mod recursive;
#[cfg(not(target_os = "linux"))]
pub(super) use recursive::{EventSource, WakeHandle};
