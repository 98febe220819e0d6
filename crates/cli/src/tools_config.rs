//! The key `tools` of the configuration: which tools models have.

use std::fmt;

use libris::ToolsConfig;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The tools: `true`, `false` or a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ToolsTable {
    keys: ToolKeys,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ToolKeys {
    /// Whether models have tools.
    enabled: bool,
    /// Whether there is a tool that returns the passages that answer a question, as one bundle.
    bundle: bool,
    /// Whether there is a tool for each URI template.
    templates: bool,
    /// Whether there are `search` and `fetch` for the connectors of ChatGPT.
    connector: bool,
    /// The links that `search` and `fetch` give for citations: in this text, `{path}` and `{uri}` are replaced. If the
    /// text has neither, the path is appended.
    citation_base: Option<String>,
    /// Whether hosts that show MCP Apps can open the picker inside the chat.
    picker: bool,
}

impl Default for ToolKeys {
    fn default() -> Self {
        let ToolsConfig { enabled, bundle, templates, connector, citation_base } = ToolsConfig::default();
        Self { enabled, bundle, templates, connector, citation_base, picker: true }
    }
}

impl ToolsTable {
    /// The tools of a server.
    pub(crate) fn config(&self) -> ToolsConfig {
        let ToolKeys { enabled, bundle, templates, connector, citation_base, .. } = self.keys.clone();
        ToolsConfig { enabled, bundle, templates, connector, citation_base }
    }

    /// The key `picker`. A caller without tools has no picker in chats, even if this is `true`.
    #[cfg(feature = "picker")]
    pub(crate) fn has_picker(&self) -> bool {
        self.keys.picker
    }
}

impl<'de> Deserialize<'de> for ToolsTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SwitchOrTable)
    }
}

struct SwitchOrTable;

impl<'de> Visitor<'de> for SwitchOrTable {
    type Value = ToolsTable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`true`, `false` or a table")
    }

    fn visit_bool<E: serde::de::Error>(self, enabled: bool) -> Result<ToolsTable, E> {
        Ok(ToolsTable { keys: ToolKeys { enabled, ..ToolKeys::default() } })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ToolsTable, A::Error> {
        let keys = ToolKeys::deserialize(MapAccessDeserializer::new(map))?;
        Ok(ToolsTable { keys })
    }
}
