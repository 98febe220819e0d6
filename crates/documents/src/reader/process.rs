//! One child process: starts it, sends it the document, and reads its output within the limits.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use libris_process::{ChildPipes, GroupedChild};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::ReaderConfig;
use crate::cache::ExceededLimit;
use crate::child::{ChildRequest, ChildResponse, ChildWork, NOT_SET_UP};

/// The maximum number of bytes of standard error that are examined.
const MAX_STDERR: u64 = 4 * 1024;

/// The maximum number of bytes of the line before the contents of a member or an image.
const MAX_RESPONSE_LINE: u64 = 1024;

/// The size in bytes of a chunk of the output.
const CHUNK: usize = 64 * 1024;

/// The output of a child process, in chunks that are freed as they are read: neither a growing buffer is copied, nor
/// are the output and what is parsed from it in memory at the same time.
#[derive(Default)]
pub(super) struct ChildOutput {
    chunks: VecDeque<Bytes>,
}

impl ChildOutput {
    /// The number of bytes that are left.
    pub(super) fn remaining(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }
}

impl io::Read for ChildOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(chunk) = self.chunks.front_mut() else { return Ok(0) };
        let read = chunk.len().min(buffer.len());
        chunk.copy_to_slice(&mut buffer[..read]);
        if chunk.is_empty() {
            self.chunks.pop_front();
        }
        Ok(read)
    }
}

/// Whether the server has memory for a member of this many bytes; `None` if no member was requested.
pub(super) type MemberAdmission<'a> = Option<&'a (dyn Fn(u64) -> bool + Send + Sync)>;

/// How a child process ended.
pub(super) enum ChildEnd {
    /// With a response.
    Output(ChildOutput),
    /// Killed, because the server has no memory for the member that it extracted.
    NoMemory,
    /// By a limit or a crash, which another extraction would repeat.
    Exceeded(ExceededLimit),
    /// By the time-out of this process.
    TimedOut,
    /// By a signal that neither this process nor a limit sent, such as that of the out-of-memory killer.
    Killed,
    /// Before it began to work, because the system lacked threads or memory; with the message of the process.
    NotSetUp(String),
}

/// A running child process, which is killed on drop.
pub(super) struct ChildProcess {
    child: GroupedChild,
    request: Vec<u8>,
    document: Bytes,
    /// The maximum number of bytes of its output.
    output_limit: u64,
}

