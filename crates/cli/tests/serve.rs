//! How `libris serve` selects its transport, and what it logs.

#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::{Value, json};

/// A server that ends when it is dropped, and the lines of its standard error.
struct Server {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
}

impl Server {
    fn start(folder: &Path, arguments: &[&str], stdin: Stdio) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_libris"))
            .arg("serve")
            .args(arguments)
            .current_dir(folder)
            .env_remove("LIBRIS_LOG")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line of standard error that contains this text.
    fn said(&mut self, text: &str) -> String {
        let line = self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(text));
        line.unwrap_or_else(|| panic!("the server does not say `{text}`"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    folder
}

const NOTE: &str = "[[inline.resource]]\nuri = \"note://one\"\ntext = \"first\"\n";

/// Under systemd, and with `</dev/null`, no client can speak over standard input.
#[test]
fn http_is_served_if_standard_input_is_the_null_device() {
    let folder = folder(NOTE);
    let mut server = Server::start(folder.path(), &[], Stdio::null());
    let said = server.said("listening on http://127.0.0.1:");
    assert!(said.ends_with("/mcp"), "{said}");
    assert!(server.child.try_wait().unwrap().is_none());

    // A closed standard input is the same.
    let script = format!("exec '{}' serve <&-", env!("CARGO_BIN_EXE_libris"));
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    Server { child, lines }.said("listening on http://127.0.0.1:");
}

#[test]
fn a_free_port_is_selected_if_the_default_one_is_in_use() {
    let folder = folder(NOTE);
    // If this fails, another program uses the port, which is the same.
    let _taken = std::net::TcpListener::bind("127.0.0.1:4747");
    let mut server = Server::start(folder.path(), &[], Stdio::null());
    server.said("warning: the default port 4747 is in use, so a free one was selected");
    assert!(!server.said("listening on http://127.0.0.1:").contains(":4747"));
}

#[test]
fn stdio_is_served_over_a_pipe() {
    let folder = folder(NOTE);
    for arguments in [&[][..], &["--no-picker"][..], &["--stdio", "--no-picker"][..]] {
        let mut server = Server::start(folder.path(), arguments, Stdio::piped());
        drop(server.child.stdin.take());
        assert!(server.child.wait().unwrap().success(), "{arguments:?}");
        assert!(server.lines.next().is_none(), "{arguments:?}");
    }
}

/// Keys are for HTTP only: over stdio, the caller is the user who started the server.
#[test]
fn keys_select_http() {
    let folder = folder(NOTE);
    let added = Command::new(env!("CARGO_BIN_EXE_libris"))
        .args(["key", "add", "ci", "--keys", "keys.toml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(added.status.success(), "{added:?}");
    let mut server = Server::start(folder.path(), &["--keys", "keys.toml"], Stdio::piped());
    server.said("listening on http://127.0.0.1:");
}

#[test]
fn connecting_clients_and_slow_requests_are_logged() {
    let folder = folder("[[command]]\nuri = \"slow://nap\"\nrun = [\"sleep\", \"1.1\"]\n");
    let mut server = Server::start(folder.path(), &["--log", "info"], Stdio::piped());
    let mut input = server.child.stdin.take().unwrap();
    let mut send = |message: Value| writeln!(input, "{message}").unwrap();
    let client = json!({ "name": "inspector\u{1b}", "version": "1.2" });
    send(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client } }));
    send(json!({ "jsonrpc": "2.0", "id": 2, "method": "server/discover", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "3" } } } }));
    send(json!({ "jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": { "uri": "slow://nap" } }));
    // At the end of its input, the server answers the requests in progress and exits.
    drop(input);
    let lines: Vec<_> = server.lines.by_ref().map(Result::unwrap).collect();
    for expected in [
        "a client connected name=\"inspector\\u{1b}\" version=\"1.2\" revision=\"2025-06-18\"",
        "a client connected name=\"modern\" version=\"3\" revision=\"2026-07-28\"",
        "slow request method=\"resources/read\" uri=\"slow://nap\" milliseconds=",
    ] {
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:#?}");
    }
}
