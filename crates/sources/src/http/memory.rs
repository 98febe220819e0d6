//! The memory budget of responses while they are received.
//!
//! Concurrent callers share one response, so its memory is reserved in a budget of its own, and not by the request of
//! one caller. The reservation ends when the response is cached, or when all callers have their copies.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use libris_core::{Budget, Client, Lease};
use tokio::time::timeout;

/// The memory for concurrent responses of all sources. One client may use three quarters of this memory.
const RESPONSE_MEMORY_BYTES: usize = 32 << 20;

/// Responses up to this size need no reservation.
pub(super) const UNRESERVED_BYTES: usize = 64 << 10;

/// The time-out of the wait for memory. The connection is not read meanwhile, which applies backpressure to the
/// service.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

static RESPONSE_MEMORY: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(RESPONSE_MEMORY_BYTES));

/// The body of a response, decompressed while it is received.
pub(super) struct ReceivedBody {
    decoder: Decoder,
    limit: u64,
    /// The `Content-Length`, if there is one.
    length: Option<u64>,
    client: Client,
    memory: Option<Lease>,
    empty: bool,
}

enum Decoder {
    Plain(BoundedBuffer),
    Gzip(Box<MultiGzDecoder<BoundedBuffer>>),
}

/// Why a response could not be received.
pub(super) enum ReceiveError {
    /// The body has at least this many bytes, which exceeds the limit.
    TooLarge(u64),
    /// There is no memory for the body.
    NoMemory,
    /// The body cannot be decompressed.
    Malformed(io::Error),
}

impl ReceivedBody {
    /// Receives uncompressed data of up to `limit` bytes, with memory from the share of this client.
    pub(super) fn plain(limit: u64, length: Option<u64>, client: Client) -> Self {
        let decoder = Decoder::Plain(BoundedBuffer::new(limit));
        Self { decoder, limit, length, client, memory: None, empty: true }
    }

    /// Receives compressed data of up to `limit` bytes after decompression, with memory from the share of this
    /// client.
    pub(super) fn gzip(limit: u64, client: Client) -> Self {
        let decoder = Decoder::Gzip(Box::new(MultiGzDecoder::new(BoundedBuffer::new(limit))));
        Self { decoder, limit, length: None, client, memory: None, empty: true }
    }

    /// Appends data. Waits for memory when the body exceeds [`UNRESERVED_BYTES`].
    pub(super) async fn write(&mut self, mut piece: &[u8]) -> Result<(), ReceiveError> {
        self.empty &= piece.is_empty();
        while !piece.is_empty() {
            let written = match &mut self.decoder {
                Decoder::Plain(buffer) => buffer.write(piece),
                Decoder::Gzip(decoder) => decoder.write(piece),
            };
            match written {
                Ok(0) => return Err(ReceiveError::Malformed(io::ErrorKind::WriteZero.into())),
                Ok(written) => piece = &piece[written..],
                Err(cause) => self.make_room(cause).await?,
            }
        }
        Ok(())
    }

    /// The whole body, with its reserved memory.
    pub(super) async fn finish(mut self) -> Result<(Vec<u8>, Option<Lease>), ReceiveError> {
        // An empty body is not compressed, regardless of the headers.
        if !self.empty {
            while let Decoder::Gzip(decoder) = &mut self.decoder
                && let Err(cause) = decoder.try_finish()
            {
                self.make_room(cause).await?;
            }
        }
        let mut data = match &mut self.decoder {
            Decoder::Plain(buffer) => std::mem::take(&mut buffer.data),
            Decoder::Gzip(decoder) => std::mem::take(&mut decoder.get_mut().data),
        };
        data.shrink_to_fit();
        if let Some(memory) = &mut self.memory {
            memory.resize(data.len());
        }
        Ok((data, self.memory))
    }

