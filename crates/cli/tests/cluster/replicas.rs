//! Redis, a proxy in front of it whose network can be cut, and replicas.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::client::{Client, DEADLINE, Program, eventually};

/// A Redis server that stores nothing on disk, so that it is empty after a restart.
pub(crate) struct Redis {
    port: u16,
    folder: tempfile::TempDir,
    process: Option<Child>,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        for _ in 0..10 {
            // Another program may take the port before Redis does.
            let port = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut redis = Self { port, folder: tempfile::tempdir().unwrap(), process: None };
            if redis.run().await {
                return redis;
            }
        }
        panic!("redis-server does not start");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Starts the server on its port; returns whether it answers.
    pub(crate) async fn run(&mut self) -> bool {
        let process = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(self.folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server starts");
        self.process = Some(process);
        let answers = async {
            loop {
                if self.process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some()) {
                    return false;
                }
                if let Ok(answer) = self.command("PING").await
                    && answer.starts_with("+PONG")
                {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, answers).await.unwrap()
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Sends a signal to the server, if it is running.
    pub(crate) fn signal(&self, name: &str) {
        if let Some(process) = &self.process {
            let id = process.id().to_string();
            assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
        }
    }

    /// The beginning of the answer to a command without arguments that contain spaces.
    pub(crate) async fn command(&self, text: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address()).await?;
        stream.write_all(format!("{text}\r\n").as_bytes()).await?;
        let mut answer = vec![0; 64 << 10];
        let mut length = 0;
        loop {
            let count = stream.read(&mut answer[length..]).await?;
            length += count;
            let text = String::from_utf8_lossy(&answer[..length]).into_owned();
            // A bulk string says how long it is.
            let expected = text.strip_prefix('$').and_then(|rest| rest.split_once("\r\n"));
            let is_whole = match expected {
                Some((size, body)) => size.parse::<i64>().unwrap() <= body.len() as i64,
                None => text.ends_with("\r\n"),
            };
            if count == 0 || is_whole {
                return Ok(text);
            }
        }
    }

    /// The file that `SAVE` writes.
    pub(crate) fn dump(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("dump.rdb")).unwrap()
    }

    /// The number of commands that Redis has processed, without those that only wait for entries.
    pub(crate) async fn commands(&self) -> u64 {
        let stats = self.command("INFO commandstats").await.unwrap();
        let calls = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = rest.split(',').next()?.parse::<u64>().ok()?;
            (!["info", "xread", "ping"].contains(&name)).then_some(calls)
        };
        stats.lines().filter_map(calls).sum()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A proxy whose connections can be cut: bytes no longer pass, and nobody is told.
pub(crate) struct CuttableProxy {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
}

impl CuttableProxy {
    pub(crate) async fn start(target: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_cut = watch::Sender::new(false);
        let cut = is_cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut open = cut.subscribe();
                tokio::spawn(async move {
                    if open.wait_for(|is_cut| !is_cut).await.is_err() {
                        return;
                    }
                    let Ok(server) = TcpStream::connect(target).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::select! {
                        () = forward(from_client, to_server, open.clone()) => {}
                        () = forward(from_server, to_client, open) => {}
                    }
                });
            }
        });
        Arc::new(Self { address, is_cut })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut open: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        if open.wait_for(|is_cut| !is_cut).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// The folders of the replicas, each with the same files.
pub(crate) struct Folders {
    root: tempfile::TempDir,
}

impl Folders {
    pub(crate) fn new(files: usize) -> Self {
        let folders = Self { root: tempfile::tempdir().unwrap() };
        for replica in 0..3 {
            std::fs::create_dir_all(folders.of(replica)).unwrap();
            (0..files).for_each(|file| folders.write(replica, file, "0"));
        }
        folders
    }

    pub(crate) fn of(&self, replica: usize) -> PathBuf {
        self.root.path().join(format!("{replica}/docs"))
    }

    /// Writes a file of one replica.
    pub(crate) fn write(&self, replica: usize, file: usize, text: &str) {
        std::fs::write(self.of(replica).join(format!("{file}.txt")), text).unwrap();
    }

    /// The configuration file of a replica.
    pub(crate) fn config(&self, replica: usize, redis: &str, more: &str) -> PathBuf {
        let path = self.root.path().join(format!("{replica}/libris.toml"));
        let config = format!("{more}\n[cluster]\nredis = \"{redis}\"\n\n[[files]]\npath = \"docs\"\n");
        std::fs::write(&path, config).unwrap();
        path
    }

    /// Starts a replica and waits until it is connected.
    pub(crate) async fn start(&self, replica: usize, redis: &str) -> Program {
        let program = start(&self.config(replica, redis, ""));
        connected(&program).await;
        program
    }
}

/// Waits until a client has heard nothing for longer than lost changes are held back. For a minute after a replica has
/// started, a new client is notified of everything, and a test must not take that for its change.
pub(crate) async fn settled(client: &Client) {
    let count = || {
        let heard = client.heard.lock().unwrap();
        heard.lists + heard.updates.values().sum::<usize>()
    };
    let (mut last, mut since) = (count(), Instant::now());
    eventually("the client hears nothing new", async || {
        if std::mem::replace(&mut last, count()) != last {
            since = Instant::now();
        }
        since.elapsed() > QUIET
    })
    .await;
    client.heard_of();
    client.heard_of_list();
}

/// The time after which no further notification is expected without a change.
pub(crate) const QUIET: Duration = Duration::from_secs(4);

pub(crate) fn uri(file: usize) -> String {
    format!("file:///docs/{file}.txt")
}

pub(crate) fn start(config: &Path) -> Program {
    Program::serve(&["--config", config.to_str().unwrap()])
}

/// Waits until a replica whose network is cut has given up its connection to the stream. It knows before that it is not
/// connected, because it cannot write.
pub(crate) async fn disconnected(program: &Program) {
    eventually("the cut is noticed", async || program.metric("cluster_connected").await == 0).await;
    tokio::time::sleep(READER_TIMEOUT).await;
}

/// Longer than a replica waits for a response when it reads the stream.
const READER_TIMEOUT: Duration = Duration::from_secs(6);

/// Waits until a replica is connected to Redis and watches its sources.
pub(crate) async fn connected(program: &Program) {
    eventually("the replica is connected", async || {
        program.metric("cluster_connected").await == 1 && program.metric("cluster_published_total").await > 0
    })
    .await;
}
