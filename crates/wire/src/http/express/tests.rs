//! Tests of which requests go the short way.

use super::{Endpoint, Origin, Peer, Verdict};
use crate::empty::Empty;
use crate::http::Config;
use std::sync::Arc;

/// Whether a request that names this host is answered beside hyper.
fn is_answered(endpoint: &Arc<Endpoint>, origin: &mut Origin, host: &str) -> bool {
    is_answered_with(endpoint, origin, host, "")
}

/// The same with another header field, as a whole line.
fn is_answered_with(endpoint: &Arc<Endpoint>, origin: &mut Origin, host: &str, field: &str) -> bool {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: resources/list\r\n{field}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    match endpoint.express(origin, request.as_bytes()) {
        Verdict::Answered(size, _) => size == request.len(),
        Verdict::Long(_) => false,
        _ => panic!("{host}: the end of the request is told"),
    }
}

#[test]
fn each_connection_may_name_each_host_that_is_served() {
    let config = Config { hosts: vec!["library.example".into()], ..Config::default() };
    let endpoint = Endpoint::new(Arc::new(Empty), config);
    let mut connections = [(); 3].map(|()| Origin::new(Peer::default()));
    let served = ["127.0.0.1:8080", "localhost", "library.example", "[::1]:80"];
    for round in 0..8 {
        for (number, origin) in connections.iter_mut().enumerate() {
            // Each begins with another one, and each changes.
            let host = served[(round + number) % served.len()];
            assert!(is_answered(&endpoint, origin, host), "connection {number}, round {round}: {host}");
            assert!(is_answered(&endpoint, origin, host), "connection {number}, again: {host}");
            for host in ["evil.example", "library.example.evil.example", ""] {
                assert!(!is_answered(&endpoint, origin, host), "connection {number}: {host}");
            }
        }
    }
}

#[test]
fn a_long_host_is_not_remembered() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    let mut origin = Origin::new(Peer::default());
    for host in ["localhost:80", &format!("localhost:{}80", "0".repeat(8_000))] {
        assert!(is_answered(&endpoint, &mut origin, host));
        assert!(origin.host.capacity() <= super::LONGEST_HOST, "{}", origin.host.capacity());
    }
}

#[test]
fn an_unfinished_head_does_not_go_to_hyper() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    let mut origin = Origin::new(Peer::default());
    let fields = "a: b\r\n".repeat(90);
    for (fields, begun) in [
        (format!("a: {}", "b".repeat(15_000)), true),
        (format!("a: {}", "b".repeat(17_000)), false),
        (fields.clone(), true),
        (fields + "\r\n", false),
    ] {
        let head = format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\n{fields}");
        let verdict = endpoint.express(&mut origin, head.as_bytes());
        assert_eq!(matches!(verdict, Verdict::Begun), begun, "{} bytes", head.len());
    }
}

#[test]
fn a_header_field_that_could_mean_something_is_not_ignored() {
    let endpoint = Endpoint::new(Arc::new(Empty), Config::default());
    let with = |field: &str| {
        is_answered_with(&endpoint, &mut Origin::new(Peer::default()), "localhost", &format!("{field}\r\n"))
    };
    assert!(with("User-Agent: test"));
    assert!(with("accept-language: *"));
    for field in ["Authorization: Bearer x", "Cookie: a=b", "X-Api-Key: x", "X-Anything: x", "Origin: null"] {
        assert!(!with(field), "{field}");
    }
}
