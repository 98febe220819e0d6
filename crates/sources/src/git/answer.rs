//! Reads the resource at a URI.

use std::time::Duration;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::{Content, Contents, Context, Error, Proof, Result, Uri};
use serde_json::Value;

use super::Inner;
use super::address::{GitTarget, GitUri, PageFormat};
use super::compare::{Difference, TreeComparison};
use super::history::Log;
use super::pages::{
    Commit, Title, commit_json, commit_markdown, escaped, log_json, log_markdown, refs_json, refs_markdown,
};
use super::patch::Patch;
use super::read::PathReader;
use super::refs::Refs;
use super::repo::{Objects, Task, is_name};
use super::rev::{self, ResolvedRev};
use super::walk::DEPTH;
use crate::media;

pub(super) const MARKDOWN: &str = "text/markdown";
pub(super) const DIFF: &str = "text/x-diff";
const JSON: &str = "application/json";

/// How long clients may cache an immutable response.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The default and the maximum number of commits in a log.
const COMMITS: usize = 50;
const MOST_COMMITS: usize = 1000;

/// The most changed files in a commit page.
const FILES: usize = 1000;

/// The most files in a diff.
const COMPARED: usize = 100_000;

pub(super) fn read(inner: &Inner, objects: &Objects<'_>) -> Result<Contents> {
    let Task { uri, context, .. } = &objects.task;
    let asked = inner.space.parse(uri).ok_or_else(|| Error::NotFound(uri.clone()))?;
    UriReader { inner, objects, uri, context, asked }.read()
}

struct UriReader<'a> {
    inner: &'a Inner,
    objects: &'a Objects<'a>,
    uri: &'a Uri,
    context: &'a Context,
    asked: GitUri<'a>,
}

/// The grounds of a response's freshness.
struct Basis {
    fixed: bool,
    proof: Option<Proof>,
}

