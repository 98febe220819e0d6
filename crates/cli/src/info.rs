//! `libris info`: prints the identity and the capabilities of a server.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::wire::Revision;
use libris_sources::registry::KeyedDefinition;
use serde_json::{Value, json};

use crate::sources::SourceArguments;
use crate::target::{EXIT_CODES, json_line, one_line, width};
use crate::terminal::{HEADING, print, shown, styled, wrapped_at, wrapped_markdown};

/// The columns before the values.
const INDENT: usize = 14;

/// Show the identity, protocol revision and capabilities of a server
///
/// For another MCP server, shows what it answers. For other sources, shows how `libris serve` would present itself.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris info https://mcp.example/mcp
  libris info --json -- npx -y some-server

{EXIT_CODES}"))]
pub(crate) struct InfoOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// Print JSON: one object per source
    #[arg(long)]
    json: bool,
}

/// Prints what is known about each source.
pub(crate) async fn run(options: InfoOptions) -> Result<ExitCode> {
    let (_, definitions) = options.sources.definitions()?;
    for definition in definitions {
        let info = information(&definition).await?;
        let text = if options.json { json_line(&info) } else { to_text(&info) };
        print(&text).context("could not print")?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn information(definition: &KeyedDefinition) -> Result<Value> {
    let label = definition.definition.label();
    #[cfg(feature = "mcp")]
    if let Some(server) = (&*definition.definition as &dyn std::any::Any)
        .downcast_ref::<libris_sources::mcp::ServerDefinition>()
    {
        use libris::Source as _;
        let connecting = || format!("could not connect to `{label}`");
        let remote = server.remote().with_context(connecting)?;
        let identity = remote.identity().await.with_context(connecting);
        remote.close().await;
        let identity = identity?;
        return Ok(json!({
            "target": label,
            "name": identity.name(),
            "version": identity.version(),
            "title": identity.title(),
            "protocolVersion": identity.revision(),
            "capabilities": identity.capabilities(),
            "instructions": identity.instructions(),
        }));
    }
    let revisions: Vec<_> = Revision::ALL.iter().map(|revision| revision.facts().date).collect();
    Ok(json!({
        "target": label,
        "source": definition.key,
        "name": "libris",
        "version": env!("CARGO_PKG_VERSION"),
        "protocolVersions": revisions,
    }))
}

fn to_text(info: &Value) -> String {
    let mut lines = String::new();
    let mut line = |key: &str, value: String| {
        if !value.is_empty() {
            let wrapped = match width() {
                // Continued lines have two more spaces, and come below the first value.
                Some(width) => wrapped_at(&one_line(&value), width.saturating_sub(INDENT)),
                None => one_line(&value),
            };
            for (at, value) in wrapped.lines().enumerate() {
                let key = if at == 0 { key } else { "" };
                let value = value.trim_start();
                lines.push_str(&format!("{}  {value}\n", styled(HEADING, format_args!("{key:<12}"))));
            }
        }
    };
    let text = |key: &str| info[key].as_str().unwrap_or_default().to_owned();
    line("target", text("target"));
    line("source", text("source"));
    line("server", format!("{} {}", text("name"), text("version")).trim().to_owned());
    line("title", text("title"));
    line("revision", text("protocolVersion"));
    let revisions = info["protocolVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    line("revisions", revisions.collect::<Vec<_>>().join(", "));
    let capabilities = info["capabilities"].as_object();
    let is_capability = |(key, _): &(&String, &Value)| *key != "extensions";
    line(
        "capabilities",
        capabilities
            .into_iter()
            .flatten()
            .filter(is_capability)
            .map(capability)
            .collect::<Vec<_>>()
            .join(", "),
    );
    let extensions = info["capabilities"]["extensions"].as_object();
    line(
        "extensions",
        extensions.into_iter().flatten().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(", "),
    );
    if let Some(instructions) = info["instructions"].as_str() {
        lines.push_str(&format!("{}\n", styled(HEADING, "instructions")));
        let indented: String = instructions.lines().map(|line| format!("  {}\n", shown(line))).collect();
        let wrapped = width().map_or_else(|| indented.clone(), |width| wrapped_markdown(&indented, width));
        wrapped.lines().for_each(|line| lines.push_str(&format!("{}\n", line.trim_end())));
    }
    lines
}

/// A capability with what it includes, such as `resources (listChanged, subscribe)`.
fn capability((name, settings): (&String, &Value)) -> String {
    let included = settings.as_object().into_iter().flatten();
    let included: Vec<_> =
        included.filter(|(_, value)| **value != json!(false)).map(|(key, _)| key.as_str()).collect();
    match included.is_empty() {
        true => name.clone(),
        false => format!("{name} ({})", included.join(", ")),
    }
}
