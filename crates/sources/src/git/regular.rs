//! Reads small files of a repository, such as refs. In a crafted repository, they may be of any type and size.
//!
//! A file is opened with `O_NONBLOCK`, so that a named pipe does not block. Its type and size are taken from the open
//! descriptor, so that the file cannot be replaced between the check and the read.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use libris_core::Error;

/// The contents of a regular file, and its stamp when it was opened.
pub(super) struct RegularFile {
    pub(super) data: Vec<u8>,
    pub(super) stamp: GitFileStamp,
}

/// Why a file could not be read.
#[derive(Debug)]
pub(super) enum UnreadableFile {
    /// The file itself is invalid; other files are not affected.
    Broken(&'static str),
    /// A system call failed, which may be temporary.
    System(io::Error),
}

impl UnreadableFile {
    /// The error for callers; `what` is the path of the file within the repository.
    pub(super) fn into_error(self, what: &str) -> Error {
        match self {
            Self::Broken(why) => Error::Unavailable(format!("`{what}` cannot be read: {why}")),
            Self::System(cause) => Error::failed("read the repository", cause),
        }
    }
}

/// An open regular file. `read` reads as many bytes as the file had when it was opened, even if the file has grown.
pub(super) struct OpenFile {
    file: File,
    metadata: Metadata,
}

impl OpenFile {
    pub(super) fn size(&self) -> u64 {
        self.metadata.len()
    }

    pub(super) fn read(mut self) -> Result<RegularFile, UnreadableFile> {
        let mut data = vec![0; self.metadata.len() as usize];
        self.file.read_exact(&mut data).map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof => UnreadableFile::Broken("it is being written"),
            _ => UnreadableFile::System(cause),
        })?;
        Ok(RegularFile { data, stamp: GitFileStamp::new(&self.metadata) })
    }
}

/// The contents of a file of at most `limit` bytes; `None` if it does not exist or is a directory.
pub(super) fn read(path: &Path, limit: u64) -> Result<Option<RegularFile>, UnreadableFile> {
    open(path, limit)?.map(OpenFile::read).transpose()
}

/// Opens a file of at most `limit` bytes; `None` if it does not exist or is a directory.
pub(super) fn open(path: &Path, limit: u64) -> Result<Option<OpenFile>, UnreadableFile> {
    match open_any(path)? {
        Some((_, metadata)) if metadata.len() > limit => Err(UnreadableFile::Broken("it is too large")),
        found => Ok(found.map(|(file, metadata)| OpenFile { file, metadata })),
    }
}

/// Fails unless the path is missing, a directory, or a regular file of at most `limit` bytes.
pub(super) fn check(path: &Path, limit: u64) -> Result<(), UnreadableFile> {
    match regular(std::fs::metadata(path))? {
        Some(metadata) if metadata.len() > limit => Err(UnreadableFile::Broken("it is too large")),
        _ => Ok(()),
    }
}

fn open_any(path: &Path) -> Result<Option<(File, Metadata)>, UnreadableFile> {
    let file = match options(SymlinkPolicy::Refuse).open(path) {
        // A symbolic link. Its target is checked before it is opened, because opening a device can have side
        // effects. It is checked again after that, because it may have been replaced.
        Err(cause) if is_loop(&cause) => match regular(std::fs::metadata(path))? {
            Some(_) => options(SymlinkPolicy::Follow).open(path),
            None => return Ok(None),
        },
        opened => opened,
    };
    match file {
        Ok(file) => Ok(regular(file.metadata())?.map(|metadata| (file, metadata))),
        // A failed `open` is classified like a failed `stat`.
        Err(cause) => regular(Err(cause)).map(|_| None),
    }
}

enum SymlinkPolicy {
    Follow,
    Refuse,
}

fn options(symlinks: SymlinkPolicy) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        flags.set(OFlags::NOFOLLOW, matches!(symlinks, SymlinkPolicy::Refuse));
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits().cast_signed());
    }
    #[cfg(not(unix))]
    let _ = symlinks;
    options
}

/// The metadata of a regular file; `None` if it is missing or a directory.
fn regular(metadata: io::Result<Metadata>) -> Result<Option<Metadata>, UnreadableFile> {
    match metadata {
        Ok(metadata) if metadata.is_file() => Ok(Some(metadata)),
        Ok(metadata) if metadata.is_dir() => Ok(None),
        Ok(_) => Err(UnreadableFile::Broken("it is not a regular file")),
        Err(cause) if is_absent(&cause) => Ok(None),
        Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            Err(UnreadableFile::Broken("permission is denied"))
        }
        Err(cause) if is_loop(&cause) => Err(UnreadableFile::Broken("it is a symbolic link to itself")),
        Err(cause) => Err(UnreadableFile::System(cause)),
    }
}

/// Whether an error means that the file does not exist. All other errors leave that open.
pub(super) fn is_absent(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename
    )
}

#[cfg(unix)]
fn is_loop(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(not(unix))]
fn is_loop(_: &io::Error) -> bool {
    false
}

/// The coarsest timestamp granularity of a file system: two seconds on FAT.
const TICK: Duration = Duration::from_secs(2);

/// Identifies a version of a file or directory. Git replaces files by renaming and never modifies them in place, so a
/// new version of a file usually has another inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GitFileStamp {
    pub(super) modified: Option<SystemTime>,
    /// The ctime, which a process cannot set.
    changed: (i64, i64),
    size: u64,
    inode: u64,
}

impl GitFileStamp {
    fn new(metadata: &Metadata) -> Self {
        Self {
            modified: metadata.modified().ok(),
            changed: changed(metadata),
            size: metadata.len(),
            inode: inode(metadata),
        }
    }

    /// Whether every change after `now` results in another stamp. If so, an unchanged stamp proves that content
    /// read after `now` is unchanged. False within [`TICK`] of the last change, and on systems without a ctime.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = u64::try_from(seconds).ok().zip(u32::try_from(nanoseconds).ok());
        let changed = changed.filter(|changed| *changed != (0, 0)).and_then(|(seconds, nanoseconds)| {
            SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
        });
        let latest = changed.zip(self.modified).map(|(changed, modified)| changed.max(modified));
        latest.and_then(|latest| latest.checked_add(TICK)).is_some_and(|settled| settled < now)
    }

    /// The stamp of the file at a path; `None` if it does not exist.
    pub(super) fn of(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self::new(&metadata))),
            Err(cause) if is_absent(&cause) => Ok(None),
            Err(cause) => Err(cause),
        }
    }
}

#[cfg(unix)]
fn changed(metadata: &Metadata) -> (i64, i64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn changed(_: &Metadata) -> (i64, i64) {
    (0, 0)
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}
