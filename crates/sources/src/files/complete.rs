//! Completion of the variables `path` and `folder`, one segment at a time, as in a shell.

use libris_core::{Completion, Result};

use super::{FilesInner, read_error};
use crate::path::{segments, unescape, value};
use crate::tree::{ResolvedPath, case_folded, is_missing, walk};

/// The entries that a completion returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletedKinds {
    All,
    Folders,
}

/// The first `limit` paths that complete the typed text.
pub(super) fn paths(
    inner: &FilesInner,
    typed: &str,
    limit: usize,
    kinds: CompletedKinds,
) -> Result<Completion> {
    let (parent, begun) = match typed.rsplit_once('/') {
        Some((parent, begun)) => (format!("{}/", segments(parent)), begun),
        None => (String::new(), typed),
    };
    let begun = String::from_utf8_lossy(&unescape(begun)).to_lowercase();
    let asked = inner.uri(&parent);
    let found = match inner.tree.resolve(inner.open_root()?, &parent) {
        Ok(ResolvedPath::Folder(folder)) => inner.tree.names(&folder).map(|names| (folder, names)),
        Ok(ResolvedPath::File(..)) => return Ok(Completion::default()),
        Err(cause) => Err(cause),
    };
    let failed = |cause| read_error(asked.as_ref().unwrap_or(&inner.root), cause);
    let (folder, names) = match found {
        Ok(found) => found,
        Err(cause) if is_missing(&cause) => return Ok(Completion::default()),
        Err(cause) => return Err(failed(cause)),
    };
    let parent = value(&parent);
    // Names with a common prefix are adjacent in this order, so a binary search finds them.
    let order = names.case_folded_order();
    let key = |position: u32| names.get(position as usize).unwrap_or_default();
    let name = |position: &u32| case_folded(key(*position));
    let first = order.partition_point(|position| *name(position) < *begun);
    let matching = &order[first..];
    let matching = &matching[..matching.partition_point(|position| name(position).starts_with(&begun))];
    let mut completion = Completion::default();
    let mut skipped = 0;
    for &position in matching {
        let key = key(position);
        if kinds == CompletedKinds::Folders && !key.ends_with('/') {
            skipped += 1;
            continue;
        }
        if completion.values.len() == limit {
            break;
        }
        match walk::exists(&inner.tree, &folder, key).map_err(failed)? {
            true => completion.values.push(format!("{parent}{}", value(key))),
            false => skipped += 1,
        }
    }
    let total = matching.len() - skipped;
    completion.total = Some(total as u64);
    completion.more = total > completion.values.len();
    Ok(completion)
}
