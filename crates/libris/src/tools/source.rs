//! The tools of sources, such as those of another MCP server: their definitions and results in each protocol revision.

use std::collections::BTreeSet;
use std::sync::Mutex;

use bytes::Bytes;
use libris_core::{Meta, SourceTool, SourceToolResult, ToolContent};
use libris_wire::{Era, Facts, Reply};
use serde_json::{Value, json};

use super::output::ToolError;
use super::{Tool, ToolCall, unknown};
use crate::lock::lock;

/// The largest number of tools of sources that are logged because a tool of this server has their name.
const MAX_LOGGED: usize = 100;

impl ToolCall<'_> {
    /// Calls a tool of a source with arguments as JSON. `usable` are the tools of this server that the caller may use.
    pub(crate) async fn run_source_tool(
        &self,
        name: &str,
        arguments: &str,
        usable: &[Tool],
    ) -> Result<SourceToolResult, ToolError> {
        let arguments = match arguments {
            "" | "null" => Meta::new(),
            arguments => serde_json::from_str(arguments).map_err(|_| {
                ToolError::Failed(libris_wire::Failure::invalid("`arguments` must be an object"))
            })?,
        };
        let context = self.context.clone().with_input(self.call.input().cloned());
        let result = self.view.call_tool(name, arguments, &context).await?;
        result.ok_or_else(|| ToolError::Failed(unknown(name, usable)))
    }
}

/// The definition of a tool, with the fields that a protocol revision has.
pub(crate) fn definition(tool: &SourceTool, facts: &Facts) -> Value {
    let mut definition = (*tool.definition).clone();
    for (field, is_known) in [
        ("title", facts.titles),
        ("_meta", facts.titles),
        ("icons", facts.icons),
        ("annotations", facts.tool_annotations),
        ("outputSchema", facts.structured),
    ] {
        if !is_known {
            definition.remove(field);
        }
    }
    definition.into()
}

/// The result of a call, with the fields that a protocol revision has.
pub(crate) fn reply(result: SourceToolResult, facts: &Facts) -> Reply {
    let SourceToolResult { content, structured, is_error, meta } = result;
    let blocks: Vec<Value> = content.into_iter().map(|content| block(content, facts)).collect();
    let mut json = format!("\"content\":{}", Value::from(blocks)).into_bytes();
    // Revisions before 2026-07-28 allow only an object as structured content.
    let is_valid = |value: &Value| facts.structured && (facts.era == Era::Modern || value.is_object());
    if let Some(structured) = structured.filter(is_valid) {
        json.extend_from_slice(format!(",\"structuredContent\":{structured}").as_bytes());
    }
    json.extend_from_slice(format!(",\"isError\":{is_error}").as_bytes());
    let meta = meta.filter(|meta| !meta.is_empty()).map(|meta| {
        let text = Bytes::from(Value::from(meta).to_string());
        text.slice(1..text.len() - 1)
    });
    Reply { members: json.into(), freshness: None, meta: meta.unwrap_or_default() }
}

/// A content block in the form of a protocol revision.
fn block(content: ToolContent, facts: &Facts) -> Value {
    let ToolContent { mut block, .. } = content;
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    match &*text("type") {
        // Older revisions have no links.
        "resource_link" if !facts.structured => return json!({ "type": "text", "text": text("uri") }),
        // The protocol revision that added the `completions` capability also added audio.
        "audio" if !facts.completions => {
            let note =
                format!("(audio of type {}, which this protocol revision cannot carry)", text("mimeType"));
            return json!({ "type": "text", "text": note });
        }
        _ => {}
    }
    if !facts.titles {
        block.remove("_meta");
    }
    block.into()
}

/// The tools of sources that are not served because a tool of this server has their name.
#[derive(Default)]
pub(crate) struct ShadowedTools(Mutex<BTreeSet<String>>);

impl ShadowedTools {
    /// Logs, once per tool, that the tool of a source is not served.
    pub(crate) fn log(&self, tool: &SourceTool) {
        let SourceTool { name, source, .. } = tool;
        let mut logged = lock(&self.0);
        if logged.len() < MAX_LOGGED && logged.insert(name.clone()) {
            tracing::warn!(
                tool = name,
                %source,
                "a source has a tool with the name of a tool of this server, which is served instead; hint: set `uris = \
                 \"prefixed\"` for the source"
            );
        }
    }
}
