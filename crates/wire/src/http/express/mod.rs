//! The express lane: the I/O object of an HTTP/1 connection, which answers common requests without hyper.
//!
//! For a request whose response is cached, most of the work would be hyper's, and hyper takes more memory than the rest
//! of a connection. The lane is the I/O object that hyper reads from and writes to. The lane sees the bytes of a
//! connection first, and hyper is created only for requests that the lane does not answer itself. Both paths call the
//! same functions of [`Endpoint`](super::Endpoint), so they give the same responses. This text is the contract between
//! the lane and hyper.
//!
//! **What the lane parses.** While hyper is idle, the lane parses the next request ([`parse`]): HTTP/1.1, a head of
//! fewer than 16 KiB with at most 32 fields, a body framed by one plain `Content-Length`, and at most 64 KiB in total.
//!
//! **What the lane answers.** Single JSON-RPC requests in a `POST /mcp` without an `Origin`, with the `Accept` and
//! `Content-Type` values that nearly all clients send, an allowed `Host`, and only header fields that the lane knows.
//! The caller's view must be available without waiting. `initialize`, `subscriptions/listen`, batches and notifications
//! go through hyper, and so do requests with a progress token unless their response is cached.
//!
//! **What the lane never does.** It refuses no input and writes no status of its own: everything malformed, forbidden
//! or unusual goes through hyper with all its bytes, and is refused there. A request is either answered by the lane or
//! passed to hyper whole.
//!
//! **When hyper gets bytes.** If the end of a request is known (`Parsed::ThroughHyper`), hyper gets the bytes of this
//! request, and nothing after them until it has written the response and flushed. If only hyper can determine where a
//! request ends (`Parsed::Unframed`), hyper gets these bytes and all that follow, and the lane parses nothing more on
//! the connection, unless it takes an event stream over from hyper. An incomplete request stays in the lane until it is
//! complete, until 16 KiB have arrived and its head is unfinished, or until 8 KiB have arrived and its body is
//! unfinished.
//!
//! **What hyper may rely on.** It reads bytes in the order in which the client sent them, beginning with a request
//! line. The lane writes to the socket only while hyper is idle. After the client has half-closed the connection, hyper
//! reads an end of file as soon as no response is outstanding, or when the time limit below has passed. While many
//! connections are open (`Connections::is_crowded`), an idle hyper also reads an end of file: it ends and frees its
//! memory, but the socket stays open, and the lane continues without hyper. While hyper exists, it does the graceful
//! shutdown itself.
//!
//! **Pipelining.** Requests are answered one at a time and in order. While a response is outstanding, the lane reads
//! ahead only until it has buffered 8 KiB or more (backpressure).
//!
//! **Half-close.** After an end of file the lane answers the requests that it has read, in order, and closes the
//! connection. It waits at most 5 seconds for the last response, because the client may have disconnected. An event
//! stream ends after these 5 seconds too. A truncated request goes to hyper, followed by the end of file.
//!
//! **Event streams.** If hyper was idle when it got a request whose response is an event stream, the service stores the
//! response as a [`DetachedStream`] and fails with [`StreamDetached`]. Hyper then ends before it has written anything.
//! [`through_hyper`] takes back the socket and the input that hyper has read ahead, and the lane writes the stream.
//! After the stream, the connection continues on the lane, unless the response was the last one ([`Framing::last`]). If
//! hyper owned the connection already, because of an earlier request, it may have other responses to write first. Then
//! it sends the stream itself, and the stream takes more units of the event stream budget.
//!
//! **Memory.** A connection on which hyper never existed has no buffers while it is idle. Buffered input and an
//! unfinished head in hyper count against [`Config::head_bytes`](super::Config::head_bytes); connections are evicted
//! when this budget is exceeded. Response bytes that the socket does not accept at once are leased from the content
//! budget; if it is used up, the connection is closed.
//!
//! **Time.** The only timer of the lane is that of a half-closed connection. The liveness checks close connections
//! whose clients send no request, do not finish one, or do not read.
//!
//! **Switched off.** With [`Config::express`](super::Config::express) set to `false`, every request goes through hyper.
//! The lane still frames requests, so that all of the above holds.

mod detached_stream;
mod direct_response;
mod lane;
mod parse;

pub(super) use self::detached_stream::{DetachedStream, Framing, StreamDetached, through_hyper};
pub(super) use self::lane::Lane;
