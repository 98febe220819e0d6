//! Compares each source with its lower bound, and with servers that people would use instead: the CPU time per request.
//!
//! A completion with a *new text* is one that is not in the response cache: it runs without that cache.

pub(crate) mod data;
mod limits;
mod peers;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

pub(crate) use limits::{
    cat_file as limit_of_cat_file, git as limit_of_git, postgres as limit_of_postgres,
    proxy as limit_of_proxy, sqlite as limit_of_sqlite, uncached_api,
};

use crate::drive::http::Client;
use crate::drive::{Bounds, Nothing};
use crate::mcp::Era;
use crate::process::{self, Computing};
use crate::program::{Binary, OverHttp};
use crate::report::{Aim, Report};
use crate::statistics::median;
use data::Data;

/// The number of connections of the client.
const CONNECTIONS: usize = 16;

const ROW: &str = "sqlite://shop/items/rows/7";
const BLOB: &str = "git://repository/tree/HEAD/0500.txt";

/// Lines near the end of the file, which are found with the index of its lines.
const PART: &str = "file:///few/large.txt?lines=30001-30010";

/// A server that is measured with one request.
struct Measured {
    name: &'static str,
    client: Client,
    /// The child processes of the server, whose CPU time counts too.
    children: Vec<u32>,
    costs: Vec<f64>,
}

impl Measured {
    /// Measures the CPU time per request once more.
    fn measure(&mut self, bounds: Bounds) -> Result<()> {
        // The first requests fill the cache.
        self.client.slice(Bounds { requests: 200, ..bounds }, &mut Nothing)?;
        let before: Result<Vec<_>> = self.children.iter().map(|&child| Computing::of(child)).collect();
        let slice = self.client.slice(bounds, &mut Nothing)?;
        let mut cost = slice.cost();
        for (&child, before) in self.children.iter().zip(before?) {
            let computing = Computing::of(child)?.since(&before);
            cost += computing.as_secs_f64() * 1e6 / slice.requests as f64;
        }
        self.costs.push(cost);
        Ok(())
    }
}

