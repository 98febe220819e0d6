//! Conversion of file names to URI segments and back.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};

use libris_core::Uri;

/// A file name as a URI segment; `None` if it is not Unicode on a platform whose names are not bytes.
pub(crate) fn to_segment(name: &OsStr) -> Option<String> {
    bytes(name).map(Uri::encode_segment)
}

/// The file name that a URI segment encodes; `None` if it is not a single path component, such as `..` or `a%2Fb`.
pub(crate) fn from_segment(segment: &str) -> Option<OsString> {
    let decoded = Uri::decode_segment(segment)?;
    if decoded.contains(&0) || decoded.contains(&b'/') {
        return None;
    }
    let name = from_bytes(decoded)?;
    // On Windows this also rejects `\`, drive letters and other prefixes.
    let mut components = Path::new(&name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Some(name),
        _ => None,
    }
}

#[cfg(unix)]
fn bytes(name: &OsStr) -> Option<&[u8]> {
    use std::os::unix::ffi::OsStrExt;
    Some(name.as_bytes())
}

#[cfg(not(unix))]
fn bytes(name: &OsStr) -> Option<&[u8]> {
    name.to_str().map(str::as_bytes)
}

#[cfg(unix)]
fn from_bytes(bytes: Vec<u8>) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt;
    Some(OsString::from_vec(bytes))
}

#[cfg(not(unix))]
fn from_bytes(bytes: Vec<u8>) -> Option<OsString> {
    String::from_utf8(bytes).ok().map(OsString::from)
}

#[cfg(test)]
mod tests {
    use super::{from_segment, to_segment};

    #[test]
    fn names_round_trip() {
        for name in ["a b", "100%", "a#b?c;d:e", "日本", "new\nline", ".hidden", "a.", "~", "*"] {
            let segment = to_segment(name.as_ref()).unwrap();
            assert_eq!(from_segment(&segment).unwrap(), name, "{segment}");
        }
    }

    #[test]
    fn segments_that_are_not_a_single_component_are_rejected() {
        for segment in ["", ".", "..", "%2e%2E", "a%2Fb", "%2F", "a%00", "%", "%zz", "..%2f"] {
            assert_eq!(from_segment(segment), None, "{segment}");
        }
    }
}
