//! Reads the resource at a URI.

use std::time::Duration;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::{Content, Contents, Context, Error, Proof, Result, Uri};
use serde_json::Value;

use super::address::{GitTarget, GitUri, PageFormat};
use super::blame::{Blame, BlamePage, Renames};
use super::compare::TreeComparison;
use super::hint::Hint;
use super::history::CommitLog;
use super::pages::{
    Commit, CommitChanges, LogHeader, commit_json, commit_markdown, escaped, head_line, inline, log_json,
    log_markdown, refs_json, refs_markdown,
};
use super::patch::Patch;
use super::read::{BlamedContent, PathReader};
use super::refs::{self, Refs};
use super::renames::{self, FileDifference};
use super::repo::{Task, TaskRepository, TreeEntry, is_name};
use super::rev::{self, ResolvedRev};
use super::status::WorkState;
use super::walk::MAX_DEPTH;
use super::{GitInner, LISTED_REV};
use crate::media;
use crate::range_bounds::range_meta;

pub(super) const MARKDOWN: &str = "text/markdown";
pub(super) const DIFF: &str = "text/x-diff";
const JSON: &str = "application/json";
const BLAME: &str = "text/plain";

/// How long clients may cache an immutable response.
const IMMUTABLE_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The default and the maximum number of commits in a log.
const DEFAULT_COMMITS: usize = 50;
const MAX_COMMITS: usize = 1000;

/// The maximum number of changed files in a commit page.
const MAX_COMMIT_FILES: usize = 1000;

/// The largest patch in a commit page, in bytes.
const MAX_COMMIT_PATCH_BYTES: u64 = 32 * 1024;

/// The largest file whose lines are counted for a commit page, in bytes.
const MAX_COUNTED_FILE_BYTES: u64 = 512 * 1024;

/// The maximum total size of the files whose lines are counted for a commit page, in bytes.
const MAX_COUNTED_BYTES: u64 = 16 * 1024 * 1024;

/// The maximum number of files in a diff.
const MAX_DIFF_FILES: usize = 100_000;

pub(super) fn read(inner: &GitInner, repository: &TaskRepository<'_>) -> Result<Contents> {
    let Task { uri, context, .. } = &repository.task;
    let asked =
        inner.space.try_parse(uri).map_err(|mistake| Hint::new(inner, repository).mistake(&mistake))?;
    UriReader { inner, repository, uri, context, asked }.read()
}

struct UriReader<'a> {
    inner: &'a GitInner,
    repository: &'a TaskRepository<'a>,
    uri: &'a Uri,
    context: &'a Context,
    asked: GitUri<'a>,
}

/// What determines how long a response may be cached.
struct FreshnessBasis {
    /// Whether the response never changes, because its URI names full commit ids.
    fixed: bool,
    /// The proof that it is unchanged; `None` if Libris must not cache it.
    proof: Option<Proof>,
}