/// Measures all servers in turns.
pub(crate) fn run(quick: bool, binary: &Binary, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = Data::make(folder.path(), quick)?;
    let (alone, mixed) = (serve(binary, &data.alone)?, serve(binary, &data.mixed)?);
    let (small, uncached) = (serve(binary, &data.small)?, serve(binary, &data.uncached)?);
    let small_uncached = serve(binary, &data.small_uncached)?;
    let sqlite = limit("limit-sqlite", data.database.as_os_str())?;
    let git = limit("limit-git", data.repository.as_os_str())?;
    let cat_file = limit("limit-cat-file", data.repository.as_os_str())?;
    let read = |uri: &str| Era::Modern.read(uri);
    let path = |folder: &str| complete(&format!("file:///{folder}/{{+path}}{{?lines,bytes}}"), "path", "05");
    let revision = |typed: &str| complete("git://repository/commit/{id}{?format}", "id", typed);
    let table = complete("sqlite://shop/{table}/schema{?format}", "table", "i");
    let mut servers = vec![
        measured("file of 8 KiB", &alone, &read("file:///few/0500.txt"))?,
        measured("file of 8 KiB, uncached", &uncached, &read("file:///few/0500.txt"))?,
        measured("10 lines of a file of 2 MiB", &alone, &read(PART))?,
        measured("10 lines of a file of 2 MiB, uncached", &uncached, &read(PART))?,
        measured("folder of 20 files", &small, &read("file:///few-small/"))?,
        measured("folder of 20 files, uncached", &small_uncached, &read("file:///few-small/"))?,
        measured("list page of a folder alone", &alone, &Era::Modern.list(None))?,
        measured("list page of a mixed catalog", &mixed, &Era::Modern.list(None))?,
        measured("list page with resources of three sources", &small, &Era::Modern.list(None))?,
        measured("schema of a database", &mixed, &read("sqlite://shop/schema"))?,
        measured("schema of a database in WAL mode", &mixed, &read("sqlite://wal/schema"))?,
        measured("page of 100 rows", &mixed, &read("sqlite://shop/items/rows"))?,
        measured("row by key", &mixed, &read(ROW))?,
        measured("limit: row by key, rusqlite and hyper", &sqlite, &read(ROW))?,
        measured("blob of 8 KiB", &mixed, &read(BLOB))?,
        measured("limit: blob of 8 KiB, gix and hyper", &git, &read(BLOB))?,
        measured("limit: blob of 8 KiB, git cat-file and hyper", &cat_file, &read(BLOB))?,
        measured("folder of a repository", &mixed, &read("git://repository/tree/HEAD/"))?,
        measured("completion of 1,000 paths", &mixed, &path("few"))?,
        measured("completion of 1,000 paths, new text", &uncached, &path("few"))?,
        measured("completion of a ref", &mixed, &revision("ma"))?,
        measured("completion of a ref, new text", &uncached, &revision("ma"))?,
        measured("completion of a ref of hexadecimal digits", &mixed, &revision("fe"))?,
        measured("completion of a ref of hexadecimal digits, new text", &uncached, &revision("fe"))?,
        measured("completion of the id of a commit", &mixed, &revision("feed"))?,
        measured("completion of a table", &mixed, &table)?,
        measured("completion of a table, new text", &uncached, &table)?,
        measured("not found", &mixed, &read("file:///few/none.txt"))?,
    ];
    let mut many = Vec::new();
    if let Some([cached, uncached]) = &data.many {
        for (name, config) in
            [("completion of 1,000,000 paths", cached), ("completion of 1,000,000 paths, new text", uncached)]
        {
            let server = serve(binary, config)?;
            servers.push(measured(name, &server, &path("many"))?);
            many.push(server);
        }
    }
    // These two are not cached. Each connection asks for another resource, because Libris asks the database or the
    // API once for simultaneous requests of the same one.
    let postgres = data.postgres.as_ref();
    let postgres = postgres.map(|postgres| {
        let limit = limit("limit-postgres", postgres.url().as_ref())?;
        anyhow::Ok((serve(binary, &postgres.config)?, limit))
    });
    let postgres = postgres.transpose()?;
    if let Some((libris, limit)) = &postgres {
        let row = |at: usize| read(&format!("postgres://shop/items/rows/{at}"));
        servers.push(measured_with("row by key, PostgreSQL", libris, row)?);
        servers.push(measured_with("limit: row by key, tokio-postgres and hyper", limit, row)?);
    }
    let api = limit("uncached-api", "".as_ref())?;
    let proxy = limit("limit-proxy", format!("http://{}/items/7", api.address).as_ref())?;
    let http = serve(binary, &data::http_source(folder.path(), api.address)?)?;
    let item = |at: usize| read(&format!("api://items/{at}"));
    servers.push(measured_with("item of an HTTP API", &http, item)?);
    servers.push(measured_with("limit: item of an HTTP API, hyper", &proxy, item)?);
    // Libris trusts the stamp of a file only two seconds after its last change.
    std::thread::sleep(Duration::from_secs(3));
    let (rounds, requests) = if quick { (3, 2_000) } else { (9, 20_000) };
    let bounds = Bounds { requests, time: Duration::from_secs(5) };
    for round in 0..rounds {
        eprintln!("round {} of {rounds} …", round + 1);
        servers.iter_mut().try_for_each(|server| server.measure(bounds))?;
    }
    judge(&servers, report);
    peers::measure(&data, report);
    Ok(())
}

