//! The servers that are compared, and how each of them is started on the same folder.

pub(crate) mod install;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use self::install::Installed;
use crate::machine::Cores;
use crate::mcp::{Era, Sender};
use crate::program::{Binary, OverHttp, OverStdio};
use crate::table::Table;

/// A server of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub(crate) enum Server {
    /// The lower bound: bare hyper or a bare loop, with prepared responses
    Limit,
    /// The lower bound of a server that reads the file and encodes it at each request: bare hyper
    ReadingLimit,
    /// The `libris` binary
    Libris,
    /// A server that embeds Libris as a library, with a policy that distinguishes callers
    Embedded,
    /// A minimal server of the official Rust SDK
    Rmcp,
    /// A minimal server of the official TypeScript SDK, version 2
    Typescript,
    /// A minimal server of the official TypeScript SDK, version 1
    Typescript1,
    /// A minimal server of the official Python SDK
    Python,
    /// A server of FastMCP
    Fastmcp,
    /// Libris as a gateway to a server of the Rust SDK whose contents it may cache
    Gateway,
    /// Libris as a gateway to a server of the Rust SDK whose contents it may not cache
    UncachedGateway,
    /// Libris as a gateway to a server of the Rust SDK over stdio whose contents it may not cache, as behind `mcp-proxy`
    StdioGateway,
    /// The npm package `mcp-proxy` in front of a server of the Rust SDK over stdio, the only transport that it has on that side
    McpProxy,
}

impl Server {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::ReadingLimit => "limit, reading",
            Self::Libris => "Libris",
            Self::Embedded => "embedded",
            Self::Rmcp => "rmcp",
            Self::Typescript => "TypeScript 2",
            Self::Typescript1 => "TypeScript 1",
            Self::Python => "Python",
            Self::Fastmcp => "FastMCP",
            Self::Gateway => "gateway, cached",
            Self::UncachedGateway => "gateway, uncached",
            Self::StdioGateway => "gateway to stdio, uncached",
            Self::McpProxy => "mcp-proxy",
        }
    }

    /// Whether it supports this era.
    pub(crate) fn speaks(self, era: Era) -> bool {
        match self {
            Self::Limit | Self::ReadingLimit => era == Era::Modern,
            Self::Typescript1 | Self::McpProxy => era == Era::Legacy,
            _ => true,
        }
    }

    /// The newest era that it supports.
    pub(crate) fn era(self) -> Era {
        if self.speaks(Era::Modern) { Era::Modern } else { Era::Legacy }
    }

    /// Whether it is written in Rust and takes part in all rounds.
    pub(crate) fn is_rust(self) -> bool {
        matches!(
            self,
            Self::Limit
                | Self::ReadingLimit
                | Self::Libris
                | Self::Embedded
                | Self::Rmcp
                | Self::Gateway
                | Self::UncachedGateway
                | Self::StdioGateway
        )
    }

    /// Whether it passes requests to another server.
    pub(crate) fn is_proxy(self) -> bool {
        matches!(self, Self::Gateway | Self::UncachedGateway | Self::StdioGateway | Self::McpProxy)
    }

    /// Whether it also serves over stdio.
    pub(crate) fn has_stdio(self) -> bool {
        !matches!(self, Self::Embedded | Self::ReadingLimit) && !self.is_proxy()
    }

    fn peer(self) -> Option<install::Peer> {
        match self {
            Self::Typescript => Some(install::TYPESCRIPT),
            Self::Typescript1 => Some(install::TYPESCRIPT_1),
            Self::Python => Some(install::PYTHON),
            Self::Fastmcp => Some(install::FASTMCP),
            Self::McpProxy => Some(install::MCP_PROXY),
            Self::Limit
            | Self::ReadingLimit
            | Self::Libris
            | Self::Embedded
            | Self::Rmcp
            | Self::Gateway
            | Self::UncachedGateway
            | Self::StdioGateway => None,
        }
    }
}

/// The installed programs of the selected servers.
pub(crate) struct Servers<'b> {
    /// The selected servers.
    pub(crate) all: Vec<Server>,
    pub(crate) libris: &'b Binary,
    pub(crate) cores: Cores,
    peers: HashMap<Server, Installed>,
}

impl<'b> Servers<'b> {
    /// Installs these servers, or all if none is named. Skips those that cannot be installed.
    pub(crate) fn new(only: &[Server], libris: &'b Binary) -> Result<Self> {
        let (mut all, mut peers) = (Vec::new(), HashMap::new());
        for &server in Server::value_variants() {
            if !only.is_empty() && !only.contains(&server) {
                continue;
            }
            match server.peer().map(|peer| peer.install()).transpose() {
                Ok(installed) => {
                    all.push(server);
                    peers.extend(installed.map(|installed| (server, installed)));
                }
                Err(error) => eprintln!("{} is left out: {error:#}", server.name()),
            }
        }
        Ok(Self { all, libris, cores: Cores::apart()?, peers })
    }

