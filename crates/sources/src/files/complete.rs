//! Completion of the variables `path` and `folder`, one segment at a time, as in a shell.

use libris_core::{Completion, Result, Uri};

use super::{FilesInner, read_error};
use crate::path::{segments, unescape, value};
use crate::tree::walk::ListedFolder;
use crate::tree::{ProofBuilder, ResolvedPath, SubtreeSearch, case_folded, is_missing};

/// The entries that a completion returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletedKinds {
    All,
    Folders,
}

/// Like [`paths`], for the variable `{/path*}`. Its values are not escaped, because the template escapes each segment.
pub(super) fn segments_of_paths(inner: &FilesInner, typed: &str, limit: usize) -> Result<Completion> {
    let escaped: Vec<_> = typed.split('/').map(|name| Uri::encode_segment(name.as_bytes())).collect();
    let completion = paths(inner, &escaped.join("/"), limit, CompletedKinds::All)?;
    let plain = |value: &String| String::from_utf8(unescape(value)).ok();
    Ok(Completion { values: completion.values.iter().filter_map(plain).collect(), ..completion })
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
    let mut proof = ProofBuilder::new(&inner.tree.prover);
    let found = match inner.tree.resolve(inner.open_root()?, &parent) {
        Ok(ResolvedPath::Folder(folder)) => {
            proof.add_directory(&folder);
            inner.tree.names(&folder).map(|names| ListedFolder::new(&inner.tree, folder, names))
        }
        Ok(ResolvedPath::File(..)) => return Ok(Completion::default()),
        Err(cause) => Err(cause),
    };
    let failed = |cause| read_error(asked.as_ref().unwrap_or(&inner.root), cause);
    let listed = match found {
        Ok(found) => found,
        Err(cause) if is_missing(&cause) => return Ok(Completion::default()),
        Err(cause) => return Err(failed(cause)),
    };
    let parent = value(&parent);
    // Names with a common prefix are adjacent in this order, so a binary search finds them.
    let names = &listed.names;
    let order = names.case_folded_order();
    let key = |position: u32| names.get(position as usize).unwrap_or_default();
    let name = |position: &u32| case_folded(key(*position));
    let first = order.partition_point(|position| *name(position) < *begun);
    let matching = &order[first..];
    let matching = &matching[..matching.partition_point(|position| name(position).starts_with(&begun))];
    let mut completion = Completion::default();
    let mut search = SubtreeSearch::new(&inner.tree);
    let mut skipped = 0;
    // Whether the matching names after the limit are counted without being examined.
    let counts_all = kinds == CompletedKinds::All && inner.config.include.is_empty();
    for &position in matching {
        let key = key(position);
        let is_full = completion.values.len() == limit;
        if is_full && counts_all {
            break;
        }
        let is_completed = match key.ends_with('/') {
            true => search.open(&listed.folder, key, &mut proof).map_err(failed)?.is_some(),
            false if kinds == CompletedKinds::Folders => false,
            false => listed.has_file(&inner.tree, position as usize).map_err(failed)?,
        };
        match is_completed {
            false => skipped += 1,
            true if is_full => {
                completion.more = true;
                return Ok(completion.with_proof(proof.build()));
            }
            true => completion.values.push(format!("{parent}{}", value(key))),
        }
    }
    let total = matching.len() - skipped;
    completion.total = Some(total as u64);
    completion.more = total > completion.values.len();
    Ok(completion.with_proof(proof.build()))
}
