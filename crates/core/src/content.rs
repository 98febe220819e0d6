//! The contents of a resource.

use bytes::Bytes;

use crate::{Freshness, Meta, Uri};

/// One part of the contents of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The URI of this part: the URI that was read, or that of a child of a directory.
    pub uri: Uri,
    /// The media type, if known.
    pub mime: Option<String>,
    /// The data.
    pub body: ContentBody,
    /// The `_meta` of the protocol.
    pub meta: Option<Meta>,
}

impl Content {
    /// A text part.
    pub fn text(uri: Uri, mime: impl Into<String>, text: impl Into<String>) -> Self {
        Self { uri, mime: Some(mime.into()), body: ContentBody::Text(text.into()), meta: None }
    }

    /// A binary part.
    pub fn bytes(uri: Uri, mime: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { uri, mime: Some(mime.into()), body: ContentBody::Bytes(bytes.into()), meta: None }
    }
}

/// The data of a [`Content`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentBody {
    /// Text, sent as a JSON string.
    Text(String),
    /// Binary data, sent as base64.
    Bytes(Bytes),
}

impl ContentBody {
    /// The size in bytes, before JSON or base64 encoding.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there is no data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The contents that a read returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The parts: one for most resources, several for a directory.
    pub parts: Vec<Content>,
    /// How the contents may be cached.
    pub freshness: Freshness,
}

impl Contents {
    /// Sets the freshness.
    pub fn with_freshness(self, freshness: Freshness) -> Self {
        Self { freshness, ..self }
    }
}

impl From<Content> for Contents {
    fn from(content: Content) -> Self {
        Self::from(vec![content])
    }
}

impl From<Vec<Content>> for Contents {
    fn from(parts: Vec<Content>) -> Self {
        Self { parts, freshness: Freshness::default() }
    }
}
