//! The express lane: the I/O object of an HTTP/1 connection, which answers common requests without hyper.
//!
//! Hyper costs more per request than a cached response does, and takes more memory than the rest of a connection. The
//! lane is hyper's I/O object, sees the bytes of a connection first, and creates hyper only for requests that it does
//! not answer. Both paths call the same functions of [`Endpoint`](super::Endpoint), so they give the same responses.
//! This page is the contract between the lane and hyper.
//!
//! **What the lane parses.** While hyper is idle, the head of the next request ([`parse`]): HTTP/1.1, fewer than
//! 16 KiB, at most 32 fields, and a body framed by one plain `Content-Length`, at most 64 KiB in total. It answers
//! single JSON-RPC requests in a `POST /mcp` without an `Origin`, with the `Accept` and `Content-Type` values that
//! nearly all clients send, an allowed `Host`, and only header fields that it knows. The caller's view must be
//! available without waiting. `initialize`, `subscriptions/listen`, batches, notifications and requests with a
//! progress token go through hyper.
//!
//! **What the lane never does.** It refuses no input and writes no status of its own: everything malformed, forbidden
//! or unusual goes through hyper with all its bytes, and is refused there. It never interprets a part of a request and
//! leaves the rest to hyper.
//!
//! **When hyper gets bytes.** A request whose end is known goes through hyper whole (`Parsed::ThroughHyper`): these
//! bytes, and nothing after them until hyper has written the response and flushed. If only hyper can determine where a
//! request ends (`Parsed::Unframed`), hyper gets these bytes and all that follow, and the lane parses nothing more on
//! the connection, unless hyper hands over an event stream. An incomplete request stays in the lane until it is
//! complete, its head exceeds 16 KiB, or its unfinished body exceeds 8 KiB.
//!
//! **What hyper may rely on.** It reads bytes in the order in which the client sent them, beginning with a request
//! line. The lane writes to the socket only while hyper is idle. When the client has half-closed the connection, hyper
//! reads an end of file, as soon as no response is outstanding or the time limit below has passed. An idle hyper also
//! reads an end of file while many connections are open (`Connections::is_crowded`): it ends and frees its memory, the
//! socket stays open, and the lane continues without it. While there is a hyper, it does the graceful shutdown itself.
//!
//! **Pipelining.** Requests are answered one at a time and in order. While a response is outstanding, the lane reads at
//! most 8 KiB ahead, and then nothing more (backpressure).
//!
//! **Half-close.** After an end of file the lane answers the requests that it has read, in order, and closes the
//! connection. It waits at most 5 seconds for the last response, because the client may have disconnected; an event
//! stream ends then. A truncated request goes to hyper, followed by the end of file.
//!
//! **Event streams.** If hyper was idle when it got a request whose response is an event stream, the service stores the
//! response as a [`DetachedStream`] and fails with [`StreamDetached`]. Hyper ends before it has written anything,
//! [`through_hyper`] takes the socket and the input that hyper has read ahead back from it, and the lane writes the
//! stream. Then the connection continues on the lane, unless the response was the last one ([`Framing::last`]). If
//! hyper had other responses to write first, it sends the stream itself, which takes more units of the event stream
//! budget.
//!
//! **Memory.** An idle connection has neither buffers nor hyper. Input that waits counts against
//! [`Config::head_bytes`](super::Config::head_bytes), which evicts connections; so does what hyper holds of an
//! unfinished head. Response bytes that the socket does not accept at once are leased from the content budget; if it is
//! used up, the connection is closed.
//!
//! **Time.** The lane starts no timers, except the one of a half-closed connection. The liveness checks close
//! connections whose clients send no request, do not finish one, or do not read.
//!
//! **Switched off.** With [`Config::express`](super::Config::express) set to `false`, every request goes through hyper.
//! The lane still frames requests, so that all of the above holds.

mod detached_stream;
mod direct_response;
mod lane;
mod parse;

pub(super) use self::detached_stream::{DetachedStream, Framing, StreamDetached, through_hyper};
pub(super) use self::lane::Lane;
