//! Replicas on Redis: what a cached read and a change cost with one, two and three of them, and the arithmetic of many.

mod redis;
mod simulation;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use self::redis::RedisServer;
use crate::drive::http::Client;
use crate::drive::{Bounds, Nothing};
use crate::mcp::Era;
use crate::process::Computing;
use crate::program::{Binary, OverHttp};
use crate::report::{Aim, Report};
use crate::statistics::median;
use crate::table::{Cell, Table};

/// Replicas on Redis: cached reads and changes with one, two and three of them, and changes with up to a thousand
///
/// The thousand replicas are simulated: they are parts of this program, with real connections to Redis.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only the simulated replicas
    #[arg(long)]
    simulated: bool,
}

/// The connections of the client to each replica.
const CONNECTIONS: usize = 16;

/// The files of each replica, each of which changes once per round.
const FILES: usize = 500;

/// The most replicas.
const MOST: usize = 3;

/// How long changes may take to reach all replicas.
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers over folders of their own, with the same files. Changes are made in that of the first.
struct Replicas {
    servers: Vec<OverHttp>,
    folder: TempDir,
}

/// What a number of replicas cost.
struct ClusterCost {
    replicas: usize,
    /// The CPU time of all replicas per cached read, in microseconds.
    read: f64,
    /// Redis operations per thousand cached reads.
    operations: f64,
    changes: Option<ChangeCost>,
}

/// What a change costs, in microseconds of CPU time.
struct ChangeCost {
    /// At the replica whose source changed.
    writer: f64,
    /// At each of the others; `None` if there are none.
    reader: Option<f64>,
    redis: f64,
    /// Redis operations per change.
    operations: f64,
}

/// Measures one process without Redis, one, two and three replicas, and simulated ones.
pub(crate) fn run(options: &Options, quick: bool, binary: &Binary, report: &mut Report) -> Result<()> {
    if options.simulated {
        return simulation::run(quick, report);
    }
    let redis = RedisServer::start()?;
    let (rounds, requests) = if quick { (2, 1_000) } else { (9, 20_000) };
    let bounds = Bounds { requests, time: Duration::from_secs(5) };
    let mut clusters = Vec::new();
    for count in 0..=MOST {
        clusters.push(MeasuredCluster::start(binary, count, &redis, bounds)?);
    }
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds} with 0 to {MOST} replicas …");
        // In turns, so that other load on this machine concerns all alike.
        for cluster in &mut clusters {
            cluster.measure_reads(&redis, bounds)?;
        }
        for cluster in clusters.iter_mut().filter(|cluster| cluster.count > 0) {
            cluster.measure_changes(&redis, round)?;
        }
    }
    let costs: Vec<_> = clusters.into_iter().map(MeasuredCluster::cost).collect();
    report.table(table(&costs));
    let alone = costs[0].read;
    for cost in &costs[1..] {
        let name = format!("cached read with {} ÷ without Redis", cost.replicas);
        report.judge(name, cost.read / alone, "×", Aim::AtMost(1.05));
        let name = format!("Redis operations per 1,000 cached reads with {}", cost.replicas);
        report.judge(name, cost.operations, "", Aim::AtMost(0.0));
    }
    simulation::run(quick, report)
}

fn table(costs: &[ClusterCost]) -> Table {
    let columns = [
        "replicas",
        "cached read, µs",
        "change at its replica, µs",
        "change at each other replica, µs",
        "change in Redis, µs",
        "Redis operations per change",
    ];
    let mut table = Table::new("CPU time of replicas", columns);
    for cost in costs {
        let replicas = match cost.replicas {
            0 => "1, without Redis".to_owned(),
            count => count.to_string(),
        };
        let change = |part: fn(&ChangeCost) -> Option<f64>| Cell::from(cost.changes.as_ref().and_then(part));
        table.row([
            Cell::Text(replicas),
            cost.read.into(),
            change(|cost| Some(cost.writer)),
            change(|cost| cost.reader),
            change(|cost| Some(cost.redis)),
            change(|cost| Some(cost.operations)),
        ]);
    }
    table
}