    /// Descriptions of the servers.
    pub(crate) fn table(&self) -> Result<Table> {
        let mut table = Table::new("Servers", ["server", "version"]);
        for &server in &self.all {
            let version = match server {
                Server::Limit => "hyper, or a loop that blocks; ready bytes".to_owned(),
                Server::ReadingLimit => "hyper; reads the file and encodes it".to_owned(),
                Server::Libris | Server::Gateway | Server::UncachedGateway | Server::StdioGateway => {
                    self.libris.version()?
                }
                Server::Embedded => format!("the library of this workspace, {}", env!("CARGO_PKG_VERSION")),
                Server::Rmcp => format!("rmcp {}", rmcp::model::Implementation::from_build_env().version),
                peer => self.peer(peer)?.version.clone(),
            };
            table.row([server.name().into(), version.as_str().into()]);
        }
        Ok(table)
    }

    fn peer(&self, server: Server) -> Result<&Installed> {
        self.peers.get(&server).with_context(|| format!("{} is not installed", server.name()))
    }

    /// Serves a folder over HTTP, on a free port of this machine.
    ///
    /// With `fresh`, the peers read files at each request. Libris detects changes by itself.
    pub(crate) fn over_http(
        &self,
        server: Server,
        folder: &Path,
        era: Era,
        sender: Sender,
        fresh: bool,
    ) -> Result<OverHttp> {
        if matches!(server, Server::Gateway | Server::UncachedGateway) {
            return self.gateway(folder, server == Server::Gateway);
        }
        let era = if era == Era::Modern { "modern" } else { "legacy" };
        let mut command = match server {
            Server::Libris => self.libris.command(folder),
            Server::StdioGateway => self.libris.in_front_of_program(),
            Server::Limit | Server::ReadingLimit => own("limit-http")?,
            Server::Embedded => own("embedded-http")?,
            Server::Rmcp => own("rmcp-http")?,
            peer => self.peer(peer)?.command(),
        };
        match server {
            Server::Libris => command.args(["--http", "127.0.0.1:0"]),
            Server::Limit => command.arg(folder),
            Server::ReadingLimit => command.arg(folder).arg("--fresh"),
            Server::Embedded => command.arg(folder).arg(sender.name()),
            Server::StdioGateway => {
                command.args(["--http", "127.0.0.1:0", "--"]);
                command.arg(this_program()?).arg("rmcp-stdio").arg(folder)
            }
            Server::McpProxy => {
                command.arg(this_program()?).arg("rmcp-stdio").arg(folder).stdout(Stdio::null())
            }
            _ => command.arg(folder).arg(era).args(fresh.then_some("--fresh")),
        };
        // Node.js warns about the number of listeners, which is the number of requests in flight.
        command.env("NODE_NO_WARNINGS", "1");
        let child = self.cores.start(command.stdin(Stdio::null()).stderr(Stdio::piped()))?;
        OverHttp::listening(child, server.name())
    }

    /// Serves a server of the Rust SDK through Libris.
    fn gateway(&self, folder: &Path, cacheable: bool) -> Result<OverHttp> {
        let mut upstream = own("rmcp-http")?;
        upstream.arg(folder).arg("modern").args(cacheable.then_some("--cacheable"));
        let upstream = self.cores.start(upstream.stdin(Stdio::null()).stderr(Stdio::piped()))?;
        let upstream = OverHttp::listening(upstream, Server::Rmcp.name())?;
        let url = format!("http://{}/mcp", upstream.address);
        let mut command = self.libris.command(Path::new(&url));
        command.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped());
        let gateway = OverHttp::listening(self.cores.start(&mut command)?, Server::Gateway.name())?;
        Ok(gateway.in_front_of(upstream))
    }

    /// Serves a configuration file of Libris over HTTP.
    pub(crate) fn configured(&self, file: &Path) -> Result<OverHttp> {
        let mut command = self.libris.configured(file);
        command.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped());
        OverHttp::listening(self.cores.start(&mut command)?, Server::Libris.name())
    }

    /// Serves a folder over its standard input and output.
    pub(crate) fn over_stdio(&self, server: Server, folder: &Path) -> Result<OverStdio> {
        let mut command = match server {
            Server::Libris => self.libris.command(folder),
            Server::Limit => own("limit-stdio")?,
            Server::Rmcp => own("rmcp-stdio")?,
            peer => self.peer(peer)?.command(),
        };
        match server {
            Server::Libris => command.arg("--stdio"),
            Server::Limit | Server::Rmcp => command.arg(folder),
            _ => command.arg(folder).arg("stdio"),
        };
        command.env("NODE_NO_WARNINGS", "1");
        OverStdio::connected(self.cores.start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?)
    }
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("could not tell where this program is")
}

/// A server that is a subcommand of this program.
fn own(which: &str) -> Result<Command> {
    let mut command = Command::new(this_program()?);
    command.arg(which);
    Ok(command)
}
