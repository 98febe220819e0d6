//! The binary over stdio.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The revisions with a handshake.
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The output of `libris` in a folder, and whether it succeeded.
pub(crate) fn libris(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_libris"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

pub(crate) fn write(folder: &Path, path: &str, data: impl AsRef<[u8]>) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, data).unwrap();
}

/// A client of a server over stdio.
pub(crate) struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Whether requests name the newest revision in `_meta`.
    modern: bool,
    last_id: u32,
}

impl Session {
    /// A server of `libris.toml` in a folder, asked in the newest revision.
    pub(crate) fn modern(folder: &Path) -> Self {
        Self::start(folder, true)
    }

    /// A server of `libris.toml` in a folder, and a session of an older revision with the result of `initialize`.
    pub(crate) fn legacy(folder: &Path, revision: &str) -> (Self, Value) {
        let mut session = Self::start(folder, false);
        let client = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": client });
        let welcome = session.result("initialize", hello);
        session.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        (session, welcome)
    }

    fn start(folder: &Path, modern: bool) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_libris"))
            .args(["serve", "--stdio"])
            .current_dir(folder)
            .env("USER", "ada")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, modern, last_id: 0 }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    /// The next message of the server.
    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|cause| panic!("{cause}: {line:?}"))
    }

    /// Sends a request and returns its id.
    pub(crate) fn request(&mut self, method: &str, mut params: Value) -> u32 {
        self.last_id += 1;
        if self.modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        self.send(&json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params }));
        self.last_id
    }

    /// The response to a request, past the notifications before it.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message;
            }
        }
    }

    pub(crate) fn result(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// The code and the message of an error.
    pub(crate) fn error(&mut self, method: &str, params: Value) -> (i64, String) {
        let answer = self.ask(method, params);
        let error = &answer["error"];
        let code = error["code"].as_i64().unwrap_or_else(|| panic!("{method}: {answer}"));
        (code, error["message"].as_str().unwrap().to_owned())
    }

    /// All items of a list, and the number of its pages.
    pub(crate) fn pages(&mut self, method: &str, key: &str, params: &Value) -> (Vec<Value>, usize) {
        let (mut items, mut pages, mut params) = (Vec::new(), 0, params.clone());
        loop {
            let result = self.result(method, params.clone());
            items.extend(result[key].as_array().unwrap().iter().cloned());
            pages += 1;
            match result["nextCursor"].as_str() {
                Some(cursor) => params["cursor"] = cursor.into(),
                None => return (items, pages),
            }
        }
    }

    /// Waits for a notification of this method.
    pub(crate) fn notified(&mut self, method: &str) -> Value {
        loop {
            let message = self.receive();
            if message["method"] == method {
                return message;
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
