//! `libris templates`: lists the URI templates of a target.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::{Context, Template};

use crate::pager;
use crate::sources::SourceArguments;
use crate::target::{EXIT_CODES, OpenedTarget, clipped, json_line, template_json, width};
use crate::terminal::{DETAIL, columns, note, print, shown, styled};

/// List the URI templates of a target
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris templates ./docs                               the templates of a folder
  libris templates --long -- npx -y some-server         with descriptions

{EXIT_CODES}"))]
pub(crate) struct TemplatesOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// Print descriptions, too
    #[arg(long, short, conflicts_with = "json")]
    long: bool,
    /// Print JSON: one object per line
    #[arg(long)]
    json: bool,
}

/// Lists the templates.
pub(crate) async fn run(options: TemplatesOptions) -> Result<ExitCode> {
    let target = OpenedTarget::open(&options.sources)?;
    let templates = target.view.snapshot().templates(&Context::default()).await;
    target.close().await;
    let templates = templates.context("could not list the templates")?.templates;
    let lines = templates.iter().map(|template| match options.json {
        true => json_line(&template_json(template)),
        false => line(template, options.long, width()),
    });
    let text: String = lines.collect();
    if options.json { print(&text) } else { pager::show(&text) }.context("could not print")?;
    if templates.is_empty() {
        note("the target has no templates");
    }
    Ok(if templates.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn line(template: &Template, long: bool, width: Option<usize>) -> String {
    let uri = shown(template.uri.as_str());
    let left = width.map(|width| width.saturating_sub(columns(&uri) + 2));
    let title = clipped(template.title.as_deref().unwrap_or(&template.name), left);
    let mut text = match title.is_empty() {
        true => format!("{uri}\n"),
        false => format!("{uri}  {}\n", styled(DETAIL, title)),
    };
    if let Some(description) = template.description.as_deref().filter(|_| long) {
        let description = clipped(description, width.map(|width| width.saturating_sub(4)));
        text.push_str(&format!("    {}\n", styled(DETAIL, description)));
    }
    text
}
