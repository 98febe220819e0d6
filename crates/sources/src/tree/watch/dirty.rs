//! The set of files and directories to scan again, collected from events.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use super::super::filter::IgnoreRules;
use super::super::name;

/// The maximum number of names in the set. Beyond that, the whole tree is scanned as after lost events: this costs
/// less, and the set no longer says which entries changed.
const MAX_NAMES: usize = 100_000;

/// The files and directories to scan again.
#[derive(Default)]
pub(super) struct DirtySet {
    /// By key, so that a directory precedes its subdirectories.
    pub(super) folders: BTreeMap<Box<str>, DirtyDirectory>,
    /// The number of names in all directories.
    names: usize,
    /// Whether to scan the whole tree.
    pub(super) all: bool,
    /// Whether some changes may have had no event, so that a file with an unchanged stamp may have changed.
    pub(super) lost: bool,
}

/// The entries of one directory to scan again.
#[derive(Default)]
pub(super) struct DirtyDirectory {
    pub(super) scope: RescanScope,
    /// The names as URI segments, without a slash.
    pub(super) names: BTreeMap<Box<str>, EntryEvent>,
    /// Whether there was an event of an entry that is not known by name, so that any entry may have changed.
    pub(super) unnamed: bool,
}

/// How much of a directory to scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RescanScope {
    /// Only the given names.
    #[default]
    Names,
    /// All entries of the directory.
    Entries,
    /// The whole subtree.
    Subtree,
}

/// What is known about an entry from an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EntryEvent {
    /// It may have changed; if it has, its stamp differs.
    #[default]
    Touched,
    /// It has changed, even if its stamp does not differ.
    Modified,
    /// Another file or directory may have its name now.
    Replaced,
}

impl DirtySet {
    pub(super) fn is_empty(&self) -> bool {
        self.folders.is_empty() && !self.all
    }

    /// Marks an entry of a directory.
    pub(super) fn mark_entry(&mut self, key: &str, name: &OsStr, event: EntryEvent) {
        match (key, name.to_str()) {
            // Nothing in `.git` is visible, but the rules in `.git/info/exclude` can hide any other file.
            ("", Some(".git")) | (".git/", Some("info")) | (".git/info/", Some("exclude")) => {
                self.mark_subtree("")
            }
            (key, _) if key.starts_with(".git/") => {}
            (key, text) => {
                if text.is_some_and(|text| IgnoreRules::FILES.contains(&text)) {
                    self.mark_subtree(key);
                }
                if let Some(segment) = name::to_segment(name) {
                    self.mark_name(key, segment.into(), event);
                }
            }
        }
    }

    /// Marks a directory as an entry of its parent. For the watched directories in `.git`, which are not visible, marks
    /// the whole tree, because its ignore rules may have changed. The root has no parent: marks its entries, or the
    /// whole tree if another directory has replaced the root.
    pub(super) fn mark_directory(&mut self, key: &str, event: EntryEvent) {
        match split(key) {
            Some(_) if key.starts_with(".git/") => self.mark_subtree(""),
            Some((parent, segment)) => self.mark_name(parent, segment.into(), event),
            None if event == EntryEvent::Replaced => self.mark_all(),
            None => self.widen("", RescanScope::Entries),
        }
    }

    /// Marks a whole subtree, because its visibility may have changed.
    pub(super) fn mark_subtree(&mut self, key: &str) {
        self.widen(key, RescanScope::Subtree);
    }

    /// Marks a directory because of an event that spells the name of an entry differently from the listing.
    pub(super) fn mark_unnamed(&mut self, key: &str, scope: RescanScope) {
        self.widen(key, scope);
        if let Some(directory) = self.folders.get_mut(key) {
            directory.unnamed = true;
        }
    }

    pub(super) fn mark_all(&mut self) {
        self.all = true;
    }

    /// Marks everything, including files with an unchanged stamp, because it is not known which entries changed.
    pub(super) fn mark_lost(&mut self) {
        *self = Self { all: true, lost: true, ..Self::default() };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn merge(&mut self, other: Self) {
        if other.lost {
            return self.mark_lost();
        }
        self.all |= other.all;
        for (key, directory) in other.folders {
            self.widen(&key, directory.scope);
            if directory.unnamed {
                self.mark_unnamed(&key, directory.scope);
            }
            for (segment, event) in directory.names {
                self.mark_name(&key, segment, event);
            }
        }
    }

    /// Widens the scope of the scan of a directory.
    fn widen(&mut self, key: &str, scope: RescanScope) {
        if !self.lost {
            let directory = self.folders.entry(key.into()).or_default();
            directory.scope = directory.scope.max(scope);
        }
    }

    fn mark_name(&mut self, key: &str, segment: Box<str>, event: EntryEvent) {
        if self.lost {
            return;
        }
        if !self.folders.contains_key(key) {
            self.folders.insert(key.into(), DirtyDirectory::default());
        }
        let Some(directory) = self.folders.get_mut(key) else { return };
        let known = directory.names.len();
        let known_event = directory.names.entry(segment).or_default();
        *known_event = event.max(*known_event);
        self.names += directory.names.len() - known;
        if self.names > MAX_NAMES {
            self.mark_lost();
        }
    }
}

/// The key of the parent directory and the name in it; `None` for the root.
fn split(key: &str) -> Option<(&str, &str)> {
    let path = key.strip_suffix('/')?;
    Some(path.rfind('/').map_or(("", path), |slash| path.split_at(slash + 1)))
}
