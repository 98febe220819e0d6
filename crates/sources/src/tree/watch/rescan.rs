//! A look at what is there now, which tells how it differs from what was.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use libris_core::{Change, Uri};

use super::super::{Folder, Found, Tree, ignore_files, name, walk};
use super::dirty::{Dirt, Patch, Reach, Touch};
use super::events::Hints;
use super::pending::Outbox;
use super::snapshot::{Directory, Node};

/// One look. It goes through the same tree as reading does, so what is hidden is not there.
pub(super) struct Look<'a> {
    tree: &'a Tree,
    root_uri: &'a Uri,
    hints: &'a mut Hints,
    outbox: &'a Outbox,
    /// Every change of before is known.
    since: SystemTime,
    /// What turned out to need a look from further up.
    pub(super) later: Dirt,
    /// Something could not be looked at, and was taken to be as it was.
    pub(super) retry: bool,
    /// Directories that are hidden because an ignore file in them cannot be read, of which no event tells
    /// when it can be.
    pub(super) hidden: Vec<String>,
}

/// What is known of a place after looking at it.
enum Sight<T> {
    There(T),
    Gone,
    /// The system failed us; nothing is known.
    Unknown,
}

/// How an entry is looked at.
#[derive(Clone, Copy)]
struct Manner {
    /// How much of a directory.
    reach: Reach,
    touch: Touch,
    /// There may have been changes of which there were no events.
    blind: bool,
}

impl<'a> Look<'a> {
    pub(super) fn new(
        tree: &'a Tree,
        root_uri: &'a Uri,
        hints: &'a mut Hints,
        outbox: &'a Outbox,
        since: SystemTime,
    ) -> Self {
        Self {
            tree,
            root_uri,
            hints,
            outbox,
            since,
            later: Dirt::default(),
            retry: false,
            hidden: Vec::new(),
        }
    }

    /// The first look of all, of which nobody is told.
    pub(super) fn at_root_first(&mut self) -> Option<Directory> {
        let root = self.open_root();
        match self.judge("", "", root) {
            Sight::There(folder) => self.new_directory(&folder),
            Sight::Gone | Sight::Unknown => None,
        }
    }

    /// Looks at what is dirty.
    pub(super) fn at(&mut self, dirt: Dirt, root: &mut Option<Directory>) {
        if dirt.everything {
            // What was said of single names is not looked up on the way.
            return self.at_everything(root, dirt.lost || !dirt.folders.is_empty());
        }
        for (key, patch) in dirt.folders {
            self.at_folder(&key, &patch, root);
        }
    }

    fn at_everything(&mut self, known: &mut Option<Directory>, blind: bool) {
        let opened = self.open_root();
        match (self.judge("", "", opened), known.as_mut()) {
            (Sight::There(folder), Some(root)) => {
                let blind = blind || root.stamp.identity != folder.stamp.identity;
                let patch = Patch { reach: Reach::Below, ..Patch::default() };
                if let Sight::Gone = self.compare(&folder, root, &patch, blind) {
                    self.lose_root(known);
                }
            }
            (Sight::There(folder), None) => {
                *known = self.new_directory(&folder);
                if let Some(root) = known {
                    self.tell_appeared("", root);
                }
            }
            (Sight::Gone, _) => self.lose_root(known),
            (Sight::Unknown, _) => {}
        }
    }

    fn lose_root(&mut self, known: &mut Option<Directory>) {
        if let Some(root) = known.take() {
            self.tell_vanished("", &root);
        }
    }

    fn at_folder(&mut self, key: &str, patch: &Patch, root: &mut Option<Directory>) {
        // What is not shown is not looked into. Should it come to be shown, its parent hears of it.
        let Some(known) = root.as_mut().and_then(|root| root.find(key)) else { return };
        let found = self.find(key);
        match self.judge(key, "", found) {
            Sight::There(folder) if folder.stamp.identity == known.stamp.identity => {
                if let Sight::Gone = self.compare(&folder, known, patch, false) {
                    self.later.directory(key, Touch::Replaced);
                }
            }
            Sight::There(_) | Sight::Gone => self.later.directory(key, Touch::Replaced),
            Sight::Unknown => {}
        }
    }

