//! The driver for SQLite, on blocking threads.
//!
//! Each statement occupies one thread until it has ended. A stop request ends it early: SQLite calls a progress
//! handler every [`PROGRESS_INSTRUCTIONS`] instructions, which can interrupt the statement. SQLite waits for locks
//! in steps of [`BUSY_TIMEOUT`], and Libris checks for a stop request after each.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::limits::Limit;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, params_from_iter};

use super::sqlite_version::{self, FileIdentity, VersionDetector};
use super::{
    Backend, CONNECTION_LOST, DatabaseVersion, Driver, DriverError, DriverSettings, ObservedVersion, Pool,
    RowSink, SinkOutput, Statement, StopSignal, VersionCheck as _,
};
use crate::sql::dialect::Dialect;
use crate::sql::value::{BindValue, SqlValue, ValueType};

/// The largest value that SQLite may create during a statement, in bytes, unless `max_bytes` is larger. It also
/// limits intermediate values, which are not part of the result.
const MAX_VALUE_BYTES: u64 = 32 * 1024 * 1024;

/// The heap limit of SQLite for all databases of the process: enough for the largest value that a configuration
/// allows.
const HEAP_LIMIT_BYTES: i64 = 512 * 1024 * 1024;

/// The maximum number of bytes of the `CREATE` statements in a schema. Each connection parses all of them and uses
/// several times as much memory.
const MAX_SCHEMA_BYTES: u64 = 16 * 1024 * 1024;

/// The busy time-out of SQLite. When it expires, Libris checks whether to continue waiting for the lock.
const BUSY_TIMEOUT: Duration = Duration::from_millis(20);

/// The number of instructions between two calls of the progress handler.
const PROGRESS_INSTRUCTIONS: i32 = 1000;

/// The extended result code `SQLITE_READONLY_DBMOVED`.
const FILE_MOVED: i32 = 1032;

pub(super) fn driver(path: PathBuf, settings: DriverSettings) -> impl Driver {
    let detector = Arc::new(VersionDetector::new(path.clone()));
    let file = SqliteFile { path, known: Mutex::default(), settings, opening: Arc::default(), detector };
    Pool::new(file, settings)
}

struct SqliteFile {
    path: PathBuf,
    /// The identity of the file that the idle connections have open.
    known: Mutex<Option<FileIdentity>>,
    settings: DriverSettings,
    detector: Arc<VersionDetector>,
    /// Locked while a connection is opened, so that at most one schema larger than [`MAX_SCHEMA_BYTES`] is in
    /// memory.
    opening: Arc<Mutex<()>>,
}

impl SqliteFile {
    /// Connects the detector to the file with this identity, unless it is connected already.
    async fn open_detector(&self, identity: FileIdentity) -> Result<(), DriverError> {
        if self.detector.is_open(identity) {
            return Ok(());
        }
        let (path, settings, opening) = (self.path.clone(), self.settings, Arc::clone(&self.opening));
        let detector = Arc::clone(&self.detector);
        blocking(move || {
            let connection = open(&path, settings, &opening)?;
            detector.open(connection, identity).map_err(classify)
        })
        .await
    }

    /// The version of the data. Waits while the database is locked.
    async fn awaited_version(&self, identity: FileIdentity) -> Result<DatabaseVersion, DriverError> {
        self.open_detector(identity).await?;
        let (detector, settings) = (Arc::clone(&self.detector), self.settings);
        let stop = Arc::new(StopSignal::default());
        let _leaving = super::stop::StopOnDrop(Arc::clone(&stop));
        let version =
            blocking(move || retry_while_locked(settings, &stop, || detector.version()).map_err(classify));
        // There is no version if the file was replaced or removed after the detector was opened.
        version.await?.ok_or(DriverError::Unavailable(CONNECTION_LOST))
    }
}

impl Pool<SqliteFile> {
    /// The identity of the file; fails if there is none. Closes the idle connections if the file was replaced.
    fn checked_identity(&self) -> Result<FileIdentity, DriverError> {
        let now = sqlite_version::identity(&self.backend().path);
        let mut known = self.backend().known.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != now {
            self.clear();
            *known = now;
        }
        now.ok_or(DriverError::Unavailable("its file is not there"))
    }
}

#[async_trait]
impl Driver for Pool<SqliteFile> {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn run(
        &self,
        statement: &Statement,
        sink: Box<dyn RowSink>,
    ) -> Result<Box<dyn RowSink>, DriverError> {
        self.checked_identity()?;
        Pool::run(self, statement, sink).await
    }

    async fn version(&self) -> Result<Option<String>, DriverError> {
        let identity = self.checked_identity()?;
        let DatabaseVersion { epoch, data, .. } = self.backend().awaited_version(identity).await?;
        Ok(Some(format!("{epoch} {data}")))
    }

