//! The I/O of one HTTP/1 connection, with an express lane that bypasses hyper.
//!
//! While hyper is idle, the lane parses the input before hyper reads it, and answers common requests itself. Hyper is
//! only created for the first request that the express lane does not answer, because it takes more memory than the
//! rest of a connection. Such a request is passed to hyper whole, and later input waits until hyper has written the
//! response. If the lane cannot determine where a request ends, hyper gets these bytes and all that follow, and the
//! express lane is closed for the rest of the connection, unless hyper hands over an event stream.

use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

use super::Endpoint;
use super::answering::Answering;
use super::express::{Origin, Verdict};
use super::handover::Handed;
use super::heads::Unfinished;
use super::pulse::Pulse;
use super::sessions::Peer;
use crate::unsent::Room;

/// The size of one read, and the limit of pipelined input that is buffered while a response is outstanding.
const CHUNK: usize = 8 << 10;

/// The unused capacity that the buffer of an unfinished request may have.
const SLACK: usize = 512;

/// The most memory that hyper takes for an unfinished request head, in bytes.
const HYPER: usize = 24 << 10;

/// The time limit of each response after the client has closed its sending side. Such a client either waits for the
/// response or has disconnected, and a half-closed connection does not show which.
const PATIENCE: Duration = Duration::from_secs(5);

/// One HTTP/1 connection: hyper's I/O object, and the express lane.
pub(super) struct Lane {
    stream: TcpStream,
    endpoint: Arc<Endpoint>,
    pulse: Arc<Pulse>,
    origin: Origin,
    /// Input that was neither answered nor passed to hyper.
    waiting: BytesMut,
    /// How many bytes of `waiting` belong to the request that is being passed to hyper.
    passing: usize,
    /// Response bytes not yet written to the socket.
    answer: Bytes,
    /// The memory reservation of `answer`, taken once a write would block.
    room: Option<Room>,
    /// The response that the express lane is creating or streaming.
    answering: Option<Box<Answering>>,
    state: State,
    /// Once the client has half-closed the connection: the deadline of its last request.
    leaving: Option<Pin<Box<Sleep>>>,
    /// The memory reservation of input that waits here, or that hyper has read and cannot answer yet.
    unfinished: Option<Unfinished>,
    /// For `State::Owns`: the number of requests that hyper had parsed when it last read, until it parses another.
    passed: Option<u32>,
    /// Hyper was shut down, or read an end of file, only to free its memory; the connection continues.
    detached: bool,
    /// The connection closes after the current response.
    closes: bool,
}

/// Whether hyper is idle, so that the express lane may read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Hyper is idle.
    Rests,
    /// Hyper is answering a request; idle again when [`Pulse::bodies_ended`] reaches this number.
    Works(u32),
    /// Hyper gets all input, for the rest of the connection or until it hands over an event stream.
    Owns,
}

impl Lane {
    pub(super) fn new(stream: TcpStream, endpoint: Arc<Endpoint>, peer: Peer, pulse: Arc<Pulse>) -> Self {
        Self {
            stream,
            endpoint,
            pulse,
            origin: Origin::new(peer),
            waiting: BytesMut::new(),
            passing: 0,
            answer: Bytes::new(),
            room: None,
            answering: None,
            state: State::Rests,
            leaving: None,
            unfinished: None,
            passed: None,
            detached: false,
            closes: false,
        }
    }

    /// Serves the connection on the express lane until there is input for hyper; `None` if the connection ends first.
    pub(super) async fn without_hyper(mut self) -> io::Result<Option<Self>> {
        let polled = poll_fn(|context| self.poll_next(context, None)).await;
        if polled.is_err() {
            self.give_up();
        }
        polled?;
        Ok((self.for_hyper() > 0).then_some(self))
    }

    /// Whether hyper ended only to free its memory, so that the connection continues. Resets the flag.
    pub(super) fn was_detached(&mut self) -> bool {
        std::mem::take(&mut self.detached)
    }

