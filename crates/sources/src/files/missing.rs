//! The error for a path that does not exist: it names the wrong segment of the path, and similar names.

use libris_core::{Context, Error, Proof, Uri};

use super::FilesInner;
use crate::path::value;
use crate::suggest::did_you_mean;
use crate::tree::{OpenFolder, ProofBuilder, ResolvedPath, Tree};

/// The maximum number of segments of a path that are examined.
const MAX_SEGMENTS: usize = 32;

/// The longest segment that an error repeats: the longest file name with every byte escaped.
const MAX_SEGMENT_LENGTH: usize = 3 * 255;

/// The maximum number of names of a folder that are compared: those next to the wrong one in the order of names.
const MAX_NAMES: usize = 2_000;

/// The error for the URI of a file or directory that does not exist.
pub(super) fn error(inner: &FilesInner, uri: &Uri, context: &Context) -> Error {
    // A hint could name files that a caller with restricted rights must not see.
    let mut proof = None;
    let hint = context.sees_everything().then(|| hint(inner, inner.path(uri)?, &mut proof)).flatten();
    match hint {
        Some(hint) => Error::missing(uri, hint).with_proof(proof),
        None => Error::NotFound(uri.clone()),
    }
}

/// A hint about the first wrong segment of a path. Sets `proof` to the proof that nothing has that name, if there is
/// one.
fn hint(inner: &FilesInner, path: &str, proof: &mut Option<Proof>) -> Option<String> {
    let whole = path.strip_suffix('/').unwrap_or(path);
    let ends = whole.match_indices('/').map(|(at, _)| at).chain([whole.len()]);
    let mut folder = inner.open_root().ok()?;
    let mut begin = 0;
    for end in ends.take(MAX_SEGMENTS) {
        match inner.tree.resolve(inner.open_root().ok()?, &whole[..end]) {
            Ok(ResolvedPath::Folder(found)) => folder = found,
            Ok(ResolvedPath::File(..)) => {
                let file = inner.uri(&whole[..end])?;
                return Some(format!("`{file}` is a file and not a folder: read it by this URI"));
            }
            Err(_) => {
                let segment = &whole[begin..end];
                let mut builder = ProofBuilder::new(&inner.tree.prover);
                builder.add_directory(&folder);
                // Checked after the directory is observed, so that an entry that appeared before is found. If
                // there is an entry that cannot be resolved, there is no proof: it may be a symbolic link, and
                // its target can appear without an event in this directory.
                *proof = builder.build().filter(|_| Tree::has_no_entry(&folder, segment));
                return no_such_name(inner, &folder, segment);
            }
        }
        begin = end + 1;
    }
    None
}

/// The hint that a folder has no child with this name; `None` if the name is empty or too long to repeat.
fn no_such_name(inner: &FilesInner, folder: &OpenFolder, segment: &str) -> Option<String> {
    if segment.is_empty() || segment.len() > MAX_SEGMENT_LENGTH {
        return None;
    }
    let own = inner.uri(&folder.logical.key)?;
    let names = inner.tree.names(folder).ok()?;
    let position = names.partition_point(|name| name < segment);
    let first = position.saturating_sub(MAX_NAMES / 2).min(names.len().saturating_sub(MAX_NAMES));
    let near = names.iter_from(first).take(MAX_NAMES);
    let names: Vec<String> = near.map(|key| value(key.trim_end_matches('/'))).collect();
    let wrong = value(segment);
    let similar = did_you_mean(&wrong, names.iter().map(String::as_str));
    Some(match similar.is_empty() {
        true => format!("there is no `{wrong}` in `{own}`; read that folder to see its entries"),
        false => format!("there is no `{wrong}` in `{own}`{similar}"),
    })
}