    async fn observe(&self) -> Option<ObservedVersion> {
        let identity = self.checked_identity().ok()?;
        self.backend().open_detector(identity).await.ok()?;
        let check = Arc::clone(&self.backend().detector);
        Some(ObservedVersion { version: check.current()?, check })
    }
}

#[async_trait]
impl Backend for SqliteFile {
    type Connection = Arc<Mutex<Connection>>;

    const REMOTE: bool = false;

    async fn connect(&self) -> Result<Self::Connection, DriverError> {
        let (path, settings, opening) = (self.path.clone(), self.settings, Arc::clone(&self.opening));
        let opened = blocking(move || open(&path, settings, &opening)).await?;
        Ok(Arc::new(Mutex::new(opened)))
    }

    async fn run(
        &self,
        connection: &mut Self::Connection,
        statement: &Statement,
        output: &mut SinkOutput,
    ) -> Result<(), DriverError> {
        let stop = Arc::clone(output.stop());
        let mut moved = output.take_sink();
        let (connection, statement, settings) = (Arc::clone(connection), statement.clone(), self.settings);
        let (moved, outcome) = blocking(move || {
            // If a sink panics, the lock is poisoned. Unwinding resets the statement, so the connection stays
            // usable.
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let deadline = Instant::now() + settings.timeout;
            let asked = Arc::clone(&stop);
            let interrupt = move || asked.requested() || Instant::now() > deadline;
            connection.progress_handler(PROGRESS_INSTRUCTIONS, Some(interrupt));
            let mut outcome = Ok(());
            let done = retry_while_locked(settings, &stop, || query(&connection, &statement, &mut moved));
            if let Err(error) = done {
                match error.sqlite_error_code() {
                    Some(ErrorCode::TooBig) => moved.oversized(largest(settings) + 1),
                    _ => outcome = Err(classify(error)),
                }
            }
            Ok((moved, outcome))
        })
        .await?;
        *output = moved;
        outcome
    }

    async fn cancel(&self, _session: u64) -> bool {
        // SQLite cancels itself through the progress handler.
        true
    }

    async fn recover(&self, _connection: &mut Self::Connection) -> bool {
        true
    }
}

/// Runs work on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DriverError> + Send + 'static,
) -> Result<T, DriverError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(DriverError::Unavailable(CONNECTION_LOST)))
}

/// The largest value that SQLite may create, in bytes.
fn largest(settings: DriverSettings) -> u64 {
    // One byte more, to distinguish a value that is too large from one that just fits.
    MAX_VALUE_BYTES.max(settings.max_bytes + 1)
}

fn open(path: &Path, settings: DriverSettings, opening: &Mutex<()>) -> Result<Connection, DriverError> {
    let _opening = opening.lock().unwrap_or_else(PoisonError::into_inner);
    let connection = configured(path, settings).map_err(classify)?;
    // An unreadable database is reported by the first statement, not here.
    let sum = "SELECT coalesce(sum(length(CAST(sql AS BLOB))), 0) FROM sqlite_schema";
    match connection.query_row(sum, [], |row| row.get::<_, u64>(0)) {
        Ok(size) if size > MAX_SCHEMA_BYTES => Err(DriverError::CatalogTooLarge(MAX_SCHEMA_BYTES)),
        _ => Ok(connection),
    }
}

fn configured(path: &Path, settings: DriverSettings) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, i32::try_from(largest(settings)).unwrap_or(i32::MAX));
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "hard_heap_limit", HEAP_LIMIT_BYTES)?;
    Ok(connection)
}

/// Retries while the database is locked, until the time-out or a stop request. An attempt that finds the database
/// locked must not have produced output; SQLite detects the lock before the first row.
fn retry_while_locked<T>(
    settings: DriverSettings,
    stop: &StopSignal,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let deadline = Instant::now() + settings.timeout;
    loop {
        let outcome = attempt();
        let locked = outcome.as_ref().is_err_and(|error| {
            matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
        });
        if !locked || stop.requested() || Instant::now() >= deadline {
            return outcome;
        }
        // SQLite returns at once, without the busy time-out, if waiting would be a deadlock.
        std::thread::sleep(BUSY_TIMEOUT / 10);
    }
}

