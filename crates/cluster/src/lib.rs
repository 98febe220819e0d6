//! Replicas of a Libris server that share changes, sessions and cached contents through Redis or Valkey.
//!
//! Changes go through one Redis stream that every replica reads (`reader`) and writes to (`writer`). Sessions of legacy
//! clients are hashes (`sessions`). Leases decide which replica polls a source (`polling`). Replicas share contents from
//! slow services (`cache`). All keys have the same hash tag, so that they are in one slot of a Redis Cluster. Requests
//! that a replica answers from its memory cause no Redis operation.

mod address;
mod cache;
mod connection;
mod entry;
mod polling;
mod queries;
mod reader;
mod session_queue;
mod sessions;
mod status;
mod usage;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use libris::cluster::{Client, ReplicaCache};
use libris::wire::http::SessionEvent;
use libris::{Change, ChangeBus, ClusterEvent, Uri};
use libris_sources::settings;
use serde::Deserialize;
use tokio::sync::{Mutex, mpsc, watch};

pub use crate::address::RedisUrl;
use crate::cache::ContentCache;
use crate::connection::Connector;
use crate::polling::Polling;
use crate::queries::QueryConnection;
use crate::session_queue::SessionQueue;
use crate::status::{LinkStatus, StatusWatch};
use crate::writer::{Pending, RedisWriter};

/// The connection of the replicas of a server.
///
/// ```toml
/// [cluster]
/// redis = "redis://redis.internal:6379"
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The URL of Redis or Valkey: `redis://host:port/database`, with TLS `rediss://`. With Sentinels
    /// `redis+sentinel://host,host/master`, with Redis Cluster `redis+cluster://host,host`; with TLS `rediss+…`.
    pub redis: Option<RedisUrl>,
    /// The environment variable with the URL, instead of `redis`.
    pub redis_env: Option<String>,
    /// The environment variable with the password.
    pub password_env: Option<String>,
    /// The prefix of all keys. Servers that share a Redis but are not replicas of each other need different prefixes.
    /// Default: `libris`.
    pub prefix: Option<String>,
    /// The size of the cache in Redis for contents of HTTP APIs, Notion and other MCP servers, in bytes. 0: replicas
    /// share no contents. Default: 64 MiB.
    #[serde(deserialize_with = "settings::cache_bytes")]
    pub cache_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { redis: None, redis_env: None, password_env: None, prefix: None, cache_bytes: 64 << 20 }
    }
}

/// Why the cluster cannot start: an error in the configuration or its environment variables, or no source of random
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClusterConfigError {
    message: String,
    hint: Option<String>,
}

impl ClusterConfigError {
    fn new(message: String) -> Self {
        Self { message, hint: None }
    }

    fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// How the user can correct the configuration.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// The longest prefix of keys, in bytes.
const MAX_PREFIX: usize = 64;

impl Config {
    /// The URL and the password, from the file or the environment.
    fn address(&self) -> Result<(RedisUrl, Option<String>), ClusterConfigError> {
        let variable = |name: &String| {
            std::env::var(name).map_err(|_| {
                ClusterConfigError::new(format!("the environment variable `{name}` is not set"))
                    .with_hint("set it before you start Libris")
            })
        };
        let url = match (&self.redis, &self.redis_env) {
            (Some(url), None) => url.clone(),
            (None, Some(name)) => RedisUrl::new(variable(name)?),
            (Some(_), Some(_)) => {
                return Err(ClusterConfigError::new("`cluster` has both `redis` and `redis_env`".to_owned())
                    .with_hint("remove one of them"));
            }
            (None, None) => {
                return Err(ClusterConfigError::new("`cluster` has no `redis`".to_owned())
                    .with_hint("add the URL, as in `redis = \"redis://127.0.0.1:6379\"`"));
            }
        };
        Ok((url, self.password_env.as_ref().map(variable).transpose()?))
    }

    fn keys(&self) -> Result<Keys, ClusterConfigError> {
        let prefix = self.prefix.as_deref().unwrap_or("libris");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if prefix.is_empty() || prefix.len() > MAX_PREFIX || !prefix.bytes().all(is_plain) {
            return Err(ClusterConfigError::new(format!("`{prefix}` cannot be the prefix of keys"))
                .with_hint(format!("use 1 to {MAX_PREFIX} letters, digits and `-`, `_`, `.`, `:`")));
        }
        Ok(Keys { prefix: prefix.to_owned() })
    }

