//! Up to a thousand replicas in this process, on a real Redis: checks the arithmetic of the manual.
//!
//! Each replica has the parts of the program that changes pass through: a source, a catalog with its relay, the
//! subscriptions of a server, and the connections to Redis. Only the transport and its clients are missing: a task per
//! replica takes the notifications of one listener.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use async_trait::async_trait;
use futures_util::future::join_all;
use libris::uri_template::Specificity;
use libris::wire::http::{ClientUsage, SessionStore as _};
use libris::wire::{Caller, Listener, Notification, Service as _};
use libris::{
    Catalog, ChangeBus as _, Contents, Context, Error, FunctionSource, FunctionSourceHandle, Page,
    ResourceSpec, Server, Source, Uri,
};
use libris_cluster::{RedisCluster, RedisUrl};
use tokio::task::JoinHandle;

use super::redis::{RedisFigures, RedisServer};
use super::{PATIENCE, microseconds};
use crate::machine;
use crate::process::Computing;
use crate::report::{Aim, Report};
use crate::table::{Cell, Table};

/// The resources that each listener subscribes to.
const RESOURCES: usize = 20;

/// The bytes of a URI, as in the manual.
const URI_BYTES: usize = 80;

/// The bytes of an entry in a response besides the URIs of its changes, as in the manual.
const ENTRY_BYTES: usize = 125;

/// How long idle replicas are measured with and without rate limits.
const IDLE: Duration = Duration::from_secs(12);
const QUIET: Duration = Duration::from_secs(6);

/// The connections of a replica: reader, writer, leases and queries.
const CONNECTIONS: usize = 4;

/// What was measured with a number of replicas.
struct SimulatedCost {
    replicas: usize,
    connections: f64,
    /// Redis operations per second while nothing happens.
    idle: f64,
    single: BurstCost,
    batched: BurstCost,
    /// The CPU time of Redis per batch of one change, and of each replica per change, in microseconds.
    redis: f64,
    replica: f64,
    /// The longest time from a change to the last listener.
    delay: Duration,
}

/// What changes cost beside what the manual says.
struct BurstCost {
    batches: u64,
    operations: f64,
    expected_operations: f64,
    bytes: f64,
    expected_bytes: f64,
}

/// Measures a growing number of replicas.
pub(super) fn run(quick: bool, report: &mut Report) -> Result<()> {
    let counts: &[usize] = if quick { &[3, 30] } else { &[3, 30, 100, 1_000] };
    machine::raise_open_files(counts.iter().max().unwrap_or(&0) * CONNECTIONS + 100)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut costs = Vec::new();
    for count in counts {
        eprintln!("{count} simulated replicas …");
        costs.push(runtime.block_on(measure(*count))?);
    }
    report.table(table(&costs));
    for cost in &costs {
        for (name, burst) in [("single", &cost.single), ("batched", &cost.batched)] {
            let of = |what: &str| format!("{what} of {name} changes with {} ÷ the manual", cost.replicas);
            let (operations, bytes) =
                (burst.operations / burst.expected_operations, burst.bytes / burst.expected_bytes);
            report.judge(of("Redis operations"), operations, "×", Aim::AtMost(1.1));
            report.judge(of("bytes that Redis sends"), bytes, "×", Aim::AtMost(1.1));
        }
    }
    Ok(())
}

fn table(costs: &[SimulatedCost]) -> Table {
    let columns = [
        "replicas",
        "connections",
        "idle operations/s",
        "operations per change",
        "as in the manual",
        "bytes per change",
        "as in the manual",
        "changes per batch of 1,000",
        "bytes of these",
        "as in the manual",
        "CPU of Redis per change, µs",
        "CPU of each replica per change, µs",
        "last listener after, ms",
    ];
    let mut table = Table::new("Simulated replicas on Redis", columns);
    for cost in costs {
        let SimulatedCost { single, batched, .. } = cost;
        let per_batch = |value: f64| Cell::from(value / single.batches as f64);
        table.row([
            Cell::Text(cost.replicas.to_string()),
            cost.connections.into(),
            cost.idle.into(),
            per_batch(single.operations),
            per_batch(single.expected_operations),
            per_batch(single.bytes),
            per_batch(single.expected_bytes),
            Cell::from(BURST as f64 / batched.batches as f64),
            batched.bytes.into(),
            batched.expected_bytes.into(),
            cost.redis.into(),
            cost.replica.into(),
            Cell::from(cost.delay.as_secs_f64() * 1e3),
        ]);
    }
    table
}

/// The number of replicas for which [`PATIENCE`] is meant.
const PATIENCE_REPLICAS: usize = 30;

