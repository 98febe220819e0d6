//! Detecting from `stat` results whether a file or directory has changed.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::metadata::Metadata;

/// The coarsest timestamp granularity of a file system: two seconds on FAT.
const TICK: Duration = Duration::from_secs(2);

/// The coarsest granularity of a file system with fractions of a second: on Linux a timer tick of 10 ms, with some
/// margin.
const FINE_TICK: Duration = Duration::from_millis(50);

/// The part of a `stat` result that changes whenever a file, or the entries of a directory, changes: device, inode,
/// size, mtime and ctime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StatStamp {
    pub(super) file_id: FileId,
    pub(crate) size: u64,
    pub(crate) modified: Option<SystemTime>,
    changed: Option<SystemTime>,
}

/// The identity of a file or directory: device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) device: u64,
    node: u64,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        #[cfg(not(target_os = "linux"))]
        use cap_fs_ext::MetadataExt;
        Self { device: metadata.dev(), node: metadata.ino() }
    }

    /// Whether the path resolves to this file, with all symbolic links followed.
    #[cfg(unix)]
    pub(super) fn is_at(self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).is_ok_and(|found| found.dev() == self.device && found.ino() == self.node)
    }

    /// Always `false`: on this platform, `std::fs::metadata` does not return the identity of a file.
    #[cfg(not(unix))]
    pub(super) fn is_at(self, _path: &Path) -> bool {
        false
    }
}

impl StatStamp {
    #[cfg(target_os = "linux")]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self::of_stat(metadata.stat())
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            file_id: FileId::of(metadata),
            size: metadata.len(),
            modified: metadata.modified().ok().map(|time| time.into_std()),
            changed: changed(metadata),
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn of_stat(stat: &rustix::fs::Stat) -> Self {
        Self {
            file_id: FileId { device: stat.st_dev, node: stat.st_ino },
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether content read at `seen` can be trusted for as long as the stamp stays the same.
    ///
    /// Two changes within one tick of the file system's clock leave the same stamp. So a file that had changed less
    /// than a tick before it was read may have changed again since, without a change of its stamp. Git treats such
    /// entries of its index in the same way, and calls them "racily clean".
    pub(crate) fn settled(&self, seen: SystemTime) -> bool {
        [self.modified, self.changed]
            .into_iter()
            .flatten()
            .max()
            .is_some_and(|latest| latest.checked_add(TICK).is_some_and(|settled| settled < seen))
    }

    /// Whether this stamp identifies the contents that the file has at `seen`: while the stamp is the same, so are the
    /// contents. Needs the ctime, which no process can set, unlike the mtime.
    pub(crate) fn identifies_contents(&self, seen: SystemTime) -> bool {
        self.changed.is_some() && self.settled(seen)
    }

    #[cfg(test)]
    pub(crate) fn for_test(size: u64, changed: Option<SystemTime>) -> Self {
        Self { file_id: FileId { device: 1, node: 1 }, size, modified: changed, changed }
    }

    /// Whether a change after `since` could have left this very stamp.
    ///
    /// This is true in fewer cases than [`settled`](Self::settled) is false: a stamp that is not settled only costs
    /// another read of the file, but `true` here causes a notification, perhaps of a change that has not happened.
    pub(super) fn may_hide_a_change(&self, since: SystemTime) -> bool {
        // A process can set the mtime, but not the ctime.
        let Some(latest) = self.changed.or(self.modified) else { return true };
        // A time without a fraction may come from a file system with a granularity of seconds.
        let whole = latest.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|time| time.subsec_nanos() == 0);
        let tick = if whole { TICK } else { FINE_TICK };
        latest.checked_add(tick).is_none_or(|settled| settled >= since)
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
fn changed(metadata: &Metadata) -> Option<SystemTime> {
    use cap_std::fs::MetadataExt;
    time(metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn changed(_metadata: &Metadata) -> Option<SystemTime> {
    None
}

#[cfg(unix)]
fn time(seconds: i64, nanoseconds: impl TryInto<u32>) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
        _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
    };
    whole?.checked_add(Duration::new(0, nanoseconds.try_into().ok()?))
}
