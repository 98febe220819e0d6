//! Runs a program with a time-out, and in the end kills it with all processes that it has started.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use libris_core::Result;
use libris_process::GroupedChild;

use super::budgets::RunPermits;
use super::range_extractor::{ExtractedRange, RangeExtent, RangeExtractor};

/// The time between SIGTERM and SIGKILL, and how long the output may stay open after the program ended.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// How long to wait, once the range is complete, for more output or for the end of the program. Either shows
/// whether another range follows.
const LOOKAHEAD: Duration = Duration::from_millis(250);

/// The size of a read, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// The maximum number of bytes of standard error that are stored; the rest is discarded.
const MAX_LOGGED_STDERR_BYTES: usize = 4 * 1024;

/// A program to run.
pub(super) struct ProcessSpec {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) folder: PathBuf,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// The time-out.
    pub(super) timeout: Duration,
    /// Released when all processes have ended.
    pub(super) permits: RunPermits,
}

/// The result of a run.
pub(super) struct ProcessOutput {
    /// The beginning of the output.
    pub(super) head: Vec<u8>,
    /// The requested range, or an error if there was no memory.
    pub(super) extracted: Result<ExtractedRange>,
    pub(super) extent: RangeExtent,
    /// The memory that the range needed, in bytes. If a reservation was refused, this includes the refused bytes.
    pub(super) needed: u64,
    /// The digest of the whole output, if all of it was read.
    pub(super) digest: Option<u64>,
    pub(super) ending: ProcessEnd,
    /// The beginning of standard error.
    pub(super) stderr: String,
}

/// How a run ended.
pub(super) enum ProcessEnd {
    /// The program exited.
    Exited(ExitStatus),
    /// The program was stopped: the requested range is complete, the output is too large for the limit or the memory,
    /// or the caller is gone.
    Enough,
    /// The time-out expired.
    TimedOut,
}

/// Runs a program. Dropping the future stops the program.
pub(super) async fn run(spec: ProcessSpec, extractor: RangeExtractor) -> io::Result<ProcessOutput> {
    let (sender, receiver) = oneshot::channel();
    // A separate task, which continues until all processes have ended, even if the caller is gone.
    tokio::spawn(run_to_end(spec, extractor, sender));
    receiver.await.unwrap_or_else(|_| Err(io::Error::other("the runtime is shutting down")))
}

/// Runs a program, sends its output and then waits until all its processes have ended. Stops the program if the receiver
/// is dropped.
async fn run_to_end(
    spec: ProcessSpec,
    mut extractor: RangeExtractor,
    mut sender: oneshot::Sender<io::Result<ProcessOutput>>,
) {
    let mut command = Command::new(spec.program);
    command
        .args(spec.arguments)
        .current_dir(spec.folder)
        .env_clear()
        .envs(spec.environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = match GroupedChild::spawn(command) {
        Ok(child) => child,
        Err(cause) => return drop(sender.send(Err(cause))),
    };
    let mut pipes = Pipes::of(&mut child);
    let ending = tokio::select! {
        ending = read_output(&mut child, &mut pipes, &mut extractor) => ending,
        () = sleep(spec.timeout) => Ok(ProcessEnd::TimedOut),
        // The caller is gone.
        () = sender.closed() => Ok(ProcessEnd::Enough),
    };
    let mut is_complete = false;
    if let Ok(ProcessEnd::Exited(_)) = ending {
        // Background processes of the group would hold the pipes open.
        child.kill();
        let drained = timeout(KILL_GRACE, pipes.drain(&mut extractor)).await;
        is_complete = matches!(drained, Ok(Ok(ControlFlow::Continue(()))));
    }
    let stderr = String::from_utf8_lossy(&pipes.stderr).into_owned();
    drop(pipes);
    let head = extractor.head();
    let digest = is_complete.then(|| extractor.digest());
    let extent = extractor.extent(is_complete);
    let needed = extractor.needed();
    let _ = sender.send(ending.map(|ending| ProcessOutput {
        head,
        extracted: extractor.finish(),
        extent,
        needed,
        digest,
        ending,
        stderr,
    }));
    child.terminate();
    let _ = timeout(KILL_GRACE, child.wait()).await;
    child.kill();
    let _ = child.wait().await;
    drop(spec.permits);
}

/// Reads the output until the program ends or the range is complete.
async fn read_output(
    child: &mut GroupedChild,
    pipes: &mut Pipes,
    extractor: &mut RangeExtractor,
) -> io::Result<ProcessEnd> {
    tokio::select! {
        status = child.wait() => status.map(ProcessEnd::Exited),
        flow = pipes.drain(extractor) => match flow? {
            ControlFlow::Break(()) => Ok(ProcessEnd::Enough),
            ControlFlow::Continue(()) => child.wait().await.map(ProcessEnd::Exited),
        },
    }
}

/// The pipes of a program, and the beginning of standard error.
struct Pipes {
    out: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    /// The read buffer of `out`.
    block: Vec<u8>,
    /// The read buffer of `errors`.
    error_block: Vec<u8>,
    stderr: Vec<u8>,
}

impl Pipes {
    fn of(child: &mut GroupedChild) -> Self {
        let block = || Vec::with_capacity(READ_BYTES);
        let pipes = child.pipes();
        Self {
            out: pipes.stdout,
            errors: pipes.stderr,
            block: block(),
            error_block: block(),
            stderr: Vec::new(),
        }
    }

    /// Reads both pipes until they are closed or the range is complete. Cancel-safe.
    async fn drain(&mut self, extractor: &mut RangeExtractor) -> io::Result<ControlFlow<()>> {
        while self.out.is_some() || self.errors.is_some() {
            tokio::select! {
                read = read(&mut self.out, &mut self.block) => {
                    read?;
                    let flow = extractor.push(&self.block);
                    self.block.clear();
                    if flow.is_break() {
                        return Ok(flow);
                    }
                }
                read = read(&mut self.errors, &mut self.error_block) => {
                    read?;
                    let space = MAX_LOGGED_STDERR_BYTES - self.stderr.len();
                    self.stderr.extend(self.error_block.drain(..).take(space));
                }
                () = sleep(LOOKAHEAD), if extractor.is_filled() => {
                    extractor.stop();
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Reads from a pipe if it is open, and closes it at its end.
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
