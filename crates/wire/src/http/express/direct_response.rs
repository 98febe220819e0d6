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
use tokio_util::sync::CancellationToken;

use super::detached_stream::{DetachedStream, Framing};
use super::parse::date;
use crate::http::body::Body;
use crate::http::gathered_body::{BufList, GatheredBody};
use crate::http::liveness::Liveness;
use crate::http::socket::Socket;

/// The maximum number of slices of one vectored write.
const MAX_SLICES: usize = 64;

/// The future that creates a response.
pub(super) type ResponseFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A response on the express lane, from the request until the last byte is written.
pub(super) struct DirectResponse {
    stage: Stage,
    liveness: Arc<Liveness>,
}

enum Stage {
    Creating(ResponseFuture),
    Sending(ResponseWriter),
}

struct ResponseWriter {
    /// The pieces being written.
    pieces: BufList,
    /// Bytes to write before the next piece of the body.
    head: Vec<u8>,
    body: GatheredBody,
    /// Whether chunked encoding is used, because the length is not known in advance.
    chunked: bool,
    ended: bool,
    pace: Pace,
}

/// What limits the rate of a response.
#[derive(Clone, Copy)]
enum Pace {
    /// The client's read rate.
    Client,
    /// The rate of events: the response stays open.
    Events,
}

impl DirectResponse {
    pub(super) fn new(future: ResponseFuture, liveness: Arc<Liveness>) -> Self {
        liveness.begin_request();
        Self { stage: Stage::Creating(future), liveness }
    }

    /// An event stream that the lane has taken over. Its request was already counted in `liveness`.
    pub(super) fn event_stream(detached: DetachedStream, liveness: Arc<Liveness>, closing: bool) -> Self {
        let DetachedStream { response, framing } = detached;
        let response = response.map(|body| body.watched(liveness.clone()));
        let framing = Framing { last: framing.last || closing, ..framing };
        Self { stage: Stage::Sending(ResponseWriter::new(response, framing, Pace::Events)), liveness }
    }

    /// Whether the lane may read from the client before the response is written: the response does not exist yet, or is an
    /// event stream.
    pub(super) fn allows_reading(&self) -> bool {
        matches!(&self.stage, Stage::Creating(_) | Stage::Sending(ResponseWriter { pace: Pace::Events, .. }))
    }

    /// Ready when the response is written. Once `closing` is cancelled, a new response has `connection: close`.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        socket: &mut Socket,
        closing: &CancellationToken,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut self.stage {
                Stage::Creating(future) => {
                    let response = ready!(future.as_mut().poll(context));
                    let response = response.map(|body| body.watched(self.liveness.clone()));
                    let framing = Framing { chunked: true, last: closing.is_cancelled() };
                    self.stage = Stage::Sending(ResponseWriter::new(response, framing, Pace::Client));
                }
                Stage::Sending(sending) => {
                    if !sending.pieces.has_remaining() {
                        // TLS has buffered the bytes that the socket did not accept.
                        ready!(Pin::new(&mut *socket).poll_flush(context))?;
                        if !ready!(sending.poll_pieces(context)) {
                            return Poll::Ready(Ok(()));
                        }
                    }
                    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                    let count = sending.pieces.chunks_vectored(&mut slices);
                    let write = Pin::new(&mut *socket).poll_write_vectored(context, &slices[..count]);
                    let written = ready!(write)?;
                    if written == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    self.liveness.record_sent(written);
                    sending.pieces.advance(written);
                }
            }
        }
    }
}

impl ResponseWriter {
    fn new(response: Response<Body>, framing: Framing, pace: Pace) -> Self {
        let (parts, body) = response.into_parts();
        let body = GatheredBody::new(body, Version::HTTP_11);
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
        let mut pieces = BufList::default();
        if let Pace::Events = pace {
            // The head does not wait for the first event, so that the client knows that the stream is open.
            pieces.push(std::mem::take(&mut head).into());
        }
        Self { pieces, head, body, chunked, ended: false, pace }
    }

    /// Sets `pieces` to the next pieces of the body. Returns whether there are any.
    fn poll_pieces(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.ended {
            return Poll::Ready(false);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let mut pieces = frame.and_then(|Ok(frame)| frame.into_data().ok()).unwrap_or_default();
        let size = pieces.remaining();
        self.ended = size == 0 || self.body.is_end_stream();
        let mut before = std::mem::take(&mut self.head);
        if self.chunked {
            if size > 0 {
                // Writing to memory does not fail.
                let _ = write!(before, "{size:x}\r\n");
            }
            pieces.push(Bytes::from_static(match (size, self.ended) {
                (0, _) => b"0\r\n\r\n",
                (_, true) => b"\r\n0\r\n\r\n",
                (_, false) => b"\r\n",
            }));
        }
        if !before.is_empty() {
            pieces.push_front(before.into());
        }
        self.pieces = pieces;
        Poll::Ready(self.pieces.has_remaining())
    }
}
