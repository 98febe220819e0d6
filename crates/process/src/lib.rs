//! Child processes that end, with all their descendants, when the server that started them ends, even if it is killed.
//!
//! These child processes are the commands of the command source, other MCP servers over stdio, and the extractions of
//! documents. On Unix, each leads a process group, and a [reaper](set_reaper) kills the groups of a killed server. On
//! Windows, each has a job object, whose processes the system ends when the server has ended.

#[cfg(unix)]
mod group;
#[cfg(windows)]
mod job;
mod program;
#[cfg(unix)]
mod reaper;

#[cfg(unix)]
pub use group::GroupedChild;
#[cfg(windows)]
pub use job::GroupedChild;
pub use program::{SYSTEM_VARIABLES, executable};
#[cfg(unix)]
pub use reaper::{kill_all, reap, set_reaper};

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

/// The pipes of a child process: those that its command has set up, and that were not taken before.
#[derive(Debug)]
pub struct ChildPipes {
    /// The standard input.
    pub stdin: Option<ChildStdin>,
    /// The standard output.
    pub stdout: Option<ChildStdout>,
    /// The standard error.
    pub stderr: Option<ChildStderr>,
}
