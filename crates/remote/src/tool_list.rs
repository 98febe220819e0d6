//! The tools of a server, and the results of their calls.

use std::sync::Arc;

use libris_core::{Meta, SourceTool, SourceToolResult, ToolContent, Uri};
use rmcp::model::Tool;
use serde_json::Value;

use crate::config::{RemoteConfig, RemoteLimits};
use crate::fault::RemoteFault;
use crate::link::UpstreamSession;
use crate::listing::{CacheHints, PageWalk};
use crate::mount::UriMount;

/// The method that calls a tool.
pub(crate) const CALL: &str = "tools/call";

/// The maximum number of tools of a server.
const MAX_TOOLS: usize = 1000;

/// The longest tool name, in characters, that the protocol recommends. A tool with a longer name is left out.
const MAX_NAME: usize = 128;

/// Parsed JSON takes about this many times as much memory as its text.
const JSON_FACTOR: usize = 8;

/// The members of `_meta` that belong to the protocol begin with this. They describe one hop, so they are not passed on.
const PROTOCOL_PREFIX: &str = "io.modelcontextprotocol/";

/// All tools of a server.
pub(crate) struct ToolList {
    /// The tools, sorted by their served names (see [`UriMount::outer_name`]).
    pub(crate) tools: Arc<[SourceTool]>,
    pub(crate) hints: CacheHints,
}

impl ToolList {
    /// Fetches all pages. A tool whose name is malformed or was listed before is left out.
    pub(crate) async fn fetch(session: &UpstreamSession, config: &RemoteConfig) -> Result<Self, RemoteFault> {
        let limits = RemoteLimits {
            max_resources: config.limits.max_resources.min(MAX_TOOLS),
            ..config.limits.clone()
        };
        let source: Arc<str> = format!("mcp {}", config.name).into();
        let mut walk = PageWalk::new(session, &limits, session.supports_tools());
        let mut tools = Vec::new();
        while let Some(cursor) = walk.next_cursor() {
            let Some(page) = walk.ask(session.peer.list_tools(cursor)).await? else { break };
            if page.tools.len() + tools.len() > limits.max_resources {
                return Err(RemoteFault::ManyTools(limits.max_resources));
            }
            walk.add(page.tools.len(), page.next_cursor, page.ttl_ms, page.cache_scope)?;
            for tool in page.tools {
                let definition = serde_json::to_string(&tool).unwrap_or_default();
                walk.add_bytes(JSON_FACTOR * definition.len())?;
                match is_valid_name(&tool.name) {
                    true => tools.extend(tool_of(&tool, &definition, &source, &config.mount)),
                    false => tracing::warn!("a tool of an MCP server has a malformed name and is left out"),
                }
            }
        }
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        tools.dedup_by(|one, other| one.name == other.name);
        Ok(Self { tools: tools.into(), hints: walk.hints() })
    }
}

fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control)
}

/// Converts a tool, whose definition as JSON is `definition`.
fn tool_of(tool: &Tool, definition: &str, source: &Arc<str>, mount: &UriMount) -> Option<SourceTool> {
    let mut definition: Meta = serde_json::from_str(definition).ok()?;
    let name = mount.outer_name(&tool.name);
    definition.insert("name".to_owned(), name.clone().into());
    if let Some(Value::Object(meta)) = definition.get_mut("_meta") {
        mount.rewrite_meta(meta);
    }
    if let Some(schema) = definition.get_mut("inputSchema") {
        remove_header_annotations(schema);
    }
    Some(SourceTool { name, source: source.clone(), definition: Arc::new(definition) })
}

/// Removes the annotations that name an HTTP header for a property. They are for the request to the upstream server, where
/// rmcp sets the headers; Libris does not check such headers of its own clients.
fn remove_header_annotations(schema: &mut Value) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for property in properties.values_mut() {
        if let Some(property) = property.as_object_mut() {
            property.remove("x-mcp-header");
        }
        remove_header_annotations(property);
    }
}

/// Converts the result of a call. The URIs in it become served URIs.
pub(crate) fn result(result: Value, mount: &UriMount) -> Result<SourceToolResult, RemoteFault> {
    let wrong = |cause: &str| RemoteFault::WrongResult { method: CALL, cause: cause.to_owned() };
    let Value::Object(mut result) = result else { return Err(wrong("it is not an object")) };
    let blocks = match result.remove("content") {
        Some(Value::Array(blocks)) => blocks,
        None if result.contains_key("structuredContent") => Vec::new(),
        _ => return Err(wrong("`content` is not a list")),
    };
    let block = |block: Value| match block {
        Value::Object(block) if block.get("type").is_some_and(Value::is_string) => content(block, mount),
        _ => Err(wrong("a content block has no `type`")),
    };
    let content = blocks.into_iter().map(block).collect::<Result<_, _>>()?;
    let meta = match result.remove("_meta") {
        Some(Value::Object(mut meta)) => {
            meta.retain(|name, _| !name.starts_with(PROTOCOL_PREFIX));
            mount.rewrite_meta(&mut meta);
            Some(meta)
        }
        _ => None,
    };
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
    Ok(SourceToolResult { content, structured: result.remove("structuredContent"), is_error, meta })
}

