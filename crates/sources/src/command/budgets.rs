//! The limits on concurrent processes, waiting runs and memory that all commands share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libris_core::{Budget, Error, Lease, Result};
use tokio::time::timeout;

/// The maximum number of concurrent processes of all commands.
pub(super) const MAX_PROCESSES: usize = 256;

/// The maximum number of runs that wait for a permit, and the time-out of this wait. The configured `timeout` of a
/// program is separate: it counts from the start of the process.
const MAX_QUEUED_RUNS: usize = 1024;
const QUEUE_TIMEOUT: Duration = Duration::from_secs(60);

/// The memory for the output of completion programs, in bytes.
const COMPLETION_MEMORY_BYTES: usize = 16 << 20;

/// The budgets that all commands of a configuration share; each client has a share of them.
pub(super) struct CommandBudgets {
    /// Concurrent processes.
    pub(super) processes: Arc<Budget>,
    /// The memory for the output of completion programs.
    pub(super) completion_memory: Arc<Budget>,
    /// Runs that wait for a permit.
    pub(super) queue: Arc<Budget>,
}

impl Default for CommandBudgets {
    fn default() -> Self {
        Self {
            processes: Budget::new(MAX_PROCESSES),
            completion_memory: Budget::new(COMPLETION_MEMORY_BYTES),
            queue: Budget::new(MAX_QUEUED_RUNS),
        }
    }
}

/// The permits of a run, held until all its processes have ended: one from the budget of the command, and one from the
/// budget that all commands share.
pub(super) type RunPermits = [Lease; 2];

pub(super) fn busy() -> Error {
    Error::Unavailable("the command is busy: try again later".into())
}

/// Waits for a permit or for memory, at most [`QUEUE_TIMEOUT`]. After that, the command is busy.
pub(super) async fn with_queue_timeout<T>(waiting: impl Future<Output = Option<T>>) -> Result<T> {
    timeout(QUEUE_TIMEOUT, waiting).await.ok().flatten().ok_or_else(busy)
}

/// The expected size of an output in bytes, from previous runs. A run reserves that much memory before it starts. A
/// run with a larger output fails if no more memory is available.
#[derive(Default)]
pub(super) struct ExpectedSize(AtomicU64);

impl ExpectedSize {
    /// The smallest reservation. Most outputs are smaller.
    const MIN_RESERVATION_BYTES: u64 = 256 << 10;

    pub(super) fn bytes(&self, limit: u64) -> u64 {
        self.0.load(Ordering::Relaxed).max(Self::MIN_RESERVATION_BYTES).min(limit)
    }

    /// Records how many bytes of memory an output needed. The expectation grows immediately, and shrinks by at most an
    /// eighth per run.
    pub(super) fn update(&self, needed: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(needed.max(before - before / 8), Ordering::Relaxed);
    }
}
