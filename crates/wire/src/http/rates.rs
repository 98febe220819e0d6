//! Rate limits: requests and response bytes per minute, for each client and in total.
//!
//! Each rate is a token bucket that holds one minute's worth, implemented with the generic cell rate algorithm (GCRA): the
//! state of a bucket is the time at which it is full again. A full bucket needs no state, so the table contains only
//! clients that were active recently, and its size is limited. Replicas exchange the usage of clients
//! ([`rate_exchange`](super::rate_exchange)).

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libris_core::Client;

use super::session_store::ClientUsage;
use crate::lock::lock;

/// The period to which limits refer.
const PERIOD: Duration = Duration::from_secs(60);

/// The number of tables over which the clients are distributed, each with its own lock.
const SHARDS: usize = 16;

/// The maximum number of clients in one table.
const MAX_CLIENTS: usize = 4_096;

/// The maximum number of clients whose usage is sent in one exchange. The others follow at the next one.
const MAX_EXCHANGED: usize = 4_096;

/// The limits of one client, or of all clients together. [`Config`](super::Config) has the defaults of the numbers of
/// requests, sessions and streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageLimits {
    /// Requests per minute. `None` is no limit; for one client, it is three quarters of the total if that is limited.
    pub requests_per_minute: Option<u64>,
    /// Bytes of responses and of notifications on event streams per minute. The response that exceeds the limit is sent;
    /// the next request is refused. `None` is no limit; for one client, it is three quarters of the total if that is
    /// limited.
    pub bytes_per_minute: Option<u64>,
    /// Requests in progress.
    pub concurrent_requests: Option<usize>,
    /// Open sessions.
    pub sessions: Option<usize>,
    /// Open event streams.
    pub streams: Option<usize>,
}

impl UsageLimits {
    fn has_rate(&self) -> bool {
        self.requests_per_minute.is_some() || self.bytes_per_minute.is_some()
    }

    /// These limits of one client, with three quarters of the total as the limit of each rate that has none, so that no
    /// client can use up a total.
    fn with_shares_of(&self, total: &Self) -> Self {
        let share = |total: Option<u64>| total.map(|total| total - total / 4);
        Self {
            requests_per_minute: self.requests_per_minute.or(share(total.requests_per_minute)),
            bytes_per_minute: self.bytes_per_minute.or(share(total.bytes_per_minute)),
            ..self.clone()
        }
    }
}

/// The rate limits, and the buckets of all clients.
pub(super) struct RateLimiter {
    identity: UsageLimits,
    address: UsageLimits,
    total: UsageLimits,
    began: Instant,
    used_in_total: Mutex<Usage>,
    clients: [Mutex<HashMap<Client, Usage>>; SHARDS],
    hasher: RandomState,
}

/// The buckets of a client, or of all clients together, and the usage that was not yet sent to other replicas.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// When the bucket of requests is full again, as the time since [`RateLimiter::began`].
    requests_full_at: Duration,
    /// The same for the bucket of bytes.
    bytes_full_at: Duration,
    unsent_requests: u64,
    unsent_bytes: u64,
}

impl Usage {
    /// How long a client must wait before its next request; `None` if it may send one.
    fn wait(&self, limits: &UsageLimits, now: Duration) -> Option<Duration> {
        let requests =
            limits.requests_per_minute.map(|limit| wait(self.requests_full_at, cost(1, limit), now));
        let bytes = limits.bytes_per_minute.map(|_| wait(self.bytes_full_at, Duration::ZERO, now));
        let longest = requests.max(bytes).unwrap_or_default();
        (longest > Duration::ZERO).then_some(longest)
    }

    /// Charges usage at this replica, and records it for the other replicas.
    fn spend(&mut self, limits: &UsageLimits, requests: u64, bytes: u64, now: Duration) {
        self.charge(limits, requests, bytes, now);
        self.unsent_requests += requests;
        self.unsent_bytes += bytes;
    }

    /// Takes requests and bytes from the buckets, more than they hold if necessary.
    fn charge(&mut self, limits: &UsageLimits, requests: u64, bytes: u64, now: Duration) {
        if let Some(limit) = limits.requests_per_minute {
            self.requests_full_at = self.requests_full_at.max(now) + cost(requests, limit);
        }
        if let Some(limit) = limits.bytes_per_minute {
            self.bytes_full_at = self.bytes_full_at.max(now) + cost(bytes, limit);
        }
    }

    /// Takes the usage that was not yet sent to other replicas; `None` if there is none.
    fn take_unsent(&mut self, client: Option<Client>) -> Option<ClientUsage> {
        let requests = std::mem::take(&mut self.unsent_requests);
        let bytes = std::mem::take(&mut self.unsent_bytes);
        (requests > 0 || bytes > 0).then_some(ClientUsage { client, requests, bytes })
    }

