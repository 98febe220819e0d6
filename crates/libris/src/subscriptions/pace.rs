//! Slows down clients that subscribe in a loop.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use libris_wire::Failure;
use tokio::time::Instant;

use super::budget::BudgetOwner;
use crate::lock::lock;

/// How many requests to subscribe a client may send at once. So many are allowed because a client that reconnects
/// subscribes to everything again.
const BURST: u32 = 2_000;

/// The refill interval of the token bucket: after the burst, one request per interval.
const INTERVAL: Duration = Duration::from_millis(50);

/// The longest delay of a request. A request that would be delayed longer is refused, after this delay.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// The maximum number of clients whose requests are counted. When it is reached, clients whose buckets are full are
/// forgotten.
const MAX_CLIENTS: usize = 32_768;

/// The rate limit for requests to subscribe: for each client a token bucket, whose state is the time when the bucket is
/// full again.
#[derive(Default)]
pub(super) struct SubscribePace {
    full_at: Mutex<HashMap<BudgetOwner, Instant>>,
}

impl SubscribePace {
    /// Delays a request of a client that subscribes too fast.
    pub(super) async fn wait(&self, client: BudgetOwner) -> Result<(), Failure> {
        let delay = self.count(client, Instant::now());
        if delay > Duration::ZERO {
            tokio::time::sleep(delay.min(MAX_DELAY)).await;
        }
        if delay > MAX_DELAY {
            let message = "too many subscriptions in a short time; try again later".to_owned();
            return Err(Failure::Busy { message });
        }
        Ok(())
    }

    /// Counts a request, unless it would be delayed for too long. Returns its delay.
    fn count(&self, client: BudgetOwner, now: Instant) -> Duration {
        let mut full_at = lock(&self.full_at);
        let full_at_before = full_at.get(&client).copied().unwrap_or(now).max(now);
        let full_at_after = full_at_before + INTERVAL;
        let delay = full_at_after.saturating_duration_since(now + BURST * INTERVAL);
        if delay > MAX_DELAY {
            return delay;
        }
        if full_at.len() >= MAX_CLIENTS && !full_at.contains_key(&client) {
            full_at.retain(|_, full_at| *full_at > now);
            if full_at.len() >= MAX_CLIENTS {
                // So many clients at once are a flood. Forgetting them gives each a new burst, but bounds the memory.
                full_at.clear();
            }
        }
        full_at.insert(client, full_at_after);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, INTERVAL, MAX_CLIENTS, MAX_DELAY, SubscribePace};
    use crate::lock::lock;
    use crate::subscriptions::budget::BudgetOwner;
    use std::time::Duration;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_slowed_and_others_are_not() {
        let pace = SubscribePace::default();
        let (looping, other) = (BudgetOwner::Listener(1), BudgetOwner::Listener(2));
        let began = Instant::now();
        for _ in 0..BURST {
            pace.wait(looping).await.unwrap();
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        // Nine minutes of a loop, one request after the other.
        let mut sent = 0;
        while began.elapsed() < Duration::from_secs(9 * 60) {
            pace.wait(looping).await.unwrap();
            sent += 1;
        }
        assert!(sent <= 9 * 60 * 20 + 1, "{sent}");
        let now = Instant::now();
        pace.wait(other).await.unwrap();
        assert_eq!(now.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_the_rate_and_are_refused_in_the_end() {
        let pace = SubscribePace::default();
        let looping = BudgetOwner::Listener(1);
        let waiting = (MAX_DELAY.as_millis() / INTERVAL.as_millis()) as u32;
        let all = futures_util::future::join_all((0..BURST + 2 * waiting).map(|_| pace.wait(looping))).await;
        assert_eq!(all.iter().filter(|outcome| outcome.is_err()).count() as u32, waiting);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_clients_is_bounded() {
        let pace = SubscribePace::default();
        for number in 0..2 * MAX_CLIENTS as u64 {
            pace.wait(BudgetOwner::Listener(number)).await.unwrap();
        }
        assert!(lock(&pace.full_at).len() <= MAX_CLIENTS);
    }
}
