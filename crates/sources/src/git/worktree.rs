//! Reads the files of a working tree.
//!
//! Nothing outside of it is opened: each name is resolved relative to an open directory, without following symbolic
//! links. Programs that the repository configures, such as filters and hooks, are not run.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use gix::ObjectId;
use gix::objs::Kind;
use gix::objs::tree::EntryKind;
use libris_core::{Error, Result};

use super::index::{GitIndex, IndexEntry, IndexStat};
use super::patch::{MAX_COMPARED_BYTES, NewContent, is_binary};
use super::regular::is_absent;
use super::repo::{TaskRepository, TreeEntry};
use crate::ignore_patterns::IgnorePatterns;

/// The largest ignore file, in bytes, and the maximum number of patterns in it.
const MAX_IGNORE_BYTES: u64 = 256 * 1024;
const MAX_IGNORE_PATTERNS: usize = 4096;

/// The number of bytes that are hashed between two checks of the deadline.
const HASH_CHUNK: usize = 64 * 1024;

/// An open working tree.
pub(super) struct WorkTree<'a> {
    repository: &'a TaskRepository<'a>,
    root: Arc<Dir>,
    /// The open directories from the root to the last file, each with its name. The next file reuses them.
    open: Vec<(Vec<u8>, Arc<Dir>)>,
    /// Whether the executable bits of files count (`core.fileMode`).
    executable_bits: bool,
    /// Whether carriage returns are removed from text files (`core.autocrlf`).
    converts_lines: bool,
}

/// How a file differs from its version in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkChange {
    Deleted,
    /// The type or the content changed; this is the new type.
    Modified(EntryKind),
}

/// What is at a path in the working tree.
enum WorkFile {
    /// Nothing, or something that git does not track, such as a named pipe.
    Missing,
    Directory,
    /// A symbolic link or a regular file.
    Found(EntryKind, Metadata),
}

impl<'a> WorkTree<'a> {
    pub(super) fn new(repository: &'a TaskRepository<'a>, root: Dir) -> Self {
        let config = repository.config_snapshot();
        let convert = config.string("core.autocrlf").map(|value| value.to_ascii_lowercase());
        let is_true = |value: &[u8]| matches!(value, b"true" | b"input" | b"yes" | b"on" | b"1");
        Self {
            repository,
            root: Arc::new(root),
            open: Vec::new(),
            executable_bits: cfg!(unix) && config.boolean("core.fileMode").unwrap_or(true),
            converts_lines: convert.is_some_and(|value| is_true(&value)),
        }
    }

    /// The root directory.
    pub(super) fn root(&self) -> Arc<Dir> {
        Arc::clone(&self.root)
    }

    /// How a file differs from its version in the index; `None` if it does not, or if git never examines the file.
    pub(super) fn change(&mut self, index: &GitIndex, entry: &IndexEntry) -> Result<Option<WorkChange>> {
        if entry.assume_unchanged {
            return Ok(None);
        }
        self.repository.deadline().check()?;
        let Some((dir, name)) = self.parent(&entry.path)? else { return Ok(Some(WorkChange::Deleted)) };
        let (kind, metadata) = match (self.find(&dir, &name)?, entry.entry.kind) {
            // The files of a submodule are not examined.
            (WorkFile::Directory, EntryKind::Commit) => return Ok(None),
            (WorkFile::Missing | WorkFile::Directory, _) => return Ok(Some(WorkChange::Deleted)),
            (WorkFile::Found(kind, metadata), _) => (self.shown_kind(kind, entry.entry.kind), metadata),
        };
        let modified = Some(WorkChange::Modified(kind));
        if kind != entry.entry.kind || entry.intent_to_add {
            return Ok(modified);
        }
        let recorded = entry.stat;
        if is_settled(index, &recorded) && recorded == stat(&metadata) {
            return Ok(None);
        }
        // As in git, a different size means different content. The index records the size of the file, not of the
        // object, whose line endings may be converted.
        if recorded.size != 0 && recorded.size != metadata.len() as u32 {
            return Ok(modified);
        }
        let is_same = match kind {
            EntryKind::Link => self.hash(&link(&dir, &name)?)? == entry.entry.id,
            _ => self.is_same(&dir, &name, entry.entry.id)?,
        };
        Ok(modified.filter(|_| !is_same))
    }

