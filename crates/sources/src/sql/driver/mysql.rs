//! MySQL and MariaDB.

use std::ops::ControlFlow;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::mysql::{MySql, MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlRow, MySqlValueRef};
use sqlx::{
    Arguments as _, Column as _, ConnectOptions as _, Decode, Executor as _, Row as _, Statement as _,
    TypeInfo as _, ValueRef as _,
};

use super::{Backend, Driver, Ended, Pool, Problem, Settings, Sink, Statement, explain};
use crate::sql::dialect::Dialect;
use crate::sql::value::{Bind, Cell, Kind};

pub(super) fn driver(options: MySqlConnectOptions, settings: Settings) -> impl Driver {
    Pool::new(Server { options: options.disable_statement_logging(), settings }, settings)
}

struct Server {
    options: MySqlConnectOptions,
    settings: Settings,
}

#[async_trait]
impl Driver for Pool<Server> {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    async fn run(&self, statement: &Statement, sink: &mut dyn Sink) -> Result<(), Problem> {
        Pool::run(self, statement, sink).await
    }

    async fn version(&self) -> Result<Option<String>, Problem> {
        // There is no such number, but whether anybody is there should show.
        super::collect(self, &Statement::new("SELECT 1".to_owned(), Vec::new())).await?;
        Ok(None)
    }
}

#[async_trait]
impl Backend for Server {
    type Connection = MySqlConnection;

    async fn connect(&self) -> sqlx::Result<MySqlConnection> {
        let mut connection = self.options.connect().await?;
        // How strings are written must not depend on how the server is set up: queries are read that way.
        connection.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'").await?;
        let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut connection).await?;
        let limit = match version.contains("MariaDB") {
            true => format!("SET SESSION max_statement_time = {}", self.settings.timeout.as_secs_f64()),
            false => format!("SET SESSION max_execution_time = {}", self.settings.millis()),
        };
        connection.execute(&*limit).await?;
        Ok(connection)
    }

    async fn run(
        &self,
        connection: &mut MySqlConnection,
        statement: &Statement,
        sink: &mut dyn Sink,
    ) -> sqlx::Result<Ended> {
        connection.execute("START TRANSACTION READ ONLY").await?;
        let ended = query(connection, statement, sink).await?;
        if ended == Ended::Whole {
            connection.execute("ROLLBACK").await?;
        }
        Ok(ended)
    }

    async fn recover(&self, connection: &mut MySqlConnection) -> bool {
        connection.execute("ROLLBACK").await.is_ok()
    }

    fn explain(&self, error: sqlx::Error) -> Problem {
        use sqlx::mysql::MySqlDatabaseError;
        let known =
            error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
        let Some(known) = known else { return explain(error) };
        match (known.number(), known.code().unwrap_or_default()) {
            (1969 | 3024, _) => Problem::Slow,
            (1044 | 1045 | 1698, _) => Problem::Away("it refuses the user or the password"),
            (1049, _) => Problem::Away("it has no database of this name"),
            (1040 | 1203 | 1226, _) => Problem::Away("it has too many connections"),
            (1053 | 1077 | 1079 | 1317 | 1927, _) => Problem::Away("it is stopping or starting"),
            (1146 | 1054 | 1356, _) => Problem::Missing(error),
            // Text that a column's character set cannot hold matches nothing in it.
            (1267 | 1366 | 1525 | 3854, _) => Problem::Value,
            (_, code) if code.starts_with("22") => Problem::Value,
            (_, code) if code.starts_with("08") => Problem::Away("the connection was lost"),
            _ => Problem::Failed(error),
        }
    }
}

