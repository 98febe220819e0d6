//! Random schedules of writes and faults. A schedule follows from its seed, though not to the millisecond.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::timeout;

use super::observer::{ReadingObserver, ReplicaUrls};
use super::{History, RecordedEvent, RecordedOperation, Violation, violations};
use crate::client::{DEADLINE, Era, Program, eventually};
use crate::replicas::{CuttableProxy, Folders, QUIET, Redis, connected, start};
use crate::service::{CountingService, shared_source, value_uri};

const REPLICAS: usize = 3;

/// The number of resources of the service, of which one replica polls all, and whose contents the replicas share.
const VALUES: usize = 4;

/// The number of outputs of commands, which every replica polls and caches.
const OUTPUTS: usize = 2;

const RESOURCES: usize = VALUES + OUTPUTS;

/// Two clients at each replica, one of each era.
const CLIENTS: usize = 2 * REPLICAS;

/// The random numbers of a schedule (SplitMix64).
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn milliseconds(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// A fault, and when it ends.
struct ActiveFault {
    fault: Fault,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A replica was killed, and is started again.
    Killed(usize),
    /// Redis was killed, and is started again, empty.
    RedisKilled,
    /// A replica cannot reach Redis.
    Cut(usize),
    /// The process of a replica is stopped (`SIGSTOP`), and continues.
    Paused(usize),
    /// The process of Redis is stopped, and continues.
    RedisPaused,
    /// A replica cannot reach Redis, which meanwhile removes all entries of the stream.
    Trimmed(usize),
    /// Redis refuses writes, because its memory is full.
    WritesRefused,
}

impl Fault {
    /// Whether the end of one fault would end the other too, or disturb it.
    fn excludes(self, other: Self) -> bool {
        let target = |fault| match fault {
            Self::Killed(_) | Self::Paused(_) => 0,
            Self::Cut(_) | Self::Trimmed(_) => 1,
            Self::RedisKilled | Self::RedisPaused | Self::WritesRefused => 2,
        };
        target(self) == target(other)
    }
}

/// How long Redis may take for a command while it may be stopped.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// Three replicas of the same configuration. Each reaches Redis through a proxy.
struct ObservedCluster {
    redis: Redis,
    proxies: Vec<Arc<CuttableProxy>>,
    configs: Vec<PathBuf>,
    programs: Vec<Option<Program>>,
    urls: watch::Sender<ReplicaUrls>,
    service: Arc<CountingService>,
    outputs: tempfile::TempDir,
    history: Arc<History>,
    /// The version of each resource: first the values, then the outputs.
    versions: [u64; RESOURCES],
    _folders: Folders,
}

fn output_uri(number: usize) -> String {
    format!("output://{number}")
}

fn resource_uri(number: usize) -> String {
    if number < VALUES { value_uri(number) } else { output_uri(number - VALUES) }
}

impl ObservedCluster {
    async fn start() -> Self {
        let redis = Redis::start().await;
        let folders = Folders::new(1);
        let (service, url) = CountingService::start().await;
        let outputs = tempfile::tempdir().unwrap();
        let (mut proxies, mut configs) = (Vec::new(), Vec::new());
        for replica in 0..REPLICAS {
            let proxy = CuttableProxy::start(redis.address()).await;
            let mut sources = shared_source(&url, VALUES);
            for number in 0..OUTPUTS {
                let (uri, path) = (output_uri(number), outputs.path().join(number.to_string()));
                sources += &format!(
                    "\n[[command]]\nuri = \"{uri}\"\nrun = [\"cat\", \"{}\"]\ncache = \"1h\"\n\
                     poll = \"1s\"\n",
                    path.display()
                );
            }
            configs.push(folders.config(replica, &proxy.url(), &sources));
            proxies.push(proxy);
        }
        let mut cluster = Self {
            redis,
            proxies,
            configs,
            programs: (0..REPLICAS).map(|_| None).collect(),
            urls: watch::Sender::new(vec![None; REPLICAS]),
            service,
            outputs,
            history: Arc::new(History::new()),
            versions: [0; RESOURCES],
            _folders: folders,
        };
        (0..RESOURCES).for_each(|resource| cluster.write(resource));
        for replica in 0..REPLICAS {
            cluster.start_replica(replica);
        }
        cluster.wait_until_connected().await;
        cluster
    }

    fn start_replica(&mut self, replica: usize) {
        let program = start(&self.configs[replica]);
        self.urls.send_modify(|urls| urls[replica] = Some(program.url.clone()));
        self.programs[replica] = Some(program);
    }

    async fn wait_until_connected(&self) {
        for program in self.programs.iter().flatten() {
            connected(program).await;
        }
    }

    fn write(&mut self, resource: usize) {
        self.versions[resource] += 1;
        let version = self.versions[resource];
        self.history.record(RecordedEvent::Written { uri: resource_uri(resource), version });
        match resource.checked_sub(VALUES) {
            None => self.service.set(resource, version),
            Some(output) => {
                // Renamed into place, so that no command reads half of it.
                let new = self.outputs.path().join("new");
                std::fs::write(&new, version.to_string()).unwrap();
                std::fs::rename(new, self.outputs.path().join(output.to_string())).unwrap();
            }
        }
    }

    async fn begin(&mut self, fault: Fault) {
        self.history.record(RecordedEvent::Fault(format!("{fault:?} begins")));
        match fault {
            Fault::Killed(replica) => {
                self.urls.send_modify(|urls| urls[replica] = None);
                self.programs[replica] = None;
            }
            Fault::RedisKilled => self.redis.kill(),
            Fault::Cut(replica) | Fault::Trimmed(replica) => self.proxies[replica].cut(true),
            Fault::Paused(replica) => self.signal(replica, "STOP"),
            Fault::RedisPaused => self.redis.signal("STOP"),
            Fault::WritesRefused => self.command("CONFIG SET maxmemory 1").await,
        }
    }

    /// Sends a signal to a replica, if it is running.
    fn signal(&self, replica: usize, name: &str) {
        self.programs[replica].iter().for_each(|program| program.signal(name));
    }

    /// Sends a command to Redis, if it is running.
    async fn command(&self, command: &str) {
        // Fails without effect while Redis is killed; it starts without the setting and without the stream.
        let _ = timeout(COMMAND_TIMEOUT, self.redis.command(command)).await;
    }

    async fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Killed(replica) => self.start_replica(replica),
            Fault::RedisKilled => self.restart_redis().await,
            Fault::Cut(replica) => self.proxies[replica].cut(false),
            Fault::Paused(replica) => self.signal(replica, "CONT"),
            Fault::RedisPaused => self.redis.signal("CONT"),
            Fault::Trimmed(replica) => {
                self.command("XTRIM {libris}:changes MAXLEN 0").await;
                self.proxies[replica].cut(false);
            }
            Fault::WritesRefused => self.command("CONFIG SET maxmemory 0").await,
        }
        self.history.record(RecordedEvent::Fault(format!("{fault:?} ended")));
    }

    async fn restart_redis(&mut self) {
        let deadline = Instant::now() + DEADLINE;
        // Another program may use its port for a moment.
        while !self.redis.run().await {
            assert!(Instant::now() < deadline, "redis-server does not start again");
        }
    }

    /// Writes and faults for this long; all faults have ended when it returns.
    async fn disturb(&mut self, random: &mut RandomNumbers, length: Duration) {
        let end = Instant::now() + length;
        let mut active: Vec<ActiveFault> = Vec::new();
        while Instant::now() < end || !active.is_empty() {
            let is_over = Instant::now() >= end;
            let (ended, rest): (Vec<_>, Vec<_>) =
                active.into_iter().partition(|active| is_over || Instant::now() >= active.until);
            active = rest;
            for ActiveFault { fault, .. } in ended {
                self.end(fault).await;
            }
            if !is_over && active.len() < 2 && random.below(12) == 0 {
                let replica = random.below(REPLICAS as u64) as usize;
                let (fault, lasts) = match random.below(10) {
                    0 | 1 => (Fault::Killed(replica), random.milliseconds(200, 3_000)),
                    2 => (Fault::RedisKilled, random.milliseconds(50, 2_000)),
                    3 => (Fault::Paused(replica), random.milliseconds(200, 4_000)),
                    4 => (Fault::RedisPaused, random.milliseconds(200, 8_000)),
                    5 => (Fault::Trimmed(replica), random.milliseconds(500, 8_000)),
                    6 => (Fault::WritesRefused, random.milliseconds(500, 8_000)),
                    _ => (Fault::Cut(replica), random.milliseconds(500, 8_000)),
                };
                if !active.iter().any(|active| active.fault.excludes(fault)) {
                    self.begin(fault).await;
                    active.push(ActiveFault { fault, until: Instant::now() + lasts });
                }
            }
            if random.below(3) == 0 {
                self.write(random.below(RESOURCES as u64) as usize);
            }
            // The pace of the schedule; nothing depends on it.
            tokio::time::sleep(random.milliseconds(5, 60)).await;
        }
    }

    /// Waits until a replica polls the service for all: after the death of the one that did, nobody polls it for up to
    /// ten seconds, and the next one notifies everybody of each resource when it begins.
    async fn wait_until_polled(&self) {
        eventually("one replica polls the service", async || {
            let polled =
                self.programs.iter().flatten().map(|program| program.metric("cluster_polled_sources"));
            join_all(polled).await.iter().sum::<u64>() == 1
        })
        .await;
    }

    /// Waits until nobody has been notified for longer than lost changes are held back.
    async fn calm_down(&self) {
        self.wait_until_polled().await;
        let deadline = Instant::now() + DEADLINE;
        let is_notification =
            |operation: &&RecordedOperation| matches!(operation.event, RecordedEvent::Notified { .. });
        loop {
            let last = self.history.operations().iter().rev().find(is_notification).map(|last| last.at);
            if last.is_none_or(|last| self.history.now() - last > QUIET) {
                break self.history.record(RecordedEvent::Calm);
            }
            assert!(Instant::now() < deadline, "clients are notified without end");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until every client has the last version of every resource.
    async fn converge(&self, seed: u64) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let operations = self.history.operations();
            let found = violations(&operations, CLIENTS);
            if found.is_empty() {
                return;
            }
            // What a replica returned cannot be mended.
            let is_final = found.iter().any(|found| matches!(found, Violation::Regression { .. }));
            if is_final || Instant::now() > deadline {
                for operation in &operations {
                    eprintln!("{:?} {:?}", operation.at, operation.event);
                }
                let found: Vec<_> = found.iter().map(ToString::to_string).collect();
                panic!("seed {seed}: the history has violations:\n{}", found.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Runs a schedule and checks its history after each round.
async fn run(seed: u64, rounds: usize, length: Duration) {
    eprintln!("seed {seed}");
    let mut random = RandomNumbers(seed);
    let mut cluster = ObservedCluster::start().await;
    let uris: Vec<_> = (0..RESOURCES).map(resource_uri).collect();
    let observers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let era = if number < REPLICAS { Era::Modern } else { Era::Legacy };
            ReadingObserver::start(
                number,
                era,
                uris.clone(),
                cluster.urls.subscribe(),
                cluster.history.clone(),
            )
        })
        .collect();
    cluster.converge(seed).await;
    for _ in 0..rounds {
        cluster.disturb(&mut random, length).await;
        cluster.wait_until_connected().await;
        cluster.converge(seed).await;
        cluster.calm_down().await;
        // Without faults, of some resources: a change hides what was lost before.
        for resource in 0..RESOURCES {
            if random.below(2) == 0 {
                cluster.write(resource);
            }
        }
        cluster.converge(seed).await;
    }
    let operations = cluster.history.operations();
    let count = |is_counted: fn(&RecordedEvent) -> bool| {
        operations.iter().filter(|operation| is_counted(&operation.event)).count()
    };
    eprintln!(
        "seed {seed}: {} writes, {} notifications, {} reads, {} faults begun or ended, {:?}",
        count(|event| matches!(event, RecordedEvent::Written { .. })),
        count(|event| matches!(event, RecordedEvent::Notified { .. })),
        count(|event| matches!(event, RecordedEvent::Read { .. })),
        count(|event| matches!(event, RecordedEvent::Fault(_))),
        cluster.history.now(),
    );
    drop(observers);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_history_with_faults_has_no_lost_notice_and_no_stale_read() {
    run(1, 2, Duration::from_secs(4)).await;
}

/// Twenty random schedules, which take many minutes: `cargo test --test cluster twenty -- --ignored --nocapture`. Set
/// `LIBRIS_SEED` to begin with a certain one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes many minutes"]
async fn needs_redis_twenty_histories_with_random_faults_are_right() {
    let given = std::env::var("LIBRIS_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let first: u64 = given.unwrap_or(now);
    for seed in first..first + 20 {
        run(seed, 3, Duration::from_secs(10)).await;
    }
}
