//! `libris triggers`: prints a script that makes PostgreSQL tell of every row that changes.

use anyhow::{Context as _, Result};
use clap::Args;

use crate::config::What;
use crate::terminal::{advice, print};

/// Print a script of triggers that make PostgreSQL tell of changes at once
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris triggers postgres://localhost/shop | psql postgres://localhost/shop")]
pub(crate) struct Options {
    #[command(flatten)]
    what: What,
}

/// Asks every PostgreSQL database for its tables and prints the script for them.
pub(crate) async fn run(options: Options) -> Result<()> {
    let mut scripts = String::new();
    for database in options.what.databases()? {
        let script = database.triggers().await;
        let script = script.with_context(|| format!("could not ask `{}`", database.root()))?;
        scripts.extend(script);
    }
    if scripts.is_empty() {
        return Err(advice(
            "there is no PostgreSQL database among the sources",
            "name one, as in `libris triggers postgres://localhost/shop`",
        ));
    }
    print(&scripts).context("could not print")
}
