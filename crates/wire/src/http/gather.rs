//! Several pieces of a body as one, so that they leave in one call of the system.
//!
//! A call for each piece would wake the client for each, which costs more than encoding it. Hyper gathers
//! too, but no more than it may read ahead of a request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};

use super::body::Body;

/// How many bytes are gathered.
const ENOUGH: usize = 2 << 20;

/// A body whose pieces are gathered.
pub(super) struct Gathered(pub(super) Body);

impl http_body::Body for Gathered {
    type Data = Rope;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Rope>, Infallible>>> {
        let mut rope = Rope::default();
        while rope.left < ENOUGH {
            match Pin::new(&mut self.0).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        rope.push(piece);
                    }
                }
                Poll::Ready(None) => break,
                Poll::Pending if rope.left == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready((rope.left > 0).then(|| Ok(Frame::data(rope))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Pieces that follow each other.
#[derive(Default)]
pub(super) struct Rope {
    pieces: VecDeque<Bytes>,
    left: usize,
}

impl Rope {
    fn push(&mut self, piece: Bytes) {
        self.left += piece.len();
        self.pieces.push_back(piece);
    }
}

impl Buf for Rope {
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
    use super::Rope;
    use bytes::{Buf as _, Bytes};
    use std::io::IoSlice;

    fn rope() -> Rope {
        let mut rope = Rope::default();
        for piece in ["one ", "two ", "three"] {
            rope.push(Bytes::from_static(piece.as_bytes()));
        }
        rope
    }

    #[test]
    fn pieces_are_given_in_order_however_they_are_taken() {
        let whole = "one two three";
        for first in 0..=whole.len() {
            let mut rope = rope();
            rope.advance(first);
            assert_eq!(rope.remaining(), whole.len() - first);
            assert!(first == whole.len() || !rope.chunk().is_empty());
            assert_eq!(rope.copy_to_bytes(whole.len() - first), &whole[first..]);
        }
    }

    #[test]
    fn pieces_are_given_together() {
        let mut rope = rope();
        rope.advance(2);
        let mut slices = [IoSlice::new(b""); 8];
        let count = rope.chunks_vectored(&mut slices);
        assert_eq!(slices[..count].iter().map(|slice| slice.len()).collect::<Vec<_>>(), [2, 4, 5]);
        assert_eq!(rope.chunks_vectored(&mut slices[..1]), 1);
    }
}
