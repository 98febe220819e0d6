//! Runs statements: connections, time-outs, cancellation and errors.
//!
//! A statement runs in a task that owns its connection and one of `connections` permits. A caller who disconnects, a
//! time-out or a sink that has enough stops the task: it cancels the statement in the database and waits until that
//! has ended. Only then are the connection and the permit free again, so the database never runs more than
//! `connections` statements of a source.

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
mod stop;

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libris_core::Context;

use super::address::Address;
use super::dialect::Dialect;
use super::value::{Bind, Cell, ValueType};

use output::SinkOutput;
use pool::{Backend, Pool};
use stop::Stop;

tokio::task_local! {
    /// The request that statements are run for. A statement holds a clone until it has ended, and with that the permit
    /// of the catalog, even if the caller is gone.
    pub(super) static REQUEST: Context;
}

/// A statement with the values of its placeholders.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) binds: Vec<Bind>,
    /// The types of the selected values, if they are more specific than those of the result.
    pub(super) kinds: Option<Arc<[ValueType]>>,
    /// The text of a configured query, which is to be wrapped with its bounds.
    pub(super) foreign: Option<Bounds>,
    /// Size columns that the statement itself selects, in which case it does not read values that are too large.
    pub(super) sizes: Option<Sizes>,
}

/// The limits of a configured query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) rows: u64,
    /// The most bytes of one row.
    pub(super) bytes: u64,
    /// Whether its outermost part has an `ORDER BY` that a `LIMIT` may follow.
    pub(super) ordered: bool,
}

/// Columns at the end of each row with the sizes of its values. If their sum exceeds `bytes`, large values are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) columns: usize,
    /// The most bytes of one row.
    pub(super) bytes: u64,
}

impl Statement {
    pub(super) fn new(sql: String, binds: Vec<Bind>) -> Self {
        Self { sql, binds, kinds: None, foreign: None, sizes: None }
    }
}

/// A consumer of rows.
pub(super) trait Sink: Any + Send {
    /// The names of the columns of a configured query. Called first.
    fn columns(&mut self, names: Vec<String>);
    /// One row; a break ends the statement.
    fn row(&mut self, row: Vec<Cell>) -> ControlFlow<()>;
    /// A row of at least `size` bytes, which is too large to be read. The statement ends.
    fn oversized(&mut self, size: u64);
}

/// Why a statement failed.
#[derive(Clone, Debug)]
pub(super) enum DriverError {
    /// The database is unavailable; the reason may be shown to callers.
    Away(&'static str),
    /// The time-out expired.
    Slow,
    /// A value has the wrong type.
    Value,
    /// The catalog exceeds this limit in bytes.
    Catalog(u64),
    /// A table or column does not exist.
    Missing(SharedCause),
    /// Anything else, which is logged.
    Failed(SharedCause),
}

/// An error of the database, shared by all callers of a load.
pub(super) type SharedCause = Arc<dyn std::error::Error + Send + Sync>;

/// A connection pool of one database.
#[async_trait]
pub(super) trait Driver: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// Runs a statement in a read-only transaction and returns the sink. If the future is dropped, the statement is
    /// cancelled.
    async fn run(&self, statement: &Statement, sink: Box<dyn Sink>) -> Result<Box<dyn Sink>, DriverError>;

    /// A version that changes with any data in the database; `None` if there is none.
    async fn version(&self) -> Result<Option<String>, DriverError>;

    /// The notifications of a channel, on a separate connection; `None` if the database has none.
    fn listen(&self, _channel: &str) -> Option<Box<dyn NotificationListener>> {
        None
    }
}

/// A notification channel.
#[async_trait]
pub(super) trait NotificationListener: Send {
    /// Begins to listen. After this returns, no notification is missed until `hear` fails.
    async fn begin(&mut self) -> Result<(), DriverError>;
    /// The next notification; after an error, notifications may have been missed.
    async fn hear(&mut self) -> Result<String, DriverError>;
}

/// The settings of a connection pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) connections: usize,
    pub(super) timeout: Duration,
    /// The most bytes in a response.
    pub(super) max_bytes: u64,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl Settings {
    /// The time-out in milliseconds for the server, where 0 would mean none and there is a maximum.
    fn millis(self) -> u128 {
        self.timeout.as_millis().clamp(1, i32::MAX as u128)
    }
}

/// A driver for the database at this address.
pub(super) fn open(address: &Address, settings: Settings) -> Arc<dyn Driver> {
    match address {
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => Arc::new(sqlite::driver(path.clone(), settings)),
        #[cfg(feature = "postgres")]
        Address::Postgres(options) => Arc::new(postgres::driver((**options).clone(), settings)),
        #[cfg(feature = "mysql")]
        Address::Mysql(options) => Arc::new(mysql::driver((**options).clone(), settings)),
    }
}

/// Runs a statement into a sink.
pub(super) async fn run<S: Sink>(
    driver: &dyn Driver,
    statement: &Statement,
    sink: S,
) -> Result<S, DriverError> {
    let sink: Box<dyn Any> = driver.run(statement, Box::new(sink)).await?;
    // The driver returns the sink that it was given.
    sink.downcast().map(|sink| *sink).map_err(|_| DriverError::Away(LOST))
}

/// The most bytes of all rows of an internal statement, such as one that reads the catalog.
const COLLECTED: u64 = 32 * 1024 * 1024;

/// Collects the rows of a statement with a small result.
pub(super) async fn collect(
    driver: &dyn Driver,
    statement: &Statement,
) -> Result<Vec<Vec<Cell>>, DriverError> {
    struct AllRows {
        rows: Vec<Vec<Cell>>,
        bytes: u64,
    }
    impl Sink for AllRows {
        fn columns(&mut self, _names: Vec<String>) {}
        fn row(&mut self, row: Vec<Cell>) -> ControlFlow<()> {
            self.bytes += row.iter().map(Cell::size).sum::<u64>();
            if self.bytes > COLLECTED {
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
    match all.bytes > COLLECTED {
        true => Err(DriverError::Catalog(COLLECTED)),
        false => Ok(all.rows),
    }
}

/// The extra time after the server's own time-out before the connection is closed.
const GRACE: Duration = Duration::from_secs(1);

/// The reason for a closed connection.
const LOST: &str = "the connection was lost";

/// Classifies an error that is not from the database itself.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn explain(error: sqlx::Error) -> DriverError {
    use std::io::ErrorKind;
    match error {
        sqlx::Error::Io(cause) => DriverError::Away(match cause.kind() {
            ErrorKind::ConnectionRefused => "nothing listens at its address",
            ErrorKind::NotFound => "its address is not known",
            ErrorKind::TimedOut => "it does not answer",
            _ => LOST,
        }),
        sqlx::Error::Tls(_) => DriverError::Away("there is no secure connection to it"),
        sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => DriverError::Away(LOST),
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => DriverError::Away("it does not answer"),
        other => DriverError::Failed(Arc::new(other)),
    }
}

/// Classifies an error while connecting: the database is unavailable.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn refused(error: sqlx::Error, explain: impl FnOnce(sqlx::Error) -> DriverError) -> DriverError {
    tracing::debug!(%error, "a database cannot be reached");
    let lost = matches!(error, sqlx::Error::Io(_));
    match explain(error) {
        DriverError::Away(LOST) if lost => DriverError::Away("its host cannot be reached"),
        away @ DriverError::Away(_) => away,
        _ => DriverError::Away("it refuses the connection"),
    }
}
