//! The error for a URI that is neither a file nor a directory of a skill: it names what is wrong, and similar names.

use libris_core::{Context, Error, Uri};

use super::read::last_name;
use super::{SCHEME, SkillLocation, SkillsInner};
use crate::skill_tree::{SkillSnapshot, SkillTreeEntry};
use crate::suggest::did_you_mean;

/// The longest segment that an error repeats: the longest file name with every byte escaped.
const MAX_SEGMENT_LENGTH: usize = 3 * 255;

/// The error for a URI that the source does not have.
pub(super) fn error(inner: &SkillsInner, snapshot: &SkillSnapshot, uri: &Uri, context: &Context) -> Error {
    // A hint could name files that a caller with restricted rights must not see.
    let hint = match context.sees_everything() {
        true => inner.query_hint(uri).or_else(|| hint(inner, snapshot, uri)),
        false => None,
    };
    match hint {
        Some(hint) => Error::missing(uri, hint),
        None => Error::NotFound(uri.clone()),
    }
}

/// The hint about the first wrong segment of the path.
fn hint(inner: &SkillsInner, snapshot: &SkillSnapshot, uri: &Uri) -> Option<String> {
    let Some(SkillLocation::InFolder(key)) = inner.locate(uri) else { return None };
    let ends = key.match_indices('/').map(|(at, _)| at).chain([key.len()]);
    let mut folder = "";
    for end in ends {
        match snapshot.entries().get(&key[..end]) {
            Some(SkillTreeEntry::Folder) => folder = &key[..end],
            Some(SkillTreeEntry::File(_)) => {
                let file = inner.uri(&key[..end])?;
                return Some(format!("`{file}` is a file and not a folder: read it by this URI"));
            }
            None => return no_such_name(inner, snapshot, folder, &key[..end]),
        }
    }
    None
}

/// The hint that a directory has nothing with this key; `None` if the name is empty or too long to repeat.
fn no_such_name(inner: &SkillsInner, snapshot: &SkillSnapshot, folder: &str, wrong: &str) -> Option<String> {
    let own = match folder {
        "" => format!("{SCHEME}{}", inner.prefix),
        folder => inner.uri(folder)?.to_string(),
    };
    let names: Vec<String> = snapshot.children(folder).map(|(key, _)| last_name(key)).collect();
    let segment = wrong.rsplit('/').next().unwrap_or_default();
    if segment.is_empty() || segment.len() > MAX_SEGMENT_LENGTH {
        return None;
    }
    let wrong = last_name(segment);
    let similar = did_you_mean(&wrong, names.iter().map(String::as_str));
    Some(match (similar.is_empty(), folder) {
        (false, _) => format!("there is no `{wrong}` in `{own}`{similar}"),
        (true, "") => format!("there is no `{wrong}` in `{own}`; `skills/list` has the skills"),
        (true, _) => format!("there is no `{wrong}` in `{own}`; read that folder to see its entries"),
    })
}

impl SkillsInner {
    /// The hint about a URI of the source with a query: its URIs have none.
    pub(super) fn query_hint(&self, uri: &Uri) -> Option<String> {
        let query = uri.query()?;
        let base = uri.without_query();
        self.locate(&base)?;
        let key = query.split(['=', '&']).next().unwrap_or_default();
        Some(match key.is_empty() || key.len() > MAX_SEGMENT_LENGTH {
            true => format!("skills have no query parameters: read `{base}`"),
            false => {
                format!("skills have no query parameter `{key}`: read `{base}`, which gives the whole file")
            }
        })
    }
}
