//! A scan of the dirty set: compares it with the snapshot of the last scan and emits the differences.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use libris_core::{Change, Uri};

use super::super::root::NameMatching;
use super::super::{OpenFolder, ResolvedPath, Tree, ignore_files, name, walk};
use super::dirty::{DirtyDirectory, DirtySet, EntryEvent, RescanScope};
use super::events::EventSource;
use super::pending::PendingChanges;
use super::snapshot::{SnapshotDirectory, SnapshotEntry};

/// The maximum number of names that one scan looks up in the listings of their directories, each of which costs reading a
/// directory. Beyond that, directories are scanned without a look.
const MAX_LOOKUPS: usize = 100;

/// One scan. It reads the same tree as requests do, so it emits nothing about hidden files.
pub(super) struct Rescan<'a> {
    tree: &'a Tree,
    root_uri: &'a Uri,
    events: &'a mut EventSource,
    pending: &'a PendingChanges,
    /// All changes before this time were seen by earlier scans.
    since: SystemTime,
    /// The directories with events of entries that are not listed under the names in the events.
    misspelled: DirtySet,
    /// How many names were looked up in listings, to find out whether they are spelled as there.
    lookups: usize,
    /// The entries that must be scanned again, starting from their parent directories.
    pub(super) later: DirtySet,
    /// Whether an entry could not be scanned and was assumed to be unchanged.
    pub(super) retry: bool,
    /// The directories that are hidden because their ignore file cannot be read. No event reports when such a file
    /// becomes readable.
    pub(super) hidden: Vec<String>,
}

/// The outcome of reading a file or directory.
enum Observation<T> {
    Present(T),
    Absent,
    /// A system call failed, so the state is undetermined.
    Unknown,
}

/// How to scan an entry.
#[derive(Clone, Copy)]
struct RescanMode {
    /// How much to scan if it is a directory.
    scope: RescanScope,
    event: EntryEvent,
    /// Whether there may have been changes without events.
    events_missed: bool,
}

impl<'a> Rescan<'a> {
    pub(super) fn new(
        tree: &'a Tree,
        root_uri: &'a Uri,
        events: &'a mut EventSource,
        pending: &'a PendingChanges,
        since: SystemTime,
    ) -> Self {
        Self {
            tree,
            root_uri,
            events,
            pending,
            since,
            misspelled: DirtySet::default(),
            lookups: 0,
            later: DirtySet::default(),
            retry: false,
            hidden: Vec::new(),
        }
    }

    /// The first scan, which emits nothing. `None` if the root does not exist or cannot be read.
    pub(super) fn initial_snapshot(&mut self) -> Option<SnapshotDirectory> {
        let root = self.open_root();
        match self.observe("", "", root) {
            Observation::Present(folder) => self.new_directory(&folder),
            Observation::Absent | Observation::Unknown => None,
        }
    }

    /// Scans the dirty set and updates the snapshot `root`.
    pub(super) fn run(&mut self, dirty: DirtySet, root: &mut Option<SnapshotDirectory>) {
        if dirty.all {
            // A full scan ignores the events of single names, so it must treat every entry as possibly changed.
            return self.rescan_all(root, dirty.lost || !dirty.folders.is_empty());
        }
        for (key, dirty) in dirty.folders {
            self.rescan_folder(&key, &dirty, root);
        }
        // In this scan, since a later one would take changes of before it for seen.
        for (key, dirty) in std::mem::take(&mut self.misspelled).folders {
            self.rescan_folder(&key, &dirty, root);
        }
    }

