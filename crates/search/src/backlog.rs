//! Backpressure: limits the text that waits for the thread of tantivy's writer, whose queue is limited only by the number
//! of resources.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The bytes of waiting text above which [`Backlog::add`] waits. As the queue has the text of each section twice, once to
/// tokenise it and once to store it, it uses about twice as much memory.
const MAX_BYTES: usize = 2 << 20;

/// How long [`Backlog::add`] waits for the writer, so that a thread that has failed does not stop the caller for ever. A
/// writer that is only slow, as on a busy disk, goes on with a longer queue.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The bytes of text that were sent to the writer and are not tokenised yet.
#[derive(Default)]
pub(crate) struct Backlog {
    bytes: Mutex<usize>,
    drained: Condvar,
}

impl Backlog {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts text that is about to be sent. If too much is waiting, first waits until half of it is tokenised.
    pub(crate) fn add(&self, bytes: usize) {
        let mut waiting = self.lock();
        if *waiting > MAX_BYTES {
            let wait =
                self.drained.wait_timeout_while(waiting, LONGEST_WAIT, |waiting| *waiting > MAX_BYTES / 2);
            (waiting, _) = wait.unwrap_or_else(PoisonError::into_inner);
        }
        *waiting += bytes;
    }

    /// Uncounts text that is being tokenised.
    pub(crate) fn remove(&self, bytes: usize) {
        let mut waiting = self.lock();
        let was_high = *waiting > MAX_BYTES / 2;
        *waiting = waiting.saturating_sub(bytes);
        if was_high && *waiting <= MAX_BYTES / 2 {
            self.drained.notify_all();
        }
    }

    /// Uncounts all text: the queue is empty, or its writer is gone.
    pub(crate) fn clear(&self) {
        *self.lock() = 0;
        self.drained.notify_all();
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        *self.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::{Backlog, LONGEST_WAIT, MAX_BYTES};

    #[test]
    fn adding_waits_until_half_is_tokenised() {
        let backlog = Arc::new(Backlog::default());
        backlog.add(MAX_BYTES);
        backlog.add(1);
        let (added, is_added) = channel();
        let adding = backlog.clone();
        let thread = std::thread::spawn(move || {
            adding.add(1);
            added.send(()).unwrap();
        });
        let waits = is_added.recv_timeout(LONGEST_WAIT / 20);
        assert_eq!(waits, Err(RecvTimeoutError::Timeout), "it waits");
        backlog.remove(MAX_BYTES / 2 + 1);
        is_added.recv_timeout(LONGEST_WAIT / 2).expect("it goes on");
        thread.join().unwrap();
        assert_eq!(backlog.bytes(), MAX_BYTES / 2 + 1);
    }

    #[test]
    fn a_writer_that_failed_does_not_stop_the_caller() {
        let backlog = Backlog::default();
        backlog.add(2 * MAX_BYTES);
        backlog.add(1);
        assert!(backlog.bytes() > 2 * MAX_BYTES);
        backlog.clear();
        assert_eq!(backlog.bytes(), 0);
    }
}