    fn find(&mut self, key: &str) -> io::Result<Arc<Folder>> {
        if key.is_empty() {
            return self.open_root();
        }
        let root = Arc::new(self.tree.root()?);
        match self.tree.find(root, key.strip_suffix('/').unwrap_or(key))? {
            Found::Folder(folder) => Ok(folder),
            Found::File(..) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Compares a directory with what was known of it.
    fn compare(&mut self, folder: &Folder, known: &mut Directory, patch: &Patch, blind: bool) -> Sight<()> {
        if self.outbox.is_closed() {
            return Sight::Unknown;
        }
        let mut touched = false;
        if patch.reach == Reach::Names {
            for (segment, &touch) in &patch.names {
                touched |= self.at_name(folder, known, segment, touch);
            }
        } else {
            let names = self.tree.names(folder);
            let names = match self.judge(&folder.way.key, "", names) {
                Sight::There(names) => names,
                Sight::Gone => return Sight::Gone,
                Sight::Unknown => return Sight::Unknown,
            };
            let gone = known.entries.keys().filter(|key| !names.contains(key));
            for key in gone.cloned().collect::<Vec<_>>() {
                touched |= self.forget(folder, known, &key);
            }
            for key in names.iter() {
                let touch = patch.names.get(key.trim_end_matches('/')).copied();
                let reach = match patch.reach {
                    Reach::Below => Reach::Below,
                    _ if touch.is_some() => Reach::Whole,
                    _ => Reach::Names,
                };
                let manner = Manner { reach, touch: touch.unwrap_or_default(), blind };
                touched |= self.at_entry(folder, known, key, manner);
            }
        }
        if touched {
            self.tell(Change::Updated, &folder.way.key);
        }
        if known.stamp.modified != folder.stamp.modified {
            self.tell(Change::Described, &folder.way.key);
        }
        known.stamp = folder.stamp.clone();
        Sight::There(())
    }

    /// Looks at one name, whatever it stands for now. Returns whether its directory reads otherwise.
    fn at_name(&mut self, folder: &Folder, known: &mut Directory, segment: &str, touch: Touch) -> bool {
        let file = segment;
        let directory = &*format!("{segment}/");
        let entry = self.tree.entry(folder, segment);
        let (is, is_not) = match self.judge(&folder.way.key, segment, entry) {
            Sight::There((_, true)) => (directory, file),
            Sight::There((_, false)) => (file, directory),
            Sight::Gone => return self.forget(folder, known, file) | self.forget(folder, known, directory),
            Sight::Unknown => return false,
        };
        let manner = Manner { reach: Reach::Whole, touch, blind: false };
        self.forget(folder, known, is_not) | self.at_entry(folder, known, is, manner)
    }

    /// Looks at a name that is shown. Returns whether its directory reads otherwise.
    fn at_entry(&mut self, folder: &Folder, known: &mut Directory, key: &str, manner: Manner) -> bool {
        match key.ends_with('/') {
            true => self.at_directory(folder, known, key, manner),
            false => self.at_file(folder, known, key, manner),
        }
    }

    fn at_file(&mut self, folder: &Folder, known: &mut Directory, key: &str, manner: Manner) -> bool {
        let leaf = walk::leaf(self.tree, folder, key);
        let leaf = match self.judge(&folder.way.key, key, leaf) {
            Sight::There(Some(leaf)) => leaf,
            Sight::There(None) | Sight::Gone => return self.forget(folder, known, key),
            Sight::Unknown => return false,
        };
        let now = leaf.stamp;
        match known.entries.get_mut(key) {
            Some(Node::File(before)) => {
                let suspected = manner.blind || manner.touch >= Touch::Changed;
                if *before == now && !(suspected && now.may_hide_a_change(self.since)) {
                    return false;
                }
                *before = now;
                self.tell(Change::Updated, &leaf.key);
                self.tell(Change::Described, &leaf.key);
            }
            _ => {
                known.entries.insert(key.into(), Node::File(now));
                self.tell(Change::Added, &leaf.key);
            }
        }
        true
    }

    fn at_directory(&mut self, folder: &Folder, known: &mut Directory, key: &str, manner: Manner) -> bool {
        let opened = self.open_directory(folder, key);
        let child = match self.judge(&folder.way.key, key, opened) {
            Sight::There(child) => child,
            Sight::Gone => return self.forget(folder, known, key),
            Sight::Unknown => return false,
        };
        let Some(Node::Directory(before)) = known.entries.get_mut(key) else {
            let Some(directory) = self.new_directory(&child) else { return false };
            self.tell_appeared(&child.way.key, &directory);
            known.entries.insert(key.into(), Node::Directory(Box::new(directory)));
            return true;
        };
        let replaced = manner.touch == Touch::Replaced || before.stamp.identity != child.stamp.identity;
        let reach = if replaced { Reach::Below } else { manner.reach };
        let patch = Patch { reach, ..Patch::default() };
        match self.compare(&child, before, &patch, manner.blind || replaced) {
            Sight::Gone => self.forget(folder, known, key),
            Sight::There(()) | Sight::Unknown => false,
        }
    }

    /// What is in a directory that was not known; `None` where it cannot be read.
    fn new_directory(&mut self, folder: &Folder) -> Option<Directory> {
        // Whoever began this may no longer be there, and a first look can take long.
        if self.outbox.is_closed() {
            return None;
        }
        let names = self.tree.names(folder);
        let Sight::There(names) = self.judge(&folder.way.key, "", names) else {
            self.hints.remove(&folder.way.key);
            return None;
        };
        let mut entries = Vec::with_capacity(names.len());
        for key in names.iter() {
            let node = match key.ends_with('/') {
                true => self.new_child(folder, key).map(|child| Node::Directory(Box::new(child))),
                false => {
                    let leaf = walk::leaf(self.tree, folder, key);
                    match self.judge(&folder.way.key, key, leaf) {
                        Sight::There(leaf) => leaf.map(|leaf| Node::File(leaf.stamp)),
                        Sight::Gone | Sight::Unknown => None,
                    }
                }
            };
            entries.extend(node.map(|node| (key.into(), node)));
        }
        // Collected from what is sorted, the map has no gaps.
        Some(Directory { stamp: folder.stamp.clone(), entries: entries.into_iter().collect() })
    }

    fn new_child(&mut self, folder: &Folder, key: &str) -> Option<Directory> {
        let opened = self.open_directory(folder, key);
        match self.judge(&folder.way.key, key, opened) {
            Sight::There(child) => self.new_directory(&child),
            Sight::Gone | Sight::Unknown => None,
        }
    }

    fn open_root(&mut self) -> io::Result<Arc<Folder>> {
        let tree = self.tree;
        self.open(|| tree.root().map(Arc::new))
    }

    fn open_directory(&mut self, folder: &Folder, key: &str) -> io::Result<Arc<Folder>> {
        let tree = self.tree;
        let segment = key.trim_end_matches('/');
        let name = name::of_segment(segment).ok_or(io::ErrorKind::NotFound)?;
        self.open(|| tree.enter(folder, segment, &name))
    }

    /// Opens a directory that is watched from before what is known of it.
    fn open(&mut self, open: impl Fn() -> io::Result<Arc<Folder>>) -> io::Result<Arc<Folder>> {
        let folder = open()?;
        match self.hints.add(&folder)? {
            // Its time and its ignore files were read before the watch was in force.
            true => open(),
            false => Ok(folder),
        }
    }

    fn judge<T>(&mut self, key: &str, name: &str, seen: io::Result<T>) -> Sight<T> {
        let cause = match seen {
            Ok(seen) => return Sight::There(seen),
            Err(cause) => cause,
        };
        if ignore_files::hide_folder(&cause) {
            self.hidden.push(format!("{key}{name}"));
        }
        let Err(cause) = walk::pass_over(self.tree, &format!("{key}{name}"), cause) else {
            return Sight::Gone;
        };
        tracing::debug!(path = format!("{key}{name}"), %cause, "cannot be looked at now");
        self.retry = true;
        Sight::Unknown
    }

    /// Forgets an entry that is gone. Returns whether it was known.
    fn forget(&mut self, folder: &Folder, known: &mut Directory, key: &str) -> bool {
        let Some(node) = known.entries.remove(key) else { return false };
        self.tell_vanished_node(&format!("{}{key}", folder.way.key), &node);
        true
    }

    fn tell_vanished(&mut self, key: &str, directory: &Directory) {
        self.hints.remove(key);
        for (name, node) in &directory.entries {
            self.tell_vanished_node(&format!("{key}{name}"), node);
        }
        self.tell(Change::Removed, key);
    }

    fn tell_vanished_node(&mut self, key: &str, node: &Node) {
        match node {
            Node::File(_) => self.tell(Change::Removed, key),
            Node::Directory(directory) => self.tell_vanished(key, directory),
        }
    }

    fn tell_appeared(&self, key: &str, directory: &Directory) {
        self.tell(Change::Added, key);
        for (name, node) in &directory.entries {
            let key = format!("{key}{name}");
            match node {
                Node::File(_) => self.tell(Change::Added, &key),
                Node::Directory(directory) => self.tell_appeared(&key, directory),
            }
        }
    }

    fn tell(&self, change: fn(Uri) -> Change, key: &str) {
        if let Ok(uri) = self.root_uri.below(key) {
            self.outbox.put(change(uri));
        }
    }
}
