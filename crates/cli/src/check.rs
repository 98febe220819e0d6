//! `libris check`: says what would be served, without serving it.

use anyhow::{Context as _, Result};
use clap::Args;
use libris::{Context, Resource, Source, Template};
use serde_json::json;

use crate::config::What;
use crate::terminal::{bytes, print, shown};

/// How many resources are asked for at once.
const PAGE: usize = 1000;

/// Check a configuration and show what it would serve
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris check ./docs                    what `libris serve ./docs` would serve
  libris check --config libris.toml      whether a configuration is right
  libris check ./docs --json             the same for a script, with every resource")]
pub(crate) struct Options {
    #[command(flatten)]
    what: What,
    /// Print JSON, with every resource
    #[arg(long)]
    json: bool,
    /// How many resources of each source to show
    #[arg(long, default_value_t = 10, value_name = "COUNT", conflicts_with = "json")]
    show: usize,
}

/// What was found in one source.
struct Found {
    name: String,
    resources: Vec<Resource>,
    count: u64,
    size: u64,
    templates: Vec<Template>,
}

/// Opens every source, lists it whole and says what is there.
pub(crate) async fn run(options: Options) -> Result<()> {
    let (_, opened) = options.what.open(&[])?;
    let mut all = Vec::new();
    for opened in &opened {
        let keep = if options.json { usize::MAX } else { options.show };
        let found = look(&opened.name, opened.source.as_ref(), keep).await;
        all.push(found.with_context(|| format!("could not list `{}`", opened.name))?);
    }
    let text = if options.json { format!("{:#}\n", json(&all)) } else { table(&all) };
    print(&text).context("could not print")
}

async fn look(name: &str, source: &dyn Source, keep: usize) -> Result<Found> {
    let mut found = Found {
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
            found.count += 1;
            found.size += resource.size.unwrap_or_default();
            if found.resources.len() < keep {
                found.resources.push(resource);
            }
        }
        if !page.more {
            return Ok(found);
        }
    }
}

fn table(all: &[Found]) -> String {
    let mut lines = Vec::new();
    for found in all {
        let resources = if found.count == 1 { "resource" } else { "resources" };
        lines.push(format!("{}: {} {resources}, {}", shown(&found.name), found.count, bytes(found.size)));
        for resource in &found.resources {
            let mime = resource.mime.as_deref().unwrap_or("?");
            let title = resource.title.as_deref().map(|title| format!("  {title}")).unwrap_or_default();
            lines.push(format!("  {}  {}{}", resource.uri, shown(mime), shown(&title)));
        }
        let rest = found.count - found.resources.len() as u64;
        if rest > 0 {
            lines.push(format!("  … and {rest} more"));
        }
        for template in &found.templates {
            lines.push(format!("  template {}", shown(template.uri.as_str())));
        }
    }
    lines.push("ok\n".to_owned());
    lines.join("\n")
}

fn json(all: &[Found]) -> serde_json::Value {
    let sources = all.iter().map(|found| {
        let resources = found.resources.iter().map(|resource| {
            json!({
                "uri": resource.uri,
                "name": resource.name,
                "title": resource.title,
                "mimeType": resource.mime,
                "size": resource.size,
            })
        });
        let templates = found.templates.iter().map(
            |template| json!({ "uriTemplate": template.uri, "name": template.name, "title": template.title }),
        );
        json!({
            "source": found.name,
            "count": found.count,
            "size": found.size,
            "resources": resources.collect::<Vec<_>>(),
            "templates": templates.collect::<Vec<_>>(),
        })
    });
    json!({ "ok": true, "sources": sources.collect::<Vec<_>>() })
}
