//! What was there at the last look.

use std::collections::BTreeMap;

use super::super::stamp::Stamp;

/// A directory that is shown.
pub(super) struct Directory {
    pub(super) stamp: Stamp,
    /// By name as it stands in URIs; those of directories end with a slash.
    pub(super) entries: BTreeMap<Box<str>, Node>,
}

pub(super) enum Node {
    File(Stamp),
    Directory(Box<Directory>),
}

impl Directory {
    /// The directory of a key such as `guide/deep/`, which is taken from this one.
    pub(super) fn find(&mut self, key: &str) -> Option<&mut Self> {
        let mut directory = self;
        for name in key.split_inclusive('/') {
            match directory.entries.get_mut(name) {
                Some(Node::Directory(below)) => directory = below,
                _ => return None,
            }
        }
        Some(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::Node;

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<(Box<str>, Node)>() <= 80);
    }
}
