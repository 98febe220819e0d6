//! Directory handles: the only code of the tree that opens files and directories, and never outside the root.
//!
//! Every name is resolved relative to an open handle, and the system call that opens a name fails if it is a symbolic
//! link. So there is no race between a check and its use (TOCTOU).

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(not(target_os = "linux"))]
use cap_fs_ext::MetadataExt;
use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, File, OpenOptions};

use super::metadata::{self, Metadata};
use super::stamp::StatStamp;
use crate::root_path::RootPath;

/// How a file system compares names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameMatching {
    /// By their bytes: an entry has one spelling.
    Exact,
    /// An entry has several spellings: names of another case or Unicode normalisation, and short (8.3) names.
    Lenient,
}

impl NameMatching {
    /// What file systems of this platform usually do.
    pub(super) const PLATFORM: Self =
        if cfg!(any(windows, target_vendor = "apple")) { Self::Lenient } else { Self::Exact };
}

/// The root of the tree: its path, and a handle that is opened again when another directory is at that path.
pub(crate) struct Root {
    path: RootPath,
    dir: Mutex<Arc<Dir>>,
}

/// A handle of an open directory at or below the root. It never follows symbolic links.
#[derive(Clone)]
pub(crate) struct DirectoryHandle {
    root: Arc<Dir>,
    dir: Arc<Dir>,
}

/// The result of opening a control file: a file such as `.gitignore` that the tree itself reads.
pub(super) enum ControlFile {
    Missing,
    Regular(File, Metadata),
    /// A directory, a symbolic link, a named pipe or the like.
    Other,
}

/// A path from the root, for a later `stat` call.
pub(crate) struct PathFromRoot {
    root: Arc<Dir>,
    path: PathBuf,
}

impl PathFromRoot {
    /// The current stamp of the file at the path. Symbolic links before the last name are followed, so the caller
    /// must have proven that there are none.
    #[cfg(target_os = "linux")]
    pub(super) fn stamp(&self) -> io::Result<StatStamp> {
        use rustix::fs::{AtFlags, statat};
        Ok(StatStamp::of_stat(&statat(&*self.root, &self.path, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// The current stamp of the file at the path.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn stamp(&self) -> io::Result<StatStamp> {
        Ok(StatStamp::of(&self.root.symlink_metadata(&self.path)?))
    }
}

impl Root {
    pub(super) fn path(&self) -> &Path {
        self.path.as_path()
    }

    /// Opens the directory at an absolute path.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let (path, dir) = RootPath::open(path)?;
        Ok(Self { path, dir: Mutex::new(Arc::new(dir)) })
    }

    /// A handle of the directory that is at the root path now.
    pub(crate) fn handle(&self) -> io::Result<DirectoryHandle> {
        let mut dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner);
        // A directory that was deleted and created again, such as build output, is another inode.
        if !self.is_at_path(&dir)? {
            *dir = Arc::new(self.path.reopen()?);
        }
        Ok(DirectoryHandle { root: Arc::clone(&dir), dir: Arc::clone(&dir) })
    }

    /// Whether the open directory is still the one at the path. This check may follow symbolic links. If they resolve
    /// to another directory, the caller opens the path again, and that fails if a component has become a symbolic link
    /// since the path was first opened.
    #[cfg(unix)]
    fn is_at_path(&self, dir: &Dir) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt as _;
        let opened = metadata::of_dir(dir)?;
        match std::fs::metadata(self.path()) {
            Ok(found) => Ok(found.dev() == opened.dev() && found.ino() == opened.ino()),
            // An ancestor may have become inaccessible. The open directory stays usable until it is deleted.
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => Ok(opened.nlink() != 0),
            Err(cause) => Err(cause),
        }
    }

    /// Whether the open directory still exists. On this platform, another directory at the path is detected only if the
    /// open one was deleted.
    #[cfg(not(unix))]
    fn is_at_path(&self, dir: &Dir) -> io::Result<bool> {
        Ok(metadata::of_dir(dir)?.nlink() != 0)
    }
}

impl DirectoryHandle {
    /// The handle of the root.
    pub(super) fn root(&self) -> Self {
        Self { root: Arc::clone(&self.root), dir: Arc::clone(&self.root) }
    }

    /// Opens a subdirectory. The name must be a single path component.
    pub(super) fn open_child(&self, name: &OsStr) -> io::Result<Self> {
        let dir = self.dir.open_dir_nofollow(name)?;
        Ok(Self { root: Arc::clone(&self.root), dir: Arc::new(dir) })
    }

