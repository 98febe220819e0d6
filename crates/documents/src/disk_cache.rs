//! The cache of extraction results on disk, so that a restarted server does not extract all documents again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::archive::Member;
use crate::cache::{CachedResult, RenderedPage, ResultKey};
use crate::child::ChildResponse;
use crate::{ExtractedText, PageImage};

/// The subfolder of the results. Increase the number when a change to the extraction changes the results for the same
/// documents.
const FOLDER: &str = "documents-1";

/// The usual block size of file systems. Small files occupy a whole block.
const BLOCK: u64 = 4096;

/// The extension of files that are being written.
const TEMPORARY: &str = "new";

/// The age from which a temporary file counts as left behind by a server that was killed.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// A folder of results. Several servers may share it. Its methods block.
pub(crate) struct DiskCache {
    folder: PathBuf,
    /// The maximum size of all results together, in bytes of whole blocks.
    limit: u64,
    usage: Mutex<DiskUsage>,
}

/// A borrowed [`ChildResponse`], with the same encoding. In the file of an image, a newline and the PNG follow the
/// JSON.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
enum StoredExtraction<'a> {
    Text(&'a ExtractedText),
    Image(&'a PageImage),
    Members(&'a [Member]),
}

/// What is known of the size of the folder.
#[derive(Default)]
struct DiskUsage {
    /// The bytes of all results; `None` before the first write.
    used: Option<u64>,
    /// The bytes written since `used` was counted. Other servers that share the folder write to it as well, so `used`
    /// is counted again from time to time.
    written: u64,
}

impl DiskCache {
    /// The cache in this folder, which is created when the first result is stored.
    pub(crate) fn new(folder: &Path, limit: u64) -> Self {
        Self { folder: folder.join(FOLDER), limit, usage: Mutex::default() }
    }

    fn path(&self, key: &ResultKey) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(key.digest);
        // A later version of the program may encode the key differently: the file name also depends on the version.
        hash.update(serde_json::to_vec(&key.work).unwrap_or_default());
        hash.update(env!("CARGO_PKG_VERSION"));
        let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(name + ".json")
    }

    pub(crate) fn find(&self, key: &ResultKey) -> Option<CachedResult> {
        let data = fs::read(self.path(key)).ok()?;
        // The encoder writes JSON without newlines.
        let line = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
        match serde_json::from_slice(&data[..line]).ok()? {
            ChildResponse::Image(image) => {
                let png = Bytes::from(data.get(line + 1..)?.to_vec());
                RenderedPage::new(image, png).map(CachedResult::Image)
            }
            ChildResponse::Text(text) => Some(CachedResult::Text(text.into())),
            ChildResponse::Members(members) => Some(CachedResult::Members(members.into())),
            ChildResponse::Member(_) | ChildResponse::TooLong | ChildResponse::Failed(_) => None,
        }
    }

    /// Stores a result, unless it is a failure. If the disk is full or read-only, this logs a warning.
    pub(crate) fn insert(&self, key: &ResultKey, result: &CachedResult) {
        let response = match result {
            CachedResult::Text(text) => StoredExtraction::Text(text),
            CachedResult::Image(page) => StoredExtraction::Image(&page.image),
            CachedResult::Members(members) => StoredExtraction::Members(members),
            CachedResult::Failed(_) | CachedResult::Exceeded(_) => return,
        };
        let Ok(mut data) = serde_json::to_vec(&response) else { return };
        if let CachedResult::Image(page) = result {
            data.push(b'\n');
            data.extend_from_slice(&page.png);
        }
        if let Err(cause) = self.write(&self.path(key), &data) {
            tracing::warn!(%cause, "the text or image of a document cannot be stored in the cache folder");
        }
    }

    fn write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let size = blocks(data.len() as u64);
        if size > self.limit / 4 {
            return Ok(());
        }
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        create_private(&self.folder)?;
        let is_recent = usage.written <= self.limit / 16;
        let before = match usage.used.filter(|_| is_recent) {
            Some(used) => used,
            None => {
                usage.written = 0;
                self.files()?.iter().map(|file| file.size).sum()
            }
        };
        usage.used = Some(before);
        usage.used = Some(self.make_room(before, size)? + size);
        usage.written += size;
        // Renaming is atomic, so readers never see a part of the file. Another server may write the same result at the
        // same time, so the temporary file has the process id in its name.
        let temporary = path.with_extension(format!("{}.{TEMPORARY}", std::process::id()));
        let written = fs::write(&temporary, data).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Makes room for `size` bytes by removing the oldest results. Returns the bytes of the remaining results.
    fn make_room(&self, before: u64, size: u64) -> io::Result<u64> {
        if before + size <= self.limit {
            return Ok(before);
        }
        let mut files = self.files()?;
        files.sort_by_key(|file| file.modified);
        let mut left: u64 = files.iter().map(|file| file.size).sum();
        for file in files {
            // Evicts down to three quarters, so that not every insertion has to evict.
            if left + size <= self.limit / 4 * 3 {
                break;
            }
            remove(&file.path)?;
            left -= file.size;
        }
        Ok(left)
    }

    /// All files in the folder, without abandoned temporary files, which this removes.
    fn files(&self) -> io::Result<Vec<StoredFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) else { continue };
            let path = entry.path();
            let modified = metadata.modified()?;
            let is_abandoned = path.extension().is_some_and(|extension| extension == TEMPORARY)
                && modified.elapsed().is_ok_and(|age| age > ABANDONED);
            match is_abandoned {
                true => remove(&path)?,
                false => files.push(StoredFile { path, size: blocks(metadata.len()), modified }),
            }
        }
        Ok(files)
    }
}

