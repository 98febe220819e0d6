//! Where something may have changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use super::super::filter::IgnoreRules;
use super::super::name;

/// How many names are remembered. Beyond, looking at everything costs less.
const MAX_NAMES: usize = 100_000;

/// What is to be looked at again.
#[derive(Default)]
pub(super) struct DirtySet {
    /// Those above before those below.
    pub(super) folders: BTreeMap<Box<str>, DirtyDirectory>,
    names: usize,
    pub(super) all: bool,
    /// Events were lost, so what looks the same may not be.
    pub(super) lost: bool,
}

/// What is to be looked at again in one directory.
#[derive(Default)]
pub(super) struct DirtyDirectory {
    pub(super) scope: RescanScope,
    /// As segments of URIs, without a slash.
    pub(super) names: BTreeMap<Box<str>, EntryEvent>,
}

/// How much of a directory is to be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RescanScope {
    /// Nothing but what is named.
    #[default]
    Names,
    /// All that is directly in it.
    Entries,
    /// All that is below it.
    Subtree,
}

/// What an event says of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EntryEvent {
    /// Something happened to it, which will show.
    #[default]
    Touched,
    /// It is not what it was, even where it looks the same.
    Modified,
    /// There may be another one of its name.
    Replaced,
}

impl DirtySet {
    pub(super) fn is_empty(&self) -> bool {
        self.folders.is_empty() && !self.all
    }

    /// Something happened to an entry of a directory.
    pub(super) fn mark_entry(&mut self, key: &str, name: &OsStr, event: EntryEvent) {
        match (key, name.to_str()) {
            // What is in `.git` is never shown, but it says what else is not.
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

    /// Something happened to a directory.
    pub(super) fn mark_directory(&mut self, key: &str, event: EntryEvent) {
        match split(key) {
            Some(_) if key.starts_with(".git/") => self.mark_subtree(""),
            Some((parent, segment)) => self.mark_name(parent, segment.into(), event),
            None if event == EntryEvent::Replaced => self.mark_all(),
            None => self.widen("", RescanScope::Entries),
        }
    }

    /// What is shown below a directory may be something else now.
    pub(super) fn mark_subtree(&mut self, key: &str) {
        self.widen(key, RescanScope::Subtree);
    }

    pub(super) fn mark_all(&mut self) {
        self.all = true;
    }

    /// Events were lost.
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
            for (segment, event) in directory.names {
                self.mark_name(&key, segment, event);
            }
        }
    }

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

/// The directory that a directory is in, and its name there; `None` for the root.
fn split(key: &str) -> Option<(&str, &str)> {
    let path = key.strip_suffix('/')?;
    Some(path.rfind('/').map_or(("", path), |slash| path.split_at(slash + 1)))
}
