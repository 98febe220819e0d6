//! A load generator over stdio with a fixed number of requests in flight.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use memchr::{memchr, memmem};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::{Bounds, CHUNK, Clock, PATIENCE, Slice};
use crate::mcp::{self, Era};
use crate::program::OverStdio;

/// The first id. All later ones have the same number of digits, so that all responses have the same length.
const FIRST: u64 = 10_000_000;

/// The id is searched in this many bytes at the start and the end of a response.
const NEAR: usize = 64;

/// A client of one server.
pub(crate) struct Client {
    server: OverStdio,
    /// The bytes of a request before and after its id.
    request: (Vec<u8>, Vec<u8>),
    /// The length of every response.
    length: usize,
    id: u64,
}

/// The response being received.
#[derive(Default)]
struct Line {
    start: Vec<u8>,
    end: Vec<u8>,
    length: usize,
}

impl Client {
    /// Performs the handshake if the era has one. `request` is sent repeatedly.
    pub(crate) fn open(mut server: OverStdio, era: Era, request: &Value) -> Result<Self> {
        if era == Era::Legacy {
            tell(&mut server, &mcp::initialize())?;
            hear(&mut server)?;
            tell(&mut server, &mcp::initialized())?;
        }
        let text = request.to_string();
        let (before, after) = text.split_once("\"id\":1,").context("the request has no id")?;
        let request = (format!("{before}\"id\":").into(), format!(",{after}\n").into());
        Ok(Self { server, request, length: 0, id: FIRST })
    }

    /// Sends the request once and returns the response as JSON.
    pub(crate) fn look(&mut self) -> Result<Value> {
        let mut line = Vec::new();
        self.push(&mut line);
        self.server.input.write_all(&line)?;
        let answer = hear(&mut self.server)?;
        self.length = answer.len();
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Keeps this many requests in flight until the bounds are reached. Call [`look`](Self::look) first.
    pub(crate) fn slice(&mut self, bounds: Bounds, in_flight: usize) -> Result<Slice> {
        self.block(false)?;
        let outcome = self.asking(bounds, in_flight);
        self.block(true)?;
        outcome
    }

    fn asking(&mut self, bounds: Bounds, in_flight: usize) -> Result<Slice> {
        let mut clock = Clock::start(self.server.id(), bounds)?;
        let mut asked = HashMap::with_capacity(in_flight);
        let mut chunk = vec![0; CHUNK];
        let mut output = Vec::new();
        let mut line = Line::default();
        let mut now = Instant::now();
        loop {
            while asked.len() < in_flight && clock.more(now) {
                asked.insert(self.id, now);
                self.push(&mut output);
            }
            if clock.done() {
                return clock.stop();
            }
            // One system call per message, as clients do.
            while let Some(end) = memchr(b'\n', &output) {
                match self.server.input.write(&output[..=end]) {
                    Ok(count) => drop(output.drain(..count)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).context("could not send a request"),
                }
            }
            let mut rest = match self.server.output.read(&mut chunk) {
                Ok(0) => bail!("the server ended"),
                Ok(count) => &chunk[..count],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(!output.is_empty())?;
                    continue;
                }
                Err(error) => return Err(error).context("could not receive an answer"),
            };
            now = Instant::now();
            while let Some(end) = memchr(b'\n', rest) {
                line.take(&rest[..end]);
                rest = &rest[end + 1..];
                ensure!(
                    line.length == self.length,
                    "an answer has {} bytes, not {}",
                    line.length,
                    self.length
                );
                let sent = line.id().and_then(|id| asked.remove(&id));
                clock.answered(now - sent.context("an answer came to no request")?);
                line = Line { length: 0, ..line };
                line.start.clear();
                line.end.clear();
            }
            line.take(rest);
        }
    }

    /// Waits until the pipe is readable or, if there is something to send, writable.
    fn wait(&self, sending: bool) -> Result<()> {
        let mut ends = vec![PollFd::new(&self.server.output, PollFlags::IN)];
        if sending {
            ends.push(PollFd::new(&self.server.input, PollFlags::OUT));
        }
        let ready = poll(&mut ends, Some(&Timespec::try_from(PATIENCE)?))?;
        ensure!(ready > 0, "a request was not answered within {PATIENCE:?}");
        Ok(())
    }

    /// Appends a request to the output buffer.
    fn push(&mut self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.request.0);
        output.extend_from_slice(self.id.to_string().as_bytes());
        output.extend_from_slice(&self.request.1);
        self.id += 1;
    }

    fn block(&self, block: bool) -> Result<()> {
        rustix::io::ioctl_fionbio(&self.server.input, !block)?;
        Ok(rustix::io::ioctl_fionbio(&self.server.output, !block)?)
    }
}

impl Line {
    fn take(&mut self, more: &[u8]) {
        let room = NEAR.saturating_sub(self.start.len()).min(more.len());
        self.start.extend_from_slice(&more[..room]);
        if more.len() >= NEAR {
            self.end.clear();
        }
        self.end.extend_from_slice(&more[more.len().saturating_sub(NEAR)..]);
        self.length += more.len();
    }

    /// The id, which is before or after the result.
    fn id(&self) -> Option<u64> {
        let number = |text: &[u8], at: usize| {
            let digits = text.get(at + 5..)?.split(|byte| !byte.is_ascii_digit()).next()?;
            str::from_utf8(digits).ok()?.parse().ok()
        };
        let before = memmem::find(&self.start, b"\"id\":").and_then(|at| number(&self.start, at));
        before.or_else(|| memmem::rfind(&self.end, b"\"id\":").and_then(|at| number(&self.end, at)))
    }
}

/// Sends a message.
pub(crate) fn tell(server: &mut OverStdio, message: &Value) -> Result<()> {
    server.input.write_all(format!("{message}\n").as_bytes()).context("the server has ended")
}

/// The next message, while no other request is in flight.
pub(crate) fn hear(server: &mut OverStdio) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut chunk = [0; 64 << 10];
    while line.last() != Some(&b'\n') {
        let mut ends = [PollFd::new(&server.output, PollFlags::IN)];
        let ready = poll(&mut ends, Some(&Timespec::try_from(PATIENCE)?))?;
        ensure!(ready > 0, "a request was not answered within {PATIENCE:?}");
        let count = server.output.read(&mut chunk)?;
        ensure!(count > 0, "the server ended");
        line.extend_from_slice(&chunk[..count]);
    }
    line.pop();
    Ok(line)
}
