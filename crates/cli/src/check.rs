//! `libris check`: lists what would be served, without serving it.

use anyhow::{Context as _, Result};
use clap::Args;
use libris::{Context, Resource, Source, Template};
use serde_json::json;

use crate::sources::SourceArguments;
use crate::terminal::{bytes, print, shown};

/// The number of resources per page of a listing.
const PAGE: usize = 1000;

/// Check a configuration and show what it would serve
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris check ./docs                    what `libris serve ./docs` would serve
  libris check --config libris.toml      validate a configuration file
  libris check ./docs --json             JSON for scripts, with every resource")]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// Print JSON, with every resource
    #[arg(long)]
    json: bool,
    /// The number of resources to show of each source
    #[arg(long, default_value_t = 10, value_name = "COUNT", conflicts_with = "json")]
    show: usize,
}

/// The listing of one source.
struct Report {
    name: String,
    resources: Vec<Resource>,
    count: u64,
    size: u64,
    templates: Vec<Template>,
}

/// Opens all sources, lists each completely and prints the result.
pub(crate) async fn run(options: CheckOptions) -> Result<()> {
    let (_, opened) = options.sources.open(&[])?;
    let mut all = Vec::new();
    for opened in &opened {
        let keep = if options.json { usize::MAX } else { options.show };
        let report = list(&opened.label, opened.source.as_ref(), keep).await;
        all.push(report.with_context(|| format!("could not list `{}`", opened.label))?);
    }
    let text = if options.json { format!("{:#}\n", json(&all)) } else { table(&all) };
    print(&text).context("could not print")
}

/// Lists a source completely and collects up to `keep` resources.
async fn list(name: &str, source: &dyn Source, keep: usize) -> Result<Report> {
    let mut report = Report {
        name: name.to_owned(),
        resources: Vec::new(),
        count: 0,
        size: 0,
        templates: source.templates(&Context::default()).await?.templates,
    };
    let mut after = None;
    loop {
        let page = source.list(after.as_ref(), PAGE, &Context::default()).await?;
        after = page.resources.last().map(|last| last.uri.clone());
        for resource in page.resources {
            report.count += 1;
            report.size += resource.size.unwrap_or_default();
            if report.resources.len() < keep {
                report.resources.push(resource);
            }
        }
        if !page.more {
            return Ok(report);
        }
    }
}

fn table(all: &[Report]) -> String {
    let mut lines = Vec::new();
    for report in all {
        let resources = if report.count == 1 { "resource" } else { "resources" };
        lines.push(format!("{}: {} {resources}, {}", shown(&report.name), report.count, bytes(report.size)));
        for resource in &report.resources {
            let mime = resource.mime.as_deref().unwrap_or("?");
            let title = resource.title.as_deref().map(|title| format!("  {title}")).unwrap_or_default();
            lines.push(format!("  {}  {}{}", resource.uri, shown(mime), shown(&title)));
        }
        let rest = report.count - report.resources.len() as u64;
        if rest > 0 {
            lines.push(format!("  … and {rest} more"));
        }
        for template in &report.templates {
            lines.push(format!("  template {}", shown(template.uri.as_str())));
        }
    }
    lines.push("ok\n".to_owned());
    lines.join("\n")
}

fn json(all: &[Report]) -> serde_json::Value {
    let sources = all.iter().map(|report| {
        let resources = report.resources.iter().map(|resource| {
            json!({
                "uri": resource.uri,
                "name": resource.name,
                "title": resource.title,
                "mimeType": resource.mime,
                "size": resource.size,
            })
        });
        let templates = report.templates.iter().map(
            |template| json!({ "uriTemplate": template.uri, "name": template.name, "title": template.title }),
        );
        json!({
            "source": report.name,
            "count": report.count,
            "size": report.size,
            "resources": resources.collect::<Vec<_>>(),
            "templates": templates.collect::<Vec<_>>(),
        })
    });
    json!({ "ok": true, "sources": sources.collect::<Vec<_>>() })
}
