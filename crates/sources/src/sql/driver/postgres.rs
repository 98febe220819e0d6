//! The driver for PostgreSQL.
//!
//! A statement runs in a read-only transaction, which is rolled back. That takes three round trips. On a connection with
//! a session of its own, the driver reads tables with one: there, startup parameters make every transaction read-only
//! and limit its time. A connection pooler such as PgBouncer may run each transaction in another session, so the driver
//! checks at the start of a connection whether its parameters have reached the session; see [`PostgresServer::connect`].

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgListener, PgPoolOptions, PgRow};
use sqlx::postgres::{PgTypeInfo, PgTypeKind, Postgres};
use sqlx::{
    Arguments as _, Column as _, ConnectOptions as _, Connection as _, Executor as _, Row as _,
    Statement as _, TypeInfo as _,
};

use super::canceller::Canceller;
use super::{
    Backend, Driver, DriverError, DriverSettings, NO_DATABASE, NOT_ADMITTED, NotificationListener, Pool,
    RowSink, SinkOutput, SizeColumns, Statement, TIMEOUT_GRACE, WRONG_PASSWORD, classify, connect_error,
};
use crate::sql::dialect::{Dialect, SelectedColumn, postgres_bounded, postgres_kind};
use crate::sql::value::{BindValue, SqlValue, ValueType};

pub(super) fn driver(options: PgConnectOptions, settings: DriverSettings) -> impl Driver {
    let begin = format!(
        "BEGIN READ ONLY; SET LOCAL statement_timeout = {}; SET LOCAL TimeZone = 'UTC'; \
         SET LOCAL DateStyle = 'ISO'; SET LOCAL IntervalStyle = 'iso_8601'; SET LOCAL bytea_output = 'hex'; \
         SELECT pg_catalog.pg_backend_pid()",
        settings.timeout_millis()
    );
    let options = options.application_name("libris").disable_statement_logging();
    let canceller = Canceller::new(options.clone());
    let refuses_parameters = AtomicBool::new(false);
    Pool::new(PostgresServer { options, begin, refuses_parameters, settings, canceller }, settings)
}

struct PostgresServer {
    options: PgConnectOptions,
    /// Begins a transaction and selects the process id of its backend, which cancel requests need. A connection
    /// pooler may choose another backend for each transaction.
    begin: String,
    /// Whether the server or a connection pooler refuses connections with startup parameters.
    refuses_parameters: AtomicBool,
    settings: DriverSettings,
    canceller: Canceller<PgConnection>,
}

struct PostgresConnection {
    connection: PgConnection,
    /// The process id of the backend, if the connection has a session of its own whose parameters are in effect.
    session: Option<u64>,
    state: ConnectionState,
}

/// What the next statement of a connection finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// The last statement has ended, and no cancel request for it was sent.
    Clean,
    /// The last statement ran without a transaction block. It failed, or a cancel request for it may arrive yet.
    Interrupted,
    InTransaction,
}

/// The setting that identifies a session.
const SESSION_MARK: &str = "libris.session";

impl PostgresServer {
    /// Connects with startup parameters, unless they are refused: PgBouncer does not accept them by default.
    async fn connect_with_parameters(&self) -> sqlx::Result<PostgresConnection> {
        if !self.refuses_parameters.load(Ordering::Relaxed) {
            let mark = format!("{:016x}", RandomState::new().build_hasher().finish());
            match self.options.clone().options(self.parameters(&mark)).connect().await {
                Ok(mut connection) => {
                    let session = session_with_mark(&mut connection, &mark).await?;
                    return Ok(PostgresConnection { connection, session, state: ConnectionState::Clean });
                }
                Err(error) if !may_refuse_parameters(&error) => return Err(error),
                Err(error) => tracing::debug!(%error, "a database refuses startup parameters"),
            }
        }
        let connection = self.options.connect().await?;
        self.refuses_parameters.store(true, Ordering::Relaxed);
        Ok(PostgresConnection { connection, session: None, state: ConnectionState::Clean })
    }

    fn parameters<'m>(&self, mark: &'m str) -> [(&'static str, std::borrow::Cow<'m, str>); 6] {
        [
            ("default_transaction_read_only", "on".into()),
            ("statement_timeout", self.settings.timeout_millis().to_string().into()),
            ("DateStyle", "ISO".into()),
            ("IntervalStyle", "iso_8601".into()),
            ("bytea_output", "hex".into()),
            (SESSION_MARK, mark.into()),
        ]
    }
}

/// Whether this error while connecting can be due to the startup parameters: a violation of the protocol, an unsupported
/// feature, an invalid value or an unknown name.
fn may_refuse_parameters(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| ["08", "0A", "22", "42"].iter().any(|class| code.starts_with(class)))
}

