//! Running a program: a group of processes of its own, within its time, with nothing left behind.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use libris_core::Result;

use super::budgets::RunPermits;
use super::reaper;
use super::take::{Take, Taken};

/// How long a program that is told to end has until it is killed, and how long its output may stay open
/// after it ended.
const GRACE: Duration = Duration::from_secs(1);

/// How much is read at a time.
const BLOCK: usize = 64 * 1024;

/// How much of what a program says on standard error is kept for the log.
const SAID: usize = 4 * 1024;

/// A program to run.
pub(super) struct Order {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) folder: PathBuf,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// How long it may run.
    pub(super) timeout: Duration,
    /// Given back when no process is left.
    pub(super) turn: RunPermits,
}

/// What came of it.
pub(super) struct Ran {
    /// How all that it printed begins.
    pub(super) head: Vec<u8>,
    /// The part that was wanted of it, or that there was no memory for it.
    pub(super) taken: Result<Taken>,
    /// How many bytes of memory were reserved for it, or would have been needed.
    pub(super) reserved: u64,
    /// What tells all that it printed from other outputs, where it came to its end.
    pub(super) digest: Option<u64>,
    pub(super) ending: ProcessEnd,
    /// What it said on standard error, or the beginning of that.
    pub(super) said: String,
}

/// Why a program was not waited for any longer.
pub(super) enum ProcessEnd {
    /// It ended by itself.
    Exited(ExitStatus),
    /// It printed all that is wanted, or too much.
    Enough,
    /// Its time was over.
    TimedOut,
}

/// Runs a program. It is stopped when this is dropped.
pub(super) async fn run(order: Order, take: Take) -> io::Result<Ran> {
    let (tell, told) = oneshot::channel();
    // By itself, because it must go on until no process is left, whether somebody waits or not.
    tokio::spawn(carry_out(order, take, tell));
    told.await.unwrap_or_else(|_| Err(io::Error::other("the runtime is shutting down")))
}

async fn carry_out(order: Order, mut take: Take, mut tell: oneshot::Sender<io::Result<Ran>>) {
    reaper::prepare();
    let spawned = Command::new(order.program)
        .args(order.arguments)
        .current_dir(order.folder)
        .env_clear()
        .envs(order.environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(cause) => return drop(tell.send(Err(cause))),
    };
    let mut group = Group::of(&child);
    let mut pipes = Pipes::of(&mut child);
    let ending = tokio::select! {
        ending = follow(&mut child, &mut pipes, &mut take) => ending,
        () = sleep(order.timeout) => Ok(ProcessEnd::TimedOut),
        // Whatever it is called then, nobody hears of it.
        () = tell.closed() => Ok(ProcessEnd::Enough),
    };
    if let Ok(ProcessEnd::Exited(_)) = ending {
        // What it has left running would keep its output open.
        group.kill();
        let _ = timeout(GRACE, pipes.drain(&mut take)).await;
    }
    let said = String::from_utf8_lossy(&pipes.said).into_owned();
    drop(pipes);
    let head = take.head();
    let digest = matches!(ending, Ok(ProcessEnd::Exited(_))).then(|| take.digest());
    let reserved = take.reserved();
    let _ =
        tell.send(ending.map(|ending| Ran { head, taken: take.finish(), reserved, digest, ending, said }));
    group.signal(Signal::TERM);
    let _ = timeout(GRACE, child.wait()).await;
    group.kill();
    let _ = child.wait().await;
    drop(order.turn);
}

/// Takes what the program prints until it ends or enough is there.
async fn follow(child: &mut Child, pipes: &mut Pipes, take: &mut Take) -> io::Result<ProcessEnd> {
    tokio::select! {
        status = child.wait() => status.map(ProcessEnd::Exited),
        flow = pipes.drain(take) => match flow? {
            ControlFlow::Break(()) => Ok(ProcessEnd::Enough),
            ControlFlow::Continue(()) => child.wait().await.map(ProcessEnd::Exited),
        },
    }
}

/// What a program says, and what was kept of it.
struct Pipes {
    out: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    block: Vec<u8>,
    spare: Vec<u8>,
    said: Vec<u8>,
}

impl Pipes {
    fn of(child: &mut Child) -> Self {
        let block = || Vec::with_capacity(BLOCK);
        Self {
            out: child.stdout.take(),
            errors: child.stderr.take(),
            block: block(),
            spare: block(),
            said: Vec::new(),
        }
    }

    /// Reads both until they are closed or enough is there. Nothing is lost if it is dropped.
    async fn drain(&mut self, take: &mut Take) -> io::Result<ControlFlow<()>> {
        while self.out.is_some() || self.errors.is_some() {
            tokio::select! {
                read = read(&mut self.out, &mut self.block) => {
                    read?;
                    let flow = take.more(&self.block);
                    self.block.clear();
                    if flow.is_break() {
                        return Ok(flow);
                    }
                }
                read = read(&mut self.errors, &mut self.spare) => {
                    read?;
                    let room = SAID - self.said.len();
                    self.said.extend(self.spare.drain(..).take(room));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Reads from a pipe that is open, and lets go of it at its end.
async fn read(pipe: &mut Option<impl AsyncRead + Unpin>, block: &mut Vec<u8>) -> io::Result<()> {
    match pipe {
        None => std::future::pending().await,
        Some(open) => {
            if open.read_buf(block).await? == 0 {
                *pipe = None;
            }
            Ok(())
        }
    }
}

/// A group of processes that is killed in the end, also when a panic or the end of the runtime comes first.
struct Group(Option<Pid>);

impl Group {
    /// That of a program which leads its own. As long as one of them is there, its number is not used again.
    fn of(leader: &Child) -> Self {
        let id = leader.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let mut group = Self(id);
        if !id.is_none_or(reaper::add) {
            group.end();
        }
        group
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.0 {
            // There may be nobody any more.
            let _ = kill_process_group(id, signal);
        }
    }

    /// Once only: when nobody is left, the number may be somebody else's.
    fn kill(&mut self) {
        if let Some(id) = self.0 {
            reaper::remove(id);
        }
        self.end();
    }

    fn end(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
