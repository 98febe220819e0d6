//! Walking through commits: which are in a log, and when a path last changed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::Result;

use super::repo::{Entry, Node, Objects};

/// How many bytes of trees are looked at to tell when the files of a page last changed.
const LOOKED_AT: usize = 4 * 1024 * 1024;

/// How many commits are, at most.
const COMMITS: usize = 10_000;

/// Commits from the newest on, as `git log` shows them: by the time they were committed, each after at least one
/// of its children.
pub(super) struct Log<'a> {
    objects: &'a Objects<'a>,
    /// Only those that change this path, where there is one.
    path: Option<&'a [&'a [u8]]>,
    queue: Queue<Node>,
    seen: HashSet<ObjectId>,
}

/// Commits that are still to be looked at, newest first, and of equals the first that came.
struct Queue<T> {
    heap: BinaryHeap<(i64, Reverse<usize>, ObjectId)>,
    values: HashMap<ObjectId, T>,
    count: usize,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self { heap: BinaryHeap::new(), values: HashMap::new(), count: 0 }
    }

    fn push(&mut self, id: ObjectId, time: i64, value: T) {
        self.heap.push((time, Reverse(self.count), id));
        self.values.insert(id, value);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<(ObjectId, T)> {
        let (_, _, id) = self.heap.pop()?;
        self.values.remove(&id).map(|value| (id, value))
    }
}

impl<'a> Log<'a> {
    pub(super) fn new(
        objects: &'a Objects<'a>,
        from: ObjectId,
        path: Option<&'a [&'a [u8]]>,
    ) -> Result<Self> {
        let mut log = Self { objects, path, queue: Queue::new(), seen: HashSet::new() };
        log.push(from)?;
        Ok(log)
    }

    fn push(&mut self, id: ObjectId) -> Result<()> {
        if self.seen.insert(id) {
            let node = self.objects.node(id)?;
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
            let here = self.objects.at(node.tree, path)?;
            if node.parents.is_empty() && here.is_some() {
                return Ok(Some(id));
            }
            // A merge that took the path from one side says nothing about it, and neither does the other side.
            let mut same = None;
            for parent in &node.parents {
                let tree = self.objects.node(*parent)?.tree;
                if tree == node.tree || self.objects.at(tree, path)? == here {
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

/// When each of these paths last changed before `from`, in seconds: the time of the first commit that `git log`
/// shows for it. One for which that takes too long gets the time of the oldest commit that was looked at, since
/// which it has not changed.
pub(super) fn last_changed(objects: &Objects<'_>, from: ObjectId, paths: &[&[u8]]) -> Result<Vec<i64>> {
    let split: Vec<Vec<&[u8]>> = paths
        .iter()
        .map(|path| path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect())
        .collect();
    let mut look = Look { objects, paths: &split, left: LOOKED_AT };
    let mut times = vec![0; paths.len()];
    let mut queue = Queue::new();
    let node = objects.node(from)?;
    queue.push(from, node.time, (node, (0..paths.len()).collect::<Vec<_>>()));
    for count in 0.. {
        let Some((_, (node, mut waiting))) = queue.pop() else { break };
        // All that wait have this time at least; it is right for those that differ from all parents.
        for &path in &waiting {
            times[path] = node.time;
        }
        if count == COMMITS || look.left == 0 {
            for path in queue.values.into_values().flat_map(|(_, waiting)| waiting) {
                times[path] = node.time;
            }
            break;
        }
        for parent in &node.parents {
            if waiting.is_empty() {
                break;
            }
            let before = objects.node(*parent)?;
            let Some(differ) = look.differ(node.tree, before.tree, &waiting, 0)? else { break };
            let (rest, same): (Vec<_>, Vec<_>) = waiting.iter().partition(|path| differ.contains(path));
            if !same.is_empty() {
                match queue.values.get_mut(parent) {
                    Some((_, others)) => others.extend(same),
                    None => queue.push(*parent, before.time, (before, same)),
                }
            }
            waiting = rest;
        }
    }
    Ok(times)
}

struct Look<'a> {
    objects: &'a Objects<'a>,
    paths: &'a [Vec<&'a [u8]>],
    /// How many bytes may still be looked at.
    left: usize,
}

impl Look<'_> {
    /// Those of some paths that differ between two trees at this depth; `None` where that takes too long.
    fn differ(
        &mut self,
        one: ObjectId,
        other: ObjectId,
        paths: &[usize],
        depth: usize,
    ) -> Result<Option<HashSet<usize>>> {
        let mut differ = HashSet::new();
        if one == other {
            return Ok(Some(differ));
        }
        // Paths with the same name here, by that name.
        let mut groups: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for &path in paths {
            match self.paths[path].get(depth) {
                Some(name) => groups.entry(name).or_default().push(path),
                None => {
                    differ.insert(path);
                }
            }
        }
        let names: Vec<&[u8]> = groups.keys().copied().collect();
        let (Some(one), Some(other)) = (self.entries(one, &names)?, self.entries(other, &names)?) else {
            return Ok(None);
        };
        for ((name, one), other) in names.iter().zip(one).zip(other).filter(|((_, one), other)| one != other)
        {
            let group = &groups[name];
            let trees = |entry: Option<Entry>| {
                entry.filter(|entry| entry.kind == EntryKind::Tree).map(|entry| entry.id)
            };
            match (trees(one), trees(other)) {
                (Some(one), Some(other)) => match self.differ(one, other, group, depth + 1)? {
                    Some(below) => differ.extend(below),
                    None => return Ok(None),
                },
                _ => differ.extend(group),
            }
        }
        Ok(Some(differ))
    }

    fn entries(&mut self, tree: ObjectId, names: &[&[u8]]) -> Result<Option<Vec<Option<Entry>>>> {
        if self.left == 0 {
            return Ok(None);
        }
        let (entries, size) = self.objects.entries_named(tree, names)?;
        self.left = self.left.saturating_sub(size);
        Ok(Some(entries))
    }
}
