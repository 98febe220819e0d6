//! Knowing that a name still stands for the same commit: the files that say so are the same.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use libris_core::Proof;

use super::repo::Objects;
use super::rev::candidates;

/// The most of a ref's file that is looked at; git writes one line.
const LINE: u64 = 1024;

/// How many refs may lead from one to the next.
const LINKS: usize = 5;

/// The files that say what a name stands for, as they were before it was looked up.
pub(super) struct Seen {
    /// Each with what it held; `None` if it was not there.
    refs: Vec<(PathBuf, Option<Vec<u8>>)>,
    packed: PathBuf,
    stamp: Option<Stamp>,
    remote: bool,
}

impl Seen {
    pub(super) fn of(objects: &Objects<'_>, name: &str) -> Self {
        let (own, common) = (objects.git_dir(), objects.common_dir());
        let packed = common.join("packed-refs");
        let mut seen =
            Self { refs: Vec::new(), stamp: Stamp::of(&packed), packed, remote: objects.is_remote() };
        for full in candidates(name) {
            seen.look(own, common, &full, LINKS);
        }
        seen
    }

    fn look(&mut self, own: &Path, common: &Path, name: &str, links: usize) {
        let path = if name == "HEAD" { own.join(name) } else { common.join(name) };
        let held = line(&path);
        let next = held.as_deref().and_then(|line| line.strip_prefix(b"ref: ")).map(<[u8]>::trim_ascii);
        if let Some(Ok(next)) = next.map(std::str::from_utf8)
            && links > 0
            && next.starts_with("refs/")
            && !next.split('/').any(|part| part == "..")
        {
            self.look(own, common, next, links - 1);
        }
        self.refs.push((path, held));
    }

    /// A proof that the name stands for what it stood for. None where others may write unseen.
    pub(super) fn prove(self) -> Option<Proof> {
        (!self.remote).then(|| Proof::new(move || self.holds()))
    }

    fn holds(&self) -> bool {
        self.refs.iter().all(|(path, held)| line(path) == *held) && Stamp::of(&self.packed) == self.stamp
    }
}

fn line(path: &Path) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    fs::File::open(path).ok()?.take(LINE).read_to_end(&mut line).ok()?;
    Some(line)
}

/// What tells one state of a file or folder from another. Git replaces files and never writes into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) modified: Option<SystemTime>,
    size: u64,
    inode: u64,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().ok(), size: metadata.len(), inode: inode(&metadata) })
    }
}

#[cfg(unix)]
fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}