    fn is_full(&self, now: Duration) -> bool {
        self.requests_full_at.max(self.bytes_full_at) <= now
    }
}

/// How long until a bucket that is full at `full` holds `cost`.
fn wait(full: Duration, cost: Duration, now: Duration) -> Duration {
    // A bucket never holds more than `PERIOD`, so no more is required.
    (full + cost.min(PERIOD)).saturating_sub(now + PERIOD)
}

/// The time in which a bucket with this limit per minute receives `amount`.
fn cost(amount: u64, limit: u64) -> Duration {
    let nanoseconds = PERIOD.as_nanos() * u128::from(amount) / u128::from(limit.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

impl RateLimiter {
    /// The limiter for these limits; `None` if none of them is a rate. If only the total of a rate is limited, one client
    /// may use three quarters of it.
    pub(super) fn new(
        identity: &UsageLimits,
        address: &UsageLimits,
        total: &UsageLimits,
    ) -> Option<Arc<Self>> {
        [identity, address, total].iter().any(|limits| limits.has_rate()).then(|| {
            Arc::new(Self {
                identity: identity.with_shares_of(total),
                address: address.with_shares_of(total),
                total: total.clone(),
                began: Instant::now(),
                used_in_total: Mutex::default(),
                clients: std::array::from_fn(|_| Mutex::default()),
                hasher: RandomState::new(),
            })
        })
    }

    fn limits(&self, client: Client) -> &UsageLimits {
        if client.has_identity() { &self.identity } else { &self.address }
    }

    fn table(&self, client: Client) -> &Mutex<HashMap<Client, Usage>> {
        &self.clients[self.hasher.hash_one(client) as usize % SHARDS]
    }

    /// Counts requests of a client: several for a batch, which is admitted if the bucket holds at least one request.
    /// The error is how long the client must wait; then nothing is counted.
    pub(super) fn request(&self, client: Client, count: usize) -> Result<(), Duration> {
        self.request_at(client, count as u64, self.began.elapsed())
    }

    fn request_at(&self, client: Client, count: u64, now: Duration) -> Result<(), Duration> {
        let limits = self.limits(client);
        let mut table = lock(self.table(client));
        let mut usage = table.get(&client).copied().unwrap_or_default();
        let own = usage.wait(limits, now);
        if let Some(wait) = own {
            return Err(wait);
        }
        let mut total = lock(&self.used_in_total);
        if let Some(wait) = total.wait(&self.total, now) {
            return Err(wait);
        }
        total.spend(&self.total, count, 0, now);
        drop(total);
        usage.spend(limits, count, 0, now);
        insert(&mut table, client, usage, now);
        Ok(())
    }

    /// Counts bytes of a response.
    pub(super) fn respond(&self, client: Client, bytes: usize) {
        self.respond_at(client, bytes as u64, self.began.elapsed());
    }

    fn respond_at(&self, client: Client, bytes: u64, now: Duration) {
        let mut table = lock(self.table(client));
        let mut usage = table.get(&client).copied().unwrap_or_default();
        usage.spend(self.limits(client), 0, bytes, now);
        insert(&mut table, client, usage, now);
        drop(table);
        lock(&self.used_in_total).spend(&self.total, 0, bytes, now);
    }

    /// Takes the usage at this replica that was not yet sent to the others, for at most `MAX_EXCHANGED` clients.
    pub(super) fn take_unsent(&self) -> Vec<ClientUsage> {
        let mut used: Vec<_> = lock(&self.used_in_total).take_unsent(None).into_iter().collect();
        for table in &self.clients {
            let mut table = lock(table);
            let known = table.iter_mut().filter(|(client, _)| client.is_known());
            let left = MAX_EXCHANGED.saturating_sub(used.len());
            let unsent = known.filter_map(|(client, usage)| usage.take_unsent(Some(*client)));
            used.extend(unsent.take(left));
        }
        used
    }

    /// Charges clients for their usage at other replicas.
    pub(super) fn charge(&self, used: &[ClientUsage]) {
        self.charge_at(used, self.began.elapsed());
    }

    fn charge_at(&self, used: &[ClientUsage], now: Duration) {
        for ClientUsage { client, requests, bytes } in used {
            match client {
                None => lock(&self.used_in_total).charge(&self.total, *requests, *bytes, now),
                Some(client) => {
                    let mut table = lock(self.table(*client));
                    let mut usage = table.get(client).copied().unwrap_or_default();
                    usage.charge(self.limits(*client), *requests, *bytes, now);
                    insert(&mut table, *client, usage, now);
                }
            }
        }
    }
}

/// Stores the usage of a client, unless the client's buckets are full. If the table is at its limit, first removes the
/// clients whose buckets are full; if that is not enough, also the half whose buckets will be full first.
fn insert(table: &mut HashMap<Client, Usage>, client: Client, usage: Usage, now: Duration) {
    if usage.is_full(now) {
        return;
    }
    if table.len() >= MAX_CLIENTS && !table.contains_key(&client) {
        table.retain(|_, usage| !usage.is_full(now));
        if table.len() >= MAX_CLIENTS {
            // Half of them, so that a flood of addresses does not cause a scan of the table at every request.
            let full_at = |usage: &Usage| usage.requests_full_at.max(usage.bytes_full_at);
            let mut ends: Vec<_> = table.values().map(full_at).collect();
            let (_, median, _) = ends.select_nth_unstable(MAX_CLIENTS / 2);
            let median = *median;
            // Counted, because many clients can have the same time.
            let mut excess = table.len() - MAX_CLIENTS / 2;
            table.retain(|_, usage| {
                let is_removed = excess > 0 && full_at(usage) <= median;
                excess -= usize::from(is_removed);
                !is_removed
            });
        }
    }
    table.insert(client, usage);
}

#[cfg(test)]
mod tests {
    use super::{ClientUsage, MAX_CLIENTS, RateLimiter, SHARDS, UsageLimits};
    use crate::lock::lock;
    use libris_core::{Client, Identity};
    use std::time::Duration;

    fn limits(requests: Option<u64>, bytes: Option<u64>) -> UsageLimits {
        UsageLimits { requests_per_minute: requests, bytes_per_minute: bytes, ..UsageLimits::default() }
    }

    fn at(last: u32) -> Client {
        Client::at(std::net::Ipv4Addr::from(last).into())
    }

    const NOW: Duration = Duration::from_secs(1_000);

    #[test]
    fn a_client_may_send_a_minutes_worth_at_once_and_then_evenly() {
        let none = UsageLimits::default();
        let rates = RateLimiter::new(&limits(Some(6), None), &limits(Some(3), None), &none).unwrap();
        let ada = Client::of(&Identity::new("ada"));
        for (client, burst, pause) in [(at(1), 3, 20), (ada, 6, 10)] {
            for _ in 0..burst {
                assert_eq!(rates.request_at(client, 1, NOW), Ok(()));
            }
            assert_eq!(rates.request_at(client, 1, NOW), Err(Duration::from_secs(pause)));
            let later = NOW + Duration::from_secs(pause);
            assert!(rates.request_at(client, 1, later - Duration::from_millis(1)).is_err());
            assert_eq!(rates.request_at(client, 1, later), Ok(()));
            assert!(rates.request_at(client, 1, later).is_err());
        }
        assert_eq!(rates.request_at(at(2), 1, NOW), Ok(()), "another client");
    }

    #[test]
    fn bytes_are_counted_after_the_response() {
        let none = UsageLimits::default();
        let rates = RateLimiter::new(&none, &limits(None, Some(600)), &none).unwrap();
        assert_eq!(rates.request_at(at(1), 1, NOW), Ok(()));
        rates.respond_at(at(1), 6_000, NOW);
        // Ten minutes' worth, of which the bucket held one.
        assert_eq!(rates.request_at(at(1), 1, NOW), Err(Duration::from_secs(540)));
        assert_eq!(rates.request_at(at(1), 1, NOW + Duration::from_secs(540)), Ok(()));
        assert_eq!(rates.request_at(at(2), 1, NOW), Ok(()));
    }

    #[test]
    fn all_clients_together_have_a_limit_and_a_refusal_costs_nothing() {
        let own = limits(Some(100), None);
        let rates = RateLimiter::new(&own, &own, &limits(Some(2), None)).unwrap();
        assert_eq!(rates.request_at(at(1), 1, NOW), Ok(()));
        assert_eq!(rates.request_at(at(2), 1, NOW), Ok(()));
        for _ in 0..200 {
            assert_eq!(rates.request_at(at(3), 1, NOW), Err(Duration::from_secs(30)));
        }
        let later = NOW + Duration::from_secs(60);
        assert_eq!(rates.request_at(at(3), 1, later), Ok(()));
    }

    #[test]
    fn one_client_may_use_three_quarters_of_a_total_without_limits_of_its_own() {
        let none = UsageLimits::default();
        let rates = RateLimiter::new(&none, &none, &limits(Some(8), Some(800))).unwrap();
        let ada = Client::of(&Identity::new("ada"));
        for client in [at(1), ada] {
            let later = NOW + Duration::from_secs(if client == ada { 600 } else { 0 });
            let admitted = (0..20).filter(|_| rates.request_at(client, 1, later).is_ok()).count();
            assert_eq!(admitted, 6);
            (0..2).for_each(|_| assert_eq!(rates.request_at(at(2), 1, later), Ok(())));
            assert!(rates.request_at(at(2), 1, later).is_err(), "the total");
        }
        let later = NOW + Duration::from_secs(1_200);
        rates.respond_at(at(1), 600, later);
        assert!(rates.request_at(at(1), 1, later + Duration::from_millis(1)).is_ok());
        rates.respond_at(at(1), 100, later + Duration::from_millis(1));
        assert!(rates.request_at(at(1), 1, later + Duration::from_millis(2)).is_err());
        assert!(rates.request_at(at(2), 1, later + Duration::from_millis(2)).is_ok(), "another client");
        // A limit that is set is not changed.
        let own = limits(Some(100), None);
        let rates = RateLimiter::new(&none, &own, &limits(Some(8), None)).unwrap();
        assert_eq!((0..20).filter(|_| rates.request_at(at(1), 1, NOW).is_ok()).count(), 8);
    }

    #[test]
    fn the_number_of_clients_is_bounded() {
        let none = UsageLimits::default();
        let rates = RateLimiter::new(&none, &limits(Some(2), None), &none).unwrap();
        for last in 0..(2 * SHARDS * MAX_CLIENTS) as u32 {
            assert_eq!(rates.request_at(at(last), 1, NOW + Duration::from_micros(last.into())), Ok(()));
        }
        let count = || rates.clients.iter().map(|table| lock(table).len()).sum::<usize>();
        assert!(count() <= SHARDS * MAX_CLIENTS);
        let busy = at(u32::MAX);
        let late = NOW + Duration::from_secs(1);
        (0..2).for_each(|_| assert_eq!(rates.request_at(busy, 1, late), Ok(())));
        for last in 0..(SHARDS * MAX_CLIENTS) as u32 {
            let _ = rates.request_at(at(last), 1, late);
        }
        assert!(rates.request_at(busy, 1, late).is_err(), "the client with the most usage is removed last");
    }

    #[test]
    fn a_flood_of_addresses_at_one_time_removes_half_of_the_clients() {
        let none = UsageLimits::default();
        let rates = RateLimiter::new(&none, &limits(Some(2), None), &none).unwrap();
        for last in 0..(4 * SHARDS * MAX_CLIENTS) as u32 {
            assert_eq!(rates.request_at(at(last), 1, NOW), Ok(()));
        }
        for table in &rates.clients {
            let count = lock(table).len();
            assert!((MAX_CLIENTS / 2..=MAX_CLIENTS).contains(&count), "{count}");
        }
    }

    #[test]
    fn usage_at_one_replica_counts_at_the_others() {
        let (own, total) = (limits(Some(6), Some(6_000)), limits(Some(100), None));
        let [one, other] = [(), ()].map(|()| RateLimiter::new(&own, &own, &total).unwrap());
        let ada = Client::of(&Identity::new("ada"));
        for client in [at(1), ada] {
            (0..4).for_each(|_| assert_eq!(one.request_at(client, 1, NOW), Ok(())));
        }
        one.respond_at(at(1), 500, NOW);
        let mut used = one.take_unsent();
        used.sort_by_key(|used| used.client);
        let usage = |client, requests, bytes| ClientUsage { client, requests, bytes };
        assert_eq!(used, [usage(None, 8, 500), usage(Some(at(1)), 4, 500), usage(Some(ada), 4, 0)]);
        assert_eq!(one.take_unsent(), [], "usage is sent once");
        other.charge_at(&used, NOW);
        assert_eq!(other.take_unsent(), [], "usage at another replica is not sent back");
        for client in [at(1), ada] {
            (0..2).for_each(|_| assert_eq!(other.request_at(client, 1, NOW), Ok(())));
            assert_eq!(other.request_at(client, 1, NOW), Err(Duration::from_secs(10)));
        }
        // Usage that exceeds the bucket is charged too.
        other.charge_at(&[usage(Some(at(2)), 12, 0), usage(None, 200, 0)], NOW);
        assert_eq!(other.request_at(at(2), 1, NOW), Err(Duration::from_secs(70)));
        assert!(other.request_at(at(3), 1, NOW).is_err(), "all together have used too much");
    }

    #[test]
    fn without_rates_there_is_no_limiter() {
        let sessions = UsageLimits { sessions: Some(1), ..UsageLimits::default() };
        assert!(RateLimiter::new(&sessions, &sessions, &sessions).is_none());
    }
}
