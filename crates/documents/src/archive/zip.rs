//! Members of zip archives.

use std::collections::HashMap;

use super::{MAX_MEMBERS, Member, safe_path};
use crate::ExtractionLimits;
use crate::extract::package::{ZipPackage, failure};
use crate::extract::{ExtractFailure, ExtractResult};

pub(super) fn members(data: &[u8], limits: &ExtractionLimits) -> ExtractResult<Vec<Member>> {
    Ok(files(&mut ZipPackage::open(data, limits.expanded)?)?
        .into_values()
        .map(|(_, member)| member)
        .collect())
}

pub(super) fn member(data: &[u8], path: &str, limits: &ExtractionLimits) -> ExtractResult<Option<Vec<u8>>> {
    let mut package = ZipPackage::open(data, limits.member)?;
    let index = files(&mut package)?.get(path).map(|(index, _)| *index);
    index.map(|index| package.read_index(index)).transpose()
}

/// The files by path, with their indexes in the archive.
fn files(package: &mut ZipPackage<'_>) -> ExtractResult<HashMap<String, (usize, Member)>> {
    let archive = package.archive();
    if archive.len() > MAX_MEMBERS {
        return Err(ExtractFailure::damaged(format!("it has more than {MAX_MEMBERS} members")));
    }
    let mut files = HashMap::with_capacity(archive.len());
    for index in 0..archive.len() {
        let file = archive.by_index_raw(index).map_err(failure)?;
        // Symbolic links are not followed.
        if file.is_dir() || file.is_symlink() {
            continue;
        }
        let size = file.size();
        let path = file.name().ok().and_then(|name| safe_path(&name));
        if let Some(path) = path {
            files.insert(path.clone(), (index, Member { path, size }));
        }
    }
    Ok(files)
}
