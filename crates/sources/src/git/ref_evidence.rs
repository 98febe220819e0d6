//! Evidence that a name still resolves to the same commit: the files of its refs are unchanged.

use std::io;
use std::path::{Path, PathBuf};

use libris_core::Proof;

use super::ref_store::MAX_LOOSE_REF_BYTES;
use super::regular::{self, RefFileStamp, UnreadableFile};
use super::repo::TaskRepository;
use super::rev::candidates;

/// The most symbolic refs in a chain.
const MAX_SYMBOLIC_REFS: usize = 5;

/// The files that a name resolves through, as they were before it was resolved.
pub(super) struct RefEvidence {
    /// Each with its contents; `None` if it did not exist.
    refs: Vec<(PathBuf, Option<Vec<u8>>)>,
    packed: PathBuf,
    stamp: Option<RefFileStamp>,
    /// Whether nothing can be proven: a file is unreadable, or the file system is remote.
    unprovable: bool,
}

impl RefEvidence {
    pub(super) fn of(repository: &TaskRepository<'_>, name: &str) -> Self {
        let (own, common) = (repository.git_dir(), repository.common_dir());
        let packed = common.join("packed-refs");
        let stamp = RefFileStamp::of(&packed);
        let unprovable = repository.is_remote() || stamp.is_err();
        let mut seen = Self { refs: Vec::new(), stamp: stamp.ok().flatten(), packed, unprovable };
        for full in candidates(name) {
            seen.record_ref(own, common, &full, MAX_SYMBOLIC_REFS);
        }
        seen
    }

    fn record_ref(&mut self, own: &Path, common: &Path, name: &str, links: usize) {
        let path = if name == "HEAD" { own.join(name) } else { common.join(name) };
        let Ok(held) = content(&path) else {
            self.unprovable = true;
            return;
        };
        let next = held.as_deref().and_then(|line| line.strip_prefix(b"ref: ")).map(<[u8]>::trim_ascii);
        if let Some(Ok(next)) = next.map(std::str::from_utf8)
            && links > 0
            && next.starts_with("refs/")
            && !next.split('/').any(|part| part == "..")
        {
            self.record_ref(own, common, next, links - 1);
        }
        self.refs.push((path, held));
    }

    /// A proof that the name resolves as before; `None` if that cannot be proven.
    pub(super) fn prove(self) -> Option<Proof> {
        (!self.unprovable).then(|| Proof::new(move || self.holds()))
    }

    fn holds(&self) -> bool {
        // An unreadable file proves nothing, even if none existed before.
        let same = |(path, held): &(PathBuf, Option<Vec<u8>>)| content(path).is_ok_and(|now| now == *held);
        let same_stamp = |now: io::Result<Option<RefFileStamp>>| now.is_ok_and(|now| now == self.stamp);
        self.refs.iter().all(same) && same_stamp(RefFileStamp::of(&self.packed))
    }
}

fn content(path: &Path) -> Result<Option<Vec<u8>>, UnreadableFile> {
    Ok(regular::read(path, MAX_LOOSE_REF_BYTES)?.map(|regular| regular.data))
}
