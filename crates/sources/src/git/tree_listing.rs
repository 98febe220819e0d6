//! A directory sorted by percent-encoded name, which is the order of its URIs and differs from git's order.

use gix::objs::tree::EntryKind;
use libris_core::Uri;

use super::repo::{NamedEntry, TreeEntry};

/// The entries of a tree, sorted by key.
pub(super) struct TreeListing {
    entries: Box<[(Box<str>, TreeEntry)]>,
    /// The memory of the entries, in bytes.
    bytes: u64,
}

impl TreeListing {
    pub(super) fn new(entries: Vec<NamedEntry>) -> Self {
        let mut entries: Vec<_> =
            entries.into_iter().map(|(name, entry)| (key(&name, entry.kind), entry)).collect();
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        // A tree that git did not write may contain a name twice.
        entries.dedup_by(|one, other| one.0 == other.0);
        let size = |(key, _): &(Box<str>, TreeEntry)| (size_of::<(Box<str>, TreeEntry)>() + key.len()) as u64;
        Self { bytes: entries.iter().map(size).sum(), entries: entries.into() }
    }

    /// The entries by key. A key is the percent-encoded name, with a trailing `/` for a directory.
    pub(super) fn entries(&self) -> &[(Box<str>, TreeEntry)] {
        &self.entries
    }

    /// The index of the first entry after a key.
    pub(super) fn after(&self, key: &str) -> usize {
        self.entries.partition_point(|(other, _)| **other <= *key)
    }
}

fn key(name: &[u8], kind: EntryKind) -> Box<str> {
    let mut key = Uri::encode_segment(name);
    if kind == EntryKind::Tree {
        key.push('/');
    }
    key.into()
}

/// The decoded file name of a key.
pub(super) fn name(key: &str) -> Vec<u8> {
    Uri::decode_segment(key.trim_end_matches('/')).unwrap_or_default()
}

/// Weighs a directory by its size in bytes.
#[derive(Clone)]
pub(super) struct TreeListingWeight;

impl quick_cache::Weighter<gix::ObjectId, std::sync::Arc<TreeListing>> for TreeListingWeight {
    fn weight(&self, _: &gix::ObjectId, directory: &std::sync::Arc<TreeListing>) -> u64 {
        directory.bytes + 1
    }
}

#[cfg(test)]
mod tests {
    use super::{TreeListing, name};
    use crate::git::repo::TreeEntry;
    use gix::objs::tree::EntryKind;

    #[test]
    fn keys_are_in_the_order_of_uris() {
        let id = gix::ObjectId::null(gix::hash::Kind::Sha1);
        let entry = |name: &[u8], kind| (name.to_vec(), TreeEntry { kind, id });
        // In git's order: a space before `!`, and the directory `a` as if it were `a/`.
        let names = [
            entry(b"a b", EntryKind::Blob),
            entry(b"a!", EntryKind::Blob),
            entry(b"a.txt", EntryKind::Blob),
            entry(b"a", EntryKind::Tree),
            entry(b"a0", EntryKind::Blob),
            entry(b"\xff", EntryKind::Blob),
            entry(b"\xff", EntryKind::Blob),
        ];
        let directory = TreeListing::new(names.into());
        let keys: Vec<_> = directory.entries().iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["%FF", "a!", "a%20b", "a.txt", "a/", "a0"]);
        assert_eq!(name("a%20b"), b"a b");
        assert_eq!(name("a/"), b"a");
        assert_eq!((directory.after("a/"), directory.after("a/x"), directory.after("")), (5, 5, 0));
    }
}
