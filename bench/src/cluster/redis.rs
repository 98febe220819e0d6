//! A Redis server that stores nothing on disk, and what it has executed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

/// How long Redis may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Attempts to start it: another program may take the free port first.
const ATTEMPTS: usize = 5;

/// A Redis server, until this is dropped.
pub(super) struct RedisServer {
    address: SocketAddr,
    process: Child,
    _folder: TempDir,
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl RedisServer {
    pub(super) fn start() -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let folder = tempfile::tempdir()?;
            let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
            let process = Command::new("redis-server")
                .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--appendonly", "no", "--dir"])
                .arg(folder.path())
                .stdout(Stdio::null())
                .spawn()
                .context("could not start `redis-server`\nhint: install Redis")?;
            let mut server = Self { address, process, _folder: folder };
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && server.process.try_wait()?.is_none() {
                if server.ask("PING").is_ok_and(|answer| answer.starts_with("+PONG")) {
                    return Ok(server);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        bail!("redis-server does not start")
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The id of its process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The number of commands that it has executed, without those of idle replicas: they wait for entries of the stream,
    /// and probe with `SETEX` whether Redis accepts writes.
    pub(super) fn commands(&self) -> Result<u64> {
        let stats = self.ask("INFO commandstats")?;
        ensure!(stats.contains("cmdstat_"), "Redis does not count its commands");
        Ok(count(&stats))
    }

    /// What it has done since it started.
    pub(super) fn figures(&self) -> Result<RedisFigures> {
        let info = self.ask("INFO everything")?;
        let stats = RedisStats(&info);
        Ok(RedisFigures {
            taken: Instant::now(),
            connections: stats.value("connected_clients").context("Redis does not count its connections")?,
            operations: stats
                .value("total_commands_processed")
                .context("Redis does not count its commands")?,
            bytes_sent: stats.value("total_net_output_bytes").context("Redis does not count its bytes")?,
            stream_operations: ["multi", "xadd", "exec", "xread"].map(|name| stats.calls(name)).iter().sum(),
            entries: stats.calls("xadd"),
            size: info.len() as u64,
        })
    }

    fn ask(&self, command: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // Redis closes the connection after the answer to the second command.
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Counters of a Redis server.
pub(super) struct RedisFigures {
    /// When they were counted.
    pub(super) taken: Instant,
    pub(super) connections: u64,
    /// All operations, with those of scripts.
    pub(super) operations: u64,
    pub(super) bytes_sent: u64,
    /// The operations by which changes are written and read.
    pub(super) stream_operations: u64,
    /// The entries that were written to streams.
    pub(super) entries: u64,
    /// The bytes of the response with these figures, which `bytes_sent` does not include.
    pub(super) size: u64,
}

/// The lines of `INFO`.
struct RedisStats<'a>(&'a str);

impl RedisStats<'_> {
    fn value(&self, name: &str) -> Option<u64> {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().parse().ok()
    }

    /// How often a command was executed.
    fn calls(&self, name: &str) -> u64 {
        let prefix = format!("cmdstat_{name}:calls=");
        let calls = self.0.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
        calls.and_then(|calls| calls.parse().ok()).unwrap_or_default()
    }
}

fn count(stats: &str) -> u64 {
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse::<u64>().ok()?;
        (!["info", "ping", "quit", "setex", "xread"].contains(&name)).then_some(calls)
    };
    stats.lines().filter_map(calls).sum()
}

#[cfg(test)]
mod tests {
    use super::{RedisStats, count};

    #[test]
    fn figures_are_read_from_their_lines() {
        let stats = RedisStats("# Clients\r\nconnected_clients:7\r\ncmdstat_xadd:calls=3,usec=9\r\n");
        assert_eq!((stats.value("connected_clients"), stats.value("clients")), (Some(7), None));
        assert_eq!((stats.calls("xadd"), stats.calls("xread")), (3, 0));
    }

    #[test]
    fn commands_are_counted_without_those_that_wait_or_measure() {
        let stats = "$120\r\n# Commandstats\r\ncmdstat_xadd:calls=7,usec=9\r\ncmdstat_xread:calls=100,usec=1\r\n\
                     cmdstat_info:calls=3,usec=1\r\ncmdstat_setex:calls=5,usec=1\r\ncmdstat_multi:calls=2,usec=1\r\n+OK\r\n";
        assert_eq!(count(stats), 9);
    }
}
