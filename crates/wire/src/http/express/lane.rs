//! The I/O object of an HTTP/1 connection. Input is [parsed](super::parse) here first; hyper gets the requests that the
//! express lane does not answer.

use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::AsyncWrite as _;
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

use super::detached_stream::DetachedStream;
use super::direct_response::DirectResponse;
use super::parse::{ConnectionContext, Parsed};
use crate::content_budget::ContentLease;
use crate::http::input_budget::InputReservation;
use crate::http::liveness::Liveness;
use crate::http::sessions::Peer;
use crate::http::socket::Socket;
use crate::http::{ClientCertificate, Endpoint};

/// The smallest capacity for one read, in bytes. While a response is outstanding, no more input is read once this much
/// is buffered.
const READ_SIZE: usize = 8 << 10;

/// The unused capacity that the buffer of an unfinished request may have.
const MAX_SLACK: usize = 512;

/// The maximum memory that hyper takes for an unfinished request head, in bytes.
const HYPER_HEAD_MEMORY: usize = 24 << 10;

/// The time limit of the last response after the client has closed its sending side. Such a client either waits for
/// the response or has disconnected, and a half-closed connection does not show which.
const HALF_CLOSED_TIME_LIMIT: Duration = Duration::from_secs(5);

/// One HTTP/1 connection: hyper's I/O object, and the express lane.
pub(in crate::http) struct Lane {
    socket: Socket,
    endpoint: Arc<Endpoint>,
    liveness: Arc<Liveness>,
    connection: ConnectionContext,
    /// Input that was neither answered nor passed to hyper.
    input: BytesMut,
    /// How many bytes at the start of `input` are left of the request that is being passed to hyper.
    request_left: usize,
    /// Response bytes not yet written to the socket.
    unsent: Bytes,
    /// The memory reservation of `unsent`, taken once a write would block.
    lease: Option<ContentLease>,
    /// The response that the express lane is creating or streaming.
    response: Option<Box<DirectResponse>>,
    hyper: Hyper,
    /// The deadline of the last request, once the client has half-closed the connection.
    half_closed: Option<Pin<Box<Sleep>>>,
    /// The memory reservation of `input`, and of an unfinished head in hyper.
    reservation: Option<InputReservation>,
    /// Set with `Hyper::OwnsConnection` while hyper may hold an unfinished head: the number of requests that hyper had
    /// parsed when it last got input. `None` once hyper has parsed another request.
    parsing: Option<u32>,
    /// Whether hyper ended (or is about to end) although the connection continues: to free its memory, or because the
    /// lane has taken an event stream over.
    detached: bool,
    /// Whether the connection closes after the current response.
    closes: bool,
}

/// Whether hyper is idle, so that the express lane may read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hyper {
    /// Hyper is idle, or does not exist.
    Idle,
    /// Hyper is answering a request; idle again when [`Liveness::bodies_ended`] reaches this number.
    Answering { until_ended: u32 },
    /// Hyper gets all input, for the rest of the connection or until the lane takes an event stream over.
    OwnsConnection,
}

impl Lane {
    pub(in crate::http) fn new(
        socket: impl Into<Socket>,
        endpoint: Arc<Endpoint>,
        peer: Peer,
        liveness: Arc<Liveness>,
    ) -> Self {
        Self {
            socket: socket.into(),
            endpoint,
            liveness,
            connection: ConnectionContext::new(peer),
            input: BytesMut::new(),
            request_left: 0,
            unsent: Bytes::new(),
            lease: None,
            response: None,
            hyper: Hyper::Idle,
            half_closed: None,
            reservation: None,
            parsing: None,
            detached: false,
            closes: false,
        }
    }

    /// Sets the client certificate of the connection.
    pub(in crate::http) fn with_certificate(mut self, certificate: Option<ClientCertificate>) -> Self {
        self.connection.certificate = certificate;
        self
    }

    /// Serves the connection on the express lane until there is input for hyper; `None` if the connection ends first.
    pub(in crate::http) async fn without_hyper(mut self) -> io::Result<Option<Self>> {
        poll_fn(|context| self.poll_input_for_hyper(context, None)).await?;
        Ok((self.bytes_for_hyper() > 0).then_some(self))
    }

    /// Whether hyper ended although the connection continues, to free its memory or because the lane has taken an event
    /// stream over. Resets the flag.
    pub(in crate::http) fn take_detached_flag(&mut self) -> bool {
        std::mem::take(&mut self.detached)
    }

