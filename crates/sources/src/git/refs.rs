//! Lists the branches, remote-tracking branches and tags of a repository with their commits.

use gix::ObjectId;
use libris_core::Result;

use super::limits::HeldMemory;
use super::pages::Commit;
use super::ref_store::{AllRefs, RefTarget};
use super::repo::TaskRepository;
use super::rev::{VISIBLE_NAMESPACES, by_name, candidates, peel};

/// The maximum number of refs on one page.
const MAX_PAGE_REFS: usize = 2000;

/// The visible refs of a repository, for one page.
pub(super) struct Refs {
    /// The short name of the branch that `HEAD` points to; `None` if it is detached.
    pub(super) head: Option<String>,
    pub(super) head_commit: Option<ObjectId>,
    pub(super) all: Vec<GitRef>,
    /// The number of refs after the last one that the page considered. Earlier refs without a commit are omitted, and
    /// not counted here.
    pub(super) more: usize,
    /// The number of unreadable refs.
    pub(super) unreadable: usize,
}

/// A branch, remote-tracking branch or tag.
pub(super) struct GitRef {
    /// The full name.
    pub(super) name: String,
    pub(super) commit: ObjectId,
    /// The tag object of an annotated tag.
    pub(super) tag: Option<ObjectId>,
    /// The committer time of the commit.
    pub(super) time: String,
    pub(super) subject: String,
    /// Whether another ref with the same short name takes precedence.
    shadowed: bool,
}

impl GitRef {
    /// The shortest unambiguous name: without the namespace, as in `main`. If that name resolves to another ref,
    /// only `refs/` is omitted, as in `heads/main`.
    pub(super) fn short(&self) -> &str {
        if self.shadowed { self.name.trim_start_matches("refs/") } else { without_namespace(&self.name) }
    }
}

/// The name of a ref without its namespace, as in `main` for `refs/heads/main`. It may resolve to another ref.
pub(super) fn without_namespace(name: &str) -> &str {
    VISIBLE_NAMESPACES.iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name)
}

/// All visible refs, with the reservation of their memory.
pub(super) fn all<'o>(repository: &'o TaskRepository<'_>) -> Result<(AllRefs, HeldMemory<'o>)> {
    let mut held = repository.hold(0)?;
    let all = repository.refs().all(&VISIBLE_NAMESPACES, repository.deadline(), &mut held)?;
    Ok((all, held))
}

/// The full name of the branch that `HEAD` points to; `None` if it is detached.
pub(super) fn head(repository: &TaskRepository<'_>) -> Result<Option<String>> {
    Ok(match repository.refs().head()? {
        RefTarget::Symbolic(name) => Some(name),
        RefTarget::Object(_) => None,
    })
}

impl Refs {
    pub(super) fn read(repository: &TaskRepository<'_>) -> Result<Self> {
        let (AllRefs { refs: names, unreadable }, _held) = all(repository)?;
        let is_there = |name: &str| names.binary_search_by(|(other, _)| other.as_str().cmp(name)).is_ok();
        let mut refs = Vec::new();
        let mut seen = 0;
        for (name, id) in &names {
            if refs.len() == MAX_PAGE_REFS {
                break;
            }
            seen += 1;
            let Some(commit) = peel(repository, *id)? else { continue };
            let first = candidates(without_namespace(name)).into_iter().find(|other| is_there(other));
            let read = Commit::read(repository, commit)?;
            refs.push(GitRef {
                commit,
                tag: (*id != commit).then_some(*id),
                time: read.time().to_owned(),
                subject: read.short_subject(),
                shadowed: first.as_ref() != Some(name),
                name: name.clone(),
            });
        }
        let head = head(repository)?.map(|name| without_namespace(&name).to_owned());
        let head_commit = by_name(repository, "HEAD")?;
        Ok(Self { head, head_commit, all: refs, more: names.len() - seen, unreadable })
    }
}