/// Changes that are published one by one, and changes that are made at once.
const SINGLE: usize = 100;
const BURST: usize = 1_000;

async fn measure(count: usize) -> Result<SimulatedCost> {
    let redis = RedisServer::start()?;
    let url = redis.url();
    let mut replicas = Vec::with_capacity(count);
    for _ in 0..count {
        replicas.push(SimulatedReplica::start(&url).await?);
    }
    // Each reports at its start that it may have missed changes.
    wait("the replicas are connected", count, || {
        replicas.iter().all(|replica| replica.count("cluster_received_total") >= count - 1)
    })
    .await?;
    let idle = idle(&redis, &replicas).await?;
    let idle_bytes = idle_bytes(&redis).await?;
    let connections = redis.figures()?.connections as f64;
    ensure!(connections <= (count * CONNECTIONS) as f64 + 2.0, "{connections} connections");
    let this = std::process::id();
    let (before, computed, redis_computed) =
        (redis.figures()?, Computing::of(this)?, Computing::of(redis.id())?);
    let mut delay = Duration::ZERO;
    for number in 0..SINGLE {
        let changed = Instant::now();
        replicas[0].change(&[number % RESOURCES])?;
        wait("a change reaches every listener", count, || {
            replicas.iter().all(|replica| replica.heard_since(number % RESOURCES, changed))
        })
        .await?;
        delay = delay.max(changed.elapsed());
    }
    let after = redis.figures()?;
    let redis_cost = microseconds(Computing::of(redis.id())?.since(&redis_computed)) / SINGLE as f64;
    let replica_cost = microseconds(Computing::of(this)?.since(&computed)) / (SINGLE * count) as f64;
    let single = burst(&before, &after, count, SINGLE, idle_bytes);
    ensure!(single.batches == SINGLE as u64, "{} batches of {SINGLE} changes", single.batches);
    let before = redis.figures()?;
    let received: Vec<_> = replicas.iter().map(|replica| replica.count("cluster_received_total")).collect();
    let changed = Instant::now();
    // More resources than anybody subscribes to, so that each change is another line of an entry.
    let all: Vec<usize> = (0..BURST).collect();
    replicas[0].change(&all)?;
    wait("all changes reach every listener", count, || {
        let has_received = |(replica, before): (&SimulatedReplica, &usize)| {
            replica.count("cluster_received_total") >= before + BURST
        };
        replicas.iter().zip(&received).skip(1).all(has_received)
            && replicas
                .iter()
                .all(|replica| (0..RESOURCES).all(|number| replica.heard_since(number, changed)))
    })
    .await?;
    let batched = burst(&before, &redis.figures()?, count, BURST, idle_bytes);
    Ok(SimulatedCost {
        replicas: count,
        connections,
        idle,
        single,
        batched,
        redis: redis_cost,
        replica: replica_cost,
        delay,
    })
}

/// Redis operations per second of idle replicas, which exchange what clients used once a second, as with rate limits.
async fn idle(redis: &RedisServer, replicas: &[SimulatedReplica]) -> Result<f64> {
    // The first exchange opens a connection. If all replicas, which share the processors of this machine, do so at once,
    // it may take longer than a query may.
    let begun = Instant::now();
    for replica in replicas {
        while !replica.exchange_usage().await {
            ensure!(begun.elapsed() < PATIENCE, "not in time: every replica exchanges usage");
        }
    }
    let (before, begun) = (redis.figures()?, Instant::now());
    while begun.elapsed() < IDLE {
        let second = Instant::now();
        // A failed exchange is an operation too, and does not end the measurement.
        exchange_usage(replicas).await;
        tokio::time::sleep(Duration::from_secs(1).saturating_sub(second.elapsed())).await;
    }
    Ok((redis.figures()?.operations - before.operations) as f64 / begun.elapsed().as_secs_f64())
}

/// Exchanges the usage of clients at each replica. Returns for each whether Redis answered in time.
async fn exchange_usage(replicas: &[SimulatedReplica]) -> Vec<bool> {
    join_all(replicas.iter().map(SimulatedReplica::exchange_usage)).await
}

/// The bytes per second that Redis sends while nothing happens: leases, and answers without changes.
async fn idle_bytes(redis: &RedisServer) -> Result<f64> {
    let before = redis.figures()?;
    tokio::time::sleep(QUIET).await;
    let after = redis.figures()?;
    Ok((after.bytes_sent - before.bytes_sent - before.size) as f64
        / (after.taken - before.taken).as_secs_f64())
}

