//! What was there at the last look.

use std::collections::BTreeMap;

use super::super::stamp::StatStamp;

/// A directory that is shown.
pub(super) struct SnapshotDirectory {
    pub(super) stamp: StatStamp,
    /// By name as it stands in URIs; those of directories end with a slash.
    pub(super) entries: BTreeMap<Box<str>, SnapshotEntry>,
}

pub(super) enum SnapshotEntry {
    File(StatStamp),
    Directory(Box<SnapshotDirectory>),
}

impl SnapshotDirectory {
    /// The directory of a key such as `guide/deep/`, which is taken from this one.
    pub(super) fn find(&mut self, key: &str) -> Option<&mut Self> {
        let mut directory = self;
        for name in key.split_inclusive('/') {
            match directory.entries.get_mut(name) {
                Some(SnapshotEntry::Directory(below)) => directory = below,
                _ => return None,
            }
        }
        Some(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotEntry;

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<(Box<str>, SnapshotEntry)>() <= 80);
    }
}
