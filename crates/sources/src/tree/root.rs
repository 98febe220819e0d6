//! The open root folder: the one place that touches the file system, and never outside of the root.
//!
//! The operating system resolves every name relative to an open handle, so no check of ours can be
//! raced: what a name leads to is decided in the same call that opens it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(not(target_os = "linux"))]
use cap_fs_ext::MetadataExt;
use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, File, OpenOptions};

use super::metadata::{self, Metadata};
use super::root_path::RootPath;
use super::stamp::StatStamp;

/// Whether file systems of this platform are wont to take a name for another that differs in case.
pub(super) const CASE_INSENSITIVE: bool = cfg!(any(windows, target_vendor = "apple"));

/// The folder that is served.
pub(crate) struct Root {
    path: RootPath,
    dir: Mutex<Arc<Dir>>,
}

/// A directory below the root that is open. Nothing in it is followed where it is a link.
#[derive(Clone)]
pub(crate) struct DirectoryHandle {
    root: Arc<Dir>,
    dir: Arc<Dir>,
}

/// What has the name of a file of the source's own concern.
pub(super) enum ControlFile {
    Missing,
    Regular(File, Metadata),
    /// A directory, a link, a pipe or the like.
    Other,
}

/// A file that was found by its path from the root, of which only the stamp is asked again.
pub(crate) struct PathFromRoot {
    root: Arc<Dir>,
    path: PathBuf,
}

impl PathFromRoot {
    /// The stamp of what is there now. Links before the last name are followed, so none may be on the way.
    #[cfg(target_os = "linux")]
    pub(super) fn stamp(&self) -> io::Result<StatStamp> {
        use rustix::fs::{AtFlags, statat};
        Ok(StatStamp::of_stat(&statat(&*self.root, &self.path, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// The stamp of what is there now.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn stamp(&self) -> io::Result<StatStamp> {
        Ok(StatStamp::of(&self.root.symlink_metadata(&self.path)?))
    }
}

impl Root {
    pub(super) fn path(&self) -> &Path {
        self.path.as_path()
    }

    /// Opens the folder at an absolute path.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let (path, dir) = RootPath::open(path)?;
        Ok(Self { path, dir: Mutex::new(Arc::new(dir)) })
    }

    pub(crate) fn handle(&self) -> io::Result<DirectoryHandle> {
        let mut dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner);
        // A folder that was deleted and made anew, as build output is, is another one to the system.
        if !self.is_at_path(&dir)? {
            *dir = Arc::new(self.path.reopen()?);
        }
        Ok(DirectoryHandle { root: Arc::clone(&dir), dir: Arc::clone(&dir) })
    }

    /// Whether the directory that is open is still the one at the path. Links are followed here, which can
    /// only lead to the same directory or to another, and another is not served because of this.
    #[cfg(unix)]
    fn is_at_path(&self, dir: &Dir) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt as _;
        let opened = metadata::of_dir(dir)?;
        match std::fs::metadata(self.path()) {
            Ok(found) => Ok(found.dev() == opened.dev() && found.ino() == opened.ino()),
            // The way to it may be closed to us by now.
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => Ok(opened.nlink() != 0),
            Err(cause) => Err(cause),
        }
    }

    #[cfg(not(unix))]
    fn is_at_path(&self, dir: &Dir) -> io::Result<bool> {
        Ok(metadata::of_dir(dir)?.nlink() != 0)
    }
}

impl DirectoryHandle {
    /// The root that this directory is below.
    pub(super) fn root(&self) -> Self {
        Self { root: Arc::clone(&self.root), dir: Arc::clone(&self.root) }
    }

    /// The directory of this name. The name must be a single one.
    pub(super) fn open_child(&self, name: &OsStr) -> io::Result<Self> {
        let dir = self.dir.open_dir_nofollow(name)?;
        Ok(Self { root: Arc::clone(&self.root), dir: Arc::new(dir) })
    }

