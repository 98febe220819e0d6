//! Runs the examples over stdio; `notes` is that of the README, and `documents` that of the manual.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A running example and its pipes.
struct Example {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
    /// The name and version by which the server introduced itself.
    server: Value,
}

impl Example {
    fn start(name: &str, arguments: &[&Path]) -> Self {
        let mut child = Command::new(program(name))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut example = Self { child, input, output: BufReader::new(output), last: 0, server: Value::Null };
        let client = json!({ "name": "test", "version": "1" });
        let mut initialized = example.ask(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }),
        );
        example.server = initialized["serverInfo"].take();
        example.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        example
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The result or error of a request. Notifications are skipped.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut message = self.next();
            if message["id"] == id {
                let key = if message["error"].is_null() { "result" } else { "error" };
                return message[key].take();
            }
        }
    }

    fn read(&mut self, uri: &str) -> Value {
        self.ask("resources/read", json!({ "uri": uri }))
    }

    fn text(&mut self, uri: &str) -> String {
        self.read(uri)["contents"][0]["text"].as_str().unwrap().to_owned()
    }

    fn complete(&mut self, template: &str, name: &str, value: &str, known: Value) -> Value {
        self.ask(
            "completion/complete",
            json!({
                "ref": { "type": "ref/resource", "uri": template },
                "argument": { "name": name, "value": value },
                "context": { "arguments": known },
            }),
        )["completion"]["values"]
            .take()
    }

    fn listed(&mut self) -> Vec<String> {
        let list = self.ask("resources/list", json!({}));
        list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["uri"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Cargo builds the examples beside the tests.
fn program(name: &str) -> PathBuf {
    let built =
        std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(built.exists(), "no example at {}; run all tests, which builds them", built.display());
    built
}

/// Checks that a page shows this example as it is, but for its first comment.
fn assert_shown(page: &str, example: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page_text = std::fs::read_to_string(root.join("../..").join(page)).unwrap();
    let program = std::fs::read_to_string(root.join("examples").join(example)).unwrap();
    let (_, program) = program.split_once("\n\n").unwrap();
    let is_shown = ["```rust\n", "```rust,no_run\n"]
        .iter()
        .any(|fence| page_text.contains(&format!("{fence}{program}```\n")));
    assert!(is_shown, "`{page}` does not show `examples/{example}` as it is");
}

#[test]
fn the_readme_shows_a_server_that_works() {
    assert_shown("README.md", "notes.rs");
    let mut notes = Example::start("notes", &[]);
    // The program's own, although its package is that of the library.
    assert_eq!(notes.server, json!({ "name": "notes", "version": env!("CARGO_PKG_VERSION") }));
    assert_eq!(notes.text("notes://0"), "# Milk");
    assert_eq!(notes.read("notes://1")["code"], -32002);
}

#[test]
fn the_manual_shows_a_server_that_works() {
    assert_shown("docs/library.md", "documents.rs");
    let folder = tempfile::tempdir().unwrap();
    let mut docs = Example::start("documents", &[&folder.path().join("docs.db")]);
    assert_eq!(docs.listed(), ["docs://documents", "libris://index", "libris://status"]);
    assert_eq!(docs.text("docs://documents"), r#"["handbook","on-call"]"#);
    assert_eq!(docs.text("docs://documents/handbook"), "# The handbook");
    assert_eq!(docs.text("docs://documents/handbook?version=1"), "# Handbook");
    assert_eq!(docs.read("docs://documents/handbook?version=9")["code"], -32002);
    assert_eq!(
        docs.read("docs://documents/handbook?version=new"),
        json!({ "code": -32602, "message": "`version` cannot be `new`: it must be a whole number from 0 to 4294967295" })
    );
    let template = docs.ask("resources/templates/list", json!({}))["resourceTemplates"][0].take();
    assert_eq!(
        template,
        json!({
            "uriTemplate": "docs://documents/{doc_id}{?version}",
            "name": "document",
            "title": "Document",
            "description": "One document.",
            "mimeType": "text/markdown",
            "annotations": { "audience": ["user", "assistant"], "priority": 0.8 },
        })
    );
    let template = "docs://documents/{doc_id}{?version}";
    assert_eq!(docs.complete(template, "doc_id", "on", json!({})), json!(["on-call"]));
}

#[test]
fn the_weather_is_completed_by_country() {
    let mut weather = Example::start("weather", &[]);
    let template = "weather://forecast/{country}/{city}{?days}";
    assert_eq!(weather.complete(template, "country", "n", json!({})), json!(["Norway"]));
    assert_eq!(weather.complete(template, "city", "Pa", json!({})), json!(["Paris", "Park City"]));
    assert_eq!(
        weather.complete(template, "city", "", json!({ "country": "Norway" })),
        json!(["Oslo", "Bergen"])
    );
    assert!(weather.listed().contains(&"weather://forecast/USA/Park%20City".to_owned()));
    let forecast = weather.text("weather://forecast/USA/Park%20City?days=2");
    assert_eq!(forecast, r#"{"city":"Park City","days":[16,18],"unit":"°C"}"#);
    let refused = weather.read("weather://forecast/Norway/Oslo?days=11");
    assert_eq!(refused["message"], "`days` cannot be `11`: say 1 to 10 days");
    assert_eq!(weather.read("weather://warnings")["code"], -32002, "nobody knows who asks over stdio");
}

#[test]
fn the_feed_tells_of_its_entries() {
    let mut feed = Example::start("feed", &[]);
    assert_eq!(feed.ask("resources/subscribe", json!({ "uri": "feed://latest" })), json!({}));
    let mut told = Vec::new();
    while told.len() < 2 {
        let message = feed.next();
        let method = message["method"].as_str().unwrap().to_owned();
        if method.ends_with("updated") {
            assert_eq!(message["params"]["uri"], "feed://latest");
        }
        if !told.contains(&method) {
            told.push(method);
        }
    }
    told.sort();
    assert_eq!(told, ["notifications/resources/list_changed", "notifications/resources/updated"]);
    let entry = feed.listed().into_iter().find(|uri| uri.ends_with("/1")).unwrap();
    assert_eq!(feed.text(&entry), "entry 1");
    assert!(feed.text("feed://latest").starts_with("entry "));
}
