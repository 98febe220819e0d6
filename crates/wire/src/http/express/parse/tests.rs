//! Tests of which requests the express lane answers.

use super::{ConnectionContext, Endpoint, Parsed, Peer};
use crate::empty::Empty;
use crate::envelope::Framed;
use crate::http::Config;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Whether the express lane answers a request with this `Host` value.
fn is_answered(endpoint: &Arc<Endpoint>, connection: &mut ConnectionContext, host: &str) -> bool {
    is_answered_with(endpoint, connection, host, "")
}

/// The same with an additional header line.
fn is_answered_with(
    endpoint: &Arc<Endpoint>,
    connection: &mut ConnectionContext,
    host: &str,
    field: &str,
) -> bool {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: resources/list\r\n{field}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    match endpoint.parse_input(connection, request.as_bytes()) {
        Parsed::Cached(size, _) => size == request.len(),
        Parsed::ThroughHyper(_) => false,
        _ => panic!("{host}: the request is complete and framed"),
    }
}

#[test]
fn every_connection_may_use_every_allowed_host() {
    let config = Config { hosts: vec!["library.example".into()], ..Config::default() };
    let endpoint = Endpoint::new(Arc::new(Empty), config);
    let mut connections = [(); 3].map(|()| ConnectionContext::new(Peer::default()));
    let served = ["127.0.0.1:8080", "localhost", "library.example", "[::1]:80"];
    for round in 0..8 {
        for (number, connection) in connections.iter_mut().enumerate() {
            // Each connection starts with a different host, and changes it in every round.
            let host = served[(round + number) % served.len()];
            assert!(is_answered(&endpoint, connection, host), "connection {number}, round {round}: {host}");
            assert!(is_answered(&endpoint, connection, host), "connection {number}, again: {host}");
            for host in ["evil.example", "evil.example", "library.example.evil.example", ""] {
                assert!(!is_answered(&endpoint, connection, host), "connection {number}: {host}");
            }
        }
    }
}

#[test]
fn a_long_host_is_not_cached() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    let mut connection = ConnectionContext::new(Peer::default());
    for host in ["localhost:80", &format!("localhost:{}80", "0".repeat(8_000))] {
        assert!(is_answered(&endpoint, &mut connection, host));
        assert!(connection.host.capacity() <= super::MAX_CACHED_HOST, "{}", connection.host.capacity());
    }
}

#[test]
fn an_unfinished_head_does_not_go_to_hyper() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    let mut connection = ConnectionContext::new(Peer::default());
    let fields = "a: b\r\n".repeat(90);
    for (fields, incomplete) in [
        (format!("a: {}", "b".repeat(15_000)), true),
        (format!("a: {}", "b".repeat(17_000)), false),
        (fields.clone(), true),
        (fields + "\r\n", false),
    ] {
        let head = format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\n{fields}");
        let parsed = endpoint.parse_input(&mut connection, head.as_bytes());
        assert_eq!(matches!(parsed, Parsed::Incomplete), incomplete, "{} bytes", head.len());
    }
}

#[test]
fn an_unknown_header_field_is_not_ignored() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    let with = |field: &str| {
        is_answered_with(
            &endpoint,
            &mut ConnectionContext::new(Peer::default()),
            "localhost",
            &format!("{field}\r\n"),
        )
    };
    assert!(with("User-Agent: test"));
    assert!(with("accept-language: *"));
    for field in ["Authorization: Bearer x", "Cookie: a=b", "X-Api-Key: x", "X-Anything: x", "Origin: null"] {
        assert!(!with(field), "{field}");
    }
}

/// A complete HTTP request.
struct TestRequest<'a> {
    line: &'a str,
    /// Header lines, without `Content-Length`.
    fields: &'a str,
    length: Option<String>,
    body: String,
}

const BODY: &str = r#"{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// The header lines that a request on the express lane needs, except `Content-Length`.
const FIELDS: &str = "host: localhost\r\ncontent-type: application/json\r\n\
    accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
    mcp-method: resources/list\r\n";

impl TestRequest<'_> {
    /// A request that the express lane answers from the cache.
    fn usual() -> Self {
        let length = Some(BODY.len().to_string());
        TestRequest { line: "POST /mcp HTTP/1.1", fields: FIELDS, length, body: BODY.to_owned() }
    }

    /// The same request with spaces at the end of the body, which then has `size` bytes.
    fn padded(self, size: usize) -> Self {
        let body = format!("{BODY}{}", " ".repeat(size - BODY.len()));
        Self { length: Some(size.to_string()), body, ..self }
    }

    fn bytes(&self) -> Vec<u8> {
        let length = self.length.as_ref().map(|length| format!("content-length: {length}\r\n"));
        let Self { line, fields, body, .. } = self;
        format!("{line}\r\n{fields}{}\r\n{body}", length.unwrap_or_default()).into_bytes()
    }
}

