//! Proves that a revision still resolves to the same commit, or that no ref was added or removed. The evidence is that
//! the files, or the directories, of the refs are unchanged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use libris_core::Proof;

use super::ref_store::{MAX_LOOSE_REF_BYTES, MAX_SYMBOLIC_REFS, RefStore, RefTarget};
use super::regular::{self, GitFileStamp, RegularFile, UnreadableFile};
use super::repo::TaskRepository;
use super::rev::{VISIBLE_NAMESPACES, candidates};
use crate::tree::QuietPaths;

/// The maximum number of directories of refs whose stamps are compared, and their deepest nesting. With more, there is
/// no proof.
const MAX_REF_DIRECTORIES: usize = 32;
const MAX_REF_DEPTH: usize = 8;

/// The least time between two collections of [`QuietPaths`], which cost about twenty system calls.
const QUIET_PAUSE: Duration = Duration::from_millis(200);

/// The files that determine what a name resolves to. They must be recorded before the name is resolved, so that
/// a change in between invalidates the proof.
pub(super) struct RefEvidence {
    refs: Vec<RefFile>,
    /// The path of `packed-refs`, and its stamp; `None` if it did not exist.
    packed: PathBuf,
    stamp: Option<GitFileStamp>,
    /// Whether nothing can be proven: a file is unreadable, or the file system is remote.
    unprovable: bool,
    /// The directory that contains all refs.
    common_dir: PathBuf,
    last_check: Mutex<LastCheck>,
}

/// The last time when the files were found unchanged.
#[derive(Default)]
struct LastCheck {
    /// Evidence that the files have not changed since. To check it costs one system call; to check the files costs at
    /// least one per file.
    quiet: Option<QuietPaths>,
    /// When `quiet` was collected last.
    at: Option<Instant>,
}

/// The recorded state of the file of a loose ref.
struct RefFile {
    path: PathBuf,
    /// `None` if it did not exist.
    content: Option<Vec<u8>>,
    /// While the file has this stamp, it has this content. `None` if the file was modified so recently that another
    /// write might leave the stamp unchanged.
    settled: Option<GitFileStamp>,
}

impl RefFile {
    fn read(path: PathBuf) -> Result<Self, UnreadableFile> {
        let now = SystemTime::now();
        let (content, stamp) = match regular::read(&path, MAX_LOOSE_REF_BYTES)? {
            Some(RegularFile { data, stamp }) => (Some(data), Some(stamp)),
            None => (None, None),
        };
        Ok(Self { path, content, settled: stamp.filter(|stamp| stamp.is_settled(now)) })
    }

    /// Whether the file has the same content. False if it is unreadable now, even if it did not exist before.
    fn is_unchanged(&self) -> bool {
        // A stamp costs one system call, and the content several.
        if let Some(settled) = &self.settled
            && GitFileStamp::of(&self.path).is_ok_and(|now| now.as_ref() == Some(settled))
        {
            return true;
        }
        let now = regular::read(&self.path, MAX_LOOSE_REF_BYTES);
        now.is_ok_and(|now| now.map(|regular| regular.data) == self.content)
    }
}

impl RefEvidence {
    pub(super) fn of(repository: &TaskRepository<'_>, name: &str) -> Self {
        let packed = repository.common_dir().join("packed-refs");
        let stamp = GitFileStamp::of(&packed);
        let unprovable = repository.is_remote() || stamp.is_err();
        let mut seen = Self {
            refs: Vec::new(),
            stamp: stamp.ok().flatten(),
            packed,
            unprovable,
            common_dir: repository.common_dir().to_owned(),
            last_check: Mutex::default(),
        };
        for full in candidates(name) {
            seen.record_ref(repository.refs(), &full, MAX_SYMBOLIC_REFS);
        }
        seen
    }

    /// Records the file of a ref and, if the ref is symbolic, those of at most `links` refs that it leads to.
    fn record_ref(&mut self, refs: &RefStore, name: &str, links: usize) {
        let Ok(file) = RefFile::read(refs.loose_path(name)) else {
            self.unprovable = true;
            return;
        };
        let target = file.content.as_deref().map(|data| refs.parse_loose(data));
        if let Some(Ok(RefTarget::Symbolic(next))) = target
            && links > 0
        {
            self.record_ref(refs, &next, links - 1);
        }
        self.refs.push(file);
    }

