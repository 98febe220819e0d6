//! Response bodies: one message in a few pieces, or an event stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::stream::BoxStream;
use http_body::{Frame, SizeHint};
use libris_core::Lease;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::pulse::Pulse;
use super::stream::Stream;
use crate::envelope::Framed;
use crate::members::Pieces;
use crate::unsent::{Outgoing, Room};

/// Messages up to this size are copied into one piece.
const SMALL: usize = 16 << 10;

/// The memory reservation of unsent bytes, shared by the body and each of its pieces.
pub(super) type Held = Arc<Room>;

/// The body of a response.
pub struct Body {
    kind: Kind,
    /// The memory reservation of the message being sent, released when it is sent.
    room: Option<Held>,
    pulse: Option<Arc<Pulse>>,
    /// The HTTP/2 stream that it is sent on.
    stream: Option<Arc<Stream>>,
    /// The units of the event stream budget that it holds, if it is an event stream that stays open.
    listens: Option<Lease>,
}

enum Kind {
    /// The unsent rest of a message.
    Answer(Box<Pieces>),
    Events(Box<Events>),
}

struct Events {
    stream: BoxStream<'static, Event>,
    pending: Pieces,
    /// The memory reservation of the pending event.
    room: Option<Room>,
    keep_alive: Interval,
    ended: bool,
}

/// One event of an event stream.
pub(crate) enum Event {
    /// A protocol message, with the event id to resume after, if any, and its memory reservation.
    Message { framed: Framed, id: Option<u64>, room: Option<Room> },
    /// The path to which clients of the old HTTP+SSE transport POST their messages.
    Endpoint(String),
}

impl Body {
    fn of(kind: Kind) -> Self {
        Self { kind, room: None, pulse: None, stream: None, listens: None }
    }

    fn answer(pieces: Pieces) -> Self {
        Self::of(Kind::Answer(Box::new(pieces)))
    }

    /// Holds this memory reservation until the body is sent.
    pub(crate) fn holding(mut self, room: Option<Room>) -> Self {
        self.room = room.map(Arc::new);
        self
    }

    /// Marks the body as an event stream that stays open, with a unit of the event stream budget.
    pub(super) fn listening(mut self, place: Lease) -> Self {
        self.listens = Some(place);
        self
    }

    /// Whether it is an event stream that stays open.
    pub(super) fn is_listening(&self) -> bool {
        self.listens.is_some()
    }

    /// Changes how many units of the event stream budget it holds. Returns `false` if they are not available.
    pub(super) fn take_places(&mut self, places: usize) -> bool {
        self.listens.as_mut().is_some_and(|place| place.resize(places) && place.amount() == places)
    }

    /// Sets the HTTP/2 stream that it is sent on.
    pub(super) fn on_stream(mut self, stream: Option<Arc<Stream>>) -> Self {
        if let Some(stream) = stream.as_ref().filter(|_| self.listens.is_some()) {
            stream.give_place();
        }
        self.stream = stream;
        self
    }

    /// The HTTP/2 stream that it is sent on.
    pub(super) fn stream(&self) -> Option<&Arc<Stream>> {
        self.stream.as_ref()
    }

    /// The memory reservation, to be shared by its pieces: the body may be dropped before they are sent.
    pub(super) fn room(&self) -> Option<&Held> {
        self.room.as_ref()
    }

    /// Records its activity in `pulse`.
    pub(super) fn watched(mut self, pulse: Arc<Pulse>) -> Self {
        pulse.begin();
        if let Some(room) = &self.room {
            send(room, &pulse, self.stream.as_ref());
        }
        self.pulse = Some(pulse);
        self
    }

    /// An empty body.
    pub(crate) fn empty() -> Self {
        Self::answer(Pieces::whole(""))
    }

    /// The body with one message.
    pub(crate) fn framed(framed: Framed) -> Self {
        let size = framed.size();
        if size > SMALL {
            return Self::answer(framed.pieces());
        }
        let mut whole = Vec::with_capacity(size);
        framed.pieces().for_each(|piece| whole.extend_from_slice(&piece));
        Self::answer(Pieces::whole(whole))
    }

    /// An event stream that sends a comment after every `keep_alive` without an event.
    pub(crate) fn events(stream: BoxStream<'static, Event>, keep_alive: std::time::Duration) -> Self {
        let mut keep_alive = tokio::time::interval_at(Instant::now() + keep_alive, keep_alive);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self::of(Kind::Events(Box::new(Events {
            stream,
            pending: Pieces::whole(""),
            room: None,
            keep_alive,
            ended: false,
        })))
    }
}

/// Registers the recipient of the message with this memory reservation.
fn send(room: &Room, connection: &Arc<Pulse>, stream: Option<&Arc<Stream>>) {
    match stream {
        Some(stream) => room.sending_to(stream),
        None => room.sending_to(connection),
    }
}

impl Events {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.pending.next() {
                return Poll::Ready(Some(bytes));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.stream.as_mut().poll_next(context) {
                Poll::Ready(Some(event)) => {
                    self.keep_alive.reset();
                    self.push(event);
                }
                Poll::Ready(None) => self.ended = true,
                Poll::Pending => {
                    ready!(self.keep_alive.poll_tick(context));
                    self.pending = Pieces::whole(":\n\n");
                }
            }
        }
    }

    fn push(&mut self, event: Event) {
        let (framed, id) = match event {
            Event::Message { framed, id, room } => {
                self.room = room;
                (framed, id)
            }
            Event::Endpoint(path) => {
                self.pending = Pieces::whole(format!("event: endpoint\ndata: {path}\n\n"));
                return;
            }
        };
        let mut head = match id {
            Some(id) => format!("event: message\nid: {id}\ndata: "),
            None => "event: message\ndata: ".to_owned(),
        }
        .into_bytes();
        head.extend_from_slice(&framed.head);
        let tail = [&*framed.tail, b"\n\n"].concat();
        self.pending = Pieces::new(head.into(), framed.members, tail.into());
    }
}

/// For a [`Route`](super::Route).
impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::answer(Pieces::whole(bytes))
    }
}

/// For a [`Route`](super::Route).
impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::from(Bytes::from(text))
    }
}

impl From<Framed> for Event {
    fn from(framed: Framed) -> Self {
        Self::Message { framed, id: None, room: None }
    }
}

impl From<Outgoing> for Event {
    fn from(Outgoing { framed, room }: Outgoing) -> Self {
        Self::Message { framed, id: None, room }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(pulse) = &self.pulse {
            pulse.moved();
        }
        let this = &mut *self;
        let bytes = match &mut this.kind {
            Kind::Answer(pieces) => pieces.next(),
            Kind::Events(events) => {
                if events.pending.is_empty() && !events.ended {
                    // The pieces of the last event hold its reservation themselves.
                    this.room = None;
                }
                let bytes = ready!(events.poll(context));
                if let Some(room) = events.room.take() {
                    if let Some(pulse) = &this.pulse {
                        send(&room, pulse, this.stream.as_ref());
                    }
                    this.room = Some(Arc::new(room));
                }
                bytes
            }
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.kind, Kind::Answer(pieces) if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Answer(pieces) => {
                pieces.left().map_or_else(SizeHint::default, |left| SizeHint::with_exact(left as u64))
            }
            Kind::Events(_) => SizeHint::default(),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(pulse) = &self.pulse {
            pulse.end();
        }
    }
}
