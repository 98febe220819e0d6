//! Completes branches, tags, commits and paths.

use std::sync::Arc;

use gix::objs::tree::EntryKind;
use libris_core::{Completion, CompletionRequest, Proof, Result, Uri};

use super::history::CommitLog;
use super::ref_evidence::{RefEvidence, RefNamesEvidence};
use super::refs::{self, without_namespace};
use super::repo::{TaskRepository, names};
use super::rev::{self, MIN_ID_PREFIX};
use super::tree_listing::name;
use super::walk::join;
use super::{GitInner, LISTED_REV};
use crate::path::{segments, unescape, value};
use crate::proven::Proven;

/// The number of recent commits among the completions.
const RECENT_COMMITS: usize = 50;

/// The maximum size of the names that stay in memory for completion.
const MAX_KNOWN_REV_BYTES: usize = 4 << 20;

/// The least number of digits of a completed commit id.
const ID_DIGITS: usize = 10;

/// A request to complete one variable of a template.
pub(super) struct GitCompletion {
    variable: CompletedVariable,
    typed: String,
    limit: usize,
}

enum CompletedVariable {
    Rev,
    Commit,
    Path(CompletedPath),
    Format,
    Contents,
    Other,
}

/// A path at a given revision: `{+path}`, `{+folder}`, `{/path*}` or the query parameter `path`.
struct CompletedPath {
    /// The revision whose entries are completed.
    rev: String,
    /// The revision that `rev` is compared with, if the path is that of a diff.
    base: Option<String>,
    position: ValuePosition,
    entries: CompletedEntries,
}

/// The entries of a folder that are completed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompletedEntries {
    All,
    Folders,
}

/// The position of a value in the URI, which determines how it is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValuePosition {
    /// In `{+path}` or `{+folder}`, which keep `/` and percent-encoded characters.
    Path,
    /// In a query parameter or `{/path*}`, whose expansion encodes the value.
    Parameter,
}

impl GitCompletion {
    /// `name` is the name of the template.
    pub(super) fn new(name: &str, asked: &CompletionRequest<'_>) -> Self {
        let known = |variable: &str| asked.known.get(variable).filter(|value| !value.is_empty()).cloned();
        let variable = match asked.variable {
            "ref" | "base" | "head" => CompletedVariable::Rev,
            "id" => CompletedVariable::Commit,
            "path" | "folder" => CompletedVariable::Path(CompletedPath {
                entries: match asked.variable {
                    "folder" => CompletedEntries::Folders,
                    _ => CompletedEntries::All,
                },
                rev: known("ref").or_else(|| known("head")).unwrap_or_else(|| LISTED_REV.into()),
                base: known("base"),
                position: if matches!(name, "blame" | "folder" | "tree") {
                    ValuePosition::Path
                } else {
                    ValuePosition::Parameter
                },
            }),
            "format" => CompletedVariable::Format,
            "contents" => CompletedVariable::Contents,
            _ => CompletedVariable::Other,
        };
        Self { variable, typed: asked.typed.to_owned(), limit: asked.limit }
    }

    pub(super) fn values(&self, inner: &GitInner, repository: &TaskRepository<'_>) -> Result<Completion> {
        match &self.variable {
            CompletedVariable::Rev | CompletedVariable::Commit => {
                let known = match inner.known_revs.get() {
                    Some(known) => known,
                    None => {
                        let known = KnownRevs::read(repository)?;
                        if known.value.is_small() {
                            inner.known_revs.set(&known);
                        }
                        known
                    }
                };
                let commits = self.commits(repository, &known.value.recent)?;
                let revs = known.value.revs.iter().map(String::as_str);
                let commits = commits.iter().map(String::as_str);
                let completion = match self.variable {
                    CompletedVariable::Rev => self.matching(revs.chain(commits)),
                    _ => self.matching(commits.chain(revs)),
                };
                // An object with the typed id prefix may be added at any time, so such a completion gets no proof.
                Ok(completion.with_proof(known.proof.filter(|_| !self.searches_objects())))
            }
            CompletedVariable::Path(path) => self.paths(inner, repository, path),
            CompletedVariable::Contents => Ok(self.matching(["none", "text"]).with_proof(Proof::always())),
            CompletedVariable::Format => Ok(self.matching(["json", "markdown"]).with_proof(Proof::always())),
            CompletedVariable::Other => Ok(Completion::default()),
        }
    }

    fn matching<S: Into<String> + AsRef<str>>(&self, values: impl IntoIterator<Item = S>) -> Completion {
        Completion::of(values, &self.typed, self.limit)
    }