fn query(connection: &Connection, statement: &Statement, output: &mut SinkOutput) -> rusqlite::Result<()> {
    let mut prepared = connection.prepare_cached(&statement.sql)?;
    let columns = prepared.columns();
    let declared = |column: &rusqlite::Column<'_>| match column.decl_type() {
        Some(name) if ["bool", "boolean"].iter().any(|bool| name.eq_ignore_ascii_case(bool)) => {
            ValueType::Boolean
        }
        _ => ValueType::Other,
    };
    let kinds: Vec<_> = match &statement.kinds {
        Some(kinds) => kinds.to_vec(),
        None => columns.iter().map(declared).collect(),
    };
    output.columns(columns.iter().map(|column| column.name().to_owned()).collect());
    let binds = statement.binds.iter().map(|bind| {
        ToSqlOutput::Borrowed(match bind {
            BindValue::Null => ValueRef::Null,
            BindValue::Integer(value) => ValueRef::Integer(*value),
            // The value exceeds the largest integer of SQLite, which is `i64::MAX`.
            BindValue::Unsigned(value) => ValueRef::Real(*value as f64),
            BindValue::Number(value) => ValueRef::Real(*value),
            BindValue::Text(text) => ValueRef::Text(text.as_bytes()),
            BindValue::TextBytes(bytes) => ValueRef::Text(bytes),
            BindValue::Bytes(bytes) => ValueRef::Blob(bytes),
        })
    });
    let wanted = statement.query_limits.map_or(u64::MAX, |bounds| bounds.rows);
    let mut rows = prepared.query(params_from_iter(binds))?;
    let mut given = 0;
    while given < wanted
        && !output.enough
        && let Some(row) = rows.next()?
    {
        given += 1;
        let (size, most) = size(row, kinds.len(), statement)?;
        if size > most {
            output.oversized(size);
            break;
        }
        let cells = kinds.iter().enumerate().map(|(at, kind)| Ok(cell(row.get_ref(at)?, *kind)));
        output.row(cells.collect::<rusqlite::Result<_>>()?);
    }
    Ok(())
}

/// The size of the values of a row, and the limit of that size, in bytes. Without a limit, the size is 0 and the
/// limit is `u64::MAX`.
fn size(row: &Row<'_>, values: usize, statement: &Statement) -> rusqlite::Result<(u64, u64)> {
    if let Some(sizes) = statement.sizes {
        let reported = (values..values + sizes.columns).map(|at| row.get::<_, u64>(at));
        return Ok((reported.sum::<rusqlite::Result<u64>>()?, sizes.bytes));
    }
    let Some(bounds) = statement.query_limits else { return Ok((0, u64::MAX)) };
    let mut size = 0;
    for at in 0..values {
        size += match row.get_ref(at)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len() as u64,
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
        };
    }
    Ok((size, bounds.bytes))
}

/// Converts a value by its storage class: SQLite does not enforce the declared type of a column.
fn cell(value: ValueRef<'_>, kind: ValueType) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(number) => match (kind, number) {
            (ValueType::Boolean, 0 | 1) => SqlValue::Boolean(number == 1),
            _ => SqlValue::Integer(number),
        },
        ValueRef::Real(number) if number.is_finite() => SqlValue::Number(number),
        ValueRef::Real(number) => SqlValue::Text(number.to_string()),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if kind == ValueType::Json => SqlValue::Json(text.to_owned()),
            Ok(text) => SqlValue::Text(text.to_owned()),
            Err(_) => SqlValue::Bytes(bytes.to_vec()),
        },
        ValueRef::Blob(bytes) => SqlValue::Bytes(bytes.to_vec()),
    }
}

fn classify(error: rusqlite::Error) -> DriverError {
    let (code, message) = match &error {
        rusqlite::Error::SqliteFailure(code, message) => (*code, message.as_deref().unwrap_or_default()),
        rusqlite::Error::SqlInputError { error, msg, .. } => (*error, msg.as_str()),
        _ => return DriverError::Failed(Arc::new(error)),
    };
    // The lowest byte is the primary result code; the others refine it. 5 is BUSY, 6 LOCKED, 8 READONLY, 9 INTERRUPT,
    // 10 IOERR, 11 CORRUPT, 14 CANTOPEN, 18 TOOBIG, 20 MISMATCH and 26 NOTADB.
    let missing = ["no such table", "no such column"];
    match code.extended_code & 0xff {
        9 => DriverError::TimedOut,
        5 | 6 => DriverError::Unavailable("it is locked"),
        // 8 without an extended code is an attempt to write.
        8 if code.extended_code == 8 => DriverError::Failed(Arc::new(error)),
        8 if code.extended_code == FILE_MOVED => DriverError::Unavailable("its file was moved"),
        8 => DriverError::Misconfigured {
            why: "SQLite cannot write the `-wal` and `-shm` files next to its file, which it needs to read it",
            fix: "make the folder of the file writable, or copy the file to one that is",
        },
        10 => DriverError::Unavailable("its file cannot be read"),
        11 => {
            DriverError::Misconfigured { why: "its file is damaged", fix: "restore the file from a backup" }
        }
        14 => DriverError::Misconfigured {
            why: "its file cannot be opened",
            fix: "give Libris permission to read the file and its folder",
        },
        26 => DriverError::Misconfigured {
            why: "its file is not a SQLite database",
            fix: "correct the path in `url`",
        },
        18 | 20 => DriverError::WrongType,
        1 if missing.iter().any(|text| message.starts_with(text)) => DriverError::Missing(Arc::new(error)),
        _ => DriverError::Failed(Arc::new(error)),
    }
}
