//! Process groups that end with the server that started them, even if the server is killed. On Unix only.
//!
//! Commands of the command source, other MCP servers over stdio and the extraction of documents are such processes.

#[cfg(unix)]
mod group;
#[cfg(unix)]
mod reaper;

#[cfg(unix)]
pub use group::ProcessGroup;
#[cfg(unix)]
pub use reaper::{kill_all, prepare, reap, set_reaper};
