//! The time from the revocation of an API key to the end of its streams.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::streams;
use super::{CHANGING, Folder};
use crate::mcp::{self, Era};
use crate::program::{Binary, OverHttp};
use crate::report::{Aim, Report};

/// The number of streams of the key.
const STREAMS: usize = 1_000;

/// The time-out for the end of all streams.
const PATIENCE: Duration = Duration::from_secs(30);

/// The end of a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Opens streams with a key, and revokes it.
pub(super) async fn run(binary: &Binary, report: &mut Report) -> Result<()> {
    eprintln!("revoking the key of {STREAMS} streams …");
    let folder = Folder::new()?;
    let keys = folder.root.path().join("keys.toml");
    let key = manage(binary, "add", &keys)?;
    let mut command = binary.command(&folder.path());
    command.args(["--http", "127.0.0.1:0", "--keys"]).arg(&keys).stderr(Stdio::piped());
    let server = OverHttp::listening(command.spawn().context("could not start libris")?, "libris")?;
    let listen = mcp::listen(CHANGING);
    let request = Era::Modern.posted_with_token(server.address, None, Some(&key), &listen);
    let mut open = JoinSet::new();
    for _ in 0..STREAMS {
        let stream = streams::listen(server.address, Ipv4Addr::LOCALHOST.into(), &request).await?;
        open.spawn(ended(stream));
    }
    manage(binary, "revoke", &keys)?;
    let revoked = Instant::now();
    let mut last = Duration::ZERO;
    let all = async {
        while let Some(at) = open.join_next().await {
            last = last.max(at??.saturating_duration_since(revoked));
        }
        Ok::<_, anyhow::Error>(())
    };
    let in_time = tokio::time::timeout(PATIENCE, all).await;
    in_time.context("not all streams of the revoked key have ended")??;
    let name = format!("revocation of a key to the end of its {STREAMS} streams");
    report.judge(name, last.as_secs_f64() * 1e3, "ms", Aim::AtMost(1_000.0));
    Ok(())
}

/// Adds or revokes the key, and returns what the command prints.
fn manage(binary: &Binary, what: &str, keys: &Path) -> Result<String> {
    let output = Command::new(binary.path()).args(["key", what, "bench", "--keys"]).arg(keys).output()?;
    ensure!(output.status.success(), "`libris key {what}` failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// When a stream ends.
async fn ended(mut stream: TcpStream) -> Result<Instant> {
    let mut received = Vec::with_capacity(1024);
    loop {
        let count = stream.read_buf(&mut received).await?;
        if count == 0 || memmem::find(&received, LAST_CHUNK).is_some() {
            return Ok(Instant::now());
        }
    }
}