    /// Takes an event stream over from hyper, which was shut down. `read` is the input that hyper had read ahead.
    pub(super) fn take_over(&mut self, read: &[u8], handed: Handed) {
        if !read.is_empty() {
            self.waiting = [read, &self.waiting].concat().as_slice().into();
        }
        (self.state, self.passing, self.passed) = (State::Rests, 0, None);
        let closing = self.endpoint.closing.is_cancelled();
        self.closes = handed.framing.last;
        self.answering = Some(Box::new(Answering::stream(handed, self.pulse.clone(), closing)));
        self.detached = true;
    }

    /// The number of bytes to pass to hyper.
    fn for_hyper(&self) -> usize {
        if self.state == State::Owns { self.waiting.len() } else { self.passing }
    }

    /// Parses the input if hyper is idle, and chooses between the express lane and hyper. Returns whether this made
    /// progress.
    fn look(&mut self) -> bool {
        if self.state != State::Rests || self.waiting.is_empty() {
            return false;
        }
        let verdict = self.endpoint.express(&mut self.origin, &self.waiting);
        match verdict {
            Verdict::Answered(size, answer) => {
                self.pulse.served();
                self.waiting.advance(size);
                self.answer = answer;
            }
            Verdict::Understood(size, making) => {
                self.waiting.advance(size);
                self.answering = Some(Box::new(Answering::new(making, self.pulse.clone())));
            }
            Verdict::Long(size) => {
                self.pulse.next_is_alone();
                self.state = State::Works(self.pulse.bodies_ended().wrapping_add(1));
                self.passing = size;
            }
            Verdict::Begun => return false,
            Verdict::Unknown => {
                self.pulse.next_is_alone();
                self.state = State::Owns;
            }
        }
        self.unfinished = None;
        if let Some(leaving) = &mut self.leaving {
            // Each request has a time limit of its own.
            leaving.as_mut().reset(Instant::now() + PATIENCE);
        }
        true
    }

