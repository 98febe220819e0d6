//! Reads decompressed data up to a limit.

use std::alloc::{Layout, handle_alloc_error};
use std::io::{ErrorKind, Read};

use crate::extract::{ExtractFailure, ExtractResult};

/// The size of one read.
const READ_BYTES: usize = 64 << 10;

/// The data of `input`, or `None` if it has more than `limit` bytes. If there is no memory for the data, the process
/// aborts as it does when any other allocation fails, so that its parent reports the memory limit and not a damaged
/// document.
///
/// Unlike `Read::read_to_end`, it never allocates more than `limit` bytes: doubling a buffer of `limit` bytes for the one
/// byte that is too many would exceed the memory limit of the process.
pub(crate) fn read_up_to(mut input: impl Read, limit: u64) -> ExtractResult<Option<Vec<u8>>> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut data, mut block) = (Vec::new(), vec![0; READ_BYTES]);
    loop {
        let read = match input.read(&mut block) {
            Ok(0) => return Ok(Some(data)),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(ExtractFailure::damaged(error)),
        };
        let needed = data.len() + read;
        if needed > limit {
            return Ok(None);
        }
        if needed > data.capacity() {
            let capacity = data.capacity().saturating_mul(2).clamp(needed, limit);
            if data.try_reserve_exact(capacity - data.len()).is_err() {
                handle_alloc_error(Layout::array::<u8>(capacity).unwrap_or(Layout::new::<u8>()));
            }
        }
        data.extend_from_slice(&block[..read]);
    }
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
