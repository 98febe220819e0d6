//! Whether a connection still lives: a client that sends nothing, or takes nothing, is let go.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::handover::Handed;
use super::stream::Stream;
use crate::lock::lock;
use crate::unsent::Recipient;

/// How often to look. Between two looks no clock is read.
pub(super) const LOOK: Duration = Duration::from_secs(15);

/// After how many looks a client must have sent its first request.
const SILENT: u32 = 2;

/// For how many looks a client may take nothing of a body, or send no request. A stream of events shows far
/// more often that it lives.
pub(super) const STILL: u32 = 4;

/// The signs of life of one connection.
#[derive(Default)]
pub(super) struct Pulse {
    /// Whether there was a request at all.
    any: AtomicBool,
    /// How many requests went the long way, how many of them have come to a body, and how many of those were
    /// taken whole or given up.
    asked: AtomicU32,
    begun: AtomicU32,
    ended: AtomicU32,
    looks: AtomicU32,
    /// How many looks there had been at the last sign of life.
    moved: AtomicU32,
    /// How many bytes of responses the client has taken.
    taken: AtomicU64,
    /// Told when others need what the connection holds, or the server stops.
    closing: Notify,
    /// Whether the server stops.
    stopping: AtomicBool,
    /// The streams of a connection of HTTP/2.
    streams: Mutex<Vec<Watched>>,
    /// Which request hyper got while it had nothing else to do: it has nothing to write before the response.
    alone: AtomicU32,
    /// A response that is to be sent without hyper.
    handed: Mutex<Option<Box<Handed>>>,
}

/// A stream of HTTP/2 whose client may stop taking the response.
struct Watched {
    stream: Weak<Stream>,
    taken: u64,
    /// At which look the client last took something, or had nothing to take.
    moved: u32,
}

impl Watched {
    /// The stream, if its client has taken nothing for too long.
    fn stalled(&mut self, looks: u32) -> Option<Arc<Stream>> {
        let stream = self.stream.upgrade()?;
        let taken = stream.taken();
        if taken != self.taken || !stream.is_unsent() {
            // Some time since the last look.
            (self.taken, self.moved) = (taken, looks.saturating_sub(1));
        }
        (looks.saturating_sub(self.moved) > STILL).then_some(stream)
    }
}

impl Pulse {
    /// A request has arrived that went the long way. Gives its number.
    pub(super) fn asked(&self) -> u32 {
        let number = self.asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.served();
        number
    }

    /// Hyper gets the next request while it has nothing else to do.
    pub(super) fn next_is_alone(&self) {
        self.alone.store(self.asked_so_far().wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether hyper has nothing to write before the response to this request.
    pub(super) fn is_alone(&self, number: u32) -> bool {
        self.alone.load(Ordering::Relaxed) == number
    }

    /// Lets a response be sent without hyper.
    pub(super) fn hand_over(&self, handed: Handed) {
        *lock(&self.handed) = Some(Box::new(handed));
    }

    /// The response that is to be sent without hyper.
    pub(super) fn take_handed(&self) -> Option<Box<Handed>> {
        lock(&self.handed).take()
    }

    /// A request was answered at once.
    pub(super) fn served(&self) {
        self.any.store(true, Ordering::Relaxed);
        self.moved();
    }

    /// A body is on its way.
    pub(super) fn begin(&self) {
        self.moved();
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Some of an answer was taken.
    pub(super) fn moved(&self) {
        self.moved.store(self.looks.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A body has been taken whole, or given up.
    pub(super) fn end(&self) {
        self.moved();
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// The client has taken so many bytes more.
    pub(super) fn sent(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        self.moved();
    }

    /// Whether the client has sent no request yet.
    pub(super) fn is_unused(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Whether the client waits for no response, and takes none.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.load(Ordering::Relaxed) == self.ended.load(Ordering::Relaxed)
    }

    /// Lets this stream of the connection go where it stalls.
    pub(super) fn watch(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        // At most twice as many as there are, so each is passed over a few times in all.
        if streams.len() == streams.capacity() {
            streams.retain(|watched| watched.stream.strong_count() > 0);
        }
        let moved = self.looks.load(Ordering::Relaxed);
        streams.push(Watched { stream: Arc::downgrade(stream), taken: 0, moved });
    }

    /// How many streams of the connection have something that its client has not taken.
    pub(super) fn unsent_streams(&self) -> usize {
        let streams = lock(&self.streams);
        streams.iter().filter(|watched| watched.stream.upgrade().is_some_and(|it| it.is_unsent())).count()
    }

    /// How many requests have gone the long way.
    pub(super) fn asked_so_far(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Tells the connection that the server stops.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.closing.notify_one();
    }

    /// Whether the server stops.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ends when the connection is to be closed because others need what it holds, or because the server stops.
    pub(super) async fn closed(&self) {
        self.closing.notified().await;
    }

    /// How many bodies have been taken whole, or given up.
    pub(super) fn bodies_ended(&self) -> u32 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Looks. Why the connection is not worth keeping, if it is not.
    pub(super) fn stopped(&self) -> Option<&'static str> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let stalled: Vec<_> = {
            let mut streams = lock(&self.streams);
            streams.retain(|watched| watched.stream.strong_count() > 0);
            streams.iter_mut().filter_map(|watched| watched.stalled(looks)).collect()
        };
        // Not under the lock, as what is dropped with a stream may be a part of this connection.
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
            // It waits for an answer.
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

    /// After how many looks it is let go.
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
