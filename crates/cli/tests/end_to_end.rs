//! The binary over stdio, in the newest revision.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn serve(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_libris"))
            .arg("serve")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn send(&mut self, line: &[u8]) {
        self.input.write_all(line).unwrap();
        self.input.write_all(b"\n").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|cause| panic!("{cause}: {line:?}"))
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(request(1, method, params).to_string().as_bytes());
        self.receive()
    }

    fn read(&mut self, uri: &str) -> Value {
        self.ask("resources/read", json!({ "uri": uri }))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(id: u32, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// The resident memory of a process, in MiB.
#[cfg(target_os = "linux")]
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn what_is_outside_stays_outside() {
    const CANARY: &str = "tweet";
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir_all(root.join("inner")).unwrap();
    std::fs::create_dir(folder.path().join("root-secret")).unwrap();
    std::fs::write(root.join("inner/a.txt"), "inside").unwrap();
    for outside in ["canary.txt", "root-secret/canary.txt"] {
        std::fs::write(folder.path().join(outside), CANARY).unwrap();
    }
    #[cfg(unix)]
    for (link, target) in [("file", "../canary.txt"), ("folder", "../root-secret"), ("up", "..")] {
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    let mut program = Program::serve(&[path(&root)]);
    assert_eq!(program.read("file:///root/inner/a.txt")["result"]["contents"][0]["text"], "inside");
    let absolute = format!("file://{}", path(&folder.path().join("canary.txt")));
    for uri in [
        "file:///root/../canary.txt",
        "file:///root/%2e%2e/canary.txt",
        "file:///root/..%2fcanary.txt",
        "file:///root/..%2Fcanary.txt",
        "file:///root/%2e%2e%2fcanary.txt",
        "file:///root/.%2e/canary.txt",
        "file:///root/%252e%252e/canary.txt",
        "file:///root/inner/../../canary.txt",
        "file:///root/..%5ccanary.txt",
        "file:///root/..;/canary.txt",
        "file:///root//../canary.txt",
        "file:///root/%00/../canary.txt",
        "file:///root/inner/a.txt%00",
        "file:///root-secret/canary.txt",
        "file:///root/..-secret/canary.txt",
        "file:///root/file",
        "file:///root/folder/canary.txt",
        "file:///root/folder/",
        "file:///root/up/canary.txt",
        "file:///root/up/root-secret/canary.txt",
        "file://root/../canary.txt",
        "file:/root/../canary.txt",
        "file:../canary.txt",
        "FILE:///ROOT/../canary.txt",
        "/etc/passwd",
        "file:///etc/passwd",
        "file:///root//etc/passwd",
        &absolute,
    ] {
        let answer = program.read(uri);
        assert_eq!(answer["error"]["code"], -32602, "{uri}: {answer}");
        assert!(!answer.to_string().contains(CANARY), "{uri}: {answer}");
    }
    let listed = program.ask("resources/list", json!({})).to_string();
    assert!(!listed.contains("canary") && !listed.contains("root/file"), "{listed}");
}

#[cfg(target_os = "linux")]
#[test]
fn answers_that_nobody_reads_cost_little() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
    std::fs::write(folder.path().join("big.txt"), "x".repeat(1 << 20)).unwrap();
    std::fs::write(folder.path().join("small.txt"), "small").unwrap();
    // The served folder itself may have a hidden name: those of temporary folders begin with a dot.
    let mut program = Program::serve(&[path(folder.path())]);
    program.read(&format!("file:///{name}/small.txt"));
    let uri = format!("file:///{name}/big.txt");
    let requests: String =
        (0..600).map(|id| request(id, "resources/read", json!({ "uri": uri })).to_string() + "\n").collect();
    std::thread::scope(|scope| {
        let Program { child, input, output } = &mut program;
        let id = child.id();
        // Blocks until the program is stopped, because most responses are not read.
        scope.spawn(move || input.write_all(requests.as_bytes()).is_ok());
        assert!(!output.fill_buf().unwrap().is_empty());
        // A server without backpressure would have read everything by then.
        std::thread::sleep(std::time::Duration::from_secs(1));
        let resident = resident(id);
        assert!(resident < 150, "{resident} MiB in use");
        for _ in 0..20 {
            let mut line = Vec::new();
            output.read_until(b'\n', &mut line).unwrap();
            assert!(line.len() > 1 << 20);
        }
        child.kill().unwrap();
    });
}

#[test]
fn input_that_is_no_message_does_not_end_the_program() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "text").unwrap();
    let mut program = Program::serve(&[path(folder.path())]);
    let garbage: Vec<u8> =
        (0..100_000u32).map(|n| (n * 31 % 251) as u8).filter(|&byte| byte != b'\n').collect();
    for (line, code) in [
        (&b"{"[..], -32700),
        (&garbage[..], -32700),
        (b"[]", -32600),
        (b"[[[[[[[[", -32700),
        (br#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#, -32602),
    ] {
        program.send(line);
        assert_eq!(program.receive()["error"]["code"], code);
        assert_eq!(program.ask("resources/list", json!({}))["id"], 1);
    }
    let deep = "[".repeat(100_000);
    program.send(deep.as_bytes());
    assert_eq!(program.receive()["error"]["code"], -32700);
    for _ in 0..100 {
        program.input.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    program.send(b"");
    assert_eq!(program.receive()["error"]["code"], -32600);
    assert_eq!(program.ask("server/discover", json!({}))["result"]["resultType"], "complete");
}

#[test]
fn a_forged_cursor_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Program::serve(&[path(folder.path())]);
    for cursor in ["", "x", "AAAA", "eyJwYWdlIjogMn0="] {
        for method in ["resources/list", "resources/templates/list"] {
            let answer = program.ask(method, json!({ "cursor": cursor }));
            assert_eq!(answer["error"]["code"], -32602, "{method} {cursor:?}");
        }
    }
}

#[cfg(unix)]
#[test]
fn the_program_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, signal) in [(&["--http", "127.0.0.1:0"][..], "TERM"), (&["--stdio"], "INT")] {
        let mut all = vec![path(folder.path())];
        all.extend(arguments);
        let mut child = Command::new(env!("CARGO_BIN_EXE_libris"))
            .arg("serve")
            .args(all)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if arguments.len() > 1 {
            let mut line = String::new();
            BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
            assert!(line.starts_with("listening on http://127.0.0.1:") && line.ends_with("/mcp\n"), "{line}");
        } else {
            // Signal handlers are installed before the first response.
            let ask = request(1, "server/discover", json!({})).to_string() + "\n";
            child.stdin.as_mut().unwrap().write_all(ask.as_bytes()).unwrap();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
        assert!(child.wait().unwrap().success(), "{signal}");
    }
}