    /// Checks the configuration without connecting.
    pub fn check(&self) -> Result<(), ClusterConfigError> {
        let (url, password) = self.address()?;
        self.keys()?;
        Connector::new(&url, password.as_deref()).map(drop)
    }
}

/// The names of the keys in Redis.
#[derive(Clone, Debug)]
struct Keys {
    prefix: String,
}

impl Keys {
    /// The stream of changes.
    fn stream(&self) -> String {
        format!("{{{}}}:changes", self.prefix)
    }

    /// The key that records when the database was first used, and by which replica. If its value changes, the contents
    /// of the database were lost.
    fn incarnation(&self) -> String {
        format!("{{{}}}:incarnation", self.prefix)
    }

    /// The key with which a replica probes whether Redis accepts writes.
    fn probe(&self) -> String {
        format!("{{{}}}:probe", self.prefix)
    }

    /// The lease of the replica that polls this source.
    fn lease(&self, source: &str) -> String {
        format!("{{{}}}:lease:{source}", self.prefix)
    }

    /// The four keys of followed subjects: a hash with the subjects that each replica follows, a sorted set with the
    /// time at which the entry of each replica expires, the version of the hash, and the total size of its values.
    fn followed(&self) -> [String; 4] {
        ["followed", "followed-until", "followed-version", "followed-bytes"]
            .map(|name| format!("{{{}}}:{name}", self.prefix))
    }

    /// The stream in which replicas exchange the numbers of requests and bytes that clients have used.
    fn usage(&self) -> String {
        format!("{{{}}}:usage", self.prefix)
    }

    fn session(&self, id: &str) -> String {
        format!("{{{}}}:session:{id}", self.prefix)
    }
}

/// The link between this replica and the others, through Redis.
pub struct RedisCluster {
    shared: Arc<ReplicaState>,
    events: Mutex<mpsc::Receiver<ClusterEvent>>,
    session_events: Mutex<mpsc::Receiver<SessionEvent>>,
    status: Mutex<StatusWatch>,
    queries: QueryConnection,
    /// The id after which the next exchange reads the stream [`Keys::usage`]; empty before the first exchange.
    last_usage: Mutex<String>,
    /// The cache that the replicas share; `None` if it is turned off.
    cache: Option<ContentCache>,
}

/// The state that the tasks of this replica share: reader, writer and lease renewal.
struct ReplicaState {
    connector: Arc<Connector>,
    keys: Keys,
    /// The random id of this replica.
    replica: String,
    pending: Pending,
    session_queue: SessionQueue,
    polling: Polling,
    status: LinkStatus,
    published: AtomicUsize,
    received: AtomicUsize,
    lost: AtomicUsize,
    reconnected: AtomicUsize,
    /// The number of requests that other replicas have reported for rate limits.
    used_elsewhere: AtomicUsize,
}

/// The capacity of each event queue. While a queue is full, the reader waits (backpressure).
const QUEUED_EVENTS: usize = 1_024;

impl RedisCluster {
    /// Starts connecting in the background, so Redis need not be reachable yet. Call this within a tokio runtime.
    pub fn start(config: &Config) -> Result<Arc<Self>, ClusterConfigError> {
        let (url, password) = config.address()?;
        let connector = Connector::new(&url, password.as_deref())?;
        let keys = config.keys()?;
        // The secret in the hashes of identities. All replicas derive it from the configuration that they share, so that
        // an identity has the same hash at each of them.
        let secret = format!("{} {} {password:?}", keys.prefix, url.credentials());
        Client::share_secret(&secret);
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| ClusterConfigError::new(format!("there are no random numbers: {error}")))?;
        let shared = Arc::new(ReplicaState {
            connector: Arc::new(connector),
            keys,
            replica: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            pending: Pending::default(),
            session_queue: SessionQueue::default(),
            polling: Polling::default(),
            status: LinkStatus::default(),
            published: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            reconnected: AtomicUsize::new(0),
            used_elsewhere: AtomicUsize::new(0),
        });
        let (events, received) = mpsc::channel(QUEUED_EVENTS);
        let (session_events, received_sessions) = mpsc::channel(QUEUED_EVENTS);
        // Subscribes before the tasks run, because a watch reports only the states set after it was created.
        let status = Mutex::new(shared.status.watch());
        let writer = RedisWriter::new(shared.clone(), events.clone(), session_events.clone());
        tokio::spawn(writer.run());
        tokio::spawn(polling::run(shared.clone(), events.clone()));
        tokio::spawn(reader::run(shared.clone(), events, session_events));
        Ok(Arc::new(Self {
            shared,
            events: Mutex::new(received),
            session_events: Mutex::new(received_sessions),
            status,
            queries: QueryConnection::default(),
            last_usage: Mutex::default(),
            cache: ContentCache::new(config.cache_bytes, secret),
        }))
    }
}

