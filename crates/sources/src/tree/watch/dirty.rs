//! Where something may have changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use super::super::filter::Ignored;
use super::super::name;

/// How many names are remembered. Beyond, looking at everything costs less.
const NAMES: usize = 100_000;

/// What is to be looked at again.
#[derive(Default)]
pub(super) struct Dirt {
    /// Those above before those below.
    pub(super) folders: BTreeMap<Box<str>, Patch>,
    names: usize,
    pub(super) everything: bool,
    /// Events were lost, so what looks the same may not be.
    pub(super) lost: bool,
}

/// What is to be looked at again in one directory.
#[derive(Default)]
pub(super) struct Patch {
    pub(super) reach: Reach,
    /// As segments of URIs, without a slash.
    pub(super) names: BTreeMap<Box<str>, Touch>,
}

/// How much of a directory is to be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// Nothing but what is named.
    #[default]
    Names,
    /// All that is directly in it.
    Whole,
    /// All that is below it.
    Below,
}

/// What an event says of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Touch {
    /// Something happened to it, which will show.
    #[default]
    Seen,
    /// It is not what it was, even where it looks the same.
    Changed,
    /// There may be another one of its name.
    Replaced,
}

impl Dirt {
    pub(super) fn is_empty(&self) -> bool {
        self.folders.is_empty() && !self.everything
    }

    /// Something happened to an entry of a directory.
    pub(super) fn entry(&mut self, key: &str, name: &OsStr, touch: Touch) {
        match (key, name.to_str()) {
            // What is in `.git` is never shown, but it says what else is not.
            ("", Some(".git")) | (".git/", Some("info")) | (".git/info/", Some("exclude")) => self.below(""),
            (key, _) if key.starts_with(".git/") => {}
            (key, text) => {
                if text.is_some_and(|text| Ignored::FILES.contains(&text)) {
                    self.below(key);
                }
                if let Some(segment) = name::to_segment(name) {
                    self.segment(key, segment.into(), touch);
                }
            }
        }
    }

    /// Something happened to a directory.
    pub(super) fn directory(&mut self, key: &str, touch: Touch) {
        match split(key) {
            Some(_) if key.starts_with(".git/") => self.below(""),
            Some((parent, segment)) => self.segment(parent, segment.into(), touch),
            None if touch == Touch::Replaced => self.everything(),
            None => self.reach("", Reach::Whole),
        }
    }

    /// What is shown below a directory may be something else now.
    pub(super) fn below(&mut self, key: &str) {
        self.reach(key, Reach::Below);
    }

    pub(super) fn everything(&mut self) {
        self.everything = true;
    }

    /// Events were lost.
    pub(super) fn lose(&mut self) {
        *self = Self { everything: true, lost: true, ..Self::default() };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn merge(&mut self, other: Self) {
        if other.lost {
            return self.lose();
        }
        self.everything |= other.everything;
        for (key, patch) in other.folders {
            self.reach(&key, patch.reach);
            for (segment, touch) in patch.names {
                self.segment(&key, segment, touch);
            }
        }
    }

    fn reach(&mut self, key: &str, reach: Reach) {
        if !self.lost {
            let patch = self.folders.entry(key.into()).or_default();
            patch.reach = patch.reach.max(reach);
        }
    }

    fn segment(&mut self, key: &str, segment: Box<str>, touch: Touch) {
        if self.lost {
            return;
        }
        if !self.folders.contains_key(key) {
            self.folders.insert(key.into(), Patch::default());
        }
        let Some(patch) = self.folders.get_mut(key) else { return };
        let known = patch.names.len();
        let touched = patch.names.entry(segment).or_default();
        *touched = touch.max(*touched);
        self.names += patch.names.len() - known;
        if self.names > NAMES {
            self.lose();
        }
    }
}

/// The directory that a directory is in, and its name there; `None` for the root.
fn split(key: &str) -> Option<(&str, &str)> {
    let path = key.strip_suffix('/')?;
    Some(path.rfind('/').map_or(("", path), |slash| path.split_at(slash + 1)))
}
