//! Lists the members of archives, and extracts one of them.
//!
//! Members whose paths could lead out of the archive, such as `../a`, are ignored.

#[cfg(feature = "archive")]
mod tar;
#[cfg(feature = "archive")]
mod zip;

use std::cmp::Ordering;
use std::sync::LazyLock;

use libris_core::Uri;
use serde::{Deserialize, Serialize};

use crate::extract::{ExtractFailure, ExtractResult};
use crate::{ArchiveFormat, ExtractionLimits};

/// An archive with more members is refused.
pub const MAX_MEMBERS: usize = 100_000;

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Member {
    /// The path in the archive, with `/` between its segments. It has no empty segments, no `.` and no `..`.
    pub path: String,
    /// The size in bytes that the archive declares.
    pub size: u64,
}

/// The files in an archive, in the order of their URIs. If several have the same path, the last one wins.
pub fn members(data: &[u8], format: ArchiveFormat, limits: &ExtractionLimits) -> ExtractResult<Vec<Member>> {
    #[cfg(feature = "archive")]
    {
        let mut members = match format {
            ArchiveFormat::Zip => zip::members(data, limits)?,
            ArchiveFormat::Tar => tar::members(data, limits)?,
            ArchiveFormat::TarGz => tar::members(&tar::decompressed(data, limits)?, limits)?,
        };
        members.sort_by(|one, other| uri_order(&one.path, &other.path));
        members.dedup_by(|one, other| one.path == other.path);
        Ok(members)
    }
    #[cfg(not(feature = "archive"))]
    {
        let _ = (data, format, limits);
        Err(ExtractFailure::Unsupported("archives".to_owned()))
    }
}

/// The contents of a file in an archive. `path` is one that [`members`] returned.
pub fn member(
    data: &[u8],
    format: ArchiveFormat,
    path: &str,
    limits: &ExtractionLimits,
) -> ExtractResult<Vec<u8>> {
    #[cfg(feature = "archive")]
    {
        let found = match format {
            ArchiveFormat::Zip => zip::member(data, path, limits)?,
            ArchiveFormat::Tar => tar::member(data, path, limits)?,
            ArchiveFormat::TarGz => tar::member(&tar::decompressed(data, limits)?, path, limits)?,
        };
        found.ok_or(ExtractFailure::NoMember)
    }
    #[cfg(not(feature = "archive"))]
    {
        let _ = (data, format, path, limits);
        Err(ExtractFailure::Unsupported("archives".to_owned()))
    }
}

/// Whether a byte stands for itself in a segment of a URI, by byte.
static IS_PLAIN: LazyLock<[bool; 256]> =
    LazyLock::new(|| std::array::from_fn(|byte| Uri::encode_segment(&[byte as u8]).len() == 1));

/// The bytes of a path in the URI of a member.
pub(crate) fn encoded_path(path: &str) -> impl Iterator<Item = u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = &*IS_PLAIN;
    path.bytes().flat_map(move |byte| {
        let escape = [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        let (bytes, count) = match byte == b'/' || is_plain[usize::from(byte)] {
            true => ([byte, 0, 0], 1),
            false => (escape, 3),
        };
        bytes.into_iter().take(count)
    })
}

/// Compares the paths of two members by their URIs: the order in which folders are listed.
pub(crate) fn uri_order(one: &str, other: &str) -> Ordering {
    encoded_path(one).cmp(encoded_path(other))
}

/// Normalises the path of a member. `None` if it is empty, absolute or too long, or has a `..` segment, a backslash, a
/// NUL or a drive letter.
#[cfg(feature = "archive")]
fn safe_path(name: &str) -> Option<String> {
    let has_drive = name.as_bytes().get(1) == Some(&b':');
    if name.starts_with('/') || name.contains(['\\', '\0']) || has_drive || name.len() > 4096 {
        return None;
    }
    let segments: Vec<&str> =
        name.split('/').filter(|segment| !segment.is_empty() && *segment != ".").collect();
    (!segments.is_empty() && !segments.contains(&"..")).then(|| segments.join("/"))
}

#[cfg(all(test, feature = "archive"))]
mod tests {
    use super::safe_path;

    #[test]
    fn paths_cannot_lead_out() {
        for name in [
            "/etc/passwd",
            "../a",
            "a/../../b",
            "a/..",
            "C:\\a",
            "c:a",
            "a\\..\\b",
            "a\0b",
            "",
            "./",
            "..",
            "/",
        ] {
            assert_eq!(safe_path(name), None, "{name:?}");
        }
        assert_eq!(safe_path("./a//b.txt").as_deref(), Some("a/b.txt"));
        assert_eq!(safe_path("..a/b..").as_deref(), Some("..a/b.."));
    }
}