impl ChildProcess {
    pub(super) fn start(config: &ReaderConfig, request: &ChildRequest, document: Bytes) -> io::Result<Self> {
        let output_limit = match request.work {
            ChildWork::Text(_) | ChildWork::Members(_) => request.limits.text,
            ChildWork::Image(_) => request.limits.image.saturating_add(MAX_RESPONSE_LINE),
            // The process enforces the limit of a member itself, and writes a line before it.
            ChildWork::Member(..) => request.limits.member.saturating_add(MAX_RESPONSE_LINE),
        };
        let mut request = serde_json::to_vec(request)?;
        request.push(b'\n');
        let mut command = Command::new(&config.program);
        command
            .args(&config.arguments)
            // The environment of the server may contain secrets.
            .env_clear()
            // mimalloc, the allocator of the `libris` program, maps 1 GiB of writable memory when it starts. The kernel
            // counts all of it against `RLIMIT_DATA`, so that with a lower limit no other mapping would succeed, and the
            // limit would not apply to the memory in use. With this option, it makes memory writable when it is needed.
            .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in libris_process::SYSTEM_VARIABLES {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        #[cfg(unix)]
        command.current_dir("/").arg0("libris");
        let child = GroupedChild::spawn(command)?;
        Ok(Self { child, request, document, output_limit })
    }

    /// Sends the document and waits for the end of the process, at most this long. The contents of a member are received
    /// only if `admit` grants memory for them.
    pub(super) async fn finish(mut self, most: Duration, admit: MemberAdmission<'_>) -> io::Result<ChildEnd> {
        let ChildPipes { stdin: Some(mut input), stdout: Some(output), stderr: Some(errors) } =
            self.child.pipes()
        else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (request, document) = (std::mem::take(&mut self.request), std::mem::take(&mut self.document));
        let end = async {
            let output = receive(output, self.output_limit, admit).await?;
            if !matches!(output, ReceivedOutput::All(_)) {
                // A process whose output is not read to its end need not end by itself.
                self.child.kill();
            }
            io::Result::Ok((output, self.child.wait().await?))
        };
        // `input` stays open until the process has ended: it would exit at the end of its input.
        let work = async { tokio::join!(end, send(&mut input, request, document), first(errors)) };
        let ended = timeout(most, work).await;
        self.child.kill();
        let Ok((end, (), errors)) = ended else { return Ok(ChildEnd::TimedOut) };
        let (output, status) = end?;
        let output = match output {
            ReceivedOutput::All(output) => output,
            ReceivedOutput::TooLarge => return Ok(ChildEnd::Exceeded(ExceededLimit::Output)),
            ReceivedOutput::NoMemory => return Ok(ChildEnd::NoMemory),
        };
        if status.success() {
            return Ok(ChildEnd::Output(output));
        }
        if was_killed(status) {
            return Ok(ChildEnd::Killed);
        }
        if status.code() == Some(i32::from(NOT_SET_UP)) {
            return Ok(ChildEnd::NotSetUp(errors.trim().to_owned()));
        }
        let exceeded = exceeded(status, &errors);
        if matches!(exceeded, ExceededLimit::Crashed | ExceededLimit::Exited) {
            tracing::warn!(%status, message = %errors.trim(), "the extraction of a document crashed");
        }
        Ok(ChildEnd::Exceeded(exceeded))
    }
}

/// Sends the request and the document. Write errors are ignored: a process that ended early does not read everything.
async fn send(input: &mut ChildStdin, request: Vec<u8>, document: Bytes) {
    if input.write_all(&request).await.is_ok() && input.write_all(&document).await.is_ok() {
        let _ = input.flush().await;
    }
}

/// What was received of the output of a process.
enum ReceivedOutput {
    All(ChildOutput),
    /// The output is larger than its limit, or than the process announced.
    TooLarge,
    /// The output announces a member for which there is no memory.
    NoMemory,
}

async fn receive(output: ChildStdout, limit: u64, admit: MemberAdmission<'_>) -> io::Result<ReceivedOutput> {
    let mut output = output.take(limit + 1);
    let mut received = ChildOutput::default();
    let mut admit = admit;
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        while chunk.len() < CHUNK {
            if output.read_buf(&mut chunk).await? == 0 {
                received.chunks.push_back(chunk.freeze());
                return Ok(match output.limit() {
                    0 => ReceivedOutput::TooLarge,
                    _ => ReceivedOutput::All(received),
                });
            }
            // The line is in the first chunk, which may arrive in pieces.
            if let Some(has_memory) = admit.filter(|_| received.chunks.is_empty())
                && let Some((line, size)) = announced(&chunk)
            {
                if !has_memory(size) {
                    return Ok(ReceivedOutput::NoMemory);
                }
                admit = None;
                let left = (line as u64).saturating_add(size).saturating_add(1);
                output.set_limit(left.saturating_sub(chunk.len() as u64).min(output.limit()));
            }
        }
        received.chunks.push_back(chunk.freeze());
    }
}

/// The length of the line at the beginning of the output, and the size of the member that it announces; `None` if it
/// announces none.
fn announced(output: &[u8]) -> Option<(usize, u64)> {
    let beginning = &output[..output.len().min(MAX_RESPONSE_LINE as usize)];
    let line = &beginning[..=memchr::memchr(b'\n', beginning)?];
    match serde_json::from_slice(line).ok()? {
        ChildResponse::Member(size) => Some((line.len(), size)),
        _ => None,
    }
}

/// The beginning of standard error. The rest is read and discarded, so that the process does not block on a full pipe.
async fn first(errors: ChildStderr) -> String {
    let mut data = Vec::new();
    let mut errors = errors.take(MAX_STDERR);
    let _ = errors.read_to_end(&mut data).await;
    let _ = tokio::io::copy(&mut errors.into_inner(), &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&data).into_owned()
}

/// Whether SIGKILL ended the process. No limit and no crash sends this signal.
fn was_killed(status: ExitStatus) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt as _;
        status.signal() == Some(rustix::process::Signal::KILL.as_raw())
    }
    #[cfg(not(unix))]
    {
        let _ = status;
        false
    }
}

/// Why a process failed, from its exit status and its standard error.
fn exceeded(status: ExitStatus, errors: &str) -> ExceededLimit {
    // The standard library prints the first text before it aborts because memory is exhausted; `zlib-rs` panics with
    // the second.
    if errors.contains("memory allocation of") || errors.contains("MemError") {
        return ExceededLimit::Memory;
    }
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt as _;
        if status.signal() == Some(rustix::process::Signal::XCPU.as_raw()) {
            return ExceededLimit::Cpu;
        }
    }
    // An exit status without a code is that of a signal.
    match status.code() {
        None => ExceededLimit::Crashed,
        Some(_) => ExceededLimit::Exited,
    }
}
