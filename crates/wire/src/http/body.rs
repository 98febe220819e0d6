//! Response bodies: one message in a few pieces, a stream of pieces that a route produces, or an event stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use http_body::{Frame, SizeHint};
use libris_core::Lease;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::liveness::Liveness;
use super::stream::Stream;
use crate::Call;
use crate::content_budget::{ContentLease, Outgoing, RequestReservation};
use crate::envelope::Framed;
use crate::members::ResponsePieces;

/// Messages of up to this many bytes are copied into one piece.
const MAX_COPIED: usize = 16 << 10;

/// The memory reservation of unsent bytes, shared by the body and each of its pieces.
pub(super) type SharedLease = Arc<ContentLease>;

/// The body of a response.
pub struct Body {
    kind: BodyKind,
    /// The memory reservation of the message being sent. Released when the message is sent.
    lease: Option<SharedLease>,
    liveness: Option<Arc<Liveness>>,
    /// The HTTP/2 stream on which the body is sent.
    stream: Option<Arc<Stream>>,
    /// The units of the event stream budget that the body holds, if it is an event stream that stays open.
    slots: Option<Lease>,
}

enum BodyKind {
    /// The unsent rest of a message.
    Answer(Box<ResponsePieces>),
    /// Boxed twice, since the two words of a `BoxStream` would make every response larger.
    Pieces(Box<BoxStream<'static, RoutePiece>>),
    Events(Box<Events>),
}

/// A piece of a body, which a route produces while the body is sent.
pub(super) struct RoutePiece {
    pub(super) bytes: Bytes,
    /// The memory reservation of the piece.
    pub(super) lease: Option<ContentLease>,
    /// The memory that the route reserved to produce the piece.
    pub(super) memory: Option<Arc<RequestReservation>>,
}

struct Events {
    stream: BoxStream<'static, Event>,
    pending: ResponsePieces,
    /// The memory reservation of the pending event.
    lease: Option<ContentLease>,
    keep_alive: Interval,
    ended: bool,
}

/// One event of an event stream.
pub(crate) enum Event {
    /// A protocol message, with its event id, if the client can resume after it, and its memory reservation.
    Message { framed: Framed, id: Option<u64>, lease: Option<ContentLease> },
    /// The path to which clients of the old HTTP+SSE transport POST their messages.
    Endpoint(String),
}

impl Event {
    /// The number of bytes of the data of the event.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Message { framed, .. } => framed.size(),
            Self::Endpoint(path) => path.len(),
        }
    }
}

impl Body {
    fn of(kind: BodyKind) -> Self {
        Self { kind, lease: None, liveness: None, stream: None, slots: None }
    }

    fn answer(pieces: ResponsePieces) -> Self {
        Self::of(BodyKind::Answer(Box::new(pieces)))
    }

    /// Holds this memory reservation until the body is sent.
    pub(crate) fn holding(mut self, lease: Option<ContentLease>) -> Self {
        self.lease = lease.map(Arc::new);
        self
    }

    /// Marks the body as an event stream that stays open, which holds `slot` of the event stream budget.
    pub(super) fn listening(mut self, slot: Lease) -> Self {
        self.slots = Some(slot);
        self
    }

    /// Whether the body is an event stream that stays open.
    pub(super) fn is_listening(&self) -> bool {
        self.slots.is_some()
    }

    /// Changes how many units of the event stream budget the body holds. Returns `false` if they are not available.
    pub(super) fn resize_slots(&mut self, slots: usize) -> bool {
        self.slots.as_mut().is_some_and(|slot| slot.resize(slots) && slot.amount() == slots)
    }

    /// Sets the HTTP/2 stream on which the body is sent.
    pub(super) fn on_stream(mut self, stream: Option<Arc<Stream>>) -> Self {
        if let Some(stream) = stream.as_ref().filter(|_| self.slots.is_some()) {
            stream.release_slot();
        }
        self.stream = stream;
        self
    }

    /// The HTTP/2 stream on which the body is sent.
    pub(super) fn stream(&self) -> Option<&Arc<Stream>> {
        self.stream.as_ref()
    }

    /// The memory reservation, which each piece shares, since the body may be dropped before its pieces are sent.
    pub(super) fn lease(&self) -> Option<&SharedLease> {
        self.lease.as_ref()
    }

    /// Makes the body record its activity in the liveness of its connection.
    pub(super) fn watched(mut self, liveness: Arc<Liveness>) -> Self {
        liveness.begin_body();
        if let Some(lease) = &self.lease {
            register_recipient(lease, &liveness, self.stream.as_ref());
        }
        self.liveness = Some(liveness);
        self
    }

    /// An empty body.
    pub(crate) fn empty() -> Self {
        Self::answer(ResponsePieces::whole(""))
    }

    /// The body with one message.
    pub(crate) fn framed(framed: Framed) -> Self {
        let size = framed.size();
        if size > MAX_COPIED {
            return Self::answer(framed.pieces());
        }
        let mut whole = Vec::with_capacity(size);
        framed.pieces().for_each(|piece| whole.extend_from_slice(&piece));
        Self::answer(ResponsePieces::whole(whole))
    }

