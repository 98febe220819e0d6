//! An attacker's HTTP client, which handles every kind of response: errors, refusals, chunked bodies, and none at all.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// The address from which attacks come.
pub(super) const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The address of clients that are not part of the attack.
pub(super) const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The receive buffer of a socket that is never read, so that the kernel buffers little.
const TINY: u32 = 4 << 10;

/// Longer responses are an error.
const LONGEST: usize = 128 << 20;

/// A connection over HTTP/1.1.
pub(super) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// A response of any kind.
pub(super) struct Answer {
    status: u16,
    /// The id of the session that the response opened.
    pub(super) session: Option<String>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// `ok`, the JSON-RPC error code in the body, or the HTTP status if it is not 2xx.
    pub(super) fn kind(&self) -> String {
        if !(200..300).contains(&self.status) {
            return self.status.to_string();
        }
        // The code is within the first bytes; searching a large result would take long.
        let start = &self.body[..self.body.len().min(200)];
        let error = memmem::find(start, b"\"error\":{\"code\":").map(|at| &start[at + 16..]);
        let code = error.and_then(|rest| rest.split(|byte| *byte == b',').next());
        code.map_or_else(|| "ok".to_owned(), |code| String::from_utf8_lossy(code).into_owned())
    }
}

impl Client {
    pub(super) async fn open(address: SocketAddr, from: IpAddr) -> Result<Self> {
        let stream = connect(address, from, None).await?;
        Ok(Self { stream, received: Vec::new() })
    }

    pub(super) async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await.context("the connection was closed")
    }

    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<Answer> {
        self.send(request).await?;
        self.answer().await
    }

    /// Waits for a response and reads all of it.
    pub(super) async fn answer(&mut self) -> Result<Answer> {
        self.received.clear();
        let head = self.until(b"\r\n\r\n", 0).await?;
        let text = String::from_utf8_lossy(&self.received[..head]).to_ascii_lowercase();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let session = field("mcp-session-id:").map(str::to_owned);
        let length: Option<usize> = field("content-length:").map(str::parse).transpose()?;
        let chunked = field("transfer-encoding:").is_some();
        let body = match length {
            Some(length) => {
                self.enough(head + length).await?;
                self.received[head..].to_vec()
            }
            None if chunked => self.chunks(head).await?,
            None => Vec::new(),
        };
        Ok(Answer { status: status.context("the answer has no status")?, session, body })
    }

    async fn chunks(&mut self, mut at: usize) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = self.until(b"\r\n", at).await?;
            let size =
                usize::from_str_radix(String::from_utf8_lossy(&self.received[at..end - 2]).trim(), 16)?;
            self.enough(end + size + 2).await?;
            body.extend_from_slice(&self.received[end..end + size]);
            // Removes the decoded chunk, so that a long response is not stored twice.
            self.received.drain(..end + size + 2);
            at = 0;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Receives until `end` occurs at or after the offset `from`, and returns the offset after it.
    pub(super) async fn until(&mut self, end: &[u8], from: usize) -> Result<usize> {
        let mut from = from;
        loop {
            if let Some(at) = memmem::find(&self.received[from..], end) {
                return Ok(from + at + end.len());
            }
            from = from.max(self.received.len().saturating_sub(end.len()));
            self.receive().await?;
        }
    }

    /// The bytes that were received so far.
    pub(super) fn received(&self) -> &[u8] {
        &self.received
    }

    async fn enough(&mut self, length: usize) -> Result<()> {
        while self.received.len() < length {
            self.receive().await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<()> {
        ensure!(self.received.len() < LONGEST, "the answer is too long");
        let count = self.stream.read_buf(&mut self.received).await.context("the connection was closed")?;
        ensure!(count > 0, "the server closed the connection");
        Ok(())
    }
}

/// Connects from this address of this machine, with a receive buffer of `buffer` bytes if given.
async fn connect(address: SocketAddr, from: IpAddr, buffer: Option<u32>) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(bytes) = buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind((from, 0).into())?;
    let connecting = tokio::time::timeout(Duration::from_secs(5), socket.connect(address));
    let stream =
        connecting.await.context("no connection within five seconds")?.context("could not connect")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Opens a connection from which the attacker will not read.
pub(super) async fn unread(address: SocketAddr) -> Result<TcpStream> {
    connect(address, ATTACKER, Some(TINY)).await
}

/// Counts responses by their kind.
#[derive(Default)]
pub(super) struct Tally(BTreeMap<String, usize>);

impl Tally {
    pub(super) fn count(&mut self, kind: impl Into<String>) {
        *self.0.entry(kind.into()).or_default() += 1;
    }

    pub(super) fn total(&self) -> usize {
        self.0.values().sum()
    }

    pub(super) fn of(&self, kind: &str) -> usize {
        self.0.get(kind).copied().unwrap_or_default()
    }
}

impl<K: Into<String>> Extend<K> for Tally {
    fn extend<I: IntoIterator<Item = K>>(&mut self, kinds: I) {
        kinds.into_iter().for_each(|kind| self.count(kind));
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: Vec<_> = self.0.iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        out.write_str(if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }.as_str())
    }
}

/// Sends a request, and returns the kind of the response, or what happened instead within `patience`.
pub(super) async fn outcome(client: &mut Client, request: &[u8], patience: Duration) -> String {
    match tokio::time::timeout(patience, client.ask(request)).await {
        Ok(Ok(answer)) => answer.kind(),
        Ok(Err(_)) => "closed".to_owned(),
        Err(_) => "unanswered".to_owned(),
    }
}

/// Sends one request on each of many connections of the attacker at the same time. Returns the [`outcome`] of each and
/// how long it took.
pub(super) async fn crowd(
    address: SocketAddr,
    count: usize,
    patience: Duration,
    request: impl Fn(usize) -> Vec<u8>,
) -> Result<Vec<(String, Duration)>> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        clients.push(Client::open(address, ATTACKER).await);
    }
    let mut asking = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let request = request(number);
        asking.spawn(async move {
            let begun = Instant::now();
            let kind = match client {
                Ok(mut client) => outcome(&mut client, &request, patience).await,
                Err(_) => "not connected".to_owned(),
            };
            (kind, begun.elapsed())
        });
    }
    let mut outcomes = Vec::with_capacity(count);
    while let Some(outcome) = asking.join_next().await {
        match outcome {
            Ok(outcome) => outcomes.push(outcome),
            Err(cause) => bail!("a client failed: {cause}"),
        }
    }
    Ok(outcomes)
}