impl UriReader<'_> {
    fn read(&self) -> Result<Contents> {
        let (parts, basis) = match self.asked.what {
            GitTarget::Refs => {
                let refs = Refs::read(self.objects)?;
                let page = match self.asked.format()? {
                    PageFormat::Markdown => {
                        self.markdown(refs_markdown(&self.inner.space, &self.inner.name, &refs))
                    }
                    PageFormat::Json => self.json(&refs_json(&refs)),
                };
                return Ok(Contents::from(page).with_freshness(self.inner.freshness(None)));
            }
            GitTarget::Place { rev, path } => {
                let resolved = self.resolve(rev)?;
                let tree = self.objects.node(resolved.commit)?.tree;
                let reader =
                    PathReader { inner: self.inner, objects: self.objects, uri: self.uri, rev, path };
                (reader.read(tree, &self.asked, self.context)?, basis(resolved))
            }
            GitTarget::Log { rev } => {
                let resolved = self.resolve(rev)?;
                (vec![self.log(rev, resolved.commit)?], self.history(resolved)?)
            }
            GitTarget::Commit { rev } => {
                let resolved = self.resolve(rev)?;
                (vec![self.commit(resolved.commit)?], self.history(resolved)?)
            }
            GitTarget::Diff { base: one, head: other } => {
                let (one, other) = (self.resolve(one)?, self.resolve(other)?);
                let content = self.diff(one.commit, other.commit)?;
                let (one, other) = (basis(one), basis(other));
                let proof = one.proof.zip(other.proof).map(|(one, other)| one.and(other));
                (vec![content], Basis { fixed: one.fixed && other.fixed, proof })
            }
        };
        let freshness = self.inner.freshness(basis.proof);
        let freshness = if basis.fixed { freshness.with_ttl(YEAR) } else { freshness };
        Ok(Contents { parts, freshness })
    }

    /// The freshness of a response about history: a shallow clone may be deepened.
    fn history(&self, resolved: ResolvedRev) -> Result<Basis> {
        match self.objects.is_shallow()? {
            true => Ok(Basis { fixed: false, proof: None }),
            false => Ok(basis(resolved)),
        }
    }

    fn not_found(&self) -> Error {
        Error::NotFound(self.uri.clone())
    }

    fn resolve(&self, rev: &str) -> Result<ResolvedRev> {
        rev::resolve(self.objects, rev)?.ok_or_else(|| self.not_found())
    }

    fn markdown(&self, page: String) -> Content {
        Content::text(self.uri.clone(), MARKDOWN, page)
    }

    fn json(&self, page: &Value) -> Content {
        Content::text(self.uri.clone(), JSON, format!("{page:#}\n"))
    }

    /// The decoded `path` parameter. It names a directory if it does in one of these trees.
    fn path(&self, trees: &[ObjectId]) -> Result<Option<String>> {
        let Some(path) = self.asked.parameter("path")? else { return Ok(None) };
        let names: Vec<&[u8]> = names(&path);
        if !names.iter().all(|name| is_name(name)) || names.len() > DEPTH {
            return Err(Error::invalid("`path` is a path within the repository, such as `src/main.rs`"));
        }
        let mut directory = path.ends_with('/');
        for tree in trees {
            directory |= self.objects.at(*tree, &names)?.is_some_and(|entry| entry.kind == EntryKind::Tree);
        }
        // A hidden path must look missing: not even an empty history may show that it exists.
        let shows = |directory| self.inner.filter.shows_all(&names, directory);
        if !shows(true) || !(directory || shows(false)) {
            return Err(self.not_found());
        }
        if !names.is_empty() && !self.is_visible(path.trim_end_matches('/').as_bytes(), directory) {
            return Err(self.not_found());
        }
        Ok(Some(path))
    }

    fn log(&self, rev: &str, from: ObjectId) -> Result<Content> {
        let limit = match self.asked.parameter("limit")? {
            None => COMMITS,
            Some(limit) => {
                limit.parse().ok().filter(|limit| (1..=MOST_COMMITS).contains(limit)).ok_or_else(|| {
                    Error::invalid(format!("`limit` is a number of commits, from 1 to {MOST_COMMITS}"))
                })?
            }
        };
        let (path, format) = (self.path(&[self.objects.node(from)?.tree])?, self.asked.format()?);
        let names = path.as_deref().map(names);
        let mut log = Log::new(self.objects, from, names.as_deref())?;
        let (mut commits, mut size, mut more, mut shallow) = (Vec::new(), 0, false, false);
        let mut held = self.objects.hold(0)?;
        while let Some(id) = log.step()? {
            if commits.len() == limit || size > self.inner.config.max_size {
                more = true;
                break;
            }
            shallow |= self.objects.is_boundary(id)?;
            let commit = Commit::read(self.objects, id)?;
            size += commit.size() as u64;
            held.grow(commit.size() as u64)?;
            commits.push(commit);
        }
        let rev = rev::decode(rev)?;
        let title = Title { rev: &rev, path: path.as_deref(), more, most: MOST_COMMITS, shallow };
        Ok(match format {
            PageFormat::Markdown => self.markdown(log_markdown(&self.inner.space, &title, &commits)),
            PageFormat::Json => self.json(&log_json(&title, &commits)),
        })
    }

    fn commit(&self, id: ObjectId) -> Result<Content> {
        let format = self.asked.format()?;
        let commit = Commit::read(self.objects, id)?;
        let _held = self.objects.hold(commit.size() as u64)?;
        let before = commit.parents.first().map(|parent| self.objects.node(*parent)).transpose()?;
        let changed = self.compare(before.map(|node| node.tree), commit.tree, &[], FILES)?;
        let changed = changed.as_deref();
        Ok(match format {
            PageFormat::Markdown => self.markdown(commit_markdown(&self.inner.space, &commit, changed)),
            PageFormat::Json => self.json(&commit_json(&commit, changed)),
        })
    }

    fn diff(&self, base: ObjectId, head: ObjectId) -> Result<Content> {
        let (old, new) = (self.objects.node(base)?.tree, self.objects.node(head)?.tree);
        let path = self.path(&[new, old])?;
        let within = path.as_deref().map(names).unwrap_or_default();
        let limit = self.inner.config.max_size;
        let too_large = |size| Error::TooLarge {
            uri: self.uri.clone(),
            size,
            limit,
            hint: Some("ask for one file or folder with `?path=`".into()),
        };
        let differences =
            self.compare(Some(old), new, &within, COMPARED)?.ok_or_else(|| too_large(limit + 1))?;
        let mut patch = Patch::new(self.objects, limit)?;
        for difference in &differences {
            patch.add(difference)?;
            if patch.is_full() {
                return Err(too_large(patch.into_bytes().len() as u64));
            }
        }
        let body = media::body(patch.into_bytes(), DIFF);
        Ok(Content { uri: self.uri.clone(), mime: Some(DIFF.into()), body, meta: None })
    }

    /// The differing files; `None` if there are too many.
    fn compare(
        &self,
        old: Option<ObjectId>,
        new: ObjectId,
        within: &[&[u8]],
        limit: usize,
    ) -> Result<Option<Vec<Difference>>> {
        let compare = TreeComparison { objects: self.objects, filter: &self.inner.filter, within, limit };
        let mut differences = compare.trees(old, Some(new))?;
        if let Some(differences) = &mut differences {
            differences
                .retain(|difference| !difference.is_directory() && self.is_visible(&difference.path, false));
        }
        Ok(differences)
    }

    /// Whether the caller may see a decoded path at all revisions in the URI.
    fn is_visible(&self, path: &[u8], directory: bool) -> bool {
        if self.context.sees_everything() {
            return true;
        }
        let revs: &[&str] = match &self.asked.what {
            GitTarget::Refs => &[],
            GitTarget::Place { rev, .. } | GitTarget::Log { rev } | GitTarget::Commit { rev } => &[rev],
            GitTarget::Diff { base, head } => &[base, head],
        };
        let path = escaped(path) + if directory { "/" } else { "" };
        revs.iter().all(|rev| self.inner.space.place(rev, &path).is_some_and(|uri| self.context.sees(&uri)))
    }
}

fn basis(resolved: ResolvedRev) -> Basis {
    Basis { fixed: resolved.fixed, proof: resolved.proof }
}

/// The segments of a decoded path.
fn names(path: &str) -> Vec<&[u8]> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() { Vec::new() } else { path.split('/').map(str::as_bytes).collect() }
}