/// A file in the folder.
struct StoredFile {
    path: PathBuf,
    /// In whole blocks.
    size: u64,
    modified: SystemTime,
}

/// The bytes that a file of this length occupies.
fn blocks(length: u64) -> u64 {
    length.next_multiple_of(BLOCK)
}

/// Removes a file, unless another server has removed it.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
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

    /// The bytes of all files in the folder, in whole blocks.
    fn occupied(cache: &DiskCache) -> u64 {
        cache.files().unwrap().iter().map(|file| file.size).sum()
    }

    #[test]
    fn results_survive_and_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        DiskCache::new(folder.path(), 100_000).insert(&key(1), &result("one"));
        let cache = DiskCache::new(folder.path(), 100_000);
        let found = cache.find(&key(1));
        assert!(matches!(found, Some(CachedResult::Members(members)) if members[0].path == "one"));
        assert!(cache.find(&key(2)).is_none());
        for number in 2..100 {
            cache.insert(&key(number), &result(&"x".repeat(5_000)));
            assert!(occupied(&cache) <= 100_000);
        }
        assert!(cache.find(&key(99)).is_some());
        cache.insert(&key(0), &result(&"x".repeat(50_000)));
        assert!(cache.find(&key(0)).is_none(), "one result fills the cache");
    }

    #[test]
    fn small_results_count_as_the_blocks_that_they_occupy() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(folder.path(), 40_960);
        (0..100).for_each(|number| cache.insert(&key(number), &result("x")));
        assert!(cache.files().unwrap().len() <= 10);
    }

    #[test]
    fn servers_that_share_a_folder_share_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| DiskCache::new(folder.path(), 163_840));
        for number in 0..200 {
            [&one, &other][usize::from(number) % 2].insert(&key(number), &result("x"));
            // Each server counts the files again after it has written a sixteenth of the limit.
            assert!(occupied(&one) <= 163_840 / 16 * 18, "{}", occupied(&one));
        }
    }

    #[test]
    fn no_temporary_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(folder.path(), 100_000);
        cache.insert(&key(1), &result("one"));
        // A rename onto a folder fails, as a write to a full disk does.
        std::fs::create_dir(cache.path(&key(2))).unwrap();
        cache.insert(&key(2), &result("two"));
        let names = || {
            let entries = std::fs::read_dir(&cache.folder).unwrap().flatten();
            entries.filter(|entry| entry.path().is_file()).map(|entry| entry.path()).collect::<Vec<_>>()
        };
        assert_eq!(names(), [cache.path(&key(1))]);
        let [recent, abandoned] = ["1.new", "2.new"].map(|name| cache.folder.join(name));
        std::fs::write(&recent, "").unwrap();
        let old = std::time::SystemTime::now() - 2 * super::ABANDONED;
        std::fs::File::create(&abandoned).unwrap().set_modified(old).unwrap();
        DiskCache::new(folder.path(), 100_000).insert(&key(3), &result("three"));
        assert!(names().contains(&recent) && !names().contains(&abandoned));
    }

    #[test]
    fn a_damaged_file_is_no_result() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(folder.path(), 100_000);
        cache.insert(&key(1), &result("one"));
        std::fs::write(cache.path(&key(1)), "{").unwrap();
        assert!(cache.find(&key(1)).is_none());
    }
}