    /// A proof that the name resolves as before; `None` if that cannot be proven.
    pub(super) fn prove(self) -> Option<Proof> {
        (!self.unprovable).then(|| Proof::new(move || self.holds()))
    }

    fn holds(&self) -> bool {
        let mut last = self.last_check.lock().unwrap_or_else(PoisonError::into_inner);
        if last.quiet.as_ref().is_some_and(QuietPaths::hold) {
            return true;
        }
        // Git often changes other files next to `HEAD`, and each of these changes ends the evidence. To limit the cost,
        // it is collected again only after `QUIET_PAUSE`.
        let is_due = last.at.is_none_or(|at| at.elapsed() >= QUIET_PAUSE);
        if is_due {
            let paths = self.refs.iter().map(|file| &*file.path).chain([&*self.packed]);
            // Collected before the files are checked, so that any later change ends the evidence.
            last.quiet = QuietPaths::watch(&self.common_dir, paths);
            last.at = Some(Instant::now());
        }
        let same_stamp = |now: io::Result<Option<GitFileStamp>>| now.is_ok_and(|now| now == self.stamp);
        let is_unchanged =
            self.refs.iter().all(RefFile::is_unchanged) && same_stamp(GitFileStamp::of(&self.packed));
        if !is_due || !is_unchanged {
            last.quiet = None;
        }
        is_unchanged
    }
}

/// The directories that contain the visible refs. They must be recorded before the names of the refs are read.
pub(super) struct RefNamesEvidence {
    /// Each directory with its stamp, which is `None` if the directory did not exist.
    directories: Vec<(PathBuf, Option<GitFileStamp>)>,
    /// The path of `packed-refs`, and its stamp; `None` if it did not exist.
    packed: PathBuf,
    stamp: Option<GitFileStamp>,
    unprovable: bool,
}

impl RefNamesEvidence {
    pub(super) fn of(repository: &TaskRepository<'_>) -> Self {
        let common_dir = repository.common_dir();
        let packed = common_dir.join("packed-refs");
        let stamp = GitFileStamp::of(&packed);
        let now = SystemTime::now();
        let is_settled =
            |stamp: &Option<GitFileStamp>| stamp.as_ref().is_none_or(|stamp| stamp.is_settled(now));
        let unprovable = repository.is_remote() || !stamp.as_ref().is_ok_and(is_settled);
        let mut seen = Self { directories: Vec::new(), stamp: stamp.ok().flatten(), packed, unprovable };
        // Git adds and removes loose refs by rename and unlink, which changes the stamps of their directories.
        for namespace in VISIBLE_NAMESPACES {
            seen.record_directory(common_dir.join(namespace), MAX_REF_DEPTH, now);
        }
        seen
    }

    fn record_directory(&mut self, path: PathBuf, depth: usize, now: SystemTime) {
        if self.unprovable {
            return;
        }
        let stamp = GitFileStamp::of(&path);
        let is_settled =
            |stamp: &Option<GitFileStamp>| stamp.as_ref().is_none_or(|stamp| stamp.is_settled(now));
        let Some(stamp) = stamp.ok().filter(is_settled) else {
            self.unprovable = true;
            return;
        };
        self.directories.push((path.clone(), stamp));
        if self.directories.len() > MAX_REF_DIRECTORIES || depth == 0 {
            self.unprovable = true;
            return;
        }
        // A missing directory has no entries; one that exists but cannot be listed proves nothing.
        let Ok(entries) = std::fs::read_dir(&path) else {
            self.unprovable |= path.exists();
            return;
        };
        for entry in entries {
            match entry.and_then(|entry| Ok((entry.file_type()?, entry.path()))) {
                Ok((kind, path)) if kind.is_dir() => self.record_directory(path, depth - 1, now),
                Ok(_) => {}
                Err(_) => self.unprovable = true,
            }
        }
    }

    /// A proof that the refs have the same names; `None` if that cannot be proven.
    pub(super) fn prove(self) -> Option<Proof> {
        (!self.unprovable).then(|| Proof::new(move || self.holds()))
    }

    fn holds(&self) -> bool {
        let is_same = |path: &Path, before: &Option<GitFileStamp>| {
            GitFileStamp::of(path).is_ok_and(|now| now == *before)
        };
        self.directories.iter().all(|(path, stamp)| is_same(path, stamp))
            && is_same(&self.packed, &self.stamp)
    }
}
