//! Detects changes of a SQLite file, cheaply enough for every use of a cached response.
//!
//! `PRAGMA data_version` of a connection changes whenever another connection has committed, but a query of it takes
//! a lock and several system calls. With a rollback journal, the `stat` result of the file is enough: a transaction
//! writes to the file before it commits, and it excludes readers from its first write until its commit. So the
//! version stays the same as long as the file has the stamp that it had before `data_version` was last queried. In
//! WAL mode, a commit becomes visible in shared memory after the last write to a file, so a stamp proves nothing,
//! and each check queries `data_version`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::Connection;

use super::{DatabaseVersion, VersionCheck};

/// The coarsest timestamp granularity of a file system: two seconds on FAT. Two writes within it may leave the same
/// stamp.
const TICK: Duration = Duration::from_secs(2);

/// Device and inode, which change if the file is replaced; constant on systems other than Unix.
pub(super) type FileIdentity = (u64, u64);

/// The part of a `stat` result that changes with every write to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DatabaseFileStamp {
    identity: FileIdentity,
    size: u64,
    /// The latest of mtime and ctime; `None` on systems other than Unix.
    changed: Option<SystemTime>,
}

impl DatabaseFileStamp {
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = std::fs::metadata(path).ok()?;
        let time = |seconds: i64, nanoseconds: i64| {
            let since = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?);
            SystemTime::UNIX_EPOCH.checked_add(since)
        };
        let modified = time(metadata.mtime(), metadata.mtime_nsec());
        // A process can set the mtime, but not the ctime, which is why the stamp has the later one of both.
        let changed = time(metadata.ctime(), metadata.ctime_nsec());
        Some(Self {
            identity: (metadata.dev(), metadata.ino()),
            size: metadata.len(),
            changed: modified.zip(changed).map(|(modified, changed)| modified.max(changed)),
        })
    }

    #[cfg(not(unix))]
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { identity: (0, 0), size: metadata.len(), changed: None })
    }

    /// Whether any write after `now` gives the file another stamp.
    fn is_settled(&self, now: SystemTime) -> bool {
        let settled = self.changed.and_then(|changed| changed.checked_add(TICK));
        settled.is_some_and(|settled| settled < now)
    }
}

/// The identity of the file at a path; `None` if there is none.
pub(super) fn identity(path: &Path) -> Option<FileIdentity> {
    DatabaseFileStamp::of(path).map(|stamp| stamp.identity)
}

/// Detects commits of other connections, with a connection of its own.
pub(super) struct VersionDetector {
    path: PathBuf,
    connection: Mutex<Option<DetectorConnection>>,
}

struct DetectorConnection {
    connection: Connection,
    identity: FileIdentity,
    version: DatabaseVersion,
    /// While the file has this stamp, the database has the version `version`. `None` if no stamp proves that.
    settled: Option<DatabaseFileStamp>,
    /// Whether the `stat` results of the file are current. Those of a remote file system may be cached.
    is_local: bool,
}

impl VersionDetector {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, connection: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<DetectorConnection>> {
        // A panic can only happen between two updates, so the state is consistent.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the detector has a connection to the file with this identity.
    pub(super) fn is_open(&self, identity: FileIdentity) -> bool {
        self.lock().as_ref().is_some_and(|open| open.identity == identity)
    }

    /// Uses this new connection from now on. The caller has opened it while the file at the path had this identity.
    pub(super) fn open(&self, connection: Connection, identity: FileIdentity) -> rusqlite::Result<()> {
        static EPOCHS: AtomicU64 = AtomicU64::new(0);
        // A check must not wait for a lock, because a request waits for the check.
        connection.busy_timeout(Duration::ZERO)?;
        let epoch = EPOCHS.fetch_add(1, Ordering::Relaxed);
        // The first check replaces both numbers.
        let version = DatabaseVersion { epoch, data: i64::MIN, schema: i64::MIN };
        let is_local = is_local(&self.path);
        *self.lock() = Some(DetectorConnection { connection, identity, version, settled: None, is_local });
        Ok(())
    }

