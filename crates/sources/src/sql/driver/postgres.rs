//! PostgreSQL.

use std::ops::ControlFlow;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgListener, PgPoolOptions, PgTypeInfo};
use sqlx::postgres::{PgTypeKind, Postgres};
use sqlx::{
    Arguments as _, Column as _, ConnectOptions as _, Executor as _, Row as _, Statement as _, TypeInfo as _,
};

use super::{Backend, Driver, Ended, GRACE, Listen, Pool, Problem, Settings, Sink, Statement, explain};
use crate::sql::dialect::{Dialect, postgres_kind, postgres_text};
use crate::sql::value::{Bind, Cell, Kind};

pub(super) fn driver(options: PgConnectOptions, settings: Settings) -> impl Driver {
    let begin = format!(
        "BEGIN READ ONLY; SET LOCAL statement_timeout = {}; SET LOCAL TimeZone = 'UTC'; \
         SET LOCAL DateStyle = 'ISO'; SET LOCAL IntervalStyle = 'iso_8601'; SET LOCAL bytea_output = 'hex'",
        settings.millis()
    );
    let options = options.application_name("libris").disable_statement_logging();
    Pool::new(Server { options, begin, settings }, settings)
}

struct Server {
    options: PgConnectOptions,
    begin: String,
    settings: Settings,
}

#[async_trait]
impl Driver for Pool<Server> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn run(&self, statement: &Statement, sink: &mut dyn Sink) -> Result<(), Problem> {
        Pool::run(self, statement, sink).await
    }

    async fn version(&self) -> Result<Option<String>, Problem> {
        // It moves on with every transaction that writes, and also tells on a replica.
        let statement = Statement::new("SELECT txid_current_snapshot()::text".to_owned(), Vec::new());
        let rows = super::collect(self, &statement).await?;
        Ok(rows.first().map(|row| row[0].name()))
    }

    fn listen(&self, channel: &str) -> Option<Box<dyn Listen>> {
        let Server { options, settings, .. } = &self.backend;
        Some(Box::new(Channel {
            options: options.clone(),
            settings: *settings,
            channel: channel.to_owned(),
            listener: None,
        }))
    }
}

#[async_trait]
impl Backend for Server {
    type Connection = PgConnection;

    async fn connect(&self) -> sqlx::Result<PgConnection> {
        self.options.connect().await
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        sink: &mut dyn Sink,
    ) -> sqlx::Result<Ended> {
        connection.execute(&*self.begin).await?;
        let ended = query(connection, statement, sink).await?;
        if ended == Ended::Whole {
            connection.execute("ROLLBACK").await?;
        }
        Ok(ended)
    }

    async fn recover(&self, connection: &mut PgConnection) -> bool {
        connection.execute("ROLLBACK").await.is_ok()
    }

    fn explain(&self, error: sqlx::Error) -> Problem {
        let Some(code) = error.as_database_error().and_then(|error| error.code()) else {
            return explain(error);
        };
        match &*code {
            "57014" => Problem::Slow,
            "28000" | "28P01" => Problem::Away("it refuses the user or the password"),
            "3D000" => Problem::Away("it has no database of this name"),
            "53300" => Problem::Away("it has too many connections"),
            "42P01" | "42703" | "3F000" => Problem::Missing(error),
            // Shutting down, starting up, or crashed.
            code if code.starts_with("57P") || code.starts_with("08") => {
                Problem::Away("it is stopping or starting")
            }
            code if code.starts_with("22") => Problem::Value,
            _ => Problem::Failed(error),
        }
    }
}

async fn query(
    connection: &mut PgConnection,
    statement: &Statement,
    sink: &mut dyn Sink,
) -> sqlx::Result<Ended> {
    let mut sql = statement.sql.clone();
    let mut kinds = statement.kinds.clone();
    if let Some(bounds) = statement.foreign {
        // What its columns are called and are is only known to the server.
        let prepared = connection.prepare(&statement.sql).await?;
        let mut names = Vec::new();
        let mut selected = Vec::new();
        let mut found = Vec::new();
        for (at, column) in prepared.columns().iter().enumerate() {
            let (kind, base) = described(column.type_info());
            selected.push(postgres_text(&format!("q.c{at}"), kind, &base, bounds.bytes));
            names.push(column.name().to_owned());
            found.push(kind);
        }
        let aliases: Vec<_> = (0..names.len()).map(|at| format!("c{at}")).collect();
        sql = format!(
            "SELECT {} FROM (\n{}\n) AS q({}) LIMIT {}",
            selected.join(", "),
            statement.sql,
            aliases.join(", "),
            bounds.rows
        );
        sink.columns(names);
        kinds = Some(found);
    }
    let mut values = PgArguments::default();
    for bind in &statement.binds {
        values.add(text(bind)).map_err(sqlx::Error::Encode)?;
    }
    let mut rows = sqlx::query_with::<Postgres, _>(&sql, values).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await? {
        let mut cells = Vec::with_capacity(row.len());
        for at in 0..row.len() {
            let kind = kinds.as_ref().and_then(|kinds| kinds.get(at)).copied().unwrap_or(Kind::Text);
            cells.push(match row.try_get_unchecked::<Option<String>, _>(at)? {
                Some(text) => Cell::of_text(kind, text),
                None => Cell::Null,
            });
        }
        if let ControlFlow::Break(()) = sink.row(cells) {
            return Ok(Ended::Cut);
        }
    }
    Ok(Ended::Whole)
}

/// The kind of a type, and its name in the catalog.
fn described(info: &PgTypeInfo) -> (Kind, String) {
    let base = match info.kind() {
        PgTypeKind::Array(_) => "array".to_owned(),
        PgTypeKind::Composite(_) => "composite".to_owned(),
        PgTypeKind::Domain(inner) => return described(inner),
        _ if info.name() == "CHAR" => "bpchar".to_owned(),
        _ => info.name().to_ascii_lowercase(),
    };
    (postgres_kind(&base), base)
}

/// Values are sent as text, and the statement says what they are to become.
fn text(bind: &Bind) -> Option<String> {
    match bind {
        Bind::Null => None,
        Bind::Integer(value) => Some(value.to_string()),
        Bind::Unsigned(value) => Some(value.to_string()),
        Bind::Number(value) => Some(value.to_string()),
        Bind::Text(text) => Some(text.clone()),
        Bind::Bytes(bytes) => Some(crate::sql::value::encode(bytes)),
    }
}

/// A connection that hears what is told on a channel.
struct Channel {
    options: PgConnectOptions,
    settings: Settings,
    channel: String,
    listener: Option<PgListener>,
}

#[async_trait]
impl Listen for Channel {
    async fn begin(&mut self) -> Result<(), Problem> {
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
        match tokio::time::timeout(self.settings.timeout + GRACE, begin).await {
            Ok(Ok(listener)) => {
                self.listener = Some(listener);
                Ok(())
            }
            Ok(Err(error)) => Err(explain(error)),
            Err(_) => Err(Problem::Slow),
        }
    }

    async fn hear(&mut self) -> Result<String, Problem> {
        let Some(listener) = &mut self.listener else {
            return Err(Problem::Away("nobody listens"));
        };
        match listener.try_recv().await {
            Ok(Some(notification)) => Ok(notification.payload().to_owned()),
            Ok(None) => Err(Problem::Away("the connection was lost")),
            Err(error) => Err(explain(error)),
        }
    }
}