    /// Takes an event stream over from hyper, which has ended. `read` is the input that hyper had read ahead.
    pub(super) fn take_over(&mut self, read: &[u8], detached: DetachedStream) {
        if !read.is_empty() {
            self.input = [read, &self.input].concat().as_slice().into();
        }
        (self.hyper, self.request_left, self.parsing) = (Hyper::Idle, 0, None);
        let closing = self.endpoint.closing.is_cancelled();
        self.closes = detached.framing.last;
        self.response =
            Some(Box::new(DirectResponse::event_stream(detached, self.liveness.clone(), closing)));
        self.detached = true;
    }

    /// The number of bytes to pass to hyper.
    fn bytes_for_hyper(&self) -> usize {
        if self.hyper == Hyper::OwnsConnection { self.input.len() } else { self.request_left }
    }

    /// If hyper is idle, parses the next request, and answers the request or assigns it to hyper. Returns `false` if
    /// hyper is not idle, or if the request is incomplete and stays in the lane.
    fn parse_next(&mut self) -> bool {
        if self.hyper != Hyper::Idle || self.input.is_empty() {
            return false;
        }
        let parsed = self.endpoint.parse_input(&mut self.connection, &self.input);
        match parsed {
            Parsed::Cached(size, response) => {
                self.liveness.record_request();
                self.input.advance(size);
                self.unsent = response;
            }
            Parsed::Handled(size, future) => {
                self.input.advance(size);
                self.response = Some(Box::new(DirectResponse::new(future, self.liveness.clone())));
            }
            Parsed::ThroughHyper(size) => {
                self.liveness.record_hyper_idle_before_next_request();
                let until_ended = self.liveness.bodies_ended().wrapping_add(1);
                self.hyper = Hyper::Answering { until_ended };
                self.request_left = size;
            }
            Parsed::Incomplete => return false,
            Parsed::Unframed => {
                self.liveness.record_hyper_idle_before_next_request();
                self.hyper = Hyper::OwnsConnection;
            }
        }
        self.reservation = None;
        if let Some(deadline) = &mut self.half_closed {
            // Each request has a time limit of its own.
            deadline.as_mut().reset(Instant::now() + HALF_CLOSED_TIME_LIMIT);
        }
        true
    }

    /// Copies input for hyper into `buffer`, hyper's read buffer. Returns whether there was any.
    fn pass_to_hyper(&mut self, buffer: &mut ReadBufCursor<'_>) -> bool {
        let size = self.bytes_for_hyper().min(buffer.remaining());
        if size == 0 {
            return false;
        }
        if self.hyper == Hyper::OwnsConnection {
            self.parsing = Some(self.liveness.requests());
        }
        buffer.put_slice(&self.input[..size]);
        self.input.advance(size);
        self.request_left = self.request_left.saturating_sub(size);
        if self.input.is_empty() {
            // An event stream may be open for hours and needs no read buffer.
            self.input = BytesMut::new();
        }
        true
    }