    /// Scans the whole tree.
    fn rescan_all(&mut self, known: &mut Option<SnapshotDirectory>, events_missed: bool) {
        let opened = self.open_root();
        match (self.observe("", "", opened), known.as_mut()) {
            (Observation::Present(folder), Some(root)) => {
                let events_missed = events_missed || root.stamp.file_id != folder.stamp.file_id;
                let dirty = DirtyDirectory { scope: RescanScope::Subtree, ..DirtyDirectory::default() };
                if let Observation::Absent = self.compare(&folder, root, &dirty, events_missed) {
                    self.remove_root(known);
                }
            }
            (Observation::Present(folder), None) => {
                *known = self.new_directory(&folder);
                if let Some(root) = known {
                    self.emit_added("", root);
                }
            }
            (Observation::Absent, _) => self.remove_root(known),
            (Observation::Unknown, _) => {}
        }
    }

    fn remove_root(&mut self, known: &mut Option<SnapshotDirectory>) {
        if let Some(root) = known.take() {
            self.emit_removed("", &root);
        }
    }

    /// Scans a dirty directory of the snapshot. If it was replaced, it is marked to be scanned from its parent.
    fn rescan_folder(&mut self, key: &str, dirty: &DirtyDirectory, root: &mut Option<SnapshotDirectory>) {
        // A directory that is not in the snapshot is not visible, or has another name there. If it becomes visible, its
        // parent directory is dirty too.
        let Some(known) = root.as_mut().and_then(|root| root.find(key)) else {
            if !dirty.unnamed
                && let Some(root) = root
            {
                self.mark_misspelled_folder(key, root);
            }
            return;
        };
        let found = self.find(key);
        match self.observe(key, "", found) {
            Observation::Present(folder) if folder.stamp.file_id == known.stamp.file_id => {
                if let Observation::Absent = self.compare(&folder, known, dirty, dirty.unnamed) {
                    self.later.mark_directory(key, EntryEvent::Replaced);
                }
            }
            Observation::Present(_) | Observation::Absent => {
                self.later.mark_directory(key, EntryEvent::Replaced)
            }
            Observation::Unknown => {}
        }
    }

    /// Marks the directories that an event can mean by a directory that is not in the snapshot.
    fn mark_misspelled_folder(&mut self, key: &str, root: &mut SnapshotDirectory) {
        if self.tree.name_matching == NameMatching::Exact {
            return;
        }
        let mut parent = "";
        for segment in key.split_inclusive('/') {
            let below = &key[..parent.len() + segment.len()];
            if root.find(below).is_none() {
                let found = self.find(parent);
                let Observation::Present(folder) = self.observe(parent, "", found) else { return };
                let segment = segment.trim_end_matches('/');
                if self.mark_misspelled(&folder, segment)
                    && let Some(known) = root.find(parent)
                {
                    let folders = known.entries.keys().filter(|key| key.ends_with('/'));
                    for key in folders.filter(|key| name::may_be_spelled(key.trim_end_matches('/'), segment))
                    {
                        self.misspelled.mark_unnamed(&format!("{parent}{key}"), RescanScope::Subtree);
                    }
                }
                return;
            }
            parent = below;
        }
    }

    /// Marks a directory in which an event names an entry that is not visible, unless it has an entry of that name.
    /// Returns whether it was marked.
    fn mark_misspelled(&mut self, folder: &OpenFolder, segment: &str) -> bool {
        if self.tree.name_matching == NameMatching::Exact {
            return false;
        }
        // It may be the short name of an ignore file, whose rules apply to the whole subtree.
        let scope = if segment.contains('~') { RescanScope::Subtree } else { RescanScope::Entries };
        let key = &*folder.logical.key;
        if self.misspelled.folders.get(key).is_some_and(|marked| marked.scope >= scope) {
            return true;
        }
        if self.lookups < MAX_LOOKUPS {
            self.lookups += 1;
            let is_listed = name::from_segment(segment).map(|name| folder.handle.lists(&name));
            if matches!(is_listed, Some(Ok(true))) {
                return false;
            }
        }
        self.misspelled.mark_unnamed(key, scope);
        true
    }

