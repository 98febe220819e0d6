//! `libris serve`: serves sources over stdio or HTTP.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::wire::http;
use libris::{Catalog, Serve, SubscriptionConfig, catalog};
use tokio::net::TcpListener;

use crate::config::What;
use crate::reload;
use crate::terminal::{advice, note, shown};

/// The address that is served where none is named. If it is taken, any free port is.
const ADDRESS: &str = "127.0.0.1:4747";

/// Serve folders and data as MCP resources
///
/// Without --stdio and --http it speaks stdio when a program runs it, and HTTP on this machine when
/// you run it in a terminal.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris serve ./docs                          a folder, in the terminal: over HTTP
  libris serve ./docs --stdio                  a folder, run by an MCP client
  libris serve sqlite:shop.db                  a database
  libris serve git:./project                   a git repository: its files, history and diffs
  libris serve openapi:api.yaml                an HTTP API, by its OpenAPI document
  libris serve --config libris.toml            what a configuration file says
  libris serve ./docs --http 127.0.0.1:0       over HTTP on a free port")]
pub(crate) struct Options {
    #[command(flatten)]
    what: What,
    /// Speak over standard input and output
    #[arg(long, conflicts_with = "http")]
    stdio: bool,
    /// Speak HTTP on this address; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    http: Option<SocketAddr>,
    /// Also speak the HTTP+SSE transport of 2024-11-05, at `/sse`
    #[arg(long, conflicts_with = "stdio")]
    sse: bool,
    /// A host name under which the server may be asked, beside `localhost` and IP addresses
    #[arg(long, value_name = "NAME", conflicts_with = "stdio")]
    allow_host: Vec<String>,
    /// An origin whose pages may ask, beside local ones, as in `https://app.example`
    #[arg(long, value_name = "ORIGIN", conflicts_with = "stdio")]
    allow_origin: Vec<String>,
    /// Serve other machines although there is no authentication
    #[arg(long, conflicts_with = "stdio")]
    allow_remote: bool,
}

/// Serves until the client leaves, or until the process is told to stop.
pub(crate) async fn run(options: Options) -> Result<()> {
    let (config, opened) = options.what.open(&[])?;
    let sources = opened.iter().map(|opened| opened.source.clone()).collect();
    let failures =
        catalog::Config { source_timeout: config.server.source_timeout, strict: config.server.strict };
    let catalog = Arc::new(Catalog::with_config(sources, failures));
    let name = config.server.name.clone();
    let serve = Serve::from(catalog.clone()).until(libris::interrupted()).config(libris::Config {
        name: name.clone(),
        title: config.server.title,
        description: config.server.description,
        instructions: config.server.instructions,
        page: config.server.page_size,
        cache_bytes: config.server.cache_bytes,
        subscriptions: SubscriptionConfig {
            window: config.live.window,
            subscriptions: config.live.subscriptions,
            subscription_bytes: config.live.subscription_bytes,
            client_subscription_bytes: config.live.client_subscription_bytes,
            ..SubscriptionConfig::default()
        },
        ..libris::Config::default()
    });
    let Options { what, stdio, http, sse, allow_host, allow_origin, allow_remote } = options;
    tokio::spawn(reload::run(what, opened, catalog));
    let asks_for_http =
        http.is_some() || sse || allow_remote || !allow_host.is_empty() || !allow_origin.is_empty();
    if stdio || (!asks_for_http && !io::stdin().is_terminal()) {
        return Ok(serve.stdio().await?);
    }
    allow_many_connections();
    let listener = bind(http, allow_remote).await?;
    let address = listener.local_addr().context("could not tell the address")?;
    let serve = serve.http_config(http::Config {
        hosts: [config.listen.allow_hosts, allow_host].concat(),
        origins: [config.listen.allow_origins, allow_origin].concat(),
        sse,
        metrics_prefix: "libris".into(),
        ..http::Config::default()
    });
    note(format_args!("listening on http://{address}/mcp"));
    if io::stderr().is_terminal() {
        snippet(&name, address);
    }
    Ok(serve.listen(listener).await?)
}

/// Reads an address as people write it: `127.0.0.1:8080`, `localhost:8080`, `:8080` or `8080`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    if let Ok(port) = port.parse() {
        return Ok((std::net::Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| "say an IP address and a port, as in `127.0.0.1:8080`".to_owned())
}

async fn bind(address: Option<SocketAddr>, allow_remote: bool) -> Result<TcpListener> {
    let Some(address) = address else {
        if let Ok(listener) = TcpListener::bind(ADDRESS).await {
            return Ok(listener);
        }
        return TcpListener::bind("127.0.0.1:0").await.context("could not listen on 127.0.0.1");
    };
    if !address.ip().is_loopback() && !allow_remote {
        return Err(advice(
            format!("`{address}` can be reached from other machines, and anybody could read what is served"),
            "serve 127.0.0.1 instead, or add --allow-remote if that is what you want",
        ));
    }
    TcpListener::bind(address).await.with_context(|| format!("could not listen on {address}"))
}

/// Takes all the file descriptors that the system grants: each connection needs one, and many systems
/// start programs with a thousand.
fn allow_many_connections() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        if let Err(cause) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%cause, "could not raise the limit of open files");
        }
    }
}

/// Shows what to write into a client's configuration.
fn snippet(name: &str, address: SocketAddr) {
    let name = shown(name);
    note(format_args!(
        "\nTo use it, add this to your client's MCP configuration:\n\n  \
         {{ \"mcpServers\": {{ \"{name}\": {{ \"type\": \"http\", \"url\": \"http://{address}/mcp\" }} }} }}\n\n\
         Press Ctrl-C to stop."
    ));
}
