//! A load generator over HTTP/1.1 with several connections and one request in flight on each.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use rustix::event::{Timespec, epoll};
use serde_json::Value;

use super::{Beside, Bounds, CHUNK, Clock, PATIENCE, Slice};
use crate::mcp::{self, Era};
use crate::program::OverHttp;

/// How many bytes of a response are stored: its head and the beginning of its body.
const START: usize = 2 << 10;

/// A client with several connections to one server.
pub(crate) struct Client {
    server: u32,
    connections: Vec<Connection>,
    waiting: OwnedFd,
    chunk: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// The request, sent repeatedly.
    request: Vec<u8>,
    answer: Answer,
    asked: Instant,
}

/// A partially received response.
#[derive(Default)]
struct Answer {
    /// Its beginning.
    start: Vec<u8>,
    /// The number of bytes received.
    received: usize,
    /// The offset of the body and the end of the response, once the head is complete.
    body: Option<(usize, End)>,
    /// The last five bytes received.
    last: [u8; 5],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// At this total length.
    At(usize),
    /// After an empty chunk.
    Chunked,
}

impl Client {
    /// Opens connections; in the legacy era, each has its own session. `ask` returns the request of each connection, and
    /// `token` its bearer token. Sessions are anonymous.
    pub(crate) fn open(
        server: &OverHttp,
        era: Era,
        connections: usize,
        token: impl Fn(usize) -> Result<Option<String>>,
        ask: impl Fn(usize) -> Value,
    ) -> Result<Self> {
        let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut client =
            Self { server: server.id(), connections: Vec::new(), waiting, chunk: vec![0; CHUNK] };
        for at in 0..connections {
            let mut stream = connect(server.address)?;
            let session = match era {
                Era::Modern => None,
                Era::Legacy => Some(begin(&mut stream, server.address)?),
            };
            let token = token(at)?;
            let request =
                era.posted_with_token(server.address, session.as_deref(), token.as_deref(), &ask(at));
            stream.set_nonblocking(true)?;
            epoll::add(
                &client.waiting,
                &stream,
                epoll::EventData::new_u64(at as u64),
                epoll::EventFlags::IN,
            )?;
            client.connections.push(Connection {
                stream,
                request,
                answer: Answer::default(),
                asked: Instant::now(),
            });
        }
        Ok(client)
    }

    /// Sends the request of this connection once, and returns the response as JSON.
    pub(crate) fn look(&mut self, connection: usize) -> Result<Value> {
        let Connection { stream, request, .. } = &mut self.connections[connection];
        stream.set_nonblocking(false)?;
        let answer = exchange(stream, request)?;
        stream.set_nonblocking(true)?;
        message(&answer.1)
    }

    /// Sends requests on all connections until the bounds are reached.
    pub(crate) fn slice(&mut self, bounds: Bounds, beside: &mut impl Beside) -> Result<Slice> {
        let mut clock = Clock::start(self.server, bounds)?;
        for at in 0..self.connections.len() {
            self.ask(at, &mut clock, beside)?;
        }
        let mut events = Vec::with_capacity(self.connections.len());
        let patience = Timespec::try_from(PATIENCE)?;
        while !clock.done() {
            events.clear();
            match epoll::wait(&self.waiting, rustix::buffer::spare_capacity(&mut events), Some(&patience)) {
                Err(rustix::io::Errno::INTR) => continue,
                ready => ensure!(ready? > 0, "a request was not answered within {PATIENCE:?}"),
            }
            for event in &events {
                let at = event.data.u64() as usize;
                if self.receive(at)? {
                    let connection = &self.connections[at];
                    let now = Instant::now();
                    clock.answered(now - connection.asked);
                    beside.after(at, connection.answer.body())?;
                    self.ask(at, &mut clock, beside)?;
                }
            }
        }
        clock.stop()
    }

    fn ask(&mut self, at: usize, clock: &mut Clock, beside: &mut impl Beside) -> Result<()> {
        if !clock.more(Instant::now()) {
            return Ok(());
        }
        beside.before(at)?;
        let connection = &mut self.connections[at];
        connection.answer.reset();
        connection.asked = Instant::now();
        // Does not block: the request is short, and the server has received all earlier ones.
        connection.stream.write_all(&connection.request).context("could not send a request")
    }

    /// Receives available bytes. Returns whether the response is complete.
    fn receive(&mut self, at: usize) -> Result<bool> {
        let Connection { stream, answer, .. } = &mut self.connections[at];
        match stream.read(&mut self.chunk) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => answer.take(&self.chunk[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error).context("could not receive an answer"),
        }
    }
}

impl Answer {
    fn reset(&mut self) {
        self.start.clear();
        self.received = 0;
        self.body = None;
    }

