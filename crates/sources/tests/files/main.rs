//! Integration tests of the files source.

mod complete;
mod confinement;
#[cfg(target_os = "linux")]
mod failures;
mod filter;
mod list;
mod list_options;
#[cfg(target_os = "linux")]
mod symlinks;
// Other systems reject some of these names or treat two of them as one.
mod missing_events;
#[cfg(target_os = "linux")]
mod names;
mod paging;
mod read;
mod read_folder;
mod sandbox;
mod single_file;
#[cfg(target_os = "linux")]
mod times;
mod transcript;
mod watch;
mod watch_model;
#[cfg(windows)]
mod windows;
