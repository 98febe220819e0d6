//! Reads decompressed data up to a limit.

use std::alloc::{Layout, handle_alloc_error};
use std::io::{ErrorKind, Read};

use crate::extract::{ExtractFailure, ExtractResult};

/// The size of a piece of the data.
const PIECE_BYTES: usize = 1 << 20;

/// The data of `input`, or `None` if it has more than `limit` bytes. If there is no memory for the data, the process
/// aborts as it does when any other allocation fails, so that its parent reports the memory limit and not a damaged
/// document.
///
/// Unlike `Read::read_to_end`, it takes no more than `limit` bytes and one piece to find out that there are too many: it
/// reads into pieces, and joins them at the end.
pub(crate) fn read_up_to(mut input: impl Read, limit: u64) -> ExtractResult<Option<Vec<u8>>> {
    let (mut pieces, mut size) = (Vec::new(), 0_u64);
    loop {
        let mut piece = reserved(PIECE_BYTES);
        let read = input.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece);
        match read {
            Ok(0) => break,
            Ok(read) => size += read as u64,
            Err(error) if error.kind() == ErrorKind::OutOfMemory => handle_alloc_error(Layout::new::<u8>()),
            Err(error) => return Err(ExtractFailure::damaged(error)),
        }
        if size > limit {
            return Ok(None);
        }
        pieces.push(piece);
    }
    let mut data = reserved(usize::try_from(size).unwrap_or(usize::MAX));
    for piece in pieces {
        data.extend_from_slice(&piece);
    }
    Ok(Some(data))
}

/// An empty buffer of this capacity.
fn reserved(capacity: usize) -> Vec<u8> {
    let mut buffer = Vec::new();
    if buffer.try_reserve_exact(capacity).is_err() {
        handle_alloc_error(Layout::array::<u8>(capacity).unwrap_or(Layout::new::<u8>()));
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_as_the_limit_allows_are_read() {
        assert_eq!(read_up_to(&b"abc"[..], 3), Ok(Some(b"abc".to_vec())));
        assert_eq!(read_up_to(&b"abcd"[..], 3), Ok(None));
        assert_eq!(read_up_to(std::io::repeat(0), 1 << 20), Ok(None));
        assert_eq!(read_up_to(std::io::empty(), 0), Ok(Some(Vec::new())));
    }

    #[test]
    fn the_buffer_is_no_larger_than_the_limit() {
        let data = read_up_to(std::io::repeat(0).take(1 << 20), 1 << 20).unwrap().unwrap();
        assert!(data.capacity() <= 1 << 20, "{}", data.capacity());
    }
}
