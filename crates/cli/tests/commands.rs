//! The examples of commands, read through the rmcp client.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{ReadResourceRequestParams, ResourceContents};
use rmcp::service::RunningService;
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceError, ServiceExt as _};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

type Client = RunningService<RoleClient, ()>;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/commands").join(name)
}

fn serve() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_libris"));
    command.arg("serve").kill_on_drop(true);
    command
}

async fn connect(config: &Path, environment: &[(&str, &str)]) -> Client {
    let mut command = serve();
    command.arg("--stdio").arg("--config").arg(config).envs(environment.iter().copied());
    ().serve(TokioChildProcess::new(command).expect("libris starts")).await.expect("a connection")
}

async fn read(client: &Client, uri: &str) -> Result<ResourceContents, ServiceError> {
    let mut read = client.read_resource(ReadResourceRequestParams::new(uri)).await?;
    assert_eq!(read.contents.len(), 1, "{uri}");
    Ok(read.contents.remove(0))
}

async fn text(client: &Client, uri: &str) -> String {
    match read(client, uri).await.expect(uri) {
        ResourceContents::TextResourceContents { text, .. } => text,
        other => panic!("{uri} is {other:?}"),
    }
}

/// An X server without a screen, on a free display number. It ends when the test drops it.
async fn screen() -> (Child, String) {
    let mut screen = Command::new("Xvfb")
        .args(["-displayfd", "1", "-screen", "0", "320x240x24", "-nolisten", "tcp"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("`Xvfb` starts; hint: install the package `xvfb`, or run ./test, which does");
    let mut said = BufReader::new(screen.stdout.take().expect("stdout")).lines();
    let number = said.next_line().await.expect("text").expect("the number of the display");
    (screen, format!(":{number}"))
}

/// `./test quick` skips this test by its name where `Xvfb` or `maim` is not installed.
#[tokio::test]
async fn the_screen_is_a_picture_needs_xvfb() {
    let (mut screen, display) = screen().await;
    let client = connect(&example("screen.toml"), &[("DISPLAY", &display)]).await;
    let listed = client.list_all_resources().await.expect("a list");
    let listed: Vec<_> = listed.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(listed, ["libris://index", "libris://status", "screen://localhost/display1"]);
    let ResourceContents::BlobResourceContents { blob, mime_type, uri, .. } =
        read(&client, listed[1]).await.expect("it reads")
    else {
        panic!("it is not a picture");
    };
    assert_eq!((uri.as_str(), mime_type.as_deref()), ("screen://localhost/display1", Some("image/png")));
    assert_eq!(size_of_picture(&STANDARD.decode(blob).expect("base64")), (320, 240));

    // Without an X server the read fails, and the error does not contain the program's messages.
    screen.kill().await.expect("it ends");
    let Err(ServiceError::McpError(error)) = read(&client, "screen://localhost/display1").await else {
        panic!("there is still a picture");
    };
    assert_eq!(error.message, "`screen://localhost/display1` is unavailable now");
    client.cancel().await.expect("a clean end");
}

/// Width and height of a PNG. Checks the length and checksum of all chunks.
fn size_of_picture(png: &[u8]) -> (u32, u32) {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    let mut rest = png.strip_prefix(b"\x89PNG\r\n\x1a\n").expect("a PNG");
    let mut size = None;
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let length = number(&rest[..4]) as usize;
        let (chunk, after) = rest[4..].split_at(4 + length);
        assert_eq!(number(&after[..4]), checksum(chunk));
        let (kind, data) = chunk.split_at(4);
        if kind == b"IHDR" {
            size = Some((number(&data[..4]), number(&data[4..8])));
        }
        kinds.push(kind.to_vec());
        rest = &after[4..];
    }
    assert!(kinds.contains(&b"IDAT".to_vec()));
    assert_eq!(kinds.last().map(Vec::as_slice), Some(&b"IEND"[..]));
    size.expect("a size")
}

/// The CRC-32 of PNG chunks.
fn checksum(data: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !data.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

#[tokio::test]
async fn the_calendar_is_read_by_year() {
    let client = connect(&example("calendar.toml"), &[]).await;
    insta::assert_snapshot!(text(&client, "calendar://events/2024").await, @r#"
    # 2024

    - **2024-01-02** Office closed
    - **2024-03-11 09:30–10:00 Europe/Paris** Planning, spring (Room 2), repeats: FREQ=WEEKLY;COUNT=4
    - **2024-06-28 15:00–17:00 UTC** Release of the long awaited version
    "#);
    let years = client.complete_resource_simple("calendar://events/{year}", "year", "20").await;
    assert_eq!(years.expect("a completion"), ["2024", "2025"]);
    for (uri, said) in [
        ("calendar://events/1999", "resource not found"),
        ("calendar://events/20%2224", "`year` must match `[0-9]{4}`"),
    ] {
        let Err(ServiceError::McpError(error)) = read(&client, uri).await else { panic!("{uri} was read") };
        assert_eq!(error.message.to_lowercase(), said, "{uri}");
    }
    client.cancel().await.expect("a clean end");
}

#[tokio::test]
async fn a_log_is_read_by_its_end() {
    let client = connect(&example("logs.toml"), &[]).await;
    let template = "log://files/{name}{?lines,bytes}";
    let names = client.complete_resource_simple(template, "name", "").await.expect("a completion");
    for name in names {
        let log = std::fs::read_to_string(Path::new("/var/log").join(&name)).unwrap_or_default();
        let Some(last) = log.lines().next_back() else { continue };
        assert_eq!(text(&client, &format!("log://files/{name}?lines=-1")).await.trim_end(), last);
        assert!(text(&client, &format!("log://files/{name}")).await.lines().count() <= 200);
    }
    assert!(read(&client, "log://files/..%2F..%2Fetc%2Fpasswd").await.is_err());
    assert!(read(&client, "log://files/missing.log").await.is_err());
    client.cancel().await.expect("a clean end");
}

#[tokio::test]
async fn nothing_runs_on_when_the_server_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("libris.toml");
    let run = "run = [\"sh\", \"-c\", \"echo $$ > pid; exec sleep 1000\"]\ntimeout = \"1h\"\n";
    std::fs::write(&config, format!("[[command]]\nuri = \"slow://x\"\n{run}")).expect("a file");
    let mut command = serve();
    let mut server = command
        .arg("--config")
        .arg(&config)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("libris starts");
    let ask = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"slow://x"}}
"#;
    let mut input = server.stdin.take().expect("stdin");
    tokio::io::AsyncWriteExt::write_all(&mut input, ask.as_bytes()).await.expect("it listens");
    let pid = loop_until(|| {
        std::fs::read_to_string(folder.path().join("pid")).ok().filter(|pid| pid.ends_with('\n'))
    })
    .await;
    let id = i32::try_from(server.id().expect("it runs")).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(id.expect("a number"), rustix::process::Signal::INT).expect("it hears");
    server.wait().await.expect("it ends");
    let stat = format!("/proc/{}/stat", pid.trim());
    loop_until(|| {
        let gone = std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        gone.then_some(())
    })
    .await;
}