    /// Resolves all symbolic links on a path from the root. Returns a path from the root, which must then be opened
    /// without following links, since it may have changed.
    pub(super) fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.root.canonicalize(path)
    }

    /// A path from the root of this handle.
    pub(crate) fn path_from_root(&self, path: PathBuf) -> PathFromRoot {
        PathFromRoot { root: Arc::clone(&self.root), path }
    }

    /// Whether both are clones of one handle.
    pub(super) fn is_same_handle(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.dir, &other.dir)
    }

    /// The result of `fstat` on the directory.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        metadata::of_dir(&self.dir)
    }

    /// The result of `lstat` on an entry.
    pub(super) fn stat(&self, name: &OsStr) -> io::Result<Metadata> {
        metadata::of_entry(&self.dir, name)
    }

    /// Opens a regular file. Anything else is not found.
    pub(crate) fn open(&self, name: &OsStr) -> io::Result<(File, Metadata)> {
        open(&self.dir, name)
    }

    /// Fails if the regular file of this name cannot be opened for lack of permission.
    pub(super) fn check_readable(&self, name: &OsStr, metadata: &Metadata) -> io::Result<()> {
        if is_world_readable(metadata) || has_permission(&self.dir, name, Permission::Read) {
            Ok(())
        } else {
            match self.open(name) {
                // It is there, and can be read once the other program has closed it.
                Err(cause) if is_locked(&cause) => Ok(()),
                opened => opened.map(drop),
            }
        }
    }

    /// Fails if this directory cannot be listed or entered for lack of permission.
    pub(super) fn check_listable(&self) -> io::Result<()> {
        let itself = OsStr::new(".");
        if has_permission(&self.dir, itself, Permission::ReadAndEnter) {
            return Ok(());
        }
        self.dir.entries()?;
        metadata::of_entry(&self.dir, itself).map(drop)
    }

    /// Opens a control file by its path from this directory. Symbolic links are not followed.
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
            // It was replaced by another type of file in between.
            Err(cause) if is_missing(&cause) => Ok(ControlFile::Other),
            Err(cause) => Err(cause),
        }
    }

    /// Opens a directory of control files by its path from this directory. Symbolic links are not followed.
    pub(super) fn open_control_directory(&self, path: &[&str]) -> io::Result<Arc<Dir>> {
        let mut dir = Arc::clone(&self.dir);
        for folder in path {
            dir = Arc::new(dir.open_dir_nofollow(folder)?);
        }
        Ok(dir)
    }

    /// Whether the directory lists an entry of exactly this name. With [lenient](NameMatching::Lenient) names, `stat`
    /// also succeeds for other spellings.
    pub(super) fn lists(&self, name: &OsStr) -> io::Result<bool> {
        for entry in self.entries()? {
            if entry?.file_name() == name {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The directory entries, with the file types that `readdir` reports.
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

/// A permission to check.
#[derive(Clone, Copy)]
enum Permission {
    Read,
    ReadAndEnter,
}

/// Whether everybody may read a file, by its mode bits.
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

/// Whether `access(2)` grants a permission. A refusal is not final: the call checks the real user without the
/// capabilities of the process, such as `CAP_DAC_READ_SEARCH`. The caller must then try to open the file.
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
fn has_permission(_dir: &Dir, _name: &OsStr, _permission: Permission) -> bool {
    false
}

/// Opens a regular file. For any other type of file, fails with an error for which [`is_missing`] is true.
fn open(dir: &Dir, name: &OsStr) -> io::Result<(File, Metadata)> {
    // Checked first, because opening a device can have side effects.
    if !metadata::of_entry(dir, name)?.is_file() {
        return Err(missing());
    }
    open_regular(dir, name)?.ok_or_else(missing)
}

/// Opens a file that was a regular one when it was checked; `None` if it no longer is.
fn open_regular(dir: &Dir, name: &OsStr) -> io::Result<Option<(File, Metadata)>> {
    let mut reading = OpenOptions::new();
    // Opening a named pipe would otherwise block until another process opens it for writing.
    reading.read(true).nonblock(true).follow(FollowSymlinks::No);
    let file = dir.open_with(name, &reading)?;
    let metadata = metadata::of_file(&file)?;
    Ok(metadata.is_file().then_some((file, metadata)))
}

/// The error for a name that does not exist or is not visible.
pub(super) fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// Whether an error means that no visible file has the name, as opposed to a failure of the system.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidFilename => true,
        // An error without an errno is from cap-std, which rejects an invalid name before any system call. On Windows,
        // the system rejects it.
        io::ErrorKind::InvalidInput => cfg!(windows) || error.raw_os_error().is_none(),
        // An error without an errno is from cap-std, which denies paths that lead out of the root.
        io::ErrorKind::PermissionDenied => error.raw_os_error().is_none(),
        _ => is_link_or_socket(error),
    }
}

/// Whether an error means that another program has the file open, or a part of it locked, and does not share it. Only
/// Windows has such locks.
pub(crate) fn is_locked(error: &io::Error) -> bool {
    const SHARING_VIOLATION: i32 = 32;
    const LOCK_VIOLATION: i32 = 33;
    cfg!(windows) && matches!(error.raw_os_error(), Some(SHARING_VIOLATION | LOCK_VIOLATION))
}

/// Whether opening failed because the name was that of a symbolic link or a socket.
#[cfg(unix)]
fn is_link_or_socket(error: &io::Error) -> bool {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::LOOP | Errno::NXIO) => true,
        // Other systems than Linux report this for sockets.
        Some(Errno::OPNOTSUPP) => cfg!(not(target_os = "linux")),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_link_or_socket(_error: &io::Error) -> bool {
    false
}
