//! The definitions of the tools, as `tools/list` returns them.

use libris_wire::{Facts, Members};
use serde_json::{Value, json};

use super::{AppTool, TemplateTool, Tool, read, search};
use crate::bundle::BundleRequest;
use crate::encode::PageWriter;

/// The definitions of these tools; `facts` are the features of the protocol revision.
pub(crate) fn definitions(
    tools: &[Tool],
    templates: &[TemplateTool],
    apps: &[AppTool],
    facts: &Facts,
) -> Vec<Value> {
    let own = tools.iter().map(|tool| definition(*tool, facts));
    let templates = templates.iter().map(|tool| tool.definition(facts));
    own.chain(templates).chain(apps.iter().map(|tool| tool.definition(facts))).collect()
}

/// The members of a page of tools.
pub(crate) fn page(definitions: &[Value], next: Option<&str>) -> Members {
    let encoded = |json: &mut Vec<u8>, tool: &Value| json.extend_from_slice(tool.to_string().as_bytes());
    let page = PageWriter::new("tools", definitions, encoded);
    match next {
        Some(next) => page.text("nextCursor", next).finish(),
        None => page.finish(),
    }
}

fn definition(tool: Tool, facts: &Facts) -> Value {
    let (title, description) = texts(tool);
    assembled(tool.name(), title, description, input(tool), output(tool), facts)
}

/// A definition with the fields of a protocol revision.
pub(super) fn assembled(
    name: &str,
    title: &str,
    description: &str,
    input: Value,
    output: Value,
    facts: &Facts,
) -> Value {
    let mut definition = json!({ "name": name, "description": description, "inputSchema": input });
    if facts.titles {
        definition["title"] = title.into();
    }
    if facts.tool_annotations {
        definition["annotations"] = json!({
            "title": title,
            "readOnlyHint": true,
            "destructiveHint": false,
            "idempotentHint": true,
            "openWorldHint": false,
        });
    }
    if facts.structured {
        definition["outputSchema"] = output;
    }
    definition
}

/// The title and the description. Directive wording makes models use a tool more often than a plain description.
fn texts(tool: Tool) -> (&'static str, &'static str) {
    match tool {
        Tool::Search => (
            "Search resources",
            "Search the documents and data of this server. Call this first whenever a question may concern them, before \
             you answer from memory. Returns the best passages with their `uri` and `lines`; then call `read_resource` \
             with these. \"Quoted words\" must occur as a phrase, and -word excludes resources with this word.",
        ),
        Tool::Read => (
            "Read a resource",
            "Read a resource of this server by its `uri`, from search results, lists, or a URI template with its \
             variables filled in. PDF, office and other documents are returned as text. Long resources are returned in \
             parts: `next` in the result is the call for the next part. Pass `lines` from a search result to read only \
             the passage.",
        ),
        Tool::List => (
            "List resources",
            "List what is in a folder of this server, with the number of resources in each subfolder; without `parent`, \
             everything at the top. Use `search_resources` instead to find something by its content.",
        ),
        Tool::Bundle => (
            "Bundle passages",
            "Get the passages of this server's resources that answer a question best, within a number of tokens, in one \
             call. Use it instead of `search_resources` and `read_resource` if an answer needs several resources.",
        ),
        Tool::ConnectorSearch => (
            "Search",
            "Search the documents and data of this server. Returns the `id`, `title` and `url` of each result.",
        ),
        Tool::ConnectorFetch => ("Fetch", "Fetch the text of a search result by its `id`."),
    }
}

