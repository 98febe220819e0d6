//! The cache of contents that replicas share, in Redis.
//!
//! An entry names its contents by their digest, so that equal contents of several rights classes are stored once. Two
//! hashes contain the entries and the contents, and two sorted sets the times at which the entries expire and at which
//! they were stored. If the total size would exceed the configured one, the entries that were stored first are removed: a
//! service with long times to live does not displace the entries of another one. A key that expires unless the replica
//! renews it (lock) marks the replica that reads the contents of an entry.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use libris::cluster::{CacheAnswer, CacheWindow, ChangePosition, ReplicaCache};
use redis::{FromRedisValue, Script, ScriptInvocation};
use sha2::{Digest as _, Sha256};

use crate::connection::RedisConnection;
use crate::{Keys, RedisCluster};

/// How long a replica may be silent before another one reads the contents. Replicas renew their locks every second.
const LOCK: Duration = Duration::from_secs(3);

/// How long other replicas read contents themselves after a read that failed, or whose contents cannot be shared.
const UNSHARED: Duration = Duration::from_secs(1);

/// How long the cache is not used after an operation failed, so that not every read waits for Redis.
const PAUSE: Duration = Duration::from_secs(2);

/// The longest time to live of an entry.
const LONGEST_TTL: Duration = Duration::from_secs(60 * 60);

/// Returns the contents of the entry `ARGV[1]`, with its TTL and its digest, if its position is not before `ARGV[2]` and
/// `ARGV[3]`. Otherwise takes the lock for `ARGV[5]` milliseconds by setting it to `ARGV[4]`, unless another replica holds
/// it that has reached this position.
static FIND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r#"
local function is_valid(milliseconds, number)
    local oldest = tonumber(ARGV[2])
    milliseconds = tonumber(milliseconds)
    return milliseconds > oldest or milliseconds == oldest and tonumber(number) >= tonumber(ARGV[3])
end
local header = redis.call('HGET', KEYS[1], ARGV[1])
if header then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local milliseconds, number, expires, digest = string.match(header, '^(%d+)-(%d+) (%d+) (%x+)')
    if tonumber(expires) > now and is_valid(milliseconds, number) then
        local contents = redis.call('HGET', KEYS[2], digest)
        if contents then
            return {'found', string.format('%.0f', tonumber(expires) - now), digest, contents}
        end
    end
end
local lock = redis.call('GET', KEYS[7])
if lock == 'unshared' then return {'unshared'} end
if lock and is_valid(string.match(lock, '(%d+)-(%d+)$')) then return {'wait'} end
redis.call('SET', KEYS[7], ARGV[4], 'PX', ARGV[5])
return {'lead'}
"#,
    )
});

/// Stores the entry `ARGV[1]` at the position `ARGV[2]` for `ARGV[3]` milliseconds, with the contents `ARGV[5]` and their
/// digest `ARGV[4]`, unless there is one with a later position. The total size stays below `ARGV[6]`. Releases the lock
/// `ARGV[7]`.
static STORE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r#"
-- An estimate of what an entry takes besides its contents.
local OVERHEAD = 512
local entries, contents, expiry, order, users, bytes, lock = unpack(KEYS)
local data = {entries, contents, expiry, order, users, bytes}
local function split(header) return string.match(header, '^(%d+)-(%d+) (%d+) (%x+) (%d+)$') end
local function remove(key)
    redis.call('ZREM', expiry, key)
    redis.call('ZREM', order, key)
    local header = redis.call('HGET', entries, key)
    if not header then return end
    redis.call('HDEL', entries, key)
    local _, _, _, digest, size = split(header)
    local freed = OVERHEAD
    if redis.call('HINCRBY', users, digest, -1) <= 0 then
        redis.call('HDEL', users, digest)
        redis.call('HDEL', contents, digest)
        freed = freed + size
    end
    redis.call('DECRBY', bytes, string.format('%.0f', freed))