/// Waits until `look` returns a value; panics after 20 seconds.
async fn loop_until<T>(look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it did not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process exists and is not a zombie.
fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(30), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Kills these processes when dropped, so that a failed test leaves none behind.
struct Processes(Vec<u32>);

impl Drop for Processes {
    fn drop(&mut self) {
        for id in self.0.iter().filter(|id| is_alive(**id)) {
            let _ = std::process::Command::new("kill").args(["-KILL", &id.to_string()]).status();
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn commands_end_with_a_server_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("libris.toml");
    let script = "sleep 600 & echo $$ $! > ids.tmp; mv ids.tmp ids; wait";
    std::fs::write(
        &config,
        format!("[[command]]\nuri = \"slow://it\"\nrun = [\"sh\", \"-c\", '{script}']\ntimeout = \"600s\"\n"),
    )
    .unwrap();
    let mut command = serve();
    command.arg("--stdio").arg("--config").arg(&config);
    let transport = TokioChildProcess::new(command).expect("libris starts");
    let server = transport.id().expect("it runs");
    let client = ().serve(transport).await.expect("a connection");
    let reading = tokio::spawn(async move { read(&client, "slow://it").await.map(|_| ()) });
    let ids = || {
        let text = std::fs::read_to_string(folder.path().join("ids")).unwrap_or_default();
        text.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>()
    };
    eventually("the command runs", || ids().len() == 2).await;
    let ids = Processes(ids());
    assert!(ids.0.iter().all(|id| is_alive(*id)));
    let status = std::process::Command::new("kill").args(["-KILL", &server.to_string()]).status();
    assert!(status.unwrap().success());
    eventually("the command and what it started end", || !ids.0.iter().any(|id| is_alive(*id))).await;
    assert!(reading.await.unwrap().is_err());
}
