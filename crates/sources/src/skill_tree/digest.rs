//! The digests of files, cached as long as the `stat` result of a file is unchanged.

use std::io::{self, Read};
use std::time::SystemTime;

use libris_core::Sha256Digest;
use sha2::{Digest as _, Sha256};

use super::{SkillFileEntry, SkillTree};
use crate::tree::{DirectoryHandle, ResolvedPath, StatStamp, Tree, check_cancelled};

/// The memory of a cached digest besides its key, in bytes.
const ENTRY_OVERHEAD: usize = 192;

/// The maximum number of times that a file is read if it keeps changing while it is read.
const MAX_READS: usize = 3;

/// The digest and the size of the file that had this stamp.
#[derive(Clone)]
pub(super) struct CachedDigest {
    stamp: StatStamp,
    digest: Sha256Digest,
    size: u64,
}

impl SkillTree {
    /// The digest of a file and the number of its bytes. Adds the number of bytes that were read, if any, to `bytes`.
    pub(super) fn digest(
        &self,
        tree: &Tree,
        entry: &SkillFileEntry,
        bytes: &mut u64,
    ) -> io::Result<(Sha256Digest, u64)> {
        let cached = self.digests.get(&entry.key).filter(|cached| cached.stamp == entry.stamp);
        if let Some(CachedDigest { digest, size, .. }) = cached {
            return Ok((digest, size));
        }
        let ResolvedPath::File(folder, name) = tree.resolve(tree.watched_root()?, &entry.key)? else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let open = || tree.with_target(&folder, &name, DirectoryHandle::open);
        let mut reads = 0;
        loop {
            reads += 1;
            let seen = SystemTime::now();
            let (file, metadata) = open()?;
            let stamp = StatStamp::of(&metadata);
            let (digest, size) = hash(file.into_std())?;
            *bytes += size;
            let is_unchanged = StatStamp::of(&open()?.1) == stamp;
            if is_unchanged && stamp.settled(seen) {
                let cached = CachedDigest { stamp, digest, size };
                let weight = ENTRY_OVERHEAD + entry.key.len();
                self.digests.insert_within(super::MAX_CACHED_BYTES, &entry.key, weight, cached);
            }
            if is_unchanged || reads == MAX_READS {
                return Ok((digest, size));
            }
        }
    }
}

/// The digest of a file and the number of its bytes.
fn hash(mut file: impl Read) -> io::Result<(Sha256Digest, u64)> {
    let (mut hasher, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 64 * 1024]);
    loop {
        check_cancelled()?;
        match file.read(&mut buffer) {
            Ok(0) => return Ok((Sha256Digest(hasher.finalize().into()), size)),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                size += count as u64;
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
}

/// The digest of bytes in memory.
pub(super) fn of(bytes: &[u8]) -> Sha256Digest {
    Sha256Digest(Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::{hash, of};

    #[test]
    fn digests_are_those_of_the_standard() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of(b"").to_string(), empty);
        assert_eq!(of(b"abc").to_string(), abc);
        let large = vec![7; 200_000];
        assert_eq!(hash(&large[..]).unwrap(), (of(&large), 200_000));
    }
}
