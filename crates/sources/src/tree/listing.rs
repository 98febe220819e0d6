//! Reading the visible names of a directory.
//!
//! Reads are single-flight: of concurrent callers for one directory, one reads and the others wait for its result.
//! When a large directory changes, a journal of inotify events says which names changed, and only those are
//! checked again.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::filter::Omission;
use super::name_list::{NameList, UnsortedNames};
use super::proof::NameJournal;
use super::root::is_missing;
use super::stamp::{FileId, StatStamp};
use super::symlink::{ParentMemo, Symlinks};
use super::{MAX_CACHED_NAMES, MAX_KEY_LENGTH, OpenFolder, PathIdentity, Tree, TreePath};
use super::{cancellation, name, walk};

/// A directory with at least this many names has a journal. Reading a smaller one again takes less than a
/// millisecond.
const JOURNAL_THRESHOLD: usize = 1024;

/// A listing that is updated only from events is read in full again after this many times the duration of a full read,
/// but not before `event_trust` has passed, since some changes cause no events.
const REREAD_FACTOR: u32 = 20;

/// The tracing target of the messages about entries that are not served.
const LEFT_OUT: &str = "libris_sources::left_out";

/// The single-flight state of one directory.
#[derive(Default)]
pub(super) struct DirectoryListing {
    /// How many reads have begun.
    reads: AtomicU64,
    /// The result of the last read. Locked during a read.
    latest: Mutex<Option<ListingRead>>,
}

/// The result of reading a directory.
struct ListingRead {
    names: Arc<NameList>,
    /// The sequence number of the read.
    number: u64,
    /// The stamp of the directory before it was read or the journal was applied.
    stamp: StatStamp,
    /// Whether an unchanged stamp proves unchanged names.
    settled: bool,
    /// The paths to the directory, whose rules decided which names are visible. The rules themselves are not held, so
    /// that they take memory only while they are cached or in use.
    paths: Box<[PathIdentity]>,
    /// When the names were last verified without relying on events.
    verified: Instant,
    /// The duration of the read.
    cost: Duration,
    /// The names that changed since the read, for a large directory on a system with inotify.
    journal: Option<Arc<NameJournal>>,
}

impl ListingRead {
    /// Whether this is a read of the same directory under the same rules.
    fn matches(&self, folder: &OpenFolder) -> bool {
        self.stamp.file_id == folder.stamp.file_id
            && self.paths.len() == folder.paths().count()
            && self.paths.iter().zip(folder.paths()).all(|(path, other)| path.is_of(other))
    }
}

impl Tree {
    /// The visible names in a directory.
    pub(crate) fn names(&self, folder: &OpenFolder) -> io::Result<Arc<NameList>> {
        if let Some(names) = folder.names.get() {
            return Ok(Arc::clone(names));
        }
        let names = self.latest_names(folder)?;
        if folder.path_evidence.is_some() {
            let _ = folder.names.set(Arc::clone(&names));
        }
        Ok(names)
    }

    /// The names from the last read if they are still valid, otherwise updated from the journal or read again.
    fn latest_names(&self, folder: &OpenFolder) -> io::Result<Arc<NameList>> {
        let listing = self.listings.get_or_insert_with(&folder.logical.key, 1, Arc::default);
        let began = listing.reads.load(Ordering::SeqCst);
        let mut latest = listing.latest.lock().unwrap_or_else(PoisonError::into_inner);
        cancellation::check()?;
        if let Some(read) = latest.as_mut().filter(|read| read.matches(folder)) {
            // That read began after this call, so it saw every change before the call.
            if read.number > began {
                return Ok(Arc::clone(&read.names));
            }
            if read.settled && read.stamp == folder.stamp {
                read.verified = Instant::now();
                return Ok(Arc::clone(&read.names));
            }
        }
        // The last result is taken out first, so that none remains if an update or a read fails.
        let read = latest.take().filter(|read| read.matches(folder));
        let read = match read.map(|read| self.apply_journal(read, folder)).transpose()?.flatten() {
            Some(read) => read,
            None => self.read_directory(&listing, folder)?,
        };
        let names = Arc::clone(&read.names);
        *latest = Some(read);
        // One large directory must not evict all others.
        let weight = (names.len() + 1).min(MAX_CACHED_NAMES / 2);
        self.listings.insert(&folder.logical.key, weight, Arc::clone(&listing));
        Ok(names)
    }

