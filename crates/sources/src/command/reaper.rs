//! Ends the commands of a server that was killed and could not end them itself.
//!
//! The reaper is a process that the server starts before its first command. The server writes the process groups that
//! it starts and ends to the reaper's standard input. When that is closed, because the server is gone, the reaper
//! kills the groups that are left. One gap remains: a server that is killed in the moment between the start of a
//! command and the write of its group leaves that command running.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

/// The process groups of commands that may be running, and who ends them when the server cannot.
static RUNNING: Mutex<RunningGroups> =
    Mutex::new(RunningGroups { groups: Some(BTreeSet::new()), reaper: None });

struct RunningGroups {
    /// By the process that leads them; `None` once no more may run.
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

/// Names the program that calls [`reap`], so that commands end even if this process is killed and cannot end them
/// itself. It is started with the first command. Without it they run until they end by themselves.
pub fn set_reaper(mut command: Command) {
    // In its own group, so that it outlives what a terminal sends to that of the server.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    running().reaper = Some(Reaper { command, process: None });
}

/// What the program of [`set_reaper`] does: reads process groups from its standard input until that is closed, and
/// then kills those that are left.
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
    // There may be nobody any more.
    let _ = kill_process_group(group, Signal::KILL);
}

/// Kills every program that is running, and from then on every one that is started. For the end of the
/// process, which waits for nobody: they are not in its group, so they would not hear of it.
pub fn kill_all() {
    let groups = running().groups.take();
    groups.into_iter().flatten().filter_map(Pid::from_raw).for_each(kill);
}

/// Sees to it that the reaper runs, before a command is started.
pub(super) fn prepare() {
    let RunningGroups { groups: Some(groups), reaper: Some(reaper) } = &mut *running() else { return };
    if !reaper.is_running()
        && let Err(cause) = reaper.start(groups)
    {
        tracing::warn!(%cause, "commands will not end if the server is killed: their reaper cannot be started");
    }
}

/// Notes a group that was started; false if none may run any more.
pub(super) fn add(group: Pid) -> bool {
    let RunningGroups { groups: Some(groups), reaper } = &mut *running() else { return false };
    groups.insert(group.as_raw_pid());
    tell(reaper, '+', group);
    true
}

/// Notes that a group is being killed.
pub(super) fn remove(group: Pid) {
    let RunningGroups { groups: Some(groups), reaper } = &mut *running() else { return };
    if groups.remove(&group.as_raw_pid()) {
        tell(reaper, '-', group);
    }
}

fn tell(reaper: &mut Option<Reaper>, sign: char, group: Pid) {
    let input = reaper.as_mut().and_then(|reaper| reaper.process.as_mut()?.stdin.as_mut());
    let Some(input) = input else { return };
    // Shorter than the smallest pipe, so it is written as a whole or not at all.
    if let Err(cause) = input.write_all(format!("{sign}{}\n", group.as_raw_pid()).as_bytes()) {
        tracing::warn!(%cause, "the reaper of commands does not listen");
    }
}

impl Reaper {
    fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// Starts it, and tells it of the groups that there are.
    fn start(&mut self, groups: &BTreeSet<i32>) -> io::Result<()> {
        self.process = None;
        let mut process = self.command.spawn()?;
        if let Some(input) = &mut process.stdin {
            // One that does not read must not stop the server.
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
    fn those_that_are_left_are_killed() {
        let sleep = || Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let (mut left, mut ended) = (sleep(), sleep());
        let told = format!("+{}\n+{1}\nnonsense\n+\n-{1}\n+0\n", left.id(), ended.id());
        reap(told.as_bytes());
        assert!(!left.wait().unwrap().success());
        assert!(ended.try_wait().unwrap().is_none(), "it was told to have ended");
        ended.kill().unwrap();
        ended.wait().unwrap();
    }
}