end
if redis.call('GET', lock) == ARGV[7] then redis.call('DEL', lock) end
-- Redis may have evicted one of the keys.
if redis.call('EXISTS', unpack(data)) < #data then redis.call('DEL', unpack(data)) end
local size = string.len(ARGV[5])
local limit = tonumber(ARGV[6])
-- It would not fit into an empty cache.
if OVERHEAD + size > limit then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, key in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, 128)) do remove(key) end
local before = redis.call('HGET', entries, ARGV[1])
if before then
    local milliseconds, number = split(before)
    local new_milliseconds, new_number = string.match(ARGV[2], '^(%d+)-(%d+)$')
    local difference = tonumber(new_milliseconds) - tonumber(milliseconds)
    if difference == 0 then difference = tonumber(new_number) - tonumber(number) end
    if difference < 0 then return 0 end
    remove(ARGV[1])
end
local function needed()
    local shared = redis.call('HEXISTS', contents, ARGV[4]) == 1
    return OVERHEAD + (shared and 0 or size)
end
local removed = 0
while tonumber(redis.call('GET', bytes) or '0') + needed() > limit do
    local first = redis.call('ZRANGE', order, 0, 0)[1]
    if not first or removed >= 4096 then return 0 end
    remove(first)
    removed = removed + 1
end
redis.call('INCRBY', bytes, needed())
redis.call('HSET', contents, ARGV[4], ARGV[5])
redis.call('HINCRBY', users, ARGV[4], 1)
local expires = string.format('%.0f', now + ARGV[3])
redis.call('HSET', entries, ARGV[1], ARGV[2] .. ' ' .. expires .. ' ' .. ARGV[4] .. ' ' .. size)
redis.call('ZADD', expiry, expires, ARGV[1])
redis.call('ZADD', order, string.format('%.0f', time[1] * 1000000 + time[2]), ARGV[1])
-- All keys expire with the last entry.
local ttl = math.max(redis.call('PTTL', entries), tonumber(ARGV[3]))
for _, key in ipairs(data) do redis.call('PEXPIRE', key, ttl) end
return 1
"#,
    )
});

/// Extends the lock `ARGV[1]` to `ARGV[2]` milliseconds. If `ARGV[3]` is not empty, sets it to this text.
static CHANGE_LOCK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r#"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] ~= '' then redis.call('SET', KEYS[1], ARGV[3]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"#,
    )
});

/// The cache of this replica's cluster.
pub(crate) struct ContentCache {
    /// The configured size of the cache in Redis, in bytes.
    bytes: u64,
    /// Part of the hash that is the key of an entry. Nobody without it can guess the credentials in a key.
    secret: String,
    /// Until when the cache is not used, because an operation has failed.
    paused_until: Mutex<Option<Instant>>,
    found: AtomicUsize,
    missed: AtomicUsize,
    stored: AtomicUsize,
}

impl ContentCache {
    /// A cache of this size; `None` if it is zero.
    pub(crate) fn new(bytes: u64, secret: String) -> Option<Self> {
        (bytes > 0).then(|| Self {
            bytes,
            secret,
            paused_until: Mutex::default(),
            found: AtomicUsize::default(),
            missed: AtomicUsize::default(),
            stored: AtomicUsize::default(),
        })
    }

