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

    /// The number of commands that it has executed, without those that wait for entries of the stream.
    pub(super) fn commands(&self) -> Result<u64> {
        let stats = self.ask("INFO commandstats")?;
        ensure!(stats.contains("cmdstat_"), "Redis does not count its commands");
        Ok(count(&stats))
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

fn count(stats: &str) -> u64 {
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse::<u64>().ok()?;
        (!["info", "ping", "quit", "xread"].contains(&name)).then_some(calls)
    };
    stats.lines().filter_map(calls).sum()
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn commands_are_counted_without_those_that_wait_or_measure() {
        let stats = "$120\r\n# Commandstats\r\ncmdstat_xadd:calls=7,usec=9\r\ncmdstat_xread:calls=100,usec=1\r\n\
                     cmdstat_info:calls=3,usec=1\r\ncmdstat_multi:calls=2,usec=1\r\n+OK\r\n";
        assert_eq!(count(stats), 9);
    }
}
