//! The workloads: transports, concurrency and requests.

use std::fmt;

use super::data::{Ask, Folder};
use crate::mcp::{Era, Sender};
use crate::servers::Server;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) way: Way,
    pub(super) ask: Ask,
    pub(super) folder: Folder,
    pub(super) sender: Sender,
}

/// The transport and concurrency of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Http { era: Era, connections: usize },
    Stdio { in_flight: usize },
}

/// All workloads. Those of a group are measured in turns, because their numbers are compared with each other.
pub(super) fn all() -> Vec<Vec<Workload>> {
    use Ask::{Blob, Kilobyte, List, Text, Tool};
    let http = |era, connections| Way::Http { era, connections };
    let (sixteen, many, sessions) = (http(Era::Modern, 16), http(Era::Modern, 64), http(Era::Legacy, 16));
    let workload = |way, ask, folder| Workload { way, ask, folder, sender: Sender::Anonymous };
    let warm = |way, ask| workload(way, ask, Folder::Warm);
    let cold = |way, ask| workload(way, ask, Folder::Cold);
    let identified = |workload| Workload { sender: Sender::Identified, ..workload };
    let authorized = |workload| Workload { sender: Sender::Authorized, ..workload };
    let mut all = vec![
        vec![
            warm(sixteen, Kilobyte),
            identified(warm(sixteen, Kilobyte)),
            authorized(warm(sixteen, Kilobyte)),
            warm(sessions, Kilobyte),
            warm(sixteen, Tool),
        ],
        vec![
            cold(sixteen, Kilobyte),
            identified(cold(sixteen, Kilobyte)),
            authorized(cold(sixteen, Kilobyte)),
        ],
    ];
    all.extend([List, Text].map(|ask| vec![warm(sixteen, ask), warm(sessions, ask)]));
    all.push(vec![warm(sixteen, Blob)]);
    all.extend([Kilobyte, List, Text, Blob].map(|ask| vec![warm(many, ask)]));
    for way in [sixteen, many] {
        all.extend([Text, Blob].map(|ask| vec![cold(way, ask)]));
    }
    let in_flight = |in_flight| Way::Stdio { in_flight };
    all.extend([Kilobyte, List, Text, Blob].map(|ask| vec![warm(in_flight(64), ask)]));
    all.push(vec![warm(in_flight(1), Kilobyte)]);
    all
}

impl Workload {
    /// Whether a server takes part. Proxies take part only in small reads over HTTP, in the eras that they support. The
    /// embedded server takes part only where identified callers are compared with anonymous ones, and only it supports
    /// identified callers; only Libris supports authorized ones. The limit that reads takes part only in large reads of
    /// files that change. In a quick run, slow servers, which take long to start, take part only in workloads that have
    /// targets for them.
    pub(super) fn is_for(&self, server: Server, quick: bool) -> bool {
        let compares_senders = self.ask == Ask::Kilobyte
            && matches!(self.way, Way::Http { era: Era::Modern, connections: ..64 });
        if self.sender == Sender::Authorized {
            return server == Server::Libris;
        }
        if server == Server::ReadingLimit {
            return self.folder == Folder::Cold && self.ask != Ask::Kilobyte;
        }
        if server.is_proxy() {
            let is_plain = self.sender == Sender::Anonymous && self.folder == Folder::Warm;
            return is_plain
                && self.ask == Ask::Kilobyte
                && matches!(self.way, Way::Http { era, connections: 16 } if server.speaks(era));
        }
        if server == Server::Embedded || self.sender == Sender::Identified {
            return server == Server::Embedded && compares_senders;
        }
        if self.ask == Ask::Tool {
            return matches!(server, Server::Libris | Server::Rmcp) || server == Server::Fastmcp && !quick;
        }
        let knows = match self.way {
            Way::Http { era, .. } => server.speaks(era),
            Way::Stdio { .. } => true,
        };
        let aimed = match self.way {
            Way::Http { era, .. } => era == Era::Modern && self.ask != Ask::List,
            Way::Stdio { in_flight } => in_flight > 1 && self.ask == Ask::Kilobyte,
        };
        // Slow servers do not depend on the number of connections, and hold files in memory, so that changes of files
        // make no difference.
        let fine = self.folder == Folder::Cold || matches!(self.way, Way::Http { connections: 64.., .. });
        knows && (server.is_rust() || (!fine && (!quick || aimed)))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.way {
            Way::Http { era: Era::Modern, connections } => write!(out, "http{connections}-")?,
            Way::Http { era: Era::Legacy, connections } => write!(out, "legacy{connections}-")?,
            Way::Stdio { in_flight } => write!(out, "stdio{in_flight}-")?,
        }
        let what = match self.ask {
            Ask::Kilobyte => "read-1k",
            Ask::Text => "read-1m-text",
            Ask::Blob => "read-1m-blob",
            Ask::List => "list",
            Ask::Tool => "call-1k",
        };
        out.write_str(what)?;
        out.write_str(if self.folder == Folder::Cold { "-cold" } else { "" })?;
        out.write_str(match self.sender {
            Sender::Anonymous => "",
            Sender::Identified => "-identified",
            Sender::Authorized => "-authorized",
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::{Way, all};
    use crate::servers::Server;

    #[test]
    fn no_server_gets_requests_of_an_era_that_it_does_not_support() {
        for workload in all().concat() {
            let Way::Http { era, .. } = workload.way else { continue };
            for &server in Server::value_variants() {
                let takes_part = workload.is_for(server, false) || workload.is_for(server, true);
                assert!(!takes_part || server.speaks(era), "{workload}: {}", server.name());
            }
        }
    }
}
