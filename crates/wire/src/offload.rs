//! Runs CPU-bound work on large messages without blocking the other tasks of a worker thread, on at most half of the
//! processors.

use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use libris_core::{Budget, Client};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Work on fewer bytes is done in place: parsing this many takes about a tenth of a millisecond.
const MIN_OFFLOADED: usize = 256 << 10;

/// One unit for every second processor, at least one: the other processors are left to small requests. Waiting clients
/// are served in turn. The number of waiters needs no limit, because a memory budget bounds the messages they wait with.
static PROCESSORS: LazyLock<Arc<Budget>> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, |processors| (processors.get() / 2).max(1));
    Budget::with_waiters(processors, usize::MAX)
});

/// Does CPU-bound work on this many bytes for a client. Work on `MIN_OFFLOADED` bytes or more, in a runtime with worker
/// threads, first waits for a unit of `PROCESSORS`. It then runs within `block_in_place`: the runtime moves the other
/// tasks of this worker thread to another thread.
pub(crate) async fn off_worker<T>(client: Client, bytes: usize, work: impl FnOnce() -> T) -> T {
    let has_workers =
        || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes < MIN_OFFLOADED || !has_workers() {
        return work();
    }
    let _processor = PROCESSORS.take(client, 1).await;
    tokio::task::block_in_place(work)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::{Client, MIN_OFFLOADED, PROCESSORS, off_worker};

    /// Work that ends once another task of the only worker thread has run.
    async fn waits_for_another_task(bytes: usize) -> bool {
        let (sender, receiver) = std::sync::mpsc::channel();
        tokio::spawn(async move { sender.send(()) });
        let work = move || receiver.recv_timeout(Duration::from_millis(500)).is_ok();
        off_worker(Client::default(), bytes, work).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_while_a_large_message_is_parsed() {
        assert!(tokio::spawn(waits_for_another_task(MIN_OFFLOADED)).await.unwrap());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_small_message_is_parsed_in_place() {
        assert!(!tokio::spawn(waits_for_another_task(MIN_OFFLOADED - 1)).await.unwrap());
    }

    #[tokio::test]
    async fn a_runtime_without_workers_parses_in_place() {
        assert_eq!(off_worker(Client::default(), MIN_OFFLOADED, || 1).await, 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn large_messages_take_half_of_the_processors() {
        static WORKING: AtomicUsize = AtomicUsize::new(0);
        let processors = std::thread::available_parallelism().unwrap().get();
        let work = || {
            let working = WORKING.fetch_add(1, Ordering::SeqCst) + 1;
            // Long enough for other work to begin meanwhile, if the budget allowed it.
            std::thread::sleep(Duration::from_millis(20));
            WORKING.fetch_sub(1, Ordering::SeqCst);
            working
        };
        let tasks = (0..processors + 4).map(|number| {
            let client = Client::at([127, 0, 0, number as u8].into());
            tokio::spawn(off_worker(client, MIN_OFFLOADED, work))
        });
        for task in tasks.collect::<Vec<_>>() {
            assert!(task.await.unwrap() <= (processors / 2).max(1));
        }
        // Small messages need no unit.
        let _all = PROCESSORS.take(Client::default(), usize::MAX).await;
        assert_eq!(off_worker(Client::default(), MIN_OFFLOADED - 1, || 1).await, 1);
    }
}
