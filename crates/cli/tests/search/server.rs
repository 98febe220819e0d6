//! A running server whose index fails: it keeps answering, and its search recovers by itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::many;

/// How long the tests wait for the index.
const DEADLINE: Duration = Duration::from_secs(90);

/// A server over stdio, with a session.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Server {
    /// Starts the server that a shell command ends with.
    fn start(folder: &Path, before: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_libris");
        let mut command = Command::new("unshare");
        // Only root may mount without a namespace of users.
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let script = format!("{before} exec '{program}' serve --stdio --config libris.toml");
        let mut child = command
            .args(["--mount", "sh", "-c", &script])
            .current_dir(folder)
            .env("HOME", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, input, output, last: 0 };
        let client = json!({ "name": "test", "version": "1" });
        let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        server.ask("initialize", initialize);
        server
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        writeln!(self.input, "{request}").unwrap();
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            let answer: Value =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("the server ended: {line}"));
            if answer["id"] == self.last {
                return answer["result"].clone();
            }
        }
    }

    /// The number of resources that a search finds.
    fn total(&mut self, query: &str) -> u64 {
        let call = json!({ "name": "search_resources", "arguments": { "query": query } });
        let answer = self.ask("tools/call", call);
        answer["structuredContent"]["total"].as_u64().unwrap_or_else(|| panic!("no total: {answer}"))
    }

    fn read(&mut self, uri: &str) -> String {
        let read = self.ask("resources/read", json!({ "uri": uri }));
        read["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {read}")).to_owned()
    }

    /// Searches until the number of hits is right. All the time, reads are answered.
    fn until(&mut self, query: &str, hits: u64) {
        let end = Instant::now() + DEADLINE;
        loop {
            assert!(self.read("file:///docs/0.md").starts_with("everywhere"));
            let total = self.total(query);
            if total == hits {
                break;
            }
            assert!(Instant::now() < end, "{query}: {total} instead of {hits}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn status(&mut self) -> String {
        self.read("libris://status")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Configures the tools, and an index that is built by the first search: at normal priority, as the machine may be busy.
fn configure(folder: &Path) {
    let config = folder.join("libris.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("[search]\n", "[tools]\n")).unwrap();
}

/// The disk with the cache folder becomes full while the server runs, and has room again later.
#[test]
fn a_server_answers_while_its_disk_is_full_and_after() {
    let (folder, _) = many(5);
    configure(folder.path());
    std::fs::create_dir(folder.path().join("cache")).unwrap();
    let mut server = Server::start(folder.path(), "mount -t tmpfs -o size=300k tmpfs cache &&");
    server.until("everywhere", 5);
    assert!(!server.status().contains("memory"), "the first documents fit: {}", server.status());
    for number in 5..35 {
        let words: String = (0..800)
            .map(|word| {
                format!("w{:x} ", (word * 7919 + number * 104_729_u64).wrapping_mul(0x9e37_79b9) % 9_000_000)
            })
            .collect();
        std::fs::write(folder.path().join(format!("docs/{number}.md")), format!("everywhere {words}"))
            .unwrap();
    }
    server.until("everywhere", 35);
    assert!(server.status().contains("in memory only"), "{}", server.status());
    let id = server.child.id().to_string();
    let resized = Command::new("nsenter")
        .args(["--target", &id, "--mount", "mount", "-o", "remount,size=200m", "tmpfs"])
        .arg(folder.path().join("cache"))
        .status()
        .unwrap();
    assert!(resized.success());
    let end = Instant::now() + DEADLINE;
    while server.status().contains("in memory only") {
        assert!(Instant::now() < end, "{}", server.status());
        std::thread::sleep(Duration::from_millis(100));
    }
    server.until("everywhere", 35);
}

/// The contents of the files of the index are overwritten while the server runs.
#[test]
fn a_server_rebuilds_an_index_that_is_damaged_under_it() {
    let (folder, _) = many(40);
    configure(folder.path());
    let mut server = Server::start(folder.path(), "");
    server.until("everywhere", 40);
    let index = std::fs::read_dir(folder.path().join("cache")).unwrap().next().unwrap().unwrap().path();
    let mut damaged = 0;
    for entry in std::fs::read_dir(&index).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| ["store", "idx", "term", "pos"].iter().any(|kind| end == *kind))
        {
            let length = std::fs::metadata(&path).unwrap().len() as usize;
            // Not truncated: the server has mapped the file.
            let mut file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all(&vec![0x55; length]).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 2, "{damaged}");
    // The first searches find the damage; the index is built again without any change of the documents.
    server.until("everywhere", 40);
}
