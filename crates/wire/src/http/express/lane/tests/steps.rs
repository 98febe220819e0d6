//! Tests that poll a connection step by step, in place of hyper or of the task that serves the connection.

use std::future::pending;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::Response;
use hyper::rt::{Read as _, ReadBuf, Write as _};
use libris_core::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::advance;

use super::super::{HALF_CLOSED_TIME_LIMIT, HYPER_HEAD_MEMORY, Hyper, Lane, READ_SIZE};
use super::{connect, usual};
use crate::content_budget::{ContentLease, Recipient as _};
use crate::empty::Empty;
use crate::http::body::Body;
use crate::http::express::direct_response::DirectResponse;
use crate::http::express::{DetachedStream, Framing};
use crate::http::{Config, Endpoint};

/// A whole request that goes through hyper.
const LONG: &[u8] = b"PUT /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// The head of a request whose end only hyper can determine.
const CHUNKED: &[u8] = b"PUT /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";

/// More bytes than the kernel's socket buffers hold.
const UNSENDABLE: usize = 32 << 20;

fn endpoint() -> Arc<Endpoint> {
    Endpoint::new(Arc::new(Empty), Config::default())
}

/// An endpoint with so many connections that idle ones drop hyper's connection objects, and these connections.
fn crowded() -> (Arc<Endpoint>, impl Sized) {
    let endpoint = Endpoint::new(Arc::new(Empty), Config { connections: 8, ..Config::default() });
    let crowd: Vec<_> = (0..5).map(|_| endpoint.connections.accept([127, 0, 0, 1].into())).collect();
    (endpoint, crowd)
}

/// Polls one read by hyper. Returns the bytes that hyper gets.
fn read(lane: &mut Lane) -> Poll<io::Result<Vec<u8>>> {
    let mut bytes = vec![0; 16 << 10];
    let mut buffer = ReadBuf::new(&mut bytes);
    let mut context = Context::from_waker(Waker::noop());
    let polled = Pin::new(lane).poll_read(&mut context, buffer.unfilled());
    polled.map_ok(|()| buffer.filled().to_vec())
}

/// Polls the connection once without hyper. Ready if there is input for hyper, or if the connection has ended.
fn step(lane: &mut Lane) -> Poll<io::Result<()>> {
    lane.poll_input_for_hyper(&mut Context::from_waker(Waker::noop()), None)
}

