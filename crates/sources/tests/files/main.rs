//! The files source, seen from outside.

mod complete;
mod confine;
#[cfg(target_os = "linux")]
mod failures;
mod filter;
#[cfg(target_os = "linux")]
mod links;
mod list;
// Other systems turn down some of these names, or take two of them for one.
#[cfg(target_os = "linux")]
mod names;
mod paging;
mod read;
mod sandbox;
#[cfg(target_os = "linux")]
mod times;
mod unseen;
mod watch;
#[cfg(unix)]
mod watch_model;
