//! The resources and folders directly below a URI prefix, as a file browser shows them.

use std::time::SystemTime;

/// One page of the resources and folders directly below a prefix, in URI order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixPage {
    /// The resources and folders.
    pub entries: Vec<PrefixEntry>,
    /// The URI after which the next page begins, if there is one.
    pub next: Option<String>,
    /// Whether entries may be missing, because a source did not respond.
    pub is_incomplete: bool,
}

/// A resource or a folder. Every prefix of a listed URI that ends with a slash is a folder, even if no source lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixEntry {
    /// The URI of the resource, or the prefix of the folder, which ends with `/` or `:`.
    pub uri: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// The media type, if it is known.
    pub mime: Option<String>,
    /// The size of the content in bytes. `None` if the source does not know it, or has it from another MCP server,
    /// whose figure may be wrong.
    pub size: Option<u64>,
    /// The time of the last modification, if it is known.
    pub modified: Option<SystemTime>,
}

impl PrefixEntry {
    /// A folder without metadata.
    pub fn folder(prefix: impl Into<String>) -> Self {
        Self { uri: prefix.into(), is_folder: true, mime: None, size: None, modified: None }
    }
}
