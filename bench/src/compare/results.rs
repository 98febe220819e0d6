//! The results of the comparison: all slices and their aggregates.

use clap::ValueEnum as _;

use super::workload::Workload;
use crate::chart::{Bar, Chart, Emphasis, Group};
use crate::drive::Slice;
use crate::report::Report;
use crate::servers::Server;
use crate::statistics::median;
use crate::table::{Cell, Table};

/// All measured slices.
#[derive(Default)]
pub(super) struct Results(Vec<Outcome>);

/// The slices of one server in one workload.
struct Outcome {
    workload: Workload,
    server: Server,
    slices: Vec<Slice>,
}

impl Outcome {
    fn median(&self, of: impl Fn(&Slice) -> f64) -> f64 {
        median(self.slices.iter().map(of))
    }
}

impl Results {
    pub(super) fn add(&mut self, workload: Workload, server: Server, slice: Slice) {
        let mut all = self.0.iter_mut();
        match all.find(|outcome| outcome.workload == workload && outcome.server == server) {
            Some(outcome) => outcome.slices.push(slice),
            None => self.0.push(Outcome { workload, server, slices: vec![slice] }),
        }
    }

    /// The slices of one server in the workload of this name.
    fn find(&self, workload: &str, server: Server) -> Option<&Outcome> {
        self.0.iter().find(|outcome| outcome.server == server && outcome.workload.to_string() == workload)
    }

    /// The ratio of a value of one server to that of another in the same round; the median over the rounds.
    pub(super) fn ratio(
        &self,
        (workload, server): (&str, Server),
        (other_workload, other): (&str, Server),
        of: impl Fn(&Slice) -> f64,
    ) -> Option<f64> {
        let (one, two) = (self.find(workload, server)?, self.find(other_workload, other)?);
        let rounds = one.slices.iter().zip(&two.slices);
        Some(median(rounds.map(|(one, two)| of(one) / of(two))))
    }

    /// Adds the results to the report, as tables.
    pub(super) fn report(&self, report: &mut Report) {
        let took_part = |server: &&Server| self.0.iter().any(|outcome| outcome.server == **server);
        let servers: Vec<_> = Server::value_variants().iter().filter(took_part).collect();
        let mut workloads: Vec<String> = Vec::new();
        for name in self.0.iter().map(|outcome| outcome.workload.to_string()) {
            if !workloads.contains(&name) {
                workloads.push(name);
            }
        }
        let names = || servers.iter().map(|server| server.name());
        let mut costs = Table::new("Computing per request, in µs", ["workload"].into_iter().chain(names()));
        let mut rates = Table::new("Requests per second", ["workload"].into_iter().chain(names()));
        for workload in &workloads {
            let row = |of: &dyn Fn(&Slice) -> f64| {
                let number = |&&server: &&Server| {
                    Cell::from(self.find(workload, server).map(|outcome| outcome.median(of)))
                };
                [workload.as_str().into()].into_iter().chain(servers.iter().map(number)).collect::<Vec<_>>()
            };
            costs.row(row(&Slice::cost));
            rates.row(row(&Slice::rate));
        }
        report.table(costs);
        report.table(rates);
        report.table(self.details());
        report.chart(self.chart());
    }

    /// A table of all servers in all workloads.
    fn details(&self) -> Table {
        let columns = [
            "workload",
            "server",
            "requests/s",
            "p50 µs",
            "p99 µs",
            "computing µs",
            "memory MiB",
            "computing ÷ limit",
            "Libris computing ÷ this",
            "Libris requests/s ÷ this",
        ];
        let mut table = Table::new("Everything", columns);
        let mut sorted: Vec<_> = self.0.iter().collect();
        let place = |outcome: &Outcome| self.0.iter().position(|other| other.workload == outcome.workload);
        sorted.sort_by_key(|outcome| (place(outcome), outcome.server));
        for outcome in sorted {
            let name = outcome.workload.to_string();
            let here = (name.as_str(), outcome.server);
            let libris = (name.as_str(), Server::Libris);
            table.row([
                name.as_str().into(),
                outcome.server.name().into(),
                outcome.median(Slice::rate).into(),
                outcome.median(|slice| slice.latency(0.5)).into(),
                outcome.median(|slice| slice.latency(0.99)).into(),
                outcome.median(Slice::cost).into(),
                outcome.median(|slice| slice.memory as f64 / f64::from(1 << 20)).into(),
                self.ratio(here, (&name, Server::Limit), Slice::cost).into(),
                self.ratio(libris, here, Slice::cost).into(),
                self.ratio(libris, here, Slice::rate).into(),
            ]);
        }
        table
    }

    /// The CPU time of each server for the most frequent requests.
    fn chart(&self) -> Chart {
        let shown = [
            ("http16-read-1k", "read of 1 KiB"),
            ("http16-list", "page of a list"),
            ("http16-read-1m-text", "read of 1 MiB of text"),
            ("http16-read-1m-blob", "read of 1 MiB of bytes"),
        ];
        let group = |(workload, name): (&str, &str)| {
            let bar = |&server: &Server| {
                let value = self.find(workload, server)?.median(Slice::cost);
                let emphasis = match server {
                    Server::Libris => Emphasis::Strong,
                    Server::Limit => Emphasis::Weak,
                    _ => Emphasis::Plain,
                };
                Some(Bar { name: server.name(), value, emphasis })
            };
            let shown = |server: &&Server| **server != Server::Embedded;
            let bars: Vec<_> = Server::value_variants().iter().filter(shown).filter_map(bar).collect();
            (!bars.is_empty()).then(|| Group { name: name.to_owned(), bars })
        };
        let groups = shown.into_iter().filter_map(group).collect();
        Chart {
            title: "Computing per request over HTTP, in µs, on a logarithmic scale".to_owned(),
            unit: "µs",
            groups,
        }
    }
}
