//! Tools that a source has for models, such as those of another MCP server.

use std::sync::Arc;

use serde_json::Value;

use crate::{Freshness, Meta, UnavailableSource, Uri};

/// A tool of a source, as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceTool {
    /// The name by which clients call the tool.
    pub name: String,
    /// The [name](crate::Source::name) of the source.
    pub source: Arc<str>,
    /// The definition in the form of the newest protocol revision, with the name.
    pub definition: Arc<Meta>,
}

/// The tools of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceTools {
    /// The tools, in any order.
    pub tools: Arc<[SourceTool]>,
    /// How the list may be cached.
    pub freshness: Freshness,
    /// The unavailable sources, whose tools are missing or stale. Only a catalog sets this.
    pub unavailable: Vec<UnavailableSource>,
}

impl Default for SourceTools {
    /// The tools of a source that never has any. Merging them into a catalog's list does not restrict how that list may be
    /// cached.
    fn default() -> Self {
        Self { tools: Arc::new([]), freshness: Freshness::unlimited(), unavailable: Vec::new() }
    }
}

/// The result of a call of a [`SourceTool`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceToolResult {
    /// The content blocks.
    pub content: Vec<ToolContent>,
    /// The structured result, if there is one.
    pub structured: Option<Value>,
    /// Whether the tool failed. The content then describes the failure to the model.
    pub is_error: bool,
    /// The `_meta` of the protocol.
    pub meta: Option<Meta>,
}

/// A content block in the result of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolContent {
    /// The block in the form of the newest protocol revision.
    pub block: Meta,
    /// The resource that the block embeds or links to. The view leaves the block out if the caller may not read the
    /// resource.
    pub resource: Option<Uri>,
}
