//! Many requests in a short while, and what they cost the server.
//!
//! The client is one thread that does as little as it can: it sends bytes that stand ready, and of an
//! answer it looks at the status and the length. What the answer holds is looked at before.

pub(crate) mod http;
pub(crate) mod stdio;

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::{self, Computing};
use crate::statistics::percentile;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much is received at once at most.
const CHUNK: usize = 256 << 10;

/// When a slice ends: after so many requests or so long, whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) requests: usize,
    pub(crate) time: Duration,
}

/// What happens beside the requests of one connection after the other.
pub(crate) trait Beside {
    /// Before a connection asks.
    fn before(&mut self, connection: usize) -> Result<()>;
    /// When it was answered; `start` is how the body of the answer begins.
    fn after(&mut self, connection: usize, start: &[u8]) -> Result<()>;
}

/// Nothing happens.
pub(crate) struct Nothing;

impl Beside for Nothing {
    fn before(&mut self, _connection: usize) -> Result<()> {
        Ok(())
    }

    fn after(&mut self, _connection: usize, _start: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// What happened in a slice of time.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) requests: usize,
    time: Duration,
    computing: Duration,
    pub(crate) memory: u64,
    /// How long each answer took, in microseconds.
    latencies: Vec<f64>,
}

impl Slice {
    /// Requests a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.time.as_secs_f64()
    }

    /// How long the server computed for one request, in microseconds.
    pub(crate) fn cost(&self) -> f64 {
        self.computing.as_secs_f64() * 1e6 / self.requests as f64
    }

    /// How long this share of the answers took at most, in microseconds.
    pub(crate) fn latency(&self, share: f64) -> f64 {
        percentile(&self.latencies, share)
    }
}

/// A slice that is going on.
struct Clock {
    server: u32,
    before: Computing,
    begun: Instant,
    bounds: Bounds,
    sent: usize,
    latencies: Vec<f64>,
}

impl Clock {
    fn start(server: u32, bounds: Bounds) -> Result<Self> {
        let latencies = Vec::with_capacity(bounds.requests.min(1 << 16));
        Ok(Self { server, before: Computing::of(server)?, begun: Instant::now(), bounds, sent: 0, latencies })
    }

    /// Whether one more request may be sent.
    fn more(&mut self, now: Instant) -> bool {
        let more = self.sent < self.bounds.requests && now - self.begun < self.bounds.time;
        self.sent += usize::from(more);
        more
    }

    fn answered(&mut self, took: Duration) {
        self.latencies.push(took.as_secs_f64() * 1e6);
    }

    /// Whether everything that was sent was answered.
    fn done(&self) -> bool {
        self.latencies.len() == self.sent
    }

    fn stop(self) -> Result<Slice> {
        let time = self.begun.elapsed();
        let computing = Computing::of(self.server)?.since(&self.before);
        let memory = process::memory(self.server)?;
        Ok(Slice { requests: self.latencies.len(), time, computing, memory, latencies: self.latencies })
    }
}
