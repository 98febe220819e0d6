//! The stdio transport: a server as a child process, with one message per line on its standard input and output.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use libris_process::{ChildPipes, GroupedChild};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::process::{ChildStderr, Command};
use tokio::sync::{Mutex, watch};

use crate::config::{ChildEnvironment, RemoteTarget};
use crate::decode::{self, DecodeFailure, DroppedMessage, PendingMethods};
use crate::fault::{FaultJournal, RemoteFault, quoted};

/// The connection is closed after this many consecutive lines that are not messages. A few are ignored, because some
/// servers log to standard output.
const MAX_GARBAGE_LINES: usize = 1000;

/// Longer lines of standard error are split at this many bytes.
const MAX_STDERR_LINE: u64 = 2048;

/// How long to wait for the end of standard error after the connection was closed. There must be a limit: a process that
/// the server has started may keep the pipe open.
const STDERR_GRACE: Duration = Duration::from_secs(1);

/// Starts a server, and returns its transport and its process. Dropping the process kills it, together with the
/// processes that it has started: `npx …`, for example, starts the server itself as a child process.
pub(crate) fn start(
    target: &RemoteTarget,
    max_message: usize,
    journal: &FaultJournal,
) -> Result<(impl Transport<RoleClient> + 'static + use<>, GroupedChild), RemoteFault> {
    let RemoteTarget::Stdio { program, arguments, folder, environment } = target else {
        return Err(RemoteFault::NotStarted("it is not a program".to_owned()));
    };
    let mut command = Command::new(found(program));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if !folder.as_os_str().is_empty() {
        command.current_dir(folder);
    }
    if let ChildEnvironment::Only(variables) = environment {
        command.env_clear().envs(variables);
    }
    let mut child = GroupedChild::spawn(command).map_err(|cause| {
        let program = program.to_string_lossy();
        RemoteFault::NotStarted(match cause.kind() {
            io::ErrorKind::NotFound => {
                format!(
                    "there is no program `{}`; hint: install it, or write its full path",
                    quoted(&program)
                )
            }
            _ => cause.to_string(),
        })
    })?;
    let ChildPipes { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr) } = child.pipes() else {
        return Err(RemoteFault::NotStarted("it has no pipes".to_owned()));
    };
    let (is_open, stderr_end) = watch::channel(());
    let recorded = journal.clone();
    tokio::spawn(async move {
        record_stderr(stderr, recorded).await;
        drop(is_open);
    });
    let stderr_end = StderrEnd(stderr_end);
    let transport = LineTransport::new(stdout, stdin, max_message, journal.clone(), stderr_end);
    Ok((transport, child))
}

/// The program to start. Unix searches `PATH` itself. Windows would find programs, but not scripts such as `npx.cmd`.
fn found(program: &OsStr) -> OsString {
    let found = cfg!(windows).then(|| libris_process::executable(program, Path::new(""))).flatten();
    found.map_or_else(|| program.to_owned(), PathBuf::into_os_string)
}

/// Logs standard error, and records its last lines in the journal for the error message if the server ends.
async fn record_stderr(stderr: ChildStderr, journal: FaultJournal) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(MAX_STDERR_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                tracing::debug!(line = %quoted(&text), "an MCP server wrote to its standard error");
                journal.line(&text);
            }
        }
    }
}

/// Signals the end of standard error: `record_stderr` has ended and the sender of the channel is dropped.
#[derive(Clone)]
struct StderrEnd(watch::Receiver<()>);

impl StderrEnd {
    /// Waits, at most for [`STDERR_GRACE`], until standard error is read to its end, so that a fault can quote its last
    /// lines.
    async fn reached(&mut self) {
        let _late = tokio::time::timeout(STDERR_GRACE, self.0.changed()).await;
    }
}

/// A transport with one message per line.
struct LineTransport<R, W> {
    reader: BufReader<R>,
    writer: Arc<Mutex<Option<W>>>,
    pending: PendingMethods,
    journal: FaultJournal,
    stderr_end: StderrEnd,
    max_message: usize,
    /// The beginning of a line that is not complete yet. It is a field because `receive` may be cancelled and called
    /// again.
    line: Vec<u8>,
    /// Set while an oversized line is received and discarded.
    dropped: Option<DroppedMessage>,
    /// The number of consecutive lines that were not messages.
    garbage: usize,
    /// The request `server/discover`, until `initialize` is sent.
    discovery: Option<RequestId>,
    /// A request `server/discover` that was given up. A server that takes long to start still answers it, before it
    /// answers `initialize`; rmcp would take that answer for the response to `initialize`.
    abandoned: Option<RequestId>,
}

