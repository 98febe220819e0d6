//! A connection with a short way beside hyper.
//!
//! What a client sends is looked at before hyper gets it, while hyper has nothing to do. A usual request is
//! answered here, and hyper never hears of it: it is only created once there is a request for it, as it takes more
//! memory than all else of a connection. Any other request is passed on whole. Until the answer has been
//! written, what comes in waits. Bytes whose end cannot be told are passed on with all that follows, and the
//! short way is closed for the rest of the connection.

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

/// How much is read at once, and how much may wait for an answer to be written.
const CHUNK: usize = 8 << 10;

/// How much of a buffer may be unused while a request in it is unfinished.
const SLACK: usize = 512;

/// How many bytes hyper takes for the unfinished head of a request, at most.
const HYPER: usize = 24 << 10;

/// How long each answer may take that nobody may be waiting for any more: a client that has closed its side
/// either waits for the answer or has left, and nothing tells which.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to a client.
pub(super) struct Lane {
    stream: TcpStream,
    endpoint: Arc<Endpoint>,
    pulse: Arc<Pulse>,
    origin: Origin,
    /// What was read and is neither answered nor passed on.
    waiting: BytesMut,
    /// How much of that is a request on its way to hyper.
    passing: usize,
    /// An answer that is not sent whole.
    answer: Bytes,
    /// The memory of that answer, once the client does not take it at once.
    room: Option<Room>,
    /// An answer that is made here.
    answering: Option<Box<Answering>>,
    state: State,
    /// Once the client has said that it sends no more, how long its last request may still take.
    leaving: Option<Pin<Box<Sleep>>>,
    /// The memory of input that is neither answered nor passed on, or that hyper has and cannot answer yet.
    unfinished: Option<Unfinished>,
    /// Where hyper gets everything: how many requests it had understood when it last got bytes, if it got any since.
    passed: Option<u32>,
    /// Hyper was told that the client sends no more so that it ends and gives its memory back.
    detached: bool,
    /// The response that is being sent is the last one.
    closes: bool,
}

/// What hyper is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits for a request.
    Rests,
    /// It answers the last of so many requests.
    Works(u32),
    /// It gets everything.
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

    /// Serves the connection until there is something for hyper; `None` if it ends before.
    pub(super) async fn without_hyper(mut self) -> io::Result<Option<Self>> {
        let polled = poll_fn(|context| self.poll_next(context, None)).await;
        if polled.is_err() {
            self.give_up();
        }
        polled?;
        Ok((self.for_hyper() > 0).then_some(self))
    }

    /// Whether hyper ended only to give its memory back, and the connection goes on. Told once.
    pub(super) fn was_detached(&mut self) -> bool {
        std::mem::take(&mut self.detached)
    }

    /// Sends a stream of events that hyper was to send, which has ended and leaves what it had read behind.
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

    /// How many bytes there are for hyper.
    fn for_hyper(&self) -> usize {
        if self.state == State::Owns { self.waiting.len() } else { self.passing }
    }

    /// Looks at what waits, and decides which way it goes. Whether there is something to do at once.
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
            // Each request has its own time.
            leaving.as_mut().reset(Instant::now() + PATIENCE);
        }
        true
    }

    /// Passes on as much as there is for hyper. Whether there was something.
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
            // A stream may be open for hours, and needs no room for requests.
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

    /// Goes on with whatever is next, until there is something for hyper, which gets it if it is there.
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
                // Woken once the answer is there, or hyper has written it.
                return self.pause();
            }
            if let Some(leaving) = &mut self.leaving {
                // Hyper would give up what it is doing. What comes behind has its turn after that.
                if works && (!self.waiting.is_empty() || leaving.as_mut().poll(context).is_pending()) {
                    return self.pause();
                }
                if self.state == State::Rests && !self.waiting.is_empty() {
                    // A request that will never be whole is for hyper to judge.
                    self.state = State::Owns;
                    continue;
                }
                self.give_up();
                return Poll::Ready(Ok(()));
            }
            // Asked before there is room for what comes, which most streams never send.
            if self.stream.poll_read_ready(context)?.is_pending() {
                if !works && self.ends_idle(hyper.is_some()) {
                    return Poll::Ready(Ok(()));
                }
                return self.pause();
            }
            self.waiting.reserve(CHUNK);
            if ready!(poll_read_buf(Pin::new(&mut self.stream), context, &mut self.waiting))? == 0 {
                // The client sends no more.
                self.leaving = Some(Box::pin(tokio::time::sleep(PATIENCE)));
            }
        }
    }

    /// Whether it ends here while it waits for a request: the server stops, or hyper is to give its memory back.
    fn ends_idle(&mut self, with_hyper: bool) -> bool {
        match with_hyper {
            // Hyper is told to stop itself.
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

    /// Waits, with no more memory than what waits with it, which is counted.
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
            // Hyper has understood it.
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

    /// Counts an answer that the client does not take at once among those that wait; an error if too many of its
    /// client's do.
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

    /// Drops what nobody waits for any more, or hyper would wait for it before it closes.
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

    /// Hyper calls this when it has written all that it had.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let State::Works(last) = self.state
            && self.pulse.bodies_ended() == last
        {
            self.state = State::Rests;
            // Hyper may not read again by itself.
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
