//! The members of a result as JSON, in which large contents stay unencoded until they are sent.
//!
//! If large contents were encoded ahead, they would be in memory twice until the response is sent.

use std::sync::Arc;

use base64_turbo::STANDARD;
use bytes::Bytes;

use crate::pool;

/// Contents of at least this many bytes are encoded while they are sent.
const MIN_STREAMED: usize = 48 << 10;

/// The initial capacity of the buffer for JSON and small contents.
const INITIAL_CAPACITY: usize = 1 << 10;

/// The number of bytes whose Base64 form fills a pooled buffer: a multiple of three, so that only the last piece is
/// padded.
const BLOB_PIECE: usize = pool::SIZE / 4 * 3;

/// The members of a result object as JSON, without the braces.
#[derive(Clone, Debug)]
pub struct Members(Form);

#[derive(Clone, Debug)]
enum Form {
    Encoded(Bytes),
    /// JSON interleaved with unencoded large contents.
    Parts(Arc<[Part]>),
}

#[derive(Debug)]
enum Part {
    Json(Bytes),
    /// The content of a string, to be escaped.
    Text(String),
    /// The content of a string, to be encoded in Base64.
    Blob(Bytes),
}

impl Members {
    /// No members.
    pub const NONE: Self = Self(Form::Encoded(Bytes::new()));

    /// The JSON, if all of it is encoded.
    pub fn encoded(&self) -> Option<&Bytes> {
        match &self.0 {
            Form::Encoded(json) => Some(json),
            Form::Parts(_) => None,
        }
    }

    /// The same members with all contents encoded.
    pub fn encode(&self) -> Self {
        let Form::Parts(parts) = &self.0 else { return self.clone() };
        let mut json = Vec::with_capacity(parts.iter().map(Part::encoded_capacity).sum());
        for part in &**parts {
            match part {
                Part::Json(part) => json.extend_from_slice(part),
                Part::Text(text) => libris_escape::append(&mut json, text),
                Part::Blob(bytes) => append_base64(&mut json, bytes),
            }
        }
        json.shrink_to_fit();
        json.into()
    }

    /// The size in memory, in bytes.
    pub fn size(&self) -> usize {
        match &self.0 {
            Form::Encoded(json) => json.len(),
            Form::Parts(parts) => parts.iter().map(Part::size).sum(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.size() == 0
    }
}

impl From<Bytes> for Members {
    fn from(json: Bytes) -> Self {
        Self(Form::Encoded(json))
    }
}

impl From<Vec<u8>> for Members {
    fn from(json: Vec<u8>) -> Self {
        Self::from(Bytes::from(json))
    }
}

impl Part {
    fn size(&self) -> usize {
        match self {
            Self::Json(bytes) | Self::Blob(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
        }
    }

    /// The capacity to allocate for the encoded form; a text with many escapes needs more.
    fn encoded_capacity(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Text(text) => libris_escape::capacity(text.len()),
            Self::Blob(bytes) => STANDARD.encoded_len(bytes.len()),
        }
    }

    /// The encoded size of the rest from offset `at` on; `None` for text, whose size only encoding determines.
    fn left(&self, at: usize) -> Option<usize> {
        match self {
            Self::Json(json) => Some(json.len() - at),
            Self::Text(_) => None,
            Self::Blob(bytes) => Some(STANDARD.encoded_len(bytes.len() - at)),
        }
    }

    /// The next encoded piece from offset `at` on, and the offset after it.
    fn piece(&self, at: usize) -> (Bytes, usize) {
        let mut end = at;
        let piece = match self {
            Self::Json(json) => {
                end = json.len();
                json.slice(at..)
            }
            Self::Text(text) => pool::fill(|buffer| {
                let written;
                (end, written) = libris_escape::escape(text, at, buffer);
                written
            }),
            Self::Blob(bytes) => {
                end = bytes.len().min(at + BLOB_PIECE);
                pool::fill(|buffer| base64(&bytes[at..end], buffer))
            }
        };
        (piece, end)
    }
}

/// Appends text as a JSON string.
pub fn escape(json: &mut Vec<u8>, text: &str) {
    json.push(b'"');
    libris_escape::append(json, text);
    json.push(b'"');
}

/// Encodes bytes in Base64 at the start of a buffer that is large enough. Returns the encoded size.
fn base64(bytes: &[u8], buffer: &mut [u8]) -> usize {
    STANDARD.encode_slice(bytes, buffer).expect("the buffer is large enough")
}

fn append_base64(json: &mut Vec<u8>, bytes: &[u8]) {
    let (start, size) = (json.len(), STANDARD.encoded_len(bytes.len()));
    // With capacity for the JSON that follows.
    json.reserve(size + INITIAL_CAPACITY);
    json.resize(start + size, 0);
    base64(bytes, &mut json[start..]);
}

/// Builds [`Members`].
#[derive(Debug)]
pub struct Writer {
    parts: Vec<Part>,
    json: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { parts: Vec::new(), json: Vec::with_capacity(INITIAL_CAPACITY) }
    }
}

impl Writer {
    /// The buffer to append JSON to.
    pub fn json(&mut self) -> &mut Vec<u8> {
        &mut self.json
    }

    /// Appends a string.
    pub fn text(&mut self, text: String) {
        self.json.push(b'"');
        if text.len() < MIN_STREAMED {
            libris_escape::append(&mut self.json, &text);
        } else {
            self.part(Part::Text(text));
        }
        self.json.push(b'"');
    }

