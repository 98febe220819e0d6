//! The time of the next attempt to watch a tree that fell back to polling.

use std::time::{Duration, Instant};

/// The pause before the first attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause. Attempts must be rare: a failing one uses up, for a moment, all inotify watches of the user.
const MAX_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Retries with exponential backoff.
pub(in super::super) struct WatchRetry {
    pub(in super::super) at: Instant,
    pause: Duration,
}

impl WatchRetry {
    pub(super) fn new(now: Instant) -> Self {
        Self { at: now + FIRST_PAUSE, pause: FIRST_PAUSE }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.at
    }

    /// Doubles the pause after a failed attempt.
    pub(super) fn failed(&mut self, now: Instant) {
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        self.at = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_PAUSE, MAX_PAUSE, WatchRetry};
    use std::time::Instant;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let now = Instant::now();
        let mut retry = WatchRetry::new(now);
        assert!(!retry.is_due(now));
        assert!(retry.is_due(now + FIRST_PAUSE));
        retry.failed(now);
        assert!(!retry.is_due(now + FIRST_PAUSE));
        assert!(retry.is_due(now + FIRST_PAUSE * 2));
        (0..20).for_each(|_| retry.failed(now));
        assert!(retry.is_due(now + MAX_PAUSE));
    }
}
