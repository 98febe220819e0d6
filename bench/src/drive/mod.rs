//! Load generation, and the CPU time that requests cost the server.
//!
//! The client is one thread that does little work: it sends prepared bytes and checks the status and length of
//! responses. Their content is checked once, before the measurement.

pub(crate) mod http;
pub(crate) mod stdio;

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::{self, Computing};
use crate::statistics::percentile;

/// The time-out of a response.
const PATIENCE: Duration = Duration::from_secs(20);

/// The size of the receive buffer.
const CHUNK: usize = 256 << 10;

/// When a slice ends: after a number of requests or a duration, whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) requests: usize,
    pub(crate) time: Duration,
}

/// Hooks around the requests of a connection.
pub(crate) trait Beside {
    /// Called before a connection sends a request.
    fn before(&mut self, connection: usize) -> Result<()>;
    /// Called after a response; `start` is the beginning of its body.
    fn after(&mut self, connection: usize, start: &[u8]) -> Result<()>;
}

/// No hooks.
pub(crate) struct Nothing;

impl Beside for Nothing {
    fn before(&mut self, _connection: usize) -> Result<()> {
        Ok(())
    }

    fn after(&mut self, _connection: usize, _start: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// The measurements of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) requests: usize,
    time: Duration,
    computing: Duration,
    pub(crate) memory: u64,
    /// The latency of each response, in microseconds.
    latencies: Vec<f64>,
}

impl Slice {
    /// Requests a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.time.as_secs_f64()
    }

    /// The server's CPU time per request, in microseconds.
    pub(crate) fn cost(&self) -> f64 {
        self.computing.as_secs_f64() * 1e6 / self.requests as f64
    }

    /// A percentile of the latencies, in microseconds.
    pub(crate) fn latency(&self, share: f64) -> f64 {
        percentile(&self.latencies, share)
    }
}

/// A slice in progress.
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

    /// Whether another request may be sent.
    fn more(&mut self, now: Instant) -> bool {
        let more = self.sent < self.bounds.requests && now - self.begun < self.bounds.time;
        self.sent += usize::from(more);
        more
    }

    fn answered(&mut self, took: Duration) {
        self.latencies.push(took.as_secs_f64() * 1e6);
    }

    /// Whether all requests were answered.
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