    /// Appends a string with these bytes in Base64.
    pub fn blob(&mut self, bytes: Bytes) {
        self.json.push(b'"');
        if bytes.len() < MIN_STREAMED {
            append_base64(&mut self.json, &bytes);
        } else {
            self.part(Part::Blob(bytes));
        }
        self.json.push(b'"');
    }

    fn part(&mut self, part: Part) {
        let before = std::mem::take(&mut self.json);
        self.parts.extend([Part::Json(before.into()), part]);
    }

    /// The finished members.
    pub fn finish(mut self) -> Members {
        if self.parts.is_empty() {
            return self.json.into();
        }
        self.parts.push(Part::Json(self.json.into()));
        Members(Form::Parts(self.parts.into()))
    }
}

/// The unsent rest of a response, as an iterator that encodes it piece by piece.
#[derive(Debug)]
pub(crate) struct ResponsePieces {
    head: Bytes,
    members: Members,
    /// The index of the next part of the members, and the offset in it.
    next: (usize, usize),
    tail: Bytes,
}

impl ResponsePieces {
    /// A response made of these members between `head` and `tail`.
    pub(crate) fn new(head: Bytes, members: Members, tail: Bytes) -> Self {
        Self { head, members, next: (0, 0), tail }
    }

    /// A response that is encoded already.
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::new(bytes.into(), Members::NONE, Bytes::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty() && self.members.is_empty()
    }

    /// The number of bytes left; `None` with large text, whose size only encoding determines.
    pub(crate) fn left(&self) -> Option<usize> {
        let members = match &self.members.0 {
            Form::Encoded(json) => json.len(),
            Form::Parts(parts) => {
                let (next, at) = self.next;
                let lefts = parts.iter().enumerate().skip(next);
                lefts.map(|(index, part)| part.left(if index == next { at } else { 0 })).sum::<Option<_>>()?
            }
        };
        Some(self.head.len() + members + self.tail.len())
    }
}

impl Iterator for ResponsePieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if !self.head.is_empty() {
            return Some(std::mem::take(&mut self.head));
        }
        match &mut self.members.0 {
            Form::Encoded(json) if json.is_empty() => {}
            Form::Encoded(json) => return Some(std::mem::take(json)),
            Form::Parts(parts) => {
                let (next, at) = &mut self.next;
                let part = &parts[*next];
                let (piece, end) = part.piece(*at);
                *at = end;
                if end == part.size() {
                    (*next, *at) = (*next + 1, 0);
                }
                if *next == parts.len() {
                    self.members = Members::NONE;
                }
                return Some(piece);
            }
        }
        Some(std::mem::take(&mut self.tail)).filter(|tail| !tail.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::{MIN_STREAMED, Members, ResponsePieces, Writer};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use proptest::prelude::{any, prop, proptest};
    use serde_json::{Value, json};

    /// A text, some bytes and another text, as a service would write them.
    fn written(text: &str, bytes: &[u8]) -> Members {
        let mut out = Writer::default();
        out.json().extend_from_slice(b"\"text\":");
        out.text(text.to_owned());
        out.json().extend_from_slice(b",\"blob\":");
        out.blob(Bytes::copy_from_slice(bytes));
        out.json().extend_from_slice(b",\"again\":");
        out.text(text.to_owned());
        out.finish()
    }

    fn parsed(json: &[u8]) -> Value {
        serde_json::from_slice(&[b"{", json, b"}"].concat()).unwrap()
    }

    fn check(text: &str, bytes: &[u8]) {
        let members = written(text, bytes);
        let large = text.len() >= MIN_STREAMED || bytes.len() >= MIN_STREAMED;
        assert_eq!(members.encoded().is_none(), large);
        let whole = members.encode();
        let whole = whole.encoded().unwrap();
        let expected = json!({ "text": text, "blob": STANDARD.encode(bytes), "again": text });
        assert_eq!(parsed(whole), expected);
        let mut pieces = ResponsePieces::new("{".into(), members, "}".into());
        let announced = pieces.left();
        let mut sent = Vec::new();
        while !pieces.is_empty() {
            let left = pieces.left();
            let piece = pieces.next().unwrap();
            assert!(!piece.is_empty());
            assert!(left.is_none_or(|left| pieces.left() == Some(left - piece.len())));
            sent.extend_from_slice(&piece);
        }
        assert!(pieces.next().is_none());
        assert!(announced.is_none_or(|announced| announced == sent.len()));
        assert_eq!(sent, [b"{", &whole[..], b"}"].concat());
    }

    proptest! {
        #[test]
        fn the_pieces_add_up_to_the_whole_encoding(
            text in any::<String>(),
            bytes in prop::collection::vec(any::<u8>(), 0..50),
            times in 0usize..20_000,
        ) {
            check(&text.repeat(times / text.len().max(1)), &bytes.repeat(times / 7));
        }
    }

    #[test]
    fn sizes_around_the_borders_of_pieces_are_right() {
        for size in
            [0, 1, MIN_STREAMED - 1, MIN_STREAMED, MIN_STREAMED + 1, 2 * MIN_STREAMED, 64 << 10, 200_000]
        {
            for unit in ["x", "\"", "\u{1}", "ü"] {
                let text = unit.repeat(size / unit.len());
                check(&text, text.as_bytes());
            }
        }
    }

    #[test]
    fn the_length_is_unknown_only_with_large_text() {
        let left = |members| ResponsePieces::new("{".into(), members, "}".into()).left();
        assert!(left(written(&"x".repeat(MIN_STREAMED - 1), &[7; 3 * MIN_STREAMED])).is_some());
        assert!(left(written(&"x".repeat(MIN_STREAMED), b"")).is_none());
    }
}