async fn query(
    connection: &mut MySqlConnection,
    statement: &Statement,
    sink: &mut dyn Sink,
) -> sqlx::Result<Ended> {
    let prepared = connection.prepare(&statement.sql).await?;
    sink.columns(prepared.columns().iter().map(|column| column.name().to_owned()).collect());
    let mut values = MySqlArguments::default();
    for bind in &statement.binds {
        match bind {
            Bind::Null => values.add(None::<String>),
            Bind::Integer(value) => values.add(*value),
            Bind::Unsigned(value) => values.add(*value),
            Bind::Number(value) => values.add(*value),
            Bind::Text(text) => values.add(text.clone()),
            Bind::Bytes(bytes) => values.add(bytes.clone()),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    let mut rows = sqlx::query_with::<MySql, _>(&statement.sql, values).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await? {
        let cells = cells(&row, statement.kinds.as_deref())?;
        if let ControlFlow::Break(()) = sink.row(cells) {
            return Ok(Ended::Cut);
        }
    }
    Ok(Ended::Whole)
}

fn cells(row: &MySqlRow, kinds: Option<&[Kind]>) -> sqlx::Result<Vec<Cell>> {
    let mut cells = Vec::with_capacity(row.len());
    for at in 0..row.len() {
        let value = row.try_get_raw(at)?;
        let kind = kinds.and_then(|kinds| kinds.get(at)).copied();
        cells.push(cell(value, kind).map_err(sqlx::Error::Decode)?);
    }
    Ok(cells)
}

fn cell(value: MySqlValueRef<'_>, kind: Option<Kind>) -> Result<Cell, sqlx::error::BoxDynError> {
    if value.is_null() {
        return Ok(Cell::Null);
    }
    let info = value.type_info().into_owned();
    let name = info.name();
    if name == "FLOAT" || name == "DOUBLE" {
        let number = <f64 as Decode<MySql>>::decode(value)?;
        return Ok(if number.is_finite() { Cell::Number(number) } else { Cell::Text(number.to_string()) });
    }
    if name.ends_with("UNSIGNED") || name == "YEAR" {
        return Ok(Cell::Unsigned(<u64 as Decode<MySql>>::decode(value)?));
    }
    if name.ends_with("INT") || name == "BOOLEAN" {
        let number = <i64 as Decode<MySql>>::decode(value)?;
        let boolean = name == "BOOLEAN" && (number == 0 || number == 1);
        return Ok(if boolean { Cell::Boolean(number == 1) } else { Cell::Integer(number) });
    }
    let mut bytes = <&[u8] as Decode<MySql>>::decode(value)?;
    if let "DATE" | "DATETIME" | "TIMESTAMP" | "TIME" = name {
        // How many bytes follow is the first of them.
        bytes = bytes.get(1..).unwrap_or_default();
    }
    let text = || String::from_utf8(bytes.to_vec()).ok();
    Ok(match name {
        "DATE" => Cell::Text(date(bytes)),
        "DATETIME" => Cell::Text(moment(bytes)),
        // Connections are in UTC.
        "TIMESTAMP" => Cell::Text(moment(bytes) + "Z"),
        "TIME" => Cell::Text(time(bytes)),
        "BIT" => Cell::Unsigned(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))),
        "JSON" => text().map_or_else(|| Cell::Bytes(bytes.to_vec()), Cell::Json),
        "BINARY" | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" | "GEOMETRY" => {
            match kind {
                // What was cut or converted is text even if it does not say so.
                Some(Kind::Text | Kind::Json | Kind::Other) if text().is_some() => {
                    Cell::of_text(kind.unwrap_or_default(), text().unwrap_or_default())
                }
                _ => Cell::Bytes(bytes.to_vec()),
            }
        }
        _ => match text() {
            Some(text) if kind == Some(Kind::Json) => Cell::Json(text),
            Some(text) => Cell::Text(text),
            None => Cell::Bytes(bytes.to_vec()),
        },
    })
}

/// A date as it is sent: year, month and day. Days of all zeros are sent as nothing.
fn date(bytes: &[u8]) -> String {
    match bytes {
        [low, high, month, day, ..] => {
            format!("{:04}-{month:02}-{day:02}", u16::from_le_bytes([*low, *high]))
        }
        _ => "0000-00-00".to_owned(),
    }
}

/// A date with the time of day behind it, of which what is zero at the end is not sent.
fn moment(bytes: &[u8]) -> String {
    let clock = match bytes.get(4..) {
        Some([hour, minute, second, rest @ ..]) => clock(u32::from(*hour), *minute, *second, rest),
        _ => "00:00:00".to_owned(),
    };
    format!("{}T{clock}", date(bytes))
}

/// A length of time, which may be negative and of many days: a sign, days, hours, minutes and seconds.
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
