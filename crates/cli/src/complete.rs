//! `libris complete`: completes a variable of a URI template.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::{Completion, CompletionRequest, Context, UriTemplate};
use serde_json::json;

use crate::sources::SourceArguments;
use crate::target::{EXIT_CODES, OpenedTarget, assignment, json_line};
use crate::terminal::{advice, note, print, shown};

/// Complete a variable of a URI template
///
/// Prints the values that the target suggests, the best first, each on a line.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris complete 'file:///docs/{{+path}}' path=gui ./docs   paths that begin with `gui`
  libris complete 'db://{{table}}/{{id}}' id --with table=users https://mcp.example/mcp

{EXIT_CODES}"))]
pub(crate) struct CompleteOptions {
    /// The template, as `libris templates` prints it
    pub(crate) template: String,
    /// The variable, and after `=` the text typed so far
    pub(crate) variable: String,
    #[command(flatten)]
    pub(crate) sources: SourceArguments,
    /// The value of another variable; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub(crate) with: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Completes the variable and prints the values.
pub(crate) async fn run(options: CompleteOptions) -> Result<ExitCode> {
    let template = UriTemplate::parse(&options.template)?;
    let (variable, typed) = options.variable.split_once('=').unwrap_or((&options.variable, ""));
    if !template.variables().any(|name| name == variable) {
        let names: Vec<_> = template.variables().map(|name| format!("`{name}`")).collect();
        return Err(advice(
            format!("`{template}` has no variable `{variable}`"),
            format!("its variables are {}", names.join(", ")),
        ));
    }
    let known: BTreeMap<_, _> = options.with.iter().cloned().collect();
    let target = OpenedTarget::open(&options.sources)?;
    let request =
        CompletionRequest { template: &template, variable, typed, known: &known, limit: Completion::LIMIT };
    let completion = target.view.snapshot().complete(request, &Context::default()).await;
    target.close().await;
    let Completion { values, total, more, .. } = completion.context("could not complete the variable")?;
    let text = match options.json {
        true => json_line(&json!({ "values": values, "total": total, "hasMore": more })),
        false => values.iter().map(|value| shown(&value.replace('\n', " ")) + "\n").collect(),
    };
    print(&text).context("could not print")?;
    if values.is_empty() {
        let (name, typed) = options.variable.split_once('=').unwrap_or((&options.variable, ""));
        note(match typed {
            "" => format!("the target suggests no values of `{}`", shown(name)),
            _ => format!("the target suggests no values of `{}` for `{}`", shown(name), shown(typed)),
        });
    }
    Ok(if values.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
