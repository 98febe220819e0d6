//! Attacks on databases: abandoned queries, a huge value, and a lock held by another process.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FlockOperation, fcntl_lock};
use tokio::task::JoinSet;

use super::client::{ATTACKER, Client, Tally, crowd, outcome};
use super::probe::Series;
use super::site::Site;
use super::watch::Watch;
use super::{Outcome, Stage};
use crate::database_server::Server;
use crate::mcp::Era;

/// The example database, for attacks to which the contents do not matter.
const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/shop.db");

/// The size of the source's connection pool.
const POOL: usize = 4;

/// How long a client waits for a locked database before it disconnects.
const LEAVES_LOCKED: Duration = Duration::from_millis(50);

/// How long a client waits for a slow query before it disconnects. The query must have started by then.
const LEAVES_QUERY: Duration = Duration::from_millis(250);

/// How long the running queries of a database are counted after their clients have disconnected.
const COUNTED: Duration = Duration::from_secs(12);

/// Sends a read and disconnects after `patience`, usually before the response.
async fn abandon(address: SocketAddr, uri: &str, patience: Duration) -> String {
    let request = Era::Modern.posted(address, None, &Era::Modern.read(uri));
    match Client::open(address, ATTACKER).await {
        Ok(mut client) => outcome(&mut client, &request, patience).await,
        Err(_) => "not connected".to_owned(),
    }
}

/// A running database server, and a slow query for it.
struct Database {
    name: &'static str,
    server: Server,
    query: &'static str,
}

impl Database {
    /// Starts the database servers that are installed.
    fn start() -> Vec<Self> {
        let mut started = Vec::new();
        if Path::new("/usr/lib/postgresql").is_dir() {
            started.push(Self {
                name: "postgres",
                server: Server::postgres(),
                query: "SELECT pg_sleep(30)::text AS slept",
            });
        }
        if Path::new("/usr/sbin/mariadbd").is_file() {
            started.push(Self { name: "mysql", server: Server::mysql(), query: "SELECT SLEEP(30) AS slept" });
        }
        started
    }

    fn source(&self) -> String {
        format!(
            "[[sql]]\nurl = \"{}\"\nname = \"{}\"\nconnections = {POOL}\n\n\
             [[sql.query]]\nuri = \"slow-{}://now\"\nsql = \"{}\"\n",
            self.server.url(self.name),
            self.name,
            self.name,
            self.query
        )
    }

    /// The number of client connections, and how many of them run a slow query.
    fn connections(&self) -> Result<(usize, usize)> {
        let url = self.server.url(self.name);
        let port = url.split(':').nth(2).and_then(|rest| rest.split('/').next()).context("no port")?;
        let output = if self.name == "postgres" {
            let sql = "SELECT count(*), count(*) FILTER (WHERE query LIKE '%pg_sleep%' AND state = 'active') \
                       FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
            Command::new("psql").args([&url, "-At", "-F", "\t", "-c", sql]).output()
        } else {
            let sql = "SELECT COUNT(*), COALESCE(SUM(INFO LIKE '%SLEEP(30)%'), 0) \
                       FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND USER <> 'system user'";
            Command::new("mariadb").args(["-h127.0.0.1", "-uroot", "-P", port, "-N", "-e", sql]).output()
        };
        let output = output.context("could not run the client of a database")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut numbers = text.split_whitespace().map(str::parse);
        let (Some(Ok(all)), Some(Ok(slow))) = (numbers.next(), numbers.next()) else {
            anyhow::bail!("a database said {}", String::from_utf8_lossy(&output.stderr));
        };
        Ok((all, slow))
    }
}

