//! The branches and tags of a repository.

use gix::ObjectId;
use libris_core::Result;

use super::pages::Commit;
use super::repo::{Objects, fault};
use super::rev::{SHOWN, by_name, candidates, peel};

/// How many refs one page tells of.
const MOST: usize = 2000;

/// The refs of a repository, with their commits.
pub(super) struct Refs {
    /// The branch that `HEAD` is, where it is one.
    pub(super) head: Option<String>,
    pub(super) head_commit: Option<ObjectId>,
    pub(super) all: Vec<Ref>,
    /// How many there are beside those.
    pub(super) more: usize,
}

/// A branch or tag.
pub(super) struct Ref {
    /// The full name.
    pub(super) name: String,
    pub(super) commit: ObjectId,
    /// The tag object, where there is one.
    pub(super) tag: Option<ObjectId>,
    /// When its commit was made.
    pub(super) time: String,
    pub(super) subject: String,
    /// Whether another ref has the same short name and goes before it.
    hidden: bool,
}

impl Ref {
    /// The shortest name that stands for it.
    pub(super) fn short(&self) -> &str {
        if self.hidden { self.name.trim_start_matches("refs/") } else { shortest(&self.name) }
    }
}

/// The name of a ref without its kind.
pub(super) fn shortest(name: &str) -> &str {
    SHOWN.iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name)
}

/// The full names of all refs that are shown, with what they lead to: a commit or a tag.
pub(super) fn all(objects: &Objects<'_>) -> Result<Vec<(String, ObjectId)>> {
    let platform = objects.references().map_err(fault)?;
    let mut all = Vec::new();
    for kind in SHOWN {
        objects.patience.check()?;
        for reference in platform.prefixed(kind).map_err(fault)? {
            // One that is broken hides none of the others.
            let Ok(mut reference) = reference else { continue };
            let Ok(name) = std::str::from_utf8(reference.name().as_bstr()).map(str::to_owned) else {
                continue;
            };
            let Ok(id) = reference.follow_to_object() else { continue };
            all.push((name, id.detach()));
        }
    }
    all.sort();
    Ok(all)
}

/// The full name of the branch that `HEAD` is, where it is one.
pub(super) fn head(objects: &Objects<'_>) -> Result<Option<String>> {
    let name = objects.head_name().map_err(fault)?;
    Ok(name.map(|name| name.as_bstr().to_string()))
}

impl Refs {
    pub(super) fn read(objects: &Objects<'_>) -> Result<Self> {
        let names = all(objects)?;
        let is_there = |name: &str| names.binary_search_by(|(other, _)| other.as_str().cmp(name)).is_ok();
        let mut refs = Vec::new();
        let mut seen = 0;
        for (name, id) in &names {
            if refs.len() == MOST {
                break;
            }
            seen += 1;
            let Some(commit) = peel(objects, *id)? else { continue };
            let first = candidates(shortest(name)).into_iter().find(|other| is_there(other));
            let read = Commit::read(objects, commit)?;
            refs.push(Ref {
                commit,
                tag: (*id != commit).then_some(*id),
                time: read.time().to_owned(),
                subject: read.subject(),
                hidden: first.as_ref() != Some(name),
                name: name.clone(),
            });
        }
        let head = head(objects)?.map(|name| shortest(&name).to_owned());
        Ok(Self { head, head_commit: by_name(objects, "HEAD")?, all: refs, more: names.len() - seen })
    }
}
