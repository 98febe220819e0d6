//! CPU-bound work on large messages without blocking the other tasks of a worker thread.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Parsing this many bytes takes about a tenth of a millisecond.
const MIN_OFFLOADED: usize = 256 << 10;

/// Does CPU-bound work on this many bytes. If they are many, the runtime first moves the other tasks of this worker
/// thread to another thread.
pub(crate) fn off_worker<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let has_workers =
        || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    match bytes >= MIN_OFFLOADED && has_workers() {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MIN_OFFLOADED, off_worker};

    /// Work that ends once another task of the only worker thread has run.
    fn waits_for_another_task(bytes: usize) -> bool {
        let (sender, receiver) = std::sync::mpsc::channel();
        tokio::spawn(async move { sender.send(()) });
        off_worker(bytes, || receiver.recv_timeout(Duration::from_millis(500)).is_ok())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_while_a_large_message_is_parsed() {
        assert!(tokio::spawn(async { waits_for_another_task(MIN_OFFLOADED) }).await.unwrap());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_small_message_is_parsed_in_place() {
        assert!(!tokio::spawn(async { waits_for_another_task(MIN_OFFLOADED - 1) }).await.unwrap());
    }

    #[tokio::test]
    async fn a_runtime_without_workers_parses_in_place() {
        assert_eq!(off_worker(MIN_OFFLOADED, || 1), 1);
    }
}
