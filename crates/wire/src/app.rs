//! MCP Apps (`io.modelcontextprotocol/ui`): pages that hosts show inside a chat.

use std::fmt;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;

use crate::{Call, Failure, ServerInfo};

/// The identifier of the extension.
pub const APPS_EXTENSION: &str = "io.modelcontextprotocol/ui";

/// The media type of a page.
pub const APP_MEDIA_TYPE: &str = "text/html;profile=mcp-app";

/// A page that hosts show inside a chat.
#[async_trait]
pub trait AppPage: fmt::Debug + Send + Sync + 'static {
    /// The page as one HTML document. Hosts do not let it load anything else.
    fn document(&self) -> &'static str;

    /// Answers a request of the page, which the host forwards as a tool call; `arguments` are the arguments of that
    /// call, as JSON. The result must be an object.
    async fn answer(&self, call: &Call, server: &ServerInfo, arguments: &str) -> Result<Value, Failure>;
}

/// The request parameters in which a client declares that it shows apps: `capabilities` of `initialize` in legacy
/// revisions, `_meta` of each request in modern ones.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DeclaringParams {
    capabilities: DeclaredCapabilities,
    #[serde(rename = "_meta")]
    meta: DeclaringMeta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeclaringMeta {
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: DeclaredCapabilities,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeclaredCapabilities {
    extensions: DeclaredExtensions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeclaredExtensions {
    #[serde(rename = "io.modelcontextprotocol/ui")]
    apps: DeclaredApps,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeclaredApps {
    #[serde(rename = "mimeTypes")]
    media_types: Vec<String>,
}

/// Whether the client that sent these parameters declares that it shows apps. Malformed parameters declare nothing.
pub(crate) fn are_declared(params: &str) -> bool {
    let DeclaringParams { capabilities, meta } = serde_json::from_str(params).unwrap_or_default();
    [capabilities, meta.capabilities]
        .iter()
        .any(|declared| declared.extensions.apps.media_types.iter().any(|kind| kind == APP_MEDIA_TYPE))
}

#[cfg(test)]
mod tests {
    use super::are_declared;

    #[test]
    fn apps_are_declared_with_their_media_type() {
        let extension = r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["a/b","text/html;profile=mcp-app"]}}}"#;
        assert!(are_declared(&format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{extension}}}"#)));
        assert!(are_declared(&format!(
            r#"{{"_meta":{{"progressToken":1,"io.modelcontextprotocol/clientCapabilities":{extension}}}}}"#
        )));
        for nothing in [
            "",
            "[]",
            "{}",
            r#"{"capabilities":{"extensions":{}}}"#,
            r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/ui":{}}}}"#,
            r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html"]}}}}"#,
            r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":"text/html;profile=mcp-app"}}}}"#,
            r#"{"capabilities":[1],"_meta":7}"#,
        ] {
            assert!(!are_declared(nothing), "{nothing}");
        }
    }
}
