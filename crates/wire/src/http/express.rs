//! The short way for usual requests.
//!
//! Such a request is recognised in the bytes as they came from the socket, and answered beside hyper. Nothing
//! is refused here: a request that is not usual in every respect goes the long way with all its bytes, and
//! what it may be refused for is found there.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::answering::Making;
use super::guard::Guard;
use super::headers::{Said, Takes, USUAL};
use super::sessions::Peer;
use super::{Endpoint, HEAD};
use crate::Caller;
use crate::envelope::{self, Framed, Incoming, Message};
use crate::protocol::Arrived;
use crate::request::Request;

/// The most header fields of a request that goes the short way.
const FIELDS: usize = 32;

/// The largest request that goes the short way, and the largest answer that is put into one piece, in bytes:
/// no more than the system keeps for a connection anyway.
const LARGEST: usize = 64 << 10;

/// How much of a request whose body is unfinished is kept here. More of it goes the long way, where all bodies together
/// are bounded. An unfinished head stays here, as it takes far less memory than in hyper.
const UNFINISHED: usize = 8 << 10;

/// The longest host that a connection remembers: a name of DNS with a port.
const LONGEST_HOST: usize = 260;

/// Where the requests of a connection come from, and the last host that they named, once that has proven right.
pub(super) struct Origin {
    pub(super) peer: Peer,
    host: Vec<u8>,
}

impl Origin {
    pub(super) fn new(peer: Peer) -> Self {
        Self { peer, host: Vec::new() }
    }

    /// Whether requests may name this host.
    fn names(&mut self, guard: &Guard, host: &[u8]) -> bool {
        if self.host == host {
            return true;
        }
        let right = guard.admits(host);
        // A port may have any number of zeros.
        if right && host.len() <= LONGEST_HOST {
            self.host = host.to_vec();
        }
        right
    }
}

/// What the bytes that a client has sent come to.
pub(super) enum Verdict {
    /// A request of this many bytes, and its answer.
    Answered(usize, Bytes),
    /// A request of this many bytes whose answer is yet to be made.
    Understood(usize, Making),
    /// A request of this many bytes that goes the long way.
    Long(usize),
    /// The beginning of a request.
    Begun,
    /// Something whose end only the long way can tell.
    Unknown,
}

/// What a request says in its head, where all of it is usual.
#[derive(Default)]
struct Head<'a> {
    host: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    accept: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    authorization: Option<&'a [u8]>,
    said: Said<'a>,
    /// Something that the long way must look at.
    unusual: bool,
    /// The end of the body is not told by its length, or more is to happen than an answer.
    special: bool,
}

impl<'a> Head<'a> {
    fn add(&mut self, name: &str, value: &'a [u8]) {
        // Whether the long way must look: it was there before, or has characters that it may not have.
        let put = |place: &mut Option<&'a str>| {
            let visible = |byte: &u8| *byte == b'\t' || matches!(byte, b' '..=b'~');
            let text = std::str::from_utf8(value).ok().filter(|_| value.iter().all(visible));
            text.is_none_or(|text| place.replace(text).is_some())
        };
        let taken = match name.len() {
            4 if name.eq_ignore_ascii_case("host") => self.host.replace(value).is_some(),
            6 if name.eq_ignore_ascii_case("accept") => self.accept.replace(value).is_some(),
            6 if name.eq_ignore_ascii_case("origin") => true,
            6 if name.eq_ignore_ascii_case("expect") => return self.special = true,
            7 if name.eq_ignore_ascii_case("upgrade") => return self.special = true,
            8 if name.eq_ignore_ascii_case("mcp-name") => put(&mut self.said.name),
            10 if name.eq_ignore_ascii_case("mcp-method") => put(&mut self.said.method),
            10 if name.eq_ignore_ascii_case("connection") => {
                return self.special |= !value.eq_ignore_ascii_case(b"keep-alive");
            }
            12 if name.eq_ignore_ascii_case("content-type") => self.kind.replace(value).is_some(),
            14 if name.eq_ignore_ascii_case("content-length") => {
                return self.special |= self.length.replace(value).is_some();
            }
            14 if name.eq_ignore_ascii_case("mcp-session-id") => put(&mut self.said.session),
            17 if name.eq_ignore_ascii_case("transfer-encoding") => return self.special = true,
            13 if name.eq_ignore_ascii_case("authorization") => self.authorization.replace(value).is_some(),
            20 if name.eq_ignore_ascii_case("mcp-protocol-version") => put(&mut self.said.version),
            _ => !is_ignorable(name),
        };
        self.unusual |= taken;
    }

    /// How long the body is; `None` where that is not plainly said.
    fn length(&self) -> Option<usize> {
        match self.length {
            None => Some(0),
            Some(digits) if (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) => {
                Some(digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
            }
            Some(_) => None,
        }
    }
}

