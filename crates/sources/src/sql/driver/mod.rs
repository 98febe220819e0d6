//! Runs statements: connections, time-outs, cancellation and errors.
//!
//! A statement runs in a task that owns its connection and one of `connections` permits. If the caller disconnects,
//! the time-out expires or the sink needs no more rows, the task cancels the statement in the database and waits
//! until the statement has ended. Only then does the task release the connection and the permit, so the database
//! does not run more than `connections` statements of a source. There is one exception: if a server does not end a
//! statement in time, the task closes the connection and releases the permit.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod canceller;
#[cfg(feature = "mysql")]
mod mysql;
mod output;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_version;
mod stop;

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libris_core::{Context, Proof};

use super::address::DatabaseAddress;
use super::dialect::Dialect;
use super::value::{BindValue, SqlValue, ValueType};

use output::SinkOutput;
use pool::{Backend, Pool};
use stop::StopSignal;

tokio::task_local! {
    /// The context of the current request, which holds the request's concurrency permit of the Libris catalog. Each
    /// statement holds a clone until it has ended, even if the caller is gone.
    pub(super) static REQUEST_CONTEXT: Context;
}

/// A statement with the values of its placeholders.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) binds: Vec<BindValue>,
    /// The types of the selected values, if they are more specific than those that the database reports.
    pub(super) kinds: Option<Arc<[ValueType]>>,
    /// The limits of a configured query. The driver enforces them, for example by wrapping the query.
    pub(super) query_limits: Option<QueryLimits>,
    /// The size columns that the statement selects, if it enforces the size limit itself.
    pub(super) sizes: Option<SizeColumns>,
    /// Whether the statement reads only tables, with functions of the database system only. Then it cannot change the
    /// settings of its session, which a view or a configured query could.
    pub(super) reads_only_tables: bool,
}

/// The limits of a configured query.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryLimits {
    pub(super) rows: u64,
    /// The maximum number of bytes of one row.
    pub(super) bytes: u64,
    /// Whether the query ends with an `ORDER BY`, so that a `LIMIT` may be appended.
    pub(super) ordered: bool,
}

/// Columns at the end of each row that contain the sizes of its large values, in bytes. If their sum exceeds
/// `bytes`, the row is oversized, and its large values may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeColumns {
    /// The number of these columns.
    pub(super) columns: usize,
    /// The maximum number of bytes of one row.
    pub(super) bytes: u64,
}

impl Statement {
    pub(super) fn new(sql: String, binds: Vec<BindValue>) -> Self {
        Self { sql, binds, kinds: None, query_limits: None, sizes: None, reads_only_tables: false }
    }
}

/// A consumer of rows.
pub(super) trait RowSink: Any + Send {
    /// Receives the column names, before any row. Drivers need to call it only for configured queries.
    fn columns(&mut self, names: Vec<String>);
    /// Receives one row. `Break` stops the statement.
    fn row(&mut self, row: Vec<SqlValue>) -> ControlFlow<()>;
    /// Reports that the next row is too large to be read: it has at least `size` bytes. The statement is stopped.
    fn oversized(&mut self, size: u64);
}

/// Why a statement failed.
#[derive(Clone, Debug)]
pub(super) enum DriverError {
    /// The database is unavailable; the reason may be shown to callers.
    Unavailable(&'static str),
    /// The database is unusable until somebody changes its configuration; both texts may be shown to callers.
    Misconfigured { why: &'static str, fix: &'static str },
    /// The user of the database lacks a privilege for the statement.
    Denied(DatabaseError),
    /// The time-out expired.
    TimedOut,
    /// A value has the wrong type.
    WrongType,
    /// The catalog exceeds this limit in bytes.
    CatalogTooLarge(u64),
    /// A table or column does not exist.
    Missing(DatabaseError),
    /// Any other error. It is logged and not shown to callers.
    Failed(DatabaseError),
}

impl DriverError {
    /// Whether the connection is unusable after this error.
    fn breaks_connection(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Misconfigured { .. })
    }
}

/// An error of the database, in an `Arc` because all callers of one load (single-flight) share it.
pub(super) type DatabaseError = Arc<dyn std::error::Error + Send + Sync>;

