//! What the system knows about a file or directory.
//!
//! On Linux it is asked directly. The conversion in cap-std panics for a time of modification that everybody may set:
//! the smallest number of seconds that a file system can hold.

use std::ffi::OsStr;
use std::io;

use cap_std::fs::{Dir, File};

#[cfg(not(target_os = "linux"))]
pub(crate) use cap_std::fs::Metadata;

/// What the system knows about a file or directory.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy)]
pub(crate) struct Metadata(rustix::fs::Stat);

#[cfg(target_os = "linux")]
impl Metadata {
    fn kind(&self) -> rustix::fs::FileType {
        rustix::fs::FileType::from_raw_mode(self.0.st_mode)
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind().is_dir()
    }

    pub(super) fn is_file(&self) -> bool {
        self.kind().is_file()
    }

    pub(super) fn is_symlink(&self) -> bool {
        self.kind().is_symlink()
    }

    /// The size in bytes.
    pub(crate) fn len(&self) -> u64 {
        u64::try_from(self.0.st_size).unwrap_or_default()
    }

    pub(super) fn mode(&self) -> u32 {
        self.0.st_mode
    }

    #[allow(clippy::useless_conversion, reason = "its type depends on the processor")]
    pub(super) fn nlink(&self) -> u64 {
        self.0.st_nlink.into()
    }

    pub(super) fn dev(&self) -> u64 {
        self.0.st_dev
    }

    pub(super) fn ino(&self) -> u64 {
        self.0.st_ino
    }

    pub(super) fn stat(&self) -> &rustix::fs::Stat {
        &self.0
    }
}

/// What is known about a directory that is open.
#[cfg(target_os = "linux")]
pub(super) fn of_dir(dir: &Dir) -> io::Result<Metadata> {
    Ok(Metadata(rustix::fs::fstat(dir)?))
}

/// What is known about a file that is open.
#[cfg(target_os = "linux")]
pub(super) fn of_file(file: &File) -> io::Result<Metadata> {
    Ok(Metadata(rustix::fs::fstat(file)?))
}

/// What is known about an entry of a directory, which is not followed where it is a link. The name must be a single one.
#[cfg(target_os = "linux")]
pub(super) fn of_entry(dir: &Dir, name: &OsStr) -> io::Result<Metadata> {
    use rustix::fs::{AtFlags, statat};
    let bytes = name.as_encoded_bytes();
    // Checked here as well, because nothing else keeps this call below the directory.
    if bytes.is_empty() || bytes == b".." || bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(super::root::missing());
    }
    Ok(Metadata(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// What is known about a directory that is open.
#[cfg(not(target_os = "linux"))]
pub(super) fn of_dir(dir: &Dir) -> io::Result<Metadata> {
    dir.dir_metadata()
}

/// What is known about a file that is open.
#[cfg(not(target_os = "linux"))]
pub(super) fn of_file(file: &File) -> io::Result<Metadata> {
    file.metadata()
}

/// What is known about an entry of a directory, which is not followed where it is a link. The name must be a single one.
#[cfg(not(target_os = "linux"))]
pub(super) fn of_entry(dir: &Dir, name: &OsStr) -> io::Result<Metadata> {
    dir.symlink_metadata(name)
}
