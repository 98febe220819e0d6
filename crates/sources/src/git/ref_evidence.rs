//! Evidence that a name still stands for the same commit: the files that say so are the same.

use std::io;
use std::path::{Path, PathBuf};

use libris_core::Proof;

use super::ref_store::LOOSE;
use super::regular::{self, RefFileStamp, Unreadable};
use super::repo::Objects;
use super::rev::candidates;

/// How many refs may lead from one to the next.
const LINKS: usize = 5;

/// The files that say what a name stands for, as they were before it was looked up.
pub(super) struct RefEvidence {
    /// Each with what it held; `None` if it was not there.
    refs: Vec<(PathBuf, Option<Vec<u8>>)>,
    packed: PathBuf,
    stamp: Option<RefFileStamp>,
    /// Whether nothing can be proven: a file could not be read, or others may write unseen.
    unprovable: bool,
}

impl RefEvidence {
    pub(super) fn of(objects: &Objects<'_>, name: &str) -> Self {
        let (own, common) = (objects.git_dir(), objects.common_dir());
        let packed = common.join("packed-refs");
        let stamp = RefFileStamp::of(&packed);
        let unprovable = objects.is_remote() || stamp.is_err();
        let mut seen = Self { refs: Vec::new(), stamp: stamp.ok().flatten(), packed, unprovable };
        for full in candidates(name) {
            seen.look(own, common, &full, LINKS);
        }
        seen
    }

    fn look(&mut self, own: &Path, common: &Path, name: &str, links: usize) {
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
            self.look(own, common, next, links - 1);
        }
        self.refs.push((path, held));
    }

    /// A proof that the name stands for what it stood for; `None` where that cannot be told.
    pub(super) fn prove(self) -> Option<Proof> {
        (!self.unprovable).then(|| Proof::new(move || self.holds()))
    }

    fn holds(&self) -> bool {
        // What cannot be read now proves nothing, even where nothing was there before.
        let same = |(path, held): &(PathBuf, Option<Vec<u8>>)| content(path).is_ok_and(|now| now == *held);
        let same_stamp = |now: io::Result<Option<RefFileStamp>>| now.is_ok_and(|now| now == self.stamp);
        self.refs.iter().all(same) && same_stamp(RefFileStamp::of(&self.packed))
    }
}

fn content(path: &Path) -> Result<Option<Vec<u8>>, Unreadable> {
    Ok(regular::read(path, LOOSE)?.map(|regular| regular.data))
}
