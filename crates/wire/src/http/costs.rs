//! A test of the memory that the default limits allow: it fails if somebody raises a limit on connections, sessions,
//! streams or requests without accounting for the memory.

use super::Config;
use super::serve::CONNECTION_WINDOW;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

// Resident memory per item, measured with 2,000 items in a release build and rounded up.

/// A stream of `subscriptions/listen` takes 10.5 KiB including its connection, a stream of a session 5.3 KiB.
const EVENT_STREAM: usize = 11 * KIB;
const CONNECTION: usize = 5 * KIB;
const SESSION: usize = 4 * KIB;
const REQUEST: usize = 32 * KIB;

// Resident memory per item, measured with 380 connections instead of 2,000.

const HTTP_2_CONNECTION: usize = 35 * KIB;
/// An unfinished request head.
const HTTP_2_HEAD: usize = 92 * KIB;
const HTTP_2_STREAM: usize = 13 * KIB;

#[test]
fn limits_on_numbers_bound_the_memory() {
    let Config { connections, sessions, event_streams, requests, http2_connections, http2_streams, .. } =
        Config::default();
    assert!(connections * CONNECTION <= 100 * MIB);
    assert!(sessions * SESSION <= 48 * MIB);
    assert!(event_streams * EVENT_STREAM <= 164 * MIB);
    assert!(requests * REQUEST <= 64 * MIB);
    let input = CONNECTION_WINDOW as usize + HTTP_2_HEAD;
    assert!(http2_connections * (HTTP_2_CONNECTION + input) <= 64 * MIB);
    assert!(http2_streams * HTTP_2_STREAM <= 64 * MIB);
}
