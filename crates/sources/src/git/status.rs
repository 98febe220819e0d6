//! The state of the working tree: what is staged, what is not, and what is untracked, as `git status` shows it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;

use cap_std::fs::Dir;
use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::{Error, Result};
use serde_json::{Value, json};

use super::GitInner;
use super::address::UriSpace;
use super::compare::{TreeComparison, TreeDifference};
use super::index::{GitIndex, IndexEntry};
use super::limits::HeldMemory;
use super::pages::fenced;
use super::patch::{Patch, quoted};
use super::regular;
use super::renames::{self, FileDifference};
use super::repo::{TaskRepository, TreeEntry};
use super::walk::MAX_DEPTH;
use super::worktree::{self, WorkChange, WorkTree};
use crate::ignore_patterns::{IgnorePatterns, PatternVerdict};

/// The maximum number of files of a commit that are compared with the index.
const MAX_FILES: usize = 1_000_000;

/// The maximum number of entries of a status page.
const MAX_ENTRIES: usize = 1000;

/// The maximum number of ignore patterns that apply to a directory, as in the files source.
const MAX_PATTERNS_ON_PATH: usize = 16_384;

/// The largest `info/exclude` file, in bytes.
const MAX_EXCLUDE_BYTES: u64 = 256 * 1024;

/// Which files the caller may see; the second argument is whether the path is that of a directory.
pub(super) type Visible<'a> = &'a dyn Fn(&[u8], bool) -> bool;

/// The working tree and the index of a repository.
pub(super) struct WorkState<'a> {
    inner: &'a GitInner,
    repository: &'a TaskRepository<'a>,
    visible: Visible<'a>,
    index: GitIndex,
    tree: WorkTree<'a>,
    _held: HeldMemory<'a>,
}

/// A line of the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatusEntry {
    path: Vec<u8>,
    /// The old path of a renamed file.
    from: Option<Vec<u8>>,
    /// The two letters of `git status --short`: the state in the index, and the state in the working tree.
    staged: char,
    unstaged: char,
}

/// A page of the status.
pub(super) struct StatusPage {
    entries: Vec<StatusEntry>,
    /// Whether entries are left out.
    more: bool,
}

impl<'a> WorkState<'a> {
    /// Reads the index and opens the working tree.
    pub(super) fn open(
        inner: &'a GitInner,
        repository: &'a TaskRepository<'a>,
        visible: Visible<'a>,
    ) -> Result<Self> {
        let root =
            inner.repo.work_tree(repository)?.map_err(|why| Error::missing(&repository.task.uri, why))?;
        let tree = WorkTree::new(repository, root);
        let (index, held) = GitIndex::read(repository)?;
        Ok(Self { inner, repository, visible, index, tree, _held: held })
    }

    fn shows(&self, path: &[u8], directory: bool) -> bool {
        let names: Vec<_> = path.split(|byte| *byte == b'/').collect();
        self.inner.filter.shows_all(&names, directory) && (self.visible)(path, directory)
    }

    /// The differences between a commit and the index, with renames, but without files that have conflicts. `within`
    /// restricts them to a path.
    pub(super) fn staged(&self, head: Option<ObjectId>, within: &[&[u8]]) -> Result<Vec<FileDifference>> {
        let compare = TreeComparison {
            repository: self.repository,
            filter: &self.inner.filter,
            within,
            limit: MAX_FILES,
        };
        let committed = compare.trees(None, head)?.ok_or_else(|| {
            Error::Unavailable(format!("`HEAD` has more than {MAX_FILES} files, so there is no status; hint: read `diff/staged` with `path`"))
        })?;
        let mut committed = committed.into_iter().filter(|one| !one.is_directory()).peekable();
        let mut staged = self
            .index
            .entries
            .iter()
            .filter(|entry| !entry.intent_to_add && is_within(&entry.path, within))
            .peekable();
        let mut differences = Vec::new();
        loop {
            self.repository.deadline().check()?;
            let path = match (committed.peek(), staged.peek()) {
                (None, None) => break,
                (Some(one), None) => one.path.clone(),
                (None, Some(other)) => other.path.clone(),
                (Some(one), Some(other)) => one.path.clone().min(other.path.clone()),
            };
            let old = committed.next_if(|one| one.path == path).and_then(|one| one.new);
            let new = staged.next_if(|entry| entry.path == path);
            // Skip the other versions of a file with a conflict.
            while staged.next_if(|entry| entry.path == path).is_some() {}
            if new.is_some_and(|new| new.stage > 0) {
                continue;
            }
            let new = new.map(|new| new.entry);
            if old != new && self.shows(&path, false) {
                differences.push(TreeDifference { path, old, new });
            }
        }
        renames::detect(self.repository, differences)
    }

