//! Walks a tree in the order of URIs. A walk can start after any percent-encoded path (keyset pagination).

use std::sync::Arc;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::Result;

use super::filter::VisibilityFilter;
use super::repo::{TaskRepository, TreeEntry};
use super::tree_listing::{TreeListing, name};

/// The deepest nesting of directories. Deeper entries are not visible.
pub(super) const MAX_DEPTH: usize = 128;

/// A file or directory in a tree.
#[derive(Clone, Debug)]
pub(super) struct TreeItem {
    /// The percent-encoded path: with a trailing `/` for a directory, empty for the root.
    pub(super) key: String,
    /// The decoded path.
    pub(super) path: Vec<u8>,
    pub(super) entry: TreeEntry,
}

/// A depth-first walk over the visible entries of a tree.
pub(super) struct GitTreeWalk<'a> {
    repository: &'a TaskRepository<'a>,
    filter: &'a VisibilityFilter,
    /// The root, if it has not been returned yet.
    root: Option<ObjectId>,
    stack: Vec<WalkFrame>,
}

/// A directory that the walk is in, with its key and path.
struct WalkFrame {
    directory: Arc<TreeListing>,
    /// The index of the next entry to return.
    next: usize,
    key: String,
    path: Vec<u8>,
}

impl<'a> GitTreeWalk<'a> {
    /// Starts a walk after a key; without a key, at the root, which is returned first.
    pub(super) fn new(
        repository: &'a TaskRepository<'a>,
        filter: &'a VisibilityFilter,
        tree: ObjectId,
        after: Option<&str>,
    ) -> Result<Self> {
        let mut walk = Self { repository, filter, root: Some(tree), stack: Vec::new() };
        let Some(mut rest) = after else { return Ok(walk) };
        walk.root = None;
        walk.enter(tree, String::new(), Vec::new())?;
        while let Some(frame) = walk.stack.last_mut() {
            frame.next = frame.directory.after(rest);
            // Only the last entry whose key is not greater than `rest` can be a directory that contains it.
            let Some((key, entry)) = frame.next.checked_sub(1).map(|at| &frame.directory.entries()[at])
            else {
                break;
            };
            let inside = rest.strip_prefix(&**key).filter(|_| key.ends_with('/'));
            let Some(inside) = inside else { break };
            let (key, path, entry) = (format!("{}{key}", frame.key), join(&frame.path, key), *entry);
            if !filter.shows(&path, true) || walk.stack.len() >= MAX_DEPTH {
                break;
            }
            rest = inside;
            walk.enter(entry.id, key, path)?;
        }
        Ok(walk)
    }

    fn enter(&mut self, tree: ObjectId, key: String, path: Vec<u8>) -> Result<()> {
        let directory = self.repository.directory(tree)?;
        self.stack.push(WalkFrame { directory, next: 0, key, path });
        Ok(())
    }

    /// The next visible entry, a directory before its contents; `None` at the end.
    pub(super) fn step(&mut self) -> Result<Option<TreeItem>> {
        if let Some(tree) = self.root.take() {
            self.enter(tree, String::new(), Vec::new())?;
            let entry = TreeEntry { kind: EntryKind::Tree, id: tree };
            return Ok(Some(TreeItem { key: String::new(), path: Vec::new(), entry }));
        }
        loop {
            let depth = self.stack.len();
            let Some(frame) = self.stack.last_mut() else { return Ok(None) };
            let Some((key, entry)) = frame.directory.entries().get(frame.next) else {
                self.stack.pop();
                continue;
            };
            frame.next += 1;
            let directory = entry.kind == EntryKind::Tree;
            let item =
                TreeItem { key: format!("{}{key}", frame.key), path: join(&frame.path, key), entry: *entry };
            if !self.filter.shows(&item.path, directory) || (directory && depth >= MAX_DEPTH) {
                continue;
            }
            if directory {
                self.enter(item.entry.id, item.key.clone(), item.path.clone())?;
            }
            return Ok(Some(item));
        }
    }
}

/// The path of an entry, given the path of its directory and its key.
pub(super) fn join(path: &[u8], key: &str) -> Vec<u8> {
    let name = name(key);
    if path.is_empty() { name } else { [path, b"/", &name].concat() }
}