/// What Redis did for these changes, besides the bytes per second that it sends while nothing happens.
fn burst(
    before: &RedisFigures,
    after: &RedisFigures,
    replicas: usize,
    changes: usize,
    idle_bytes: f64,
) -> BurstCost {
    let batches = after.entries - before.entries;
    let sent = (after.bytes_sent - before.bytes_sent - before.size) as f64;
    BurstCost {
        batches,
        operations: (after.stream_operations - before.stream_operations) as f64,
        expected_operations: (batches * (3 + replicas as u64)) as f64,
        bytes: (sent - idle_bytes * (after.taken - before.taken).as_secs_f64()).max(0.0),
        expected_bytes: replicas as f64
            * (ENTRY_BYTES as f64 * batches as f64 + URI_BYTES as f64 * changes as f64),
    }
}

/// Waits for this many replicas, which share the processors of this machine.
async fn wait(what: &str, replicas: usize, is_done: impl Fn() -> bool) -> Result<()> {
    let (begun, patience) = (Instant::now(), PATIENCE * replicas.div_ceil(PATIENCE_REPLICAS) as u32);
    while !is_done() {
        ensure!(begun.elapsed() < patience, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn uri(number: usize) -> String {
    let scheme = "simulated://";
    format!("{scheme}{number:0width$}", width = URI_BYTES - scheme.len())
}

/// A replica without a transport.
struct SimulatedReplica {
    cluster: Arc<RedisCluster>,
    source: FunctionSourceHandle,
    /// When the listener last heard of each resource.
    heard: Arc<[Mutex<Option<Instant>>; RESOURCES]>,
    task: JoinHandle<()>,
    _server: Server,
}

impl Drop for SimulatedReplica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SimulatedReplica {
    async fn start(url: &str) -> Result<Self> {
        let config = libris_cluster::Config { redis: Some(RedisUrl::new(url)), ..Default::default() };
        let cluster = RedisCluster::start(&config)?;
        let functions = FunctionSource::new().template(ResourceSpec::new("simulated://{number}"), || "text");
        let source = functions.handle();
        let catalog = Arc::new(Catalog::new(vec![Arc::new(functions), Arc::new(PolledService)]));
        catalog.join_cluster(cluster.clone());
        let server = Server::new(catalog, libris::Config::default());
        let view = server.cached_view(&Caller::default()).context("anonymous callers are refused")?;
        let listener = view.listener(libris::cluster::Client::default()).map_err(failed)?;
        for number in 0..RESOURCES {
            listener.subscribe(&uri(number)).await.map_err(failed)?;
        }
        let heard: Arc<[Mutex<Option<Instant>>; RESOURCES]> =
            Arc::new(std::array::from_fn(|_| Mutex::default()));
        let task = tokio::spawn(listen(listener, heard.clone()));
        Ok(Self { cluster, source, heard, task, _server: server })
    }

    /// A gauge or counter of the connection to Redis.
    fn count(&self, name: &str) -> usize {
        self.cluster.counts().into_iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| count)
    }

    fn change(&self, numbers: &[usize]) -> Result<()> {
        numbers.iter().try_for_each(|number| self.source.updated(uri(*number)).map_err(anyhow::Error::from))
    }

    fn heard_since(&self, number: usize, when: Instant) -> bool {
        let heard = self.heard[number].lock().expect("no holder panics");
        heard.is_some_and(|heard| heard >= when)
    }

    /// Exchanges what clients used, as a transport with rate limits does. Returns whether Redis answered in time.
    async fn exchange_usage(&self) -> bool {
        let used = vec![ClientUsage { client: None, requests: 1, bytes: 1 }];
        self.cluster.exchange_usage(used).await.is_ok()
    }
}

fn failed(failure: libris::wire::Failure) -> anyhow::Error {
    anyhow!("{failure:?}")
}

async fn listen(listener: Arc<dyn Listener>, heard: Arc<[Mutex<Option<Instant>>; RESOURCES]>) {
    loop {
        if let Notification::Updated(updated) = listener.next().await
            && let Some(number) = updated.rsplit('/').next().and_then(|number| number.parse::<usize>().ok())
            && let Some(last) = heard.get(number)
        {
            *last.lock().expect("no holder panics") = Some(Instant::now());
        }
    }
}

/// A source that one replica polls for all, so that each replica renews leases.
struct PolledService;

#[async_trait]
impl Source for PolledService {
    fn covers(&self, _: &Uri) -> Option<Specificity> {
        None
    }

    fn name(&self) -> Cow<'_, str> {
        "service".into()
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> libris::Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _: &Context) -> libris::Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    fn polls_shared_service(&self) -> bool {
        true
    }
}
