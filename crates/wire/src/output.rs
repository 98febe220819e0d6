//! Buffered output of messages: small messages are gathered in a buffer, large ones are written in pieces.

use std::io::{self, IoSlice, Write};

use crate::envelope::Framed;
#[cfg(target_os = "linux")]
use crate::splice_cache::SpliceCache;

/// A piece that would fill the buffer to this size is written at once, together with the buffer. The transport also
/// flushes the buffer when it has read all available input, and when its queue of messages is empty.
const BUFFER_SIZE: usize = 64 << 10;

/// The maximum number of bytes of one write. The kernel locks a pipe during a write, so the client cannot read until
/// the write returns.
const MAX_WRITE: usize = 128 << 10;

/// A stream that responses can be written to.
#[cfg(target_os = "linux")]
pub trait OutputStream: Write + std::os::fd::AsFd + Send + 'static {}
#[cfg(target_os = "linux")]
impl<W: Write + std::os::fd::AsFd + Send + 'static> OutputStream for W {}

/// A stream that responses can be written to.
#[cfg(not(target_os = "linux"))]
pub trait OutputStream: Write + Send + 'static {}
#[cfg(not(target_os = "linux"))]
impl<W: Write + Send + 'static> OutputStream for W {}

/// The output of a connection, with its write buffer.
pub(crate) struct Output<W> {
    #[cfg(target_os = "linux")]
    splice_cache: SpliceCache,
    stream: W,
    buffer: Vec<u8>,
}

impl<W: OutputStream> Output<W> {
    pub(crate) fn new(stream: W) -> Self {
        Self {
            #[cfg(target_os = "linux")]
            splice_cache: SpliceCache::new(&stream),
            stream,
            buffer: Vec::with_capacity(BUFFER_SIZE),
        }
    }

    /// Adds a message.
    pub(crate) fn push(&mut self, framed: Framed) -> io::Result<()> {
        if framed.size() == 0 {
            return Ok(());
        }
        let mut large = false;
        for piece in framed.pieces() {
            #[cfg(target_os = "linux")]
            if let Some(file) = self.splice_cache.file(&piece) {
                self.flush()?;
                self.splice_cache.splice(&file, piece.len(), &self.stream)?;
                large = true;
                continue;
            }
            for part in piece.chunks(MAX_WRITE) {
                if self.buffer.len() + part.len() < BUFFER_SIZE {
                    self.buffer.extend_from_slice(part);
                } else {
                    self.write_after_buffer(part)?;
                    large = true;
                }
            }
        }
        self.buffer.push(b'\n');
        if large { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer and then `part`, in one vectored write if the kernel accepts both at once.
    fn write_after_buffer(&mut self, part: &[u8]) -> io::Result<()> {
        let mut slices = [&self.buffer, part].map(IoSlice::new);
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match self.stream.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        self.buffer.clear();
        Ok(())
    }

    /// Writes the buffer.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.buffer)?;
        self.buffer.clear();
        self.stream.flush()
    }
}