    /// The differences between the index and the working tree, with their memory reservation.
    fn unstaged(&mut self, within: &[&[u8]]) -> Result<(Vec<(IndexEntry, WorkChange)>, HeldMemory<'a>)> {
        let (mut changes, mut held) = (Vec::new(), self.repository.hold(0)?);
        for at in 0..self.index.entries.len() {
            let entry = &self.index.entries[at];
            if entry.stage > 0 || !is_within(&entry.path, within) || !self.shows(&entry.path, false) {
                continue;
            }
            if let Some(change) = self.tree.change(&self.index, entry)? {
                // A status page will hold two more copies of the path.
                held.grow((size_of::<(IndexEntry, StatusEntry)>() + 3 * entry.path.len()) as u64)?;
                changes.push((entry.clone(), change));
            }
        }
        Ok((changes, held))
    }

    /// The files with conflicts, each with the set of its stages: bit 0 for the base, 1 for "ours", 2 for "theirs".
    fn conflicts(&self, within: &[&[u8]]) -> Vec<(Vec<u8>, u8)> {
        let mut conflicts: Vec<(Vec<u8>, u8)> = Vec::new();
        for entry in self.index.entries.iter().filter(|entry| entry.stage > 0) {
            if !is_within(&entry.path, within) || !self.shows(&entry.path, false) {
                continue;
            }
            let bit = 1 << (entry.stage - 1);
            match conflicts.last_mut() {
                Some((path, stages)) if *path == entry.path => *stages |= bit,
                _ => conflicts.push((entry.path.clone(), bit)),
            }
        }
        conflicts
    }

    /// The status: tracked files by path, then untracked ones.
    pub(super) fn status(mut self, head: Option<ObjectId>) -> Result<StatusPage> {
        let mut tracked: BTreeMap<Vec<u8>, StatusEntry> = BTreeMap::new();
        for difference in self.staged(head, &[])? {
            let entry = StatusEntry {
                staged: letter(&difference),
                unstaged: ' ',
                from: difference.renamed.map(|renamed| renamed.from),
                path: difference.path.clone(),
            };
            tracked.insert(difference.path, entry);
        }
        let (unstaged, _held) = self.unstaged(&[])?;
        for (entry, change) in unstaged {
            let unstaged = match change {
                _ if entry.intent_to_add => 'A',
                WorkChange::Deleted => 'D',
                WorkChange::Modified(kind) => {
                    let (old, new) = (Some(entry.entry), Some(TreeEntry { kind, ..entry.entry }));
                    letter(&FileDifference { path: Vec::new(), old, new, renamed: None })
                }
            };
            let path = entry.path.clone();
            let unchanged = StatusEntry { path: entry.path, from: None, staged: ' ', unstaged };
            tracked.entry(path).or_insert(unchanged).unstaged = unstaged;
        }
        for (path, stages) in self.conflicts(&[]) {
            let (staged, unstaged) = match stages {
                0b001 => ('D', 'D'),
                0b010 => ('A', 'U'),
                0b011 => ('U', 'D'),
                0b100 => ('U', 'A'),
                0b101 => ('D', 'U'),
                0b110 => ('A', 'A'),
                _ => ('U', 'U'),
            };
            tracked.insert(path.clone(), StatusEntry { path, from: None, staged, unstaged });
        }
        let mut entries: Vec<StatusEntry> = tracked.into_values().collect();
        let left = (MAX_ENTRIES + 1).saturating_sub(entries.len());
        for path in self.untracked(left)? {
            entries.push(StatusEntry { path, from: None, staged: '?', unstaged: '?' });
        }
        let more = entries.len() > MAX_ENTRIES;
        entries.truncate(MAX_ENTRIES);
        Ok(StatusPage { entries, more })
    }

