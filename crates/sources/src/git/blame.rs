//! Attributes the lines of a file to the commits that wrote them, as `git blame` does.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::ops::Range;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use imara_diff::InternedInput;
use libris_core::Result;
use serde_json::{Value, json};

use super::address::UriSpace;
use super::compare::TreeComparison;
use super::filter::VisibilityFilter;
use super::history::CommitQueue;
use super::line_diff;
use super::pages::{Commit, short};
use super::patch::MAX_COMPARED_BYTES;
use super::renames;
use super::repo::{CommitNode, TaskRepository};

/// If a commit and its parent differ in more files and directories than this, blame does not look for a rename.
const MAX_DIFFERENCES: usize = 10_000;

/// The memory per line during a comparison, in addition to its text, in bytes.
const LINE_OVERHEAD: u64 = 64;

/// Consecutive lines that a commit wrote. Lines count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlamedLines {
    pub(super) lines: Range<u32>,
    pub(super) commit: ObjectId,
    /// The path of the file in that commit.
    pub(super) path: Vec<u8>,
    /// The first line in that version of the file.
    pub(super) original: u32,
}

/// Whether blame follows renames. It ignores them for callers with restricted rights, who perhaps have no right to see
/// the old path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renames {
    Follow,
    Ignore,
}

/// Attributes lines to commits.
pub(super) struct Blame<'a> {
    pub(super) repository: &'a TaskRepository<'a>,
    pub(super) filter: &'a VisibilityFilter,
    pub(super) renames: Renames,
}

/// A version of a file that may have introduced some lines of the final version.
struct Suspect {
    path: Vec<u8>,
    blob: ObjectId,
    ranges: Vec<SuspectRange>,
}

/// A range of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SuspectRange {
    /// The first line in the final version.
    line: u32,
    /// The first line in the suspect.
    at: u32,
    count: u32,
}