    /// Whether a regular file has the content of an object.
    fn is_same(&self, dir: &Dir, name: &Path, id: ObjectId) -> Result<bool> {
        let Some((mut file, metadata)) = regular(dir, name).map_err(failed)? else { return Ok(false) };
        let mut hasher = gix::hash::hasher(self.repository.object_hash());
        hasher.update(&gix::objs::encode::loose_header(Kind::Blob, metadata.len()));
        let mut chunk = vec![0; HASH_CHUNK];
        let mut returns = false;
        loop {
            self.repository.deadline().check()?;
            let count = file.read(&mut chunk).map_err(failed)?;
            if count == 0 {
                break;
            }
            hasher.update(&chunk[..count]);
            returns |= chunk[..count].contains(&b'\r');
        }
        if hasher.try_finalize().map_err(super::repo::fault)? == id {
            return Ok(true);
        }
        // Git may have removed the carriage returns when it staged the file, because of `core.autocrlf` or an
        // attribute. Attributes are not read here; instead, the file is compared again without carriage returns.
        if !returns || metadata.len() > MAX_COMPARED_BYTES {
            return Ok(false);
        }
        let _held = self.repository.hold(metadata.len() * 2)?;
        let Some(data) = self.read(dir, name, MAX_COMPARED_BYTES)? else { return Ok(false) };
        Ok(self.hash(&without_carriage_returns(&data))? == id)
    }

    /// The entry and the content that git would store for a modified file, as it is now; `None` if its directory
    /// no longer exists. A file that was removed meanwhile is reported as [`NewContent::TooLarge`].
    pub(super) fn content(
        &mut self,
        entry: &IndexEntry,
        kind: EntryKind,
        limit: u64,
    ) -> Result<Option<(TreeEntry, NewContent)>> {
        let Some((dir, name)) = self.parent(&entry.path)? else { return Ok(None) };
        if kind == EntryKind::Link {
            let data = link(&dir, &name)?;
            let id = self.hash(&data)?;
            return Ok(Some((TreeEntry { kind, id }, NewContent::File(data))));
        }
        let Some(data) = self.read(&dir, &name, limit.min(MAX_COMPARED_BYTES))? else {
            let id = self.repository.object_hash().null();
            return Ok(Some((TreeEntry { kind, id }, NewContent::TooLarge)));
        };
        let convert = self.converts_lines && !is_binary(&data) && !self.has_carriage_returns(entry)?;
        let data = if convert { without_carriage_returns(&data) } else { data };
        let id = self.hash(&data)?;
        Ok(Some((TreeEntry { kind, id }, NewContent::File(data))))
    }

    /// Whether the staged version of a file has lines that end with a carriage return. Git then does not convert it.
    fn has_carriage_returns(&self, entry: &IndexEntry) -> Result<bool> {
        let size = self.repository.size(entry.entry.id)?.unwrap_or_default();
        if entry.intent_to_add || size > MAX_COMPARED_BYTES {
            return Ok(false);
        }
        Ok(self.repository.blob(entry.entry.id)?.windows(2).any(|pair| pair == b"\r\n"))
    }

    fn hash(&self, data: &[u8]) -> Result<ObjectId> {
        let hash = gix::objs::compute_hash(self.repository.object_hash(), Kind::Blob, data);
        hash.map_err(super::repo::fault)
    }

