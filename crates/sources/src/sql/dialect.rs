//! What the databases write differently.

use super::catalog::Column;
use super::value::Kind;

/// Whose SQL it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
}

impl Dialect {
    /// The scheme of its URIs.
    pub(super) fn scheme(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// A name that the catalog gave, as an identifier.
    pub(super) fn quote(self, name: &str) -> String {
        match self {
            Self::Sqlite | Self::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
            Self::Mysql => format!("`{}`", name.replace('`', "``")),
        }
    }

    /// A column of the table that a statement calls `t`.
    pub(super) fn column(self, column: &Column) -> String {
        format!("t.{}", self.quote(&column.name))
    }

    /// The place of the value with this number, counted from 1.
    pub(super) fn place(self, number: usize) -> String {
        match self {
            // Values are sent as text, whatever they become.
            Self::Postgres => format!("${number}::text"),
            Self::Sqlite | Self::Mysql => "?".to_owned(),
        }
    }

    /// A place for a value that is compared with a column.
    pub(super) fn compared(self, number: usize, column: &Column) -> String {
        let place = self.place(number);
        match (self, column.kind) {
            (Self::Postgres, Kind::Bytes) => format!("pg_catalog.decode({place}, 'base64')"),
            (Self::Postgres, _) => format!("CAST({place} AS {})", column.cast),
            // Compared as text, numbers would be rounded and days would not be days.
            (Self::Mysql, Kind::Decimal | Kind::Date | Kind::Time | Kind::Timestamp) => {
                format!("CAST({place} AS {})", column.cast)
            }
            (Self::Mysql | Self::Sqlite, _) => place,
        }
    }

    /// A place for a parameter of a configured query.
    pub(super) fn parameter(self, number: usize, kind: Kind) -> String {
        let place = self.place(number);
        let cast = |name: &str| format!("CAST({place} AS {name})");
        match (self, kind) {
            (Self::Postgres, Kind::Bytes) => format!("pg_catalog.decode({place}, 'base64')"),
            (Self::Postgres, Kind::Integer) => cast("bigint"),
            (Self::Postgres, Kind::Number) => cast("double precision"),
            (Self::Postgres, Kind::Decimal) => cast("numeric"),
            (Self::Postgres, Kind::Boolean) => cast("boolean"),
            (Self::Postgres, Kind::Date) => cast("date"),
            (Self::Postgres, Kind::Time) => cast("time"),
            (Self::Postgres, Kind::Timestamp) => cast("timestamp with time zone"),
            (Self::Postgres, Kind::Uuid) => cast("uuid"),
            (Self::Postgres, Kind::Json) => cast("jsonb"),
            (Self::Postgres, Kind::Text | Kind::Other) => cast("text"),
            (Self::Mysql, Kind::Decimal) => cast("DECIMAL(65, 30)"),
            (Self::Mysql, Kind::Date) => cast("DATE"),
            (Self::Mysql, Kind::Time) => cast("TIME(6)"),
            (Self::Mysql, Kind::Timestamp) => cast("DATETIME(6)"),
            (Self::Sqlite, Kind::Decimal) => cast("NUMERIC"),
            (Self::Mysql | Self::Sqlite, _) => place,
        }
    }

    /// What is selected for a column: at most `most` bytes or characters of it, so that one value cannot
    /// fill the memory.
    pub(super) fn select(self, column: &Column, most: u64) -> String {
        let (kind, base) = (column.kind, &*column.base);
        let column = self.column(column);
        match self {
            Self::Postgres => postgres_text(&column, kind, base, most),
            Self::Sqlite => format!(
                "CASE WHEN octet_length({column}) > {most} THEN substr({column}, 1, {most} + 1) ELSE {column} END"
            ),
            Self::Mysql => match (kind, base) {
                (Kind::Text | Kind::Bytes, _) => format!("LEFT({column}, {most} + 1)"),
                (Kind::Json, _) => format!("LEFT(CAST({column} AS CHAR), {most} + 1)"),
                (Kind::Other, "geometry" | "point" | "linestring" | "polygon" | "multipoint")
                | (
                    Kind::Other,
                    "multilinestring" | "multipolygon" | "geometrycollection" | "geomcollection",
                ) => {
                    format!("LEFT(ST_AsText({column}), {most} + 1)")
                }
                _ => column,
            },
        }
    }

    /// The kind of a type by its name in the catalog.
    pub(super) fn kind(self, base: &str) -> Kind {
        let base = base.to_ascii_lowercase();
        match self {
            Self::Postgres => postgres_kind(&base),
            Self::Mysql => mysql_kind(&base),
            Self::Sqlite => sqlite_kind(&base),
        }
    }
}

/// PostgreSQL can write every type as text, also those that others have added, so all come as text.
pub(super) fn postgres_text(column: &str, kind: Kind, base: &str, most: u64) -> String {
    match kind {
        Kind::Bytes => format!("pg_catalog.encode(substring({column} FROM 1 FOR {most} + 1), 'base64')"),
        Kind::Json if !matches!(base, "json" | "jsonb") => {
            format!("left(pg_catalog.to_jsonb({column})::text, {most} + 1)")
        }
        Kind::Text | Kind::Json | Kind::Other => format!("left({column}::text, {most} + 1)"),
        _ => format!("{column}::text"),
    }
}

pub(super) fn postgres_kind(base: &str) -> Kind {
    match base {
        "bool" => Kind::Boolean,
        "int2" | "int4" | "int8" | "oid" => Kind::Integer,
        "float4" | "float8" => Kind::Number,
        "numeric" => Kind::Decimal,
        "text" | "varchar" | "bpchar" | "char" | "name" | "citext" => Kind::Text,
        "bytea" => Kind::Bytes,
        "date" => Kind::Date,
        "time" | "timetz" => Kind::Time,
        "timestamp" | "timestamptz" => Kind::Timestamp,
        "uuid" => Kind::Uuid,
        // Arrays and composite types are written as JSON.
        "json" | "jsonb" | "array" | "composite" => Kind::Json,
        _ => Kind::Other,
    }
}

fn mysql_kind(base: &str) -> Kind {
    match base {
        "tinyint(1)" => Kind::Boolean,
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" | "bit" => Kind::Integer,
        "float" | "double" => Kind::Number,
        "decimal" => Kind::Decimal,
        "date" => Kind::Date,
        "time" => Kind::Time,
        "datetime" | "timestamp" => Kind::Timestamp,
        "json" => Kind::Json,
        "uuid" => Kind::Uuid,
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Kind::Bytes,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set" => Kind::Text,
        _ => Kind::Other,
    }
}

/// By the rules that SQLite itself has for type names, after those that only people know.
fn sqlite_kind(base: &str) -> Kind {
    let has = |part: &str| base.contains(part);
    match base {
        _ if has("bool") => Kind::Boolean,
        _ if has("json") => Kind::Json,
        _ if has("int") => Kind::Integer,
        _ if has("char") || has("clob") || has("text") => Kind::Text,
        _ if has("blob") => Kind::Bytes,
        _ if has("real") || has("floa") || has("doub") => Kind::Number,
        _ if has("decimal") || has("numeric") => Kind::Decimal,
        _ => Kind::Other,
    }
}