/// The result of parsing these bytes on a new connection, and the size of the request in them.
fn parsed(bytes: &[u8]) -> (&'static str, Option<usize>) {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    match endpoint.parse_input(&mut ConnectionContext::new(Peer::default()), bytes) {
        Parsed::Cached(size, _) => ("cached", Some(size)),
        Parsed::Handled(size, _) => ("handled", Some(size)),
        Parsed::ThroughHyper(size) => ("through hyper", Some(size)),
        Parsed::Incomplete => ("incomplete", None),
        Parsed::Unframed => ("unframed", None),
    }
}

#[test]
fn every_request_goes_through_hyper_if_the_lane_is_switched_off() {
    let config = Config { express: false, ..Config::default() };
    let endpoint = Endpoint::new(Arc::new(Empty), config);
    let bytes = TestRequest::usual().bytes();
    let input = [&bytes[..], b"POST"].concat();
    let mut connection = ConnectionContext::new(Peer::default());
    let whole = endpoint.parse_input(&mut connection, &input);
    assert!(matches!(whole, Parsed::ThroughHyper(size) if size == bytes.len()));
    let part = endpoint.parse_input(&mut connection, &bytes[..bytes.len() - 1]);
    assert!(matches!(part, Parsed::Incomplete));
}

#[test]
fn repeated_or_unusual_fields_go_through_hyper() {
    for (field, expected) in [
        ("connection: Keep-Alive", "cached"),
        ("mcp-name: a:1", "cached"),
        ("host: localhost", "through hyper"),
        ("Host: localhost", "through hyper"),
        ("content-type: application/json", "through hyper"),
        ("accept: application/json, text/event-stream", "through hyper"),
        ("mcp-method: resources/list", "through hyper"),
        ("mcp-protocol-version: 2026-07-28", "through hyper"),
        ("mcp-name: a:1\r\nMcp-Name: a:1", "through hyper"),
        ("mcp-session-id: 1\r\nMcp-Session-Id: 1", "through hyper"),
        ("mcp-name: a:\u{e4}", "through hyper"),
        ("origin: http://localhost", "through hyper"),
        ("authorization: Bearer x", "through hyper"),
        ("cookie: a=b", "through hyper"),
        ("x-unknown: 1", "through hyper"),
        ("last-event-id: 1", "through hyper"),
        ("expect: 100-continue", "unframed"),
        ("upgrade: h2c", "unframed"),
        ("connection: close", "unframed"),
        ("connection: keep-alive, upgrade", "unframed"),
        ("transfer-encoding: chunked", "unframed"),
        ("transfer-encoding: identity", "unframed"),
        ("content-length: 5", "unframed"),
    ] {
        let fields = format!("{FIELDS}{field}\r\n");
        let request = TestRequest { fields: &fields, ..TestRequest::usual() };
        assert_eq!(parsed(&request.bytes()).0, expected, "{field}");
    }
}