impl Blame<'_> {
    /// The commits that wrote these lines of a file at a commit, in the order of the lines.
    pub(super) fn lines(
        &self,
        commit: ObjectId,
        path: Vec<u8>,
        blob: ObjectId,
        lines: Range<u32>,
    ) -> Result<Vec<BlamedLines>> {
        let mut queue = CommitQueue::new();
        let range = SuspectRange { line: lines.start, at: lines.start, count: lines.len() as u32 };
        let first = Suspect { path, blob, ranges: vec![range] };
        queue.push(commit, self.repository.node(commit)?.time, vec![first]);
        let mut found = Vec::new();
        let mut held = self.repository.hold(0)?;
        while let Some((id, suspects)) = queue.pop() {
            let node = self.repository.node(id)?;
            for suspect in suspects {
                let before = found.len();
                self.examine(id, &node, suspect, &mut queue, &mut found)?;
                held.grow(((found.len() - before) * size_of::<BlamedLines>()) as u64)?;
            }
        }
        found.sort_by_key(|one: &BlamedLines| one.lines.start);
        found.dedup_by(|next, last| {
            let is_next = last.lines.end == next.lines.start
                && last.original + last.lines.len() as u32 == next.original
                && last.commit == next.commit
                && last.path == next.path;
            if is_next {
                last.lines.end = next.lines.end;
            }
            is_next
        });
        Ok(found)
    }

    /// Passes the lines of a suspect on to the parents that have them, and attributes the rest to its commit.
    fn examine(
        &self,
        id: ObjectId,
        node: &CommitNode,
        suspect: Suspect,
        queue: &mut CommitQueue<Vec<Suspect>>,
        found: &mut Vec<BlamedLines>,
    ) -> Result<()> {
        let Suspect { path, blob, mut ranges } = suspect;
        // Parents with another version of the file, each with the path and the blob of that version.
        let mut origins: Vec<(ObjectId, CommitNode, Vec<u8>, ObjectId)> = Vec::new();
        let mut without = Vec::new();
        for parent in &node.parents {
            let parent_node = self.repository.node(*parent)?;
            match self.blob_at(parent_node.tree, &path)? {
                Some(same) if same == blob => {
                    pass_to_parent(queue, *parent, parent_node.time, Suspect { path, blob, ranges });
                    return Ok(());
                }
                Some(other) => origins.push((*parent, parent_node, path.clone(), other)),
                None => without.push((*parent, parent_node)),
            }
        }
        for (parent, parent_node) in without {
            let Some((from, other)) = self.renamed_from(parent_node.tree, node.tree, &path)? else {
                continue;
            };
            if other == blob {
                pass_to_parent(queue, parent, parent_node.time, Suspect { path: from, blob, ranges });
                return Ok(());
            }
            origins.push((parent, parent_node, from, other));
        }
        // Lines that several parents have are passed to the first of them, as in git.
        origins.sort_by_key(|(parent, ..)| node.parents.iter().position(|other| other == parent));
        for (parent, parent_node, from, other) in origins {
            if ranges.is_empty() {
                break;
            }
            let (passed, kept) = self.split(other, blob, &ranges)?;
            ranges = kept;
            if !passed.is_empty() {
                let suspect = Suspect { path: from, blob: other, ranges: passed };
                pass_to_parent(queue, parent, parent_node.time, suspect);
            }
        }
        found.extend(ranges.into_iter().map(|range| BlamedLines {
            lines: range.line..range.line + range.count,
            commit: id,
            path: path.clone(),
            original: range.at,
        }));
        Ok(())
    }

    fn blob_at(&self, tree: ObjectId, path: &[u8]) -> Result<Option<ObjectId>> {
        let names: Vec<_> = path.split(|byte| *byte == b'/').collect();
        let entry = self.repository.entry_at(tree, &names)?;
        let is_file = |kind| matches!(kind, EntryKind::Blob | EntryKind::BlobExecutable);
        Ok(entry.filter(|entry| is_file(entry.kind)).map(|entry| entry.id))
    }

    /// If the file at `path` in the tree `new` was renamed, its path and its blob in `old`, the tree of a parent.
    /// `None` if it was not renamed, if renames are ignored, or if the trees have more than [`MAX_DIFFERENCES`]
    /// differences.
    fn renamed_from(&self, old: ObjectId, new: ObjectId, path: &[u8]) -> Result<Option<(Vec<u8>, ObjectId)>> {
        if self.renames == Renames::Ignore {
            return Ok(None);
        }
        let compare = TreeComparison {
            repository: self.repository,
            filter: self.filter,
            within: &[],
            limit: MAX_DIFFERENCES,
        };
        let Some(differences) = compare.trees(Some(old), Some(new))? else { return Ok(None) };
        let differences = renames::detect(self.repository, differences)?;
        let mut renamed = differences.into_iter().filter(|difference| difference.path == path);
        Ok(renamed.next().and_then(|difference| Some((difference.renamed?.from, difference.old?.id))))
    }

    /// Splits ranges of the new version into those that the old version has, with their positions there, and the
    /// others.
    fn split(
        &self,
        old: ObjectId,
        new: ObjectId,
        ranges: &[SuspectRange],
    ) -> Result<(Vec<SuspectRange>, Vec<SuspectRange>)> {
        let size = |id| Ok::<_, libris_core::Error>(self.repository.size(id)?.unwrap_or_default());
        let (old_size, new_size) = (size(old)?, size(new)?);
        if old_size.max(new_size) > MAX_COMPARED_BYTES {
            return Ok((Vec::new(), ranges.to_vec()));
        }
        let _held = self.repository.hold(old_size + new_size)?;
        let (old, new) = (self.repository.blob(old)?, self.repository.blob(new)?);
        let lines = |data: &[u8]| data.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        let _lines = self.repository.hold((lines(&old) + lines(&new)) * LINE_OVERHEAD)?;
        let input =
            InternedInput::new(imara_diff::sources::byte_lines(&old), imara_diff::sources::byte_lines(&new));
        let hunks = line_diff::hunks(&input, self.repository.deadline())?;
        let changed: Vec<_> = hunks.into_iter().map(|hunk| (hunk.before, hunk.after)).collect();
        Ok(split(&changed, ranges))
    }
}

/// Adds a suspect to a commit that may already be queued with others.
fn pass_to_parent(queue: &mut CommitQueue<Vec<Suspect>>, commit: ObjectId, time: i64, suspect: Suspect) {
    match queue.get_mut(&commit) {
        None => queue.push(commit, time, vec![suspect]),
        Some(queued) => {
            let same =
                queued.iter_mut().find(|other| other.blob == suspect.blob && other.path == suspect.path);
            match same {
                Some(same) => same.ranges.extend(suspect.ranges),
                None => queued.push(suspect),
            }
        }
    }
}

/// Splits ranges of the new version of a file at the hunks of a diff. A hunk is its lines in the old and in the
/// new version. Returns the unchanged ranges, with their positions in the old version, and the changed ones.
fn split(
    hunks: &[(Range<u32>, Range<u32>)],
    ranges: &[SuspectRange],
) -> (Vec<SuspectRange>, Vec<SuspectRange>) {
    let (mut passed, mut kept) = (Vec::new(), Vec::new());
    for range in ranges {
        let end = range.at + range.count;
        let mut at = range.at;
        let mut next = hunks.partition_point(|(_, after)| after.end <= at);
        while at < end {
            let subrange = |to: u32| SuspectRange { line: range.line + (at - range.at), at, count: to - at };
            match hunks.get(next) {
                Some((_, after)) if after.start <= at && at < after.end => {
                    let to = after.end.min(end);
                    kept.push(subrange(to));
                    (at, next) = (to, next + 1);
                }
                // A deletion, which has no lines in the new version.
                Some((_, after)) if after.start <= at => next += 1,
                hunk => {
                    let to = hunk.map_or(end, |(_, after)| after.start.min(end));
                    // An unchanged line is as far from the end of the previous hunk in the old version as in the new one.
                    let (before, after) =
                        next.checked_sub(1).map_or((0, 0), |last| (hunks[last].0.end, hunks[last].1.end));
                    passed.push(SuspectRange { at: at - after + before, ..subrange(to) });
                    at = to;
                }
            }
        }
    }
    (passed, kept)
}

