//! Reads decompressed data up to a limit.

use std::alloc::{Layout, handle_alloc_error};
use std::io::{ErrorKind, Read};

use crate::extract::{ExtractFailure, ExtractResult};

/// The data of `input`, or `None` if it has more than `limit` bytes. If there is no memory for the data, the process
/// aborts as it does when any other allocation fails, so that its parent reports the memory limit and not a damaged
/// document.
pub(crate) fn read_up_to(mut input: impl Read, limit: u64) -> ExtractResult<Option<Vec<u8>>> {
    let mut data = Vec::new();
    // A buffer of exactly `limit` bytes suffices for what is kept: one more byte would double it.
    let read = input.by_ref().take(limit).read_to_end(&mut data).and_then(|_| input.read(&mut [0]));
    match read {
        Ok(0) => Ok(Some(data)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::OutOfMemory => handle_alloc_error(Layout::new::<u8>()),
        Err(error) => Err(ExtractFailure::damaged(error)),
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
