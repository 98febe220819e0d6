//! The time from the revocation of an API key to the end of its streams, and from a new rule to the silence of streams.

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
use super::{CHANGING, Folder, change};
use crate::mcp::{self, Era};
use crate::program::{Binary, OverHttp};
use crate::report::{Aim, Report};

/// The number of streams of the key.
const STREAMS: usize = 1_000;

/// The time-out for the end of all streams.
const PATIENCE: Duration = Duration::from_secs(30);

/// The end of a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The notification about other rights, and the one about a change of a resource.
const LIST_CHANGED: &[u8] = b"notifications/resources/list_changed";
const UPDATED: &[u8] = b"notifications/resources/updated";

/// How long the streams are observed after the change of a hidden resource.
const SILENCE: Duration = Duration::from_secs(1);

/// A rule that allows everything, and one that hides the resource of the streams.
const ALLOW: &str = "[[rule]]\naction = \"allow\"\n";
const HIDE: &str = "[[rule]]\nuri = \"file:///data/changing.txt\"\naction = \"deny\"\n";

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
        open.spawn(received(stream, LAST_CHUNK));
    }
    // Measured from the start of the command, which changes the file before it ends.
    let began = Instant::now();
    manage(binary, "revoke", &keys)?;
    let (last, _) = last(open, began).await.context("not all streams of the key have ended")?;
    let name = format!("revocation of a key to the end of its {STREAMS} streams");
    report.judge(name, last.as_secs_f64() * 1e3, "ms", Aim::AtMost(1_000.0));
    Ok(())
}

/// Opens streams, and adds a rule that hides their resource.
pub(super) async fn hide(binary: &Binary, report: &mut Report) -> Result<()> {
    eprintln!("hiding the resource of {STREAMS} streams …");
    let folder = Folder::new()?;
    let (file, next) = (folder.root.path().join("libris.toml"), folder.root.path().join("next.toml"));
    let config = |rules: &str| format!("[[files]]\npath = \"data\"\n{rules}");
    std::fs::write(&file, config(ALLOW))?;
    let mut command = binary.configured(&file);
    command.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let server = OverHttp::listening(command.spawn().context("could not start libris")?, "libris")?;
    let mut listen = mcp::listen(CHANGING);
    listen["params"]["notifications"]["resourcesListChanged"] = true.into();
    let request = Era::Modern.posted(server.address, None, &listen);
    let mut open = JoinSet::new();
    for _ in 0..STREAMS {
        let stream = streams::listen(server.address, Ipv4Addr::LOCALHOST.into(), &request).await?;
        open.spawn(received(stream, LIST_CHANGED));
    }
    // Replaced at once, because a reload may read a file that is written in part.
    std::fs::write(&next, config(&format!("{HIDE}{ALLOW}")))?;
    let began = Instant::now();
    std::fs::rename(&next, &file)?;
    let (last, streams) = last(open, began).await.context("not all streams were notified")?;
    change(&folder.changing(), 1)?;
    tokio::time::sleep(SILENCE).await;
    for stream in &streams {
        let mut more = [0; 1024];
        let count = stream.try_read(&mut more).unwrap_or_default();
        let told = memmem::find(&more[..count], UPDATED).is_some();
        ensure!(!told, "a stream was notified of a change of the hidden resource");
    }
    let name = format!("new rule to the silence of {STREAMS} streams about what it hides");
    report.judge(name, last.as_secs_f64() * 1e3, "ms", Aim::AtMost(1_000.0));
    Ok(())
}

/// How long after `since` the last task was done, and the streams.
async fn last(
    mut tasks: JoinSet<Result<(Instant, TcpStream)>>,
    since: Instant,
) -> Result<(Duration, Vec<TcpStream>)> {
    let (mut last, mut streams) = (Duration::ZERO, Vec::new());
    let all = async {
        while let Some(done) = tasks.join_next().await {
            let (at, stream) = done??;
            last = last.max(at.saturating_duration_since(since));
            streams.push(stream);
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::time::timeout(PATIENCE, all).await??;
    Ok((last, streams))
}

/// Adds or revokes the key, and returns what the command prints.
fn manage(binary: &Binary, what: &str, keys: &Path) -> Result<String> {
    let output = Command::new(binary.path()).args(["key", what, "bench", "--keys"]).arg(keys).output()?;
    ensure!(output.status.success(), "`libris key {what}` failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// When a stream has received this text; the last chunk is as good as the end of the connection.
async fn received(mut stream: TcpStream, text: &[u8]) -> Result<(Instant, TcpStream)> {
    let mut received = Vec::with_capacity(1024);
    loop {
        let count = stream.read_buf(&mut received).await?;
        if memmem::find(&received, text).is_some() || count == 0 && text == LAST_CHUNK {
            return Ok((Instant::now(), stream));
        }
        ensure!(count > 0, "a stream ended early");
    }
}