    /// Updates the names from the journal; `None` if there is no complete journal, or if the names are due to be read
    /// again.
    fn apply_journal(&self, mut read: ListingRead, folder: &OpenFolder) -> io::Result<Option<ListingRead>> {
        if read.verified.elapsed() > self.event_trust.max(read.cost * REREAD_FACTOR) {
            return Ok(None);
        }
        let Some(journal) = &read.journal else { return Ok(None) };
        // The stamp is taken before the journal: a later change alters the stamp, so the next call applies the
        // journal again.
        let seen = SystemTime::now();
        let stamp = StatStamp::of(&folder.handle.metadata()?);
        let Some(changed) = self.prover.drain().then(|| journal.take()).flatten() else { return Ok(None) };
        if !changed.is_empty() {
            read.names = Arc::new(self.restat(&read.names, &changed, folder)?);
        }
        read.settled = stamp.settled(seen);
        read.stamp = stamp;
        Ok(Some(read))
    }

    /// The names, updated by a `stat` call for each changed one.
    fn restat(
        &self,
        names: &NameList,
        changed: &HashSet<OsString>,
        folder: &OpenFolder,
    ) -> io::Result<NameList> {
        let mut edits = BTreeMap::new();
        for name in changed {
            cancellation::check()?;
            let Some(segment) = name::to_segment(name) else { continue };
            // Absent both as a directory and as a file, unless `stat` finds it.
            edits.insert(format!("{segment}/"), false);
            edits.insert(segment, false);
            let directory = match folder.handle.stat(name) {
                Ok(metadata) if metadata.is_dir() || metadata.is_file() => metadata.is_dir(),
                Ok(_) => continue,
                Err(cause) if is_missing(&cause) => continue,
                Err(cause) => return Err(cause),
            };
            edits.extend(self.visible_key(folder, name, directory).map(|key| (key, true)));
        }
        Ok(names.edited(&edits))
    }

    /// Reads all names of a directory.
    fn read_directory(&self, listing: &DirectoryListing, folder: &OpenFolder) -> io::Result<ListingRead> {
        let journal = folder.path_evidence.as_ref().and_then(|path_evidence| path_evidence.journal());
        let number = listing.reads.fetch_add(1, Ordering::SeqCst) + 1;
        let (began, seen) = (Instant::now(), SystemTime::now());
        let (names, links) = self.read_names(folder)?;
        let cost = began.elapsed();
        tracing::trace!(
            path = folder.logical.key,
            names = names.len(),
            ?cost,
            "read the names in a directory"
        );
        Ok(ListingRead {
            journal: journal.filter(|_| names.len() >= JOURNAL_THRESHOLD),
            names: Arc::new(names),
            number,
            // The target of a symbolic link can change without a trace in the directory that contains the link.
            settled: folder.stamp.settled(seen) && !links,
            stamp: folder.stamp.clone(),
            paths: folder.paths().map(TreePath::identity).collect(),
            verified: began,
            cost,
        })
    }

    /// The visible names, and whether symbolic links were followed to determine them.
    pub(super) fn read_names(&self, folder: &OpenFolder) -> io::Result<(NameList, bool)> {
        let mut names = UnsortedNames::default();
        let mut links = false;
        let mut memo = ParentMemo::default();
        for entry in folder.handle.entries()? {
            // Matching many names against many patterns can take long.
            cancellation::check()?;
            let entry = entry?;
            let name = entry.file_name();
            let kind = match entry.file_type() {
                // On some systems this calls `stat`, and the file may be gone.
                Err(cause) if is_missing(&cause) => continue,
                kind => kind?,
            };
            let directory = if kind.is_dir() || kind.is_file() {
                kind.is_dir()
            } else if kind.is_symlink() && self.symlinks == Symlinks::Refuse {
                report_omission(folder, &name, || Some(Omission::SymbolicLink));
                continue;
            } else {
                // A symbolic link, or a file system whose `readdir` reports no file types.
                links |= self.symlinks == Symlinks::Follow;
                let seen = match self.symlink_target(folder, &name, &mut memo) {
                    Ok(Some(target)) => target.parent.handle.stat(&target.name),
                    Ok(None) => folder.handle.stat(&name),
                    Err(cause) => Err(cause),
                };
                match seen {
                    Ok(target) if target.is_file() => false,
                    Ok(target) if target.is_dir() && !folder.ancestry.contains(&FileId::of(&target)) => true,
                    Ok(_) => {
                        report_omission(folder, &name, || {
                            Some(Omission::SpecialFile).filter(|_| !kind.is_symlink())
                        });
                        continue;
                    }
                    Err(cause) => {
                        walk::skip_unreadable(
                            self,
                            &format!("{}{}", folder.logical.key, name.display()),
                            cause,
                        )?;
                        continue;
                    }
                }
            };
            match self.visible_key(folder, &name, directory) {
                Some(key) => names.push(&key),
                None => report_omission(folder, &name, || self.omission(folder, &name, directory)),
            }
        }
        Ok((names.sort(), links))
    }

