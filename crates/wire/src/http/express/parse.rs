//! Parses buffered input and answers common requests.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::direct_response::ResponseFuture;
use crate::Caller;
use crate::envelope::{self, Framed, Incoming, Message};
use crate::http::guard::Guard;
use crate::http::headers::{Accepts, McpHeaders, USUAL_ACCEPT};
use crate::http::sessions::Peer;
use crate::http::{ClientCertificate, Endpoint, ForwardedHeader, MAX_HEAD};
use crate::protocol::RequestEnvelope;
use crate::request::McpRequest;

/// The maximum number of header fields that a request on the express lane may have.
const MAX_FIELDS: usize = 32;

/// The largest request on the express lane, and the largest response that is copied into one buffer, in bytes. The
/// kernel's socket buffers hold at least as much for a connection anyway.
const MAX_MESSAGE: usize = 64 << 10;

/// A request with an unfinished body is buffered here until this many bytes of its head and body have arrived. Then it
/// goes through hyper, where a budget limits the bodies of all requests. Unfinished heads stay here, because hyper
/// takes far more memory for them.
const MAX_WITH_UNFINISHED_BODY: usize = 8 << 10;

/// The longest `Host` value that is cached for a connection: a DNS name with a port.
const MAX_CACHED_HOST: usize = 260;

/// The peer of a connection, its client certificate, and the last `Host` value that passed the check.
pub(super) struct ConnectionContext {
    pub(super) peer: Peer,
    pub(super) certificate: Option<ClientCertificate>,
    host: Vec<u8>,
}

impl ConnectionContext {
    pub(super) fn new(peer: Peer) -> Self {
        Self { peer, certificate: None, host: Vec::new() }
    }

    /// Whether requests may have this `Host` value.
    fn admits(&mut self, guard: &Guard, host: &[u8]) -> bool {
        if self.host == host {
            return true;
        }
        let is_admitted = guard.admits_host(host);
        // A valid value may be arbitrarily long, because a port may have any number of leading zeros.
        if is_admitted && host.len() <= MAX_CACHED_HOST {
            self.host = host.to_vec();
        }
        is_admitted
    }
}

/// The result of parsing buffered input.
pub(super) enum Parsed {
    /// A request of this many bytes, and its response from the cache.
    Cached(usize, Bytes),
    /// A request of this many bytes, and the future that creates its response.
    Handled(usize, ResponseFuture),
    /// A request of this many bytes that goes through hyper.
    ThroughHyper(usize),
    /// An incomplete request.
    Incomplete,
    /// Input whose end only hyper can determine.
    Unframed,
}

/// The header fields that the express lane interprets.
#[derive(Default)]
struct Head<'a> {
    host: Option<&'a [u8]>,
    content_type: Option<&'a [u8]>,
    accept: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    authorization: Option<&'a [u8]>,
    forwarded: Option<&'a [u8]>,
    forwarded_for: Option<&'a [u8]>,
    /// Whether `Forwarded` or `X-Forwarded-For` is repeated. That matters only if the request comes from a trusted
    /// proxy.
    forwarded_is_repeated: bool,
    mcp: McpHeaders<'a>,
    /// Whether a field is repeated, invalid or unknown, or is `Origin`, so that the request goes through hyper.
    needs_validation: bool,
    /// Whether hyper must get the whole connection: the body is not framed by `Content-Length` alone, or the request
    /// has `Expect`, `Upgrade`, or a `Connection` value other than `keep-alive`.
    needs_hyper: bool,
}

