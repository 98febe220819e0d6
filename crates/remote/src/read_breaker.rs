//! The circuit breaker for reads: while a server leaves reads unanswered, they fail at once instead of after the timeout.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::fault::RemoteFault;

/// The number of consecutive reads that must time out before the breaker opens.
const THRESHOLD: u32 = 3;

/// The longest pause between two probes.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Counts consecutive reads that timed out. From [`THRESHOLD`] on, the breaker is open: only one read after each pause
/// is sent to the server, as a probe. Any outcome of a read other than a time-out closes the breaker.
pub(crate) struct ReadBreaker {
    /// The pause before the first probe; it doubles with each probe that fails.
    first_pause: Duration,
    /// How long a probe may take.
    timeout: Duration,
    state: Mutex<BreakerState>,
}

struct BreakerState {
    timeouts: u32,
    pause: Duration,
    /// If the breaker is open: when the next probe may start.
    probe_at: Instant,
}

/// A read that the breaker admitted.
#[must_use]
pub(crate) struct AdmittedRead {
    is_probe: bool,
}

impl ReadBreaker {
    pub(crate) fn new(first_pause: Duration, timeout: Duration) -> Self {
        let state = BreakerState { timeouts: 0, pause: first_pause, probe_at: Instant::now() };
        Self { first_pause, timeout, state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a read, unless the breaker is open and no probe is due.
    pub(crate) fn admit(&self) -> Result<AdmittedRead, RemoteFault> {
        let mut state = self.state();
        if state.timeouts < THRESHOLD {
            return Ok(AdmittedRead { is_probe: false });
        }
        let now = Instant::now();
        if now < state.probe_at {
            return Err(RemoteFault::Unresponsive(state.timeouts));
        }
        // Other reads fail at once while the probe is in progress. If the caller gives the probe up, another one may
        // start at this time.
        state.probe_at = now + self.timeout;
        Ok(AdmittedRead { is_probe: true })
    }

    /// Records the outcome of a read.
    pub(crate) fn record<T>(&self, read: AdmittedRead, outcome: &Result<T, RemoteFault>) {
        let mut state = self.state();
        if !matches!(outcome, Err(RemoteFault::Silent(_))) {
            (state.timeouts, state.pause) = (0, self.first_pause);
            return;
        }
        let was_open = state.timeouts >= THRESHOLD;
        state.timeouts = state.timeouts.saturating_add(1);
        // Reads that were sent before the breaker opened do not delay the probe.
        if state.timeouts >= THRESHOLD && (read.is_probe || !was_open) {
            state.probe_at = Instant::now() + state.pause;
            state.pause = (state.pause * 2).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::{LONGEST_PAUSE, ReadBreaker, THRESHOLD};
    use crate::fault::RemoteFault;

    const FIRST: Duration = Duration::from_secs(1);
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn time_out(breaker: &ReadBreaker) {
        let read = breaker.admit().expect("the read is admitted");
        breaker.record::<()>(read, &Err(RemoteFault::Silent(TIMEOUT)));
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_consecutive_timeouts_and_closes_after_an_answer() {
        let breaker = ReadBreaker::new(FIRST, TIMEOUT);
        for _ in 0..3 {
            (1..THRESHOLD).for_each(|_| time_out(&breaker));
            // An error is an answer, too.
            let refused = RemoteFault::Refused { code: -32002, message: "not found".into() };
            let read = breaker.admit().unwrap();
            breaker.record::<()>(read, &Err(refused));
        }
        (0..THRESHOLD).for_each(|_| time_out(&breaker));
        assert_eq!(breaker.admit().err(), Some(RemoteFault::Unresponsive(THRESHOLD)));
        advance(FIRST).await;
        let probe = breaker.admit().expect("a probe is due");
        assert!(breaker.admit().is_err(), "one probe at a time");
        breaker.record(probe, &Ok(()));
        for _ in 1..THRESHOLD {
            time_out(&breaker);
        }
        assert!(breaker.admit().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_and_reads_sent_before_do_not_extend_them() {
        let breaker = ReadBreaker::new(FIRST, TIMEOUT);
        let early: Vec<_> = (0..20).map(|_| breaker.admit().unwrap()).collect();
        early.into_iter().for_each(|read| breaker.record::<()>(read, &Err(RemoteFault::Silent(TIMEOUT))));
        let mut pause = FIRST;
        for _ in 0..8 {
            advance(pause - Duration::from_millis(1)).await;
            assert!(breaker.admit().is_err(), "{pause:?}");
            advance(Duration::from_millis(1)).await;
            time_out(&breaker);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // A probe that its caller gives up.
        advance(pause).await;
        drop(breaker.admit().unwrap());
        advance(TIMEOUT).await;
        assert!(breaker.admit().is_ok());
    }
}
