//! Compares two trees recursively.

use std::cmp::Ordering;
use std::iter::Peekable;

use gix::ObjectId;
use gix::objs::tree::{EntryKind, name_order};
use libris_core::Result;

use super::filter::VisibilityFilter;
use super::limits::HeldMemory;
use super::repo::{NamedEntry, TaskRepository, TreeEntry};
use super::walk::MAX_DEPTH;

/// A path whose entry differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeDifference {
    pub(super) path: Vec<u8>,
    pub(super) old: Option<TreeEntry>,
    pub(super) new: Option<TreeEntry>,
}

impl TreeDifference {
    /// Whether each side that exists is a directory. If a file replaced a directory, or the reverse, the directory is a
    /// difference of its own, for which this is true.
    pub(super) fn is_directory(&self) -> bool {
        let tree = |entry: Option<TreeEntry>| entry.is_none_or(|entry| entry.kind == EntryKind::Tree);
        tree(self.old) && tree(self.new)
    }
}

/// The longest compared path, in bytes: `PATH_MAX` of Linux. Longer paths, and everything below them, are left out.
const MAX_PATH_BYTES: usize = 4096;

/// The differences found so far, with their memory reservation.
struct TreeDifferences<'o> {
    found: Vec<TreeDifference>,
    held: HeldMemory<'o>,
}

/// A comparison of two trees.
pub(super) struct TreeComparison<'a> {
    pub(super) repository: &'a TaskRepository<'a>,
    pub(super) filter: &'a VisibilityFilter,
    /// Restricts the comparison to this path and its descendants.
    pub(super) within: &'a [&'a [u8]],
    /// The comparison stops when there are more differences than this.
    pub(super) limit: usize,
}

impl TreeComparison<'_> {
    /// The differing files and directories, sorted by path; `None` if there are more than `limit`. A file that
    /// replaces a directory, or the reverse, yields two differences.
    pub(super) fn trees(
        &self,
        old: Option<ObjectId>,
        new: Option<ObjectId>,
    ) -> Result<Option<Vec<TreeDifference>>> {
        let mut differences = TreeDifferences { found: Vec::new(), held: self.repository.hold(0)? };
        if old != new && !self.below(&mut differences, &[], 0, old, new)? {
            return Ok(None);
        }
        let mut found = differences.found;
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Some(found))
    }

    /// Adds the differences below a directory; false if there are more than `limit`.
    fn below(
        &self,
        differences: &mut TreeDifferences<'_>,
        path: &[u8],
        depth: usize,
        old: Option<ObjectId>,
        new: Option<ObjectId>,
    ) -> Result<bool> {
        let entries = |tree: Option<ObjectId>| tree.map(|tree| self.repository.tree(tree)).transpose();
        let ((old, _old_held), (new, _new_held)) = (entries(old)?.unzip(), entries(new)?.unzip());
        let (mut old, mut new) = (peekable(old), peekable(new));
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Ok(true),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => order(one, other),
            };
            let one = if order.is_le() { old.next() } else { None };
            let other = if order.is_ge() { new.next() } else { None };
            let Some(name) = one.as_ref().or(other.as_ref()).map(|(name, _)| name.clone()) else {
                return Ok(true);
            };
            let (one, other) = (one.map(|(_, entry)| entry), other.map(|(_, entry)| entry));
            if one != other && !self.entry(differences, path, &name, depth, one, other)? {
                return Ok(false);
            }
        }
    }

    /// Adds an entry that differs, and the differences below it; false if there are more than `limit` differences.
    fn entry(
        &self,
        differences: &mut TreeDifferences<'_>,
        parent: &[u8],
        name: &[u8],
        depth: usize,
        old: Option<TreeEntry>,
        new: Option<TreeEntry>,
    ) -> Result<bool> {
        if self.within.get(depth).is_some_and(|wanted| *wanted != name) {
            return Ok(true);
        }
        let path = if parent.is_empty() { name.to_vec() } else { [parent, b"/", name].concat() };
        let tree = |entry: Option<TreeEntry>| {
            entry.filter(|entry| entry.kind == EntryKind::Tree).map(|entry| entry.id)
        };
        let directory = tree(old).is_some() || tree(new).is_some();
        if !self.filter.shows(&path, directory) || path.len() > MAX_PATH_BYTES {
            return Ok(true);
        }
        if depth + 1 >= self.within.len() {
            if differences.found.len() == self.limit {
                return Ok(false);
            }
            differences.held.grow((path.len() + size_of::<TreeDifference>()) as u64)?;
            differences.found.push(TreeDifference { path: path.clone(), old, new });
        }
        if !directory || depth + 1 >= MAX_DEPTH {
            return Ok(true);
        }
        self.below(differences, &path, depth + 1, tree(old), tree(new))
    }
}

fn peekable(entries: Option<Vec<NamedEntry>>) -> Peekable<std::vec::IntoIter<NamedEntry>> {
    entries.unwrap_or_default().into_iter().peekable()
}

/// Git's order of the entries of a tree: a directory sorts as if its name ended with `/`.
fn order(one: &NamedEntry, other: &NamedEntry) -> Ordering {
    let is_tree = |named: &NamedEntry| named.1.kind == EntryKind::Tree;
    name_order(&one.0, is_tree(one), &other.0, is_tree(other))
}
