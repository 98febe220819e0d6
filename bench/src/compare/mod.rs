//! Runs the same workloads on Libris, on a lower bound (the limit) and on other servers, in turns.

mod access;
mod data;
mod results;
mod targets;
mod workload;

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::ValueParser;
use serde_json::Value;

use self::access::Access;
use self::data::{Ask, Data, Folder};
use self::results::Results;
use self::workload::{Way, Workload};
use crate::drive::{Bounds, Nothing, Slice, http, stdio};
use crate::mcp::{Era, Sender};
use crate::program::OverHttp;
use crate::report::Report;
use crate::servers::{Server, Servers};

/// The maximum number of requests of a slice.
const MOST: usize = 200_000;

/// Slow servers (those not in Rust) take part in the rounds before this one only: their numbers need less precision.
const SLOW: usize = 4;

/// The warm-up round of slow servers is this many times as long, for their just-in-time compilers.
const WARMING: u32 = 4;

/// Compare Libris with a lower bound and with servers of the SDKs, on the same data
///
/// The workloads are reads and lists, over HTTP in both eras and over stdio. In each round, every server has a turn of a
/// fraction of a second, so that disturbances by other programs affect all servers equally. The servers run on one core
/// and the client on another. Numbers are medians over the rounds.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Only workloads with this in their names
    ///
    /// A name consists of the transport and the request. Transports: http16, http64 (2026-07-28 over this many
    /// connections), legacy16 (sessions of 2025-11-25), stdio64, stdio1 (this many requests in flight). Requests:
    /// read-1k, call-1k (with a tool), list, read-1m-text, read-1m-blob. With -cold, the file changes before each read.
    /// With -identified, each connection sends a bearer token, which only the server `embedded` accepts. With -authorized,
    /// each connection sends a signed access token (JWT) to Libris, which has 100 access rules.
    #[arg(long, value_name = "PART", value_parser = ValueParser::new(known))]
    workload: Vec<String>,
    /// How many turns each server has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,
    /// How long a turn is, in milliseconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(10..=10_000))]
    slice: Option<u16>,
}

fn known(part: &str) -> Result<String, String> {
    match workload::all().iter().flatten().any(|workload| workload.to_string().contains(part)) {
        true => Ok(part.to_owned()),
        false => Err("no workload has that in its name".to_owned()),
    }
}

/// Compares the servers.
pub(crate) fn run(options: &Options, quick: bool, servers: &Servers<'_>, report: &mut Report) -> Result<()> {
    let chosen = |workload: &Workload| {
        let name = workload.to_string();
        options.workload.is_empty() || options.workload.iter().any(|part| name.contains(part))
    };
    let rounds = options.rounds.unwrap_or(if quick { 3 } else { 21 });
    let time = Duration::from_millis(options.slice.unwrap_or(100).into());
    let bench =
        Bench { data: Data::new()?, access: Access::new()?, servers, quick, rounds: rounds.into(), time };
    bench.data.settle();
    let mut results = Results::default();
    let outcome = workload::all().into_iter().try_for_each(|mut group| {
        group.retain(chosen);
        let names = group.iter().map(Workload::to_string).collect::<Vec<_>>().join(", ");
        if !group.is_empty() {
            eprintln!("{names} …");
        }
        bench.measure(&group, &mut results).context(names)
    });
    results.report(report);
    targets::judge(&results, report);
    outcome
}

struct Bench<'b> {
    data: Data,
    access: Access,
    servers: &'b Servers<'b>,
    quick: bool,
    rounds: usize,
    time: Duration,
}

/// A running server and its client.
enum Asked {
    Http { client: http::Client, _running: OverHttp },
    Stdio { client: stdio::Client, in_flight: usize },
}

impl Bench<'_> {
    /// Measures the workloads of a group in turns.
    fn measure(&self, group: &[Workload], results: &mut Results) -> Result<()> {
        let mut asked = Vec::new();
        for workload in group {
            let mut servers = self.servers.all.iter().filter(|&&server| workload.is_for(server, self.quick));
            // Each workload starts new processes, so that none inherits caches or memory of another.
            servers.try_for_each(|&server| {
                asked.push((workload, server, self.start(server, workload).with_context(|| server.name())?));
                anyhow::Ok(())
            })?;
        }
        // The first round is the warm-up and is not counted.
        for round in 0..=self.rounds {
            for turn in 0..asked.len() {
                let at = (turn + round) % asked.len();
                let (workload, server, asked) = &mut asked[at];
                let time = match (round, server.is_rust()) {
                    (0, false) => self.time * WARMING,
                    (SLOW.., false) => continue,
                    _ => self.time,
                };
                let bounds = Bounds { requests: MOST, time };
                let slice = self.turn(*server, asked, workload, bounds).with_context(|| server.name())?;
                if round > 0 {
                    results.add(**workload, *server, slice);
                }
            }
        }
        Ok(())
    }

    fn start(&self, server: Server, workload: &Workload) -> Result<Asked> {
        let folder = self.data.path(workload.folder);
        match workload.way {
            Way::Http { era, connections } => {
                let (sender, fresh) = (workload.sender, workload.folder == Folder::Cold);
                let running = match sender {
                    Sender::Authorized => self.servers.configured(&self.access.config(&folder)?)?,
                    _ => self.servers.over_http(server, &folder, era, sender, fresh)?,
                };
                let token = |connection| match sender {
                    Sender::Anonymous => Ok(None),
                    Sender::Identified => Ok(Some(format!("client-{connection}"))),
                    Sender::Authorized => self.access.token(connection).map(Some),
                };
                let ask = |connection| request(era, workload, connection);
                let client = http::Client::open(&running, era, connections, token, ask)?;
                Ok(Asked::Http { client, _running: running })
            }
            Way::Stdio { in_flight } => {
                let running = self.servers.over_stdio(server, &folder)?;
                let client = stdio::Client::open(running, server.era(), &request(server.era(), workload, 0))?;
                Ok(Asked::Stdio { client, in_flight })
            }
        }
    }

    /// Checks one complete response, and then sends requests until the bounds are reached.
    fn turn(&self, server: Server, asked: &mut Asked, workload: &Workload, bounds: Bounds) -> Result<Slice> {
        let Workload { ask, folder, .. } = *workload;
        match asked {
            Asked::Http { client, .. } => {
                self.data.check(ask, folder, &client.look(0)?)?;
                match folder {
                    Folder::Warm => client.slice(bounds, &mut Nothing),
                    Folder::Cold => client.slice(bounds, &mut self.data.stir(ask, server != Server::Limit)?),
                }
            }
            Asked::Stdio { client, in_flight } => {
                self.data.check(ask, folder, &client.look()?)?;
                client.slice(bounds, *in_flight)
            }
        }
    }
}

/// The request of a connection.
fn request(era: Era, workload: &Workload, connection: usize) -> Value {
    match workload.ask.uri(workload.folder, connection) {
        Some(uri) if workload.ask == Ask::Tool => era.call(&uri),
        Some(uri) => era.read(&uri),
        None => era.list(None),
    }
}
