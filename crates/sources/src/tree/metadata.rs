//! File metadata, as `stat` returns it.
//!
//! On Linux this module calls `stat` itself, because the conversion in cap-std panics for the earliest possible
//! modification time, which every user can set.

use std::ffi::OsStr;
use std::io;

use cap_std::fs::{Dir, File};

#[cfg(not(target_os = "linux"))]
pub(crate) use cap_std::fs::Metadata;

/// The result of `stat` for a file or directory.
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

/// The metadata of an open directory.
#[cfg(target_os = "linux")]
pub(super) fn of_dir(dir: &Dir) -> io::Result<Metadata> {
    Ok(Metadata(rustix::fs::fstat(dir)?))
}

/// The metadata of an open file.
#[cfg(target_os = "linux")]
pub(super) fn of_file(file: &File) -> io::Result<Metadata> {
    Ok(Metadata(rustix::fs::fstat(file)?))
}

/// The metadata of a directory entry; for a symbolic link, that of the link itself. The name must be a single path
/// component.
#[cfg(target_os = "linux")]
pub(super) fn of_entry(dir: &Dir, name: &OsStr) -> io::Result<Metadata> {
    use rustix::fs::{AtFlags, statat};
    let bytes = name.as_encoded_bytes();
    // Checked here as well, because nothing else confines this system call to the directory.
    if bytes.is_empty() || bytes == b".." || bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(super::root::missing());
    }
    Ok(Metadata(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// The metadata of an open directory.
#[cfg(not(target_os = "linux"))]
pub(super) fn of_dir(dir: &Dir) -> io::Result<Metadata> {
    dir.dir_metadata()
}

/// The metadata of an open file.
#[cfg(not(target_os = "linux"))]
pub(super) fn of_file(file: &File) -> io::Result<Metadata> {
    file.metadata()
}

/// The metadata of a directory entry; for a symbolic link, that of the link itself. The name must be a single path
/// component.
#[cfg(not(target_os = "linux"))]
pub(super) fn of_entry(dir: &Dir, name: &OsStr) -> io::Result<Metadata> {
    dir.symlink_metadata(name)
}
