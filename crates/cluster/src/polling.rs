//! Leases that decide which replica polls which source, and the subjects that it follows for the other replicas.
//!
//! If a source detects changes by polling a service, only one replica polls: the one that holds the lease of the
//! source, a key that expires unless the replica renews it. Every replica writes the subjects (URIs under which changes
//! are reported) that its clients subscribe to into a hash. The replicas that hold a lease read the hash when its
//! version has changed. A replica that cannot reach Redis at its start, or later for longer than a lease lasts, polls
//! all its sources itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libris::{ClusterEvent, Uri};
use redis::RedisResult;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::ReplicaState;
use crate::connection::RedisConnection;

/// How long a lease lasts after it was acquired or renewed.
const LEASE: Duration = Duration::from_secs(10);

/// How often leases and followed subjects are renewed.
const RENEWAL: Duration = Duration::from_secs(3);

/// The shortest pause between two renewals, so that a burst of subscriptions causes only one renewal.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// The largest number of subjects that a replica shares with the others. With more, the replica polls its sources
/// itself.
const MAX_FOLLOWED: usize = 2_000;

/// How long a response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Acquires or renews a lease. Returns 0 if this replica now holds the lease, otherwise the milliseconds until the
/// lease of another replica expires.
const TAKE: &str = r#"
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return math.max(redis.call('PTTL', KEYS[1]), 1) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 0
"#;

/// Renews the entry of this replica (`ARGV[1]`) for `ARGV[2]` milliseconds, writes its subjects (`ARGV[4]`) if
/// `ARGV[3]` is 1, and removes expired entries of other replicas. Returns the version of the hash. If this replica
/// holds a lease (`ARGV[5]` is 1) and knows another version (`ARGV[6]`), the subjects of all replicas come after the
/// version. Returns an empty list if Redis has no subjects of this replica: the replica must then write them again.
const FOLLOW: &str = r#"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local is_changed = ARGV[3] == '1'
for _, replica in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
    redis.call('HDEL', KEYS[1], replica)
    redis.call('ZREM', KEYS[2], replica)
    is_changed = true
end
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
if ARGV[3] == '1' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[4]) end
if is_changed then redis.call('SET', KEYS[3], string.format('%.0f', now) .. ' ' .. ARGV[1]) end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {} end
local version = redis.call('GET', KEYS[3])
if not version or version == ARGV[6] or ARGV[5] ~= '1' then return {version or ''} end
local answer = redis.call('HGETALL', KEYS[1])
table.insert(answer, 1, version)
return answer
"#;

/// The sources that this replica may poll, and the subjects that its clients subscribe to.
#[derive(Default)]
pub(crate) struct Polling {
    state: Mutex<PollingState>,
    /// Notified when sources or subjects change, so that the next renewal begins early.
    changed: Notify,
}

#[derive(Default)]
struct PollingState {
    /// For each source, by its name: whether this replica polls it.
    sources: BTreeMap<String, watch::Sender<bool>>,
    /// The subjects that clients of this replica subscribe to.
    followed: BTreeSet<Uri>,
}

impl Polling {
    fn lock(&self) -> MutexGuard<'_, PollingState> {
        // A poisoned lock is usable: every statement leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes this replica a candidate for polling the source with this name, until the receiver is dropped. The value
    /// of the receiver is whether this replica polls the source.
    pub(crate) fn poller(&self, source: &str) -> watch::Receiver<bool> {
        let mut state = self.lock();
        let poller = state.sources.entry(source.to_owned()).or_default().subscribe();
        drop(state);
        self.changed.notify_one();
        poller
    }

    pub(crate) fn follow(&self, subject: &Uri) {
        if self.lock().followed.insert(subject.clone()) {
            self.changed.notify_one();
        }
    }

    pub(crate) fn unfollow(&self, subject: &Uri) {
        if self.lock().followed.remove(subject) {
            self.changed.notify_one();
        }
    }

    /// The number of sources that this replica polls.
    pub(crate) fn polled(&self) -> usize {
        self.lock().sources.values().filter(|poller| *poller.borrow()).count()
    }

    /// The sources whose receivers still exist. Removes the other sources.
    fn candidates(&self) -> Vec<String> {
        let mut state = self.lock();
        state.sources.retain(|_, poller| poller.receiver_count() > 0);
        state.sources.keys().cloned().collect()
    }

    /// The subjects of this replica, one per line; `None` if there are too many.
    fn subjects(&self) -> Option<String> {
        let state = self.lock();
        let subjects: Vec<_> = state.followed.iter().map(Uri::as_str).collect();
        (subjects.len() <= MAX_FOLLOWED).then(|| subjects.join("\n"))
    }

    /// Records whether this replica polls a source.
    fn set(&self, source: &str, is_poller: bool) {
        if let Some(poller) = self.lock().sources.get(source)
            && poller.send_if_modified(|current| std::mem::replace(current, is_poller) != is_poller)
        {
            match is_poller {
                true => tracing::info!(source, "this replica polls the source"),
                false => tracing::info!(source, "another replica polls the source"),
            }
        }
    }
}

