//! Liveness of a connection: detects clients that send no requests or read no responses.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::express::DetachedStream;
use super::stream::Stream;
use crate::content_budget::Recipient;
use crate::lock::lock;

/// The interval of liveness checks. No clock is read in between: the time of an activity is recorded as the number of
/// checks before it.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// How many checks may pass before the first request. The next check closes the connection.
const CHECKS_TO_FIRST_REQUEST: u32 = 2;

/// For how many checks a client may read nothing of a response body, or send no request. On an event stream, keep-alive
/// comments count as activity if the client reads them.
pub(super) const CHECKS_WITHOUT_ACTIVITY: u32 = 4;

/// The activity of one connection, and the signals that close it.
#[derive(Default)]
pub(super) struct Liveness {
    /// Whether a request has arrived.
    any_request: AtomicBool,
    /// The number of requests, except those that the express lane answered from the cache.
    requests: AtomicU32,
    /// The number of these requests whose response body exists.
    bodies_begun: AtomicU32,
    /// The number of these bodies that were sent or dropped.
    bodies_ended: AtomicU32,
    /// The number of liveness checks.
    checks: AtomicU32,
    /// The value of `checks` at the last activity.
    last_active: AtomicU32,
    /// Response bytes written to the socket. Of a cached response on the express lane, only the bytes that are written
    /// after the socket was full; over HTTP/2, dropped bytes count too.
    bytes_sent: AtomicU64,
    /// Notified when the connection is evicted, or when the server shuts down.
    closing: Notify,
    /// Whether the server is shutting down.
    stopping: AtomicBool,
    /// The streams of an HTTP/2 connection.
    streams: Mutex<Vec<WatchedStream>>,
    /// The ordinal of the last request that hyper got while it was idle, as returned by `begin_request`. Hyper has
    /// nothing to write before the response to that request, so the express lane may take the response over.
    request_of_idle_hyper: AtomicU32,
    /// An event stream that the express lane takes over from hyper.
    detached: Mutex<Option<Box<DetachedStream>>>,
}

/// An HTTP/2 stream whose client may stop reading the response.
struct WatchedStream {
    stream: Weak<Stream>,
    bytes_sent: u64,
    /// The value of [`Liveness::checks`] when the client had last read something, or had nothing to read.
    last_active: u32,
}

impl WatchedStream {
    /// The stream, if its client has read nothing for too long.
    fn stalled(&mut self, checks: u32) -> Option<Arc<Stream>> {
        let stream = self.stream.upgrade()?;
        let bytes_sent = stream.bytes_sent();
        if bytes_sent != self.bytes_sent || !stream.is_unsent() {
            // The activity was between the previous check and this one.
            (self.bytes_sent, self.last_active) = (bytes_sent, checks.saturating_sub(1));
        }
        (checks.saturating_sub(self.last_active) > CHECKS_WITHOUT_ACTIVITY).then_some(stream)
    }
}

impl Liveness {
    /// Records a request that is not answered from the cache by the express lane, and returns its ordinal: 1 for the
    /// first.
    pub(super) fn begin_request(&self) -> u32 {
        let number = self.requests.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.record_request();
        number
    }

