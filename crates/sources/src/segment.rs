//! Default names of resources.

use libris_core::Uri;

/// The last non-empty segment of a URI, decoded.
pub(crate) fn last(uri: &Uri) -> String {
    let path = uri.path().rsplit('/').find(|segment| !segment.is_empty());
    let segment = path.or(uri.authority()).filter(|segment| !segment.is_empty()).unwrap_or(uri.as_str());
    Uri::decode_segment(segment)
        .map_or_else(|| segment.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}
