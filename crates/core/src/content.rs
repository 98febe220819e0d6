//! What reading a resource gives.

use std::time::Duration;

use bytes::Bytes;

use crate::{Meta, Proof, Uri};

/// One part of what a resource holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The URI of this part: the one that was read, or that of a child of a directory.
    pub uri: Uri,
    /// The media type, where it is known.
    pub mime: Option<String>,
    /// The data itself.
    pub body: Body,
    /// Metadata for those who know the keys.
    pub meta: Option<Meta>,
}

impl Content {
    /// A text part.
    pub fn text(uri: Uri, mime: impl Into<String>, text: impl Into<String>) -> Self {
        Self { uri, mime: Some(mime.into()), body: Body::Text(text.into()), meta: None }
    }

    /// A binary part.
    pub fn bytes(uri: Uri, mime: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { uri, mime: Some(mime.into()), body: Body::Bytes(bytes.into()), meta: None }
    }
}

/// The data of a [`Content`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Text, sent as it is.
    Text(String),
    /// Anything else, sent as base64.
    Bytes(Bytes),
}

impl Body {
    /// The number of bytes before any encoding.
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

/// Everything that one read gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The parts: one for most resources, several for a directory.
    pub parts: Vec<Content>,
    /// How long and by whom the answer may be kept; `None` leaves it to the source's default.
    pub cache: Option<Cache>,
    /// Tells for how long the answer is right, where the source can tell.
    pub proof: Option<Proof>,
}

impl From<Content> for Contents {
    fn from(content: Content) -> Self {
        Self::from(vec![content])
    }
}

impl From<Vec<Content>> for Contents {
    fn from(parts: Vec<Content>) -> Self {
        Self { parts, cache: None, proof: None }
    }
}

/// A hint to callers about keeping an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// How long the answer may be taken for fresh. Zero means: ask again.
    pub ttl: Duration,
    /// Who may share it.
    pub scope: Scope,
}

impl Cache {
    /// The hint that is true of both: the shorter time and the narrower scope.
    pub fn and(self, other: Self) -> Self {
        Self { ttl: self.ttl.min(other.ttl), scope: self.scope.max(other.scope) }
    }
}

/// Who may share a kept answer. Ordered from wide to narrow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Anybody: the answer is the same for all callers.
    Public,
    /// Only the caller who got it.
    #[default]
    Private,
}