    /// Whether the typed text can be the beginning of an id, and is long enough to search all objects for it.
    fn searches_objects(&self) -> bool {
        self.typed.len() >= MIN_ID_PREFIX && self.typed.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// The abbreviated ids of these recent commits and, if the typed text is an id prefix of at least [`MIN_ID_PREFIX`]
    /// digits, of all commits whose ids begin with it.
    fn commits(&self, repository: &TaskRepository<'_>, recent: &[gix::ObjectId]) -> Result<Vec<String>> {
        let short = |id: gix::ObjectId| {
            let hex = id.to_string();
            hex[..ID_DIGITS.max(self.typed.len()).min(hex.len())].to_owned()
        };
        let mut commits: Vec<_> = recent.iter().map(|id| short(*id)).collect();
        if self.searches_objects() {
            let mut others: Vec<_> =
                rev::by_id_prefix(repository, &self.typed).unwrap_or_default().into_iter().collect();
            others.sort();
            for id in others {
                if rev::peel(repository, id)? == Some(id) && !commits.contains(&short(id)) {
                    commits.push(short(id));
                }
            }
        }
        Ok(commits)
    }

    /// Completes the last name of the typed path with the entries of its directory that the caller sees, ignoring case.
    fn paths(
        &self,
        inner: &GitInner,
        repository: &TaskRepository<'_>,
        completed: &CompletedPath,
    ) -> Result<Completion> {
        let CompletedPath { rev, base, position, entries } = completed;
        let nothing = Ok(Completion::default());
        let (parent, begun) = match self.typed.rsplit_once('/') {
            Some((parent, begun)) => (format!("{parent}/"), begun),
            None => (String::new(), self.typed.as_str()),
        };
        let (parent, begun) = match position {
            ValuePosition::Path => (segments(&parent), unescape(begun)),
            ValuePosition::Parameter => {
                let escaped: Vec<_> =
                    parent.split('/').map(|name| Uri::encode_segment(name.as_bytes())).collect();
                (escaped.join("/"), begun.as_bytes().to_vec())
            }
        };
        let begun = String::from_utf8_lossy(&begun).to_lowercase();
        // An invalid or unknown revision has no completions.
        let revs: Vec<_> = [Some(rev), base.as_ref()]
            .into_iter()
            .flatten()
            .map(|rev| Uri::encode_segment(rev.as_bytes()))
            .collect();
        let Ok(Some(resolved)) = rev::resolve(repository, &revs[0]) else {
            return nothing;
        };
        let Some(above) = names(&parent) else { return nothing };
        let above: Vec<&[u8]> = above.iter().map(Vec::as_slice).collect();
        let found = repository.entry_at(repository.node(resolved.commit)?.tree, &above)?;
        let Some(found) = found.filter(|entry| entry.kind == EntryKind::Tree) else { return nothing };
        if !inner.filter.shows_all(&above, true) {
            return nothing;
        }
        let directory = repository.directory(found.id)?;
        let path = above.join(&b'/');
        // Access rules name paths by their `tree` URIs, not by the parameter `path` of a log or a diff.
        let context = &repository.task.context;
        let is_visible = |key: &str| {
            let sees = |rev: &String| {
                let uri = inner.space.path_uri(rev, &format!("{parent}{key}"));
                uri.is_some_and(|uri| context.sees(&uri))
            };
            context.sees_everything() || revs.iter().all(sees)
        };
        let mut matching = Vec::new();
        for (key, entry) in directory.entries() {
            let folded = String::from_utf8_lossy(&name(key)).to_lowercase();
            let is_wanted = *entries == CompletedEntries::All || entry.kind == EntryKind::Tree;
            if is_wanted
                && folded.starts_with(&begun)
                && inner.filter.shows(&join(&path, key), entry.kind == EntryKind::Tree)
                && is_visible(key)
            {
                matching.push((folded, key));
            }
        }
        matching.sort();
        let values = matching.into_iter().filter_map(|(_, key)| match position {
            ValuePosition::Path => Some(value(&format!("{parent}{key}"))),
            ValuePosition::Parameter => {
                let bytes = Uri::decode_segment(&format!("{parent}{key}"))?;
                String::from_utf8(bytes).ok()
            }
        });
        Ok(Completion::of(values, "", self.limit).with_proof(resolved.proof))
    }
}

/// The revisions that a completion chooses from, except commits that it finds by their ids.
pub(super) struct KnownRevs {
    revs: Vec<String>,
    /// The most recent commits at [`LISTED_REV`].
    recent: Vec<gix::ObjectId>,
}

impl KnownRevs {
    fn read(repository: &TaskRepository<'_>) -> Result<Proven<Self>> {
        // Recorded before the refs are read, so that a change in between invalidates the proof.
        let head = RefEvidence::of(repository, LISTED_REV);
        let names = RefNamesEvidence::of(repository);
        let known = Self { revs: revs(repository)?, recent: recent_commits(repository)? };
        let proof = head.prove().zip(names.prove()).map(|(head, names)| head.and(names));
        // `git fetch --deepen` adds commits to a shallow clone without a change of the refs, so there is no proof.
        let is_shallow = repository.is_shallow()?;
        Ok(Proven { value: Arc::new(known), proof: proof.filter(|_| !is_shallow) })
    }

    /// Whether the names are few enough to stay in memory.
    fn is_small(&self) -> bool {
        self.revs.iter().map(|rev| rev.len() + size_of::<String>()).sum::<usize>() <= MAX_KNOWN_REV_BYTES
    }
}

fn recent_commits(repository: &TaskRepository<'_>) -> Result<Vec<gix::ObjectId>> {
    let mut recent = Vec::new();
    if let Some(head) = rev::resolve(repository, LISTED_REV)? {
        let mut log = CommitLog::new(repository, head.commit, None)?;
        while recent.len() < RECENT_COMMITS
            && let Some(id) = log.step()?
        {
            recent.push(id);
        }
    }
    Ok(recent)
}

/// `HEAD`, branches, tags and remote branches, by their short names; by their full names if a short name is ambiguous.
fn revs(repository: &TaskRepository<'_>) -> Result<Vec<String>> {
    let (all, _held) = refs::all(repository)?;
    let all = all.refs;
    let mut revs = Vec::new();
    if rev::resolve(repository, LISTED_REV)?.is_some() {
        revs.push(LISTED_REV.to_owned());
    }
    for kind in ["refs/heads/", "refs/tags/", "refs/remotes/"] {
        for (name, _) in all.iter().filter(|(name, _)| name.starts_with(kind)) {
            let short = without_namespace(name);
            // If several refs share a short name, git resolves it to one of them; the others need their full names.
            let is_there = |full: &String| all.binary_search_by(|(other, _)| other.cmp(full)).is_ok();
            let first = rev::candidates(short).into_iter().find(is_there);
            revs.push(if first.as_deref() == Some(name) { short } else { name }.to_owned());
        }
    }
    Ok(revs)
}
