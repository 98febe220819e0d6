//! A pool of buffers, reused last in, first out, so that a reused buffer is probably still in the CPU cache.

use std::sync::Mutex;

use bytes::Bytes;

use crate::lock::lock;

/// The size of each buffer.
pub(crate) const SIZE: usize = 64 << 10;

/// The maximum number of unused buffers in the pool.
const MAX_POOLED: usize = 64;

static FREE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// Takes a buffer from the pool (or allocates one), lets `write` fill the start of it, and returns the filled part.
/// `write` returns the number of bytes that it wrote; the buffer may contain old data.
pub(crate) fn fill(write: impl FnOnce(&mut [u8]) -> usize) -> Bytes {
    let free = lock(&FREE).pop();
    let mut buffer = Buffer { bytes: free.unwrap_or_else(|| vec![0; SIZE].into()), filled: 0 };
    buffer.filled = write(&mut buffer.bytes);
    Bytes::from_owner(buffer)
}

/// A buffer that returns to the pool on drop.
struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = lock(&FREE);
        if free.len() < MAX_POOLED {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FREE, MAX_POOLED, fill};
    use crate::lock::lock;

    #[test]
    fn a_buffer_is_reused_only_after_its_bytes_are_dropped() {
        let many: Vec<_> = (0..2 * MAX_POOLED)
            .map(|number| {
                fill(|buffer| {
                    buffer[..3].fill(number as u8);
                    3
                })
            })
            .collect();
        for (number, bytes) in many.iter().enumerate() {
            assert_eq!(bytes[..], [number as u8; 3]);
        }
        drop(many);
        assert!(lock(&FREE).len() <= MAX_POOLED);
    }
}
