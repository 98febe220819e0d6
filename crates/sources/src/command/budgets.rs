//! The limits on concurrent processes, waiting runs and memory that all commands share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libris_core::{Budget, Error, Lease, Result};
use tokio::time::timeout;

/// The most processes that all commands together run at once.
pub(super) const PROCESSES: usize = 256;

/// How many runs of all commands may wait for their turn, and for how long one does. What the program itself may take
/// begins with its start.
const QUEUE: usize = 1024;
const QUEUED: Duration = Duration::from_secs(60);

/// The most bytes that may be taken at once of what programs print to complete something.
const VALUES: usize = 16 << 20;

/// What all commands of a configuration share, each client within its share.
pub(super) struct CommandBudgets {
    pub(super) processes: Arc<Budget>,
    pub(super) values: Arc<Budget>,
    pub(super) queue: Arc<Budget>,
}

impl Default for CommandBudgets {
    fn default() -> Self {
        Self { processes: Budget::new(PROCESSES), values: Budget::new(VALUES), queue: Budget::new(QUEUE) }
    }
}

/// The right to run a command, held until no process of it is left: one of its own turns, and one of all processes.
pub(super) type RunPermits = [Lease; 2];

pub(super) fn busy() -> Error {
    Error::Unavailable("the command is busy: try again later".into())
}

/// What is waited for in a queue, for as long as a run waits there.
pub(super) async fn within_queue<T>(waiting: impl Future<Output = Option<T>>) -> Result<T> {
    timeout(QUEUED, waiting).await.ok().flatten().ok_or_else(busy)
}

/// How large outputs are, as far as the last ones tell. A run reserves that much before it starts, and waits for it; one
/// that needs more when it runs fails where there is no memory.
#[derive(Default)]
pub(super) struct ExpectedSize(AtomicU64);

impl ExpectedSize {
    /// What a run begins with, at least. Most outputs are smaller.
    const LEAST: u64 = 256 << 10;

    pub(super) fn bytes(&self, limit: u64) -> u64 {
        self.0.load(Ordering::Relaxed).max(Self::LEAST).min(limit)
    }

    /// Notes what a run needed. After large outputs, small ones bring it down slowly.
    pub(super) fn update(&self, needed: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(needed.max(before - before / 8), Ordering::Relaxed);
    }
}