/// Renews leases and followed subjects until the replica ends.
pub(crate) async fn run(shared: Arc<ReplicaState>, events: mpsc::Sender<ClusterEvent>) {
    let renewer =
        LeaseRenewer { shared: shared.clone(), events, connection: None, known: RedisCopy::default() };
    tokio::select! {
        () = shared.status.stopped() => {}
        () = renewer.renew_forever() => {}
    }
}

/// The state of Redis that this replica last wrote or read.
#[derive(Default)]
struct RedisCopy {
    /// The subjects of this replica that were last written; `None` if they must be written again.
    written: Option<String>,
    /// The version of the hash whose subjects were last sent to the relay; empty if none were sent.
    version: String,
}

/// The task that renews the leases and the followed subjects.
struct LeaseRenewer {
    shared: Arc<ReplicaState>,
    events: mpsc::Sender<ClusterEvent>,
    connection: Option<RedisConnection>,
    known: RedisCopy,
}

/// The relay of this replica, which receives the events, no longer exists.
struct RelayClosed;

impl LeaseRenewer {
    async fn renew_forever(mut self) {
        let shared = self.shared.clone();
        let mut renewed: Option<Instant> = None;
        loop {
            let began = Instant::now();
            let pause = match self.renew().await {
                Ok(Ok(pause)) => {
                    renewed = Some(began);
                    pause
                }
                Ok(Err(RelayClosed)) => return,
                Err(error) => {
                    tracing::debug!(%error, "the leases could not be renewed");
                    self.connection = None;
                    self.known = RedisCopy::default();
                    // Without Redis, this replica receives no changes from the leaseholder, so it polls itself.
                    if renewed.is_none_or(|renewed| renewed.elapsed() > LEASE) {
                        for source in shared.polling.candidates() {
                            shared.polling.set(&source, true);
                        }
                    }
                    RENEWAL
                }
            };
            // A notification and the timeout have the same effect: the next renewal begins.
            let _ = timeout(pause, shared.polling.changed.notified()).await;
            sleep(SHORTEST_PAUSE).await;
        }
    }

    /// Renews the leases and the subjects. Returns the time until the next renewal.
    async fn renew(&mut self) -> RedisResult<Result<Duration, RelayClosed>> {
        let shared = self.shared.clone();
        let sources = shared.polling.candidates();
        if sources.is_empty() {
            return Ok(Ok(RENEWAL));
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => shared.connector.connect(RESPONSE_TIMEOUT).await?,
        };
        let subjects = shared.polling.subjects();
        let mut pipeline = redis::pipe();
        for source in &sources {
            pipeline.cmd("EVAL").arg(TAKE).arg(1).arg(shared.keys.lease(source));
            pipeline.arg(&shared.replica).arg(LEASE.as_millis() as u64);
        }
        let left: Vec<u64> = connection.pipeline(&pipeline).await?;
        let is_leaseholder = left.contains(&0);
        let followed =
            self.exchange(&mut connection, subjects.clone().unwrap_or_default(), is_leaseholder).await?;
        // Sent before this replica begins to poll, so that it follows the subjects of all replicas from the beginning.
        if let Some(subjects) = followed
            && self.events.send(ClusterEvent::Followed { subjects }).await.is_err()
        {
            return Ok(Err(RelayClosed));
        }
        for (source, left) in sources.iter().zip(&left) {
            shared.polling.set(source, *left == 0 || subjects.is_none());
        }
        self.connection = Some(connection);
        // Tries again when the first lease of another replica expires, in case its holder has not renewed it.
        let earliest = left.into_iter().filter(|left| *left > 0).min().map(Duration::from_millis);
        Ok(Ok(earliest.map_or(RENEWAL, |earliest| earliest.min(RENEWAL))))
    }

    /// Writes the subjects of this replica if they have changed. Returns the subjects of the other replicas if they
    /// have changed since they were last sent to the relay. A replica without a lease does not follow them: after the
    /// loss of its last lease, this returns an empty list once.
    async fn exchange(
        &mut self,
        connection: &mut RedisConnection,
        subjects: String,
        is_leaseholder: bool,
    ) -> RedisResult<Option<Vec<Uri>>> {
        let shared = &self.shared;
        loop {
            let is_new = self.known.written.as_ref() != Some(&subjects);
            let mut follow = redis::cmd("EVAL");
            follow.arg(FOLLOW).arg(3).arg(&shared.keys.followed());
            follow.arg(&shared.replica).arg(LEASE.as_millis() as u64).arg(u8::from(is_new));
            follow.arg(if is_new { &*subjects } else { "" });
            follow.arg(u8::from(is_leaseholder)).arg(&self.known.version);
            let answer: Vec<String> = connection.query(&follow).await?;
            let Some((version, entries)) = answer.split_first() else {
                // Redis has lost the subjects of this replica.
                self.known.written = None;
                continue;
            };
            self.known.written = Some(subjects);
            if !is_leaseholder {
                return Ok((!std::mem::take(&mut self.known.version).is_empty()).then(Vec::new));
            }
            if *version == self.known.version {
                return Ok(None);
            }
            self.known.version.clone_from(version);
            let others = entries.chunks_exact(2).filter(|entry| entry[0] != shared.replica);
            let lines = others.flat_map(|entry| entry[1].lines()).filter_map(|line| Uri::parse(line).ok());
            return Ok(Some(lines.collect()));
        }
    }
}
