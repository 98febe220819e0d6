//! The cache of extraction results on disk, so that a restarted server does not extract all documents again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use crate::cache::{CachedResult, ResultKey};
use crate::child::ChildResponse;

/// The subfolder of the results. Increase the number when an extraction gives other results for the same document.
const FOLDER: &str = "documents-1";

/// A folder of results. Its methods block.
pub(crate) struct DiskCache {
    folder: PathBuf,
    /// The most bytes of all results.
    limit: u64,
    /// The bytes of all results; `None` until the first write counts them.
    used: Mutex<Option<u64>>,
}

impl DiskCache {
    /// The cache in this folder, which is created when the first result is stored.
    pub(crate) fn new(folder: &Path, limit: u64) -> Self {
        Self { folder: folder.join(FOLDER), limit, used: Mutex::new(None) }
    }

    fn path(&self, key: &ResultKey) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(key.digest);
        // The encoding of the key is stable, since the file name also depends on the version of the program.
        hash.update(serde_json::to_vec(&key.work).unwrap_or_default());
        hash.update(env!("CARGO_PKG_VERSION"));
        let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(name + ".json")
    }

    pub(crate) fn find(&self, key: &ResultKey) -> Option<CachedResult> {
        let data = fs::read(self.path(key)).ok()?;
        match serde_json::from_slice(&data).ok()? {
            ChildResponse::Text(text) => Some(CachedResult::Text(text.into())),
            ChildResponse::Members(members) => Some(CachedResult::Members(members.into())),
            ChildResponse::Member(_) | ChildResponse::Failed(_) => None,
        }
    }

    /// Stores a result, unless it is a failure. If the disk is full or read-only, this logs a warning.
    pub(crate) fn insert(&self, key: &ResultKey, result: &CachedResult) {
        let response = match result {
            CachedResult::Text(text) => ChildResponse::Text((**text).clone()),
            CachedResult::Members(members) => ChildResponse::Members((**members).clone()),
            CachedResult::Failed(_) | CachedResult::Exceeded(_) => return,
        };
        let Ok(data) = serde_json::to_vec(&response) else { return };
        if let Err(cause) = self.write(&self.path(key), &data) {
            tracing::warn!(%cause, "the text of a document cannot be stored in the cache folder");
        }
    }

    fn write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        create_private(&self.folder)?;
        let before = match *used {
            Some(used) => used,
            None => self.files()?.iter().map(|(_, size, _)| size).sum(),
        };
        let size = data.len() as u64;
        *used = Some(before);
        if size > self.limit / 4 {
            return Ok(());
        }
        *used = Some(self.make_room(before, size)? + size);
        // Renaming is atomic, so readers never see a part of the file.
        let temporary = path.with_extension("new");
        fs::write(&temporary, data)?;
        fs::rename(&temporary, path)
    }

    /// Makes room for `size` bytes by removing the oldest results. Returns the bytes of the remaining results.
    fn make_room(&self, before: u64, size: u64) -> io::Result<u64> {
        if before + size <= self.limit {
            return Ok(before);
        }
        let mut files = self.files()?;
        files.sort_by_key(|(_, _, modified)| *modified);
        let mut left: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (path, length, _) in files {
            // Evicts down to three quarters, so that not every insertion has to evict.
            if left + size <= self.limit / 4 * 3 {
                break;
            }
            fs::remove_file(path)?;
            left -= length;
        }
        Ok(left)
    }

    /// The path, size and modification time of each stored result.
    fn files(&self) -> io::Result<Vec<(PathBuf, u64, SystemTime)>> {
        let entries = fs::read_dir(&self.folder)?.flatten();
        Ok(entries
            .filter_map(|entry| {
                let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                Some((entry.path(), metadata.len(), metadata.modified().ok()?))
            })
            .collect())
    }
}

/// Creates a folder that only its owner can read: the results contain the text of documents.
fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::{CachedResult, DiskCache, ResultKey};
    use crate::ArchiveFormat;
    use crate::archive::Member;
    use crate::child::ChildWork;

    fn key(number: u8) -> ResultKey {
        ResultKey { digest: [number; 32], work: ChildWork::Members(ArchiveFormat::Tar) }
    }

    fn result(name: &str) -> CachedResult {
        CachedResult::Members(vec![Member { path: name.to_owned(), size: 1 }].into())
    }

    #[test]
    fn results_survive_and_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        DiskCache::new(folder.path(), 10_000).insert(&key(1), &result("one"));
        let cache = DiskCache::new(folder.path(), 10_000);
        let found = cache.find(&key(1));
        assert!(matches!(found, Some(CachedResult::Members(members)) if members[0].path == "one"));
        assert!(cache.find(&key(2)).is_none());
        for number in 2..100 {
            cache.insert(&key(number), &result(&"x".repeat(1_000)));
        }
        assert!(cache.files().unwrap().iter().map(|(_, size, _)| size).sum::<u64>() <= 10_000);
        assert!(cache.find(&key(99)).is_some());
        cache.insert(&key(0), &result(&"x".repeat(5_000)));
        assert!(cache.find(&key(0)).is_none(), "one result fills the cache");
    }

    #[test]
    fn a_damaged_file_is_no_result() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(folder.path(), 10_000);
        cache.insert(&key(1), &result("one"));
        std::fs::write(cache.path(&key(1)), "{").unwrap();
        assert!(cache.find(&key(1)).is_none());
    }
}
