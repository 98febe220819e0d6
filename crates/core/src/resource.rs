//! The metadata of resources and of templates.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Uri, UriTemplate};

/// The `_meta` of the protocol.
pub type Meta = serde_json::Map<String, serde_json::Value>;

/// The media type of a directory, whose children can be listed.
pub const DIRECTORY: &str = "inode/directory";

/// A resource: a URI with metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// The URI of the resource.
    pub uri: Uri,
    /// A short name.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// The media type, if known.
    pub mime: Option<String>,
    /// The size of the contents in bytes, before JSON or base64 encoding, if known.
    pub size: Option<u64>,
    /// The icons.
    pub icons: Vec<Icon>,
    /// The annotations of the protocol.
    pub annotations: Annotations,
    /// The `_meta` of the protocol.
    pub meta: Option<Meta>,
}

impl Resource {
    /// A resource with a URI and a name, and no other metadata.
    pub fn new(uri: Uri, name: impl Into<String>) -> Self {
        Self {
            uri,
            name: name.into(),
            title: None,
            description: None,
            mime: None,
            size: None,
            icons: Vec::new(),
            annotations: Annotations::default(),
            meta: None,
        }
    }
}

/// A URI template with the metadata of the resources that match it.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The RFC 6570 template.
    pub uri: UriTemplate,
    /// A short name.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// The media type, if all resources of the template have the same.
    pub mime: Option<String>,
    /// The icons.
    pub icons: Vec<Icon>,
    /// The annotations of the protocol.
    pub annotations: Annotations,
    /// The `_meta` of the protocol.
    pub meta: Option<Meta>,
}

impl Template {
    /// A template with a URI template and a name, and no other metadata.
    pub fn new(uri: UriTemplate, name: impl Into<String>) -> Self {
        Self {
            uri,
            name: name.into(),
            title: None,
            description: None,
            mime: None,
            icons: Vec::new(),
            annotations: Annotations::default(),
            meta: None,
        }
    }
}

/// The annotations of the protocol: hints for clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotations {
    /// The intended audience; empty if unspecified.
    pub audience: Vec<Audience>,
    /// The importance, from 0 (optional) to 1 (effectively required).
    pub priority: Option<f64>,
    /// The time of the last modification.
    pub last_modified: Option<Timestamp>,
}

impl Annotations {
    /// Whether there are no annotations.
    pub fn is_empty(&self) -> bool {
        self.audience.is_empty() && self.priority.is_none() && self.last_modified.is_none()
    }
}

/// The intended audience of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// An icon of a resource, a template or a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Icon {
    /// The location: an `https:` or `data:` URI.
    pub src: String,
    /// The media type of the icon.
    #[serde(default, rename = "mimeType", alias = "mime", skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    /// The sizes, such as `48x48` or `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
    /// The background for which the icon is designed; `None`: any background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<Theme>,
}

/// The background for which an [`Icon`] is designed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Theme {
    /// A light background.
    Light,
    /// A dark background.
    Dark,
}
