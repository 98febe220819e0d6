//! Whether a connection still lives: a client that sends nothing, or takes nothing, is let go.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a client may take to send its first request.
const SILENT: Duration = Duration::from_secs(30);

/// How long a client may take nothing of a body. A stream of events shows far more often that it lives.
const STUCK: Duration = Duration::from_secs(60);

/// How often to look.
pub(super) const LOOK: Duration = Duration::from_secs(15);

/// The signs of life of one connection.
pub(super) struct Pulse {
    began: Instant,
    asked: AtomicBool,
    /// How many bodies are on their way.
    bodies: AtomicUsize,
    /// When one of them last moved, in milliseconds since the beginning.
    moved: AtomicU64,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            asked: AtomicBool::new(false),
            bodies: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
        }
    }

    /// A request has arrived.
    pub(super) fn asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// A body is on its way.
    pub(super) fn begin(&self) {
        self.moved();
        self.bodies.fetch_add(1, Ordering::Relaxed);
    }

    /// Some of a body was taken.
    pub(super) fn moved(&self) {
        self.moved.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// A body has been taken whole, or given up.
    pub(super) fn end(&self) {
        self.bodies.fetch_sub(1, Ordering::Relaxed);
    }

    /// Why the connection is not worth keeping, if it is not.
    pub(super) fn stopped(&self) -> Option<&'static str> {
        let age = self.began.elapsed();
        if !self.asked.load(Ordering::Relaxed) {
            return (age > SILENT).then_some("the client sent no request");
        }
        let still = age.saturating_sub(Duration::from_millis(self.moved.load(Ordering::Relaxed)));
        (self.bodies.load(Ordering::Relaxed) > 0 && still > STUCK).then_some("the client takes nothing")
    }
}
