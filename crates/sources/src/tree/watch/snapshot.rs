//! The visible files and directories, with their stamps, at the last scan.

use std::collections::BTreeMap;

use super::super::stamp::StatStamp;

/// A visible directory.
pub(super) struct SnapshotDirectory {
    pub(super) stamp: StatStamp,
    /// The entries by URI segment; those of directories end with a slash.
    pub(super) entries: BTreeMap<Box<str>, SnapshotEntry>,
}

pub(super) enum SnapshotEntry {
    File(StatStamp),
    Directory(Box<SnapshotDirectory>),
}

impl SnapshotDirectory {
    /// The directory of a key such as `guide/deep/`, relative to this one.
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

    /// Whether there is a file in this directory or below it.
    pub(super) fn has_files(&self) -> bool {
        self.entries.values().any(|entry| match entry {
            SnapshotEntry::File(_) => true,
            SnapshotEntry::Directory(directory) => directory.has_files(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotEntry;

    #[test]
    fn a_snapshot_entry_is_small() {
        assert!(size_of::<(Box<str>, SnapshotEntry)>() <= 80);
    }
}
