//! Receives request bodies. The size of each body is limited, and so is the memory of all bodies, in total and per client.

use std::pin::pin;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http::{Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use libris_core::{Client, Lease};
use tokio::time::timeout;

use super::body::Body;
use super::{Endpoint, response};
use crate::time_limit::within;

/// The maximum number of bytes of a body over the limit that are read and discarded. Many clients read the response
/// only after they have sent the whole request, and would report a connection error instead of the refusal.
const MAX_DISCARDED: usize = 64 << 20;

/// A body of up to this many bytes does not count against the budget of bodies: usually it stays in hyper's read buffer.
const UNCOUNTED_BODY: usize = 16 << 10;

/// The memory that a request takes while its body is received, in addition to its head and a counted body: hyper's two
/// buffers, one of which may contain a small body, and the future that answers the request.
const RECEIVING_OVERHEAD: usize = 48 << 10;

/// The memory that a head takes, as a multiple of its size: its text, and the table of its fields.
const HEAD_COPIES: usize = 2;

/// After the body is received, a head of up to this many bytes no longer counts.
const UNCOUNTED_HEAD: usize = 4 << 10;

/// Bodies of up to this many bytes have a budget of their own, so that they do not wait for larger ones.
const MODERATE_BODY: usize = 256 << 10;

/// The time limit for receiving the body of a request.
const BODY_TIME_LIMIT: Duration = Duration::from_secs(30);

/// How long a client may pause in a body while other requests wait for the memory that the body holds.
const STALL_LIMIT: Duration = Duration::from_secs(2);

/// A request body with its memory reservation.
pub(super) struct Received {
    pub(super) bytes: Bytes,
    _memory: Lease,
    /// The memory reservation of a large head, held until the request is answered.
    _head: Option<Lease>,
}

impl Endpoint {
    /// Like [`receive`](Self::receive), but refuses a body whose content type is not JSON.
    pub(super) async fn receive_json<B>(
        &self,
        client: Client,
        headers: &HeaderMap,
        body: B,
    ) -> Result<Received, Response<Body>>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
            let why = "the `Content-Type` must be `application/json`";
            return Err(response::refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        self.receive(client, headers, body).await
    }

    /// Receives the body of a request. The error is the response that refuses the request: the body is too large,
    /// incomplete or too slow, or a budget is used up.
    pub(super) async fn receive<B>(
        &self,
        client: Client,
        headers: &HeaderMap,
        body: B,
    ) -> Result<Received, Response<Body>>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let head: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let Some(mut receiving) = self.receiving.try_take(client, RECEIVING_OVERHEAD + HEAD_COPIES * head)
        else {
            return Err(self.busy(None, "too many requests are being received; try again later"));
        };
        let late = || response::refusal(StatusCode::REQUEST_TIMEOUT, "the body took too long");
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let (bytes, memory) = within(BODY_TIME_LIMIT, self.collect(client, length, body))
            .await
            .unwrap_or_else(|| Err(late()))?;
        let is_large = head > UNCOUNTED_HEAD && receiving.resize(HEAD_COPIES * head);
        Ok(Received { bytes, _memory: memory, _head: is_large.then_some(receiving) })
    }

    /// Collects a body, and returns it with its memory reservation. A body over the limit is refused, after up to
    /// `MAX_DISCARDED` more bytes were read and discarded.
    async fn collect<B>(
        &self,
        client: Client,
        length: Option<usize>,
        body: B,
    ) -> Result<(Bytes, Lease), Response<Body>>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let limit = self.protocol.limits.message;
        let mut body = pin!(body);
        // Most bodies arrive in one piece, which is not copied.
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        let mut memory = self.bodies.empty_lease();
        let mut size = 0;
        loop {
            let frame = match within(STALL_LIMIT, body.frame()).await {
                Some(Some(frame)) => frame,
                Some(None) => break,
                None if memory.is_needed() => {
                    let why = "the body came too slowly while others waited for memory; try again";
                    return Err(response::refusal(StatusCode::REQUEST_TIMEOUT, why));
                }
                None => continue,
            };
            let Ok(frame) = frame else {
                return Err(response::refusal(StatusCode::BAD_REQUEST, "the body ended early"));
            };
            let Ok(mut data) = frame.into_data() else { continue };
            let piece = data.remaining();
            size += piece;
            if size > limit + MAX_DISCARDED {
                break;
            }
            if size > limit {
                (first, rest, memory) = (Bytes::new(), BytesMut::new(), self.bodies.empty_lease());
                continue;
            }
            if size > UNCOUNTED_BODY && size > memory.amount() {
                // The body is not read further until memory is available (backpressure).
                let expected = length.unwrap_or(if size <= MODERATE_BODY { MODERATE_BODY } else { limit });
                memory = self.memory(client, expected.clamp(size, limit)).await?;
                rest.reserve(memory.amount().clamp(size, limit) - rest.len());
            }
            if size == piece {
                first = data.copy_to_bytes(piece);
            } else {
                if rest.is_empty() {
                    rest.put(std::mem::take(&mut first));
                }
                rest.put(data);
            }
        }
        if size > limit {
            let why = format!("the message is larger than the limit of {limit} bytes");
            return Err(response::refusal(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let bytes = if rest.is_empty() { first } else { rest.freeze() };
        Ok((bytes, memory))
    }

    /// Reserves memory for a body of this many bytes. All of it is reserved at once: requests that hold a part and wait
    /// for the rest could deadlock.
    async fn memory(&self, client: Client, size: usize) -> Result<Lease, Response<Body>> {
        let (budget, size) = match size {
            ..=MODERATE_BODY => (&self.moderate_bodies, MODERATE_BODY),
            _ => (&self.bodies, size),
        };
        let taken = timeout(BODY_TIME_LIMIT, budget.take(client, size)).await;
        taken
            .ok()
            .flatten()
            .ok_or_else(|| self.busy(None, "too many large requests are being received; try again later"))
    }
}
