//! Sends requests of one kind at a steady rate during an attack, and measures their latency.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::bystander::held_up;
use super::client::{Client, Tally};
use crate::statistics::percentile;
use crate::table::shown;

/// The time-out of a probe's request.
const PATIENCE: Duration = Duration::from_secs(30);

/// When the probe is stopped, a request that has waited at least this long counts as unanswered.
const LATE: Duration = Duration::from_secs(1);

/// Sends requests at a steady rate until it is stopped.
pub(super) struct Probe {
    stop: watch::Sender<bool>,
    task: JoinHandle<Series>,
}

/// The latencies and kinds of the responses.
#[derive(Default)]
pub(super) struct Series {
    /// The latencies in milliseconds; see [`held_up`].
    times: Vec<f64>,
    kinds: Tally,
}

impl Probe {
    /// Starts to send requests from the address `from`. `request` returns the request with this number.
    pub(super) fn start(
        address: SocketAddr,
        from: IpAddr,
        pace: Duration,
        request: impl Fn(usize) -> Vec<u8> + Send + 'static,
    ) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut series = Series::default();
            let mut client = None;
            for number in 0.. {
                let request = request(number);
                let begun = Instant::now();
                let asking = async {
                    if client.is_none() {
                        client = Some(Client::open(address, from).await?);
                    }
                    match &mut client {
                        Some(client) => Ok(client.ask(&request).await?.kind()),
                        None => Ok::<_, anyhow::Error>("closed".to_owned()),
                    }
                };
                let (kind, over) = tokio::select! {
                    asked = tokio::time::timeout(PATIENCE, asking) => match asked {
                        Ok(Ok(kind)) => (kind, false),
                        Ok(Err(_)) => ("closed".to_owned(), false),
                        Err(_) => ("unanswered".to_owned(), false),
                    },
                    _ = stopped.changed() => ("unanswered".to_owned(), true),
                };
                // A request that was just sent says nothing about the server.
                if over && begun.elapsed() < LATE {
                    break;
                }
                if kind == "closed" || kind == "unanswered" {
                    client = None;
                }
                series.times.extend(held_up(begun.elapsed(), pace));
                series.kinds.count(kind);
                if over {
                    break;
                }
                let pause = tokio::time::timeout(pace.saturating_sub(begun.elapsed()), stopped.changed());
                if pause.await.is_ok() {
                    break;
                }
            }
            series
        });
        Self { stop, task }
    }

    pub(super) async fn stop(self) -> Result<Series> {
        self.stop.send_replace(true);
        Ok(self.task.await?)
    }
}

impl Series {
    /// How many requests were answered with a result.
    pub(super) fn good(&self) -> usize {
        self.kinds.of("ok")
    }

    pub(super) fn asked(&self) -> usize {
        self.kinds.total()
    }
}

impl FromIterator<(String, Duration)> for Series {
    fn from_iter<I: IntoIterator<Item = (String, Duration)>>(outcomes: I) -> Self {
        let mut series = Self::default();
        for (kind, time) in outcomes {
            series.kinds.count(kind);
            series.times.push(time.as_secs_f64() * 1e3);
        }
        series
    }
}

impl fmt::Display for Series {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |share| shown(percentile(&self.times, share));
        write!(out, "p50 {} p99 {} ms", at(0.5), at(0.99))?;
        if self.good() < self.asked() { write!(out, " ({})", self.kinds) } else { Ok(()) }
    }
}