/// The lines of a file with their commits.
pub(super) struct BlamePage<'a> {
    blamed: &'a [BlamedLines],
    commits: HashMap<ObjectId, Commit>,
}

impl<'a> BlamePage<'a> {
    pub(super) fn new(repository: &TaskRepository<'_>, blamed: &'a [BlamedLines]) -> Result<Self> {
        let mut commits = HashMap::new();
        for one in blamed {
            if let Entry::Vacant(vacant) = commits.entry(one.commit) {
                vacant.insert(Commit::read(repository, one.commit)?);
            }
        }
        Ok(Self { blamed, commits })
    }

    /// A page with commits but without lines.
    pub(super) fn of_commits(
        repository: &TaskRepository<'_>,
        ids: impl IntoIterator<Item = ObjectId>,
    ) -> Result<Self> {
        let commits = ids.into_iter().map(|id| Ok((id, Commit::read(repository, id)?)));
        Ok(Self { blamed: &[], commits: commits.collect::<Result<_>>()? })
    }

    /// The lines in the format of `git blame --date=short`, without file names, and the subjects of the commits. `lines`
    /// are the texts of the blamed lines; `path` is the current path of the file.
    pub(super) fn text(&self, space: &UriSpace, path: &'a [u8], lines: &[&[u8]]) -> String {
        let author = |one: &BlamedLines| self.commits[&one.commit].author().to_owned();
        let width = self.blamed.iter().map(|one| author(one).chars().count()).max().unwrap_or_default();
        let digits = self.blamed.last().map_or(1, |last| last.lines.end.to_string().len());
        let mut lines = lines.iter();
        let mut out = String::new();
        let mut order: Vec<(ObjectId, &[u8])> = Vec::new();
        for one in self.blamed {
            let date = self.commits[&one.commit].author_time().get(..10).unwrap_or_default();
            for (number, line) in one.lines.clone().zip(&mut lines) {
                let line = String::from_utf8_lossy(line);
                let line = line.trim_end_matches(['\r', '\n']);
                let _ = writeln!(
                    out,
                    "{} ({:width$} {date} {:digits$}) {line}",
                    short(one.commit),
                    author(one),
                    number + 1
                );
            }
            if !order.contains(&(one.commit, &one.path)) {
                order.push((one.commit, &one.path));
            }
        }
        if self.blamed.is_empty() {
            order.extend(self.commits.keys().map(|id| (*id, path)));
        }
        out.push('\n');
        for (id, original) in order {
            let _ = write!(out, "{} {}", short(id), self.commits[&id].short_subject());
            if original != path {
                let _ = write!(out, ", in {}", String::from_utf8_lossy(original));
            }
            let uri = space.commit(&id.to_string()).map(|uri| uri.to_string()).unwrap_or_default();
            let _ = writeln!(out, "\n  {uri}");
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let lines = self.blamed.iter().map(|one| {
            json!({
                "first": one.lines.start + 1,
                "last": one.lines.end,
                "commit": one.commit.to_string(),
                "path": String::from_utf8_lossy(&one.path),
                "original": one.original + 1,
            })
        });
        let commits = self.commits.iter().map(|(id, commit)| {
            let facts = json!({
                "author": commit.author(),
                "time": commit.author_time(),
                "subject": commit.subject(),
            });
            (id.to_string(), facts)
        });
        json!({ "lines": lines.collect::<Vec<_>>(), "commits": commits.collect::<serde_json::Map<_, _>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::{SuspectRange, split};

    #[test]
    fn ranges_are_split_at_hunks() {
        let range = |line, at, count| SuspectRange { line, at, count };
        // Old lines 2 and 3 became new lines 2 to 4, old line 6 was deleted, and new line 9 was added.
        let hunks = [(2..4, 2..5), (6..7, 7..7), (9..9, 9..10)];
        let (passed, kept) = split(&hunks, &[range(100, 0, 12)]);
        assert_eq!(passed, [range(100, 0, 2), range(105, 4, 2), range(107, 7, 2), range(110, 9, 2)]);
        assert_eq!(kept, [range(102, 2, 3), range(109, 9, 1)]);
        let (passed, kept) = split(&hunks, &[range(0, 3, 1), range(50, 8, 1)]);
        assert_eq!((passed, kept), (vec![range(50, 8, 1)], vec![range(0, 3, 1)]));
        let (passed, kept) = split(&[], &[range(0, 3, 1)]);
        assert_eq!((passed, kept), (vec![range(0, 3, 1)], vec![]));
    }
}