impl<'a> Head<'a> {
    fn add(&mut self, name: &str, value: &'a [u8]) {
        // Returns whether hyper must validate the field: it is repeated or has invalid characters.
        let put = |field: &mut Option<&'a str>| {
            let visible = |byte: &u8| *byte == b'\t' || matches!(byte, b' '..=b'~');
            let text = std::str::from_utf8(value).ok().filter(|_| value.iter().all(visible));
            text.is_none_or(|text| field.replace(text).is_some())
        };
        let needs_validation = match name.len() {
            4 if name.eq_ignore_ascii_case("host") => self.host.replace(value).is_some(),
            6 if name.eq_ignore_ascii_case("accept") => self.accept.replace(value).is_some(),
            6 if name.eq_ignore_ascii_case("origin") => true,
            6 if name.eq_ignore_ascii_case("expect") => return self.needs_hyper = true,
            7 if name.eq_ignore_ascii_case("upgrade") => return self.needs_hyper = true,
            8 if name.eq_ignore_ascii_case("mcp-name") => put(&mut self.mcp.name),
            10 if name.eq_ignore_ascii_case("mcp-method") => put(&mut self.mcp.method),
            10 if name.eq_ignore_ascii_case("connection") => {
                return self.needs_hyper |= !value.eq_ignore_ascii_case(b"keep-alive");
            }
            12 if name.eq_ignore_ascii_case("content-type") => self.content_type.replace(value).is_some(),
            14 if name.eq_ignore_ascii_case("content-length") => {
                return self.needs_hyper |= self.length.replace(value).is_some();
            }
            14 if name.eq_ignore_ascii_case("mcp-session-id") => put(&mut self.mcp.session),
            17 if name.eq_ignore_ascii_case("transfer-encoding") => return self.needs_hyper = true,
            13 if name.eq_ignore_ascii_case("authorization") => self.authorization.replace(value).is_some(),
            20 if name.eq_ignore_ascii_case("mcp-protocol-version") => put(&mut self.mcp.version),
            9 if name.eq_ignore_ascii_case("forwarded") => {
                return self.forwarded_is_repeated |= self.forwarded.replace(value).is_some();
            }
            15 if name.eq_ignore_ascii_case("x-forwarded-for") => {
                return self.forwarded_is_repeated |= self.forwarded_for.replace(value).is_some();
            }
            _ => !is_ignorable(name),
        };
        self.needs_validation |= needs_validation;
    }

    /// The length of the body; zero without `Content-Length`, `None` if its value is not a number of at most eight
    /// digits.
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
    /// Parses the input that follows the last request of a connection, and answers the next request if it is a common
    /// one.
    pub(super) fn parse_input(self: &Arc<Self>, connection: &mut ConnectionContext, bytes: &[u8]) -> Parsed {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let start = match request.parse(bytes) {
            Ok(httparse::Status::Complete(start)) if start < MAX_HEAD => start,
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Parsed::Incomplete,
            Err(httparse::Error::TooManyHeaders) if bytes.len() < MAX_HEAD && !has_complete_head(bytes) => {
                return Parsed::Incomplete;
            }
            _ => return Parsed::Unframed,
        };
        let mut head = Head::default();
        for field in &*request.headers {
            head.add(field.name, field.value);
        }
        let end = match head.length() {
            Some(length)
                if !head.needs_hyper && request.version == Some(1) && start + length <= MAX_MESSAGE =>
            {
                start + length
            }
            _ => return Parsed::Unframed,
        };
        if bytes.len() < end {
            return if bytes.len() < MAX_WITH_UNFINISHED_BODY {
                Parsed::Incomplete
            } else {
                Parsed::Unframed
            };
        }
        let is_eligible = self.config.express
            && request.method == Some("POST")
            && request.path == Some("/mcp")
            && !head.needs_validation;
        is_eligible
            .then(|| self.dispatch(connection, &head, &bytes[start..end], end))
            .flatten()
            .unwrap_or(Parsed::ThroughHyper(end))
    }

    /// Answers a common request, which ends at byte `end` of the input; `None` if it must go through hyper.
    fn dispatch(
        self: &Arc<Self>,
        connection: &mut ConnectionContext,
        head: &Head<'_>,
        body: &[u8],
        end: usize,
    ) -> Option<Parsed> {
        let usual = head.accept == Some(USUAL_ACCEPT)
            && head.content_type == Some(b"application/json")
            && connection.admits(&self.guard, head.host?);
        if !usual {
            return None;
        }
        let Ok(Incoming::One(Message::Request { id, method, params })) = envelope::parse(body, 0) else {
            return None;
        };
        let arrived = Instant::now();
        let peer = self.forwarded_peer(connection.peer, head)?;
        let caller = Caller {
            client: peer.client,
            authorization: head.authorization,
            certificate: connection.certificate.as_ref().map(ClientCertificate::der),
            ..Caller::default()
        };
        let view = self.protocol.cached_view(&caller)?;
        let peer = peer.identified(&*view);
        let meta = params.meta().ok()?;
        let modern = meta.version().ok()?.is_some();
        let (revision, session) = if modern {
            (head.mcp.check_modern(&method, &params).ok()?, None)
        } else {
            let found = self.find_session(&view, &head.mcp)?;
            (found.0.revision, Some(found))
        };
        let (session, view) =
            session.map_or_else(|| (None, view.clone()), |(session, view)| (Some(session), view));
        let listener = session.as_ref().map(|session| &*session.notifications.listener);
        let shows_apps =
            session.as_ref().map_or_else(|| params.shows_apps(&method), |session| session.shows_apps);
        let envelope = RequestEnvelope { arrived, id: &id, method: &method, params: &params, shows_apps };
        let cached = self.protocol.cached(&*view, revision, listener, envelope);
        // A request over the rate limit goes through hyper, which checks the rate again and normally refuses it.
        let count = || self.admit_requests(peer.client, 1).is_ok();
        if let Some(answer) = cached.as_ref().and_then(response) {
            if !count() {
                return None;
            }
            self.count_bytes(peer.client, answer.len());
            return Some(Parsed::Cached(end, answer));
        }
        let request = match cached {
            Some(_) => None,
            None => Some(McpRequest::parse(revision, &*view, &method, &params).ok()?),
        };
        let call = self.call(peer, view, revision).showing_apps(shows_apps);
        let endpoint = self.clone();
        if let Some(framed) = cached {
            if !count() {
                return None;
            }
            let future = async move { endpoint.respond(Accepts::BOTH, &call, Some(&id), framed).await };
            return Some(Parsed::Handled(end, Box::pin(future)));
        }
        let request = request?;
        // The responses to these requests have additional headers (`Mcp-Session-Id`) or are event streams.
        let needs_hyper = matches!(request, McpRequest::Initialize { .. } | McpRequest::Listen(_));
        if needs_hyper || meta.progress_token().is_some() {
            return None;
        }
        if !count() {
            return None;
        }
        let future = async move {
            let accepts = Accepts::BOTH;
            match session {
                None => endpoint.answer(accepts, call, None, &id, request).await,
                Some(session) => {
                    endpoint.answer_in_session(&session, accepts, call, None, &id, request).await
                }
            }
        };
        Some(Parsed::Handled(end, Box::pin(future)))
    }
}

