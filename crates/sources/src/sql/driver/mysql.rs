//! The driver for MySQL and MariaDB.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::mysql::{MySql, MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlRow, MySqlValueRef};
use sqlx::{
    Arguments as _, Column as _, ConnectOptions as _, Decode, Executor as _, Row as _, Statement as _,
    TypeInfo as _, ValueRef as _,
};

use super::canceller::Canceller;
use super::{
    Backend, Driver, DriverError, DriverSettings, NO_DATABASE, NOT_ADMITTED, Pool, QueryLimits, RowSink,
    SinkOutput, SizeColumns, Statement, TIMEOUT_GRACE, WRONG_PASSWORD, classify, connect_error,
};
use crate::sql::dialect::{Dialect, bounded};
use crate::sql::value::{BindValue, SqlValue, ValueType};

pub(super) fn driver(options: MySqlConnectOptions, settings: DriverSettings) -> impl Driver {
    let options = options.disable_statement_logging();
    let canceller = Canceller::new(options.clone());
    Pool::new(MysqlServer { options, settings, canceller }, settings)
}

struct MysqlServer {
    options: MySqlConnectOptions,
    settings: DriverSettings,
    canceller: Canceller<MySqlConnection>,
}

/// A connection and its `CONNECTION_ID()`, which `KILL QUERY` needs.
struct MysqlSession {
    connection: MySqlConnection,
    number: u64,
}

#[async_trait]
impl Driver for Pool<MysqlServer> {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    async fn run(
        &self,
        statement: &Statement,
        sink: Box<dyn RowSink>,
    ) -> Result<Box<dyn RowSink>, DriverError> {
        Pool::run(self, statement, sink).await
    }

    async fn version(&self) -> Result<Option<String>, DriverError> {
        // MySQL has no version of its data. This only checks that the server responds.
        super::collect(self, &Statement::new("SELECT 1".to_owned(), Vec::new())).await?;
        Ok(None)
    }
}

impl MysqlServer {
    async fn session(&self) -> sqlx::Result<MysqlSession> {
        let mut connection = self.options.connect().await?;
        // The lexer of configured queries relies on a mode without `NO_BACKSLASH_ESCAPES` and `ANSI_QUOTES`, which the
        // configuration of the server could include.
        connection.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'").await?;
        let (version, number): (String, u64) =
            sqlx::query_as("SELECT VERSION(), CAST(CONNECTION_ID() AS UNSIGNED)")
                .fetch_one(&mut connection)
                .await?;
        let limit = match version.contains("MariaDB") {
            true => format!("SET SESSION max_statement_time = {}", self.settings.timeout.as_secs_f64()),
            false => format!("SET SESSION max_execution_time = {}", self.settings.timeout_millis()),
        };
        connection.execute(&*limit).await?;
        Ok(MysqlSession { connection, number })
    }
}

#[async_trait]
impl Backend for MysqlServer {
    type Connection = MysqlSession;

    const REMOTE: bool = true;

    async fn connect(&self) -> Result<MysqlSession, DriverError> {
        self.session().await.map_err(|error| connect_error(error, statement_error))
    }

    async fn run(
        &self,
        session: &mut MysqlSession,
        statement: &Statement,
        output: &mut SinkOutput,
    ) -> Result<(), DriverError> {
        let connection = &mut session.connection;
        connection.execute("START TRANSACTION READ ONLY").await.map_err(statement_error)?;
        output.stop().runs_in(session.number);
        query(connection, statement, output).await.map_err(statement_error)
    }

    async fn cancel(&self, number: u64) -> bool {
        let statement = format!("KILL QUERY {number}");
        let timeout = self.settings.timeout + TIMEOUT_GRACE;
        let run = self.canceller.cancel(timeout, move |connection| {
            Box::pin(async move { connection.execute(&*statement).await.map(drop) })
        });
        run.await
    }

    async fn recover(&self, session: &mut MysqlSession) -> bool {
        // A cancel request that arrives after the statement has ended aborts the first `ROLLBACK`.
        let first = session.connection.execute("ROLLBACK").await;
        first.is_ok() || session.connection.execute("ROLLBACK").await.is_ok()
    }
}

fn statement_error(error: sqlx::Error) -> DriverError {
    use sqlx::mysql::MySqlDatabaseError;
    let known = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    let Some(known) = known else { return classify(error) };
    match (known.number(), known.code().unwrap_or_default()) {
        (1317 | 1969 | 3024, _) => DriverError::TimedOut,
        (1045 | 1698, _) => WRONG_PASSWORD,
        (1044 | 1130, _) => NOT_ADMITTED,
        (1049, _) => NO_DATABASE,
        (1142 | 1143 | 1227 | 1370, _) => DriverError::Denied(Arc::new(error)),
        (1040 | 1203 | 1226, _) => DriverError::Unavailable("it has too many connections"),
        (1053 | 1077 | 1079 | 1927, _) => DriverError::Unavailable("it is stopping or starting"),
        (1146 | 1054 | 1356, _) => DriverError::Missing(Arc::new(error)),
        // Includes texts that the character set of the column cannot represent.
        (1267 | 1366 | 1525 | 3854, _) => DriverError::WrongType,
        (_, code) if code.starts_with("22") => DriverError::WrongType,
        (_, code) if code.starts_with("08") => DriverError::Unavailable("the connection was lost"),
        _ => DriverError::Failed(Arc::new(error)),
    }
}