/// The process id of the backend, if its session was begun with this mark. Otherwise a connection pooler has ignored the
/// startup parameters, or uses a session that it had begun before.
async fn session_with_mark(connection: &mut PgConnection, mark: &str) -> sqlx::Result<Option<u64>> {
    let sql = format!(
        "SELECT pg_catalog.pg_backend_pid() WHERE pg_catalog.current_setting('{SESSION_MARK}', true) = '{mark}' \
         AND pg_catalog.current_setting('transaction_read_only') = 'on'"
    );
    let rows = connection.fetch_all(&*sql).await?;
    let process = rows.first().map(|row| row.try_get::<i32, _>(0)).transpose()?;
    Ok(process.and_then(|process| u64::try_from(process).ok()))
}

#[async_trait]
impl Driver for Pool<PostgresServer> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn run(
        &self,
        statement: &Statement,
        sink: Box<dyn RowSink>,
    ) -> Result<Box<dyn RowSink>, DriverError> {
        Pool::run(self, statement, sink).await
    }

    async fn version(&self) -> Result<Option<String>, DriverError> {
        // The snapshot changes with every transaction that writes, on replicas too.
        let statement = Statement::new("SELECT txid_current_snapshot()::text".to_owned(), Vec::new());
        let rows = super::collect(self, &statement).await?;
        Ok(rows.first().map(|row| row[0].to_text_lossy()))
    }

    fn listen(&self, channel: &str) -> Option<Box<dyn NotificationListener>> {
        let PostgresServer { options, settings, .. } = self.backend();
        Some(Box::new(PostgresListener {
            options: options.clone(),
            settings: *settings,
            channel: channel.to_owned(),
            listener: None,
        }))
    }
}

#[async_trait]
impl Backend for PostgresServer {
    type Connection = PostgresConnection;

    const REMOTE: bool = true;

    async fn connect(&self) -> Result<PostgresConnection, DriverError> {
        self.connect_with_parameters().await.map_err(|error| connect_error(error, statement_error))
    }

    async fn run(
        &self,
        connection: &mut PostgresConnection,
        statement: &Statement,
        output: &mut SinkOutput,
    ) -> Result<(), DriverError> {
        let PostgresConnection { connection, session, state } = connection;
        if let Some(process) = session.filter(|_| statement.reads_only_tables) {
            output.stop().runs_in(process);
            *state = ConnectionState::Interrupted;
            query(connection, statement, output).await.map_err(statement_error)?;
            if !output.stop().requested() {
                *state = ConnectionState::Clean;
            }
            return Ok(());
        }
        *state = ConnectionState::InTransaction;
        let process = async {
            let begun = (&mut *connection).fetch_all(&*self.begin).await?;
            begun.first().ok_or(sqlx::Error::RowNotFound)?.try_get::<i32, _>(0)
        };
        let process = process.await.map_err(statement_error)?;
        output.stop().runs_in(u64::try_from(process).unwrap_or_default());
        query(connection, statement, output).await.map_err(statement_error)
    }

    async fn cancel(&self, process: u64) -> bool {
        let statement = format!("SELECT pg_catalog.pg_cancel_backend({process})");
        let timeout = self.settings.timeout + TIMEOUT_GRACE;
        let run = self.canceller.cancel(timeout, move |connection| {
            Box::pin(async move { connection.execute(&*statement).await.map(drop) })
        });
        run.await
    }

    async fn recover(&self, connection: &mut PostgresConnection) -> bool {
        let PostgresConnection { connection, state, .. } = connection;
        match state {
            ConnectionState::Clean => true,
            // A cancel request that arrives late hits this round trip, and not the next statement.
            ConnectionState::Interrupted => connection.ping().await.is_ok(),
            ConnectionState::InTransaction => connection.execute("ROLLBACK").await.is_ok(),
        }
    }
}

fn statement_error(error: sqlx::Error) -> DriverError {
    let Some(code) = error.as_database_error().and_then(|error| error.code()) else {
        return classify(error);
    };
    match &*code {
        "57014" => DriverError::TimedOut,
        "28P01" => WRONG_PASSWORD,
        "28000" => NOT_ADMITTED,
        "3D000" => NO_DATABASE,
        "42501" => DriverError::Denied(Arc::new(error)),
        "53300" => DriverError::Unavailable("it has too many connections"),
        "42P01" | "42703" | "3F000" => DriverError::Missing(Arc::new(error)),
        // Shutting down, starting up, or crashed.
        code if code.starts_with("57P") || code.starts_with("08") => {
            DriverError::Unavailable("it is stopping or starting")
        }
        code if code.starts_with("22") => DriverError::WrongType,
        _ => DriverError::Failed(Arc::new(error)),
    }
}