fn input(tool: Tool) -> Value {
    let (properties, required) = match tool {
        Tool::Search => (
            json!({
                "query": { "type": "string", "description": "The words to search for." },
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": search::MAX_HITS, "default": search::DEFAULT_HITS,
                    "description": "The maximum number of results.",
                },
                "scope": {
                    "type": "string",
                    "description": "Only resources whose URI begins with this text, such as `file:///handbook/guide/`.",
                },
                "mime": {
                    "type": "string",
                    "description": "Only resources of this media type, such as `text/markdown` or `image/*`.",
                },
                "audience": {
                    "type": "string", "enum": ["user", "assistant"],
                    "description": "Only resources for this audience, and those that name none.",
                },
                "modified_since": {
                    "type": "string",
                    "description": "Only resources that were modified since this date or time, such as `2026-01-31`.",
                },
            }),
            json!(["query"]),
        ),
        Tool::Read => (
            json!({
                "uri": { "type": "string", "description": "The URI of the resource." },
                "lines": {
                    "type": "string",
                    "description": "Only these lines, counted from 1: `10-20`, `10-`, `20`, or `-20` for the last 20.",
                },
                "pages": {
                    "type": "string",
                    "description": "Only these pages of a PDF or slides of a presentation: `3`, `2-5`, `7-` or `1,3-4`.",
                },
                "max_bytes": {
                    "type": "integer", "minimum": read::MIN_BYTES, "maximum": read::MAX_BYTES,
                    "default": read::DEFAULT_BYTES,
                    "description": "The maximum size of the returned text in bytes.",
                },
            }),
            json!(["uri"]),
        ),
        Tool::List => (
            json!({
                "parent": {
                    "type": "string",
                    "description": "The URI of a folder, such as `file:///handbook/guide/`. Default: the top.",
                },
                "cursor": { "type": "string", "description": "`nextCursor` of the page before." },
            }),
            json!([]),
        ),
        Tool::Bundle => (
            json!({
                "query": { "type": "string", "description": "The question, or its words." },
                "budget": {
                    "type": "integer",
                    "minimum": BundleRequest::BUDGETS.start(), "maximum": super::bundle::MAX_BUDGET,
                    "default": BundleRequest::DEFAULT_BUDGET,
                    "description": "The maximum number of tokens.",
                },
                "scope": {
                    "type": "string",
                    "description": "Only resources whose URI begins with this text, such as `file:///handbook/guide/`.",
                },
            }),
            json!(["query"]),
        ),
        Tool::ConnectorSearch => (
            json!({ "query": { "type": "string", "description": "The words to search for." } }),
            json!(["query"]),
        ),
        Tool::ConnectorFetch => (
            json!({ "id": { "type": "string", "description": "The `id` of a search result." } }),
            json!(["id"]),
        ),
    };
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

pub(super) fn output(tool: Tool) -> Value {
    let text = json!({ "type": "string" });
    let (properties, required) = match tool {
        Tool::Search => {
            let result = json!({
                "type": "object",
                "properties": {
                    "uri": text, "title": text, "mimeType": text,
                    "lines": { "type": "string", "description": "The passage, for `lines` of `read_resource`." },
                    "heading": text, "snippet": text, "score": { "type": "number" },
                    "note": { "type": "string", "description": "What the owner of the server says about the resource." },
                    "duplicates": { "type": "array", "items": text },
                },
                "required": ["uri", "title", "snippet", "score"],
            });
            let properties = json!({
                "results": { "type": "array", "items": result },
                "more": { "type": "boolean" },
                "total": { "type": "integer" },
                "correction": text,
                "hint": text,
            });
            (properties, json!(["results", "more"]))
        }
        Tool::Read => {
            let properties = json!({
                "uri": text, "mimeType": text, "text": text,
                "lines": { "type": "string", "description": "The lines in `text`." },
                "totalLines": { "type": "integer" },
                "next": {
                    "type": "object",
                    "description": "The arguments of the call for the next part, if there is one.",
                    "properties": { "uri": text, "lines": text, "pages": text, "max_bytes": { "type": "integer" } },
                    "required": ["uri"],
                },
            });
            (properties, json!(["uri", "text"]))
        }
        Tool::List => {
            let entry = json!({
                "type": "object",
                "properties": {
                    "uri": text, "title": text, "mimeType": text,
                    "size": { "type": "integer" },
                    "description": text,
                    "folder": { "type": "boolean" },
                    "count": { "type": "integer", "description": "How many entries or resources the folder has." },
                    "countIsMinimum": { "type": "boolean" },
                },
                "required": ["uri", "title", "folder"],
            });
            let template = json!({
                "type": "object",
                "properties": { "uriTemplate": text, "title": text, "description": text },
                "required": ["uriTemplate"],
            });
            let properties = json!({
                "parent": text,
                "entries": { "type": "array", "items": entry },
                "templates": { "type": "array", "items": template },
                "nextCursor": text,
            });
            (properties, json!(["entries"]))
        }
        Tool::Bundle => {
            let passage = json!({
                "type": "object",
                "properties": {
                    "uri": text, "title": text, "mimeType": text, "lines": text, "text": text, "reason": text,
                    "tokens": { "type": "integer" },
                },
                "required": ["uri", "lines", "text", "reason"],
            });
            let properties = json!({
                "passages": { "type": "array", "items": passage },
                "tokens": { "type": "integer" },
                "hint": text,
            });
            (properties, json!(["passages", "tokens"]))
        }
        Tool::ConnectorSearch => {
            let result = json!({
                "type": "object",
                "properties": { "id": text, "title": text, "text": text, "url": text },
                "required": ["id", "title", "url"],
            });
            (json!({ "results": { "type": "array", "items": result } }), json!(["results"]))
        }
        Tool::ConnectorFetch => {
            let properties = json!({
                "id": text, "title": text, "text": text, "url": text, "metadata": { "type": "object" },
            });
            (properties, json!(["id", "title", "text", "url"]))
        }
    };
    json!({ "type": "object", "properties": properties, "required": required })
}