async fn query(
    connection: &mut MySqlConnection,
    statement: &Statement,
    output: &mut SinkOutput,
) -> sqlx::Result<()> {
    let mut sql = statement.sql.clone();
    let mut sizes = statement.sizes;
    if let Some(bounds) = statement.query_limits {
        // Only the server knows the names and types of the columns of a configured query.
        let prepared = (&mut *connection).prepare(&statement.sql).await?;
        let columns: Vec<_> = prepared
            .columns()
            .iter()
            .map(|column| (column.name().to_owned(), can_be_large(column.type_info().name())))
            .collect();
        let (wrapped, columns_of_sizes) = wrap(&statement.sql, &columns, bounds);
        sql = wrapped;
        sizes = Some(SizeColumns { columns: columns_of_sizes, bytes: bounds.bytes });
        output.columns(columns.into_iter().map(|(name, _)| name).collect());
    }
    if output.stop().requested() {
        return Ok(());
    }
    let mut values = MySqlArguments::default();
    for bind in &statement.binds {
        match bind {
            BindValue::Null => values.add(None::<String>),
            BindValue::Integer(value) => values.add(*value),
            BindValue::Unsigned(value) => values.add(*value),
            BindValue::Number(value) => values.add(*value),
            BindValue::Text(text) => values.add(text.clone()),
            BindValue::Bytes(bytes) | BindValue::TextBytes(bytes) => values.add(bytes.clone()),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    let mut rows = sqlx::query_with::<MySql, _>(&sql, values).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await? {
        let values = row.len() - sizes.map_or(0, |sizes| sizes.columns);
        let mut size = 0;
        for at in values..row.len() {
            let reported = cell(row.try_get_raw(at)?, None).map_err(sqlx::Error::Decode)?;
            size += reported.to_text_lossy().parse().unwrap_or(u64::from(u32::MAX));
        }
        if sizes.is_some_and(|sizes| size > sizes.bytes) {
            output.oversized(size);
            continue;
        }
        let kinds = statement.kinds.clone();
        output.decoded(size, move || cells(&row, values, kinds.as_deref())).await?;
    }
    Ok(())
}

/// Whether values of a type, as named in a result set, may be large.
fn can_be_large(name: &str) -> bool {
    let large = ["CHAR", "TEXT", "BLOB", "BINARY", "JSON", "GEOMETRY", "ENUM", "SET"];
    large.iter().any(|part| name.contains(part))
}

/// Wraps a configured query in a statement that enforces its limits. Also returns the number of size columns at the end
/// of a row. `columns` are the names of the columns and whether their values may be large.
fn wrap(sql: &str, columns: &[(String, bool)], bounds: QueryLimits) -> (String, usize) {
    let names: HashSet<_> = columns.iter().map(|(name, _)| name.to_lowercase()).collect();
    let usable = |name: &str| !name.is_empty() && name.trim() == name && name.chars().count() <= 64;
    // Whether the outer statement can refer to the columns by their own names.
    let own = names.len() == columns.len() && columns.iter().all(|(name, _)| usable(name));
    let name = |at: usize| match own {
        true => Dialect::Mysql.quote(&columns[at].0),
        false => format!("c{at}"),
    };
    let values: Vec<_> =
        columns.iter().enumerate().map(|(at, (_, large))| (format!("q.{}", name(at)), *large)).collect();
    let (selected, sizes) = bounded(&values, bounds.bytes);
    // MySQL ignores the `ORDER BY` of a subquery without a `LIMIT`.
    let limit = if bounds.ordered { format!("\nLIMIT {}", bounds.rows) } else { String::new() };
    let (with, from) = match own {
        true => (String::new(), format!("(\n{sql}{limit}\n) AS q")),
        // Duplicate column names can only be replaced by a CTE, which MySQL 5.7 does not support.
        false => {
            let names: Vec<_> = (0..columns.len()).map(name).collect();
            (format!("WITH q({}) AS (\n{sql}{limit}\n) ", names.join(", ")), "q".to_owned())
        }
    };
    (format!("{with}SELECT {selected} FROM {from} LIMIT {}", bounds.rows), sizes)
}

fn cells(row: &MySqlRow, values: usize, kinds: Option<&[ValueType]>) -> sqlx::Result<Vec<SqlValue>> {
    let cell = |at| {
        let kind = kinds.and_then(|kinds| kinds.get(at)).copied();
        cell(row.try_get_raw(at)?, kind).map_err(sqlx::Error::Decode)
    };
    (0..values).map(cell).collect()
}

fn cell(value: MySqlValueRef<'_>, kind: Option<ValueType>) -> Result<SqlValue, sqlx::error::BoxDynError> {
    let info = value.type_info().into_owned();
    let name = info.name();
    // sqlx reports zero dates (`0000-00-00`) as null, but still has their bytes.
    let may_be_zero = matches!(name, "DATE" | "DATETIME" | "TIMESTAMP");
    if value.is_null() && !(may_be_zero && <&[u8] as Decode<MySql>>::decode(value.clone()).is_ok()) {
        return Ok(SqlValue::Null);
    }
    if name == "FLOAT" || name == "DOUBLE" {
        let number = <f64 as Decode<MySql>>::decode(value)?;
        return Ok(if number.is_finite() {
            SqlValue::Number(number)
        } else {
            SqlValue::Text(number.to_string())
        });
    }
    if name.ends_with("UNSIGNED") || name == "YEAR" {
        return Ok(SqlValue::Unsigned(<u64 as Decode<MySql>>::decode(value)?));
    }
    if name.ends_with("INT") || name == "BOOLEAN" {
        let number = <i64 as Decode<MySql>>::decode(value)?;
        let boolean = name == "BOOLEAN" && (number == 0 || number == 1);
        return Ok(if boolean { SqlValue::Boolean(number == 1) } else { SqlValue::Integer(number) });
    }
    let mut bytes = <&[u8] as Decode<MySql>>::decode(value)?;
    if let "DATE" | "DATETIME" | "TIMESTAMP" | "TIME" = name {
        // The first byte is the length of the rest.
        bytes = bytes.get(1..).unwrap_or_default();
    }
    let text = || String::from_utf8(bytes.to_vec()).ok();
    Ok(match name {
        "DATE" => SqlValue::Text(date(bytes)),
        "DATETIME" => SqlValue::Text(moment(bytes)),
        // The time zone of the connection is UTC.
        "TIMESTAMP" => SqlValue::Text(moment(bytes) + "Z"),
        "TIME" => SqlValue::Text(time(bytes)),
        "BIT" => SqlValue::Unsigned(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))),
        "JSON" => text().map_or_else(|| SqlValue::Bytes(bytes.to_vec()), SqlValue::Json),
        "BINARY" | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" | "GEOMETRY" => {
            match kind {
                // A truncated or converted value has a binary type even if it is text.
                Some(ValueType::Text | ValueType::Json | ValueType::Uuid | ValueType::Other)
                    if text().is_some() =>
                {
                    SqlValue::of_text(kind.unwrap_or_default(), text().unwrap_or_default())
                }
                _ => SqlValue::Bytes(bytes.to_vec()),
            }
        }
        _ => match text() {
            Some(text) if kind == Some(ValueType::Json) => SqlValue::Json(text),
            Some(text) => SqlValue::Text(text),
            None => SqlValue::Bytes(bytes.to_vec()),
        },
    })
}

