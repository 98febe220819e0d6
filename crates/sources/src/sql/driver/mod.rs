//! Asking a database: connections, time-outs, and what can go wrong.
//!
//! A connection is used again only after its statement has come to its end. Whatever was left half done,
//! by a time-out, a limit or a caller who went away, is closed instead, which also ends the work on the
//! other side.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Connection;
use tokio::sync::Semaphore;

use super::address::Address;
use super::dialect::Dialect;
use super::value::{Bind, Cell, Kind};

/// A statement with the values for its places.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) binds: Vec<Bind>,
    /// The kinds of what is selected, where that is known better than the database would tell.
    pub(super) kinds: Option<Vec<Kind>>,
    /// Whether it was configured, rather than made here.
    pub(super) foreign: Option<Bounds>,
}

/// How much of a configured query is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) rows: u64,
    /// The most of one value.
    pub(super) bytes: u64,
}

impl Statement {
    pub(super) fn new(sql: String, binds: Vec<Bind>) -> Self {
        Self { sql, binds, kinds: None, foreign: None }
    }
}

/// Who takes the rows as they come.
pub(super) trait Sink: Send {
    /// What the columns of a configured query are called. Comes first.
    fn columns(&mut self, names: Vec<String>);
    /// One row; a break ends the statement.
    fn row(&mut self, row: Vec<Cell>) -> ControlFlow<()>;
}

/// Why a database did not answer.
#[derive(Debug)]
pub(super) enum Problem {
    /// It cannot be reached; the text says why and may be shown.
    Away(&'static str),
    /// It took too long.
    Slow,
    /// A value is not what it should be.
    Value,
    /// A table or column is not there, or not any more.
    Missing(sqlx::Error),
    /// Anything else, which is logged.
    Failed(sqlx::Error),
}

/// A database that can be asked.
#[async_trait]
pub(super) trait Driver: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// Runs a statement, in a transaction that only reads.
    async fn run(&self, statement: &Statement, sink: &mut dyn Sink) -> Result<(), Problem>;

    /// Something that changes when any data in the database does; `None` where there is no such thing.
    async fn version(&self) -> Result<Option<String>, Problem>;

    /// What is told on a channel, by a connection of its own; `None` where there are no channels.
    fn listen(&self, _channel: &str) -> Option<Box<dyn Listen>> {
        None
    }
}

/// A channel that tells of changes.
#[async_trait]
pub(super) trait Listen: Send {
    /// Begins to listen. Once this returns, nothing is missed until `hear` fails.
    async fn begin(&mut self) -> Result<(), Problem>;
    /// What is said next; an error means that something may have been missed.
    async fn hear(&mut self) -> Result<String, Problem>;
}

/// How a database is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) connections: usize,
    pub(super) timeout: Duration,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl Settings {
    /// The time-out as servers take it: no time means no time-out to them, and there is a longest.
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

/// All rows of a statement that is known to give few.
pub(super) async fn collect(driver: &dyn Driver, statement: &Statement) -> Result<Vec<Vec<Cell>>, Problem> {
    struct All(Vec<Vec<Cell>>);
    impl Sink for All {
        fn columns(&mut self, _names: Vec<String>) {}
        fn row(&mut self, row: Vec<Cell>) -> ControlFlow<()> {
            self.0.push(row);
            ControlFlow::Continue(())
        }
    }
    let mut all = All(Vec::new());
    driver.run(statement, &mut all).await?;
    Ok(all.0)
}

/// Whether a statement came to its end, so that its connection may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    Cut,
}

/// What a database does in its own way.
#[async_trait]
trait Backend: Send + Sync + 'static {
    type Connection: Connection + Send;

    async fn connect(&self) -> sqlx::Result<Self::Connection>;

    /// Runs a statement to its end or until the sink has had enough.
    async fn run(
        &self,
        connection: &mut Self::Connection,
        statement: &Statement,
        sink: &mut dyn Sink,
    ) -> sqlx::Result<Ended>;

    /// Makes a connection fit for use after the database refused a statement; `false` if it cannot be.
    async fn recover(&self, connection: &mut Self::Connection) -> bool;

    /// What an error means.
    fn explain(&self, error: sqlx::Error) -> Problem;
}