    fn untracked(&self, limit: usize) -> Result<Vec<Vec<u8>>> {
        let exclude = regular::read(&self.repository.common_dir().join("info/exclude"), MAX_EXCLUDE_BYTES)
            .map_err(|cause| cause.into_error("info/exclude"))?;
        let exclude = exclude.map(|file| worktree::ignore_patterns(file.data)).transpose();
        let exclude = exclude.map_err(worktree::failed)?;
        let mut walk = UntrackedWalk {
            state: self,
            rules: exclude.into_iter().map(|patterns| (0, patterns)).collect(),
            found: Vec::new(),
            limit,
        };
        walk.directory(&self.tree.root(), b"", 0)?;
        walk.found.sort();
        Ok(walk.found)
    }

    /// Writes the differences between the index and the working tree.
    pub(super) fn unstaged_patch(
        &mut self,
        patch: &mut Patch<'_>,
        within: &[&[u8]],
        limit: u64,
    ) -> Result<()> {
        let mut conflicts = self.conflicts(within).into_iter().map(|(path, _)| path).peekable();
        let (unstaged, _held) = self.unstaged(within)?;
        for (entry, change) in unstaged {
            while let Some(path) = conflicts.next_if(|path| *path < entry.path) {
                patch.add_unmerged(&path);
            }
            let old = (!entry.intent_to_add).then_some(entry.entry);
            let mut difference = FileDifference { path: entry.path.clone(), old, new: None, renamed: None };
            match change {
                WorkChange::Deleted if entry.intent_to_add => continue,
                WorkChange::Deleted => patch.add(&difference)?,
                WorkChange::Modified(kind) => {
                    let Some((new, content)) = self.tree.content(&entry, kind, limit)? else { continue };
                    difference.new = Some(new);
                    if difference.old == difference.new {
                        continue;
                    }
                    patch.add_with(&difference, content)?
                }
            };
            if patch.is_full() {
                return Ok(());
            }
        }
        conflicts.for_each(|path| patch.add_unmerged(&path));
        Ok(())
    }

    /// Writes the differences between a commit and the index.
    pub(super) fn staged_patch(
        &self,
        patch: &mut Patch<'_>,
        head: Option<ObjectId>,
        within: &[&[u8]],
    ) -> Result<()> {
        let mut conflicts = self.conflicts(within).into_iter().map(|(path, _)| path).peekable();
        for difference in self.staged(head, within)? {
            while let Some(path) = conflicts.next_if(|path| *path < difference.path) {
                patch.add_unmerged(&path);
            }
            patch.add(&difference)?;
            if patch.is_full() {
                return Ok(());
            }
        }
        conflicts.for_each(|path| patch.add_unmerged(&path));
        Ok(())
    }
}

fn letter(difference: &FileDifference) -> char {
    difference.letter().chars().next().unwrap_or('M')
}

fn is_within(path: &[u8], within: &[&[u8]]) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    within.iter().all(|wanted| names.next() == Some(*wanted))
}

/// The name and kind of an entry of a directory.
type WorkTreeEntry = (Vec<u8>, EntryKind);

/// A walk over the files that are neither tracked nor ignored.
struct UntrackedWalk<'w> {
    state: &'w WorkState<'w>,
    /// The ignore rules of `info/exclude` and of the directories from the root to the current one. Each is preceded by
    /// the length of the path prefix to remove before its patterns are matched.
    rules: Vec<(usize, IgnorePatterns)>,
    found: Vec<Vec<u8>>,
    limit: usize,
}