    /// Copies input that is for hyper into its read buffer. Returns whether there was any.
    fn pass(&mut self, buffer: &mut ReadBufCursor<'_>) -> bool {
        let size = self.for_hyper().min(buffer.remaining());
        if size == 0 {
            return false;
        }
        if self.state == State::Owns {
            self.passed = Some(self.pulse.asked_so_far());
        }
        buffer.put_slice(&self.waiting[..size]);
        self.waiting.advance(size);
        self.passing = self.passing.saturating_sub(size);
        if self.waiting.is_empty() {
            // An event stream may be open for hours and needs no read buffer.
            self.waiting = BytesMut::new();
        }
        true
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.answer.is_empty() {
            let Poll::Ready(sent) = Pin::new(&mut self.stream).poll_write(context, &self.answer)? else {
                self.count_unsent()?;
                return Poll::Pending;
            };
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.answer.advance(sent);
            if self.room.is_some() {
                self.pulse.sent(sent);
            }
        }
        self.room = None;
        if let Some(answering) = &mut self.answering {
            ready!(answering.poll(context, &mut self.stream, &self.endpoint.closing))?;
            self.answering = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Drives the connection until there is input for hyper, and copies it to `hyper` if hyper exists.
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        mut hyper: Option<&mut ReadBufCursor<'_>>,
    ) -> Poll<io::Result<()>> {
        loop {
            let thinks = match self.poll_send(context)? {
                Poll::Ready(()) => false,
                Poll::Pending if self.answering.as_ref().is_some_and(|it| it.waits()) => true,
                Poll::Pending => return self.pause(),
            };
            if !thinks && self.closes {
                return Poll::Ready(Ok(()));
            }
            if !thinks {
                let passed = match &mut hyper {
                    Some(buffer) => self.pass(buffer),
                    None => self.for_hyper() > 0,
                };
                if passed {
                    return Poll::Ready(Ok(()));
                }
                if self.look() {
                    continue;
                }
            }
            let works = thinks || matches!(self.state, State::Works(_));
            if self.waiting.len() >= CHUNK && works {
                // The task is woken when the response is complete or hyper has written it.
                return self.pause();
            }
            if let Some(leaving) = &mut self.leaving {
                // At an end of file hyper would abort the response. Pipelined requests are processed after it.
                if works && (!self.waiting.is_empty() || leaving.as_mut().poll(context).is_pending()) {
                    return self.pause();
                }
                if self.state == State::Rests && !self.waiting.is_empty() {
                    // Hyper decides how to refuse a truncated request.
                    self.state = State::Owns;
                    continue;
                }
                self.give_up();
                return Poll::Ready(Ok(()));
            }
            // Checked before the buffer is allocated, since most clients send nothing while they receive an event
            // stream.
            if self.stream.poll_read_ready(context)?.is_pending() {
                if !works && self.ends_idle(hyper.is_some()) {
                    return Poll::Ready(Ok(()));
                }
                return self.pause();
            }
            self.waiting.reserve(CHUNK);
            if ready!(poll_read_buf(Pin::new(&mut self.stream), context, &mut self.waiting))? == 0 {
                // The client has half-closed the connection.
                self.leaving = Some(Box::pin(tokio::time::sleep(PATIENCE)));
            }
        }
    }

    /// Whether an idle connection ends here: the server is shutting down, or hyper is to free its memory.
    fn ends_idle(&mut self, with_hyper: bool) -> bool {
        match with_hyper {
            // Graceful shutdown is hyper's own task.
            true => {
                let detach = self.state == State::Rests
                    && self.waiting.is_empty()
                    && self.pulse.is_idle()
                    && self.endpoint.connections.is_crowded();
                self.detached = detach;
                detach
            }
            false => self.pulse.is_stopping(),
        }
    }

    /// Returns `Pending` with the read buffer shrunk to its content, and updates the memory reservation for it.
    fn pause(&mut self) -> Poll<io::Result<()>> {
        if self.waiting.is_empty() {
            // An idle connection needs no buffer.
            self.waiting = BytesMut::new();
            if self.passed.is_none() {
                self.unfinished = None;
                return Poll::Pending;
            }
        } else if self.waiting.capacity() > self.waiting.len() + SLACK {
            self.waiting = BytesMut::from(&self.waiting[..]);
        }
        if self.passed.is_some_and(|asked| asked != self.pulse.asked_so_far() || !self.pulse.is_idle()) {
            // Hyper has parsed the request.
            self.passed = None;
        }
        let in_hyper = if self.passed.is_some() { HYPER } else { 0 };
        let size = self.waiting.len() + in_hyper;
        if size == 0 {
            self.unfinished = None;
        } else {
            let (heads, peer) = (&self.endpoint.heads, self.origin.peer);
            let unfinished = self.unfinished.get_or_insert_with(|| heads.begin(peer.client, &self.pulse));
            unfinished.resize(size);
        }
        Poll::Pending
    }

    /// Reserves memory for a response that the client does not read at once; an error if too much is reserved
    /// already, in total or by its client.
    fn count_unsent(&mut self) -> io::Result<()> {
        if self.room.is_some() {
            return Ok(());
        }
        let unsent = &self.endpoint.unsent;
        let Some(room) = unsent.try_take(self.origin.peer.client, self.answer.len()) else {
            unsent.close_slow_connections();
            return Err(io::Error::other("too many responses wait for the client to take them"));
        };
        room.sending_to(&self.pulse);
        self.room = Some(room);
        Ok(())
    }

    /// Drops unfinished responses. Otherwise hyper would wait for them before it closes the connection.
    fn give_up(&mut self) {
        self.answering = None;
        self.answer = Bytes::new();
        self.room = None;
        self.unfinished = None;
    }
}

impl Read for Lane {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let lane = self.get_mut();
        let polled = lane.poll_next(context, Some(&mut buffer));
        if let Poll::Ready(Err(_)) = polled {
            lane.give_up();
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
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.pulse.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices))?;
        self.pulse.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Hyper calls this when its write buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let State::Works(last) = self.state
            && self.pulse.bodies_ended() == last
        {
            self.state = State::Rests;
            // Hyper may not read again without a wake-up.
            let detaches = self.endpoint.connections.is_crowded();
            if detaches || !self.waiting.is_empty() || self.leaving.is_some() {
                context.waker().wake_by_ref();
            }
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.detached {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
