//! `libris triggers`: prints triggers that make PostgreSQL notify of every changed row.

use anyhow::{Context as _, Result};
use clap::Args;

use crate::sources::SourceArguments;
use crate::terminal::{advice, print};

/// Print triggers that make PostgreSQL notify of changed rows immediately
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris triggers postgres://localhost/shop | psql postgres://localhost/shop")]
pub(crate) struct TriggersOptions {
    #[command(flatten)]
    sources: SourceArguments,
}

/// Reads the tables of each PostgreSQL database and prints the triggers for them.
pub(crate) async fn run(options: TriggersOptions) -> Result<()> {
    let mut scripts = String::new();
    for database in options.sources.databases()? {
        let script = database.triggers().await;
        let script = script.with_context(|| format!("could not read the tables of `{}`", database.root()))?;
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
