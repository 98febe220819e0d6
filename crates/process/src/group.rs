//! A process group that is killed on drop.

use rustix::process::{Pid, Signal, kill_process_group};

use crate::reaper;

/// A process group that is killed on drop, also after a panic or when the runtime shuts down.
#[derive(Debug)]
pub struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// The process group whose leader has this process id. `None` if the leader has ended; then there is nothing to kill.
    /// The id is not reused while a process of the group exists.
    pub fn of(leader: Option<u32>) -> Self {
        let id = leader.and_then(|id| Pid::from_raw(id.cast_signed()));
        let mut group = Self(id);
        if !id.is_none_or(reaper::add) {
            // `kill_all` was called already, because the server is about to exit.
            group.end();
        }
        group
    }

    /// Asks the group to end, with SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the group. Further calls do nothing, because the id may be reused after the end of the group.
    pub fn kill(&mut self) {
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
