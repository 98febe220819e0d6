//! Absolute URIs in normal form, so that equal URIs have equal bytes.

mod parse;
pub(crate) mod percent;

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, Result};

pub(crate) use parse::{authority, excerpt, path};

/// An absolute URI (RFC 3986) in normal form, cheap to clone.
///
/// URIs are compared by the bytes of their normal form. In the normal form, the scheme is in lower case, the digits
/// of escapes are in upper case, escapes of unreserved characters are decoded, and dot segments are removed, even
/// if they are written as `%2e`. So the path of a `Uri` has no segment `..`.
///
/// The host is in lower case only for schemes whose authority is a host: `http`, `https`, `ws`, `wss`, `ftp` and `file`. In
/// other schemes, as in `docs://{doc_id}`, the authority is an identifier and case-sensitive. The default ports of `http`
/// and `https` are removed, and their empty path is `/`. `file://localhost/` is `file:///`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uri(Arc<str>);

impl Uri {
    /// The maximum length of a URI in bytes.
    pub const LIMIT: usize = 8 * 1024;

    /// Parses and normalises a URI; [`Error::Invalid`] describes the syntax error and its position.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() <= Self::LIMIT && parse::is_normal(text) {
            return Ok(Self(text.into()));
        }
        parse::normalise(text).map(|normal| Self(normal.into()))
    }

    /// Appends `path` to the text of this URI and normalises the result. Cheap if this URI ends with a slash and `path`
    /// needs no normalisation, like most file paths.
    pub fn below(&self, path: &str) -> Result<Self> {
        let joined = [&self.0, path].concat();
        let bare = self.0.ends_with('/') && !self.0.contains(['?', '#']) && self.path().ends_with('/');
        if bare && joined.len() <= Self::LIMIT && parse::is_plain(path) {
            return Ok(Self(joined.into()));
        }
        Self::parse(&joined)
    }

    /// The whole URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The scheme.
    pub fn scheme(&self) -> &str {
        self.0.split_once(':').map_or("", |(scheme, _)| scheme)
    }

    /// The authority, between `//` and the path; `None` without `//`.
    pub fn authority(&self) -> Option<&str> {
        let rest = self.hierarchy().strip_prefix("//")?;
        Some(rest.split_once('/').map_or(rest, |(authority, _)| authority))
    }

    /// The path, which may be empty. Percent-encoded.
    pub fn path(&self) -> &str {
        let hierarchy = self.hierarchy();
        match hierarchy.strip_prefix("//") {
            Some(rest) => find(rest, b"/").map_or("", |slash| &rest[slash..]),
            None => hierarchy,
        }
    }

    /// The query, without `?`. Percent-encoded.
    pub fn query(&self) -> Option<&str> {
        let before = self.before_fragment();
        find(before, b"?").map(|mark| &before[mark + 1..])
    }

    /// The fragment, without `#`. Percent-encoded.
    pub fn fragment(&self) -> Option<&str> {
        self.0.split_once('#').map(|(_, fragment)| fragment)
    }

    /// This URI without query and fragment.
    pub fn without_query(&self) -> Self {
        match find(&self.0, b"?#") {
            Some(end) => Self(self.0[..end].into()),
            None => self.clone(),
        }
    }

    /// Percent-encodes bytes as one path segment in normal form.
    ///
    /// The bytes `.` and `..` are returned unchanged, because a URI in normal form cannot contain them as a segment, not
    /// even escaped. The caller must not build a path from them.
    pub fn encode_segment(bytes: &[u8]) -> String {
        let mut out = String::with_capacity(bytes.len());
        for &byte in bytes {
            if percent::is_segment_byte(byte) {
                out.push(char::from(byte));
            } else {
                percent::escape(byte, &mut out);
            }
        }
        out
    }

    /// Decodes percent-encoded text; `None` if an escape is malformed.
    pub fn decode_segment(text: &str) -> Option<Vec<u8>> {
        let mut bytes = text.bytes();
        let mut out = Vec::with_capacity(text.len());
        while let Some(byte) = bytes.next() {
            out.push(match byte {
                b'%' => percent::hex(bytes.next()?)? << 4 | percent::hex(bytes.next()?)?,
                plain => plain,
            });
        }
        Some(out)
    }

    fn before_fragment(&self) -> &str {
        &self.0[..find(&self.0, b"#").unwrap_or(self.0.len())]
    }

    fn hierarchy(&self) -> &str {
        let before = &self.0[..find(&self.0, b"?#").unwrap_or(self.0.len())];
        find(before, b":").map_or("", |colon| &before[colon + 1..])
    }
}

/// The position of the first of these delimiters. For texts as short as URIs, a loop is cheaper than `str::find`.
fn find<const N: usize>(text: &str, delimiters: &[u8; N]) -> Option<usize> {
    text.bytes().position(|byte| delimiters.contains(&byte))
}

impl FromStr for Uri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl AsRef<str> for Uri {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The text of the URI, without a copy.
impl From<Uri> for Arc<str> {
    fn from(uri: Uri) -> Self {
        uri.0
    }
}

// Sound because equality, order and hash are those of the text.
impl Borrow<str> for Uri {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.0)
    }
}

impl Serialize for Uri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Uri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
