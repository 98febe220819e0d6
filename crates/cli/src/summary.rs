//! What `libris serve` prints on a terminal: the sources with their state, and how to add the server to hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use libris::{Context, Source};
use tokio::task::JoinHandle;

use crate::hosts::{HostInstructions, Machine, NewServer, Step};
use crate::sources::ConfiguredSource;
use crate::terminal::{DETAIL, Explanation, HEADING, counted, failure, note, shown, styled};

/// The number of resources per page of a listing.
const PAGE_SIZE: usize = 1000;

/// Counting stops at this number of resources.
const MAX_COUNTED: u64 = 1_000_000;

/// How long the summary waits for the counts of the sources. A count that takes longer is printed when it is known.
const PATIENCE: Duration = Duration::from_secs(1);

/// A source that is being counted.
struct Counting {
    label: String,
    /// The resources found so far.
    found: Arc<AtomicU64>,
    task: JoinHandle<String>,
}

impl Counting {
    /// Starts counting; `running` is dropped at the end.
    fn start(source: &ConfiguredSource, running: tokio::sync::mpsc::Sender<()>) -> Self {
        let found = Arc::new(AtomicU64::new(0));
        let (source, label) = (source.clone(), shown(&source.label));
        let count = found.clone();
        let task = tokio::spawn(async move {
            let _running = running;
            if source.failure.is_some() {
                return failure("unavailable, see the error above");
            }
            let counted = count_all(source.source.as_ref(), &count).await;
            counted.unwrap_or_else(|error| unavailable(&error))
        });
        Self { label, found, task }
    }
}

/// Counts the resources and templates of a source, and returns the counts as text. Adds the resources to `found` page
/// by page.
async fn count_all(source: &dyn Source, found: &AtomicU64) -> anyhow::Result<String> {
    let context = Context::default();
    let templates = source.templates(&context).await.context("could not list the templates")?.templates.len();
    let mut after = None;
    let prefix = loop {
        let page = source.list(after.as_ref(), PAGE_SIZE, &context).await.context("could not list")?;
        after = page.resources.last().map(|last| last.uri.clone());
        let so_far = found.fetch_add(page.resources.len() as u64, Ordering::Relaxed);
        if !page.more {
            break "";
        }
        if so_far >= MAX_COUNTED {
            break "more than ";
        }
    };
    let resources = counted(found.load(Ordering::Relaxed), "resource");
    Ok(format!("{prefix}{resources}, {}", counted(templates as u64, "template")))
}

/// The state of a source that failed: its causes, or its message if it has none.
fn unavailable(error: &anyhow::Error) -> String {
    let Explanation { message, causes, .. } = Explanation::of(error);
    let text = if causes.is_empty() { message } else { causes.join(": ") };
    format!("{} {text}", failure("unavailable:"))
}

/// Prints the sources, how to add the server to the hosts of this machine, and how to stop it.
pub(crate) async fn print(sources: &[ConfiguredSource], server: &NewServer) {
    let (running, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let counting: Vec<_> = sources.iter().map(|source| Counting::start(source, running.clone())).collect();
    drop(running);
    // The channel closes when all tasks have ended.
    let _ = tokio::time::timeout(PATIENCE, ended.recv()).await;
    let width = counting.iter().map(|one| one.label.chars().count()).max().unwrap_or_default();
    note(format_args!("\n{}", styled(HEADING, "Sources")));
    let mut late = Vec::new();
    for Counting { label, found, mut task } in counting {
        let state = match tokio::time::timeout(Duration::ZERO, &mut task).await {
            Ok(state) => state.unwrap_or_else(|_| failure("panicked")),
            Err(_) => {
                let found = counted(found.load(Ordering::Relaxed), "resource");
                late.push((label.clone(), task));
                styled(DETAIL, format_args!("{found} so far …"))
            }
        };
        note(format_args!("  {label:width$}  {state}"));
    }
    for source in sources {
        if let Some(tip) = source.tip() {
            note(format_args!("  {}", styled(DETAIL, tip)));
        }
    }
    print_hosts(&Machine::this().instructions(server), server);
    note("\nPress Ctrl-C to stop.");
    for (label, task) in late {
        tokio::spawn(async move {
            if let Ok(state) = task.await {
                note(format_args!("{label}: {state}"));
            }
        });
    }
}

fn print_hosts(instructions: &[HostInstructions], server: &NewServer) {
    if instructions.is_empty() {
        let NewServer { name, url, .. } = server;
        note(format_args!(
            "\n{}\n  {{ \"mcpServers\": {{ \"{name}\": {{ \"type\": \"http\", \"url\": \"{url}\" }} }} }}",
            styled(HEADING, "Add it to the MCP configuration of your host")
        ));
        return;
    }
    note(format_args!("\n{}", styled(HEADING, "Add it to a host on this machine")));
    let width = instructions.iter().map(|one| one.host.len()).max().unwrap_or_default();
    for HostInstructions { host, step } in instructions {
        match step {
            Step::Run(command) => {
                note(format_args!("  {host:width$}  {}", in_two_lines(command, width + 4)));
            }
            Step::Add { file, key, entry } => note(format_args!(
                "  {host:width$}  {}\n    {entry}",
                styled(DETAIL, format_args!("in {file}, below \"{key}\":"))
            )),
        }
    }
}

/// A command that is printed after `indent` columns. If it is too long for a terminal, it continues in a second line,
/// so that copying both lines gives the same command.
fn in_two_lines(command: &str, indent: usize) -> String {
    const COLUMNS: usize = 80;
    match command.split_once(" '") {
        Some((program, argument)) if cfg!(unix) && indent + command.len() > COLUMNS => {
            format!("{program} \\\n    '{argument}")
        }
        _ => command.to_owned(),
    }
}
