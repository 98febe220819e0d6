//! `libris browse`: serves sources on a free port of this machine, and opens the picker in the browser.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use clap::Args;

use crate::serve::{self, ServeOptions};
use crate::sources::SourceArguments;

/// Browse, search and select resources in a web page
///
/// Serves the sources on 127.0.0.1, with full-text search, and opens the picker in the browser. The server runs until
/// Ctrl-C; MCP clients can use it too.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris browse ./docs                    a folder
  libris browse git:. sqlite:shop.db      several sources in one page
  libris browse --config libris.toml      the sources of a configuration file
  libris browse ./docs --no-open          print the address, and open no browser")]
pub(crate) struct BrowseOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// Serve on this address [default: 127.0.0.1 and a free port]
    #[arg(long, value_name = "ADDRESS", value_parser = serve::address)]
    http: Option<SocketAddr>,
    /// Do not open the browser
    #[arg(long)]
    no_open: bool,
}

/// What `libris browse` does when the page is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Browsing {
    /// Opens the browser.
    Open,
    /// Prints the address.
    Print,
}

/// Serves the picker until the process receives a signal to stop.
pub(crate) async fn run(options: BrowseOptions) -> Result<()> {
    let BrowseOptions { sources, http, no_open } = options;
    let http = http.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into());
    let browsing = if no_open { Browsing::Print } else { Browsing::Open };
    serve::run(ServeOptions::browsing(sources, http, browsing)).await
}
