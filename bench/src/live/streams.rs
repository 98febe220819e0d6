//! Many concurrent `subscriptions/listen` streams: opening, idling, and notifications of a change.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::mcp::{self, Era};

/// The most streams that are opened concurrently: the accept queue of a server is short.
const OPENING: usize = 32;

/// The number of streams from one address. A server slows down an address that sends 2,000 requests to subscribe.
const PER_ADDRESS: usize = 1_000;

/// The time-out for opening all streams, or for notifying all of them.
const PATIENCE: Duration = Duration::from_secs(120);

/// Streams that are open until this is dropped. The first of them never reads.
pub(super) struct Streams {
    told: mpsc::UnboundedReceiver<Told>,
    readers: usize,
    ended: usize,
    /// How many streams were opened per second.
    pub(super) rate: f64,
    _silent: TcpStream,
    _tasks: JoinSet<()>,
}

/// An event of a stream.
pub(super) enum Told {
    Updated { stream: usize, at: Instant },
    Ended,
}

/// The delivery of a change to the streams.
pub(super) struct FanOut {
    /// The time from the end of the write to the notification, for each stream that was notified.
    pub(super) times: Vec<Duration>,
    /// How many notifications were duplicates: the stream already had one.
    pub(super) again: usize,
}

impl Streams {
    /// Opens this many streams to one resource.
    pub(super) async fn open(address: SocketAddr, uri: &str, count: usize) -> Result<Self> {
        let request = Arc::new(Era::Modern.posted(address, None, &mcp::listen(uri)));
        let (sender, told) = mpsc::unbounded_channel();
        let begun = Instant::now();
        let mut silent = TcpStream::connect(address).await.context("could not connect")?;
        silent.write_all(&request).await?;
        let mut opening = JoinSet::new();
        for first in 1..=OPENING {
            let (request, sender) = (request.clone(), sender.clone());
            opening.spawn(async move {
                let mut open = Vec::new();
                for stream in (first..count).step_by(OPENING) {
                    let host = u8::try_from(2 + stream / PER_ADDRESS).context("too many streams")?;
                    let connection = listen(address, Ipv4Addr::new(127, 0, 0, host).into(), &request).await?;
                    open.push((stream, connection));
                }
                Ok::<_, anyhow::Error>((open, sender))
            });
        }
        let mut tasks = JoinSet::new();
        let opened = async {
            while let Some(opened) = opening.join_next().await {
                let (open, sender) = opened??;
                for (stream, connection) in open {
                    tasks.spawn(hear(connection, stream, sender.clone()));
                }
            }
            Ok::<_, anyhow::Error>(())
        };
        let opened = tokio::time::timeout(PATIENCE, opened).await;
        opened.context("the streams were not open in time")??;
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        Ok(Self { told, readers: count - 1, ended: 0, rate, _silent: silent, _tasks: tasks })
    }

    /// Calls `change` and waits until each stream that reads was notified, at most for [`PATIENCE`].
    pub(super) async fn fan_out(&mut self, change: impl FnOnce() -> Result<()>) -> Result<FanOut> {
        self.drain();
        change()?;
        let changed = Instant::now();
        let mut heard = vec![false; self.readers + 1];
        let mut fan_out = FanOut { times: Vec::with_capacity(self.readers), again: 0 };
        let telling = async {
            while fan_out.times.len() < self.readers {
                match self.told.recv().await {
                    Some(Told::Updated { stream, .. }) if heard[stream] => fan_out.again += 1,
                    Some(Told::Updated { stream, at }) => {
                        heard[stream] = true;
                        fan_out.times.push(at.saturating_duration_since(changed));
                    }
                    Some(Told::Ended) => bail!("a stream was closed by the server"),
                    None => bail!("all streams were closed"),
                }
            }
            Ok(())
        };
        // Streams that were not notified by then are missing in the times.
        tokio::time::timeout(PATIENCE, telling).await.unwrap_or(Ok(()))?;
        Ok(fan_out)
    }

    /// How many streams were closed by the server.
    pub(super) fn ended(&mut self) -> usize {
        self.drain();
        self.ended
    }

    fn drain(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            self.ended += usize::from(matches!(told, Told::Ended));
        }
    }
}

/// Opens a stream from this address of this machine, and waits for its acknowledgement.
pub(super) async fn listen(address: SocketAddr, from: IpAddr, request: &[u8]) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut connection = socket.connect(address).await.context("could not connect")?;
    connection.write_all(request).await?;
    let mut received = Vec::with_capacity(1024);
    while memmem::find(&received, mcp::ACKNOWLEDGED).is_none() {
        ensure!(received.len() < 16 << 10, "the stream does not begin with an acknowledgement");
        let count = connection.read_buf(&mut received).await?;
        ensure!(count > 0, "the server said {}", String::from_utf8_lossy(&received));
    }
    Ok(connection)
}

/// Reports the notifications on a stream until it ends.
pub(super) async fn hear(mut connection: TcpStream, stream: usize, told: mpsc::UnboundedSender<Told>) {
    // An event is one chunk and shorter than this buffer; one that arrives in two reads is joined.
    let mut received = [0; 1024];
    let mut kept = 0;
    loop {
        let Ok(count @ 1..) = connection.read(&mut received[kept..]).await else {
            let _ = told.send(Told::Ended);
            return;
        };
        let at = Instant::now();
        let all = &received[..kept + count];
        let mut seen = 0;
        for found in memmem::find_iter(all, mcp::UPDATED) {
            seen = found + mcp::UPDATED.len();
            if told.send(Told::Updated { stream, at }).is_err() {
                return;
            }
        }
        let from = seen.max(all.len().saturating_sub(mcp::UPDATED.len() - 1));
        kept = all.len() - from;
        received.copy_within(from..from + kept, 0);
    }
}
