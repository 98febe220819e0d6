//! A child process with a process group of its own, on Unix.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::{ChildPipes, reaper};

/// A child process and its descendants, which are killed on drop, also after a panic or when the runtime shuts down.
#[derive(Debug)]
pub struct GroupedChild {
    child: Child,
    group: ProcessGroup,
}

impl GroupedChild {
    /// Starts the command as the leader of a new process group, and the reaper if it is not running.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        reaper::prepare();
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let group = ProcessGroup::of(child.id());
        Ok(Self { child, group })
    }

    /// Takes the pipes.
    pub fn pipes(&mut self) -> ChildPipes {
        let Child { stdin, stdout, stderr, .. } = &mut self.child;
        ChildPipes { stdin: stdin.take(), stdout: stdout.take(), stderr: stderr.take() }
    }

    /// Waits for the end of the child. Its descendants may still run. Cancel-safe.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks the child and its descendants to end, with SIGTERM.
    pub fn terminate(&mut self) {
        self.group.signal(Signal::TERM);
    }

    /// Kills the child and its descendants. Further calls do nothing.
    pub fn kill(&mut self) {
        self.group.kill();
    }
}

/// A process group that is killed on drop.
#[derive(Debug)]
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// The process group whose leader has this process id. If the leader has ended, `leader` is `None`, and there is
    /// nothing to kill. The system does not reuse the id while a process of the group exists.
    fn of(leader: Option<u32>) -> Self {
        let id = leader.and_then(|id| Pid::from_raw(id.cast_signed()));
        let mut group = Self(id);
        if !id.is_none_or(reaper::add) {
            // `kill_all` was called already, because the server is about to exit.
            group.end();
        }
        group
    }

    /// Kills the group. Further calls do nothing, because the id may be reused after the end of the group.
    fn kill(&mut self) {
        if let Some(id) = self.0 {
            reaper::remove(id);
        }
        self.end();
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.0 {
            // The group may have ended.
            let _ = kill_process_group(id, signal);
        }
    }

    fn end(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