impl Endpoint {
    /// The peer of a request. If the peer is a trusted proxy, `client` is the client that the proxy names. `None` if
    /// the proxy repeats a forwarding header, so that the request must go through hyper.
    fn forwarded_peer(&self, peer: Peer, head: &Head<'_>) -> Option<Peer> {
        let proxies = &self.config.proxies;
        if !proxies.trust(peer.address) {
            return Some(peer);
        }
        let value = match proxies.header {
            ForwardedHeader::XForwardedFor => head.forwarded_for,
            ForwardedHeader::Forwarded => head.forwarded,
        };
        let client = proxies.client(peer.client, value.into_iter());
        (!head.forwarded_is_repeated).then_some(Peer { client, ..peer })
    }
}

/// Whether the input contains a whole request head.
fn has_complete_head(bytes: &[u8]) -> bool {
    let ends = |end: &[u8]| memchr::memmem::find(bytes, end).is_some();
    ends(b"\r\n\r\n") || ends(b"\n\n")
}

/// Whether a header field is known not to affect the response.
fn is_ignorable(name: &str) -> bool {
    const IGNORABLE: [&str; 18] = [
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "baggage",
        "cache-control",
        "dnt",
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
        "x-forwarded-proto",
        "x-request-id",
    ];
    IGNORABLE.iter().any(|ignorable| name.eq_ignore_ascii_case(ignorable))
}

/// The whole HTTP response for a message; `None` if the message is not encoded yet, or too large for one buffer.
fn response(framed: &Framed) -> Option<Bytes> {
    let parts = framed.encoded()?;
    let size: usize = parts.iter().map(|part| part.len()).sum();
    if size > MAX_MESSAGE {
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

/// The value of the `Date` header.
pub(super) fn date() -> [u8; 29] {
    date_at(SystemTime::now())
}

/// The value of the `Date` header at this time, formatted at most once a second in each thread.
fn date_at(now: SystemTime) -> [u8; 29] {
    thread_local! {
        static LAST: std::cell::Cell<(u64, [u8; 29])> = const { std::cell::Cell::new((0, [b' '; 29])) };
    }
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