impl<'w> UntrackedWalk<'w> {
    /// Collects the untracked entries of a directory that has tracked files, or is the root.
    fn directory(&mut self, dir: &Dir, path: &[u8], depth: usize) -> Result<()> {
        let rules = self.rules.len();
        if !self.enter(dir, path)? {
            return Ok(());
        }
        let (entries, _held) = self.entries(dir)?;
        for (name, kind) in entries {
            if self.found.len() >= self.limit {
                break;
            }
            let child = join(path, &name);
            match kind {
                EntryKind::Tree => {
                    let is_tracked = !self.state.index.entries_at(&child).is_empty();
                    if is_tracked || depth >= MAX_DEPTH || !self.is_candidate(&child, &name, true)? {
                        continue;
                    }
                    let Some(below) = self.open(dir, &name)? else { continue };
                    if self.state.index.has_below(&child) {
                        self.directory(&below, &child, depth + 1)?;
                    } else if self.has_untracked(&below, &child, depth + 1)? {
                        self.found.push([&*child, b"/"].concat());
                    }
                }
                _ => {
                    if self.state.index.entries_at(&child).is_empty()
                        && self.is_candidate(&child, &name, false)?
                    {
                        self.found.push(child);
                    }
                }
            }
        }
        self.rules.truncate(rules);
        Ok(())
    }

    /// Whether an untracked directory is another repository, or has a file that is not ignored.
    fn has_untracked(&mut self, dir: &Dir, path: &[u8], depth: usize) -> Result<bool> {
        if dir.symlink_metadata(".git").is_ok() {
            return Ok(true);
        }
        let rules = self.rules.len();
        let mut found = false;
        if self.enter(dir, path)? {
            let (entries, _held) = self.entries(dir)?;
            for (name, kind) in entries {
                let child = join(path, &name);
                let directory = kind == EntryKind::Tree;
                if !self.is_candidate(&child, &name, directory)? {
                    continue;
                }
                found = match directory {
                    false => true,
                    true if depth >= MAX_DEPTH => false,
                    true => match self.open(dir, &name)? {
                        Some(below) => self.has_untracked(&below, &child, depth + 1)?,
                        None => false,
                    },
                };
                if found {
                    break;
                }
            }
        }
        self.rules.truncate(rules);
        Ok(found)
    }

    /// Adds the ignore rules of a directory; false if there is no permission to read them, or if they are too large or
    /// too many. Then the directory must not be walked, because its ignored files would be shown.
    fn enter(&mut self, dir: &Dir, path: &[u8]) -> Result<bool> {
        let base = if path.is_empty() { 0 } else { path.len() + 1 };
        let patterns = match worktree::ignore_file(dir, ".gitignore") {
            Ok(patterns) => patterns,
            Err(cause) if matches!(cause.kind(), ErrorKind::PermissionDenied | ErrorKind::FileTooLarge) => {
                tracing::debug!(%cause, "an ignore file cannot be read, so its folder has no untracked files");
                return Ok(false);
            }
            // Any other failure, such as a lack of file descriptors, fails the request. Otherwise the folder
            // would look clean.
            Err(cause) => return Err(worktree::failed(cause)),
        };
        let Some(patterns) = patterns else { return Ok(true) };
        let on_path = self.rules.iter().map(|(_, rules)| rules.len()).sum::<usize>() + patterns.len();
        if on_path > MAX_PATTERNS_ON_PATH {
            tracing::debug!(on_path, "a folder has too many ignore patterns, so it has no untracked files");
            return Ok(false);
        }
        self.rules.push((base, patterns));
        Ok(true)
    }

