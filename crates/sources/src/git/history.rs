//! Walks the history: the commits of a log, and the last change of each path.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::Result;

use super::compare::TreeComparison;
use super::filter::VisibilityFilter;
use super::repo::{CommitNode, TaskRepository, TreeEntry};

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
    /// How many commits were pushed so far. It orders commits of equal times.
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

    /// The next commit; `None` at the end of the history.
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
            // If a parent has the same entry, this commit did not change the path. Then the commit is omitted and
            // only that parent is followed, as in git's history simplification.
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

/// When each file of a commit was last changed, as far as a limited search of the history shows.
pub(super) struct ModificationTimes {
    /// By path, in seconds.
    times: HashMap<Vec<u8>, i64>,
    /// The time of the oldest examined commit on the line of first parents. A path that is not in `times` has not
    /// changed since.
    oldest: i64,
}

/// The paths whose last change is searched from one commit on.
#[derive(Default)]
struct TrackedPaths {
    /// Whether the *rest* is tracked here: all paths that have no time yet and are not tracked by name.
    rest: bool,
    /// The paths that are tracked by name.
    paths: HashSet<Vec<u8>>,
}

/// A search for the last change of every path: git's history simplification, for all paths at once.
///
/// Each path is *tracked* at one commit: the oldest one known so far that has the same entry at the path as the
/// commit where the search began. The path moves on to the first parent that has this entry too. If none has
/// it, the tracked commit is the last one that changed the path. Most paths move along the first parents; only
/// the others are tracked by name.
struct ModificationSearch<'a> {
    repository: &'a TaskRepository<'a>,
    queue: CommitQueue<(CommitNode, TrackedPaths)>,
    /// All paths that are tracked by name, at any commit.
    named: HashSet<Vec<u8>>,
    found: ModificationTimes,
}

impl ModificationTimes {
    /// Searches the history of a commit. The time of a path is that of the commit that `git log --max-count=1` shows
    /// for the path.
    pub(super) fn read(repository: &TaskRepository<'_>, from: ObjectId) -> Result<Self> {
        let first = repository.node(from)?;
        let found = Self { times: HashMap::new(), oldest: first.time };
        let mut search =
            ModificationSearch { repository, queue: CommitQueue::new(), named: HashSet::new(), found };
        let all = TrackedPaths { rest: true, ..TrackedPaths::default() };
        search.queue.push(from, first.time, (first, all));
        let limit = repository.decoded_tree_bytes() + MAX_TREE_BYTES;
        for _ in 0..MAX_COMMITS {
            let Some((_, (node, tracked))) = search.queue.pop() else { break };
            if repository.decoded_tree_bytes() > limit || search.paths() > MAX_PATHS {
                search.assign_time(&node, tracked);
                break;
            }
            if !search.step(&node, tracked)? {
                break;
            }
        }
        while let Some((_, (node, tracked))) = search.queue.pop() {
            search.assign_time(&node, tracked);
        }
        Ok(search.found)
    }

    /// When a path last changed; if the search did not reach that change, the time of the oldest examined commit.
    pub(super) fn time(&self, path: &[u8]) -> i64 {
        self.times.get(path).copied().unwrap_or(self.oldest)
    }
}

impl ModificationSearch<'_> {
    /// The number of paths in memory.
    fn paths(&self) -> usize {
        self.found.times.len() + self.named.len()
    }

    /// Assigns the time of a commit to the tracked paths that it changed, and moves the others on to its parents.
    /// If the commit changed too many paths, all tracked paths get its time, since none has changed after it, and
    /// the result is false: the search ends.
    fn step(&mut self, node: &CommitNode, mut tracked: TrackedPaths) -> Result<bool> {
        let Some((first, others)) = node.parents.split_first() else {
            self.assign_time(node, tracked);
            return Ok(true);
        };
        let first_node = self.repository.node(*first)?;
        let filter = &VisibilityFilter::unrestricted();
        let compare = TreeComparison { repository: self.repository, filter, within: &[], limit: MAX_CHANGES };
        let Some(differences) = compare.trees(Some(first_node.tree), Some(node.tree))? else {
            self.assign_time(node, tracked);
            return Ok(false);
        };
        let mut other_nodes = Vec::with_capacity(others.len());
        for other in others {
            other_nodes.push((*other, self.repository.node(*other)?));
        }
        let root = TreeEntry { kind: EntryKind::Tree, id: node.tree };
        let root = (first_node.tree != node.tree).then_some((Vec::new(), root));
        let differing = differences.into_iter().filter_map(|one| one.new.map(|new| (one.path, new)));
        for (path, entry) in root.into_iter().chain(differing) {
            let is_rest =
                || tracked.rest && !self.named.contains(&path) && !self.found.times.contains_key(&path);
            if !tracked.paths.remove(&path) && !is_rest() {
                continue;
            }
            match self.parent_with(&other_nodes, &path, entry)? {
                Some((id, parent)) => {
                    let paths = HashSet::from([path]);
                    self.track(id, parent, TrackedPaths { rest: false, paths });
                }
                None => {
                    self.named.remove(&path);
                    self.found.times.insert(path, node.time);
                }
            }
        }
        if tracked.rest || !tracked.paths.is_empty() {
            self.track(*first, first_node, tracked);
        }
        Ok(true)
    }

    /// The first of these commits that has this entry at a path.
    fn parent_with(
        &self,
        parents: &[(ObjectId, CommitNode)],
        path: &[u8],
        entry: TreeEntry,
    ) -> Result<Option<(ObjectId, CommitNode)>> {
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        for (id, parent) in parents {
            if self.repository.entry_at(parent.tree, &names)? == Some(entry) {
                return Ok(Some((*id, parent.clone())));
            }
        }
        Ok(None)
    }

    /// Tracks more paths at a commit.
    fn track(&mut self, id: ObjectId, node: CommitNode, more: TrackedPaths) {
        if self.queue.get_mut(&id).is_none() {
            self.queue.push(id, node.time, (node, TrackedPaths::default()));
        }
        let Some((_, tracked)) = self.queue.get_mut(&id) else { return };
        tracked.rest |= more.rest;
        if !tracked.rest {
            self.named.extend(more.paths.iter().cloned());
        }
        tracked.paths.extend(more.paths);
        // At the commit where the rest is tracked, paths belong to the rest and need no names.
        if tracked.rest {
            for path in std::mem::take(&mut tracked.paths) {
                self.named.remove(&path);
            }
        }
    }

    /// Assigns the time of a commit to all tracked paths.
    fn assign_time(&mut self, node: &CommitNode, tracked: TrackedPaths) {
        if tracked.rest {
            self.found.oldest = node.time;
        }
        for path in tracked.paths {
            self.named.remove(&path);
            self.found.times.insert(path, node.time);
        }
    }
}