/// A connection pool of one database.
#[async_trait]
pub(super) trait Driver: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// Runs a statement that cannot write, and returns the sink. If the future is dropped, the statement is cancelled.
    async fn run(
        &self,
        statement: &Statement,
        sink: Box<dyn RowSink>,
    ) -> Result<Box<dyn RowSink>, DriverError>;

    /// For polls: a version that changes with every write to the database; `None` if the database has no such
    /// version (MySQL). May wait for the database.
    async fn version(&self) -> Result<Option<String>, DriverError>;

    /// For caches: the current version of the data. A response that is made after this call can be cached while the
    /// version stays the same. `None` if the version cannot be checked cheaply (PostgreSQL, MySQL), or if the
    /// database is locked.
    async fn observe(&self) -> Option<ObservedVersion> {
        None
    }

    /// A listener for the notifications of a channel, on a separate connection; `None` except for PostgreSQL.
    fn listen(&self, _channel: &str) -> Option<Box<dyn NotificationListener>> {
        None
    }
}

/// The version of the data in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DatabaseVersion {
    /// Identifies the connection that reported `data` and `schema`. The numbers of different connections are not
    /// comparable.
    pub(super) epoch: u64,
    /// Changes with every commit.
    pub(super) data: i64,
    /// Changes whenever a table, index or view is created, altered or dropped.
    pub(super) schema: i64,
}

/// A version check that is cheap and never waits for a lock of the database.
pub(super) trait VersionCheck: Send + Sync {
    /// The current version; `None` if it is not known at the moment.
    fn current(&self) -> Option<DatabaseVersion>;
}

/// The version of a database when a request began.
#[derive(Clone)]
pub(super) struct ObservedVersion {
    pub(super) version: DatabaseVersion,
    pub(super) check: Arc<dyn VersionCheck>,
}

impl ObservedVersion {
    /// A proof that holds while nothing in the database changes.
    pub(super) fn data_proof(&self) -> Proof {
        let Self { version, check } = self.clone();
        Proof::new(move || check.current() == Some(version))
    }

    /// A proof that holds while no table, index or view changes.
    pub(super) fn schema_proof(&self) -> Proof {
        let Self { version, check } = self.clone();
        Proof::new(move || check.current().is_some_and(|now| now.has_schema_of(version)))
    }
}

impl DatabaseVersion {
    /// Whether no table, index or view has changed between the two versions; `false` if they have different epochs.
    pub(super) fn has_schema_of(self, other: Self) -> bool {
        (self.epoch, self.schema) == (other.epoch, other.schema)
    }
}

/// A notification channel.
#[async_trait]
pub(super) trait NotificationListener: Send {
    /// Begins to listen. After this succeeds, no notification is missed until `next_notification` fails.
    async fn begin(&mut self) -> Result<(), DriverError>;
    /// The next notification; after an error, notifications may have been missed.
    async fn next_notification(&mut self) -> Result<String, DriverError>;
}

/// The settings of a connection pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriverSettings {
    pub(super) connections: usize,
    pub(super) timeout: Duration,
    /// The maximum number of bytes in a response.
    pub(super) max_bytes: u64,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl DriverSettings {
    /// The time-out for the server in milliseconds. It is never 0, which would mean no time-out, and at most the
    /// server's maximum.
    fn timeout_millis(self) -> u128 {
        self.timeout.as_millis().clamp(1, i32::MAX as u128)
    }
}

/// A driver for the database at this address.
pub(super) fn open(address: &DatabaseAddress, settings: DriverSettings) -> Arc<dyn Driver> {
    match address {
        #[cfg(feature = "sqlite")]
        DatabaseAddress::Sqlite(path) => Arc::new(sqlite::driver(path.clone(), settings)),
        #[cfg(feature = "postgres")]
        DatabaseAddress::Postgres(options) => Arc::new(postgres::driver((**options).clone(), settings)),
        #[cfg(feature = "mysql")]
        DatabaseAddress::Mysql(options) => Arc::new(mysql::driver((**options).clone(), settings)),
    }
}

/// Runs a statement, passes its rows to the sink, and returns the sink.
pub(super) async fn run<S: RowSink>(
    driver: &dyn Driver,
    statement: &Statement,
    sink: S,
) -> Result<S, DriverError> {
    let sink: Box<dyn Any> = driver.run(statement, Box::new(sink)).await?;
    // The driver returns the sink that it was given.
    sink.downcast().map(|sink| *sink).map_err(|_| DriverError::Unavailable(CONNECTION_LOST))
}

