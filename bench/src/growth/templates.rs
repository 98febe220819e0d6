//! CPU time of routing a URI among many templates.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::CONNECTIONS;
use crate::drive::http::Client;
use crate::drive::{Bounds, Nothing, Slice};
use crate::mcp::Era;
use crate::report::Report;
use crate::servers::Servers;
use crate::statistics::median;
use crate::table::{Cell, Table, shown};

/// The numbers of templates.
const COUNTS: [usize; 2] = [1, 1000];

pub(super) fn run(rounds: usize, servers: &Servers<'_>, report: &mut Report) -> Result<()> {
    eprintln!("matching templates …");
    let root = tempfile::tempdir()?;
    let mut asked = Vec::new();
    for count in COUNTS {
        let config = root.path().join(format!("{count}.toml"));
        std::fs::write(&config, configuration(count))?;
        let running = servers.configured(&config)?;
        let request = Era::Modern.read(&format!("note://t{:04}/paris", count / 2));
        let client = Client::open(&running, Era::Modern, CONNECTIONS, |_| Ok(None), |_| request.clone())?;
        asked.push((running, client, Vec::new()));
    }
    let bounds = Bounds { requests: 5_000, time: Duration::from_millis(100) };
    for _ in 0..=rounds {
        for (_, client, slices) in &mut asked {
            let answer = client.look(0)?;
            ensure!(answer["result"]["contents"][0]["text"] == "About paris.", "a template did not match");
            slices.push(client.slice(bounds, &mut Nothing)?);
        }
    }
    let columns = ["operation".to_owned()].into_iter().chain(COUNTS.map(|count| shown(count as f64)));
    let mut table = Table::new("Computing per read by template as templates grow, in µs", columns);
    // The first turn is the warm-up.
    let costs = asked.iter().map(|(.., slices)| Cell::from(median(slices.iter().skip(1).map(Slice::cost))));
    table.row(["read by one of so many templates".into()].into_iter().chain(costs));
    report.table(table);
    Ok(())
}

fn configuration(count: usize) -> String {
    let mut text = String::new();
    for n in 0..count {
        let _ = writeln!(
            text,
            "[[inline.template]]\nuri = \"note://t{n:04}/{{city}}\"\ntext = \"About {{{{city}}}}.\"\n"
        );
    }
    text
}