    /// The files, symbolic links and directories in a directory, sorted by name, with their memory reservation.
    fn entries(&self, dir: &Dir) -> Result<(Vec<WorkTreeEntry>, HeldMemory<'w>)> {
        self.state.repository.deadline().check()?;
        let (mut entries, mut held) = (Vec::new(), self.state.repository.hold(0)?);
        for entry in dir.entries().map_err(worktree::failed)? {
            let entry = entry.map_err(worktree::failed)?;
            let kind = entry.file_type().map_err(worktree::failed)?;
            let kind = match kind {
                kind if kind.is_dir() => EntryKind::Tree,
                kind if kind.is_file() => EntryKind::Blob,
                kind if kind.is_symlink() => EntryKind::Link,
                _ => continue,
            };
            let Some(name) = worktree::os_bytes(&entry.file_name()) else { continue };
            if name != b".git" {
                held.grow((size_of::<WorkTreeEntry>() + name.len()) as u64)?;
                entries.push((name, kind));
            }
            if entries.len() % 1024 == 0 {
                self.state.repository.deadline().check()?;
            }
        }
        entries.sort();
        Ok((entries, held))
    }

    fn open(&self, dir: &Dir, name: &[u8]) -> Result<Option<Dir>> {
        let Some(name) = worktree::os_path(name) else { return Ok(None) };
        match worktree::open_directory(dir, Path::new(&name)) {
            // As in git, a directory without permission to read it has no untracked files.
            Err(cause) if cause.kind() == ErrorKind::PermissionDenied => Ok(None),
            opened => opened.map_err(worktree::failed),
        }
    }

    /// Whether an entry is visible and not ignored.
    fn is_candidate(&self, path: &[u8], name: &[u8], directory: bool) -> Result<bool> {
        // Matching thousands of patterns takes about a millisecond, and a directory may have a million entries.
        self.state.repository.deadline().check()?;
        let verdict = self
            .rules
            .iter()
            .rev()
            .find_map(|(base, patterns)| patterns.matched(&path[*base..], name, directory));
        Ok(verdict != Some(PatternVerdict::Ignored) && self.state.shows(path, directory))
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

impl StatusEntry {
    /// The line of `git status --short`.
    fn line(&self) -> String {
        let shown = |path: &[u8]| {
            let quoted = String::from_utf8_lossy(&quoted(b"", path)).into_owned();
            if quoted.contains(' ') && !quoted.starts_with('"') { format!("\"{quoted}\"") } else { quoted }
        };
        let from = self.from.as_ref().map(|from| format!("{} -> ", shown(from))).unwrap_or_default();
        format!("{}{} {from}{}", self.staged, self.unstaged, shown(&self.path))
    }
}

impl StatusPage {
    /// The status as Markdown; `head` says what `HEAD` is.
    pub(super) fn markdown(&self, space: &UriSpace, title: &str, head: &str) -> String {
        let mut out = format!("# Status of {title}\n\n{head}\n\n");
        if self.entries.is_empty() {
            out.push_str("Nothing is staged, modified or untracked.\n");
            return out;
        }
        let lines: Vec<_> = self.entries.iter().map(StatusEntry::line).collect();
        fenced(&mut out, "text", &lines.join("\n"));
        if self.more {
            let _ = writeln!(out, "\nThere are more than {MAX_ENTRIES} entries.");
        }
        let root = &space.root;
        let _ = write!(
            out,
            "\n- first column: staged, see [the diff](<{root}diff/staged>)\n\
             - second column: not staged, see [the diff](<{root}diff/worktree>)\n\
             - M modified, T another type, A added, D deleted, R renamed, U in conflict, ?? untracked\n",
        );
        out
    }

    pub(super) fn json(&self, branch: Option<&str>, commit: Option<ObjectId>) -> Value {
        let letter = |letter: char| (!matches!(letter, ' ' | '?')).then(|| letter.to_string());
        let entries = self.entries.iter().map(|entry| {
            json!({
                "path": String::from_utf8_lossy(&entry.path),
                "from": entry.from.as_ref().map(|from| String::from_utf8_lossy(from)),
                "staged": letter(entry.staged),
                "unstaged": letter(entry.unstaged),
                "untracked": entry.staged == '?',
            })
        });
        json!({
            "branch": branch,
            "commit": commit.map(|id| id.to_string()),
            "entries": entries.collect::<Vec<_>>(),
            "more": self.more,
        })
    }
}
