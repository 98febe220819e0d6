//! A client over stdio that uses only tools.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::program::OverStdio;

/// A connection to a server, in 2026-07-28.
pub(super) struct ToolHost {
    running: OverStdio,
    last: u64,
}

impl ToolHost {
    /// Starts a server, and checks that it has the tools and instructions that the policy needs.
    pub(super) fn start(mut command: Command) -> Result<Self> {
        let child = command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let running = OverStdio::connected(child.context("could not start libris")?)?;
        let mut host = Self { running, last: 0 };
        let discovered = host.ask("server/discover", json!({}))?;
        let instructions = discovered["instructions"].as_str().unwrap_or_default();
        ensure!(instructions.contains("search_resources"), "the instructions name no tool: {instructions}");
        let tools = host.ask("tools/list", json!({}))?;
        for name in ["search_resources", "read_resource"] {
            let is_there =
                tools["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == name));
            ensure!(is_there, "there is no tool `{name}`");
        }
        Ok(host)
    }

    /// The result of a request.
    fn ask(&mut self, method: &str, mut params: Value) -> Result<Value> {
        self.last += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        writeln!(self.running.input, "{message}")?;
        // Only one request is in flight, so that the reader consumes nothing after the response.
        let mut output: BufReader<&mut ChildStdout> = BufReader::new(&mut self.running.output);
        loop {
            let mut line = String::new();
            ensure!(output.read_line(&mut line)? > 0, "the server has ended");
            let answer: Value = serde_json::from_str(&line)?;
            if answer["id"] == self.last {
                ensure!(answer["result"].is_object(), "{method}: {answer}");
                return Ok(answer["result"].clone());
            }
        }
    }

    /// The result of a tool.
    pub(super) fn call(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        self.ask("tools/call", json!({ "name": name, "arguments": arguments }))
    }

    /// The size of the complete list of resources, in bytes.
    pub(super) fn listing(&mut self) -> Result<usize> {
        let (mut size, mut params) = (0, json!({}));
        loop {
            let page = self.ask("resources/list", params)?;
            size += page.to_string().len();
            match page["nextCursor"].as_str() {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => return Ok(size),
            }
        }
    }
}