    /// Records that hyper is idle when it gets the next request.
    pub(super) fn record_hyper_idle_before_next_request(&self) {
        self.request_of_idle_hyper.store(self.requests().wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether hyper was idle when it got this request, so that it has nothing to write before the response.
    pub(super) fn hyper_was_idle_before(&self, number: u32) -> bool {
        self.request_of_idle_hyper.load(Ordering::Relaxed) == number
    }

    /// Stores an event stream that the express lane sends instead of hyper.
    pub(super) fn detach_stream(&self, detached: DetachedStream) {
        *lock(&self.detached) = Some(Box::new(detached));
    }

    /// Takes the event stream that the express lane sends instead of hyper, if there is one.
    pub(super) fn take_detached(&self) -> Option<Box<DetachedStream>> {
        lock(&self.detached).take()
    }

    /// Records that a request has arrived, without counting it in [`requests`](Self::requests).
    pub(super) fn record_request(&self) {
        self.any_request.store(true, Ordering::Relaxed);
        self.record_activity();
    }

    /// Records the start of a response body.
    pub(super) fn begin_body(&self) {
        self.record_activity();
        self.bodies_begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Records activity.
    pub(super) fn record_activity(&self) {
        self.last_active.store(self.checks.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Records that a response body was sent or dropped.
    pub(super) fn end_body(&self) {
        self.record_activity();
        self.bodies_ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Records response bytes written to the socket.
    pub(super) fn record_sent(&self, bytes: usize) {
        self.bytes_sent.fetch_add(bytes as u64, Ordering::Relaxed);
        self.record_activity();
    }

    /// Whether no request has arrived yet.
    pub(super) fn is_unused(&self) -> bool {
        !self.any_request.load(Ordering::Relaxed)
    }

    /// Whether no response is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == self.bodies_ended.load(Ordering::Relaxed)
    }

    /// Watches an HTTP/2 stream: [`check`](Self::check) closes it if it stalls.
    pub(super) fn watch_stream(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        // Pruned only when the vector is full, so the cost of pruning is amortized.
        if streams.len() == streams.capacity() {
            streams.retain(|watched| watched.stream.strong_count() > 0);
        }
        let last_active = self.checks.load(Ordering::Relaxed);
        streams.push(WatchedStream { stream: Arc::downgrade(stream), bytes_sent: 0, last_active });
    }

    /// The number of HTTP/2 streams with response bytes that hyper has not sent.
    pub(super) fn unsent_streams(&self) -> usize {
        let streams = lock(&self.streams);
        streams.iter().filter(|watched| watched.stream.upgrade().is_some_and(|it| it.is_unsent())).count()
    }

    /// The number of requests that [`begin_request`](Self::begin_request) has recorded.
    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Starts the graceful shutdown of the connection.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.closing.notify_one();
    }

    /// Whether the server is shutting down.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Completes when the connection is evicted, or when the server shuts down.
    pub(super) async fn close_requested(&self) {
        self.closing.notified().await;
    }

    /// The number of response bodies that were sent or dropped.
    pub(super) fn bodies_ended(&self) -> u32 {
        self.bodies_ended.load(Ordering::Relaxed)
    }

    /// One liveness check: closes stalled HTTP/2 streams, and returns the reason to close the connection, if any.
    pub(super) fn check(&self) -> Option<&'static str> {
        let checks = self.checks.fetch_add(1, Ordering::Relaxed) + 1;
        let stalled: Vec<_> = {
            let mut streams = lock(&self.streams);
            streams.retain(|watched| watched.stream.strong_count() > 0);
            streams.iter_mut().filter_map(|watched| watched.stalled(checks)).collect()
        };
        // Closed after the lock is released, so that no code of other types runs while it is held.
        stalled.iter().for_each(|stream| stream.close());
        if !self.any_request.load(Ordering::Relaxed) {
            return (checks > CHECKS_TO_FIRST_REQUEST).then_some("the client sent no request");
        }
        if checks.saturating_sub(self.last_active.load(Ordering::Relaxed)) <= CHECKS_WITHOUT_ACTIVITY {
            return None;
        }
        let [requests, begun, ended] = [&self.requests, &self.bodies_begun, &self.bodies_ended]
            .map(|count| count.load(Ordering::Relaxed));
        match (requests == begun, begun == ended) {
            (_, false) => Some("the client does not read its response"),
            // A request has no response body yet: the client has nothing to read.
            (false, true) => None,
            (true, true) => Some("the client sent no further request"),
        }
    }
}

impl Recipient for Liveness {
    fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.closing.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECKS_TO_FIRST_REQUEST, CHECKS_WITHOUT_ACTIVITY, Liveness};

    /// The number of checks after which the connection is closed.
    fn checks(liveness: &Liveness) -> u32 {
        (1..100).find(|_| liveness.check().is_some()).unwrap_or(100)
    }

    #[test]
    fn a_connection_without_requests_is_closed() {
        assert_eq!(checks(&Liveness::default()), CHECKS_TO_FIRST_REQUEST + 1);
        let liveness = Liveness::default();
        liveness.record_request();
        assert_eq!(checks(&liveness), CHECKS_WITHOUT_ACTIVITY + 1);
    }

    #[test]
    fn a_client_may_wait_for_a_response_but_must_read_it() {
        let liveness = Liveness::default();
        liveness.begin_request();
        assert_eq!(checks(&liveness), 100);
        liveness.begin_body();
        assert_eq!(checks(&liveness), CHECKS_WITHOUT_ACTIVITY + 1);
        liveness.record_activity();
        assert_eq!(checks(&liveness), CHECKS_WITHOUT_ACTIVITY + 1);
        liveness.end_body();
        assert_eq!(liveness.bodies_ended(), 1);
        assert_eq!(checks(&liveness), CHECKS_WITHOUT_ACTIVITY + 1);
    }
}