    /// A body whose pieces are produced while it is sent, for a [`Route`](super::Route). Each piece is produced when the
    /// client has read those before it. If the stream can end early, clients must be able to detect that the response is
    /// incomplete, for example because it is shorter than its `Content-Length` or lacks its closing tag.
    ///
    /// Each piece has the time limit of a request and counts against the memory budget of contents, so it should be at most a
    /// few hundred KiB.
    pub fn streamed(pieces: impl futures_core::Stream<Item = Bytes> + Send + 'static) -> Self {
        // Hyper polls once more after the end.
        let pieces = pieces.map(|bytes| RoutePiece { bytes, lease: None, memory: None }).fuse();
        Self::of(BodyKind::Pieces(Box::new(Box::pin(pieces))))
    }

    /// Like [`streamed`](Self::streamed), for pieces that are produced with memory that a [`Call`] has reserved. The
    /// reservation of that call is reduced to the size of the piece, and held until the piece is sent, so that no finished
    /// piece waits for memory. Usually the call of each piece is made with [`Call::for_part`].
    pub fn streamed_reserved(
        pieces: impl futures_core::Stream<Item = (Call, Bytes)> + Send + 'static,
    ) -> Self {
        let pieces =
            pieces.map(|(call, bytes)| RoutePiece { bytes, lease: None, memory: call.memory }).fuse();
        Self::of(BodyKind::Pieces(Box::new(Box::pin(pieces))))
    }

    /// Whether the pieces of the body are produced while it is sent.
    pub(super) fn is_streamed(&self) -> bool {
        matches!(self.kind, BodyKind::Pieces(_))
    }

    /// Replaces the pieces of a [streamed](Self::streamed) body. Other bodies stay unchanged.
    pub(super) fn with_pieces(
        mut self,
        replace: impl FnOnce(BoxStream<'static, RoutePiece>) -> BoxStream<'static, RoutePiece>,
    ) -> Self {
        if let BodyKind::Pieces(pieces) = &mut self.kind {
            let before = std::mem::replace(&mut **pieces, Box::pin(stream::empty()));
            **pieces = Box::pin(replace(before).fuse());
        }
        self
    }

    /// An event stream. Sends a comment whenever there was no event for `keep_alive`.
    pub(crate) fn events(stream: BoxStream<'static, Event>, keep_alive: std::time::Duration) -> Self {
        let mut keep_alive = tokio::time::interval_at(Instant::now() + keep_alive, keep_alive);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self::of(BodyKind::Events(Box::new(Events {
            stream,
            pending: ResponsePieces::whole(""),
            lease: None,
            keep_alive,
            ended: false,
        })))
    }
}

/// Registers the recipient of the bytes of this memory reservation, an HTTP/2 stream or a connection, so that its read rate
/// is measured.
fn register_recipient(lease: &ContentLease, liveness: &Arc<Liveness>, stream: Option<&Arc<Stream>>) {
    match stream {
        Some(stream) => lease.sending_to(stream),
        None => lease.sending_to(liveness),
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
                    self.pending = ResponsePieces::whole(":\n\n");
                }
            }
        }
    }

    fn push(&mut self, event: Event) {
        let (framed, id) = match event {
            Event::Message { framed, id, lease } => {
                self.lease = lease;
                (framed, id)
            }
            Event::Endpoint(path) => {
                self.pending = ResponsePieces::whole(format!("event: endpoint\ndata: {path}\n\n"));
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
        self.pending = ResponsePieces::new(head.into(), framed.members, tail.into());
    }
}

/// The body of a response of a [`Route`](super::Route).
impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::answer(ResponsePieces::whole(bytes))
    }
}

/// The body of a response of a [`Route`](super::Route).
impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::from(Bytes::from(text))
    }
}

impl From<Framed> for Event {
    fn from(framed: Framed) -> Self {
        Self::Message { framed, id: None, lease: None }
    }
}

impl From<Outgoing> for Event {
    fn from(Outgoing { framed, lease }: Outgoing) -> Self {
        Self::Message { framed, id: None, lease }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(liveness) = &self.liveness {
            liveness.record_activity();
        }
        let this = &mut *self;
        let bytes = match &mut this.kind {
            BodyKind::Answer(pieces) => pieces.next(),
            BodyKind::Pieces(pieces) => {
                // `GatheredBody` holds the reservation of the previous piece until that piece is sent.
                this.lease = None;
                let piece = ready!(pieces.poll_next_unpin(context));
                piece.map(|RoutePiece { bytes, lease, .. }| {
                    if let (Some(lease), Some(liveness)) = (&lease, &this.liveness) {
                        register_recipient(lease, liveness, this.stream.as_ref());
                    }
                    this.lease = lease.map(Arc::new);
                    bytes
                })
            }
            BodyKind::Events(events) => {
                if events.pending.is_empty() && !events.ended {
                    // `GatheredBody` holds the reservation of the previous event until its pieces are sent.
                    this.lease = None;
                }
                let bytes = ready!(events.poll(context));
                if let Some(lease) = events.lease.take() {
                    if let Some(liveness) = &this.liveness {
                        register_recipient(&lease, liveness, this.stream.as_ref());
                    }
                    this.lease = Some(Arc::new(lease));
                }
                bytes
            }
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.kind, BodyKind::Answer(pieces) if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Answer(pieces) => {
                pieces.left().map_or_else(SizeHint::default, |left| SizeHint::with_exact(left as u64))
            }
            BodyKind::Pieces(_) | BodyKind::Events(_) => SizeHint::default(),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(liveness) = &self.liveness {
            liveness.end_body();
        }
    }
}
