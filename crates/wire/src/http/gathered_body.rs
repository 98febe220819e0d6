//! Gathers several pieces of a response body, so that over HTTP/1 one system call writes all of them.
//!
//! A system call for each piece would wake the client each time, which costs more than encoding the piece. Hyper gathers
//! pieces too, but only up to its buffer limit, which must stay small because it also bounds how far hyper reads ahead.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::Version;
use http_body::{Body as _, Frame, SizeHint};

use super::body::{Body, SharedLease};
use super::stream::Stream;
use crate::content_budget::ENCODED_AHEAD;

/// Pieces are gathered until they have this many bytes. Large enough for few system calls, and small enough that the client
/// does not become idle while the next bytes are encoded: a core that idles for long enters a sleep state from which waking
/// is expensive.
const MAX_GATHERED: usize = ENCODED_AHEAD;

/// For HTTP/2 responses of up to this many bytes, the last piece has the end-of-stream flag, and hyper releases the stream
/// before that piece is sent. For larger responses, hyper holds the stream until the last piece is sent, so that the stream
/// can be reset as long as it holds memory.
const MAX_RELEASED_EARLY: usize = 16 << 10;

/// A body whose pieces are gathered.
pub(super) struct GatheredBody {
    body: Body,
    /// Pieces are gathered until they have this many bytes, or until the next piece would have to be awaited.
    target_size: usize,
    /// Whether the body has at most `MAX_RELEASED_EARLY` bytes.
    is_small: bool,
}

impl GatheredBody {
    pub(super) fn new(body: Body, version: Version) -> Self {
        // One piece at a time over HTTP/2, which splits everything into small frames anyway.
        let target_size = if version == Version::HTTP_2 { 1 } else { MAX_GATHERED };
        let is_small = body.size_hint().exact().is_some_and(|size| size <= MAX_RELEASED_EARLY as u64);
        Self { body, target_size, is_small }
    }
}

impl http_body::Body for GatheredBody {
    type Data = BufList;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, Infallible>>> {
        let mut list = BufList::default();
        while list.left < self.target_size {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        list.push(piece);
                        list.hold(self.body.lease());
                    }
                }
                Poll::Ready(None) => break,
                Poll::Pending if list.left == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if let Some(stream) = self.body.stream() {
            if list.left == 0 {
                ready!(stream.poll_drained(context));
            }
            stream.record_passed(list.left);
            list.stream = Some(stream.clone());
        }
        Poll::Ready((list.left > 0).then(|| Ok(Frame::data(list))))
    }

    fn is_end_stream(&self) -> bool {
        let may_end = self.is_small || !self.body.stream().is_some_and(|stream| stream.is_unsent());
        may_end && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Consecutive pieces of a body, written with vectored I/O.
#[derive(Default)]
pub(super) struct BufList {
    pieces: VecDeque<Bytes>,
    left: usize,
    /// The memory reservations of the pieces, released when all pieces are sent.
    leases: Vec<SharedLease>,
    /// The HTTP/2 stream that the pieces are sent on.
    stream: Option<Arc<Stream>>,
}

impl Drop for BufList {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take().filter(|_| self.left > 0) {
            stream.record_sent(self.left);
        }
    }
}

impl BufList {
    pub(super) fn push(&mut self, piece: Bytes) {
        self.left += piece.len();
        self.pieces.push_back(piece);
    }

    /// Holds the memory reservation of the piece that was pushed last.
    fn hold(&mut self, lease: Option<&SharedLease>) {
        let Some(lease) = lease else { return };
        if self.leases.last().is_none_or(|last| !Arc::ptr_eq(last, lease)) {
            self.leases.push(lease.clone());
        }
    }

    pub(super) fn push_front(&mut self, piece: Bytes) {
        self.left += piece.len();
        self.pieces.push_front(piece);
    }
}

impl Buf for BufList {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let both = out.iter_mut().zip(&self.pieces);
        both.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        self.left -= count;
        if let Some(stream) = &self.stream {
            stream.record_sent(count);
        }
        while let Some(piece) = self.pieces.front_mut() {
            if count < piece.len() {
                return piece.advance(count);
            }
            count -= piece.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BufList, GatheredBody, MAX_GATHERED};
    use crate::content_budget::{ContentBudget, Share};
    use crate::envelope::Framed;
    use crate::http::body::Body;
    use crate::members::Writer;
    use bytes::{Buf as _, Bytes};
    use http::Version;
    use http_body::Body as _;
    use libris_core::Client;
    use std::io::IoSlice;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    fn list() -> BufList {
        let mut list = BufList::default();
        for piece in ["one ", "two ", "three"] {
            list.push(Bytes::from_static(piece.as_bytes()));
        }
        list
    }

    #[test]
    fn pieces_are_in_order_however_they_are_read() {
        let whole = "one two three";
        for first in 0..=whole.len() {
            let mut list = list();
            list.advance(first);
            assert_eq!(list.remaining(), whole.len() - first);
            assert!(first == whole.len() || !list.chunk().is_empty());
            assert_eq!(list.copy_to_bytes(whole.len() - first), &whole[first..]);
        }
    }

    #[test]
    fn pieces_are_written_with_one_vectored_write() {
        let mut list = list();
        list.advance(2);
        let mut slices = [IoSlice::new(b""); 8];
        let count = list.chunks_vectored(&mut slices);
        assert_eq!(slices[..count].iter().map(|slice| slice.len()).collect::<Vec<_>>(), [2, 4, 5]);
        assert_eq!(list.chunks_vectored(&mut slices[..1]), 1);
    }

    fn body(size: usize) -> Body {
        let mut out = Writer::default();
        out.text("x".repeat(size));
        Body::framed(Framed { members: out.finish(), ..Framed::whole("") })
    }

    fn next(body: &mut GatheredBody) -> Option<BufList> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => Some(frame?.unwrap().into_data().ok().unwrap()),
            Poll::Pending => panic!("an answer does not wait"),
        }
    }

    #[test]
    fn gathered_bytes_are_bounded() {
        for (version, most) in [(Version::HTTP_11, MAX_GATHERED + (64 << 10)), (Version::HTTP_2, 64 << 10)] {
            let size = 5 << 20;
            let mut body = GatheredBody::new(body(size), version);
            let lists: Vec<_> = std::iter::from_fn(|| next(&mut body)).map(|list| list.remaining()).collect();
            assert_eq!(lists.iter().sum::<usize>(), size + 2);
            assert!(lists.iter().all(|&size| size <= most), "{lists:?}");
        }
    }

    #[test]
    fn memory_is_released_when_the_last_piece_is_sent() {
        let content_budget = ContentBudget::new(120, Share::All, Duration::ZERO);
        let lease = content_budget.try_take(Client::default(), 1);
        let mut body = GatheredBody::new(body(MAX_GATHERED / 2).holding(lease), Version::HTTP_11);
        let list = next(&mut body).unwrap();
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!(content_budget.used(), 1);
        drop(list);
        assert_eq!(content_budget.used(), 0);
    }
}
