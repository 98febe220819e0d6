//! Liveness of a connection: detects clients that send no requests or read no responses.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::handover::Handed;
use super::stream::Stream;
use crate::lock::lock;
use crate::unsent::Recipient;

/// The interval of liveness checks. No clock is read in between: activity is recorded as the number of the check.
pub(super) const LOOK: Duration = Duration::from_secs(15);

/// After how many checks a client must have sent its first request.
const SILENT: u32 = 2;

/// For how many checks a client may read nothing of a response body, or send no request. The keep-alive comments of
/// an event stream are far more frequent.
pub(super) const STILL: u32 = 4;

/// The activity of one connection, and the signals that close it.
#[derive(Default)]
pub(super) struct Pulse {
    /// Whether a request has arrived.
    any: AtomicBool,
    /// How many requests have gone through hyper, how many of them have a response body, and how many of these bodies
    /// were written whole or dropped.
    asked: AtomicU32,
    begun: AtomicU32,
    ended: AtomicU32,
    looks: AtomicU32,
    /// The number of the check before the last activity.
    moved: AtomicU32,
    /// Response bytes written to the socket.
    taken: AtomicU64,
    /// Notified when the connection is evicted, or when the server shuts down.
    closing: Notify,
    /// Whether the server is shutting down.
    stopping: AtomicBool,
    /// The streams of an HTTP/2 connection.
    streams: Mutex<Vec<Watched>>,
    /// The number of the last request that hyper got while it was idle, so that it has nothing to write before the
    /// response.
    alone: AtomicU32,
    /// An event stream to send without hyper.
    handed: Mutex<Option<Box<Handed>>>,
}

/// An HTTP/2 stream whose client may stop reading the response.
struct Watched {
    stream: Weak<Stream>,
    taken: u64,
    /// The number of the last check at which the client had read something, or had nothing to read.
    moved: u32,
}

impl Watched {
    /// The stream, if its client has read nothing for too long.
    fn stalled(&mut self, looks: u32) -> Option<Arc<Stream>> {
        let stream = self.stream.upgrade()?;
        let taken = stream.taken();
        if taken != self.taken || !stream.is_unsent() {
            // The activity was some time after the last check.
            (self.taken, self.moved) = (taken, looks.saturating_sub(1));
        }
        (looks.saturating_sub(self.moved) > STILL).then_some(stream)
    }
}

impl Pulse {
    /// Records a request that goes through hyper, and returns its number.
    pub(super) fn asked(&self) -> u32 {
        let number = self.asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.served();
        number
    }

    /// Records that hyper gets the next request while it is idle.
    pub(super) fn next_is_alone(&self) {
        self.alone.store(self.asked_so_far().wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether hyper was idle when it got this request, so that it has nothing to write before the response.
    pub(super) fn is_alone(&self, number: u32) -> bool {
        self.alone.load(Ordering::Relaxed) == number
    }

    /// Hands an event stream over, to be sent without hyper.
    pub(super) fn hand_over(&self, handed: Handed) {
        *lock(&self.handed) = Some(Box::new(handed));
    }

    /// Takes the event stream that is to be sent without hyper.
    pub(super) fn take_handed(&self) -> Option<Box<Handed>> {
        lock(&self.handed).take()
    }

    /// Records a request.
    pub(super) fn served(&self) {
        self.any.store(true, Ordering::Relaxed);
        self.moved();
    }

    /// Records the start of a response body.
    pub(super) fn begin(&self) {
        self.moved();
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Records activity.
    pub(super) fn moved(&self) {
        self.moved.store(self.looks.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Records that a response body was written whole or dropped.
    pub(super) fn end(&self) {
        self.moved();
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Records bytes written to the socket.
    pub(super) fn sent(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        self.moved();
    }

    /// Whether no request has arrived yet.
    pub(super) fn is_unused(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Whether no response is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.load(Ordering::Relaxed) == self.ended.load(Ordering::Relaxed)
    }

    /// Closes this HTTP/2 stream if it stalls.
    pub(super) fn watch(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        // The list holds at most twice as many entries as there are streams, so the cost of pruning is constant per
        // stream.
        if streams.len() == streams.capacity() {
            streams.retain(|watched| watched.stream.strong_count() > 0);
        }
        let moved = self.looks.load(Ordering::Relaxed);
        streams.push(Watched { stream: Arc::downgrade(stream), taken: 0, moved });
    }

    /// The number of HTTP/2 streams with response bytes that the client has not read.
    pub(super) fn unsent_streams(&self) -> usize {
        let streams = lock(&self.streams);
        streams.iter().filter(|watched| watched.stream.upgrade().is_some_and(|it| it.is_unsent())).count()
    }

    /// The number of requests that have gone through hyper.
    pub(super) fn asked_so_far(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
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
    pub(super) async fn closed(&self) {
        self.closing.notified().await;
    }

    /// The number of response bodies that were written whole or dropped.
    pub(super) fn bodies_ended(&self) -> u32 {
        self.ended.load(Ordering::Relaxed)
    }

    /// One liveness check: closes stalled HTTP/2 streams, and returns the reason to close the connection, if any.
    pub(super) fn stopped(&self) -> Option<&'static str> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let stalled: Vec<_> = {
            let mut streams = lock(&self.streams);
            streams.retain(|watched| watched.stream.strong_count() > 0);
            streams.iter_mut().filter_map(|watched| watched.stalled(looks)).collect()
        };
        // Not under the lock: dropping a stream may drop a part of this connection.
        stalled.iter().for_each(|stream| stream.close());
        if !self.any.load(Ordering::Relaxed) {
            return (looks > SILENT).then_some("the client sent no request");
        }
        if looks.saturating_sub(self.moved.load(Ordering::Relaxed)) <= STILL {
            return None;
        }
        let [asked, begun, ended] =
            [&self.asked, &self.begun, &self.ended].map(|count| count.load(Ordering::Relaxed));
        match (asked == begun, begun == ended) {
            (_, false) => Some("the client takes nothing"),
            // The client waits for a response.
            (false, true) => None,
            (true, true) => Some("the client asks nothing"),
        }
    }
}

impl Recipient for Pulse {
    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.closing.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{Pulse, SILENT, STILL};

    /// The number of checks after which the connection is closed.
    fn looks(pulse: &Pulse) -> u32 {
        (1..100).find(|_| pulse.stopped().is_some()).unwrap_or(100)
    }

    #[test]
    fn who_asks_nothing_is_let_go() {
        assert_eq!(looks(&Pulse::default()), SILENT + 1);
        let pulse = Pulse::default();
        pulse.served();
        assert_eq!(looks(&pulse), STILL + 1);
    }

    #[test]
    fn who_waits_is_kept_and_who_takes_nothing_is_let_go() {
        let pulse = Pulse::default();
        pulse.asked();
        assert_eq!(looks(&pulse), 100);
        pulse.begin();
        assert_eq!(looks(&pulse), STILL + 1);
        pulse.moved();
        assert_eq!(looks(&pulse), STILL + 1);
        pulse.end();
        assert_eq!(pulse.bodies_ended(), 1);
        assert_eq!(looks(&pulse), STILL + 1);
    }
}
