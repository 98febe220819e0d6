//! Walks the history: the commits of a log, and the last change of each path.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use gix::ObjectId;
use libris_core::Result;

use super::compare::{TreeComparison, TreeDifference};
use super::filter::VisibilityFilter;
use super::repo::{CommitNode, TaskRepository};

/// The limits of the search for modification times: bytes of trees, commits, paths, and changes in one commit.
const MAX_TREE_BYTES: u64 = 2 * 1024 * 1024;
const MAX_COMMITS: usize = 10_000;
const MAX_PATHS: usize = 100_000;
const MAX_CHANGES: usize = 10_000;

/// The commits of a history in the order of `git log`: newest committer time first, each after at least one of its
/// children.
pub(super) struct CommitLog<'a> {
    repository: &'a TaskRepository<'a>,
    /// Restricts the log to commits that change this path.
    path: Option<&'a [&'a [u8]]>,
    queue: CommitQueue<CommitNode>,
    seen: HashSet<ObjectId>,
}

/// A priority queue of commits, newest first; of equal times, first in first out.
pub(super) struct CommitQueue<T> {
    heap: BinaryHeap<(i64, Reverse<usize>, ObjectId)>,
    values: HashMap<ObjectId, T>,
    count: usize,
}

impl<T> CommitQueue<T> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), values: HashMap::new(), count: 0 }
    }

    pub(super) fn push(&mut self, id: ObjectId, time: i64, value: T) {
        self.heap.push((time, Reverse(self.count), id));
        self.values.insert(id, value);
        self.count += 1;
    }

    /// The value of a queued commit.
    pub(super) fn get_mut(&mut self, id: &ObjectId) -> Option<&mut T> {
        self.values.get_mut(id)
    }

    pub(super) fn pop(&mut self) -> Option<(ObjectId, T)> {
        let (_, _, id) = self.heap.pop()?;
        self.values.remove(&id).map(|value| (id, value))
    }
}

impl<'a> CommitLog<'a> {
    pub(super) fn new(
        repository: &'a TaskRepository<'a>,
        from: ObjectId,
        path: Option<&'a [&'a [u8]]>,
    ) -> Result<Self> {
        let mut log = Self { repository, path, queue: CommitQueue::new(), seen: HashSet::new() };
        log.push(from)?;
        Ok(log)
    }

    fn push(&mut self, id: ObjectId) -> Result<()> {
        if self.seen.insert(id) {
            let node = self.repository.node(id)?;
            self.queue.push(id, node.time, node);
        }
        Ok(())
    }

    /// The next commit.
    pub(super) fn step(&mut self) -> Result<Option<ObjectId>> {
        while let Some((id, node)) = self.queue.pop() {
            let Some(path) = self.path else {
                for parent in node.parents {
                    self.push(parent)?;
                }
                return Ok(Some(id));
            };
            let here = self.repository.entry_at(node.tree, path)?;
            if node.parents.is_empty() && here.is_some() {
                return Ok(Some(id));
            }
            // A parent with the same entry explains the path: the commit is omitted and the other parents are pruned,
            // as in git's history simplification.
            let mut same = None;
            for parent in &node.parents {
                let tree = self.repository.node(*parent)?.tree;
                if tree == node.tree || self.repository.entry_at(tree, path)? == here {
                    same = Some(*parent);
                    break;
                }
            }
            match same {
                Some(parent) => self.push(parent)?,
                None => {
                    let shown = !node.parents.is_empty();
                    for parent in node.parents {
                        self.push(parent)?;
                    }
                    if shown {
                        return Ok(Some(id));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// The times of the last changes of the files of a commit, within a limited part of the history.
pub(super) struct ModificationTimes {
    /// By path, in seconds.
    times: HashMap<Vec<u8>, i64>,
    /// The time of the oldest examined commit. A path that is not in `times` has not changed since.
    oldest: i64,
}

impl ModificationTimes {
    /// Walks back from a commit. A path last changed in the newest commit that gave it its current state.
    pub(super) fn read(repository: &TaskRepository<'_>, from: ObjectId) -> Result<Self> {
        let first = repository.node(from)?;
        let tree = first.tree;
        let mut window = Self { times: HashMap::new(), oldest: first.time };
        let mut queue = CommitQueue::new();
        let mut seen = HashSet::from([from]);
        queue.push(from, first.time, first);
        let limit = repository.decoded() + MAX_TREE_BYTES;
        for _ in 0..MAX_COMMITS {
            let Some((_, node)) = queue.pop() else { break };
            window.oldest = window.oldest.min(node.time);
            if repository.decoded() > limit || window.times.len() > MAX_PATHS {
                break;
            }
            let mut parents = Vec::new();
            for id in &node.parents {
                let parent = repository.node(*id)?;
                parents.push(parent.tree);
                if seen.insert(*id) {
                    queue.push(*id, parent.time, parent);
                }
            }
            if !window.record_commit(repository, tree, &node, &parents)? {
                break;
            }
        }
        Ok(window)
    }

    /// Records the paths whose current state in `tree` comes from this commit; false if it changed too many.
    fn record_commit(
        &mut self,
        repository: &TaskRepository<'_>,
        tree: ObjectId,
        node: &CommitNode,
        parents: &[ObjectId],
    ) -> Result<bool> {
        // A root commit needs no entries, since `oldest` covers its paths. A merge with the tree of one parent
        // changed nothing.
        let Some((first, others)) = parents.split_first() else { return Ok(true) };
        if parents.contains(&node.tree) {
            return Ok(true);
        }
        let compare =
            TreeComparison { repository, filter: &VisibilityFilter::open(), within: &[], limit: MAX_CHANGES };
        let Some(differences) = compare.trees(Some(*first), Some(node.tree))? else { return Ok(false) };
        if node.tree == tree {
            self.times.entry(Vec::new()).or_insert(node.time);
        }
        for TreeDifference { path, new, .. } in differences {
            if new.is_none() || self.times.contains_key(&path) {
                continue;
            }
            let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
            let mut made = repository.entry_at(tree, &names)? == new;
            for other in others {
                made &= repository.entry_at(*other, &names)? != new;
            }
            if made {
                self.times.insert(path, node.time);
            }
        }
        Ok(true)
    }

    /// When a path last changed; if the search did not reach that change, the time of the oldest examined commit.
    pub(super) fn time(&self, path: &[u8]) -> i64 {
        self.times.get(path).copied().unwrap_or(self.oldest)
    }
}