/// The maximum number of bytes of all rows of an internal statement, such as one that reads the catalog.
const MAX_COLLECTED_BYTES: u64 = 32 * 1024 * 1024;

/// Collects the rows of a statement; fails if they exceed [`MAX_COLLECTED_BYTES`].
pub(super) async fn collect(
    driver: &dyn Driver,
    statement: &Statement,
) -> Result<Vec<Vec<SqlValue>>, DriverError> {
    struct AllRows {
        rows: Vec<Vec<SqlValue>>,
        bytes: u64,
    }
    impl RowSink for AllRows {
        fn columns(&mut self, _names: Vec<String>) {}
        fn row(&mut self, row: Vec<SqlValue>) -> ControlFlow<()> {
            self.bytes += row.iter().map(SqlValue::size).sum::<u64>();
            if self.bytes > MAX_COLLECTED_BYTES {
                return ControlFlow::Break(());
            }
            self.rows.push(row);
            ControlFlow::Continue(())
        }
        fn oversized(&mut self, size: u64) {
            self.bytes += size;
        }
    }
    let all = run(driver, statement, AllRows { rows: Vec::new(), bytes: 0 }).await?;
    match all.bytes > MAX_COLLECTED_BYTES {
        true => Err(DriverError::CatalogTooLarge(MAX_COLLECTED_BYTES)),
        false => Ok(all.rows),
    }
}

/// How much longer than the time-out a statement may run before Libris cancels it. Normally the database enforces
/// the time-out itself.
const TIMEOUT_GRACE: Duration = Duration::from_secs(1);

/// The reason for a closed connection.
const CONNECTION_LOST: &str = "the connection was lost";

/// The error if no TLS connection is possible.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const TLS_FAILED: DriverError = DriverError::Misconfigured {
    why: "a secure connection fails: the server has no TLS, or its certificate is not valid for the host in its URL",
    fix: "name the certificate of the authority with `sslrootcert` (PostgreSQL) or `ssl-ca` (MySQL) in `url`, and \
          check `sslmode` or `ssl-mode`",
};

/// The error if a user or a password is wrong.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const WRONG_PASSWORD: DriverError = DriverError::Misconfigured {
    why: "it rejects the user or the password",
    fix: "correct the user in `url`, and the password there or in the variable that `password_env` names",
};

/// The error if a database does not exist.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const NO_DATABASE: DriverError = DriverError::Misconfigured {
    why: "the server has no database of this name",
    fix: "correct the name of the database in `url`, or create the database",
};

/// The error if the user is not allowed to use the database.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const NOT_ADMITTED: DriverError = DriverError::Misconfigured {
    why: "the server does not admit the user to this database",
    fix: "let an administrator grant the user access from this host, with SELECT on the tables",
};

/// Classifies an error of the network or the client library. Errors that the database server returns are classified
/// by its driver.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn classify(error: sqlx::Error) -> DriverError {
    use std::io::ErrorKind;
    match error {
        sqlx::Error::Io(cause) => DriverError::Unavailable(match cause.kind() {
            ErrorKind::ConnectionRefused => "nothing listens at its address",
            // A Unix socket or a certificate file.
            ErrorKind::NotFound => {
                return DriverError::Misconfigured {
                    why: "a file that its URL names does not exist",
                    fix: "check the paths in `url`",
                };
            }
            // The TLS library reports a rejected certificate as this kind of error.
            ErrorKind::InvalidData => return TLS_FAILED,
            ErrorKind::TimedOut => "it does not answer",
            _ => CONNECTION_LOST,
        }),
        sqlx::Error::Tls(_) => TLS_FAILED,
        sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => DriverError::Unavailable(CONNECTION_LOST),
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => DriverError::Unavailable("it does not answer"),
        other => DriverError::Failed(Arc::new(other)),
    }
}

/// Classifies an error while connecting.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn connect_error(error: sqlx::Error, classify: impl FnOnce(sqlx::Error) -> DriverError) -> DriverError {
    tracing::debug!(%error, "a database cannot be reached");
    let lost = matches!(error, sqlx::Error::Io(_));
    match classify(error) {
        DriverError::Unavailable(CONNECTION_LOST) if lost => {
            DriverError::Unavailable("its host cannot be reached")
        }
        DriverError::Denied(_) => NOT_ADMITTED,
        error if error.breaks_connection() => error,
        _ => DriverError::Unavailable("it refuses the connection"),
    }
}