    /// The last segment of the key of an entry, with a slash if it is a directory; `None` if it is not visible.
    fn visible_key(&self, folder: &OpenFolder, name: &OsStr, directory: bool) -> Option<String> {
        let mut key = name::to_segment(name)?;
        if folder.logical.key.len() + key.len() >= MAX_KEY_LENGTH || !self.shows(folder, name, directory) {
            return None;
        }
        if directory {
            key.push('/');
        }
        Some(key)
    }
}

/// Reports an entry that is not served, for `libris check`, which alone listens to this target. Entries that the
/// configuration does not select are not reported, because `include` may select a few files of thousands.
fn report_omission(folder: &OpenFolder, name: &OsStr, why: impl FnOnce() -> Option<Omission>) {
    if tracing::enabled!(target: LEFT_OUT, tracing::Level::DEBUG)
        && let Some(why) = why().filter(|why| *why != Omission::NotSelected)
    {
        let path = format!("{}{}", folder.logical.key, name.display());
        tracing::debug!(target: LEFT_OUT, path, %why, "an entry of a folder is not served");
    }
}

#[cfg(test)]
mod tests {
    use super::super::TreeOptions;
    use super::super::root::Root;
    use super::{Arc, Duration, Instant, JOURNAL_THRESHOLD, Ordering, Tree};
    use std::fs;
    use std::path::Path;
    use std::sync::Barrier;

    fn tree(path: &Path, config: &TreeOptions) -> Tree {
        let mut tree = Tree::open(config, Root::open(&path.canonicalize().unwrap()).unwrap()).unwrap();
        // So that the duration of a test does not matter.
        tree.event_trust = Duration::from_secs(3600);
        tree
    }

    fn folder(files: usize) -> tempfile::TempDir {
        let folder = tempfile::TempDir::new_in("/dev/shm").or_else(|_| tempfile::TempDir::new()).unwrap();
        for n in 0..files {
            fs::write(folder.path().join(format!("{n:05}")), "").unwrap();
        }
        folder
    }

    /// The number of reads of the root.
    fn reads(tree: &Tree) -> u64 {
        tree.listings.get("").map_or(0, |listing| listing.reads.load(Ordering::SeqCst))
    }

    fn names(tree: &Tree) -> Vec<String> {
        let names = tree.names(&tree.watched_root().unwrap()).unwrap();
        names.iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_directory_with_a_settled_stamp_is_read_once() {
        // The sources are older than one tick of any clock.
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let tree = tree(&path, &TreeOptions::default());
        let names = || tree.names(&tree.root().unwrap()).unwrap();
        assert!(Arc::ptr_eq(&names(), &names()));
    }

    #[cfg(unix)]
    #[test]
    fn only_followed_symlinks_prevent_caching() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        for symlinks in [false, true] {
            let tree = tree(folder.path(), &TreeOptions { symlinks, ..TreeOptions::default() });
            let (_, links) = tree.read_names(&tree.root().unwrap()).unwrap();
            assert_eq!(links, symlinks);
        }
    }

