//! CPU time per operation and memory per resource as the number of resources grows.

mod templates;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;
use serde_json::{Value, json};

use crate::drive::http::{Client, Conversation};
use crate::drive::{Bounds, Nothing, Slice};
use crate::mcp::{Era, Sender, next_cursor};
use crate::process;
use crate::program::OverHttp;
use crate::report::{Aim, Report};
use crate::servers::{Server, Servers};
use crate::statistics::median;
use crate::table::{Cell, Table, shown};
use crate::tree::{self, Trees};

/// The numbers of resources.
const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// The number of concurrent connections.
const CONNECTIONS: usize = 16;

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    FirstPage,
    LastPage,
    Complete,
    Templates,
}

const OPERATIONS: [Operation; 5] =
    [Operation::Read, Operation::FirstPage, Operation::LastPage, Operation::Complete, Operation::Templates];

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read a file",
            Self::FirstPage => "first page of the list",
            Self::LastPage => "last page of the list",
            Self::Complete => "complete a path",
            Self::Templates => "list of templates",
        }
    }

    fn request(self, last: Option<&str>) -> Value {
        match self {
            Self::Read => Era::Modern.read(&tree::uri()),
            Self::FirstPage => Era::Modern.list(None),
            Self::LastPage => Era::Modern.list(last),
            Self::Complete => {
                let template = json!({ "type": "ref/resource", "uri": tree::template() });
                let argument = json!({ "name": "path", "value": tree::typed() });
                Era::Modern.request("completion/complete", json!({ "ref": template, "argument": argument }))
            }
            Self::Templates => Era::Modern.request("resources/templates/list", json!({})),
        }
    }

    /// Whether the response has the expected content.
    fn is_right(self, answer: &Value) -> bool {
        let result = &answer["result"];
        let count = |list: &Value| list.as_array().map_or(0, Vec::len);
        match self {
            Self::Read => result["contents"][0]["text"] == tree::TEXT,
            Self::FirstPage => count(&result["resources"]) == 100 && result["nextCursor"].is_string(),
            Self::LastPage => count(&result["resources"]) == 100 && result["nextCursor"].is_null(),
            Self::Complete => count(&result["completion"]["values"]) == 100,
            Self::Templates => count(&result["resourceTemplates"]) == 2,
        }
    }
}

/// A server that has listed all of its resources once.
struct Grown {
    resources: usize,
    memory: u64,
    clients: Vec<Client>,
    slices: Vec<Vec<Slice>>,
    _running: OverHttp,
}

/// Measures how costs depend on the number of resources. A quick run omits the largest folder.
pub(crate) fn run(quick: bool, servers: &Servers<'_>, trees: &Trees, report: &mut Report) -> Result<()> {
    if !servers.all.contains(&Server::Libris) {
        return Ok(());
    }
    let root = tempfile::tempdir()?;
    let empty = listed(servers, root.path())?.1;
    let sizes = &SIZES[..SIZES.len() - usize::from(quick)];
    let folders: Result<Vec<_>> = sizes.iter().map(|&size| Ok((size, trees.make(size)?))).collect();
    let folders = folders?;
    let mut grown = Vec::new();
    for (resources, folder) in &folders {
        eprintln!("listing {resources} resources …");
        grown
            .push(Grown::new(servers, folder, *resources).with_context(|| format!("{resources} resources"))?);
    }
    let rounds = if quick { 3 } else { 5 };
    eprintln!("asking …");
    for _ in 0..=rounds {
        for (at, operation) in OPERATIONS.iter().enumerate() {
            for grown in &mut grown {
                grown.turn(at).with_context(|| operation.name())?;
            }
        }
    }
    tables(&grown, empty, report);
    templates::run(rounds, servers, report)
}

/// Starts a server and lists everything once. Returns the server, its memory, the cursor of the last page, and the
/// number of resources.
fn listed(servers: &Servers<'_>, folder: &Path) -> Result<(OverHttp, u64, Option<String>, usize)> {
    let running = servers.over_http(Server::Libris, folder, Era::Modern, Sender::Anonymous, false)?;
    let mut conversation = Conversation::open(running.address)?;
    let (mut last, mut found) = (None, 0);
    loop {
        let page = conversation.ask(&Era::Modern.list(last.as_deref()))?;
        found += memmem::find_iter(page, b"{\"uri\":").count();
        let Some(next) = next_cursor(page)? else { break };
        last = Some(next.to_owned());
    }
    let memory = process::memory(running.id())?;
    Ok((running, memory, last, found))
}

impl Grown {
    fn new(servers: &Servers<'_>, folder: &Path, resources: usize) -> Result<Self> {
        let (running, memory, last, found) = listed(servers, folder)?;
        ensure!(found == resources, "the list has {found} resources");
        let open = |operation: Operation| {
            Client::open(
                &running,
                Era::Modern,
                CONNECTIONS,
                |_| Ok(None),
                |_| operation.request(last.as_deref()),
            )
        };
        let clients: Result<Vec<_>> = OPERATIONS.into_iter().map(open).collect();
        let slices = vec![Vec::new(); OPERATIONS.len()];
        Ok(Self { resources, memory, clients: clients?, slices, _running: running })
    }

    fn turn(&mut self, at: usize) -> Result<()> {
        let answer = self.clients[at].look(0)?;
        ensure!(OPERATIONS[at].is_right(&answer), "the server answered {answer:.300}");
        let bounds = Bounds { requests: 5_000, time: Duration::from_millis(100) };
        self.slices[at].push(self.clients[at].slice(bounds, &mut Nothing)?);
        Ok(())
    }

    /// The server's CPU time per operation, in microseconds, without the first turn, which is the warm-up.
    fn cost(&self, operation: Operation) -> f64 {
        let at = OPERATIONS.iter().position(|other| *other == operation).unwrap_or_default();
        median(self.slices[at].iter().skip(1).map(Slice::cost))
    }
}

fn tables(grown: &[Grown], empty: u64, report: &mut Report) {
    let sizes = grown.iter().map(|grown| shown(grown.resources as f64));
    let columns: Vec<_> = ["operation".to_owned()].into_iter().chain(sizes).collect();
    let mut costs = Table::new("Computing per operation as resources grow, in µs", columns.clone());
    for operation in OPERATIONS {
        let numbers = grown.iter().map(|grown| Cell::from(grown.cost(operation)));
        costs.row([operation.name().into()].into_iter().chain(numbers));
    }
    report.table(costs);
    let mut memory = Table::new("Memory after the whole list was asked for, in MiB", columns);
    let megabytes = grown.iter().map(|grown| Cell::from(grown.memory as f64 / f64::from(1 << 20)));
    memory.row(["resident".into()].into_iter().chain(megabytes));
    report.table(memory);
    let (Some(least), Some(most)) = (grown.first(), grown.last()) else { return };
    let per_resource = most.memory.saturating_sub(empty) as f64 / most.resources as f64;
    let name = format!("memory per resource among {}", shown(most.resources as f64));
    report.judge(name, per_resource, "bytes", Aim::AtMost(300.0));
    let name = format!(
        "last page of {}: computing ÷ first page of {}",
        shown(most.resources as f64),
        shown(least.resources as f64)
    );
    let ratio = most.cost(Operation::LastPage) / least.cost(Operation::FirstPage);
    report.judge_if_measured(name, Some(ratio), Aim::AtMost(1.2));
}