/// Starts slow queries whose clients disconnect at once, and counts the queries that still run.
pub(super) async fn abandoned(stage: &Stage<'_>) -> Result<Outcome> {
    let databases = tokio::task::spawn_blocking(Database::start).await?;
    if databases.is_empty() {
        return Ok(Outcome::skipped("neither PostgreSQL nor MariaDB is installed"));
    }
    let mut site = Site::new()?;
    databases.iter().for_each(|database| site.configure(&database.source()));
    let target = site.serve(stage)?;
    let watch = Watch::begin(&target).await?;
    let count = stage.scaled(48);
    let mut kinds = Tally::default();
    // In waves of the size of the pool, so that each query starts before its client disconnects.
    for wave in (0..count).step_by(POOL) {
        let mut asking = JoinSet::new();
        for database in &databases {
            for _ in wave..count.min(wave + POOL) {
                let (address, uri) = (target.address(), format!("slow-{}://now", database.name));
                asking.spawn(async move { abandon(address, &uri, LEAVES_QUERY).await });
            }
        }
        while let Some(kind) = asking.join_next().await {
            kinds.count(kind?);
        }
    }
    let mut most = vec![(0, 0); databases.len()];
    let begun = Instant::now();
    while begun.elapsed() < stage.time(COUNTED) {
        for (most, database) in most.iter_mut().zip(&databases) {
            let (all, slow) = database.connections()?;
            *most = (most.0.max(all), most.1.max(slow));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mut observed = format!("{count} reads each: {kinds}");
    for ((all, slow), database) in most.into_iter().zip(&databases) {
        let (_, left) = database.connections()?;
        let name = database.name;
        observed.push_str(&format!(
            "; {name}: at most {all} connections, {slow} slow queries, {left} at the end"
        ));
    }
    Ok(Outcome::new(watch.end().await?, observed))
}

/// Reads a query that returns one value of 900 MB, three times.
pub(super) async fn huge_value(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    std::fs::copy(SHOP, site.path().join("shop.db"))?;
    let half = stage.scaled(450_000_000);
    site.configure(&format!(
        "[[sql]]\nurl = \"sqlite:shop.db\"\ntimeout = \"3s\"\n\n\
         [[sql.query]]\nuri = \"db://huge\"\nsql = \"SELECT hex(zeroblob({half})) AS huge\"\n"
    ));
    let target = site.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let read = Era::Modern.posted(address, None, &Era::Modern.read("db://huge"));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.extend(crowd(address, 1, Duration::from_secs(30), |_| read.clone()).await?);
    }
    let reads: Series = outcomes.into_iter().collect();
    Ok(Outcome::new(watch.end().await?, format!("3 reads of {} MB: {reads}", half / 500_000)))
}

/// Reads a database that another process has locked, with clients that disconnect after a moment.
pub(super) async fn locked(stage: &Stage<'_>) -> Result<Outcome> {
    let mut site = Site::new()?;
    let file = site.path().join("shop.db");
    std::fs::copy(SHOP, &file)?;
    site.configure(&format!("[[sql]]\nurl = \"sqlite:shop.db\"\nconnections = {POOL}\n"));
    let target = site.serve(stage)?;
    let address = target.address();
    const ROWS: &str = "sqlite://shop/users/rows";
    let read = Era::Modern.posted(address, None, &Era::Modern.read(ROWS));
    let first = Client::open(address, ATTACKER).await?.ask(&read).await?.kind();
    ensure!(first == "ok", "a read before the lock gave {first}");
    // Locks the whole file, which includes the bytes that SQLite locks for its EXCLUSIVE lock.
    let lock = File::options().read(true).write(true).open(&file)?;
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).context("could not lock the database")?;
    let watch = Watch::begin(&target).await?;
    let count = stage.scaled(1_000);
    let mut readers = JoinSet::new();
    for reader in 0..20 {
        readers.spawn(async move {
            let mut kinds = Vec::new();
            for _ in (reader..count).step_by(20) {
                kinds.push(abandon(address, ROWS, LEAVES_LOCKED).await);
            }
            kinds
        });
    }
    let mut kinds = Tally::default();
    while let Some(kinds_of_one) = readers.join_next().await {
        kinds.extend(kinds_of_one?);
    }
    drop(lock);
    let again = crowd(address, 1, Duration::from_secs(20), |_| read.clone()).await?;
    let again: Series = again.into_iter().collect();
    let observed = format!("{count} reads: {kinds}; a read once it is unlocked: {again}");
    Ok(Outcome::new(watch.end().await?, observed))
}