    /// The content of a regular file; `None` if it is larger than `limit`, or no longer a regular file.
    fn read(&self, dir: &Dir, name: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
        let Some((file, metadata)) = regular(dir, name).map_err(failed)? else { return Ok(None) };
        if metadata.len() > limit {
            return Ok(None);
        }
        self.repository.deadline().check()?;
        let _held = self.repository.hold(metadata.len())?;
        let mut data = Vec::with_capacity(metadata.len() as usize);
        // The file may grow while it is read.
        file.take(metadata.len()).read_to_end(&mut data).map_err(failed)?;
        Ok(Some(data))
    }

    fn find(&self, dir: &Dir, name: &Path) -> Result<WorkFile> {
        let metadata = match dir.symlink_metadata(name) {
            Ok(metadata) => metadata,
            Err(cause) if is_absent(&cause) => return Ok(WorkFile::Missing),
            Err(cause) => return Err(failed(cause)),
        };
        let kind = metadata.file_type();
        Ok(if kind.is_dir() {
            WorkFile::Directory
        } else if kind.is_symlink() {
            WorkFile::Found(EntryKind::Link, metadata)
        } else if !kind.is_file() {
            WorkFile::Missing
        } else if is_executable(&metadata) {
            WorkFile::Found(EntryKind::BlobExecutable, metadata)
        } else {
            WorkFile::Found(EntryKind::Blob, metadata)
        })
    }

    /// The type of a file. If `core.fileMode` is off, its executable bit is that of the index.
    fn shown_kind(&self, kind: EntryKind, staged: EntryKind) -> EntryKind {
        let is_file = |kind| matches!(kind, EntryKind::Blob | EntryKind::BlobExecutable);
        if !self.executable_bits && is_file(kind) && is_file(staged) { staged } else { kind }
    }

    /// The open directory of a file, and the name of the file; `None` if the directory does not exist.
    fn parent(&mut self, path: &[u8]) -> Result<Option<(Arc<Dir>, PathBuf)>> {
        let mut names: Vec<_> = path.split(|byte| *byte == b'/').collect();
        let Some(name) = names.pop().and_then(os_path) else { return Ok(None) };
        let same = self.open.iter().zip(&names).take_while(|((open, _), name)| open == *name).count();
        self.open.truncate(same);
        for name in &names[same..] {
            let dir = self.open.last().map_or(&self.root, |(_, dir)| dir);
            let Some(path) = os_path(name) else { return Ok(None) };
            match open_directory(dir, &path).map_err(failed)? {
                Some(dir) => self.open.push((name.to_vec(), Arc::new(dir))),
                None => return Ok(None),
            }
        }
        let dir = self.open.last().map_or(&self.root, |(_, dir)| dir);
        Ok(Some((Arc::clone(dir), name)))
    }
}

/// Opens a subdirectory; `None` if it does not exist, or is not a directory.
pub(super) fn open_directory(dir: &Dir, name: &Path) -> io::Result<Option<Dir>> {
    match dir.open_dir_nofollow(name) {
        Ok(dir) => Ok(Some(dir)),
        Err(cause) if is_absent(&cause) || is_link(dir, name) => Ok(None),
        Err(cause) => Err(cause),
    }
}

fn is_link(dir: &Dir, name: &Path) -> bool {
    dir.symlink_metadata(name).is_ok_and(|metadata| metadata.is_symlink())
}

/// Opens a regular file; `None` if it does not exist, or is not a regular file.
fn regular(dir: &Dir, name: &Path) -> io::Result<Option<(File, Metadata)>> {
    // Checked first, because opening a device can have side effects.
    match dir.symlink_metadata(name) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Ok(None),
        Err(cause) if is_absent(&cause) => return Ok(None),
        Err(cause) => return Err(cause),
    }
    let mut options = OpenOptions::new();
    // Opening a named pipe would otherwise block until another process opens it for writing.
    options.read(true).nonblock(true).follow(FollowSymlinks::No);
    let file = match dir.open_with(name, &options) {
        Ok(file) => file,
        Err(cause) if is_absent(&cause) || is_link(dir, name) => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let metadata = file.metadata()?;
    Ok(metadata.is_file().then_some((file, metadata)))
}

