//! Members of tar archives.

use flate2::read::MultiGzDecoder;
use tar::{Archive, EntryType};

use super::{MAX_MEMBERS, Member, safe_path};
use crate::ExtractionLimits;
use crate::decompress::read_up_to;
use crate::extract::{ExtractFailure, ExtractResult};

/// Decompresses a gzipped archive.
pub(super) fn decompressed(data: &[u8], limits: &ExtractionLimits) -> ExtractResult<Vec<u8>> {
    let decompressed = read_up_to(MultiGzDecoder::new(data), limits.expanded)?;
    decompressed.ok_or(ExtractFailure::Expands(limits.expanded))
}

pub(super) fn members(data: &[u8], limits: &ExtractionLimits) -> ExtractResult<Vec<Member>> {
    let mut members = Vec::new();
    each_file(data, |path, entry| {
        members.push(Member { path, size: entry.size() });
        match members.len() > MAX_MEMBERS {
            true => Err(ExtractFailure::damaged(format!("it has more than {MAX_MEMBERS} members"))),
            false => Ok(()),
        }
    })?;
    let _ = limits;
    // The caller keeps the first of several members with the same path. In a tar archive, the last one replaces the
    // others.
    members.reverse();
    Ok(members)
}

pub(super) fn member(data: &[u8], wanted: &str, limits: &ExtractionLimits) -> ExtractResult<Option<Vec<u8>>> {
    let mut found = None;
    each_file(data, |path, entry| {
        if path == wanted {
            let content = read_up_to(entry, limits.member)?;
            found = Some(content.ok_or(ExtractFailure::Expands(limits.member))?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Calls `visit` with the normalised path of each regular file.
fn each_file(
    data: &[u8],
    mut visit: impl FnMut(String, &mut tar::Entry<'_, &[u8]>) -> ExtractResult<()>,
) -> ExtractResult<()> {
    let mut archive = Archive::new(data);
    for entry in archive.entries().map_err(ExtractFailure::damaged)? {
        let mut entry = entry.map_err(ExtractFailure::damaged)?;
        if !matches!(entry.header().entry_type(), EntryType::Regular | EntryType::Continuous) {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if let Some(path) = safe_path(&name) {
            visit(path, &mut entry)?;
        }
    }
    Ok(())
}