/// Connections that are open and idle, and how many may be open at once.
struct Pool<B: Backend> {
    backend: B,
    settings: Settings,
    idle: Mutex<Vec<B::Connection>>,
    permits: Semaphore,
}

/// How much longer than the database itself we wait before we give it up.
const GRACE: Duration = Duration::from_secs(1);

impl<B: Backend> Pool<B> {
    fn new(backend: B, settings: Settings) -> Self {
        let permits = Semaphore::new(settings.connections);
        Self { backend, settings, idle: Mutex::default(), permits }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<B::Connection>> {
        // A push or a pop leaves it whole.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self, statement: &Statement, sink: &mut dyn Sink) -> Result<(), Problem> {
        let run = async {
            let Ok(_permit) = self.permits.acquire().await else { return Err(Problem::Slow) };
            self.attempt(statement, sink).await
        };
        match tokio::time::timeout(self.settings.timeout + GRACE, run).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Problem::Slow),
        }
    }

    async fn attempt(&self, statement: &Statement, sink: &mut dyn Sink) -> Result<(), Problem> {
        // A connection that was idle may have died meanwhile, which is no reason to fail.
        let mut rested = self.idle().pop();
        loop {
            let was_idle = rested.is_some();
            let mut connection = match rested.take() {
                Some(connection) => connection,
                None => self.backend.connect().await.map_err(|error| self.refused(error))?,
            };
            let mut started = Started { sink: &mut *sink, rows: false };
            match self.backend.run(&mut connection, statement, &mut started).await {
                Ok(ended) => {
                    if ended == Ended::Whole {
                        self.idle().push(connection);
                    }
                    return Ok(());
                }
                Err(error) => {
                    let begun = started.rows;
                    let problem = self.backend.explain(error);
                    match problem {
                        Problem::Away(_) if was_idle && !begun => self.idle().clear(),
                        Problem::Away(_) | Problem::Slow => return Err(problem),
                        Problem::Value | Problem::Missing(_) | Problem::Failed(_) => {
                            if self.backend.recover(&mut connection).await {
                                self.idle().push(connection);
                            }
                            return Err(problem);
                        }
                    }
                }
            }
        }
    }

    /// Whatever keeps us from connecting, the database is away.
    fn refused(&self, error: sqlx::Error) -> Problem {
        tracing::debug!(%error, "a database cannot be reached");
        let lost = matches!(error, sqlx::Error::Io(_));
        match self.backend.explain(error) {
            Problem::Away(LOST) if lost => Problem::Away("its host cannot be reached"),
            away @ Problem::Away(_) => away,
            _ => Problem::Away("it refuses the connection"),
        }
    }
}

/// A sink, and whether it has been given anything.
struct Started<'a> {
    sink: &'a mut dyn Sink,
    rows: bool,
}

impl Sink for Started<'_> {
    fn columns(&mut self, names: Vec<String>) {
        self.sink.columns(names);
    }

    fn row(&mut self, row: Vec<Cell>) -> ControlFlow<()> {
        self.rows = true;
        self.sink.row(row)
    }
}

/// What is said of a connection that ended.
const LOST: &str = "the connection was lost";

/// What an error means that does not come from the database itself.
fn explain(error: sqlx::Error) -> Problem {
    use std::io::ErrorKind;
    match error {
        sqlx::Error::Io(cause) => Problem::Away(match cause.kind() {
            ErrorKind::ConnectionRefused => "nothing listens at its address",
            ErrorKind::NotFound => "its address is not known",
            ErrorKind::TimedOut => "it does not answer",
            _ => LOST,
        }),
        sqlx::Error::Tls(_) => Problem::Away("there is no secure connection to it"),
        sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => Problem::Away(LOST),
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Problem::Away("it does not answer"),
        other => Problem::Failed(other),
    }
}