fn judge(servers: &[Measured], report: &mut Report) {
    let cost = |name: &str| {
        let server = servers.iter().find(|server| server.name == name)?;
        Some(median(server.costs.iter().copied()))
    };
    let most = |name: &str| match name {
        name if name.starts_with("schema") => Some(25.0),
        name if name.starts_with("completion") => Some(40.0),
        _ => None,
    };
    for server in servers {
        let Some(measured) = cost(server.name) else { continue };
        match most(server.name) {
            Some(most) => report.judge(server.name, measured, "µs", Aim::AtMost(most)),
            None => report.add(server.name, measured, "µs"),
        }
    }
    for (name, one, other, most) in [
        ("mixed catalog ÷ folder alone", "list page of a mixed catalog", "list page of a folder alone", 1.3),
        (
            "three sources ÷ folder alone",
            "list page with resources of three sources",
            "list page of a folder alone",
            1.3,
        ),
        ("row ÷ its limit", "row by key", "limit: row by key, rusqlite and hyper", 1.5),
        (
            "row, PostgreSQL ÷ its limit",
            "row by key, PostgreSQL",
            "limit: row by key, tokio-postgres and hyper",
            1.5,
        ),
        ("blob ÷ file", "blob of 8 KiB", "file of 8 KiB", 1.3),
        ("not found ÷ file", "not found", "file of 8 KiB", 1.2),
        ("part of a file ÷ file", "10 lines of a file of 2 MiB", "file of 8 KiB", 1.2),
        ("folder ÷ file", "folder of 20 files", "file of 8 KiB", 1.2),
    ] {
        let ratio = cost(one).zip(cost(other)).map(|(one, other)| one / other);
        report.judge_if_measured(name, ratio, Aim::AtMost(most));
    }
    for (name, one, other) in [
        ("blob ÷ its limit, gix", "blob of 8 KiB", "limit: blob of 8 KiB, gix and hyper"),
        ("blob ÷ its limit, git cat-file", "blob of 8 KiB", "limit: blob of 8 KiB, git cat-file and hyper"),
        ("item of an HTTP API ÷ its limit", "item of an HTTP API", "limit: item of an HTTP API, hyper"),
    ] {
        if let Some((one, other)) = cost(one).zip(cost(other)) {
            report.add(name, one / other, "×");
        }
    }
}

fn measured(name: &'static str, server: &OverHttp, request: &Value) -> Result<Measured> {
    measured_with(name, server, |_| request.clone())
}

/// Opens connections to a server, and checks its response to the request of the first one: a result, or the error for a
/// missing resource.
fn measured_with(
    name: &'static str,
    server: &OverHttp,
    request: impl Fn(usize) -> Value,
) -> Result<Measured> {
    let mut client = Client::open(server, Era::Modern, CONNECTIONS, |_| Ok(None), request)?;
    let answer = client.look(0)?;
    let is_missing = name == "not found" && answer["error"]["message"].is_string();
    ensure!(answer["result"].is_object() || is_missing, "{name}: {answer}");
    Ok(Measured { name, client, children: process::children(server.id())?, costs: Vec::new() })
}

fn complete(template: &str, variable: &str, typed: &str) -> Value {
    let params = json!({
        "ref": { "type": "ref/resource", "uri": template },
        "argument": { "name": variable, "value": typed },
    });
    Era::Modern.request("completion/complete", params)
}

fn serve(binary: &Binary, config: &Path) -> Result<OverHttp> {
    let mut command = binary.configured(config);
    let child = command.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    OverHttp::listening(child.context("could not start libris")?, "libris")
}

/// Starts this program as one of the limit servers.
fn limit(which: &'static str, argument: &OsStr) -> Result<OverHttp> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    let argument = (!argument.is_empty()).then_some(argument);
    let child = command.arg(which).args(argument).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    OverHttp::listening(child.context("could not start a limit server")?, which)
}

#[cfg(test)]
mod tests {
    use super::{Measured, judge};
    use crate::report::Report;

    #[test]
    fn nothing_measured_is_judged_as_nothing() {
        let mut report = Report::new("libris 1.2.3".to_owned());
        judge(&Vec::<Measured>::new(), &mut report);
        assert!(report.is_empty());
    }
}
