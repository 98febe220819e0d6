//! Faults must not cause a panic, a hang or a leak.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::client::{Client, DEADLINE, Era, Program, eventually};

fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::Builder::new().prefix("faults").tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "a").unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let mount = format!("file:///{}/", folder.path().file_name().unwrap().to_str().unwrap());
    (folder, mount)
}

/// Waits until all streams, subscriptions and watches are closed.
async fn nothing_is_left(program: &Program) {
    for name in ["listen_streams", "session_streams", "listeners", "subscriptions", "watches"] {
        eventually(name, async || program.metric(name).await == 0).await;
    }
    eventually("inotify watches", async || program.inotify_watches() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_killed_leaves_nothing_behind() {
    let (folder, mount) = folder();
    let program = Program::folder(folder.path());
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
            "notifications": {
                "resourcesListChanged": true, "resourceSubscriptions": [format!("{mount}a.txt")],
            },
        },
    });
    let body = body.to_string();
    let (address, path) = program.url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: subscriptions/listen\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // `exec` leaves one process with the connection, so that killing it closes the connection.
    let script = "exec 3<>\"/dev/tcp/${1/://}\"; printf %s \"$2\" >&3; exec cat <&3";
    let mut clients: Vec<_> = (0..8)
        .map(|_| {
            Command::new("bash")
                .args(["-c", script, "client", address, &request])
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    eventually("all listen", async || program.metric("listen_streams").await == 8).await;
    assert!(program.inotify_watches() >= 2);
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    nothing_is_left(&program).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_told_to_stop_ends_its_streams_well() {
    let (folder, mount) = folder();
    let mut program = Program::folder(folder.path());
    let modern = Client::connect(&program, Era::Modern, &[format!("{mount}a.txt")]).await;
    let legacy = Client::connect(&program, Era::Legacy, &[format!("{mount}a.txt")]).await;
    program.signal("TERM");
    eventually("the stream ends", async || modern.heard.lock().unwrap().ended.is_some()).await;
    let ended = modern.heard.lock().unwrap().ended.clone().unwrap();
    assert_eq!(ended["resultType"], "complete");
    assert_eq!(ended["_meta"], json!({ "io.modelcontextprotocol/subscriptionId": 1 }));
    drop(legacy);
    let waited = tokio::task::spawn_blocking(move || program.child.wait().map(|status| (status, program)));
    let (status, _program) = tokio::time::timeout(DEADLINE, waited).await.unwrap().unwrap().unwrap();
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_closed_and_opened_is_no_end() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, mount) = folder();
    let program = Program::folder(folder.path());
    let uris = [format!("{mount}a.txt"), format!("{mount}sub/b.txt")];
    let client = Client::connect(&program, Era::Modern, &uris).await;
    let sub = folder.path().join("sub");
    for mode in [0o000, 0o755] {
        std::fs::set_permissions(&sub, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::write(sub.join("b.txt"), "b").unwrap();
    eventually("a file in a folder that was closed is told", async || client.heard_of().contains(&uris[1]))
        .await;
    drop(client);
    nothing_is_left(&program).await;
}

/// A small tmpfs, if this process may mount one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("disk").tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs", folder.path().to_str().unwrap()])
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", self.0.path().to_str().unwrap()]).status();
    }
}

/// Writes until it fails: because the tmpfs is full or, without one, because of the file size limit.
fn write_too_much(folder: &Path) {
    let script = "ulimit -f 8192; exec dd if=/dev/zero of=a.txt bs=64k count=1024 2>/dev/null";
    let status = Command::new("sh").args(["-c", script]).current_dir(folder).status().unwrap();
    assert!(!status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_no_end() {
    let disk = Disk::new();
    let (plain, _) = folder();
    let path = disk.as_ref().map_or(plain.path(), |disk| disk.0.path());
    std::fs::write(path.join("a.txt"), "a").unwrap();
    let mount = format!("file:///{}/", path.file_name().unwrap().to_str().unwrap());
    let program = Program::folder(path);
    let uri = format!("{mount}a.txt");
    let client = Client::connect(&program, Era::Modern, std::slice::from_ref(&uri)).await;
    write_too_much(path);
    eventually("the torn file is told", async || client.heard_of().contains(&uri)).await;
    let torn = client.list().await[&uri].unwrap();
    assert!(torn > 1, "{torn} bytes");
    // After the write succeeds again, the resource recovers.
    std::fs::write(path.join("a.txt"), "again").unwrap();
    eventually("the mended file is told", async || {
        client.heard_of().contains(&uri) && client.list().await[&uri] == Some(5)
    })
    .await;
    assert_eq!(client.read(&uri).await.unwrap()[0]["text"], "again");
    drop(client);
    nothing_is_left(&program).await;
}
