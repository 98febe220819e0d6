//! `libris watch`: prints the changes of a target.

use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result};
use clap::Args;
use futures_util::StreamExt as _;
use libris::wire::Client;
use libris::{Change, Context, Source as _, Uri};
use serde_json::json;

use crate::sources::SourceArguments;
use crate::target::{EXIT_CODES, OpenedTarget, json_line};
use crate::terminal::{advice, note, print, shown, warn};

/// The maximum number of resources that are watched if none is named.
const MAX_WATCHED: usize = 1000;

/// Print changes of resources as they happen
///
/// Prints a line for each change: `updated`, `described` (its metadata changed), `added` or `removed`, and the URI; or
/// `lost` if changes were missed, for example because a server was restarted. A resource of another server is reported as
/// `updated` once when the server has accepted the subscription, because earlier changes are unknown.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris watch ./docs                                        every change in a folder
  libris watch --uri demo://status https://mcp.example/mcp   one resource of a server
  libris watch ./docs --exec ./rebuild                       run `./rebuild updated file:///docs/a.md`

{EXIT_CODES}"))]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    pub(crate) sources: SourceArguments,
    /// Watch this resource; may be given several times [default: the first 1,000 that are listed, and the list]
    #[arg(long, value_name = "URI")]
    pub(crate) uri: Vec<String>,
    /// Run this program for each change, with the kind of change and the URI as its arguments
    #[arg(long, value_name = "PROGRAM")]
    exec: Option<String>,
    /// End after this number of changes
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
    /// Print JSON: one object per line
    #[arg(long)]
    json: bool,
}

/// Prints changes until the process is interrupted.
pub(crate) async fn run(options: WatchOptions) -> Result<ExitCode> {
    let target = OpenedTarget::open(&options.sources)?;
    let outcome = tokio::select! {
        outcome = watch(&options, &target) => outcome,
        () = libris::interrupted() => Ok(ExitCode::SUCCESS),
    };
    target.close().await;
    outcome
}

async fn watch(options: &WatchOptions, target: &OpenedTarget) -> Result<ExitCode> {
    let catalog = &target.catalog;
    let mut uris = options.uri.iter().map(|uri| Uri::parse(uri)).collect::<libris::Result<Vec<_>>>()?;
    let page = target
        .view
        .snapshot()
        .list(None, MAX_WATCHED, &Context::default())
        .await
        .context("could not list the resources")?;
    if uris.is_empty() {
        if page.more {
            warn(format_args!(
                "the target has more than {MAX_WATCHED} resources; name those to watch with --uri"
            ));
        }
        uris = page.resources.into_iter().map(|resource| resource.uri).collect();
    }
    let changes = catalog.watch().await.context("could not watch the target")?;
    let mut changes =
        changes.ok_or_else(|| advice("the target does not report changes", "poll it with `libris read`"))?;
    let subjects: Vec<_> = uris.iter().map(|uri| catalog.subject(uri)).collect();
    subjects.iter().for_each(|subject| catalog.follow(subject, Client::default()));
    note("watching; interrupt with Ctrl-C");
    let mut count = 0;
    while let Some(change) = changes.next().await {
        let (kind, uri) = match &change {
            Change::Updated(uri) => ("updated", Some(uri)),
            Change::Described(uri) => ("described", Some(uri)),
            Change::Added(uri) => ("added", Some(uri)),
            Change::Removed(uri) => ("removed", Some(uri)),
            // Not a change of resources.
            Change::Features => continue,
            _ => ("lost", None),
        };
        let is_wanted = options.uri.is_empty()
            || uri.is_none_or(|uri| uris.contains(uri) || subjects.contains(&catalog.subject(uri)));
        if !is_wanted {
            continue;
        }
        print(&match (options.json, uri) {
            (true, uri) => json_line(&json!({ "change": kind, "uri": uri.map(Uri::as_str) })),
            (false, Some(uri)) => format!("{kind} {}\n", shown(uri.as_str())),
            (false, None) => format!("{kind}\n"),
        })
        .context("could not print")?;
        if let Some(program) = &options.exec {
            execute(program, kind, uri).await?;
        }
        count += 1;
        if options.count.is_some_and(|most| count >= most) {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a program for a change. A program that fails does not end the watch; one that cannot be started does.
async fn execute(program: &str, kind: &str, uri: Option<&Uri>) -> Result<()> {
    let mut command = tokio::process::Command::new(program);
    command.arg(kind).args(uri.map(Uri::as_str)).stdin(Stdio::null());
    let status = command.status().await.map_err(|cause| {
        advice(
            format!("could not run `{}`: {cause}", shown(program)),
            "write its full path, without arguments",
        )
    })?;
    if !status.success() {
        warn(format_args!("`{}` failed: {status}", shown(program)));
    }
    Ok(())
}
