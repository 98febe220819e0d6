//! The names of files and folders, and the URIs that they stand for.
//!
//! Each path of the share stands for a URI: `/dav/git/project/tree/HEAD/a.md` is `git://project/tree/HEAD/a.md`. So the
//! URI is computed from the path without a table, and paths are as unique as URIs. A name is the segment of the URI
//! with its percent escapes decoded, except where that would be unsafe or ambiguous. The escapes that this module adds
//! never occur in a URI in normal form, so no other segment has the same name:
//!
//! | in a name | stands for |
//! |---|---|
//! | `%2f`, `%3f` | `/` and `?` of a query; escapes of URIs have capital letters |
//! | `%3a` at the beginning | a URI that does not continue with `//` (`file:` with `///`) after its scheme |
//! | `%2E` alone | an empty segment |
//! | `%2E` at the end | a folder beside a file of the same name |
//! | `%2E` instead of the dot before an extension | a file whose URI has the extension, beside one that got it |

use super::extension;

/// Whether a character is invisible, or changes the order in which text is shown, so that one name can look like
/// another.
fn is_deceptive(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Whether a character that is percent-encoded in a URI is decoded in the name.
fn is_shown(letter: char) -> bool {
    let is_reserved = matches!(letter, '/' | '\\' | '%' | '?' | '#');
    let is_noncharacter = u32::from(letter) & 0xfffe == 0xfffe;
    // A character that may also stand unescaped stays escaped: `%2C` and `,` are in different URIs, and must have
    // different names.
    let is_literal = letter.is_ascii() && is_segment_byte(letter as u8);
    !(is_reserved || is_literal || is_noncharacter || letter.is_control() || is_deceptive(letter))
}

/// Whether a byte may stand unescaped in a segment of a URI.
fn is_segment_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

fn hex_byte(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = bytes else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

/// The name for a segment of a URI. The query counts as a part of the last segment.
pub(super) fn shown(segment: &str) -> String {
    let mut name = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(first) = rest.chars().next() {
        if first != '%' {
            match first {
                '/' => name.push_str("%2f"),
                '?' => name.push_str("%3f"),
                letter => name.push(letter),
            }
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let mut bytes = Vec::new();
        while let Some(byte) = hex_byte(&rest.as_bytes()[bytes.len() * 3..]) {
            bytes.push(byte);
        }
        if bytes.is_empty() {
            name.push('%');
            rest = &rest[1..];
            continue;
        }
        let escapes = &rest[..bytes.len() * 3];
        let mut at = 0;
        for chunk in bytes.utf8_chunks() {
            for letter in chunk.valid().chars() {
                let end = at + letter.len_utf8();
                match is_shown(letter) {
                    true => name.push(letter),
                    false => name.push_str(&escapes[at * 3..end * 3]),
                }
                at = end;
            }
            let end = at + chunk.invalid().len();
            name.push_str(&escapes[at * 3..end * 3]);
            at = end;
        }
        rest = &rest[escapes.len()..];
    }
    match name.is_empty() {
        true => "%2E".to_owned(),
        false => name,
    }
}

/// The URI segment that a name stands for; the inverse of [`shown`]. `None` for the empty name, `.` and `..`.
pub(super) fn segment(name: &str) -> Option<String> {
    match name {
        "" | "." | ".." => return None,
        "%2E" => return Some(String::new()),
        _ => {}
    }
    let mut segment = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let length = match (first, rest.get(..3)) {
            ('%', Some("%2f")) => {
                segment.push('/');
                3
            }
            ('%', Some("%3f")) => {
                segment.push('?');
                3
            }
            ('%', Some(escape)) if hex_byte(escape.as_bytes()).is_some() => {
                segment.push_str(escape);
                3
            }
            ('#', _) => {
                segment.push('#');
                1
            }
            (letter, _) => {
                let mut buffer = [0; 4];
                for &byte in letter.encode_utf8(&mut buffer).as_bytes() {
                    match is_segment_byte(byte) {
                        true => segment.push(char::from(byte)),
                        false => segment.push_str(&format!("%{byte:02X}")),
                    }
                }
                letter.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    Some(segment)
}

/// The slashes that most URIs of a scheme have between the colon and the first segment.
fn usual_start(scheme: &str) -> &'static str {
    match scheme {
        "file" => "///",
        _ => "//",
    }
}

/// The name of an entry directly below a prefix. `uri` is the URI of the entry; those of folders end with `/` or `:`.
/// `None` if the URI does not start with the prefix, is not `scheme:` below the empty prefix, or has no segment below a
/// prefix `scheme:`.
pub(super) fn entry_name(prefix: &str, uri: &str) -> Option<String> {
    let rest = uri.strip_prefix(prefix)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if prefix.is_empty() {
        return uri.strip_suffix(':').map(str::to_owned);
    }
    let Some(scheme) = prefix.strip_suffix(':').filter(|scheme| !scheme.contains('/')) else {
        return Some(shown(rest));
    };
    match rest.strip_prefix(usual_start(scheme)) {
        Some("") => None,
        Some(first) => Some(shown(first)),
        None if rest.is_empty() => None,
        None => Some(format!("%3a{}", shown(rest))),
    }
}

/// The URI prefix that a path of folder names stands for: `git`, `project` is `git://project/`. `None` if the first
/// name is not a scheme, or another name has no segment.
pub(super) fn prefix(names: &[String]) -> Option<String> {
    let Some((scheme, below)) = names.split_first() else { return Some(String::new()) };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.'));
    if !is_scheme {
        return None;
    }
    let mut prefix = format!("{scheme}:");
    for name in below {
        let name = match name.strip_suffix("%2E") {
            Some(before) if !before.is_empty() => before,
            _ => name,
        };
        prefix = child(&prefix, name)?;
        prefix.push('/');
    }
    Some(prefix)
}

/// The URI of an entry by its name, without a slash at its end.
pub(super) fn child(prefix: &str, name: &str) -> Option<String> {
    let scheme = prefix.strip_suffix(':').filter(|scheme| !scheme.contains('/'));
    Some(match (scheme, name.strip_prefix("%3a")) {
        (Some(_), Some(unusual)) => format!("{prefix}{}", segment(unusual)?),
        // An authority can be an IPv6 address in brackets.
        (Some(scheme), None) => {
            let first = segment(name)?.replace("%5B", "[").replace("%5D", "]");
            format!("{prefix}{}{first}", usual_start(scheme))
        }
        (None, _) => format!("{prefix}{}", segment(name)?),
    })
}

/// Names the entries of one folder, which must come in URI order.
#[derive(Default)]
pub(super) struct FolderNames {
    /// The last named entry, and the earlier ones whose URIs are prefixes of it. Only an entry whose URI is a prefix of
    /// the next one can already have its name: `a`, named `a.md`, before `a.md`; or the file `a` before the folder
    /// `a/`.
    open: Vec<NamedUri>,
}

struct NamedUri {
    uri: String,
    /// The URI without the slash of a folder.
    base: String,
    name: String,
}

impl FolderNames {
    /// The name of the next entry; `None` if it was named before, or has no name.
    pub(super) fn name(
        &mut self,
        prefix: &str,
        uri: &str,
        mime: Option<&str>,
        is_folder: bool,
    ) -> Option<String> {
        let base = uri.strip_suffix('/').filter(|_| is_folder).unwrap_or(uri);
        while self.open.last().is_some_and(|last| !base.starts_with(&last.base)) {
            self.open.pop();
        }
        if self.open.iter().any(|open| open.uri == uri) {
            return None;
        }
        let plain = entry_name(prefix, uri)?;
        let mut name = match is_folder {
            true => plain,
            false => extension::with_extension(plain, uri, mime),
        };
        if self.open.iter().any(|open| open.name == name) {
            match name.rfind('.').filter(|_| !is_folder) {
                Some(dot) => name.replace_range(dot..=dot, "%2E"),
                None => name.push_str("%2E"),
            }
        }
        let (uri, base) = (uri.to_owned(), base.to_owned());
        self.open.push(NamedUri { uri, base, name: name.clone() });
        Some(name)
    }
}

/// Appends a name to the `href` of its folder.
pub(super) fn push_encoded(href: &mut String, name: &str) {
    for &byte in name.as_bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~!$'()*,;=:@".contains(&byte) {
            true => href.push(char::from(byte)),
            false => href.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// The names in the path of a request below the share; `None` if it is malformed.
pub(super) fn decode_path(path: &str) -> Option<Vec<String>> {
    let path = path.trim_start_matches('/').trim_end_matches('/');
    if path.is_empty() {
        return Some(Vec::new());
    }
    let decode = |part: &str| {
        let mut bytes = Vec::with_capacity(part.len());
        let mut rest = part.as_bytes();
        while let Some(&first) = rest.first() {
            let length = match first {
                b'%' => {
                    bytes.push(hex_byte(rest)?);
                    3
                }
                byte => {
                    bytes.push(byte);
                    1
                }
            };
            rest = &rest[length..];
        }
        let name = String::from_utf8(bytes).ok()?;
        (!name.is_empty() && !name.contains('/') && !name.chars().any(char::is_control)).then_some(name)
    };
    path.split('/').map(decode).collect()
}

#[cfg(test)]
mod tests;