    pub(crate) fn counts(&self) -> [(&'static str, usize); 3] {
        let load = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        [
            ("cluster_cache_hits_total", load(&self.found)),
            ("cluster_cache_misses_total", load(&self.missed)),
            ("cluster_cache_stored_total", load(&self.stored)),
        ]
    }

    /// The key of an entry: a hash, so that Redis contains neither credentials nor rules.
    fn entry(&self, key: &str, window: &CacheWindow) -> String {
        let parts = [&*self.secret, &window.sequence, key];
        let hash = parts.into_iter().fold(Sha256::new(), |hash, part| {
            hash.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
        });
        hex(&hash.finalize())
    }

    fn is_paused(&self) -> bool {
        let until = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn pause(&self) {
        let until = Some(Instant::now() + PAUSE);
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(ChangePosition { milliseconds, number }: ChangePosition) -> String {
    format!("{milliseconds}-{number}")
}

impl Keys {
    /// The keys of the cache: the entries, the contents, the times at which entries expire and were stored, the number of
    /// entries of each digest, the total size, and the lock of one entry.
    fn cache(&self, entry: &str) -> [String; 7] {
        ["", "-contents", "-expiry", "-order", "-users", "-bytes", &format!("-lock:{entry}")]
            .map(|name| format!("{{{}}}:cache{name}", self.prefix))
    }
}

impl RedisCluster {
    /// Runs a script of the cache; `None` if it failed or the cache is paused.
    async fn run<T: FromRedisValue + Send>(
        &self,
        cache: &ContentCache,
        script: &ScriptInvocation<'_>,
    ) -> Option<T> {
        if cache.is_paused() || !self.shared.status.is_reader_connected() {
            return None;
        }
        let query = async |mut connection: RedisConnection| connection.invoke(script).await;
        match self.queries.run(&self.shared.connector, query).await {
            Ok(answer) => Some(answer),
            Err(error) => {
                tracing::debug!(%error, "the shared cache is not used for a while");
                cache.pause();
                None
            }
        }
    }

    /// The value of the lock of an entry while this replica holds it.
    fn lock_value(&self, window: &CacheWindow) -> String {
        format!("{} {}", self.shared.replica, text(window.reached))
    }

    async fn change_lock(&self, key: &str, window: &CacheWindow, time: Duration, value: &str) {
        let Some(cache) = &self.cache else { return };
        let [.., lock] = self.shared.keys.cache(&cache.entry(key, window));
        let mut change = CHANGE_LOCK.key(lock);
        change.arg(self.lock_value(window)).arg(time.as_millis() as u64).arg(value);
        // If it fails, the lock expires.
        let _: Option<u64> = self.run(cache, &change).await;
    }
}

#[async_trait]
impl ReplicaCache for RedisCluster {
    async fn find(&self, key: &str, window: &CacheWindow) -> CacheAnswer {
        let Some(cache) = &self.cache else { return CacheAnswer::Unshared };
        let entry = cache.entry(key, window);
        let mut find = FIND.prepare_invoke();
        self.shared.keys.cache(&entry).iter().for_each(|key| _ = find.key(key));
        find.arg(entry);
        find.arg(window.oldest.milliseconds).arg(window.oldest.number);
        find.arg(self.lock_value(window)).arg(LOCK.as_millis() as u64);
        let Some(mut answer) = self.run::<Vec<Vec<u8>>>(cache, &find).await else {
            return CacheAnswer::Unshared;
        };
        match answer.first().map(Vec::as_slice) {
            Some(b"lead") => {
                cache.missed.fetch_add(1, Ordering::Relaxed);
                CacheAnswer::Lead
            }
            Some(b"wait") => CacheAnswer::Wait,
            Some(b"found") if answer.len() == 4 => {
                let data = answer.pop().unwrap_or_default();
                let ttl = str::from_utf8(&answer[1]).ok().and_then(|ttl| ttl.parse().ok());
                match ttl.filter(|_| hex(&Sha256::digest(&data)).as_bytes() == answer[2]) {
                    Some(ttl) => {
                        cache.found.fetch_add(1, Ordering::Relaxed);
                        CacheAnswer::Found { data: data.into(), ttl: Duration::from_millis(ttl) }
                    }
                    // The entry is damaged: this replica replaces it.
                    None => CacheAnswer::Lead,
                }
            }
            _ => CacheAnswer::Unshared,
        }
    }

    async fn store(&self, key: &str, window: &CacheWindow, data: Bytes, ttl: Duration) {
        let Some(cache) = &self.cache else { return };
        let entry = cache.entry(key, window);
        let mut store = STORE.prepare_invoke();
        self.shared.keys.cache(&entry).iter().for_each(|key| _ = store.key(key));
        store.arg(entry);
        store.arg(text(window.reached)).arg((ttl.min(LONGEST_TTL).as_millis() as u64).max(1));
        store.arg(hex(&Sha256::digest(&data))).arg(&data[..]).arg(cache.bytes).arg(self.lock_value(window));
        if self.run(cache, &store).await == Some(1u64) {
            cache.stored.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn renew(&self, key: &str, window: &CacheWindow) {
        self.change_lock(key, window, LOCK, "").await;
    }

    async fn abandon(&self, key: &str, window: &CacheWindow) {
        self.change_lock(key, window, UNSHARED, "unshared").await;
    }
}