    /// Where a path from the root leads when all links on it are followed, again from the root. What is
    /// there by then must be opened without following any more.
    pub(super) fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.root.canonicalize(path)
    }

    /// The file of this path from the root.
    pub(crate) fn path_from_root(&self, path: PathBuf) -> PathFromRoot {
        PathFromRoot { root: Arc::clone(&self.root), path }
    }

    /// Whether two are the same directory because they were opened as one.
    pub(super) fn is_same_handle(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.dir, &other.dir)
    }

    /// What is known about this directory.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        metadata::of_dir(&self.dir)
    }

    /// What is known about an entry.
    pub(super) fn stat(&self, name: &OsStr) -> io::Result<Metadata> {
        metadata::of_entry(&self.dir, name)
    }

    /// Opens a regular file. Anything else is not found.
    pub(crate) fn open(&self, name: &OsStr) -> io::Result<(File, Metadata)> {
        open(&self.dir, name)
    }

    /// Fails where the regular file of this name could not be opened for want of a right.
    pub(super) fn check_readable(&self, name: &OsStr, metadata: &Metadata) -> io::Result<()> {
        if is_world_readable(metadata) || has_permission(&self.dir, name, Permission::Read) {
            Ok(())
        } else {
            self.open(name).map(drop)
        }
    }

    /// Fails where this directory could not be listed, or not entered, for want of a right.
    pub(super) fn check_listable(&self) -> io::Result<()> {
        let itself = OsStr::new(".");
        if has_permission(&self.dir, itself, Permission::ReadAndEnter) {
            return Ok(());
        }
        self.dir.entries()?;
        metadata::of_entry(&self.dir, itself).map(drop)
    }

    /// Opens a file of the source's own concern, below this directory; links are not followed.
    pub(super) fn open_control_file(&self, path: &[&str]) -> io::Result<ControlFile> {
        let Some((name, folders)) = path.split_last() else { return Ok(ControlFile::Missing) };
        let dir = match self.open_control_directory(folders) {
            Err(cause) if is_missing(&cause) => return Ok(ControlFile::Missing),
            dir => dir?,
        };
        match metadata::of_entry(&dir, name.as_ref()) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Ok(ControlFile::Other),
            Err(cause) if is_missing(&cause) => return Ok(ControlFile::Missing),
            Err(cause) => return Err(cause),
        }
        match open_regular(&dir, name.as_ref()) {
            Ok(Some((file, metadata))) => Ok(ControlFile::Regular(file, metadata)),
            Ok(None) => Ok(ControlFile::Other),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(ControlFile::Missing),
            // Something else has taken its place.
            Err(cause) if is_missing(&cause) => Ok(ControlFile::Other),
            Err(cause) => Err(cause),
        }
    }

    /// Opens a directory of the source's own concern, below this one; links are not followed.
    pub(super) fn open_control_directory(&self, path: &[&str]) -> io::Result<Arc<Dir>> {
        let mut dir = Arc::clone(&self.dir);
        for folder in path {
            dir = Arc::new(dir.open_dir_nofollow(folder)?);
        }
        Ok(dir)
    }

    /// Whether an entry has exactly this name, where the file system would also take another for it.
    pub(super) fn has_exact_name(&self, name: &OsStr) -> io::Result<bool> {
        if !CASE_INSENSITIVE {
            return Ok(true);
        }
        for entry in self.entries()? {
            if entry?.file_name() == name {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The names in this directory and what they seem to be.
    pub(super) fn entries(&self) -> io::Result<cap_std::fs::ReadDir> {
        self.dir.entries()
    }
}

#[cfg(target_os = "linux")]
impl std::os::fd::AsFd for DirectoryHandle {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// What a right is asked for.
#[derive(Clone, Copy)]
enum Permission {
    Read,
    ReadAndEnter,
}

/// Whether everybody may read a file, as most may.
#[cfg(unix)]
fn is_world_readable(metadata: &Metadata) -> bool {
    #[cfg(not(target_os = "linux"))]
    use cap_std::fs::MetadataExt;
    metadata.mode() & 0o444 == 0o444
}

#[cfg(not(unix))]
fn is_world_readable(_metadata: &Metadata) -> bool {
    false
}

/// Whether the system says that we have a right. Where it says no, it may have forgotten what we are
/// capable of beyond the rights of our user: trying is the only way to know.
#[cfg(unix)]
fn has_permission(dir: &Dir, name: &OsStr, permission: Permission) -> bool {
    use rustix::fs::{Access, AtFlags, accessat};
    let access = match permission {
        Permission::Read => Access::READ_OK,
        Permission::ReadAndEnter => Access::READ_OK | Access::EXEC_OK,
    };
    accessat(dir, name, access, AtFlags::empty()).is_ok()
}

#[cfg(not(unix))]
fn has_permission(_dir: &Dir, _name: &OsStr, _right: Permission) -> bool {
    false
}

fn open(dir: &Dir, name: &OsStr) -> io::Result<(File, Metadata)> {
    // Asked before, because opening a device can do something.
    if !metadata::of_entry(dir, name)?.is_file() {
        return Err(missing());
    }
    open_regular(dir, name)?.ok_or_else(missing)
}

/// Opens a file that was a regular one when it was looked at; `None` where it no longer is.
fn open_regular(dir: &Dir, name: &OsStr) -> io::Result<Option<(File, Metadata)>> {
    let mut reading = OpenOptions::new();
    // A named pipe would otherwise wait for somebody to write.
    reading.read(true).nonblock(true).follow(FollowSymlinks::No);
    let file = dir.open_with(name, &reading)?;
    let metadata = metadata::of_file(&file)?;
    Ok(metadata.is_file().then_some((file, metadata)))
}

/// Nothing is there, or nothing that is served.
pub(super) fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// Whether an error means that nothing of ours is at a name, rather than that the system failed.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidFilename => true,
        // A name that cannot be one is turned down before the system is asked, except on Windows.
        io::ErrorKind::InvalidInput => cfg!(windows) || error.raw_os_error().is_none(),
        // What leads out of the root is denied by cap-std, not by the system.
        io::ErrorKind::PermissionDenied => error.raw_os_error().is_none(),
        _ => is_link_or_socket(error),
    }
}

/// Refused by the system because a name was a link, or a socket, after all.
#[cfg(unix)]
fn is_link_or_socket(error: &io::Error) -> bool {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::LOOP | Errno::NXIO) => true,
        // What Linux says of other things, other systems say of sockets.
        Some(Errno::OPNOTSUPP) => cfg!(not(target_os = "linux")),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_link_or_socket(_error: &io::Error) -> bool {
    false
}
