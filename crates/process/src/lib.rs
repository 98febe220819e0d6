//! Process groups that end with the server that started them, even if the server is killed. On Unix only.
//!
//! The command source, the connections to other MCP servers and the extraction of documents start processes through this
//! crate.

#[cfg(unix)]
mod group;
#[cfg(unix)]
mod reaper;

#[cfg(unix)]
pub use group::ProcessGroup;
#[cfg(unix)]
pub use reaper::{kill_all, prepare, reap, set_reaper};