/// Calls `work` until it returns a value.
async fn repeat<T>(mut work: impl FnMut() -> Option<T>) -> T {
    for _ in 0..100_000 {
        if let Some(value) = work() {
            return value;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never happens");
}

/// Waits until there is input for hyper or the connection has ended.
async fn run_until_ready(lane: &mut Lane) {
    repeat(|| ready(step(lane))).await;
}

/// Waits until hyper has read something, or the end of the input.
async fn read_some(lane: &mut Lane) -> Vec<u8> {
    repeat(|| ready(read(lane))).await
}

fn ready<T>(polled: Poll<io::Result<T>>) -> Option<T> {
    match polled {
        Poll::Ready(result) => Some(result.unwrap()),
        Poll::Pending => None,
    }
}

/// A waker that records whether it was used.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Simulates that hyper has parsed a request and written the response. Returns whether the lane wakes hyper.
fn answered_by_hyper(lane: &mut Lane) -> bool {
    lane.liveness.begin_request();
    lane.liveness.begin_body();
    lane.liveness.end_body();
    let woken = Arc::<Woken>::default();
    let flushed = Pin::new(lane).poll_flush(&mut Context::from_waker(&woken.clone().into()));
    assert!(flushed.is_ready());
    woken.0.load(Ordering::SeqCst)
}

/// Makes the lane wait for a response that is never created.
fn never_answer(lane: &mut Lane) {
    lane.response = Some(Box::new(DirectResponse::new(Box::pin(pending()), lane.liveness.clone())));
}

/// Polls a shutdown by hyper once. Returns whether it is complete.
fn shuts_down(lane: &mut Lane) -> bool {
    let polled = Pin::new(lane).poll_shutdown(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(())))
}

/// Reserves all memory for unsent responses.
fn reserve_all(endpoint: &Endpoint) -> Vec<ContentLease> {
    let mut leases = Vec::new();
    for size in [1, 1 << 20, usize::MAX] {
        for last in 10..20 {
            let client = Client::at([127, 0, 0, last].into());
            while let Some(lease) = endpoint.content_budget.try_take(client, size.max(64 << 10)) {
                leases.push(lease);
            }
        }
    }
    leases
}

/// A connection with a response that does not fit into the socket buffers.
async fn stalled(endpoint: &Arc<Endpoint>) -> (Lane, TcpStream) {
    let (mut lane, client) = connect(endpoint).await;
    lane.unsent = Bytes::from(vec![b'x'; UNSENDABLE]);
    (lane, client)
}

#[tokio::test(start_paused = true)]
async fn after_a_half_close_each_request_has_its_own_deadline() {
    let (mut lane, mut client) = connect(&endpoint()).await;
    client.write_all(&[LONG, LONG].concat()).await.unwrap();
    client.shutdown().await.unwrap();
    run_until_ready(&mut lane).await;
    assert_eq!(read_some(&mut lane).await, LONG);
    repeat(|| {
        assert!(read(&mut lane).is_pending());
        lane.half_closed.is_some().then_some(())
    })
    .await;
    advance(HALF_CLOSED_TIME_LIMIT * 2).await;
    assert!(read(&mut lane).is_pending(), "the lane abandoned the second request");
    answered_by_hyper(&mut lane);
    assert_eq!(read_some(&mut lane).await, LONG);
    advance(HALF_CLOSED_TIME_LIMIT * 2 / 3).await;
    assert!(read(&mut lane).is_pending(), "the second request has the deadline of the first");
    advance(HALF_CLOSED_TIME_LIMIT).await;
    assert_eq!(read_some(&mut lane).await, b"");
}

#[tokio::test(start_paused = true)]
async fn after_the_deadline_hyper_does_not_wait_for_the_response() {
    let (mut lane, mut client) = connect(&endpoint()).await;
    never_answer(&mut lane);
    client.shutdown().await.unwrap();
    repeat(|| {
        assert!(read(&mut lane).is_pending());
        lane.half_closed.is_some().then_some(())
    })
    .await;
    assert!(!shuts_down(&mut lane));
    advance(HALF_CLOSED_TIME_LIMIT - Duration::from_millis(1)).await;
    assert!(read(&mut lane).is_pending());
    advance(Duration::from_millis(2)).await;
    assert_eq!(read_some(&mut lane).await, b"");
    assert!(shuts_down(&mut lane));
}

#[tokio::test]
async fn input_in_hyper_counts_until_hyper_has_parsed_it() {
    let endpoint = endpoint();
    let (mut lane, mut client) = connect(&endpoint).await;
    client.write_all(CHUNKED).await.unwrap();
    run_until_ready(&mut lane).await;
    assert!(lane.liveness.hyper_was_idle_before(1));
    assert_eq!(read_some(&mut lane).await, CHUNKED);
    assert_eq!(lane.input.capacity(), 0);
    assert!(read(&mut lane).is_pending());
    assert_eq!((lane.hyper, endpoint.input_budget.used()), (Hyper::OwnsConnection, HYPER_HEAD_MEMORY));
    // Hyper has parsed the request and not answered it.
    lane.liveness.begin_request();
    assert!(read(&mut lane).is_pending());
    assert_eq!(endpoint.input_budget.used(), 0);
    // Hyper reads ahead while the response is outstanding.
    client.write_all(b"0\r\n\r\n").await.unwrap();
    read_some(&mut lane).await;
    assert!(read(&mut lane).is_pending());
    assert_eq!(endpoint.input_budget.used(), 0);
    // Hyper has answered, and gets the start of the next request.
    lane.liveness.end_body();
    client.write_all(b"PUT").await.unwrap();
    read_some(&mut lane).await;
    assert!(read(&mut lane).is_pending());
    assert_eq!(endpoint.input_budget.used(), HYPER_HEAD_MEMORY);
    // Hyper has parsed and answered that request.
    lane.liveness.begin_request();
    lane.liveness.end_body();
    assert!(read(&mut lane).is_pending());
    assert_eq!(endpoint.input_budget.used(), 0);
}

#[tokio::test]
async fn a_complete_request_that_goes_to_hyper_does_not_count_as_unfinished() {
    let endpoint = endpoint();
    let (mut lane, mut client) = connect(&endpoint).await;
    client.write_all(&LONG[..20]).await.unwrap();
    repeat(|| {
        assert!(step(&mut lane).is_pending());
        (endpoint.input_budget.used() == 20).then_some(())
    })
    .await;
    client.write_all(&LONG[20..]).await.unwrap();
    run_until_ready(&mut lane).await;
    assert_eq!(endpoint.input_budget.used(), 0);
    assert_eq!(read_some(&mut lane).await, LONG);
    assert!(read(&mut lane).is_pending());
    assert_eq!(endpoint.input_budget.used(), 0);
}

#[tokio::test]
async fn pipelined_input_behind_an_outstanding_response_is_bounded() {
    for in_hyper in [false, true] {
        let (mut lane, mut client) = connect(&endpoint()).await;
        if in_hyper {
            client.write_all(LONG).await.unwrap();
            run_until_ready(&mut lane).await;
            assert_eq!(read_some(&mut lane).await, LONG);
        } else {
            never_answer(&mut lane);
        }
        client.write_all(&vec![b'x'; 6 * READ_SIZE]).await.unwrap();
        repeat(|| {
            assert!(read(&mut lane).is_pending());
            (lane.input.len() >= READ_SIZE).then_some(())
        })
        .await;
        for _ in 0..20 {
            assert!(read(&mut lane).is_pending());
            tokio::task::yield_now().await;
        }
        assert!(lane.input.len() < 4 * READ_SIZE, "{} bytes, in hyper: {in_hyper}", lane.input.len());
    }
}

#[tokio::test]
async fn hyper_is_not_detached_while_it_owns_the_connection() {
    let (endpoint, _crowd) = crowded();
    let (mut lane, mut client) = connect(&endpoint).await;
    client.write_all(CHUNKED).await.unwrap();
    run_until_ready(&mut lane).await;
    assert_eq!(read_some(&mut lane).await, CHUNKED);
    answered_by_hyper(&mut lane);
    assert!(read(&mut lane).is_pending());
    assert!(!lane.take_detached_flag());
}

#[tokio::test]
async fn the_start_of_a_request_is_not_lost_when_hyper_ends() {
    let (endpoint, _crowd) = crowded();
    let (mut lane, mut client) = connect(&endpoint).await;
    let usual = usual();
    let (first, rest) = usual.as_bytes().split_at(50);
    client.write_all(&[LONG, first].concat()).await.unwrap();
    run_until_ready(&mut lane).await;
    assert_eq!(read_some(&mut lane).await, LONG);
    assert!(read(&mut lane).is_pending());
    answered_by_hyper(&mut lane);
    assert_eq!(read_some(&mut lane).await, b"");
    assert!(shuts_down(&mut lane) && lane.take_detached_flag());
    assert_eq!(lane.input, first);
    client.write_all(rest).await.unwrap();
    assert!(super::answered(&mut lane, &mut client).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn with_few_connections_hyper_stays() {
    let (mut lane, mut client) = connect(&endpoint()).await;
    client.write_all(LONG).await.unwrap();
    run_until_ready(&mut lane).await;
    assert_eq!(read_some(&mut lane).await, LONG);
    answered_by_hyper(&mut lane);
    assert_eq!(lane.hyper, Hyper::Idle);
    assert!(read(&mut lane).is_pending());
    assert!(!lane.take_detached_flag());
}

#[tokio::test]
async fn an_idle_connection_ends_when_the_server_shuts_down() {
    let (mut lane, _client) = connect(&endpoint()).await;
    assert!(step(&mut lane).is_pending());
    lane.liveness.stop();
    assert!(step(&mut lane).is_ready());
    assert!(lane.without_hyper().await.unwrap().is_none());
}

#[tokio::test]
async fn a_response_counts_from_the_first_blocked_write_to_the_last_byte() {
    let endpoint = endpoint();
    let (mut lane, mut client) = stalled(&endpoint).await;
    assert!(step(&mut lane).is_pending());
    let (unsent, reserved, taken) =
        (lane.unsent.len(), endpoint.content_budget.used(), lane.liveness.bytes_sent());
    assert_eq!(reserved, unsent);
    let reading = tokio::spawn(async move {
        let mut received = vec![0; UNSENDABLE];
        client.read_exact(&mut received).await.unwrap();
        assert!(received.iter().all(|byte| *byte == b'x'));
        client
    });
    repeat(|| {
        assert!(step(&mut lane).is_pending());
        assert_eq!(endpoint.content_budget.used() > 0, !lane.unsent.is_empty());
        lane.unsent.is_empty().then_some(())
    })
    .await;
    reading.await.unwrap();
    assert_eq!(endpoint.content_budget.used(), 0);
    assert_eq!((lane.liveness.bytes_sent() - taken) as usize, unsent);
}

#[tokio::test(start_paused = true)]
async fn a_response_without_memory_closes_slow_connections_and_its_own() {
    let endpoint = endpoint();
    let (mut slow, _unread) = stalled(&endpoint).await;
    assert!(step(&mut slow).is_pending());
    let leases = reserve_all(&endpoint);
    let is_closed = |lane: &Lane| lane.liveness.close_requested().now_or_never().is_some();
    let mut refused = Vec::new();
    for seconds in [2, 13] {
        assert!(!is_closed(&slow));
        advance(Duration::from_secs(seconds)).await;
        let (mut lane, client) = stalled(&endpoint).await;
        let Poll::Ready(Err(error)) = read(&mut lane) else { panic!("it is served without memory") };
        assert_eq!(error.to_string(), "too many responses are waiting for the client to read them");
        refused.push((lane, client));
    }
    assert!(is_closed(&slow));
    // Hyper shuts down at once, although there is memory again.
    drop((slow, leases));
    for (lane, _) in &mut refused {
        assert!(shuts_down(lane));
    }
    assert_eq!(endpoint.content_budget.used(), 0);
}

#[tokio::test]
async fn a_shutdown_by_hyper_waits_for_a_response_of_the_lane() {
    let (mut lane, mut client) = stalled(&endpoint()).await;
    assert!(!shuts_down(&mut lane));
    let reading = tokio::spawn(async move {
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.unwrap();
        all.len()
    });
    repeat(|| shuts_down(&mut lane).then_some(())).await;
    assert_eq!(reading.await.unwrap(), UNSENDABLE);
}

#[tokio::test]
async fn after_a_response_hyper_is_woken_if_there_is_input() {
    for (case, expected) in [("nothing", false), ("input", true), ("half-closed", true), ("crowded", true)] {
        let (endpoint, _crowd) = crowded();
        let endpoint = if case == "crowded" { endpoint } else { self::endpoint() };
        let (mut lane, mut client) = connect(&endpoint).await;
        client.write_all(LONG).await.unwrap();
        if case == "input" {
            client.write_all(LONG).await.unwrap();
        } else if case == "half-closed" {
            client.shutdown().await.unwrap();
        }
        run_until_ready(&mut lane).await;
        assert_eq!(read_some(&mut lane).await, LONG);
        assert!(lane.liveness.hyper_was_idle_before(1));
        repeat(|| {
            assert!(read(&mut lane).is_pending());
            (lane.half_closed.is_some() || case != "half-closed").then_some(())
        })
        .await;
        assert_eq!(answered_by_hyper(&mut lane), expected, "{case}");
        assert_eq!(lane.hyper, Hyper::Idle);
    }
}

#[tokio::test]
async fn bytes_that_hyper_writes_are_counted() {
    let (mut lane, mut client) = connect(&endpoint()).await;
    let mut context = Context::from_waker(Waker::noop());
    assert!(lane.is_write_vectored());
    let written = repeat(|| ready(Pin::new(&mut lane).poll_write(&mut context, b"one"))).await;
    assert_eq!(written, 3);
    assert_eq!(lane.liveness.bytes_sent(), 3);
    let slices = [IoSlice::new(b"tw"), IoSlice::new(b"o")];
    let written = repeat(|| ready(Pin::new(&mut lane).poll_write_vectored(&mut context, &slices))).await;
    assert_eq!(written, 3);
    assert_eq!(lane.liveness.bytes_sent(), 6);
    let mut received = [0; 6];
    client.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"onetwo");
}

#[tokio::test]
async fn an_event_stream_is_taken_over_with_the_input_behind_it() {
    for (last, closing) in [(false, false), (true, false), (false, true)] {
        let endpoint = endpoint();
        let (mut lane, mut client) = connect(&endpoint).await;
        client.write_all(&[LONG, b"PUT"].concat()).await.unwrap();
        run_until_ready(&mut lane).await;
        lane.liveness.begin_request();
        if closing {
            endpoint.closing.cancel();
        }
        (lane.hyper, lane.parsing) = (Hyper::OwnsConnection, Some(0));
        let framing = Framing { chunked: true, last };
        let response = Response::new(Body::empty());
        lane.take_over(b"GET ", DetachedStream { response, framing });
        assert!(lane.take_detached_flag());
        assert_eq!((lane.hyper, lane.bytes_for_hyper(), lane.parsing), (Hyper::Idle, 0, None));
        assert_eq!(lane.input, [&b"GET "[..], LONG, b"PUT"].concat());
        lane.input.truncate(3);
        let ends = repeat(|| {
            let ends = ready(step(&mut lane)).is_some();
            (ends || lane.response.is_none()).then_some(ends)
        })
        .await;
        assert_eq!(ends, last, "the connection ends after its last response");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert_eq!(head.contains("connection: close"), last || closing, "{head}");
        // If hyper has read nothing ahead, the input in the lane stays unchanged.
        let response = Response::new(Body::empty());
        lane.take_over(b"", DetachedStream { response, framing });
        assert_eq!(lane.input, &b"GET"[..]);
    }
}