    /// Handles a failed write. If the buffer was full, reserves memory for the whole body at once: responses that
    /// each hold some memory and wait for more would deadlock.
    async fn make_room(&mut self, cause: io::Error) -> Result<(), ReceiveError> {
        match cause.get_ref().and_then(|cause| cause.downcast_ref()) {
            Some(BufferFull::Limit(size)) => return Err(ReceiveError::TooLarge(*size)),
            Some(BufferFull::Reserved) if self.memory.is_none() => {}
            _ => return Err(ReceiveError::Malformed(cause)),
        }
        let bytes = usize::try_from(self.length.unwrap_or(self.limit)).unwrap_or(usize::MAX);
        let taken = timeout(MEMORY_TIMEOUT, RESPONSE_MEMORY.take(self.client, bytes)).await;
        self.memory = Some(taken.ok().flatten().ok_or(ReceiveError::NoMemory)?);
        let buffer = match &mut self.decoder {
            Decoder::Plain(buffer) => buffer,
            Decoder::Gzip(decoder) => decoder.get_mut(),
        };
        // From here on only `limit` applies, even if the service sends more than its `Content-Length`.
        buffer.reserved = usize::MAX;
        if let Some(length) = self.length {
            let length = usize::try_from(length).unwrap_or_default();
            buffer.data.reserve_exact(length.saturating_sub(buffer.data.len()));
        }
        Ok(())
    }
}

/// A buffer that refuses data beyond its limit, and data beyond [`UNRESERVED_BYTES`] until memory is reserved.
struct BoundedBuffer {
    data: Vec<u8>,
    reserved: usize,
    limit: u64,
}

impl BoundedBuffer {
    fn new(limit: u64) -> Self {
        Self { data: Vec::new(), reserved: UNRESERVED_BYTES, limit }
    }
}

impl Write for BoundedBuffer {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let size = self.data.len() + piece.len();
        if size as u64 > self.limit {
            return Err(io::Error::other(BufferFull::Limit(size as u64)));
        }
        if size > self.reserved {
            return Err(io::Error::other(BufferFull::Reserved));
        }
        self.data.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a buffer refused data.
#[derive(Debug)]
enum BufferFull {
    /// The buffer would have this many bytes, which exceeds the limit.
    Limit(u64),
    /// More memory must be reserved first.
    Reserved,
}

impl std::fmt::Display for BufferFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Limit(size) => write!(f, "{size} bytes are too many"),
            Self::Reserved => f.write_str("no memory is reserved"),
        }
    }
}

impl std::error::Error for BufferFull {}

#[cfg(test)]
mod tests {
    use super::{RESPONSE_MEMORY, ReceiveError, ReceivedBody, UNRESERVED_BYTES};
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use futures_util::FutureExt as _;
    use libris_core::Client;
    use std::io::Write as _;

    fn packed(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn data_is_whole_and_counted_however_it_arrives() {
        let client = Client::at([10, 0, 0, 1].into());
        for size in [
            0,
            1,
            UNRESERVED_BYTES - 1,
            UNRESERVED_BYTES,
            UNRESERVED_BYTES + 1,
            3 * UNRESERVED_BYTES,
            1 << 20,
        ] {
            let data: Vec<u8> = (0..size).map(|at| (at / 7) as u8).collect();
            for step in [1_000, 100_000, 10_000_000] {
                let limit = 1 << 20;
                let length = Some(size as u64);
                let ways = [
                    (ReceivedBody::plain(limit, length, client), data.clone()),
                    (ReceivedBody::plain(limit, None, client), data.clone()),
                    (ReceivedBody::gzip(limit, client), packed(&data)),
                ];
                for (mut received, sent) in ways {
                    for piece in sent.chunks(step) {
                        assert!(received.write(piece).await.is_ok());
                    }
                    let Ok((whole, memory)) = received.finish().await else { panic!("{size} by {step}") };
                    assert!(whole == data, "{size} by {step}");
                    let counted = memory.as_ref().map_or(0, libris_core::Lease::amount);
                    assert_eq!(counted, if size > UNRESERVED_BYTES { size } else { 0 });
                }
            }
        }
    }

    #[tokio::test]
    async fn a_response_waits_until_there_is_memory() {
        let client = Client::at([10, 0, 0, 2].into());
        let all = RESPONSE_MEMORY.try_take(client, usize::MAX).unwrap();
        let sent = packed(&vec![b'x'; 4 << 20]);
        let mut received = ReceivedBody::gzip(8 << 20, client);
        let mut writing = Box::pin(received.write(&sent));
        assert!((&mut writing).now_or_never().is_none());
        drop(all);
        assert!(writing.await.is_ok());
        drop(received);
        let mut received = ReceivedBody::gzip(1 << 20, client);
        assert!(matches!(received.write(&sent).await, Err(ReceiveError::TooLarge(_))));
    }
}
