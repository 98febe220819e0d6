//! Runs the examples as a client would, the first of them being the one that the README shows.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// An example that runs, spoken to over stdio.
struct Example {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
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
        let mut example = Self { child, input, output: BufReader::new(output), last: 0 };
        let client = json!({ "name": "test", "version": "1" });
        example.ask(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }),
        );
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

    /// The result or the error of a request. What is told meanwhile is passed over.
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

#[test]
fn the_readme_shows_a_server_that_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("../../README.md")).unwrap();
    let (_, shown) = readme.split_once("```rust\n").expect("the README shows no Rust");
    let (shown, _) = shown.split_once("```\n").unwrap();
    let example = std::fs::read_to_string(root.join("examples/documents.rs")).unwrap();
    assert!(shown == example, "the README does not show `examples/documents.rs` as it is");

    let folder = tempfile::tempdir().unwrap();
    let mut docs = Example::start("documents", &[&folder.path().join("docs.db")]);
    assert_eq!(docs.listed(), ["docs://documents", "libris://status"]);
    assert_eq!(docs.text("docs://documents"), r#"["handbook","on-call"]"#);
    assert_eq!(docs.text("docs://documents/handbook"), "# The handbook");
    assert_eq!(docs.text("docs://documents/handbook?version=1"), "# Handbook");
    assert_eq!(docs.read("docs://documents/handbook?version=9")["code"], -32002);
    assert_eq!(
        docs.read("docs://documents/handbook?version=new"),
        json!({ "code": -32602, "message": "`version` cannot be `new`: invalid digit found in string" })
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