/// The outcome of [`LineTransport::receive_line`].
enum ReceivedLine {
    /// A complete line is in `line`.
    Line,
    /// A line that exceeds the limit.
    TooLarge(DroppedMessage),
    End,
}

impl<R: AsyncRead + Unpin + Send, W> LineTransport<R, W> {
    fn new(reader: R, writer: W, max_message: usize, journal: FaultJournal, stderr_end: StderrEnd) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
            writer: Arc::new(Mutex::new(Some(writer))),
            pending: PendingMethods::default(),
            journal,
            stderr_end,
            max_message,
            line: Vec::new(),
            dropped: None,
            garbage: 0,
            discovery: None,
            abandoned: None,
        }
    }

    /// Records a request of the handshake before it is sent.
    fn record_handshake(&mut self, message: &ClientJsonRpcMessage) {
        let ClientJsonRpcMessage::Request(request) = message else { return };
        match request.request.method() {
            "server/discover" => self.discovery = Some(request.id.clone()),
            "initialize" => self.abandoned = self.discovery.take(),
            _ => {}
        }
    }

    /// Whether a message answers a request of the handshake that was given up.
    fn is_abandoned(&self, message: &ServerJsonRpcMessage) -> bool {
        let id = match message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        id.is_some() && id == self.abandoned.as_ref()
    }

    /// Receives a line into `self.line`. Cancellation-safe: bytes are consumed only after they are stored.
    async fn receive_line(&mut self) -> ReceivedLine {
        loop {
            let available = match self.reader.fill_buf().await {
                Ok(available) if !available.is_empty() => available,
                _ => return ReceivedLine::End,
            };
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(available.len(), |at| at + 1);
            let bytes = &available[..taken];
            if let Some(dropped) = &mut self.dropped {
                dropped.add(bytes);
            } else if self.line.len() + taken > self.max_message {
                let mut dropped = DroppedMessage::default();
                dropped.add(&self.line);
                dropped.add(bytes);
                self.dropped = Some(dropped);
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(bytes);
            }
            self.reader.consume(taken);
            // Gives up a line that does not end, so that its request does not wait for ever.
            let is_endless = self
                .dropped
                .as_ref()
                .is_some_and(|dropped| dropped.len() > self.max_message.saturating_mul(8));
            if newline.is_some() || is_endless {
                return match self.dropped.take() {
                    Some(dropped) => ReceivedLine::TooLarge(dropped),
                    None => ReceivedLine::Line,
                };
            }
        }
    }

    /// Decodes the received line. `Ok(None)`: ignore the line. `Err`: close the connection.
    fn decoded(&mut self) -> Result<Option<ServerJsonRpcMessage>, RemoteFault> {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        if text.is_empty() {
            return Ok(None);
        }
        let decoded = decode::message(text, &self.pending, self.max_message);
        // Reuses the buffer, unless a large message made it large.
        if line.capacity() <= 64 << 10 {
            self.line = line;
            self.line.clear();
        }
        match decoded {
            Ok(message) => {
                self.garbage = 0;
                Ok(Some(message))
            }
            Err(DecodeFailure::Response(id, fault)) => Ok(Some(decode::substitute(id, &fault))),
            Err(DecodeFailure::Unknown(fault)) => Err(fault),
            Err(DecodeFailure::NotMessage) => {
                self.garbage += 1;
                if self.garbage >= MAX_GARBAGE_LINES {
                    return Err(RemoteFault::NotJson(self.garbage));
                }
                tracing::debug!("an MCP server wrote a line that is not a message to its standard output");
                Ok(None)
            }
        }
    }
}

impl<R, W> Transport<RoleClient> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.pending.record(&message);
        self.record_handshake(&message);
        let writer = self.writer.clone();
        let mut stderr_end = self.stderr_end.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let sent = async {
                let mut writer = writer.lock().await;
                let writer = writer.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
                writer.write_all(&line).await?;
                writer.flush().await
            }
            .await;
            if sent.is_err() {
                stderr_end.reached().await;
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let fatal = match self.receive_line().await {
                ReceivedLine::Line => match self.decoded() {
                    Ok(Some(message)) if self.is_abandoned(&message) => continue,
                    Ok(Some(message)) => return Some(message),
                    Ok(None) => continue,
                    Err(fault) => fault,
                },
                ReceivedLine::TooLarge(dropped) => {
                    let fault = RemoteFault::TooLarge { limit: self.max_message };
                    match dropped.id() {
                        Some(id) => return Some(decode::substitute(id, &fault)),
                        None => fault,
                    }
                }
                ReceivedLine::End => {
                    self.stderr_end.reached().await;
                    return None;
                }
            };
            self.journal.fail(fatal);
            return None;
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // Closing its standard input asks a server to exit.
        drop(self.writer.lock().await.take());
        Ok(())
    }
}
