//! What is known about a resource, and about a template that stands for many.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Uri, UriTemplate};

/// Free metadata: the `_meta` of the protocol.
pub type Meta = serde_json::Map<String, serde_json::Value>;

/// The media type of a folder, whose children can be listed.
pub const DIRECTORY: &str = "inode/directory";

/// A URI with what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Where it is.
    pub uri: Uri,
    /// A short name.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it is about.
    pub description: Option<String>,
    /// The media type, where it is known.
    pub mime: Option<String>,
    /// The size in bytes before any encoding, where it is known.
    pub size: Option<u64>,
    /// Pictures to show beside it.
    pub icons: Vec<Icon>,
    /// Hints on how to use it.
    pub annotations: Annotations,
    /// Metadata for those who know the keys.
    pub meta: Option<Meta>,
}

impl Resource {
    /// A resource of which only the URI and the name are known.
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

/// A URI template with what is known about the resources it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The RFC 6570 template.
    pub uri: UriTemplate,
    /// A short name.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it is about.
    pub description: Option<String>,
    /// The media type, where all resources of this template have the same one.
    pub mime: Option<String>,
    /// Pictures to show beside it.
    pub icons: Vec<Icon>,
    /// Hints on how to use it.
    pub annotations: Annotations,
    /// Metadata for those who know the keys.
    pub meta: Option<Meta>,
}

impl Template {
    /// A template of which only the pattern and the name are known.
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

/// Hints on how to use a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotations {
    /// Whom it is for; empty means not said.
    pub audience: Vec<Audience>,
    /// How important it is, from 0 (entirely optional) to 1 (as good as required).
    pub priority: Option<f64>,
    /// When it last changed.
    pub last_modified: Option<Timestamp>,
}

impl Annotations {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.audience.is_empty() && self.priority.is_none() && self.last_modified.is_none()
    }
}

/// Whom a resource is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// A picture to show beside a resource.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Icon {
    /// Where the picture is: an `https:` or `data:` URI.
    pub src: String,
    /// Its media type.
    #[serde(default, rename = "mimeType", alias = "mime", skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    /// The sizes it is good for, such as `48x48` or `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
    /// The background it is meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<Theme>,
}

/// The background an [`Icon`] is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Theme {
    /// A light one.
    Light,
    /// A dark one.
    Dark,
}
