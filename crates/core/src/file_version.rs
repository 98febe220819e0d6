//! Detects that a configured file must be read again.

use std::path::Path;
use std::time::SystemTime;

/// The metadata by which a change of a file is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersionStamp {
    modified: SystemTime,
    size: u64,
    /// The inode number, which differs if the file was replaced; 0 on systems without one.
    inode: u64,
}

impl FileVersionStamp {
    /// The stamp of the file at a path; `None` if there is no such file, or its metadata cannot be read.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Self { modified: metadata.modified().ok()?, size: metadata.len(), inode })
    }
}

/// The version of a file that was read last, by its stamp `S`.
///
/// A version that could not be read because of an I/O error, such as a lack of file descriptors, remains due: the next
/// version may come much later, and the program must not ignore this one until then, because it may revoke a right.
#[derive(Clone, Debug)]
pub struct FileVersion<S> {
    /// `None` if it must be read again in any case.
    read: Option<S>,
    /// The version that could not be read.
    unreadable: Option<S>,
}

impl<S: PartialEq> FileVersion<S> {
    /// The version that was read when the file had this stamp. The stamp must be taken before the file is read.
    pub fn new(read: S) -> Self {
        Self { read: Some(read), unreadable: None }
    }

    /// Whether the file must be read again if it has this stamp now.
    pub fn is_due(&self, now: &S) -> bool {
        self.read.as_ref() != Some(now)
    }

    /// Records that this version was read, whether or not its contents are valid.
    pub fn set_read(&mut self, version: S) {
        *self = Self::new(version);
    }

    /// Records that this version could not be read, so that it remains due. Returns whether this is its first failure,
    /// which should be reported.
    pub fn set_unreadable(&mut self, version: S) -> bool {
        let is_first = self.unreadable.as_ref() != Some(&version);
        (self.read, self.unreadable) = (None, Some(version));
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::FileVersion;

    #[test]
    fn a_version_that_could_not_be_read_is_due_until_it_was_read() {
        let mut version = FileVersion::new(1);
        assert!(!version.is_due(&1) && version.is_due(&2));
        assert!(version.set_unreadable(2));
        assert!(version.is_due(&2) && !version.set_unreadable(2), "it is reported once");
        assert!(version.set_unreadable(3), "another version is reported too");
        version.set_read(3);
        assert!(!version.is_due(&3));
        assert!(version.set_unreadable(3) && version.is_due(&3), "as after a request to read it again");
    }
}