/// The patterns of an ignore file; `None` if it does not exist. An ignore file that is unreadable or too large is an
/// error.
pub(super) fn ignore_file(dir: &Dir, name: &str) -> io::Result<Option<IgnorePatterns>> {
    let name = Path::new(name);
    let Some((file, metadata)) = regular(dir, name)? else { return Ok(None) };
    let mut text = Vec::new();
    if metadata.len() <= MAX_IGNORE_BYTES {
        file.take(MAX_IGNORE_BYTES + 1).read_to_end(&mut text)?;
    }
    if metadata.len().max(text.len() as u64) > MAX_IGNORE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    ignore_patterns(text).map(Some)
}

/// Parses the text of an ignore file.
pub(super) fn ignore_patterns(text: Vec<u8>) -> io::Result<IgnorePatterns> {
    let parsed = IgnorePatterns::parse(&text.into(), MAX_IGNORE_PATTERNS);
    parsed.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

/// The target of a symbolic link.
fn link(dir: &Dir, name: &Path) -> Result<Vec<u8>> {
    let target = dir.read_link_contents(name).map_err(failed)?;
    Ok(os_bytes(target.as_os_str()).unwrap_or_default())
}

fn without_carriage_returns(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.iter().copied().peekable();
    let mut out = Vec::with_capacity(data.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\r' || bytes.peek() != Some(&b'\n') {
            out.push(byte);
        }
    }
    out
}

/// Whether unchanged `stat` data proves that the file is unchanged: the file was modified before the index was written.
/// Otherwise the file may have been modified again, with the same timestamp, after its data was recorded ("racy git").
fn is_settled(index: &GitIndex, recorded: &IndexStat) -> bool {
    let (seconds, nanoseconds) = recorded.modified;
    let recorded = SystemTime::UNIX_EPOCH + Duration::new(u64::from(seconds), nanoseconds.min(999_999_999));
    index.modified.is_some_and(|modified| recorded < modified)
}

pub(super) fn failed(cause: io::Error) -> Error {
    Error::failed("read the working tree", cause)
}

/// The `stat` data of a file, truncated as in the index.
#[cfg(unix)]
fn stat(metadata: &Metadata) -> IndexStat {
    use cap_std::fs::MetadataExt as _;
    IndexStat {
        changed: (metadata.ctime() as u32, metadata.ctime_nsec() as u32),
        modified: (metadata.mtime() as u32, metadata.mtime_nsec() as u32),
        inode: metadata.ino() as u32,
        size: metadata.len() as u32,
    }
}

/// Differs from all recorded data, so that the contents are always compared.
#[cfg(not(unix))]
fn stat(metadata: &Metadata) -> IndexStat {
    IndexStat { inode: u32::MAX, size: metadata.len() as u32, ..IndexStat::default() }
}

#[cfg(unix)]
fn is_executable(metadata: &Metadata) -> bool {
    cap_std::fs::MetadataExt::mode(metadata) & 0o100 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &Metadata) -> bool {
    false
}

#[cfg(unix)]
pub(super) fn os_path(name: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

#[cfg(not(unix))]
pub(super) fn os_path(name: &[u8]) -> Option<PathBuf> {
    str::from_utf8(name).ok().map(PathBuf::from)
}

/// The bytes of a file name as git stores them; `None` on Windows if the name is not Unicode.
#[cfg(unix)]
pub(super) fn os_bytes(name: &OsStr) -> Option<Vec<u8>> {
    Some(std::os::unix::ffi::OsStrExt::as_bytes(name).to_vec())
}

#[cfg(not(unix))]
pub(super) fn os_bytes(name: &OsStr) -> Option<Vec<u8>> {
    name.to_str().map(|name| name.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::without_carriage_returns;

    #[test]
    fn only_carriage_returns_at_line_ends_are_removed() {
        assert_eq!(without_carriage_returns(b"a\r\nb\rc\r\n\r"), b"a\nb\rc\n\r");
    }
}
