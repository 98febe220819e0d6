//! A minimal HTTP/1.1 client with little overhead, so that the server dominates the measurement.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// The maximum length of a response.
const MOST: usize = 8 << 20;

/// A connection for sequential requests.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("could not connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::with_capacity(16 << 10) })
    }

    /// Connects from this address of this machine.
    pub(crate) async fn open_from(address: SocketAddr, from: IpAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(address).await.context("could not connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::with_capacity(16 << 10) })
    }

    /// Sends a request and returns the body of the response, which must have status 200 and a `Content-Length`.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.stream.write_all(request).await.context("the connection was closed")?;
        self.received.clear();
        let head = loop {
            self.receive().await?;
            if let Some(at) = memmem::find(&self.received, b"\r\n\r\n") {
                break at + 4;
            }
        };
        let length = length(&self.received[..head])?;
        while self.received.len() < head + length {
            self.receive().await?;
        }
        Ok(&self.received[head..])
    }

    async fn receive(&mut self) -> Result<()> {
        ensure!(self.received.len() < MOST, "the answer is too long");
        let count = self.stream.read_buf(&mut self.received).await.context("the connection was closed")?;
        ensure!(count > 0, "the server closed the connection");
        Ok(())
    }
}

/// The length of the body, from the head of a response.
fn length(head: &[u8]) -> Result<usize> {
    let head = String::from_utf8_lossy(head);
    ensure!(
        head.starts_with("HTTP/1.1 200 "),
        "the server answered {}",
        head.lines().next().unwrap_or_default()
    );
    for line in head.lines() {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            return value.trim().parse().context("the length of the answer is no number");
        }
    }
    bail!("the answer does not say how long it is")
}

/// A number from the metrics of the server.
pub(crate) async fn metric(address: SocketAddr, name: &str) -> Result<usize> {
    let mut connection = Connection::open(address).await?;
    let metrics = metrics(&mut connection, address).await?;
    metrics.get(name).copied().with_context(|| format!("there is no metric `{name}`"))
}

/// The metrics of the server by their names, without the prefix `libris_`.
pub(crate) async fn metrics(
    connection: &mut Connection,
    address: SocketAddr,
) -> Result<HashMap<String, usize>> {
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let text = String::from_utf8_lossy(connection.ask(request.as_bytes()).await?).into_owned();
    let metric = |line: &str| {
        let (name, count) = line.strip_prefix("libris_")?.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    Ok(text.lines().filter_map(metric).collect())
}