    #[test]
    fn a_directory_with_a_recent_stamp_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path(), &TreeOptions::default());
        let root = tree.root().unwrap();
        assert_eq!(tree.names(&root).unwrap().len(), 0);
        fs::write(folder.path().join("new"), "").unwrap();
        // With the old stamp, as after two changes within one tick of the clock.
        assert!(tree.names(&root).unwrap().iter().eq(["new"]));
    }

    /// Calls `names` from many threads at once. Returns the number of reads that this caused.
    fn reads_by_concurrent_callers(tree: &Tree, expected: usize) -> u64 {
        const MANY: usize = 16;
        let before = reads(tree);
        let together = Barrier::new(MANY);
        std::thread::scope(|scope| {
            for _ in 0..MANY {
                scope.spawn(|| {
                    let root = tree.watched_root().unwrap();
                    together.wait();
                    assert_eq!(tree.names(&root).unwrap().len(), expected);
                });
            }
        });
        reads(tree) - before
    }

    #[test]
    fn concurrent_callers_share_a_read() {
        let folder = folder(20_000);
        let polled = TreeOptions { watch: super::super::ChangeDetection::Poll, ..TreeOptions::default() };
        let tree = tree(folder.path(), &polled);
        for more in 1..4 {
            fs::write(folder.path().join(format!("new-{more}")), "").unwrap();
            // One read may begin before the last thread has called; that thread then needs another one.
            let reads = reads_by_concurrent_callers(&tree, 20_000 + more);
            assert!((1..=2).contains(&reads), "{reads} reads");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_journaled_change_needs_no_read() {
        // The inotify queue is shared by the whole process: the tests that run at once must not delete more watched
        // files than it holds.
        let folder = folder(6_000);
        let tree = tree(folder.path(), &TreeOptions::default());
        assert_eq!(reads_by_concurrent_callers(&tree, 6_000), 1);
        for more in 1..4 {
            fs::write(folder.path().join(format!("new-{more}")), "").unwrap();
            assert_eq!(reads_by_concurrent_callers(&tree, 6_000 + more), 0);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_journal_is_applied_name_by_name() {
        let folder = folder(JOURNAL_THRESHOLD);
        let tree = tree(folder.path(), &TreeOptions::default());
        let path = |name: &str| folder.path().join(name);
        let mut expected: Vec<String> = (0..JOURNAL_THRESHOLD).map(|n| format!("{n:05}")).collect();
        assert_eq!(names(&tree), expected);
        let mut check = |what: &str, gone: &[&str], come: &[&str]| {
            expected.retain(|name| !gone.contains(&&**name));
            expected.extend(come.iter().map(|name| (*name).to_owned()));
            expected.sort_unstable();
            assert_eq!(names(&tree), expected, "{what}");
            assert_eq!(reads(&tree), 1, "{what}");
        };
        fs::write(path("new"), "").unwrap();
        check("a file is created", &[], &["new"]);
        fs::rename(path("new"), path("00001.5")).unwrap();
        check("a file is renamed", &["new"], &["00001.5"]);
        fs::remove_file(path("00001.5")).unwrap();
        fs::create_dir(path("00001.5")).unwrap();
        check("a directory replaces a file", &["00001.5"], &["00001.5/"]);
        fs::rename(path("00000"), path("00002")).unwrap();
        check("a file is renamed over another", &["00000"], &[]);
        fs::write(path(".hidden"), "").unwrap();
        std::os::unix::fs::symlink("00003", path("link")).unwrap();
        check("hidden files are created", &[], &[]);
        fs::rename(path("00001.5"), folder.path().join(".out")).unwrap();
        check("a directory is moved away", &["00001.5/"], &[]);
        fs::write(path("brief"), "").unwrap();
        fs::remove_file(path("brief")).unwrap();
        check("a file is created and deleted", &[], &[]);
        for n in 0..500 {
            fs::write(path("burst"), "").unwrap();
            if n % 2 == 0 {
                fs::remove_file(path("burst")).unwrap();
            }
        }
        check("a file is created repeatedly", &[], &["burst"]);
        // The ignore rules have changed.
        fs::write(path(".gitignore"), "burst\n").unwrap();
        expected.retain(|name| name != "burst");
        assert_eq!(names(&tree), expected);
        assert_eq!(reads(&tree), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_journal_causes_a_read() {
        let folder = folder(JOURNAL_THRESHOLD);
        let tree = tree(folder.path(), &TreeOptions::default());
        assert_eq!(names(&tree).len(), JOURNAL_THRESHOLD);
        for n in 0..4_200 {
            fs::write(folder.path().join(format!("new-{n}")), "").unwrap();
        }
        assert_eq!(names(&tree).len(), JOURNAL_THRESHOLD + 4_200);
        assert_eq!(reads(&tree), 2);
        fs::write(folder.path().join("one-more"), "").unwrap();
        assert_eq!(names(&tree).len(), JOURNAL_THRESHOLD + 4_201);
        assert_eq!(reads(&tree), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_updated_from_events_are_read_again_eventually() {
        let folder = folder(JOURNAL_THRESHOLD);
        let mut tree = tree(folder.path(), &TreeOptions::default());
        tree.event_trust = Duration::ZERO;
        let deadline = Instant::now() + Duration::from_secs(60);
        for n in 0.. {
            fs::write(folder.path().join("new"), "").unwrap();
            assert_eq!(names(&tree).len(), JOURNAL_THRESHOLD + 1);
            fs::remove_file(folder.path().join("new")).unwrap();
            if reads(&tree) > 1 {
                break;
            }
            assert!(Instant::now() < deadline, "{n} changes and no read");
        }
    }
}
