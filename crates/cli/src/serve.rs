//! `libris serve`: serves sources over stdio or HTTP.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::wire::http;
use libris::{Catalog, Serve, SubscriptionConfig, catalog};
use tokio::net::TcpListener;

use crate::reload;
use crate::sources::{self, SourceArguments};
use crate::terminal::{advice, note, shown};

/// The default address. If it is in use, a free port is selected.
const DEFAULT_ADDRESS: &str = "127.0.0.1:4747";

/// Serve folders and data as MCP resources
///
/// Without --stdio and --http, Libris serves over stdio, or over HTTP on 127.0.0.1 if standard input is a terminal.
#[derive(Debug, Args)]
#[command(after_help = examples())]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// Serve over stdio
    #[arg(long, conflicts_with = "http")]
    stdio: bool,
    /// Serve over HTTP on this address; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    http: Option<SocketAddr>,
    /// Also serve the HTTP+SSE transport of 2024-11-05, at `/sse`
    #[arg(long, conflicts_with = "stdio")]
    sse: bool,
    /// Accept this `Host` name, besides `localhost` and IP addresses
    #[arg(long, value_name = "NAME", conflicts_with = "stdio")]
    allow_host: Vec<String>,
    /// Accept requests from pages of this origin, such as `https://app.example`, besides local ones
    #[arg(long, value_name = "ORIGIN", conflicts_with = "stdio")]
    allow_origin: Vec<String>,
    /// Allow a non-loopback address, although there is no authentication
    #[arg(long, conflicts_with = "stdio")]
    allow_remote: bool,
}

fn examples() -> String {
    let more = [
        ("libris serve ./docs --stdio", "over stdio, for an MCP client that starts it"),
        ("libris serve ./docs --http 127.0.0.1:0", "over HTTP on a free port"),
        ("libris serve --config libris.toml", "the sources of a configuration file"),
    ];
    let more: String = more.map(|(command, what)| sources::example(command, what)).concat();
    format!("Examples:\n{}{}", sources::examples(), more.trim_end())
}

/// Serves until the client disconnects or the process receives a signal to stop.
pub(crate) async fn run(options: ServeOptions) -> Result<()> {
    let (config, opened) = options.sources.open(&[])?;
    let served = opened.iter().map(|opened| opened.source.clone()).collect();
    let catalog_config =
        catalog::Config { source_timeout: config.server.source_timeout, strict: config.server.strict };
    let catalog = Arc::new(Catalog::with_config(served, catalog_config));
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
    let ServeOptions { sources, stdio, http, sse, allow_host, allow_origin, allow_remote } = options;
    tokio::spawn(reload::run(sources, opened, catalog));
    let wants_http =
        http.is_some() || sse || allow_remote || !allow_host.is_empty() || !allow_origin.is_empty();
    if stdio || (!wants_http && !io::stdin().is_terminal()) {
        return Ok(serve.stdio().await?);
    }
    raise_open_file_limit();
    let listener = bind(http, allow_remote).await?;
    let address = listener.local_addr().context("could not determine the address")?;
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

/// Parses an address in one of the usual forms: `127.0.0.1:8080`, `localhost:8080`, `:8080` or `8080`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    if let Ok(port) = port.parse() {
        return Ok((std::net::Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| "expected an IP address and a port, such as `127.0.0.1:8080`".to_owned())
}

async fn bind(address: Option<SocketAddr>, allow_remote: bool) -> Result<TcpListener> {
    let Some(address) = address else {
        if let Ok(listener) = TcpListener::bind(DEFAULT_ADDRESS).await {
            return Ok(listener);
        }
        return TcpListener::bind("127.0.0.1:0").await.context("could not listen on 127.0.0.1");
    };
    if !address.ip().is_loopback() && !allow_remote {
        return Err(advice(
            format!("`{address}` is reachable from other machines, and there is no authentication"),
            "use 127.0.0.1, or add --allow-remote to let anyone on the network read the sources",
        ));
    }
    TcpListener::bind(address).await.with_context(|| format!("could not listen on {address}"))
}

/// Raises the limit of open files to its maximum: each connection needs a file descriptor, and the default limit is
/// often 1,024.
fn raise_open_file_limit() {
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

/// Prints the entry for the configuration of an MCP client.
fn snippet(name: &str, address: SocketAddr) {
    let name = shown(name);
    note(format_args!(
        "\nTo use it, add this to your client's MCP configuration:\n\n  \
         {{ \"mcpServers\": {{ \"{name}\": {{ \"type\": \"http\", \"url\": \"http://{address}/mcp\" }} }} }}\n\n\
         Press Ctrl-C to stop."
    ));
}
