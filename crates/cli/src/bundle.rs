//! `libris bundle`: prints the passages that answer a question best, within a number of tokens.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use libris::{Bundle, BundleFormat, BundlePassage, BundleRequest, Context};
use serde_json::{Value, json};

use crate::pager;
use crate::search;
use crate::sources::SourceArguments;
use crate::target::{EXIT_CODES, json_line};
use crate::terminal::{note, print, shown};

/// Bundle the passages that answer a question, for the context of a model
///
/// Searches the sources, and prints the best lines of the best resources within a budget of tokens, without
/// near-duplicates, each with its URI and the reason. The exit code is 1 if nothing was found.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris bundle ./docs --query 'how are keys rotated?'                  Markdown of at most 8,000 tokens
  libris bundle ./docs ./src --query 'parse a URI' --budget 2000        two sources, 2,000 tokens
  libris bundle ./docs --query backup --format xml > context.xml        XML
  libris bundle ./docs --query backup --format mcp                      content blocks of the protocol
  libris bundle ./docs --query backup --json                            JSON for scripts

{EXIT_CODES}"))]
pub(crate) struct BundleOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// The question, or its words
    #[arg(long, value_name = "TEXT")]
    query: String,
    /// The maximum number of tokens
    #[arg(long, default_value_t = BundleRequest::DEFAULT_BUDGET, value_name = "TOKENS", value_parser = budget)]
    budget: usize,
    /// The format of the output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: OutputFormat,
    /// Print JSON with all details: one object with the passages
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Only resources of this media type, such as `text/markdown` or `text/*`; may be given several times
    #[arg(long, value_name = "TYPE")]
    mime: Vec<String>,
    /// Only resources whose URI begins with this text
    #[arg(long, value_name = "URI")]
    below: Option<String>,
}

/// A format of the output.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum OutputFormat {
    /// Markdown, with marks around each passage
    #[default]
    Markdown,
    /// XML, with an element for each passage
    Xml,
    /// JSON with the content blocks of the protocol
    Mcp,
}

fn budget(text: &str) -> Result<usize, String> {
    let (least, most) = BundleRequest::BUDGETS.into_inner();
    let number = text.replace(['_', ','], "").parse().ok();
    number
        .filter(|number| BundleRequest::BUDGETS.contains(number))
        .ok_or_else(|| format!("expected a number of tokens from {least} to {most}"))
}

/// Indexes the sources, bundles the passages and prints them.
pub(crate) async fn run(options: BundleOptions) -> Result<ExitCode> {
    let view = search::open_indexed(&options.sources).await?;
    let request = BundleRequest {
        query: options.query,
        budget: options.budget,
        uri_prefix: options.below,
        mimes: options.mime,
    };
    let bundle = view.bundle(&request, &Context::default()).await.context("could not search")?;
    for name in &bundle.left_out {
        note(format_args!("`{}` did not answer in time and is left out", shown(name)));
    }
    match options.json {
        true => print(&json_line(&to_json(&bundle))),
        false => pager::show(&bundle.to_text(match options.format {
            OutputFormat::Markdown => BundleFormat::Markdown,
            OutputFormat::Xml => BundleFormat::Xml,
            OutputFormat::Mcp => BundleFormat::Mcp,
        })),
    }
    .context("could not print")?;
    Ok(if bundle.passages.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn to_json(bundle: &Bundle) -> Value {
    let passages = bundle.passages.iter().map(|passage| {
        let BundlePassage { uri, title, mime, lines, total_lines, text, reason, tokens } = passage;
        json!({
            "uri": uri,
            "title": title,
            "mimeType": mime,
            "firstLine": lines.0,
            "lastLine": lines.1,
            "totalLines": total_lines,
            "text": text,
            "reason": reason,
            "tokens": tokens,
        })
    });
    json!({
        "query": bundle.query,
        "tokens": bundle.tokens,
        "found": bundle.found,
        "leftOut": bundle.left_out,
        "passages": passages.collect::<Vec<_>>(),
    })
}
