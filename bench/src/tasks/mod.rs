//! A scripted host that answers questions only with the tools, and a comparison of bundles with whole resources.
//!
//! The host sees only `tools/list`, the instructions and the results of tools, and follows one policy:
//!
//! 1. Call `search_resources` with the words of the question.
//! 2. Call `read_resource` with the `uri` and the `lines` of the best result.
//! 3. If that read offers `next`, make that call; otherwise read the second result.
//!
//! A task is solved if the results so far contain the passage that answers the question.

mod bundles;
mod host;
mod libraries;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::program::Binary;
use crate::report::{Aim, Report};
use crate::table::{Cell, Table};
use host::ToolHost;
use libraries::{Library, Task};

/// The most calls of a task.
const MAX_CALLS: usize = 3;

/// Runs all tasks, and compares bundles with whole resources.
pub(crate) fn run(binary: &Binary, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let libraries = libraries::all(folder.path())?;
    let mut table = Table::new(
        "Tasks of a scripted host",
        ["library", "tasks", "solved", "calls", "bytes taken in per task", "bytes of listing everything"],
    );
    let (mut solved, mut all) = (0, 0);
    for library in &libraries {
        eprintln!("{} …", library.name);
        let outcome = solve(binary, library).with_context(|| library.name)?;
        solved += outcome.solved;
        all += library.tasks.len();
        table.row([
            Cell::from(library.name),
            Cell::from(library.tasks.len() as f64),
            Cell::from(outcome.solved as f64),
            Cell::from(outcome.calls as f64 / library.tasks.len() as f64),
            Cell::from(outcome.bytes as f64 / library.tasks.len() as f64),
            Cell::from(outcome.listing as f64),
        ]);
    }
    report.table(table);
    report.judge(
        format!("tasks solved of {all} in at most {MAX_CALLS} calls"),
        solved as f64,
        "",
        Aim::AtLeast(38.0),
    );
    bundles::run(binary, report)
}

/// The result of the host in one collection.
#[derive(Default)]
struct Outcome {
    solved: usize,
    calls: usize,
    bytes: usize,
    /// The size of the complete list of resources, in bytes.
    listing: usize,
}

fn solve(binary: &Binary, library: &Library) -> Result<Outcome> {
    let mut host = ToolHost::start(library.command(binary))?;
    let mut outcome = Outcome { listing: host.listing()?, ..Outcome::default() };
    for task in library.tasks {
        let taken = attempt(&mut host, task)?;
        outcome.calls += taken.calls;
        outcome.bytes += taken.bytes;
        outcome.solved += usize::from(taken.is_solved);
        if !taken.is_solved {
            eprintln!("not solved: {}", task.question);
        }
    }
    Ok(outcome)
}

/// The result of the host for one task.
#[derive(Default)]
struct Attempt {
    calls: usize,
    bytes: usize,
    is_solved: bool,
}

impl Attempt {
    /// Makes a call, and returns its structured result.
    fn call(&mut self, host: &mut ToolHost, task: &Task, tool: &str, arguments: &Value) -> Result<Value> {
        let result = host.call(tool, arguments)?;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        self.calls += 1;
        self.bytes += text.len();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.is_solved |= words(text).contains(&words(task.passage));
        Ok(result["structuredContent"].clone())
    }
}

/// Follows the policy until the task is solved.
fn attempt(host: &mut ToolHost, task: &Task) -> Result<Attempt> {
    let mut attempt = Attempt::default();
    let found = attempt.call(host, task, "search_resources", &json!({ "query": task.question }))?;
    let reading = |at: usize| {
        let result = &found["results"][at];
        let mut arguments = json!({ "uri": result["uri"] });
        if result["lines"].is_string() {
            arguments["lines"] = result["lines"].clone();
        }
        result["uri"].is_string().then_some(arguments)
    };
    let Some(first) = reading(0).filter(|_| !attempt.is_solved) else { return Ok(attempt) };
    let read = attempt.call(host, task, "read_resource", &first)?;
    let next = if read["next"].is_object() { Some(read["next"].clone()) } else { reading(1) };
    if let Some(next) = next.filter(|_| !attempt.is_solved) {
        attempt.call(host, task, "read_resource", &next)?;
    }
    Ok(attempt)
}