    /// Adds bytes to the response. Returns whether it is complete.
    fn take(&mut self, more: &[u8]) -> Result<bool> {
        let room = START.saturating_sub(self.start.len()).min(more.len());
        self.start.extend_from_slice(&more[..room]);
        self.received += more.len();
        if self.body.is_none() {
            let Some(head) = memmem::find(&self.start, b"\r\n\r\n") else {
                ensure!(self.start.len() < START, "the head of an answer is too long");
                return Ok(false);
            };
            let head = head + 4;
            self.body = Some((head, end(&self.start[..head])?));
        }
        match self.body {
            Some((_, End::At(end))) => {
                ensure!(self.received <= end, "an answer is longer than it says");
                Ok(self.received == end)
            }
            Some((_, End::Chunked)) => {
                let kept = more.len().min(self.last.len());
                self.last.rotate_left(kept);
                let at = self.last.len() - kept;
                self.last[at..].copy_from_slice(&more[more.len() - kept..]);
                // Encoded JSON contains no line break, so only the last chunk matches.
                Ok(self.last == *b"0\r\n\r\n")
            }
            None => Ok(false),
        }
    }

    /// The beginning of the body.
    fn body(&self) -> &[u8] {
        self.body.map_or(&[], |(start, _)| &self.start[start..])
    }
}

/// A connection for sequential requests.
pub(crate) struct Conversation {
    stream: TcpStream,
    address: SocketAddr,
    answer: Vec<u8>,
}

impl Conversation {
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        Ok(Self { stream: connect(address)?, address, answer: Vec::new() })
    }

    /// Sends a modern request and returns the body of the response.
    pub(crate) fn ask(&mut self, request: &Value) -> Result<&[u8]> {
        let request = Era::Modern.posted(self.address, None, request);
        self.answer = exchange(&mut self.stream, &request)?.1;
        Ok(&self.answer)
    }
}

/// The end of the response with this head.
fn end(head: &[u8]) -> Result<End> {
    ensure!(
        head.starts_with(b"HTTP/1.1 200 ") || head.starts_with(b"HTTP/1.1 202 "),
        "the server answered {}",
        String::from_utf8_lossy(head).lines().next().unwrap_or_default()
    );
    match header(head, "content-length") {
        Some(length) => {
            Ok(End::At(head.len() + length.parse::<usize>().context("the length of an answer is no number")?))
        }
        None if header(head, "transfer-encoding").is_some() => Ok(End::Chunked),
        None if head.starts_with(b"HTTP/1.1 202 ") => Ok(End::At(head.len())),
        None => bail!("an answer does not say how long it is"),
    }
}

/// The value of the first header of this name.
fn header<'h>(head: &'h [u8], name: &str) -> Option<&'h str> {
    let head = str::from_utf8(head).ok()?;
    let mut headers = head.split("\r\n").filter_map(|line| line.split_once(':'));
    headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).context("could not connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Opens a session and returns its id.
fn begin(stream: &mut TcpStream, address: SocketAddr) -> Result<String> {
    let (head, _) = exchange(stream, &Era::Legacy.posted(address, None, &mcp::initialize()))?;
    let session = header(&head, "mcp-session-id").context("the server opened no session")?.to_owned();
    exchange(stream, &Era::Legacy.posted(address, Some(&session), &mcp::initialized()))?;
    Ok(session)
}

/// Sends a request and returns the head and the body of the response.
fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    stream.write_all(request).context("could not send a request")?;
    let mut answer = Answer::default();
    let mut all = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = stream.read(&mut chunk).context("could not receive an answer")?;
        ensure!(count > 0, "the server closed a connection");
        all.extend_from_slice(&chunk[..count]);
        if answer.take(&chunk[..count]).with_context(|| String::from_utf8_lossy(&all).into_owned())? {
            break;
        }
    }
    let (start, end) = answer.body.context("the answer has no head")?;
    let body = all.split_off(start);
    Ok((all, if end == End::Chunked { joined(&body)? } else { body }))
}

/// A body without chunk framing.
fn joined(mut body: &[u8]) -> Result<Vec<u8>> {
    let mut whole = Vec::with_capacity(body.len());
    loop {
        let line = memmem::find(body, b"\r\n").context("a chunk has no length")?;
        let length = usize::from_str_radix(str::from_utf8(&body[..line])?.trim(), 16)?;
        if length == 0 {
            return Ok(whole);
        }
        let chunk = body.get(line + 2..line + 2 + length).context("a chunk is too short")?;
        whole.extend_from_slice(chunk);
        body = body.get(line + 2 + length + 2..).context("a chunk does not end")?;
    }
}

/// The JSON-RPC response in a body, which is JSON or an event stream.
fn message(body: &[u8]) -> Result<Value> {
    if body.starts_with(b"{") {
        return Ok(serde_json::from_slice(body)?);
    }
    let lines = body.split(|&byte| byte == b'\n');
    let mut data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    let data = data.find(|data| memmem::find(data, b"\"id\"").is_some());
    Ok(serde_json::from_slice(data.context("the answer holds no response")?)?)
}