impl UriReader<'_> {
    fn read(&self) -> Result<Contents> {
        let (parts, basis) = match self.asked.target {
            GitTarget::Refs => {
                let refs = Refs::read(self.repository)?;
                let page = match self.asked.format()? {
                    PageFormat::Markdown => {
                        self.markdown(refs_markdown(&self.inner.space, &self.inner.name, &refs))
                    }
                    PageFormat::Json => self.json(&refs_json(&refs)),
                };
                return Ok(Contents::from(page).with_freshness(self.inner.freshness(None)));
            }
            GitTarget::Path { rev, path } => {
                let resolved = self.resolve(rev)?;
                let reader =
                    PathReader { inner: self.inner, repository: self.repository, uri: self.uri, rev, path };
                let parts = reader.read(resolved.commit, &self.asked, self.context);
                // A commit's tree never changes, so an error such as "not found" may be cached while the proof holds.
                (parts.map_err(|error| error.with_proof(resolved.proof.clone()))?, basis(resolved))
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
                (vec![content], FreshnessBasis { fixed: one.fixed && other.fixed, proof })
            }
            GitTarget::Blame { rev, path } => {
                let resolved = self.resolve(rev)?;
                (vec![self.blame(rev, path, resolved.commit)?], self.history(resolved)?)
            }
            GitTarget::Status => (vec![self.status()?], FreshnessBasis { fixed: false, proof: None }),
            GitTarget::Staged | GitTarget::Unstaged => {
                (vec![self.work_diff()?], FreshnessBasis { fixed: false, proof: None })
            }
        };
        let freshness = self.inner.freshness(basis.proof);
        let freshness = if basis.fixed { freshness.with_ttl(IMMUTABLE_TTL) } else { freshness };
        Ok(Contents { parts, freshness })
    }

    /// The freshness of a response that depends on history. In a shallow clone it is not cached, because `git fetch`
    /// may add older commits.
    fn history(&self, resolved: ResolvedRev) -> Result<FreshnessBasis> {
        match self.repository.is_shallow()? {
            true => Ok(FreshnessBasis { fixed: false, proof: None }),
            false => Ok(basis(resolved)),
        }
    }

    fn not_found(&self) -> Error {
        Error::NotFound(self.uri.clone())
    }

    fn resolve(&self, rev: &str) -> Result<ResolvedRev> {
        rev::resolve(self.repository, rev)?
            .ok_or_else(|| Hint::new(self.inner, self.repository).no_revision(rev, self.asked.target))
    }

    fn markdown(&self, page: String) -> Content {
        Content::text(self.uri.clone(), MARKDOWN, page)
    }

    fn json(&self, page: &Value) -> Content {
        Content::text(self.uri.clone(), JSON, format!("{page:#}\n"))
    }

    /// The decoded `path` parameter; `None` without one. Fails as "not found" if the filter or the caller's rights
    /// hide the path. The path counts as a directory if it ends with `/`, or is a directory in one of these trees.
    fn path(&self, trees: &[ObjectId]) -> Result<Option<String>> {
        let Some(path) = self.asked.parameter("path")? else { return Ok(None) };
        let names: Vec<&[u8]> = names(&path);
        if !names.iter().all(|name| is_name(name)) || names.len() > MAX_DEPTH {
            return Err(Error::invalid("`path` is a path within the repository, such as `src/main.rs`"));
        }
        let mut directory = path.ends_with('/');
        for tree in trees {
            directory |=
                self.repository.entry_at(*tree, &names)?.is_some_and(|entry| entry.kind == EntryKind::Tree);
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
            None => DEFAULT_COMMITS,
            Some(limit) => {
                limit.parse().ok().filter(|limit| (1..=MAX_COMMITS).contains(limit)).ok_or_else(|| {
                    Error::invalid(format!("`limit` must be a number of commits from 1 to {MAX_COMMITS}"))
                })?
            }
        };
        let (path, format) = (self.path(&[self.repository.node(from)?.tree])?, self.asked.format()?);
        let names = path.as_deref().map(names);
        let mut log = CommitLog::new(self.repository, from, names.as_deref())?;
        let (mut commits, mut size, mut more, mut shallow) = (Vec::new(), 0, false, false);
        let mut held = self.repository.hold(0)?;
        while let Some(id) = log.step()? {
            if commits.len() == limit || size > self.inner.config.max_size {
                more = true;
                break;
            }
            shallow |= self.repository.is_boundary(id)?;
            let commit = Commit::read(self.repository, id)?;
            size += commit.size() as u64;
            held.grow(commit.size() as u64)?;
            commits.push(commit);
        }
        let rev = rev::decode(rev)?;
        let title = LogHeader { rev: &rev, path: path.as_deref(), more, most: MAX_COMMITS, shallow };
        Ok(match format {
            PageFormat::Markdown => self.markdown(log_markdown(&self.inner.space, &title, &commits)),
            PageFormat::Json => self.json(&log_json(&title, &commits)),
        })
    }

    fn commit(&self, id: ObjectId) -> Result<Content> {
        let format = self.asked.format()?;
        let commit = Commit::read(self.repository, id)?;
        let _held = self.repository.hold(commit.size() as u64)?;
        let before = commit.parents.first().map(|parent| self.repository.node(*parent)).transpose()?;
        let changed = self.compare(before.map(|node| node.tree), commit.tree, &[], MAX_COMMIT_FILES)?;
        let changes = changed.map(|changed| self.changes(changed)).transpose()?;
        let _patch = self.repository.hold(changes.as_ref().map_or(0, |changes| changes.patch_size()))?;
        Ok(match format {
            PageFormat::Markdown => {
                self.markdown(commit_markdown(&self.inner.space, &commit, changes.as_ref()))
            }
            PageFormat::Json => self.json(&commit_json(&commit, changes.as_ref())),
        })
    }

    /// The changes of a commit, with their line counts, and the patch if it is small.
    fn changes(&self, differences: Vec<FileDifference>) -> Result<CommitChanges> {
        let mut patch = Patch::new(self.repository, MAX_COMMIT_PATCH_BYTES, MAX_COUNTED_FILE_BYTES)?;
        let mut left = MAX_COUNTED_BYTES;
        let mut files = Vec::with_capacity(differences.len());
        let mut whole = true;
        for difference in differences {
            let size = |entry: Option<TreeEntry>| match entry {
                Some(entry) if entry.kind != EntryKind::Commit => self.repository.size(entry.id),
                _ => Ok(None),
            };
            let size = size(difference.old)?.unwrap_or_default() + size(difference.new)?.unwrap_or_default();
            let counts = match left.checked_sub(size) {
                Some(rest) => {
                    left = rest;
                    Some(patch.add(&difference)?)
                }
                None => None,
            };
            whole &= counts.is_some();
            files.push((difference, counts));
        }
        let patch =
            (whole && !patch.is_full()).then(|| String::from_utf8_lossy(&patch.into_bytes()).into_owned());
        Ok(CommitChanges { files, patch })
    }

    fn diff(&self, base: ObjectId, head: ObjectId) -> Result<Content> {
        let (old, new) = (self.repository.node(base)?.tree, self.repository.node(head)?.tree);
        let path = self.path(&[new, old])?;
        let within = path.as_deref().map(names).unwrap_or_default();
        let limit = self.inner.config.max_size;
        let differences = self
            .compare(Some(old), new, &within, MAX_DIFF_FILES)?
            .ok_or_else(|| self.too_large(limit + 1))?;
        let mut patch = Patch::new(self.repository, limit, limit)?;
        for difference in &differences {
            patch.add(difference)?;
            if patch.is_full() {
                break;
            }
        }
        self.patch(patch)
    }

    /// The content of a patch, unless it is too large.
    fn patch(&self, patch: Patch<'_>) -> Result<Content> {
        let (is_full, data) = (patch.is_full(), patch.into_bytes());
        if is_full {
            return Err(self.too_large(data.len() as u64));
        }
        let body = media::body(data, DIFF);
        Ok(Content { uri: self.uri.clone(), mime: Some(DIFF.into()), body, meta: None })
    }

    /// The error for a diff that is too large.
    fn too_large(&self, size: u64) -> Error {
        Error::TooLarge {
            uri: self.uri.clone(),
            size,
            limit: self.inner.config.max_size,
            hint: Some("ask for one file or folder with `?path=`".into()),
        }
    }

    /// The commit that `HEAD` points to, and its tree; `None` before the first commit.
    fn head(&self) -> Result<Option<(ObjectId, ObjectId)>> {
        let Some(resolved) = rev::resolve(self.repository, LISTED_REV)? else { return Ok(None) };
        Ok(Some((resolved.commit, self.repository.node(resolved.commit)?.tree)))
    }

    fn status(&self) -> Result<Content> {
        let format = self.asked.format()?;
        let visible = |path: &[u8], directory: bool| self.is_visible(path, directory);
        let state = WorkState::open(self.inner, self.repository, &visible)?;
        let head = self.head()?;
        let branch = refs::head(self.repository)?.map(|name| refs::without_namespace(&name).to_owned());
        let status = state.status(head.map(|(_, tree)| tree))?;
        Ok(match format {
            PageFormat::Markdown => {
                let at = head_line(branch.as_deref(), head.map(|(commit, _)| commit));
                self.markdown(status.markdown(&self.inner.space, &inline(&self.inner.name), &at))
            }
            PageFormat::Json => self.json(&status.json(branch.as_deref(), head.map(|(commit, _)| commit))),
        })
    }

    fn work_diff(&self) -> Result<Content> {
        let visible = |path: &[u8], directory: bool| self.is_visible(path, directory);
        let mut state = WorkState::open(self.inner, self.repository, &visible)?;
        let head = self.head()?.map(|(_, tree)| tree);
        let path = self.path(head.as_slice())?;
        let within = path.as_deref().map(names).unwrap_or_default();
        let limit = self.inner.config.max_size;
        let mut patch = Patch::new(self.repository, limit, limit)?;
        match self.asked.target {
            GitTarget::Staged => state.staged_patch(&mut patch, head, &within)?,
            _ => state.unstaged_patch(&mut patch, &within, limit)?,
        }
        self.patch(patch)
    }

    fn blame(&self, rev: &str, path: &str, commit: ObjectId) -> Result<Content> {
        let format = self.asked.format()?;
        let tree = self.repository.node(commit)?.tree;
        let reader = PathReader { inner: self.inner, repository: self.repository, uri: self.uri, rev, path };
        let found = reader.find(tree)?;
        let found = found.ok_or_else(|| Hint::new(self.inner, self.repository).no_path(rev, path, tree))?;
        // A caller without the right to read the file must not see its lines either.
        if !self.is_visible(&found.path, found.entry.kind == EntryKind::Tree) {
            return Err(self.not_found());
        }
        let (data, _held) = match reader.blamed(&found)? {
            BlamedContent::Text(data, held) => (data, held),
            BlamedContent::NoLines(_) if self.asked.parameter("lines")?.is_some() => {
                return Err(Error::invalid(format!(
                    "`{}` has no lines: read it without `lines`",
                    self.uri.without_query()
                )));
            }
            BlamedContent::NoLines(why) => return self.last_change(&found.path, commit, why, format),
        };
        let mut lines: Vec<&[u8]> = data.split_inclusive(|byte| *byte == b'\n').collect();
        let range = self.asked.lines(lines.len())?;
        let end: usize = lines[..range.end].iter().map(|line| line.len()).sum();
        let total = lines.len() as u64;
        let meta = self
            .asked
            .range()?
            .map(|asked| range_meta(self.uri, asked, end as u64, data.len() as u64, Some(total)));
        // The earlier name of a file may be hidden from a caller with restricted rights.
        let renames = if self.context.sees_everything() { Renames::Follow } else { Renames::Ignore };
        let blame = Blame { repository: self.repository, filter: &self.inner.filter, renames };
        let blamed =
            blame.lines(commit, found.path.clone(), found.entry.id, range.start as u32..range.end as u32)?;
        lines = lines[range].to_vec();
        let page = BlamePage::new(self.repository, &blamed)?;
        match format {
            PageFormat::Json => Ok(self.json(&page.json())),
            PageFormat::Markdown => {
                let text = page.text(&self.inner.space, &found.path, &lines);
                let (size, limit) = (text.len() as u64, self.inner.config.max_size);
                if size > limit {
                    let hint = Some("read a part with `?lines=1-500`".into());
                    return Err(Error::TooLarge { uri: self.uri.clone(), size, limit, hint });
                }
                Ok(Content { meta, ..Content::text(self.uri.clone(), BLAME, text) })
            }
        }
    }

    /// The blame of a folder, or of a file without lines: the last commit that changed it.
    fn last_change(&self, path: &[u8], from: ObjectId, why: &str, format: PageFormat) -> Result<Content> {
        let names: Vec<_> = path.split(|byte| *byte == b'/').collect();
        let last = CommitLog::new(self.repository, from, Some(&names))?.step()?;
        let page = BlamePage::of_commits(self.repository, last)?;
        Ok(match format {
            PageFormat::Json => self.json(&page.json()),
            PageFormat::Markdown => {
                let text = format!("No lines: this is {why}.\n{}", page.text(&self.inner.space, path, &[]));
                Content::text(self.uri.clone(), BLAME, text)
            }
        })
    }

    /// The differing files, with renames; `None` if there are too many.
    fn compare(
        &self,
        old: Option<ObjectId>,
        new: ObjectId,
        within: &[&[u8]],
        limit: usize,
    ) -> Result<Option<Vec<FileDifference>>> {
        let compare =
            TreeComparison { repository: self.repository, filter: &self.inner.filter, within, limit };
        let Some(mut differences) = compare.trees(old, Some(new))? else { return Ok(None) };
        differences
            .retain(|difference| !difference.is_directory() && self.is_visible(&difference.path, false));
        renames::detect(self.repository, differences).map(Some)
    }

    /// Whether the caller may read a decoded path at every revision that the URI names. For the status and the diffs
    /// of the working tree, the revision is `HEAD`.
    fn is_visible(&self, path: &[u8], directory: bool) -> bool {
        if self.context.sees_everything() {
            return true;
        }
        let revs: &[&str] = match &self.asked.target {
            GitTarget::Refs => &[],
            GitTarget::Path { rev, .. }
            | GitTarget::Log { rev }
            | GitTarget::Commit { rev }
            | GitTarget::Blame { rev, .. } => &[rev],
            GitTarget::Status | GitTarget::Staged | GitTarget::Unstaged => &[LISTED_REV],
            GitTarget::Diff { base, head } => &[base, head],
        };
        let path = escaped(path) + if directory { "/" } else { "" };
        revs.iter()
            .all(|rev| self.inner.space.path_uri(rev, &path).is_some_and(|uri| self.context.reads(&uri)))
    }
}

fn basis(resolved: ResolvedRev) -> FreshnessBasis {
    FreshnessBasis { fixed: resolved.fixed, proof: resolved.proof }
}

/// The segments of a decoded path.
fn names(path: &str) -> Vec<&[u8]> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() { Vec::new() } else { path.split('/').map(str::as_bytes).collect() }
}
