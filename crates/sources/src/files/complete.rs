//! Completing the path of a file segment by segment.
//!
//! A value is a path to put into `{+path}`. Such an expansion lets reserved characters and escapes
//! through, so what would not survive it (`%`, `?`, `#`, brackets, bytes that are not UTF-8) is escaped
//! in the value. What is typed is read in the same way.

use libris_core::{Completion, Result, Uri};

use super::root::is_missing;
use super::tree::{Found, Tree};
use super::{Inner, fault, walk};

/// The paths below what was typed so far.
pub(super) fn paths(inner: &Inner, typed: &str) -> Result<Completion> {
    let (parent, begun) = match typed.rsplit_once('/') {
        Some((parent, begun)) => (format!("{}/", segments(parent)), begun),
        None => (String::new(), typed),
    };
    let begun = String::from_utf8_lossy(&unescape(begun)).to_lowercase();
    let asked = inner.uri(&parent);
    let found = match inner.tree.find(inner.open_root()?, &parent) {
        Ok(Found::Folder(folder)) => inner.tree.names(&folder).map(|names| (folder, names)),
        Ok(Found::File(..)) => return Ok(Completion::default()),
        Err(cause) => Err(cause),
    };
    let (folder, names) = match (found, asked) {
        (Ok(found), _) => found,
        (Err(cause), Some(uri)) if !is_missing(&cause) => return Err(fault(&uri, cause)),
        _ => return Ok(Completion::default()),
    };
    let parent = value(&parent);
    // Names that begin alike stand together, so however many there are, few are looked at.
    let order = inner.tree.order(&folder, &names);
    let name = |place: &u32| Tree::folded(&names[*place as usize]);
    let first = order.partition_point(|place| *name(place) < *begun);
    let matching = &order[first..];
    let matching = &matching[..matching.partition_point(|place| name(place).starts_with(&begun))];
    let mut completion = Completion::default();
    let mut gone = 0;
    for &place in matching {
        let key = &names[place as usize];
        if completion.values.len() == Completion::LIMIT {
            break;
        }
        match walk::is_there(&inner.tree, &folder, key) {
            true => completion.values.push(format!("{parent}{}", value(key))),
            false => gone += 1,
        }
    }
    let total = matching.len() - gone;
    completion.total = Some(total as u64);
    completion.more = total > completion.values.len();
    Ok(completion)
}

/// What was typed, as it stands in a URI.
fn segments(typed: &str) -> String {
    typed.split('/').map(|segment| Uri::encode_segment(&unescape(segment))).collect::<Vec<_>>().join("/")
}

/// Decodes escapes; a `%` that begins none stands for itself, as in an expansion.
fn unescape(text: &str) -> Vec<u8> {
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

/// A path of a URI with as few escapes as its expansion allows.
fn value(path: &str) -> String {
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