impl Endpoint {
    /// Looks at what a client has sent since its last request.
    pub(super) fn express(self: &Arc<Self>, origin: &mut Origin, bytes: &[u8]) -> Verdict {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let start = match request.parse(bytes) {
            Ok(httparse::Status::Complete(start)) => start,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD => return Verdict::Begun,
            Err(httparse::Error::TooManyHeaders) if bytes.len() < HEAD && !has_head(bytes) => {
                return Verdict::Begun;
            }
            _ => return Verdict::Unknown,
        };
        let mut head = Head::default();
        for field in &*request.headers {
            head.add(field.name, field.value);
        }
        let end = match head.length() {
            Some(length) if !head.special && request.version == Some(1) && start + length <= LARGEST => {
                start + length
            }
            _ => return Verdict::Unknown,
        };
        if bytes.len() < end {
            return if bytes.len() < UNFINISHED { Verdict::Begun } else { Verdict::Unknown };
        }
        let ours = request.method == Some("POST") && request.path == Some("/mcp") && !head.unusual;
        ours.then(|| self.understood(origin, &head, &bytes[start..end], end))
            .flatten()
            .unwrap_or(Verdict::Long(end))
    }

    fn understood(
        self: &Arc<Self>,
        origin: &mut Origin,
        head: &Head<'_>,
        body: &[u8],
        end: usize,
    ) -> Option<Verdict> {
        let usual = head.accept == Some(USUAL)
            && head.kind == Some(b"application/json")
            && origin.names(&self.guard, head.host?);
        if !usual {
            return None;
        }
        let Ok(Incoming::One(Message::Request { id, method, params })) = envelope::parse(body, 0) else {
            return None;
        };
        let now = Instant::now();
        let caller =
            Caller { client: origin.peer.client, authorization: head.authorization, extensions: None };
        let view = self.protocol.known(&caller)?;
        let meta = params.meta().ok()?;
        let modern = meta.version().ok()?.is_some();
        let (revision, session) = if modern {
            (head.said.modern(&method, &params).ok()?, None)
        } else {
            let session = self.find_session(&*view, &head.said)?;
            (session.revision, Some(session))
        };
        let view = session.as_ref().map_or(view, |session| session.view.clone());
        let listener = session.as_ref().map(|session| &*session.news.listener);
        let cached = self.protocol.cached(
            &*view,
            revision,
            listener,
            Arrived { since: now, id: &id, method: &method, params: &params },
        );
        if let Some(answer) = cached.as_ref().and_then(response) {
            return Some(Verdict::Answered(end, answer));
        }
        let request = match cached {
            Some(_) => None,
            None => Some(Request::parse(revision, &*view, &method, &params).ok()?),
        };
        let (endpoint, call) = (self.clone(), self.call(origin.peer, view, revision));
        if let Some(framed) = cached {
            let making = async move { endpoint.framed(Takes::BOTH, &call, Some(&id), framed).await };
            return Some(Verdict::Understood(end, Box::pin(making)));
        }
        let request = request?;
        // These need headers that only hyper has, or come to a stream.
        let more = matches!(request, Request::Initialize { .. } | Request::Listen(_));
        if more || meta.progress_token().is_some() {
            return None;
        }
        let making = async move {
            let takes = Takes::BOTH;
            match session {
                None => endpoint.answer(takes, call, None, &id, request).await,
                Some(session) => endpoint.in_session(&session, takes, call, None, &id, request).await,
            }
        };
        Some(Verdict::Understood(end, Box::pin(making)))
    }
}

/// Whether the head of a request is whole.
fn has_head(bytes: &[u8]) -> bool {
    let ends = |end: &[u8]| memchr::memmem::find(bytes, end).is_some();
    ends(b"\r\n\r\n") || ends(b"\n\n")
}

/// Whether a header field means nothing to this endpoint. Those that could are never ignored here, and neither are those
/// that nobody knows: a request with one goes the long way.
fn is_ignorable(name: &str) -> bool {
    const IGNORABLE: [&str; 20] = [
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "baggage",
        "cache-control",
        "dnt",
        "forwarded",
        "keep-alive",
        "pragma",
        "priority",
        "sec-fetch-dest",
        "sec-fetch-mode",
        "sec-fetch-site",
        "traceparent",
        "tracestate",
        "user-agent",
        "via",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-request-id",
    ];
    IGNORABLE.iter().any(|ignorable| name.eq_ignore_ascii_case(ignorable))
}

/// An answer with the head of its response, where it is not too large.
fn response(framed: &Framed) -> Option<Bytes> {
    let parts = framed.encoded()?;
    let size: usize = parts.iter().map(|part| part.len()).sum();
    if size > LARGEST {
        return None;
    }
    let mut out = Vec::with_capacity(size + 160);
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ");
    // Writing to memory does not fail.
    let _ = write!(out, "{size}\r\ndate: ");
    out.extend_from_slice(&date());
    out.extend_from_slice(b"\r\n\r\n");
    for part in parts {
        out.extend_from_slice(part);
    }
    Some(out.into())
}

/// The time of day as a header has it, written once a second.
pub(super) fn date() -> [u8; 29] {
    thread_local! {
        static LAST: std::cell::Cell<(u64, [u8; 29])> = const { std::cell::Cell::new((0, [b' '; 29])) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (last, text) = LAST.get();
    if second == last {
        return text;
    }
    let mut text = [b' '; 29];
    let written = httpdate::fmt_http_date(now);
    let length = written.len().min(text.len());
    text[..length].copy_from_slice(&written.as_bytes()[..length]);
    LAST.set((second, text));
    text
}

#[cfg(test)]
mod tests;
