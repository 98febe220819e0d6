//! Media types, by the name of a file if that suffices, otherwise by its content; and the decoding of text.

// Some sources have no file names.
#[cfg_attr(
    not(any(
        feature = "database",
        feature = "files",
        feature = "git",
        feature = "http",
        feature = "inline",
        feature = "skills"
    )),
    allow(dead_code)
)]
mod name;
// Skills are served byte for byte.
#[cfg_attr(
    not(any(
        feature = "command",
        feature = "database",
        feature = "files",
        feature = "git",
        feature = "http",
        feature = "inline"
    )),
    allow(dead_code)
)]
mod text;

use bytes::Bytes;
use libris_core::ContentBody;

#[cfg(any(
    feature = "database",
    feature = "files",
    feature = "git",
    feature = "http",
    feature = "inline",
    feature = "skills"
))]
pub(crate) use name::by_name;
#[cfg(any(feature = "files", feature = "git"))]
pub(crate) use text::CodeUnits;

/// The size of the head of a file from which [`by_content`] determines the type.
///
/// Listings and reads use exactly this many bytes, so that they agree.
pub(crate) const HEAD_BYTES: usize = 8 * 1024;

/// The media type of a file whose name does not determine it, from the beginning of its content.
pub(crate) fn by_content(file_name: &str, head: &[u8]) -> &'static str {
    let head = &head[..head.len().min(HEAD_BYTES)];
    // Text is checked first, because `infer` takes a sentence that begins with `BM` for a bitmap. A PDF is excluded,
    // because it may consist of ASCII only.
    if text::looks_like_text(head) && !head.starts_with(b"%PDF-") {
        return name::by_name_of_text(file_name).unwrap_or_else(|| markup(head).unwrap_or("text/plain"));
    }
    infer::get(head).map_or("application/octet-stream", |kind| kind.mime_type())
}

/// The media type of HTML or XML, which `infer` recognizes by the first tag; `None` for other text.
fn markup(head: &[u8]) -> Option<&'static str> {
    let mime = infer::get(head)?.mime_type();
    matches!(mime, "text/html" | "text/xml").then_some(mime)
}

/// The data of a file with the media type `mime`, decoded if it is text.
#[cfg(any(
    all(feature = "command", unix),
    feature = "database",
    feature = "files",
    feature = "git",
    feature = "http",
    feature = "inline"
))]
pub(crate) fn body(data: Vec<u8>, mime: &str) -> ContentBody {
    let decoded = match content_class(mime) {
        ContentClass::Text => text::decode(data, text::LegacyEncoding::Guess),
        ContentClass::Ambiguous => text::decode(data, text::LegacyEncoding::Refuse),
        ContentClass::Binary => Err(data),
    };
    match decoded {
        Ok(text) => ContentBody::Text(text),
        Err(data) => ContentBody::Bytes(Bytes::from(data)),
    }
}

/// Data that must be preserved byte for byte, as content: text if the media type `mime` is not binary and the data is
/// valid UTF-8 without NUL, otherwise bytes.
#[cfg(any(feature = "command", feature = "files", feature = "git", feature = "skills"))]
pub(crate) fn exact(data: Vec<u8>, mime: &str) -> ContentBody {
    if content_class(mime) == ContentClass::Binary {
        return ContentBody::Bytes(Bytes::from(data));
    }
    match String::from_utf8(data) {
        Ok(text) if text::has_no_nul(&text) => ContentBody::Text(text),
        Ok(text) => ContentBody::Bytes(Bytes::from(text)),
        Err(error) => ContentBody::Bytes(Bytes::from(error.into_bytes())),
    }
}

/// Decodes some lines of a file that begins with `head`; `None` if they are not text.
#[cfg(any(feature = "files", feature = "git"))]
pub(crate) fn lines(head: &[u8], lines: Vec<u8>) -> Option<String> {
    text::decode_range(head, lines)
}

/// Whether a file of this media type that begins with `head` can be read by lines.
#[cfg(any(feature = "files", feature = "git"))]
pub(crate) fn has_lines(mime: &str, head: &[u8]) -> bool {
    content_class(mime) != ContentClass::Binary && text::looks_like_text(&head[..head.len().min(HEAD_BYTES)])
}

/// Whether data of a media type is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentClass {
    /// Text, perhaps in a legacy encoding.
    Text,
    /// Not text, even if all bytes are ASCII.
    Binary,
    /// Either; the content decides.
    Ambiguous,
}

/// Whether data of the media type `mime` is text.
pub(crate) fn content_class(mime: &str) -> ContentClass {
    let (kind, subtype) = mime.split_once('/').unwrap_or((mime, ""));
    if kind == "text" || ["+json", "+xml", "+yaml"].iter().any(|suffix| subtype.ends_with(suffix)) {
        return ContentClass::Text;
    }
    match (kind, subtype) {
        ("image" | "audio" | "video" | "font" | "inode", _) => ContentClass::Binary,
        ("application", "octet-stream" | "pdf" | "zip" | "gzip" | "x-tar" | "wasm" | "java-archive") => {
            ContentClass::Binary
        }
        ("application", "json" | "xml" | "javascript" | "yaml" | "toml" | "sql" | "x-sh") => {
            ContentClass::Text
        }
        _ => ContentClass::Ambiguous,
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentClass, body, by_content, content_class};
    use libris_core::ContentBody;

    #[test]
    fn content_decides_if_the_name_does_not() {
        let cases: &[(&str, &[u8], &str)] = &[
            ("README", b"hello\n", "text/plain"),
            ("empty", b"", "text/plain"),
            ("x", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
            ("x", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n\0", "application/pdf"),
            ("x", b"%PDF-1.4\n1 0 obj\n", "application/pdf"),
            ("x", b"\0\x01\x02\x03", "application/octet-stream"),
            ("x", b"BM is not a picture\n", "text/plain"),
            ("x", b"<!DOCTYPE html><html></html>", "text/html"),
            ("x", b"\xff\xfeh\0i\0", "text/plain"),
            ("main.ts", b"export const a = 1;\n", "text/typescript"),
            ("movie.ts", b"\x47\x40\0\x10\0\0", "application/octet-stream"),
        ];
        for (name, head, mime) in cases {
            assert_eq!(by_content(name, head), *mime, "{name} {head:?}");
        }
    }

    #[test]
    fn images_are_bytes_even_if_they_are_ascii() {
        assert_eq!(content_class("image/svg+xml"), ContentClass::Text);
        assert_eq!(content_class("application/x-tex"), ContentClass::Ambiguous);
        assert_eq!(body(b"abc".to_vec(), "image/png"), ContentBody::Bytes("abc".into()));
        assert_eq!(body(b"abc".to_vec(), "application/x-tex"), ContentBody::Text("abc".into()));
        assert_eq!(body(b"a\0c".to_vec(), "text/plain"), ContentBody::Bytes("a\0c".into()));
    }
}