impl Replicas {
    /// Starts this many replicas; with 0 a single process without Redis.
    fn start(binary: &Binary, count: usize, redis: &RedisServer) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut replicas = Self { servers: Vec::new(), folder };
        let cluster = match count {
            0 => String::new(),
            count => format!("[cluster]\nredis = \"{}\"\nprefix = \"bench-{count}\"\n", redis.url()),
        };
        for number in 0..count.max(1) {
            std::fs::create_dir_all(replicas.data(number))?;
            (0..FILES).try_for_each(|file| replicas.write(number, file, 0))?;
            let config = replicas.folder.path().join(format!("{number}/libris.toml"));
            std::fs::write(&config, format!("{cluster}[[files]]\npath = \"data\"\n"))?;
            let mut command = binary.configured(&config);
            let command = command.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped());
            let child = command.spawn().context("could not start libris")?;
            replicas.servers.push(OverHttp::listening(child, "libris")?);
        }
        if count > 0 {
            replicas.wait("the replicas are connected", |all| {
                Ok(all.metrics("cluster_connected")?.iter().all(|connected| *connected == 1)
                    && all.metrics("cluster_published_total")?.iter().all(|published| *published > 0))
            })?;
        }
        // Stamps of files are trusted two seconds after the last change.
        std::thread::sleep(Duration::from_secs(3));
        Ok(replicas)
    }

    fn data(&self, replica: usize) -> PathBuf {
        self.folder.path().join(format!("{replica}/data"))
    }

    /// Writes 1 KiB, so that the list stays as it is.
    fn write(&self, replica: usize, file: usize, value: usize) -> Result<()> {
        let path = self.data(replica).join(format!("{file:04}.txt"));
        std::fs::write(path, format!("{value:01024}")).context("could not change a file")
    }

    /// A metric of each replica.
    fn metrics(&self, name: &str) -> Result<Vec<u64>> {
        self.servers.iter().map(|server| metric(server, name)).collect()
    }

    fn wait(&self, what: &str, is_done: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !is_done(self)? {
            ensure!(begun.elapsed() < PATIENCE, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn computing(&self) -> Result<Vec<Computing>> {
        self.servers.iter().map(|server| Computing::of(server.id())).collect()
    }

    /// The changes that the first replica has published.
    fn published(&self) -> Result<u64> {
        metric(&self.servers[0], "cluster_published_total")
    }
}

/// Replicas, and what was measured with them so far.
struct MeasuredCluster {
    /// The number of replicas; 0 for a single process without Redis.
    count: usize,
    replicas: Replicas,
    /// A client of each replica.
    clients: Vec<Client>,
    /// The CPU time of all replicas per cached read, in microseconds, in each round.
    reads: Vec<f64>,
    /// All requests, and the Redis operations meanwhile.
    requests: u64,
    operations: u64,
    /// The parts of [`ChangeCost`], in each round.
    changes: [Vec<f64>; 4],
}

impl MeasuredCluster {
    fn start(binary: &Binary, count: usize, redis: &RedisServer, bounds: Bounds) -> Result<Self> {
        let replicas = Replicas::start(binary, count, redis)?;
        let read = Era::Modern.read("file:///data/0007.txt");
        let mut clients = Vec::new();
        for server in &replicas.servers {
            let mut client = Client::open(server, Era::Modern, CONNECTIONS, |_| Ok(None), |_| read.clone())?;
            let answer = client.look(0)?;
            ensure!(answer["result"].is_object(), "{answer}");
            client.slice(Bounds { requests: 200, ..bounds }, &mut Nothing)?;
            clients.push(client);
        }
        let (reads, changes) = (Vec::new(), Default::default());
        Ok(Self { count, replicas, clients, reads, requests: 0, operations: 0, changes })
    }

    /// One round of cached reads.
    fn measure_reads(&mut self, redis: &RedisServer, bounds: Bounds) -> Result<()> {
        for client in &mut self.clients {
            // The changes of the last round have ended the cached responses.
            client.slice(Bounds { requests: 200, ..bounds }, &mut Nothing)?;
        }
        let (before, commands) = (self.replicas.computing()?, redis.commands()?);
        let mut requests = 0;
        for client in &mut self.clients {
            requests += client.slice(bounds, &mut Nothing)?.requests;
        }
        let computed = total(&self.replicas.computing()?, &before);
        self.reads.push(microseconds(computed) / requests as f64);
        self.requests += requests as u64;
        self.operations += redis.commands()? - commands;
        Ok(())
    }

    /// One round of changes in the folder of the first replica.
    fn measure_changes(&mut self, redis: &RedisServer, round: usize) -> Result<()> {
        let Self { replicas, changes: costs, .. } = self;
        let (published, received) = (replicas.published()?, replicas.metrics("cluster_received_total")?);
        let (before, redis_before) = (replicas.computing()?, Computing::of(redis.id())?);
        let commands = redis.commands()?;
        (0..FILES).try_for_each(|file| replicas.write(0, file, round))?;
        replicas.wait("the changes reach all replicas", |all| {
            let changes = all.published()? - published;
            let now = all.metrics("cluster_received_total")?;
            let mut others = now.iter().zip(&received).skip(1);
            Ok(changes >= FILES as u64 && others.all(|(now, before)| now - before >= changes))
        })?;
        let changes = (replicas.published()? - published) as f64;
        let after = replicas.computing()?;
        costs[0].push(microseconds(after[0].since(&before[0])) / changes);
        if after.len() > 1 {
            let others = microseconds(total(&after[1..], &before[1..])) / (after.len() - 1) as f64;
            costs[1].push(others / changes);
        }
        costs[2].push(microseconds(Computing::of(redis.id())?.since(&redis_before)) / changes);
        costs[3].push((redis.commands()? - commands) as f64 / changes);
        // Stamps of files are trusted two seconds after the last change.
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    }

    fn cost(self) -> ClusterCost {
        let [writer, reader, redis, operations] = self.changes;
        let changes = (self.count > 0).then(|| ChangeCost {
            writer: median(writer),
            reader: (!reader.is_empty()).then(|| median(reader)),
            redis: median(redis),
            operations: median(operations),
        });
        let operations = self.operations as f64 * 1e3 / self.requests as f64;
        ClusterCost { replicas: self.count, read: median(self.reads), operations, changes }
    }
}

fn total(after: &[Computing], before: &[Computing]) -> Duration {
    after.iter().zip(before).map(|(after, before)| after.since(before)).sum()
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn metric(server: &OverHttp, name: &str) -> Result<u64> {
    let mut stream = TcpStream::connect(server.address).context("could not connect")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address);
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let prefix = format!("libris_{name} ");
    let value = answer.lines().find_map(|line| line.strip_prefix(&prefix)?.trim().parse().ok());
    // A replica has no metrics of the cluster in its first milliseconds.
    Ok(value.unwrap_or_default())
}
