//! The open root folder: the one place that touches the file system, and never outside of the root.
//!
//! The operating system resolves every name relative to an open handle, so no check of ours can be
//! raced: what a name leads to is decided in the same call that opens it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cap_fs_ext::{DirExt, FollowSymlinks, MetadataExt, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};

/// Whether symbolic links within the root are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symlinks {
    Follow,
    Refuse,
}

/// The folder that is served.
pub(super) struct Root {
    path: PathBuf,
    symlinks: Symlinks,
    dir: Mutex<Arc<Dir>>,
}

/// A directory below the root that is open.
pub(super) struct Place {
    root: Arc<Dir>,
    dir: Arc<Dir>,
    symlinks: Symlinks,
    /// Taken from the root, and empty for the root itself.
    pub(super) path: PathBuf,
}

impl Root {
    pub(super) fn open(path: &Path, symlinks: Symlinks) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        Ok(Self { path: path.to_owned(), symlinks, dir: Mutex::new(Arc::new(dir)) })
    }

    pub(super) fn place(&self) -> io::Result<Place> {
        let mut dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner);
        // A folder that was deleted and made anew, as build output is, is another one to the system.
        if !self.is_at_path(&dir)? {
            // The path had no links in it when the folder was opened, so one that has is not ours.
            if !std::fs::symlink_metadata(&self.path)?.is_dir() {
                return Err(missing());
            }
            *dir = Arc::new(Dir::open_ambient_dir(&self.path, ambient_authority())?);
        }
        Ok(Place {
            root: Arc::clone(&dir),
            dir: Arc::clone(&dir),
            symlinks: self.symlinks,
            path: PathBuf::new(),
        })
    }

    /// Whether what was opened is still what is at the path.
    #[cfg(unix)]
    fn is_at_path(&self, dir: &Dir) -> io::Result<bool> {
        let opened = dir.dir_metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(found) => Ok(found.dev() == opened.dev() && found.ino() == opened.ino()),
            Err(cause) if is_missing(&cause) => Err(cause),
            // The way to it may be closed to us by now.
            Err(_) => Ok(opened.nlink() != 0),
        }
    }

    #[cfg(not(unix))]
    fn is_at_path(&self, dir: &Dir) -> io::Result<bool> {
        Ok(dir.dir_metadata()?.nlink() != 0)
    }
}

impl Place {
    /// The directory of this name. The name must be a single one.
    pub(super) fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let path = self.path.join(name);
        let dir = match self.symlinks {
            Symlinks::Refuse => self.dir.open_dir_nofollow(name)?,
            // From the root, since a link may lead up and down again.
            Symlinks::Follow => self.root.open_dir(&path)?,
        };
        Ok(Self { root: Arc::clone(&self.root), dir: Arc::new(dir), symlinks: self.symlinks, path })
    }

    /// What is known about this directory.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.dir.dir_metadata()
    }

    /// What is known about an entry, or about what it links to where links are followed.
    pub(super) fn stat(&self, name: &OsStr) -> io::Result<Metadata> {
        match self.symlinks {
            Symlinks::Refuse => self.dir.symlink_metadata(name),
            Symlinks::Follow => self.root.metadata(self.path.join(name)),
        }
    }

    /// Opens a regular file. Anything else is not found.
    pub(super) fn open(&self, name: &OsStr) -> io::Result<(File, Metadata)> {
        // Asked before, because opening a device can do something; asked again after, because it may
        // have been swapped in between.
        if !self.stat(name)?.is_file() {
            return Err(missing());
        }
        let file = match self.symlinks {
            Symlinks::Refuse => self.dir.open_with(name, &reading(FollowSymlinks::No))?,
            Symlinks::Follow => self.root.open_with(self.path.join(name), &reading(FollowSymlinks::Yes))?,
        };
        regular(file)
    }

    /// Opens a regular file of the source's own concern, below this directory; links are not followed.
    pub(super) fn open_own(&self, path: &[&str]) -> io::Result<(File, Metadata)> {
        let Some((name, folders)) = path.split_last() else { return Err(missing()) };
        let dir = self.enter_own(folders)?;
        if !dir.symlink_metadata(name)?.is_file() {
            return Err(missing());
        }
        regular(dir.open_with(name, &reading(FollowSymlinks::No))?)
    }

    /// Opens a directory of the source's own concern, below this one; links are not followed.
    pub(super) fn enter_own(&self, path: &[&str]) -> io::Result<Arc<Dir>> {
        let mut dir = Arc::clone(&self.dir);
        for folder in path {
            dir = Arc::new(dir.open_dir_nofollow(folder)?);
        }
        Ok(dir)
    }

    /// The names in this directory and what they seem to be.
    pub(super) fn entries(&self) -> io::Result<cap_std::fs::ReadDir> {
        self.dir.entries()
    }

    pub(super) fn symlinks(&self) -> Symlinks {
        self.symlinks
    }
}

#[cfg(target_os = "linux")]
impl std::os::fd::AsFd for Place {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

fn reading(follow: FollowSymlinks) -> OpenOptions {
    let mut options = OpenOptions::new();
    // A named pipe would otherwise wait for somebody to write.
    options.read(true).nonblock(true).follow(follow);
    options
}

fn regular(file: File) -> io::Result<(File, Metadata)> {
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(missing()) }
}

/// Nothing is there, or nothing that is served.
pub(super) fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// Whether an error means that nothing of ours is at a name, rather than that something went wrong.
pub(super) fn is_missing(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidFilename => true,
        // What leads out of the root is denied by cap-std, not by the system.
        io::ErrorKind::PermissionDenied => error.raw_os_error().is_none(),
        _ => is_link_or_pipe(error),
    }
}

/// Refused by the system because a name was a link, or a socket, after all.
#[cfg(unix)]
fn is_link_or_pipe(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::NXIO | Errno::OPNOTSUPP))
}

#[cfg(not(unix))]
fn is_link_or_pipe(_error: &io::Error) -> bool {
    false
}