    /// Writes the response of the express lane. Ready when the response is written, or if there is no response.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let Poll::Ready(sent) = Pin::new(&mut self.socket).poll_write(context, &self.unsent)? else {
                self.reserve_unsent()?;
                return Poll::Pending;
            };
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(sent);
            if self.lease.is_some() {
                self.liveness.record_sent(sent);
            }
        }
        if self.lease.is_some() || self.socket.plain().is_none() {
            // TLS buffers what the socket does not accept.
            ready!(Pin::new(&mut self.socket).poll_flush(context))?;
        }
        self.lease = None;
        if let Some(response) = &mut self.response {
            ready!(response.poll(context, &mut self.socket, &self.endpoint.closing))?;
            self.response = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Serves the connection on the express lane. Ready when there is input for hyper, which is copied to `buffer` if
    /// hyper exists; or, without such input, when the connection or hyper must end, which hyper reads as an end of
    /// file.
    fn poll_input_for_hyper(
        &mut self,
        context: &mut Context<'_>,
        mut buffer: Option<&mut ReadBufCursor<'_>>,
    ) -> Poll<io::Result<()>> {
        loop {
            let responding = match self.poll_send(context)? {
                Poll::Ready(()) => false,
                Poll::Pending if self.response.as_ref().is_some_and(|it| it.allows_reading()) => true,
                Poll::Pending => return self.suspend(),
            };
            if !responding && self.closes {
                return Poll::Ready(Ok(()));
            }
            if !responding {
                let passed = match &mut buffer {
                    Some(buffer) => self.pass_to_hyper(buffer),
                    None => self.bytes_for_hyper() > 0,
                };
                if passed {
                    return Poll::Ready(Ok(()));
                }
                if self.parse_next() {
                    continue;
                }
            }
            let busy = responding || matches!(self.hyper, Hyper::Answering { .. });
            if self.input.len() >= READ_SIZE && busy {
                // The task is woken when the response can be written, or when hyper has flushed it.
                return self.suspend();
            }
            if let Some(deadline) = &mut self.half_closed {
                // Hyper would abort its response if it read an end of file now. Pipelined requests in `input` are
                // processed after the response.
                if busy && (!self.input.is_empty() || deadline.as_mut().poll(context).is_pending()) {
                    return self.suspend();
                }
                if self.hyper == Hyper::Idle && !self.input.is_empty() {
                    // Hyper decides how to refuse a truncated request.
                    self.hyper = Hyper::OwnsConnection;
                    continue;
                }
                self.drop_response();
                return Poll::Ready(Ok(()));
            }
            // Checked before the buffer is allocated: most connections are idle, or receive an event stream.
            if self.socket.poll_read_ready(context)?.is_pending() {
                if !busy && self.must_end_idle(buffer.is_some()) {
                    return Poll::Ready(Ok(()));
                }
                return self.suspend();
            }
            self.input.reserve(READ_SIZE);
            let Poll::Ready(read) = poll_read_buf(Pin::new(&mut self.socket), context, &mut self.input)?
            else {
                if !busy && self.must_end_idle(buffer.is_some()) {
                    return Poll::Ready(Ok(()));
                }
                return self.suspend();
            };
            if read == 0 {
                // The client has half-closed the connection.
                self.half_closed = Some(Box::pin(tokio::time::sleep(HALF_CLOSED_TIME_LIMIT)));
            }
        }
    }

    /// Whether `poll_input_for_hyper` must return although the connection is idle. With hyper: if there are so many
    /// connections that hyper must end to free its memory, which sets `detached`. Without hyper: if the server is
    /// shutting down.
    fn must_end_idle(&mut self, with_hyper: bool) -> bool {
        match with_hyper {
            // Hyper does the graceful shutdown itself.
            true => {
                let detach = self.hyper == Hyper::Idle && self.endpoint.connections.is_crowded();
                self.detached = detach;
                detach
            }
            false => self.liveness.is_stopping(),
        }
    }

    /// Shrinks the read buffer to its content, updates the memory reservation, and returns `Pending`.
    fn suspend(&mut self) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            // An idle connection needs no buffer.
            self.input = BytesMut::new();
            if self.parsing.is_none() {
                self.reservation = None;
                return Poll::Pending;
            }
        } else if self.input.capacity() > self.input.len() + MAX_SLACK {
            self.input = BytesMut::from(&self.input[..]);
        }
        if self.parsing.is_some_and(|before| before != self.liveness.requests() || !self.liveness.is_idle()) {
            // Hyper has parsed the request.
            self.parsing = None;
        }
        let in_hyper = if self.parsing.is_some() { HYPER_HEAD_MEMORY } else { 0 };
        let size = self.input.len() + in_hyper;
        if size == 0 {
            self.reservation = None;
        } else {
            let (budget, peer) = (&self.endpoint.input_budget, self.connection.peer);
            let reservation =
                self.reservation.get_or_insert_with(|| budget.register(peer.client, &self.liveness));
            reservation.resize(size);
        }
        Poll::Pending
    }

    /// Reserves memory for a response that the socket does not accept at once. Fails if the budget, or the client's
    /// share of it, is used up.
    fn reserve_unsent(&mut self) -> io::Result<()> {
        if self.lease.is_some() {
            return Ok(());
        }
        let budget = &self.endpoint.content_budget;
        let Some(lease) = budget.try_take(self.connection.peer.client, self.unsent.len()) else {
            budget.close_slow_connections();
            return Err(io::Error::other("too many responses are waiting for the client to read them"));
        };
        lease.sending_to(&self.liveness);
        self.lease = Some(lease);
        Ok(())
    }

    /// Drops an unfinished response. Otherwise `poll_shutdown` would send the response before it closes the connection.
    fn drop_response(&mut self) {
        self.response = None;
        self.unsent = Bytes::new();
    }
}

impl Read for Lane {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let lane = self.get_mut();
        let polled = lane.poll_input_for_hyper(context, Some(&mut buffer));
        if let Poll::Ready(Err(_)) = polled {
            lane.drop_response();
        }
        polled
    }
}

impl Write for Lane {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(context, bytes))?;
        self.liveness.record_sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(context, slices))?;
        self.liveness.record_sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// Hyper calls this when its write buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Hyper::Answering { until_ended } = self.hyper
            && self.liveness.bodies_ended() == until_ended
        {
            self.hyper = Hyper::Idle;
            // Perhaps hyper does not read again unless its task is woken.
            let detaches = self.endpoint.connections.is_crowded();
            if detaches || !self.input.is_empty() || self.half_closed.is_some() {
                context.waker().wake_by_ref();
            }
        }
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.detached {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
