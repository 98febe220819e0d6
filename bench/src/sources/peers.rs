//! Servers that people would use instead: the reference servers for git and SQLite, and FastMCP over the same database.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::data::Data;
use super::{CONNECTIONS, ROW};
use crate::drive::{Bounds, Nothing, http, stdio};
use crate::mcp::Era;
use crate::program::{OverHttp, OverStdio};
use crate::report::Report;
use crate::servers::install::{FASTMCP_ROWS, Peer, REFERENCE_GIT, REFERENCE_SQLITE};

/// They take a hundred times as long as Libris, so a few requests give a stable result.
const BOUNDS: Bounds = Bounds { requests: 1_000, time: Duration::from_secs(5) };

/// Measures the CPU time per request of each server, and leaves out those that cannot be installed.
pub(super) fn measure(data: &Data, report: &mut Report) {
    for (name, cost) in [
        ("FastMCP: row by key", fastmcp(data)),
        ("mcp-server-sqlite: row by key (tool)", reference_sqlite(data)),
        ("mcp-server-git: log of one commit (tool)", reference_git(data)),
    ] {
        match cost {
            Ok(cost) => report.add(name, cost, "µs"),
            Err(error) => eprintln!("{name} is left out: {error:#}"),
        }
    }
}

fn fastmcp(data: &Data) -> Result<f64> {
    let mut command = FASTMCP_ROWS.install()?.command();
    let child = command.arg(&data.database).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let server = OverHttp::listening(child.context("could not start FastMCP")?, "FastMCP")?;
    let request = Era::Modern.read(ROW);
    let mut client =
        http::Client::open(&server, Era::Modern, CONNECTIONS, |_| Ok(None), |_| request.clone())?;
    let answer = client.look(0)?;
    ensure!(answer["result"].is_object(), "{answer}");
    Ok(client.slice(BOUNDS, &mut Nothing)?.cost())
}

fn reference_sqlite(data: &Data) -> Result<f64> {
    let database = data.database.to_str().context("the path is not UTF-8")?;
    let query = json!({ "query": "SELECT id, name FROM items WHERE id = 7" });
    reference(REFERENCE_SQLITE, &["mcp_server_sqlite", "--db-path", database], "read_query", &query)
}

/// It has no tool that reads a file.
fn reference_git(data: &Data) -> Result<f64> {
    let repository = data.repository.to_str().context("the path is not UTF-8")?;
    let arguments = json!({ "repo_path": repository, "max_count": 1 });
    reference(REFERENCE_GIT, &["mcp_server_git", "--repository", repository], "git_log", &arguments)
}

/// Calls a tool of a reference server over stdio.
fn reference(peer: Peer, arguments: &[&str], tool: &str, parameters: &Value) -> Result<f64> {
    let mut command = peer.install()?.command();
    let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let server = OverStdio::connected(command.spawn().context("could not start the reference server")?)?;
    let call = Era::Legacy.request("tools/call", json!({ "name": tool, "arguments": parameters }));
    let mut client = stdio::Client::open(server, Era::Legacy, &call)?;
    let answer = client.look()?;
    ensure!(answer["result"]["isError"] == json!(false), "{answer}");
    Ok(client.slice(BOUNDS, CONNECTIONS)?.cost())
}
