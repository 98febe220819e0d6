//! What the system says of where to look: the one place where systems differ.
//!
//! [`EventSource`] has the same methods everywhere. On Linux each directory that is shown is watched by itself,
//! since watching below a directory would take in what is ignored. Elsewhere one watch sees all of it.

#[cfg(target_os = "linux")]
mod inotify;
#[cfg(target_os = "linux")]
pub(super) use inotify::{EventSource, WakeHandle};

#[cfg(not(target_os = "linux"))]
mod recursive;
#[cfg(not(target_os = "linux"))]
pub(super) use recursive::{EventSource, WakeHandle};