#[test]
fn missing_or_different_fields_go_through_hyper() {
    for (field, other) in [
        ("host: localhost\r\n", ""),
        ("host: localhost\r\n", "host: evil.example\r\n"),
        ("content-type: application/json\r\n", ""),
        ("application/json\r\n", "application/json; charset=utf-8\r\n"),
        ("application/json, text/event-stream", "application/json"),
        ("application/json, text/event-stream", "*/*"),
        ("2026-07-28", "2025-06-18"),
        ("mcp-protocol-version: 2026-07-28\r\n", ""),
        ("resources/list", "resources/read"),
        ("mcp-method: resources/list\r\n", ""),
    ] {
        let fields = FIELDS.replace(field, other);
        assert_ne!(fields, FIELDS);
        let bytes = TestRequest { fields: &fields, ..TestRequest::usual() }.bytes();
        assert_eq!(parsed(&bytes), ("through hyper", Some(bytes.len())), "{field:?} to {other:?}");
    }
    for (line, expected) in [
        ("POST /mcp HTTP/1.1", "cached"),
        ("PUT /mcp HTTP/1.1", "through hyper"),
        ("POST /mcp/ HTTP/1.1", "through hyper"),
        ("POST /mcp?x HTTP/1.1", "through hyper"),
        ("POST http://localhost/mcp HTTP/1.1", "through hyper"),
        ("POST /mcp HTTP/1.0", "unframed"),
        ("PRI * HTTP/2.0", "unframed"),
    ] {
        assert_eq!(parsed(&TestRequest { line, ..TestRequest::usual() }.bytes()).0, expected, "{line}");
    }
    for (of, other) in [
        (r#""id":1,"#, ""),
        (r#""id":1"#, r#""id":null"#),
        ("}}}", "}}}}"),
        ("resources/list", "resources/nothing"),
    ] {
        let body = BODY.replacen(of, other, 1);
        let length = Some(body.len().to_string());
        let bytes = TestRequest { length, body, ..TestRequest::usual() }.bytes();
        assert_eq!(parsed(&bytes), ("through hyper", Some(bytes.len())), "{other:?}");
    }
}

#[test]
fn a_plain_content_length_determines_the_end_of_a_request() {
    let size = BODY.len();
    for (length, expected) in [
        (format!("{size}"), "cached"),
        (format!("{size:08}"), "cached"),
        (format!("{size:09}"), "unframed"),
        (format!("+{size}"), "unframed"),
        (format!("-{size}"), "unframed"),
        (format!("{size}, {size}"), "unframed"),
        (format!("0x{size:x}"), "unframed"),
        (format!("{}", size + 1), "incomplete"),
        (format!("{}", size - 1), "through hyper"),
        ("0".to_owned(), "through hyper"),
        (String::new(), "unframed"),
    ] {
        let bytes = TestRequest { length: Some(length.clone()), ..TestRequest::usual() }.bytes();
        assert_eq!(parsed(&bytes).0, expected, "{length}");
    }
    // Without a length there is no body.
    let head = TestRequest { length: None, body: String::new(), ..TestRequest::usual() }.bytes();
    let all = TestRequest { length: None, ..TestRequest::usual() }.bytes();
    assert_eq!(parsed(&all), ("through hyper", Some(head.len())));
}

#[test]
fn pipelined_input_is_not_part_of_the_request_before_it() {
    let (usual, other) = (
        TestRequest::usual().bytes(),
        TestRequest { line: "PUT /mcp HTTP/1.1", ..TestRequest::usual() }.bytes(),
    );
    for following in [&b"P"[..], b"\r\n", &usual, &other] {
        assert_eq!(parsed(&[&usual[..], following].concat()), ("cached", Some(usual.len())));
        assert_eq!(parsed(&[&other[..], following].concat()), ("through hyper", Some(other.len())));
    }
    assert_eq!(parsed(&usual[..usual.len() - 1]), ("incomplete", None));
}

#[test]
fn large_requests_go_to_hyper() {
    let head = TestRequest::usual().padded(10_000).bytes().len() - 10_000;
    for (size, expected) in [(super::MAX_MESSAGE, "cached"), (super::MAX_MESSAGE + 1, "unframed")] {
        let bytes = TestRequest::usual().padded(size - head).bytes();
        assert_eq!((bytes.len(), parsed(&bytes).0), (size, expected));
        assert_eq!(parsed(&bytes[..super::MAX_WITH_UNFINISHED_BODY]).0, "unframed", "{size}, unfinished");
    }
    let bytes = TestRequest::usual().padded(10_000).bytes();
    assert_eq!(parsed(&bytes[..super::MAX_WITH_UNFINISHED_BODY - 1]).0, "incomplete");
    assert_eq!(parsed(&bytes[..super::MAX_WITH_UNFINISHED_BODY]).0, "unframed");
}

#[test]
fn a_request_with_too_many_fields_goes_to_hyper_once_its_head_is_complete() {
    let many = "dnt: 1\r\n".repeat(super::MAX_FIELDS);
    for end in ["\r\n\r\n", "\n\n"] {
        let head = format!("POST /mcp HTTP/1.1\r\n{many}host: localhost{end}");
        assert_eq!(parsed(head.as_bytes()).0, "unframed", "{end:?}");
        assert_eq!(parsed(&head.as_bytes()[..head.len() - 1]).0, "incomplete", "{end:?}");
    }
    let endless = format!("POST /mcp HTTP/1.1\r\n{}", "dnt: 1\r\n".repeat(super::MAX_HEAD / 8));
    assert!(endless.len() >= super::MAX_HEAD);
    assert_eq!(parsed(endless.as_bytes()).0, "unframed");
    assert_eq!(parsed(&endless.as_bytes()[..super::MAX_HEAD - 1]).0, "incomplete");
}

#[test]
fn a_request_with_a_large_head_goes_to_hyper_even_if_it_arrives_at_once() {
    let usual = TestRequest::usual().bytes();
    let first_line = usual.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let body = usual.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let name = "traceparent: ";
    for (head, expected) in [(super::MAX_HEAD - 1, "cached"), (super::MAX_HEAD, "unframed")] {
        let value = "0".repeat(head - body - name.len() - 2);
        let field = format!("{name}{value}\r\n");
        let bytes = [&usual[..first_line], field.as_bytes(), &usual[first_line..]].concat();
        assert_eq!(parsed(&bytes).0, expected, "{head}");
    }
}

#[test]
fn a_large_response_is_not_copied_into_one_buffer() {
    for (size, is_copied) in [(super::MAX_MESSAGE, true), (super::MAX_MESSAGE + 1, false)] {
        let framed = Framed::whole("x".repeat(size));
        let response = super::response(&framed);
        assert_eq!(response.is_some(), is_copied, "{size}");
    }
}

#[test]
fn the_date_header_has_the_current_second() {
    let start = UNIX_EPOCH + Duration::from_secs(1_784_548_800);
    for (milliseconds, expected) in [
        (0, "Mon, 20 Jul 2026 12:00:00 GMT"),
        (999, "Mon, 20 Jul 2026 12:00:00 GMT"),
        (1_000, "Mon, 20 Jul 2026 12:00:01 GMT"),
        (86_401_000, "Tue, 21 Jul 2026 12:00:01 GMT"),
        (0, "Mon, 20 Jul 2026 12:00:00 GMT"),
    ] {
        let date = super::date_at(start + Duration::from_millis(milliseconds));
        assert_eq!(String::from_utf8_lossy(&date), expected);
    }
}
