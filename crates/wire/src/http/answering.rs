//! A response that is created and written without hyper.

use std::future::Future;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::{Response, Version};
use http_body::Body as _;
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::body::Body;
use super::express::date;
use super::gather::{Gathered, Rope};
use super::handover::{Framing, Handed};
use super::pulse::Pulse;

/// The most slices of one vectored write.
const SLICES: usize = 64;

/// The future that creates a response.
pub(super) type Making = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A response on the express lane, from its request until the last byte is written.
pub(super) struct Answering {
    stage: Stage,
    pulse: Arc<Pulse>,
}

enum Stage {
    Making(Making),
    Sending(Sending),
}

struct Sending {
    /// The pieces being written.
    rope: Rope,
    /// Bytes to write before the next piece of the body.
    head: Vec<u8>,
    body: Gathered,
    /// Whether chunked encoding is used, because the length is not known in advance.
    chunked: bool,
    ended: bool,
    pace: Pace,
}

/// What limits the rate of a response.
#[derive(Clone, Copy)]
enum Pace {
    /// The client's read rate.
    OfClient,
    /// The rate of events: the response stays open.
    OfEvents,
}

impl Answering {
    pub(super) fn new(making: Making, pulse: Arc<Pulse>) -> Self {
        pulse.asked();
        Self { stage: Stage::Making(making), pulse }
    }

    /// An event stream whose request was counted in `pulse` before.
    pub(super) fn stream(handed: Handed, pulse: Arc<Pulse>, closing: bool) -> Self {
        let Handed { response, framing } = handed;
        let response = response.map(|body| body.watched(pulse.clone()));
        let framing = Framing { last: framing.last || closing, ..framing };
        Self { stage: Stage::Sending(Sending::new(response, framing, Pace::OfEvents)), pulse }
    }

    /// Whether the lane may read from the client meanwhile: the response does not exist yet, or is an event stream.
    pub(super) fn waits(&self) -> bool {
        matches!(&self.stage, Stage::Making(_) | Stage::Sending(Sending { pace: Pace::OfEvents, .. }))
    }

    /// Ready when the response is written. Once `closing` is cancelled, a new response has `connection: close`.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut TcpStream,
        closing: &CancellationToken,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut self.stage {
                Stage::Making(making) => {
                    let response = ready!(making.as_mut().poll(context));
                    let response = response.map(|body| body.watched(self.pulse.clone()));
                    let framing = Framing { chunked: true, last: closing.is_cancelled() };
                    self.stage = Stage::Sending(Sending::new(response, framing, Pace::OfClient));
                }
                Stage::Sending(sending) => {
                    if !sending.rope.has_remaining() && !ready!(sending.poll_more(context)) {
                        return Poll::Ready(Ok(()));
                    }
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let count = sending.rope.chunks_vectored(&mut slices);
                    let write = Pin::new(&mut *stream).poll_write_vectored(context, &slices[..count]);
                    let written = ready!(write)?;
                    if written == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    self.pulse.sent(written);
                    sending.rope.advance(written);
                }
            }
        }
    }
}

impl Sending {
    fn new(response: Response<Body>, framing: Framing, pace: Pace) -> Self {
        let (parts, body) = response.into_parts();
        let body = Gathered::new(body, Version::HTTP_11);
        let mut head = Vec::with_capacity(256);
        let status = parts.status;
        let reason = status.canonical_reason().unwrap_or_default();
        // Writing to memory does not fail.
        let _ = write!(head, "HTTP/1.1 {} {reason}\r\n", status.as_str());
        for (name, value) in &parts.headers {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        if framing.last {
            head.extend_from_slice(b"connection: close\r\n");
        }
        let length = body.size_hint().exact();
        let chunked = length.is_none() && framing.chunked;
        let _ = match length {
            Some(length) => write!(head, "content-length: {length}\r\ndate: "),
            None if chunked => write!(head, "transfer-encoding: chunked\r\ndate: "),
            None => write!(head, "date: "),
        };
        head.extend_from_slice(&date());
        head.extend_from_slice(b"\r\n\r\n");
        let mut rope = Rope::default();
        if let Pace::OfEvents = pace {
            // Sent at once, so that the client knows that the stream is open; the first event may take long.
            rope.push(std::mem::take(&mut head).into());
        }
        Self { rope, head, body, chunked, ended: false, pace }
    }

    /// Takes the next pieces of the body to write. Returns whether there are any.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.ended {
            return Poll::Ready(false);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let mut rope = frame.and_then(|Ok(frame)| frame.into_data().ok()).unwrap_or_default();
        let size = rope.remaining();
        self.ended = size == 0 || self.body.is_end_stream();
        let mut before = std::mem::take(&mut self.head);
        if self.chunked {
            if size > 0 {
                // Writing to memory does not fail.
                let _ = write!(before, "{size:x}\r\n");
            }
            rope.push(Bytes::from_static(match (size, self.ended) {
                (0, _) => b"0\r\n\r\n",
                (_, true) => b"\r\n0\r\n\r\n",
                (_, false) => b"\r\n",
            }));
        }
        if !before.is_empty() {
            rope.put_before(before.into());
        }
        self.rope = rope;
        Poll::Ready(self.rope.has_remaining())
    }
}
