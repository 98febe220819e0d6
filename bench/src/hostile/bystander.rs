//! A bystander: a client that sends requests at a steady rate during an attack and measures their latency.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;
use serde_json::json;

use super::priority;
use crate::http::Connection;
use crate::mcp::Era;
use crate::statistics::{median, percentile};

/// The time between two requests of a bystander.
const PACE: Duration = Duration::from_millis(5);

/// The number of reads between two pings.
const READS_PER_PING: usize = 4;

/// The time-out of a bystander's request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The resource that a bystander reads.
pub(super) const SMALL: &str = "file:///calm/small.txt";

/// A phase of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Before,
    /// Of most attacks, the whole attack; of one that takes what it can get and holds it, the time until it holds it.
    During,
    /// The attacker holds what it has got, and asks for nothing more. Most attacks do not have this phase.
    Held,
    After,
}

impl Phase {
    /// All phases, in order.
    pub(super) const ALL: [Self; 4] = [Self::Before, Self::During, Self::Held, Self::After];
}

/// The value of [`Clock`] after the last phase.
const OVER: u8 = 4;

/// The current phase, shared by all threads.
#[derive(Default)]
pub(super) struct Clock(AtomicU8);

impl Clock {
    /// The current phase; `None` after the last one.
    pub(super) fn phase(&self) -> Option<Phase> {
        Phase::ALL.get(usize::from(self.0.load(Ordering::Relaxed))).copied()
    }

    pub(super) fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    pub(super) fn stop(&self) {
        self.0.store(OVER, Ordering::Relaxed);
    }
}

/// The latency of a response in milliseconds, and the latencies of the requests that it delayed, as if they had been
/// sent on schedule. This corrects for coordinated omission.
pub(super) fn held_up(time: Duration, pace: Duration) -> impl Iterator<Item = f64> {
    let rest = move |left: &Duration| left.checked_sub(pace).filter(|rest| !rest.is_zero());
    std::iter::successors(Some(time), rest).map(|time| time.as_secs_f64() * 1e3)
}

/// The measurements of a bystander in one phase.
#[derive(Default)]
pub(super) struct Experience {
    /// The latencies in milliseconds, by the second in which the request was sent; see [`held_up`].
    seconds: BTreeMap<u64, Vec<f64>>,
    /// How many requests were refused, failed or were not answered in time.
    pub(super) errors: usize,
}

impl Experience {
    fn add(&mut self, second: u64, time: Duration) {
        self.seconds.entry(second).or_default().extend(held_up(time, PACE));
    }

    /// The median over all seconds of the percentile in each second; `None` if there are no latencies. A virtual machine
    /// occasionally pauses for some milliseconds, which would distort the p99 of a whole phase, whatever the server does.
    pub(super) fn percentile(&self, share: f64) -> Option<f64> {
        let has_any = !self.seconds.is_empty();
        has_any.then(|| median(self.seconds.values().map(|times| percentile(times, share))))
    }
}

/// The measurements of each phase, in order.
pub(super) type Experiences = [Experience; Phase::ALL.len()];

/// Starts a bystander on a separate thread, so that the attack does not delay it.
pub(super) fn start(address: SocketAddr, from: IpAddr, clock: Arc<Clock>) -> Result<JoinHandle<Experiences>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let read = Era::Modern.posted(address, None, &Era::Modern.read(SMALL));
    // 2026-07-28 has no `ping`.
    let ping = Era::Modern.posted(address, None, &Era::Modern.request("server/discover", json!({})));
    priority::usual(move || {
        std::thread::spawn(move || {
            let started = Instant::now();
            let mut experiences = Experiences::default();
            let mut connection = None;
            let mut asked = 0;
            while let Some(phase) = clock.phase() {
                let request = if asked % (READS_PER_PING + 1) == READS_PER_PING { &ping } else { &read };
                asked += 1;
                let begun = Instant::now();
                let asking = async {
                    if connection.is_none() {
                        connection = Some(Connection::open_from(address, from).await?);
                    }
                    let connection: &mut Connection = connection.as_mut().context("no connection")?;
                    let answer = connection.ask(request).await?;
                    ensure!(memmem::find(answer, b"\"result\":{").is_some(), "an answer without a result");
                    Ok(())
                };
                // `timeout` must be called within the runtime, whose timer it uses.
                let answered = runtime.block_on(async { tokio::time::timeout(PATIENCE, asking).await });
                let experience = &mut experiences[phase as usize];
                experience.add((begun - started).as_secs(), begun.elapsed());
                if !matches!(answered, Ok(Ok(()))) {
                    experience.errors += 1;
                    connection = None;
                }
                std::thread::sleep(PACE.saturating_sub(begun.elapsed()));
            }
            experiences
        })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Experience;

    #[test]
    fn a_long_wait_counts_for_each_request_that_it_delayed() {
        let mut experience = Experience::default();
        experience.add(0, Duration::from_millis(1));
        experience.add(0, Duration::from_millis(12));
        assert_eq!(experience.seconds[&0], [1.0, 12.0, 7.0, 2.0]);
        assert_eq!(experience.percentile(1.0), Some(12.0));
    }

    #[test]
    fn one_bad_second_of_three_does_not_count() {
        let mut experience = Experience::default();
        for (second, time) in [(0, 1), (1, 900), (2, 2)] {
            experience.add(second, Duration::from_millis(time));
        }
        assert_eq!(experience.percentile(0.99), Some(2.0));
        assert_eq!(Experience::default().percentile(0.99), None);
    }
}
