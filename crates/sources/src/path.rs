//! Escapes and unescapes the values of `{+path}`, a reserved expansion of RFC 6570.
//!
//! A reserved expansion copies reserved characters and percent-escapes unchanged. So in a value, characters that would
//! have another meaning in the URI (`%`, `?`, `#`, brackets), control characters and bytes that are not UTF-8 are
//! percent-encoded. Typed text is parsed by the same rules.

use libris_core::Uri;

/// Converts a typed value to the path of a URI: decodes its percent-escapes, and encodes each segment.
pub(crate) fn segments(typed: &str) -> String {
    typed.split('/').map(|segment| Uri::encode_segment(&unescape(segment))).collect::<Vec<_>>().join("/")
}

/// Decodes percent-escapes; a `%` that does not begin an escape is literal, as in an expansion.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        match rest.get(at..at + 3).and_then(Uri::decode_segment) {
            Some(byte) => {
                out.extend(byte);
                rest = &rest[at + 3..];
            }
            None => {
                out.push(b'%');
                rest = &rest[at + 1..];
            }
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Converts the path of a URI to a value, with as few escapes as a reserved expansion allows.
pub(crate) fn value(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for (at, segment) in path.split('/').enumerate() {
        if at > 0 {
            out.push('/');
        }
        match Uri::decode_segment(segment).map(String::from_utf8) {
            Some(Ok(name)) => {
                for letter in name.chars() {
                    match letter {
                        '%' | '?' | '#' | '[' | ']' => out.push_str(&format!("%{:02X}", u32::from(letter))),
                        letter if letter.is_ascii_control() => {
                            out.push_str(&format!("%{:02X}", u32::from(letter)))
                        }
                        letter => out.push(letter),
                    }
                }
            }
            _ => out.push_str(segment),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{segments, unescape, value};

    #[test]
    fn escapes_only_what_an_expansion_would_not() {
        assert_eq!(value("a%20b/100%25/%3F.md"), "a b/100%25/%3F.md");
        assert_eq!(value("caf%C3%A9/%FF/"), "café/%FF/");
        assert_eq!(segments("a b/100%/%3f"), "a%20b/100%25/%3F");
        assert_eq!(unescape("%4"), b"%4");
        assert_eq!(unescape("%é%41"), "%éA".as_bytes());
    }
}