    /// The current version. `None` if the file was replaced or is missing, or if there is no connection yet.
    pub(super) fn version(&self) -> rusqlite::Result<Option<DatabaseVersion>> {
        let mut open = self.lock();
        let Some(open) = &mut *open else { return Ok(None) };
        let now = SystemTime::now();
        match DatabaseFileStamp::of(&self.path) {
            Some(stamp) if stamp.identity == open.identity => {
                open.version_at(&self.path, stamp, now).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl VersionCheck for VersionDetector {
    fn current(&self) -> Option<DatabaseVersion> {
        // A locked database may be about to change, so its version counts as unknown.
        self.version().ok().flatten()
    }
}

impl DetectorConnection {
    /// The current version. `stamp` is the current stamp of the file, read at `now` or later.
    fn version_at(
        &mut self,
        path: &Path,
        stamp: DatabaseFileStamp,
        now: SystemTime,
    ) -> rusqlite::Result<DatabaseVersion> {
        if self.settled == Some(stamp) {
            return Ok(self.version);
        }
        self.settled = None;
        let data = self.number("PRAGMA data_version")?;
        if data != self.version.data {
            let schema = self.number("PRAGMA schema_version")?;
            self.version = DatabaseVersion { data, schema, ..self.version };
        }
        if self.is_local && stamp.is_settled(now) && self.has_rollback_journal(path)? {
            self.settled = Some(stamp);
        }
        Ok(self.version)
    }

    fn number(&self, pragma: &str) -> rusqlite::Result<i64> {
        self.connection.prepare_cached(pragma)?.query_row([], |row| row.get(0))
    }

    /// Whether the database uses a rollback journal. A later switch to WAL mode writes to the file, and so changes the
    /// stamp. In WAL mode, the connection has created the WAL file by now.
    fn has_rollback_journal(&self, path: &Path) -> rusqlite::Result<bool> {
        let mode: String =
            self.connection.prepare_cached("PRAGMA journal_mode")?.query_row([], |row| row.get(0))?;
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let has_wal = !matches!(Path::new(&wal).try_exists(), Ok(false));
        Ok(!has_wal && ["delete", "truncate", "persist", "memory", "off"].contains(&&*mode))
    }
}

/// Whether the file is on a local file system, whose `stat` results are current. The file is not opened, because
/// closing it would release the locks that SQLite has on it.
#[cfg(target_os = "linux")]
fn is_local(path: &Path) -> bool {
    !crate::remote::is_remote_path(path)
}

#[cfg(not(target_os = "linux"))]
fn is_local(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::{DatabaseFileStamp, TICK, VersionDetector, identity};
    use crate::sql::driver::VersionCheck as _;
    use rusqlite::{Connection, OpenFlags};
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    fn detector(path: &Path) -> VersionDetector {
        let detector = VersionDetector::new(path.to_owned());
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).unwrap();
        detector.open(connection, identity(path).unwrap()).unwrap();
        detector
    }

    /// Waits until a write to this file gets a later modification time than the last write.
    fn next_tick(path: &Path) {
        let other = path.with_extension("tick");
        let changed = |path: &Path| DatabaseFileStamp::of(path).unwrap().changed;
        loop {
            std::fs::write(&other, "").unwrap();
            if changed(&other) > changed(path) {
                return;
            }
        }
    }

    /// Makes the file look as if it had not been written to for a while.
    fn age(detector: &VersionDetector, path: &Path) {
        let mut open = detector.lock();
        let open = open.as_mut().unwrap();
        let later = SystemTime::now() + TICK + Duration::from_secs(1);
        open.version_at(path, DatabaseFileStamp::of(path).unwrap(), later).unwrap();
    }

    #[test]
    fn every_commit_changes_the_version() {
        for mode in ["delete", "truncate", "persist", "wal"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("shop.db");
            let writer = Connection::open(&path).unwrap();
            let _: String =
                writer.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0)).unwrap();
            writer.execute_batch("CREATE TABLE numbers (number); INSERT INTO numbers VALUES (0)").unwrap();
            let detector = detector(&path);
            // Not 0, which is the stored value: SQLite does not write an unchanged row.
            for number in 1..=20 {
                age(&detector, &path);
                next_tick(&path);
                let is_settled = detector.lock().as_ref().unwrap().settled.is_some();
                assert_eq!(is_settled, cfg!(target_os = "linux") && mode != "wal", "{mode}");
                let before = detector.current().unwrap();
                assert_eq!(detector.current(), Some(before), "{mode}: nothing has changed");
                writer.execute("UPDATE numbers SET number = ?1", [number]).unwrap();
                let after = detector.current().unwrap();
                assert_ne!(after, before, "{mode}");
                assert_eq!(after.schema, before.schema, "{mode}");
            }
            let before = detector.current().unwrap();
            writer.execute_batch("CREATE INDEX by_number ON numbers (number)").unwrap();
            assert_ne!(detector.current().unwrap().schema, before.schema, "{mode}");
        }
    }

    #[test]
    fn a_database_that_enters_wal_mode_is_checked_by_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("CREATE TABLE numbers (number); INSERT INTO numbers VALUES (0)").unwrap();
        let detector = detector(&path);
        age(&detector, &path);
        next_tick(&path);
        let _: String = writer.query_row("PRAGMA journal_mode = wal", [], |row| row.get(0)).unwrap();
        age(&detector, &path);
        assert!(detector.lock().as_ref().unwrap().settled.is_none());
        let before = detector.current().unwrap();
        writer.execute_batch("UPDATE numbers SET number = 1").unwrap();
        assert_ne!(detector.current().unwrap(), before);
    }

    #[test]
    fn a_locked_or_replaced_file_has_no_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("CREATE TABLE numbers (number)").unwrap();
        let detector = detector(&path);
        assert!(detector.current().is_some());
        writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
        assert_eq!(detector.current(), None);
        writer.execute_batch("COMMIT").unwrap();
        assert!(detector.current().is_some());
        let other = folder.path().join("other.db");
        std::fs::copy(&path, &other).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(detector.current(), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(detector.current(), None);
    }
}
