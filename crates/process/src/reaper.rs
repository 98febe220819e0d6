//! The reaper: a process that kills the commands of a server after the server itself was killed.
//!
//! The server starts the reaper before its first command. To the reaper's standard input, it writes the id of each
//! process group that it starts or kills. An end of file there means that the server has ended: the reaper then kills
//! the remaining groups. One gap remains: if the server is killed after it has started a command and before it has
//! written the id of its group, the command keeps running.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

/// The process groups of commands that may be running, and the reaper.
static RUNNING: Mutex<RunningGroups> =
    Mutex::new(RunningGroups { groups: Some(BTreeSet::new()), reaper: None });

struct RunningGroups {
    /// By the process id of the group leader; `None` after `kill_all`.
    groups: Option<BTreeSet<i32>>,
    reaper: Option<Reaper>,
}

struct Reaper {
    command: Command,
    process: Option<Child>,
}

fn running() -> MutexGuard<'static, RunningGroups> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the command that starts the reaper: a program that calls [`reap`] with its standard input. The reaper is
/// started before the first command. Without a reaper, the commands of a killed server run to completion.
pub fn set_reaper(mut command: Command) {
    // The reaper has its own process group, so that signals from the terminal to the group of the server do not end
    // it.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    running().reaper = Some(Reaper { command, process: None });
}

/// The work of the reaper process: reads the ids of process groups from its standard input until the end of file,
/// and then kills the remaining groups.
pub fn reap(input: impl BufRead) {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        let group = line.get(1..).and_then(|number| number.parse().ok()).filter(|number: &i32| *number > 1);
        match (line.as_bytes().first(), group) {
            (Some(b'+'), Some(group)) => drop(groups.insert(group)),
            (Some(b'-'), Some(group)) => drop(groups.remove(&group)),
            _ => {}
        }
    }
    groups.into_iter().filter_map(Pid::from_raw).for_each(kill);
}

fn kill(group: Pid) {
    // The group may have ended already.
    let _ = kill_process_group(group, Signal::KILL);
}

/// Kills all running commands. Commands that are started later are killed at once. Call this before the process
/// exits: commands have process groups of their own, so a signal to the process group of the server does not reach
/// them.
pub fn kill_all() {
    let groups = running().groups.take();
    groups.into_iter().flatten().filter_map(Pid::from_raw).for_each(kill);
}

/// Starts the reaper if it is not running. Call this before a command is started.
pub(crate) fn prepare() {
    let RunningGroups { groups: Some(groups), reaper: Some(reaper) } = &mut *running() else { return };
    if !reaper.is_running()
        && let Err(cause) = reaper.start(groups)
    {
        tracing::warn!(%cause, "commands will not end if the server is killed: their reaper cannot be started");
    }
}

/// Registers a started group. Returns `false` after `kill_all`; then the caller must kill the group.
pub(crate) fn add(group: Pid) -> bool {
    let RunningGroups { groups: Some(groups), reaper } = &mut *running() else { return false };
    groups.insert(group.as_raw_pid());
    send(reaper, '+', group);
    true
}

/// Unregisters a group that is being killed.
pub(crate) fn remove(group: Pid) {
    let RunningGroups { groups: Some(groups), reaper } = &mut *running() else { return };
    if groups.remove(&group.as_raw_pid()) {
        send(reaper, '-', group);
    }
}

/// Sends the reaper a line about a group: `+` when it was started, `-` when it is killed.
fn send(reaper: &mut Option<Reaper>, sign: char, group: Pid) {
    let input = reaper.as_mut().and_then(|reaper| reaper.process.as_mut()?.stdin.as_mut());
    let Some(input) = input else { return };
    // Shorter than `PIPE_BUF`, so the write is atomic.
    if let Err(cause) = input.write_all(format!("{sign}{}\n", group.as_raw_pid()).as_bytes()) {
        tracing::warn!(%cause, "could not write to the reaper: commands may outlive the server if it is killed");
    }
}

impl Reaper {
    fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// Starts the reaper and sends it the current groups.
    fn start(&mut self, groups: &BTreeSet<i32>) -> io::Result<()> {
        self.process = None;
        let mut process = self.command.spawn()?;
        if let Some(input) = &mut process.stdin {
            // A reaper that does not read must not block the server.
            fcntl_setfl(&*input, fcntl_getfl(&*input)? | OFlags::NONBLOCK)?;
            let groups: String = groups.iter().map(|group| format!("+{group}\n")).collect();
            input.write_all(groups.as_bytes())?;
        }
        self.process = Some(process);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::reap;

    #[test]
    fn remaining_groups_are_killed() {
        let sleep = || Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let (mut left, mut ended) = (sleep(), sleep());
        let input = format!("+{}\n+{1}\nnonsense\n+\n-{1}\n+0\n", left.id(), ended.id());
        reap(input.as_bytes());
        assert!(!left.wait().unwrap().success());
        assert!(ended.try_wait().unwrap().is_none(), "its end was reported, so it is not killed");
        ended.kill().unwrap();
        ended.wait().unwrap();
    }
}