/// Converts a content block.
fn content(mut block: Meta, mount: &UriMount) -> Result<ToolContent, RemoteFault> {
    if let Some(Value::Object(meta)) = block.get_mut("_meta") {
        mount.rewrite_meta(meta);
    }
    let resource = match block.get("type").and_then(Value::as_str) {
        Some("resource_link") => Some(outer_uri(&mut block, mount)?),
        Some("resource") => {
            let embedded = block.get_mut("resource").and_then(Value::as_object_mut);
            let embedded = embedded.ok_or(RemoteFault::NoContents)?;
            if let Some(Value::Object(meta)) = embedded.get_mut("_meta") {
                mount.rewrite_meta(meta);
            }
            Some(outer_uri(embedded, mount)?)
        }
        _ => None,
    };
    Ok(ToolContent { block, resource })
}

/// Replaces the upstream URI in an object with the served one, and returns it.
fn outer_uri(holder: &mut Meta, mount: &UriMount) -> Result<Uri, RemoteFault> {
    let uri = holder.get("uri").and_then(Value::as_str).ok_or(RemoteFault::ContentUri)?;
    let uri = mount.outer(uri).map_err(|_| RemoteFault::ContentUri)?;
    holder.insert("uri".to_owned(), uri.as_str().into());
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rmcp::model::Tool;
    use serde_json::{Value, json};

    use super::{RemoteFault, is_valid_name, result, tool_of};
    use crate::mount::UriMount;

    fn mount() -> UriMount {
        UriMount::prefixed("docs").unwrap()
    }

    #[test]
    fn a_tool_has_the_name_and_the_uris_of_the_source() {
        let sent = json!({
            "name": "show",
            "description": "Shows a page",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "region": { "type": "string", "x-mcp-header": "Region" },
                    "x-mcp-header": { "type": "object", "properties": { "a": { "x-mcp-header": "A" } } },
                },
            },
            "_meta": { "ui": { "resourceUri": "ui://app/view", "visibility": ["model"] } },
        });
        let tool: Tool = serde_json::from_value(sent.clone()).unwrap();
        let tool = tool_of(&tool, &sent.to_string(), &Arc::from("mcp docs"), &mount()).unwrap();
        assert_eq!((&*tool.name, &*tool.source), ("docs_show", "mcp docs"));
        assert_eq!(
            Value::from((*tool.definition).clone()),
            json!({
                "name": "docs_show",
                "description": "Shows a page",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "region": { "type": "string" },
                        // A property of this name is not an annotation.
                        "x-mcp-header": { "type": "object", "properties": { "a": {} } },
                    },
                },
                "_meta": { "ui": { "resourceUri": "ui://docs+app/view", "visibility": ["model"] } },
            })
        );
    }

    #[test]
    fn resources_in_results_have_the_uris_of_the_source() {
        let sent = json!({
            "content": [
                { "type": "text", "text": "see a:b", "annotations": { "priority": 0.8 } },
                { "type": "resource_link", "uri": "a:b", "name": "b", "_meta": { "ui/resourceUri": "ui://x/y" } },
                { "type": "resource", "resource": { "uri": "a:c d", "text": "x", "_meta": { "k": 1 } } },
                { "type": "hologram", "data": [1, 2] },
            ],
            "structuredContent": { "uri": "a:b" },
            "isError": true,
            "_meta": { "ui": { "resourceUri": "ui://x/z" }, "io.modelcontextprotocol/serverInfo": {}, "k": 2 },
        });
        let converted = result(sent, &mount()).unwrap();
        let blocks: Vec<_> = converted.content.iter().map(|one| Value::from(one.block.clone())).collect();
        assert_eq!(
            Value::from(blocks),
            json!([
                { "type": "text", "text": "see a:b", "annotations": { "priority": 0.8 } },
                {
                    "type": "resource_link", "uri": "docs+a:b", "name": "b",
                    "_meta": { "ui/resourceUri": "ui://docs+x/y" },
                },
                { "type": "resource", "resource": { "uri": "docs+a:c%20d", "text": "x", "_meta": { "k": 1 } } },
                { "type": "hologram", "data": [1, 2] },
            ])
        );
        let uris: Vec<_> =
            converted.content.iter().map(|one| one.resource.as_ref().map(ToString::to_string)).collect();
        assert_eq!(uris, [None, Some("docs+a:b".into()), Some("docs+a:c%20d".into()), None]);
        assert_eq!(converted.structured, Some(json!({ "uri": "a:b" })));
        assert!(converted.is_error);
        assert_eq!(
            Value::from(converted.meta.unwrap()),
            json!({ "ui": { "resourceUri": "ui://docs+x/z" }, "k": 2 })
        );
    }

    #[test]
    fn malformed_results_are_refused() {
        for sent in [
            json!([]),
            json!({}),
            json!({ "content": "text" }),
            json!({ "content": [7] }),
            json!({ "content": [{ "text": "no type" }] }),
            json!({ "content": [{ "type": "resource_link", "name": "no URI" }] }),
            json!({ "content": [{ "type": "resource_link", "uri": "no scheme" }] }),
            json!({ "content": [{ "type": "resource", "resource": 7 }] }),
        ] {
            assert!(result(sent.clone(), &UriMount::Kept).is_err(), "{sent}");
        }
        let structured = result(json!({ "structuredContent": [1] }), &UriMount::Kept).unwrap();
        assert_eq!((structured.content.len(), structured.structured), (0, Some(json!([1]))));
        assert_eq!(
            result(json!({ "content": {} }), &UriMount::Kept).unwrap_err(),
            RemoteFault::WrongResult { method: "tools/call", cause: "`content` is not a list".into() }
        );
    }

    #[test]
    fn names_are_bounded() {
        assert!(is_valid_name("a") && is_valid_name(&"ä".repeat(128)));
        for name in ["", "a\nb", "\u{1b}[31m", &"a".repeat(129)] {
            assert!(!is_valid_name(name), "{name:?}");
        }
    }
}
