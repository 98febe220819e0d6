//! Leases that decide which replica polls which source, and the subjects that it follows for the other replicas.
//!
//! If a source detects changes by polling a service, only one replica polls: the one that holds the lease of the
//! source, a key that expires unless the replica renews it. Every replica writes the subjects (URIs under which changes
//! are reported) that its clients subscribe to into a hash. The replicas that hold a lease read the hash when its
//! version has changed. A replica that cannot reach Redis at its start, or later for longer than a lease lasts, polls
//! all its sources itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libris::{ClusterEvent, Uri};
use redis::{RedisResult, Script};
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

/// The largest total size of the subjects of one replica, and of all replicas, in bytes. With more, each replica polls
/// its sources itself: the leaseholders would read all subjects whenever a client of any replica subscribes.
const MAX_FOLLOWED_BYTES: usize = 256 << 10;
const MAX_TOTAL_BYTES: usize = 4 << 20;

/// How long a response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Acquires or renews the leases `KEYS`. Returns for each 0 if this replica now holds it, otherwise the milliseconds until
/// the lease of another replica expires.
static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r#"
local answer = {}
for at, lease in ipairs(KEYS) do
    local holder = redis.call('GET', lease)
    if holder and holder ~= ARGV[1] then
        answer[at] = math.max(redis.call('PTTL', lease), 1)
    else
        redis.call('SET', lease, ARGV[1], 'PX', ARGV[2])
        answer[at] = 0
    end
end
return answer
"#,
    )
});

/// Renews the entry of this replica (`ARGV[1]`) for `ARGV[2]` milliseconds, writes its subjects (`ARGV[4]`) if
/// `ARGV[3]` is 1, and removes expired entries of other replicas. Returns the version of the hash, and `full` if the
/// subjects of all replicas exceed `ARGV[7]` bytes. If they do not, and this replica holds a lease (`ARGV[5]` is 1) and
/// knows another version (`ARGV[6]`), the subjects of all replicas follow. Returns an empty list if Redis has no
/// subjects of this replica: the replica must then write them again.
static FOLLOW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r#"
local followed, until_when, version_key, bytes = unpack(KEYS)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local is_changed = ARGV[3] == '1'
-- Redis may have evicted one of the keys.
if redis.call('EXISTS', followed, bytes) == 1 then redis.call('DEL', followed, bytes) end
local function add_bytes(difference) redis.call('INCRBY', bytes, difference) end
for _, replica in ipairs(redis.call('ZRANGEBYSCORE', until_when, '-inf', now)) do
    add_bytes(-redis.call('HSTRLEN', followed, replica))
    redis.call('HDEL', followed, replica)
    redis.call('ZREM', until_when, replica)
    is_changed = true
end
redis.call('ZADD', until_when, now + ARGV[2], ARGV[1])
if ARGV[3] == '1' then
    add_bytes(string.len(ARGV[4]) - redis.call('HSTRLEN', followed, ARGV[1]))
    redis.call('HSET', followed, ARGV[1], ARGV[4])
end
if is_changed then redis.call('SET', version_key, string.format('%.0f', now) .. ' ' .. ARGV[1]) end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
if redis.call('HEXISTS', followed, ARGV[1]) == 0 then return {} end
local version = redis.call('GET', version_key) or ''
if tonumber(redis.call('GET', bytes) or '0') > tonumber(ARGV[7]) then return {version, 'full'} end
local answer = {version, ''}
if version == '' or version == ARGV[6] or ARGV[5] ~= '1' then return answer end
for _, item in ipairs(redis.call('HGETALL', followed)) do answer[#answer + 1] = item end
return answer
"#,
    )
});

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
        let subjects = (subjects.len() <= MAX_FOLLOWED).then(|| subjects.join("\n"));
        subjects.filter(|subjects| subjects.len() <= MAX_FOLLOWED_BYTES)
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

/// What [`LeaseRenewer::exchange`] returns.
struct FollowedElsewhere {
    /// The subjects of the other replicas; `None` if they are the same as those that were last sent to the relay.
    subjects: Option<Vec<Uri>>,
    /// Whether all subjects together exceed [`MAX_TOTAL_BYTES`], so that each replica polls its sources itself.
    is_full: bool,
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
        let mut take = TAKE.prepare_invoke();
        sources.iter().for_each(|source| _ = take.key(shared.keys.lease(source)));
        take.arg(&shared.replica).arg(LEASE.as_millis() as u64);
        let left: Vec<u64> = connection.invoke(&take).await?;
        let is_leaseholder = left.contains(&0);
        let written = subjects.clone().unwrap_or_default();
        let FollowedElsewhere { subjects: followed, is_full } =
            self.exchange(&mut connection, written, is_leaseholder).await?;
        // Sent before this replica begins to poll, so that it follows the subjects of all replicas from the beginning.
        if let Some(subjects) = followed
            && self.events.send(ClusterEvent::Followed { subjects }).await.is_err()
        {
            return Ok(Err(RelayClosed));
        }
        for (source, left) in sources.iter().zip(&left) {
            shared.polling.set(source, *left == 0 || subjects.is_none() || is_full);
        }
        self.connection = Some(connection);
        // Tries again when the first lease of another replica expires, in case its holder has not renewed it.
        let earliest = left.into_iter().filter(|left| *left > 0).min().map(Duration::from_millis);
        Ok(Ok(earliest.map_or(RENEWAL, |earliest| earliest.min(RENEWAL))))
    }

    /// Writes the subjects of this replica if they have changed. Returns the subjects of the other replicas if they
    /// have changed since they were last sent to the relay. A replica without a lease follows none of them, and no
    /// replica does if the subjects of all replicas are too large: the first such call then returns an empty list, and
    /// later ones `None`.
    async fn exchange(
        &mut self,
        connection: &mut RedisConnection,
        subjects: String,
        is_leaseholder: bool,
    ) -> RedisResult<FollowedElsewhere> {
        let shared = &self.shared;
        loop {
            let is_new = self.known.written.as_ref() != Some(&subjects);
            let mut follow = FOLLOW.prepare_invoke();
            shared.keys.followed().iter().for_each(|key| _ = follow.key(key));
            follow.arg(&shared.replica).arg(LEASE.as_millis() as u64).arg(u8::from(is_new));
            follow.arg(if is_new { &*subjects } else { "" });
            follow.arg(u8::from(is_leaseholder)).arg(&self.known.version).arg(MAX_TOTAL_BYTES);
            let answer: Vec<String> = connection.invoke(&follow).await?;
            let [version, fullness, entries @ ..] = &*answer else {
                // Redis has lost the subjects of this replica.
                self.known.written = None;
                continue;
            };
            self.known.written = Some(subjects);
            let is_full = fullness == "full";
            if is_full || !is_leaseholder {
                let subjects = (!std::mem::take(&mut self.known.version).is_empty()).then(Vec::new);
                return Ok(FollowedElsewhere { subjects, is_full });
            }
            if *version == self.known.version {
                return Ok(FollowedElsewhere { subjects: None, is_full });
            }
            self.known.version.clone_from(version);
            let others = entries.chunks_exact(2).filter(|entry| entry[0] != shared.replica);
            let lines = others.flat_map(|entry| entry[1].lines()).filter_map(|line| Uri::parse(line).ok());
            return Ok(FollowedElsewhere { subjects: Some(lines.collect()), is_full });
        }
    }
}