    fn find(&mut self, key: &str) -> io::Result<Arc<OpenFolder>> {
        if key.is_empty() {
            return self.open_root();
        }
        let root = Arc::new(self.tree.root()?);
        match self.tree.resolve(root, key.strip_suffix('/').unwrap_or(key))? {
            ResolvedPath::Folder(folder) => Ok(folder),
            ResolvedPath::File(..) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Compares a directory with its snapshot, reports the differences and updates the snapshot. `Absent` if the
    /// directory no longer exists; `Unknown` if it cannot be read now or the stream was dropped.
    fn compare(
        &mut self,
        folder: &OpenFolder,
        known: &mut SnapshotDirectory,
        dirty: &DirtyDirectory,
        events_missed: bool,
    ) -> Observation<()> {
        if self.pending.is_closed() {
            return Observation::Unknown;
        }
        let mut touched = false;
        let before = self.tree.filter.has_include().then(|| known.has_files());
        if dirty.scope == RescanScope::Names {
            for (segment, &event) in &dirty.names {
                touched |= self.rescan_name(folder, known, segment, event);
            }
        } else {
            let names = self.tree.names(folder);
            let names = match self.observe(&folder.logical.key, "", names) {
                Observation::Present(names) => names,
                Observation::Absent => return Observation::Absent,
                Observation::Unknown => return Observation::Unknown,
            };
            // The event is that of an entry with another name in the listing.
            let events_missed = events_missed
                || self.tree.name_matching == NameMatching::Lenient
                    && dirty
                        .names
                        .keys()
                        .any(|segment| !names.contains(segment) && !names.contains(&format!("{segment}/")));
            let gone = known.entries.keys().filter(|key| !names.contains(key));
            for key in gone.cloned().collect::<Vec<_>>() {
                touched |= self.remove_entry(folder, known, &key);
            }
            for key in names.iter() {
                let event = dirty.names.get(key.trim_end_matches('/')).copied();
                let scope = match dirty.scope {
                    RescanScope::Subtree => RescanScope::Subtree,
                    _ if event.is_some() => RescanScope::Entries,
                    _ => RescanScope::Names,
                };
                let mode = RescanMode { scope, event: event.unwrap_or_default(), events_missed };
                touched |= self.rescan_entry(folder, known, key, mode);
            }
        }
        if touched {
            self.emit(Change::Updated, &folder.logical.key);
        }
        if before.is_some_and(|before| before != known.has_files()) {
            self.emit_ancestors_updated(&folder.logical.key);
        }
        if known.stamp.modified != folder.stamp.modified {
            self.emit(Change::Described, &folder.logical.key);
        }
        known.stamp = folder.stamp.clone();
        Observation::Present(())
    }

    /// Scans one name, whether it is a file or a directory now. Returns whether its directory must be reported as
    /// updated.
    fn rescan_name(
        &mut self,
        folder: &OpenFolder,
        known: &mut SnapshotDirectory,
        segment: &str,
        event: EntryEvent,
    ) -> bool {
        let file = segment;
        let directory = &*format!("{segment}/");
        let entry = self.tree.entry(folder, segment);
        let (is, is_not) = match self.observe(&folder.logical.key, segment, entry) {
            Observation::Present((_, true)) => (directory, file),
            Observation::Present((_, false)) => (file, directory),
            Observation::Absent => {
                let was_known =
                    self.remove_entry(folder, known, file) | self.remove_entry(folder, known, directory);
                if !was_known {
                    self.mark_misspelled(folder, segment);
                }
                return was_known;
            }
            Observation::Unknown => return false,
        };
        let mode = RescanMode { scope: RescanScope::Entries, event, events_missed: false };
        self.remove_entry(folder, known, is_not) | self.rescan_entry(folder, known, is, mode)
    }

    /// Scans a visible entry. Returns whether its directory must be reported as updated.
    fn rescan_entry(
        &mut self,
        folder: &OpenFolder,
        known: &mut SnapshotDirectory,
        key: &str,
        mode: RescanMode,
    ) -> bool {
        match key.ends_with('/') {
            true => self.rescan_directory(folder, known, key, mode),
            false => self.rescan_file(folder, known, key, mode),
        }
    }

    /// Scans a file. Returns whether its directory must be reported as updated.
    fn rescan_file(
        &mut self,
        folder: &OpenFolder,
        known: &mut SnapshotDirectory,
        key: &str,
        mode: RescanMode,
    ) -> bool {
        let entry = walk::file_entry(self.tree, folder, key);
        let entry = match self.observe(&folder.logical.key, key, entry) {
            Observation::Present(Some(entry)) => entry,
            Observation::Present(None) | Observation::Absent => return self.remove_entry(folder, known, key),
            Observation::Unknown => return false,
        };
        let now = entry.stamp;
        match known.entries.get_mut(key) {
            Some(SnapshotEntry::File(before)) => {
                let suspected = mode.events_missed || mode.event >= EntryEvent::Modified;
                if *before == now && !(suspected && now.may_hide_a_change(self.since)) {
                    return false;
                }
                *before = now;
                self.emit(Change::Updated, &entry.key);
                self.emit(Change::Described, &entry.key);
            }
            _ => {
                known.entries.insert(key.into(), SnapshotEntry::File(now));
                self.emit(Change::Added, &entry.key);
            }
        }
        true
    }

    /// Scans a subdirectory. Returns whether its parent must be reported as updated.
    fn rescan_directory(
        &mut self,
        folder: &OpenFolder,
        known: &mut SnapshotDirectory,
        key: &str,
        mode: RescanMode,
    ) -> bool {
        let opened = self.open_directory(folder, key);
        let child = match self.observe(&folder.logical.key, key, opened) {
            Observation::Present(child) => child,
            Observation::Absent => return self.remove_entry(folder, known, key),
            Observation::Unknown => return false,
        };
        let Some(SnapshotEntry::Directory(before)) = known.entries.get_mut(key) else {
            let Some(directory) = self.new_directory(&child) else { return false };
            self.emit_added(&child.logical.key, &directory);
            known.entries.insert(key.into(), SnapshotEntry::Directory(Box::new(directory)));
            return true;
        };
        let replaced = mode.event == EntryEvent::Replaced || before.stamp.file_id != child.stamp.file_id;
        let scope = if replaced { RescanScope::Subtree } else { mode.scope };
        let dirty = DirtyDirectory { scope, ..DirtyDirectory::default() };
        match self.compare(&child, before, &dirty, mode.events_missed || replaced) {
            Observation::Absent => self.remove_entry(folder, known, key),
            Observation::Present(()) | Observation::Unknown => false,
        }
    }

    /// Scans a directory that is not in the snapshot of the last scan, and everything below it. `None` if it cannot be
    /// read or the stream was dropped.
    fn new_directory(&mut self, folder: &OpenFolder) -> Option<SnapshotDirectory> {
        // The stream may have been dropped, and the first scan can take long.
        if self.pending.is_closed() {
            return None;
        }
        let names = self.tree.names(folder);
        let Observation::Present(names) = self.observe(&folder.logical.key, "", names) else {
            self.events.remove(&folder.logical.key);
            return None;
        };
        let mut entries = Vec::with_capacity(names.len());
        for key in names.iter() {
            let node = match key.ends_with('/') {
                true => self.new_child(folder, key).map(|child| SnapshotEntry::Directory(Box::new(child))),
                false => {
                    let entry = walk::file_entry(self.tree, folder, key);
                    match self.observe(&folder.logical.key, key, entry) {
                        Observation::Present(entry) => entry.map(|entry| SnapshotEntry::File(entry.stamp)),
                        Observation::Absent | Observation::Unknown => None,
                    }
                }
            };
            entries.extend(node.map(|node| (key.into(), node)));
        }
        // Collecting a map from a sorted vector fills its nodes, which saves memory.
        Some(SnapshotDirectory { stamp: folder.stamp.clone(), entries: entries.into_iter().collect() })
    }

    fn new_child(&mut self, folder: &OpenFolder, key: &str) -> Option<SnapshotDirectory> {
        let opened = self.open_directory(folder, key);
        match self.observe(&folder.logical.key, key, opened) {
            Observation::Present(child) => self.new_directory(&child),
            Observation::Absent | Observation::Unknown => None,
        }
    }

    fn open_root(&mut self) -> io::Result<Arc<OpenFolder>> {
        let tree = self.tree;
        self.open(|| tree.root().map(Arc::new))
    }

    fn open_directory(&mut self, folder: &OpenFolder, key: &str) -> io::Result<Arc<OpenFolder>> {
        let tree = self.tree;
        let segment = key.trim_end_matches('/');
        let name = name::from_segment(segment).ok_or(io::ErrorKind::NotFound)?;
        self.open(|| tree.open_child(folder, segment, &name))
    }

    /// Opens a directory, and watches it before anything in it is read.
    fn open(&mut self, open: impl Fn() -> io::Result<Arc<OpenFolder>>) -> io::Result<Arc<OpenFolder>> {
        let folder = open()?;
        match self.events.add(&folder)? {
            // The watch is new, but the stamp and the ignore files were read before it was in place: they are read
            // again.
            true => open(),
            false => Ok(folder),
        }
    }

    /// Classifies the result of reading `name` in the directory `key`, and remembers what must be tried again.
    fn observe<T>(&mut self, key: &str, name: &str, result: io::Result<T>) -> Observation<T> {
        let cause = match result {
            Ok(value) => return Observation::Present(value),
            Err(cause) => cause,
        };
        if ignore_files::hides_folder(&cause) {
            self.hidden.push(format!("{key}{name}"));
        }
        let Err(cause) = walk::skip_unreadable(self.tree, &format!("{key}{name}"), cause) else {
            return Observation::Absent;
        };
        tracing::debug!(path = format!("{key}{name}"), %cause, "cannot be scanned now");
        self.retry = true;
        Observation::Unknown
    }

    /// Removes an entry from the snapshot. Returns whether the snapshot contained it.
    fn remove_entry(&mut self, folder: &OpenFolder, known: &mut SnapshotDirectory, key: &str) -> bool {
        let Some(node) = known.entries.remove(key) else { return false };
        self.emit_entry_removed(&format!("{}{key}", folder.logical.key), &node);
        true
    }

    fn emit_removed(&mut self, key: &str, directory: &SnapshotDirectory) {
        self.events.remove(key);
        for (name, node) in &directory.entries {
            self.emit_entry_removed(&format!("{key}{name}"), node);
        }
        self.emit(Change::Removed, key);
    }

    fn emit_entry_removed(&mut self, key: &str, node: &SnapshotEntry) {
        match node {
            SnapshotEntry::File(_) => self.emit(Change::Removed, key),
            SnapshotEntry::Directory(directory) => self.emit_removed(key, directory),
        }
    }

    fn emit_added(&self, key: &str, directory: &SnapshotDirectory) {
        self.emit(Change::Added, key);
        for (name, node) in &directory.entries {
            let key = format!("{key}{name}");
            match node {
                SnapshotEntry::File(_) => self.emit(Change::Added, &key),
                SnapshotEntry::Directory(directory) => self.emit_added(&key, directory),
            }
        }
    }

    /// Reports all ancestors of a directory as updated, after it got its first file or lost its last one. With
    /// `include`, a listing contains only directories with a file below them.
    fn emit_ancestors_updated(&self, key: &str) {
        let mut rest = key;
        while let Some(end) = rest.strip_suffix('/') {
            rest = &key[..end.rfind('/').map_or(0, |slash| slash + 1)];
            self.emit(Change::Updated, rest);
        }
    }

    fn emit(&self, change: fn(Uri) -> Change, key: &str) {
        if key.is_empty() && !self.tree.filter.shows_root() {
            return;
        }
        if let Ok(uri) = self.root_uri.below(key) {
            self.pending.put(change(uri));
        }
    }
}
