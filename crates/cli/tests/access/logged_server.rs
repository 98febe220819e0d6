//! The binary over HTTP with a configuration file, and requests to it. Its standard error is a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

#[cfg(target_os = "linux")]
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};

use crate::PATIENCE;

/// A server of `libris.toml` in a folder, until this is dropped.
pub(crate) struct LoggedServer {
    pub(crate) url: String,
    child: Child,
    log: PathBuf,
}

impl LoggedServer {
    pub(crate) fn start(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let log = folder.join("stderr.log");
        let child = Command::new(env!("CARGO_BIN_EXE_libris"))
            .args(["serve", "--config", "libris.toml", "--http", "127.0.0.1:0"])
            .args(arguments)
            .envs(environment.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut server = Self { url: String::new(), child, log };
        let until = Instant::now() + PATIENCE;
        loop {
            let log = server.log();
            let complete = log.rsplit_once('\n').map_or("", |(complete, _)| complete);
            let url = complete.lines().find_map(|line| line.split_once("listening on ").map(|(_, url)| url));
            if let Some(url) = url {
                server.url = url.to_owned();
                return server;
            }
            assert!(Instant::now() < until, "{log}");
            std::thread::yield_now();
        }
    }

    /// What it has written to standard error.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Sets a limit of the process, and returns the previous one. If `new` has no maximum, that of the process stays.
    #[cfg(target_os = "linux")]
    pub(crate) fn limit(&self, resource: Resource, new: Rlimit) -> Rlimit {
        let process = Pid::from_child(&self.child);
        // Tests run as root, or with the limits of the server.
        let maximum = new.maximum.or_else(|| getrlimit(resource).maximum);
        prlimit(Some(process), resource, Rlimit { maximum, ..new }).unwrap()
    }

    pub(crate) fn hang_up(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    }

    /// Ends it as a service manager does, and waits until it has written its logs.
    pub(crate) fn end(&mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.child.wait().unwrap();
    }

    /// The result or the error of a request.
    pub(crate) async fn ask(&self, authorization: Option<&str>, method: &str, params: Value) -> (u16, Value) {
        let response = self.send(authorization, method, params).await;
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or_else(|_| text.into()))
    }

    /// The response to a request, whose body may be a stream.
    pub(crate) async fn send(
        &self,
        authorization: Option<&str>,
        method: &str,
        params: Value,
    ) -> reqwest::Response {
        let mut request = reqwest::Client::new()
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        let name = if method == "tools/call" { &params["name"] } else { &params["uri"] };
        if let Some(name) = name.as_str() {
            request = request.header("mcp-name", name);
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        request.body(message(method, params)).send().await.unwrap()
    }
}

/// A request of the newest revision.
pub(crate) fn message(method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

impl Drop for LoggedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
