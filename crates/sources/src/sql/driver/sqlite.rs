//! SQLite.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{
    Arguments as _, Column as _, ConnectOptions as _, Decode, Executor as _, Row as _, Statement as _,
    TypeInfo as _, ValueRef as _,
};

use super::{Backend, Driver, Ended, Pool, Problem, Settings, Sink, Statement, explain};
use crate::sql::dialect::Dialect;
use crate::sql::value::{Bind, Cell, Kind};

pub(super) fn driver(path: PathBuf, settings: Settings) -> impl Driver {
    let file = File { path, known: Mutex::default(), settings, witness: tokio::sync::Mutex::default() };
    Pool::new(file, settings)
}

struct File {
    path: PathBuf,
    /// Which file the idle connections have open.
    known: Mutex<Option<Identity>>,
    settings: Settings,
    witness: tokio::sync::Mutex<Option<Witness>>,
}

/// What tells a file from the one that was put in its place.
type Identity = (u64, u64);

/// A connection that only tells whether others have changed anything since it was last asked.
struct Witness {
    connection: SqliteConnection,
    identity: Option<Identity>,
    since: Instant,
}

impl File {
    #[cfg(unix)]
    fn identity(&self) -> Option<Identity> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = std::fs::metadata(&self.path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    }

    #[cfg(not(unix))]
    fn identity(&self) -> Option<Identity> {
        std::fs::metadata(&self.path).ok().map(|_| (0, 0))
    }

    async fn testify(&self, identity: Option<Identity>) -> sqlx::Result<String> {
        let mut witness = self.witness.lock().await;
        if witness.as_ref().is_none_or(|witness| witness.identity != identity) {
            let connection = self.connect().await?;
            *witness = Some(Witness { connection, identity, since: Instant::now() });
        }
        let Some(kept) = witness.as_mut() else { return Err(sqlx::Error::WorkerCrashed) };
        let asked = sqlx::query_scalar::<_, i64>("PRAGMA data_version").fetch_one(&mut kept.connection);
        let number = asked.await?;
        Ok(format!("{:?} {number}", kept.since))
    }
}

impl Pool<File> {
    /// Lets go of connections to a file that another has taken the place of.
    fn check(&self) -> Result<Identity, Problem> {
        let now = self.backend.identity();
        let mut known = self.backend.known.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != now {
            self.idle().clear();
            *known = now;
        }
        now.ok_or(Problem::Away("its file is not there"))
    }
}

#[async_trait]
impl Driver for Pool<File> {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn run(&self, statement: &Statement, sink: &mut dyn Sink) -> Result<(), Problem> {
        self.check()?;
        Pool::run(self, statement, sink).await
    }

    async fn version(&self) -> Result<Option<String>, Problem> {
        let identity = self.check()?;
        let told = self.backend.testify(Some(identity)).await;
        told.map(Some).map_err(|error| self.backend.explain(error))
    }
}

#[async_trait]
impl Backend for File {
    type Connection = SqliteConnection;

    async fn connect(&self) -> sqlx::Result<SqliteConnection> {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .read_only(true)
            .create_if_missing(false)
            .pragma("query_only", "ON")
            .pragma("trusted_schema", "OFF")
            .busy_timeout(self.settings.timeout)
            .disable_statement_logging()
            .connect()
            .await
    }

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        statement: &Statement,
        sink: &mut dyn Sink,
    ) -> sqlx::Result<Ended> {
        // The work is done elsewhere, and goes on until it is told that nobody waits for it any more.
        let waiting = Arc::new(());
        let waits = Arc::downgrade(&waiting);
        let deadline = Instant::now() + self.settings.timeout;
        let go_on = move || waits.strong_count() > 0 && Instant::now() < deadline;
        connection.lock_handle().await?.set_progress_handler(1000, go_on);
        query(connection, statement, sink).await
    }

    async fn recover(&self, _connection: &mut SqliteConnection) -> bool {
        true
    }

    fn explain(&self, error: sqlx::Error) -> Problem {
        let Some(known) = error.as_database_error() else { return explain(error) };
        // What is above the lowest byte says more of the same.
        let whole = known.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or_default();
        let code = whole & 0xff;
        let missing = ["no such table", "no such column"];
        match code {
            9 => Problem::Slow,
            5 | 6 => Problem::Away("it is locked"),
            // On its own, 8 is an attempt to write.
            8 if whole == 8 => Problem::Failed(error),
            8 | 10 | 14 => Problem::Away("its file cannot be opened"),
            11 | 26 => Problem::Away("its file is not a sound SQLite database"),
            18 | 20 => Problem::Value,
            1 if missing.iter().any(|text| known.message().starts_with(text)) => Problem::Missing(error),
            _ => Problem::Failed(error),
        }
    }
}

async fn query(
    connection: &mut SqliteConnection,
    statement: &Statement,
    sink: &mut dyn Sink,
) -> sqlx::Result<Ended> {
    let prepared = connection.prepare(&statement.sql).await?;
    sink.columns(prepared.columns().iter().map(|column| column.name().to_owned()).collect());
    let mut values = SqliteArguments::default();
    for bind in &statement.binds {
        match bind {
            Bind::Null => values.add(None::<String>),
            Bind::Integer(value) => values.add(*value),
            // Larger than any that SQLite has.
            Bind::Unsigned(value) => values.add(*value as f64),
            Bind::Number(value) => values.add(*value),
            Bind::Text(text) => values.add(text.clone()),
            Bind::Bytes(bytes) => values.add(bytes.clone()),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    let mut rows = sqlx::query_with::<Sqlite, _>(&statement.sql, values).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await? {
        let cells = cells(&row, statement.kinds.as_deref())?;
        if let ControlFlow::Break(()) = sink.row(cells) {
            return Ok(Ended::Cut);
        }
    }
    Ok(Ended::Whole)
}

fn cells(row: &SqliteRow, kinds: Option<&[Kind]>) -> sqlx::Result<Vec<Cell>> {
    let mut cells = Vec::with_capacity(row.len());
    for at in 0..row.len() {
        let declared = || match row.column(at).type_info().name() {
            "BOOLEAN" => Kind::Boolean,
            _ => Kind::Other,
        };
        let kind = kinds.and_then(|kinds| kinds.get(at)).copied().unwrap_or_else(declared);
        let value = row.try_get_raw(at)?;
        if value.is_null() {
            cells.push(Cell::Null);
            continue;
        }
        let name = value.type_info().name().to_owned();
        // What a value is does not depend on what its column says.
        let cell = match &*name {
            "INTEGER" => <i64 as Decode<Sqlite>>::decode(value).map(|number| match (kind, number) {
                (Kind::Boolean, 0 | 1) => Cell::Boolean(number == 1),
                _ => Cell::Integer(number),
            }),
            "REAL" => <f64 as Decode<Sqlite>>::decode(value).map(|number| match number.is_finite() {
                true => Cell::Number(number),
                false => Cell::Text(number.to_string()),
            }),
            "TEXT" => <&[u8] as Decode<Sqlite>>::decode(value).map(|bytes| {
                match String::from_utf8(bytes.to_vec()) {
                    Ok(text) if kind == Kind::Json => Cell::Json(text),
                    Ok(text) => Cell::Text(text),
                    Err(_) => Cell::Bytes(bytes.to_vec()),
                }
            }),
            _ => <&[u8] as Decode<Sqlite>>::decode(value).map(|bytes| Cell::Bytes(bytes.to_vec())),
        };
        cells.push(cell.map_err(sqlx::Error::Decode)?);
    }
    Ok(cells)
}