async fn query(
    connection: &mut PgConnection,
    statement: &Statement,
    output: &mut SinkOutput,
) -> sqlx::Result<()> {
    let mut sql = statement.sql.clone();
    let mut kinds = statement.kinds.clone();
    let mut sizes = statement.sizes;
    if let Some(bounds) = statement.query_limits {
        // Only the server knows the names and types of the columns of a configured query.
        let prepared = (&mut *connection).prepare(&statement.sql).await?;
        let mut names = Vec::new();
        let mut selected = Vec::new();
        for (at, column) in prepared.columns().iter().enumerate() {
            let (kind, base) = described(column.type_info());
            selected.push(SelectedColumn { value: format!("f.f{at}"), kind, base });
            names.push(column.name().to_owned());
        }
        let aliases: Vec<_> = (0..names.len()).map(|at| format!("f{at}")).collect();
        let rest = format!("FROM (\n{}\n) AS f({}) LIMIT {}", statement.sql, aliases.join(", "), bounds.rows);
        let columns;
        (sql, columns) = postgres_bounded(&selected, &rest, bounds.bytes);
        sizes = Some(SizeColumns { columns, bytes: bounds.bytes });
        kinds = Some(selected.iter().map(|selected| selected.kind).collect());
        output.columns(names);
    }
    if output.stop().requested() {
        return Ok(());
    }
    let mut values = PgArguments::default();
    for bind in &statement.binds {
        values.add(text(bind)).map_err(sqlx::Error::Encode)?;
    }
    let mut rows = sqlx::query_with::<Postgres, _>(&sql, values).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await? {
        let mut size = 0;
        if let Some(sizes) = sizes.filter(|sizes| sizes.columns > 0) {
            let reported = row.try_get_unchecked::<Option<String>, _>(row.len() - 1)?;
            size = reported.and_then(|size| size.parse().ok()).unwrap_or(u64::MAX);
            if size > sizes.bytes {
                output.oversized(size);
                continue;
            }
        }
        let kinds = kinds.clone();
        let values = row.len() - sizes.map_or(0, |sizes| sizes.columns);
        output.decoded(size, move || cells(&row, values, kinds.as_deref())).await?;
    }
    Ok(())
}

fn cells(row: &PgRow, values: usize, kinds: Option<&[ValueType]>) -> sqlx::Result<Vec<SqlValue>> {
    let cell = |at| {
        let kind = kinds.and_then(|kinds| kinds.get(at)).copied().unwrap_or(ValueType::Text);
        Ok(match row.try_get_unchecked::<Option<String>, _>(at)? {
            Some(text) => SqlValue::of_text(kind, text),
            None => SqlValue::Null,
        })
    };
    (0..values).map(cell).collect()
}

/// The value type of a PostgreSQL type, and its name in the catalog.
fn described(info: &PgTypeInfo) -> (ValueType, String) {
    let base = match info.kind() {
        PgTypeKind::Array(_) => "array".to_owned(),
        PgTypeKind::Composite(_) => "composite".to_owned(),
        PgTypeKind::Domain(inner) => return described(inner),
        _ if info.name() == "CHAR" => "bpchar".to_owned(),
        _ => info.name().to_ascii_lowercase(),
    };
    (postgres_kind(&base), base)
}

/// The text of a value. All values are sent as text, and the statement casts them.
fn text(bind: &BindValue) -> Option<String> {
    match bind {
        BindValue::Null => None,
        BindValue::Integer(value) => Some(value.to_string()),
        BindValue::Unsigned(value) => Some(value.to_string()),
        BindValue::Number(value) => Some(value.to_string()),
        BindValue::Text(text) => Some(text.clone()),
        BindValue::Bytes(bytes) | BindValue::TextBytes(bytes) => Some(crate::sql::value::encode(bytes)),
    }
}

/// A `LISTEN` connection of one channel.
struct PostgresListener {
    options: PgConnectOptions,
    settings: DriverSettings,
    channel: String,
    listener: Option<PgListener>,
}

#[async_trait]
impl NotificationListener for PostgresListener {
    async fn begin(&mut self) -> Result<(), DriverError> {
        self.listener = None;
        let begin = async {
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(self.settings.timeout)
                .connect_lazy_with(self.options.clone());
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.eager_reconnect(false);
            listener.listen(&self.channel).await?;
            Ok(listener)
        };
        match tokio::time::timeout(self.settings.timeout + TIMEOUT_GRACE, begin).await {
            Ok(Ok(listener)) => {
                self.listener = Some(listener);
                Ok(())
            }
            Ok(Err(error)) => Err(classify(error)),
            Err(_) => Err(DriverError::TimedOut),
        }
    }

    async fn next_notification(&mut self) -> Result<String, DriverError> {
        let Some(listener) = &mut self.listener else {
            return Err(DriverError::Unavailable("nobody listens"));
        };
        match listener.try_recv().await {
            Ok(Some(notification)) => Ok(notification.payload().to_owned()),
            Ok(None) => Err(DriverError::Unavailable("the connection was lost")),
            Err(error) => Err(classify(error)),
        }
    }
}