/// Decodes a date of the binary protocol: year, month and day. A zero date has no bytes.
fn date(bytes: &[u8]) -> String {
    match bytes {
        [low, high, month, day, ..] => {
            format!("{:04}-{month:02}-{day:02}", u16::from_le_bytes([*low, *high]))
        }
        _ => "0000-00-00".to_owned(),
    }
}

/// Decodes a date with a time of the binary protocol, in which trailing zero fields are omitted.
fn moment(bytes: &[u8]) -> String {
    let clock = match bytes.get(4..) {
        Some([hour, minute, second, rest @ ..]) => clock(u32::from(*hour), *minute, *second, rest),
        _ => "00:00:00".to_owned(),
    };
    format!("{}T{clock}", date(bytes))
}

/// Decodes a `TIME` of the binary protocol, which is a signed duration: sign, days, hours, minutes, seconds.
fn time(bytes: &[u8]) -> String {
    match bytes {
        [negative, a, b, c, d, hour, minute, second, rest @ ..] => {
            let hours = u32::from_le_bytes([*a, *b, *c, *d]) * 24 + u32::from(*hour);
            let sign = if *negative == 1 { "-" } else { "" };
            format!("{sign}{}", clock(hours, *minute, *second, rest))
        }
        _ => "00:00:00".to_owned(),
    }
}

fn clock(hours: u32, minute: u8, second: u8, micros: &[u8]) -> String {
    let whole = format!("{hours:02}:{minute:02}:{second:02}");
    match micros {
        [a, b, c, d, ..] => format!("{whole}.{:06}", u32::from_le_bytes([*a, *b, *c, *d])),
        _ => whole,
    }
}
