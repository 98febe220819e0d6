//! One child process: starts it, sends it the document, and reads its output within the limits.

use std::io;
use std::process::{ExitStatus, Stdio};

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::ReaderConfig;
use crate::ExtractionLimits;
use crate::cache::ExceededLimit;
use crate::child::ChildRequest;

/// The most bytes of standard error that are examined.
const MAX_STDERR: u64 = 4 * 1024;

/// How a child process ended: with a response, by a limit or a crash, or by the time-out of the parent.
pub(super) enum ChildEnd {
    Output(Bytes),
    Exceeded(ExceededLimit),
    TimedOut,
}

/// A running child process, which is killed on drop.
pub(super) struct ChildProcess {
    child: Child,
    #[cfg(unix)]
    group: libris_process::ProcessGroup,
    request: Vec<u8>,
    document: Bytes,
}

impl ChildProcess {
    pub(super) fn start(config: &ReaderConfig, request: &ChildRequest, document: Bytes) -> io::Result<Self> {
        #[cfg(unix)]
        libris_process::prepare();
        let mut request = serde_json::to_vec(request)?;
        request.push(b'\n');
        let mut command = Command::new(&config.program);
        command
            .args(&config.arguments)
            // The environment of the server may contain secrets.
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0).current_dir("/").arg0("libris");
        let child = command.spawn()?;
        Ok(Self {
            #[cfg(unix)]
            group: libris_process::ProcessGroup::of(child.id()),
            child,
            request,
            document,
        })
    }

    /// Sends the document and waits for the end of the process.
    pub(super) async fn finish(mut self, limits: &ExtractionLimits) -> io::Result<ChildEnd> {
        let pipes = (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (request, document) = (std::mem::take(&mut self.request), std::mem::take(&mut self.document));
        let work = async {
            let (_, output, errors) =
                tokio::join!(send(input, request, document), receive(output, limits.output), first(errors));
            // A process that exceeds the limit need not end by itself.
            if output.as_ref().is_ok_and(Option::is_none) {
                self.child.start_kill()?;
            }
            let status = self.child.wait().await?;
            io::Result::Ok((output?, errors, status))
        };
        let ended = timeout(limits.wall, work).await;
        #[cfg(unix)]
        self.group.kill();
        let (output, errors, status) = match ended {
            Ok(ended) => ended?,
            Err(_) => return Ok(ChildEnd::TimedOut),
        };
        let Some(output) = output else { return Ok(ChildEnd::Exceeded(ExceededLimit::Output)) };
        if status.success() {
            return Ok(ChildEnd::Output(output));
        }
        let exceeded = exceeded(status, &errors);
        if exceeded == ExceededLimit::Crashed {
            tracing::warn!(%status, message = %errors.trim(), "the extraction of a document crashed");
        }
        Ok(ChildEnd::Exceeded(exceeded))
    }
}

/// Sends the request and the document. Write errors are ignored: a process that ended early does not read everything.
async fn send(mut input: ChildStdin, request: Vec<u8>, document: Bytes) {
    if input.write_all(&request).await.is_ok() {
        let _ = input.write_all(&document).await;
    }
    // The end of the input marks the end of the document.
    let _ = input.shutdown().await;
}

/// The output; `None` if it is larger than the limit.
async fn receive(output: ChildStdout, limit: u64) -> io::Result<Option<Bytes>> {
    let mut data = Vec::new();
    output.take(limit + 1).read_to_end(&mut data).await?;
    Ok((data.len() as u64 <= limit).then(|| data.into()))
}

/// The beginning of standard error. The rest is read and discarded, so that the process does not block on a full pipe.
async fn first(errors: ChildStderr) -> String {
    let mut data = Vec::new();
    let mut errors = errors.take(MAX_STDERR);
    let _ = errors.read_to_end(&mut data).await;
    let _ = tokio::io::copy(&mut errors.into_inner(), &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&data).into_owned()
}

/// Why a process failed, from its exit status and its standard error.
fn exceeded(status: ExitStatus, errors: &str) -> ExceededLimit {
    // What the standard library prints before it aborts.
    if errors.contains("memory allocation of") {
        return ExceededLimit::Memory;
    }
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt as _;
        // The kernel kills at the hard limit of processor time, which equals the soft one.
        let cpu =
            [rustix::process::Signal::XCPU, rustix::process::Signal::KILL].map(|signal| signal.as_raw());
        if status.signal().is_some_and(|signal| cpu.contains(&signal)) {
            return ExceededLimit::Cpu;
        }
    }
    #[cfg(not(unix))]
    let _ = status;
    ExceededLimit::Crashed
}