#[async_trait]
impl ChangeBus for RedisCluster {
    fn publish(&self, change: &Change) -> u64 {
        self.shared.pending.put(change)
    }

    async fn next(&self) -> ClusterEvent {
        let (mut events, mut status) = (self.events.lock().await, self.status.lock().await);
        tokio::select! {
            biased;
            // Events before the status: `Connected` comes after what the reader has sent before it was connected.
            event = events.recv() => match event {
                Some(event) => event,
                // Cannot happen: the tasks hold the senders until this replica is dropped.
                None => std::future::pending().await,
            },
            event = status.next() => event,
        }
    }

    fn poller(&self, source: &str) -> watch::Receiver<bool> {
        self.shared.polling.poller(source)
    }

    fn follow(&self, subject: &Uri) {
        self.shared.polling.follow(subject);
    }

    fn unfollow(&self, subject: &Uri) {
        self.shared.polling.unfollow(subject);
    }

    fn cache(&self) -> Option<&dyn ReplicaCache> {
        self.cache.is_some().then_some(self)
    }

    fn counts(&self) -> Vec<(&'static str, usize)> {
        let ReplicaState { published, received, lost, reconnected, used_elsewhere, pending, polling, .. } =
            &*self.shared;
        let load = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let counts = [
            ("cluster_polled_sources", polling.polled()),
            ("cluster_unpublished", pending.len()),
            ("cluster_published_total", load(published)),
            ("cluster_received_total", load(received)),
            ("cluster_lost_total", load(lost)),
            ("cluster_reconnections_total", load(reconnected)),
            ("cluster_requests_elsewhere_total", load(used_elsewhere)),
        ];
        counts.into_iter().chain(self.cache.iter().flat_map(ContentCache::counts)).collect()
    }
}

impl fmt::Debug for RedisCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCluster").field("replica", &self.shared.replica).finish_non_exhaustive()
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        self.shared.status.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, RedisUrl};

    fn error(config: Config) -> String {
        let error = config.check().unwrap_err();
        format!("{error}; hint: {}", error.hint().unwrap_or_default())
    }

    #[test]
    fn the_configuration_is_checked() {
        let redis = Some(RedisUrl::new("redis://127.0.0.1"));
        assert_eq!(Config { redis: redis.clone(), ..Config::default() }.check(), Ok(()));
        assert!(error(Config::default()).contains("has no `redis`; hint: add the URL"));
        let unset = Some("LIBRIS_TEST_UNSET_VARIABLE".to_owned());
        let both = Config { redis: redis.clone(), redis_env: unset.clone(), ..Config::default() };
        assert!(error(both).contains("remove one of them"));
        let message = error(Config { redis_env: unset.clone(), ..Config::default() });
        assert!(message.contains("`LIBRIS_TEST_UNSET_VARIABLE` is not set; hint: set it"), "{message}");
        let message = error(Config { redis: redis.clone(), password_env: unset, ..Config::default() });
        assert!(message.contains("is not set"), "{message}");
        for prefix in ["", "a{b}", "a b", &"x".repeat(65)] {
            let config =
                Config { redis: redis.clone(), prefix: Some(prefix.to_owned()), ..Config::default() };
            assert!(error(config).contains("cannot be the prefix"), "{prefix}");
        }
    }
}
