//! The differences between the SQL dialects.

use super::catalog::TableColumn;
use super::value::ValueType;

/// The SQL dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
}

impl Dialect {
    /// The scheme of the URIs of a database with this dialect.
    pub(super) fn scheme(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// Quotes a name from the catalog as an identifier.
    pub(super) fn quote(self, name: &str) -> String {
        match self {
            Self::Sqlite | Self::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
            Self::Mysql => format!("`{}`", name.replace('`', "``")),
        }
    }

    /// The name of a column, qualified with `t`: the alias of the table in all statements.
    pub(super) fn column(self, column: &TableColumn) -> String {
        format!("t.{}", self.quote(&column.name))
    }

    /// A column of the key in an `ORDER BY` or a comparison. MySQL sorts an enum by its number but compares it with
    /// a parameter as text, so this casts the enum to text in both.
    pub(super) fn ordered(self, column: &TableColumn) -> String {
        let name = self.column(column);
        match (self, &*column.base) {
            (Self::Mysql, "enum" | "set") => format!("CAST({name} AS CHAR)"),
            _ => name,
        }
    }

    /// The placeholder of the value with this number, from 1.
    pub(super) fn placeholder(self, number: usize) -> String {
        match self {
            // Values are bound as text and cast in the statement.
            Self::Postgres => format!("${number}::text"),
            Self::Sqlite | Self::Mysql => "?".to_owned(),
        }
    }

    /// A placeholder for a value that is compared with a column.
    pub(super) fn compared(self, number: usize, column: &TableColumn) -> String {
        let placeholder = self.placeholder(number);
        match (self, column.kind) {
            (Self::Postgres, ValueType::Bytes) => format!("pg_catalog.decode({placeholder}, 'base64')"),
            (Self::Postgres, _) => format!("CAST({placeholder} AS {})", column.cast),
            // If such a column were compared with text, MySQL would round decimals and would not order dates.
            (Self::Mysql, ValueType::Decimal | ValueType::Date | ValueType::Time | ValueType::Timestamp) => {
                format!("CAST({placeholder} AS {})", column.cast)
            }
            (Self::Mysql | Self::Sqlite, _) => placeholder,
        }
    }

    /// A placeholder for a parameter of a configured query.
    pub(super) fn parameter(self, number: usize, kind: ValueType) -> String {
        let placeholder = self.placeholder(number);
        let cast = |name: &str| format!("CAST({placeholder} AS {name})");
        match (self, kind) {
            (Self::Postgres, ValueType::Bytes) => format!("pg_catalog.decode({placeholder}, 'base64')"),
            (Self::Postgres, ValueType::Integer) => cast("bigint"),
            (Self::Postgres, ValueType::Number) => cast("double precision"),
            (Self::Postgres, ValueType::Decimal) => cast("numeric"),
            (Self::Postgres, ValueType::Boolean) => cast("boolean"),
            (Self::Postgres, ValueType::Date) => cast("date"),
            (Self::Postgres, ValueType::Time) => cast("time"),
            (Self::Postgres, ValueType::Timestamp) => cast("timestamp with time zone"),
            (Self::Postgres, ValueType::Uuid) => cast("uuid"),
            (Self::Postgres, ValueType::Json) => cast("jsonb"),
            (Self::Postgres, ValueType::Text | ValueType::Other) => cast("text"),
            (Self::Mysql, ValueType::Decimal) => cast("DECIMAL(65, 30)"),
            (Self::Mysql, ValueType::Date) => cast("DATE"),
            (Self::Mysql, ValueType::Time) => cast("TIME(6)"),
            (Self::Mysql, ValueType::Timestamp) => cast("DATETIME(6)"),
            (Self::Sqlite, ValueType::Decimal) => cast("NUMERIC"),
            (Self::Mysql | Self::Sqlite, _) => placeholder,
        }
    }

    /// The expression that selects a column, and whether its values may be large.
    pub(super) fn value(self, column: &TableColumn) -> (String, bool) {
        let (kind, base) = (column.kind, &*column.base);
        let name = self.column(column);
        match self {
            // In SQLite, a column may contain values of any type.
            Self::Sqlite => (name, true),
            Self::Postgres => (name, postgres_can_be_large(kind)),
            Self::Mysql => match (kind, base) {
                (ValueType::Text | ValueType::Bytes, _) => (name, true),
                (ValueType::Json, _) => (format!("CAST({name} AS CHAR)"), true),
                (ValueType::Other, "geometry" | "point" | "linestring" | "polygon" | "multipoint")
                | (
                    ValueType::Other,
                    "multilinestring" | "multipolygon" | "geometrycollection" | "geomcollection",
                ) => (format!("ST_AsText({name})"), true),
                _ => (name, false),
            },
        }
    }

    /// The value type of a database type, by its name in the catalog.
    pub(super) fn kind(self, base: &str) -> ValueType {
        let base = base.to_ascii_lowercase();
        match self {
            Self::Postgres => postgres_kind(&base),
            Self::Mysql => mysql_kind(&base),
            Self::Sqlite => sqlite_kind(&base),
        }
    }
}

/// The number of large values that share one size column. The database returns these values only if their total
/// size is within the limit. The statement repeats the expression for the total for each value, so a larger number
/// makes the statement slower.
const VALUES_PER_SIZE_COLUMN: usize = 8;

/// The select list for `values`, and the number of size columns at its end. Each item of `values` is an expression
/// and whether its values may be large. The large values are divided into groups of [`VALUES_PER_SIZE_COLUMN`],
/// each with a size column for its total size. If the total exceeds `most` bytes, the values of the group are null, so
/// that the database does not send them.
pub(super) fn bounded(values: &[(String, bool)], most: u64) -> (String, usize) {
    let large: Vec<_> = values.iter().filter(|(_, large)| *large).map(|(value, _)| value).collect();
    let sizes: Vec<_> = large
        .chunks(VALUES_PER_SIZE_COLUMN)
        .map(|chunk| {
            let sizes = chunk.iter().map(|value| format!("coalesce(octet_length({value}), 0)"));
            sizes.collect::<Vec<_>>().join(" + ")
        })
        .collect();
    let mut count = 0;
    let mut selected: Vec<_> = values
        .iter()
        .map(|(value, large)| match large {
            false => value.clone(),
            true => {
                count += 1;
                format!(
                    "CASE WHEN {} <= {most} THEN {value} END",
                    sizes[(count - 1) / VALUES_PER_SIZE_COLUMN]
                )
            }
        })
        .collect();
    selected.extend(sizes.iter().cloned());
    (selected.join(", "), sizes.len())
}

/// A value for PostgreSQL to select: an expression, its value type and the name of its database type.
pub(super) struct SelectedColumn {
    pub(super) value: String,
    pub(super) kind: ValueType,
    pub(super) base: String,
}

/// Whether values of this type may be large.
fn postgres_can_be_large(kind: ValueType) -> bool {
    matches!(
        kind,
        ValueType::Text | ValueType::Json | ValueType::Other | ValueType::Bytes | ValueType::Decimal
    )
}

/// A PostgreSQL statement that selects these values; `rest` is the statement from `FROM` on. All values are
/// selected as text, since PostgreSQL can convert every type to text, including the types of extensions. The last
/// column contains the total size of the large values of a row. If this size exceeds `most` bytes, the large values
/// are null. Also returns the number of size columns: 0 if no value can be large, otherwise 1.
pub(super) fn postgres_bounded(values: &[SelectedColumn], rest: &str, most: u64) -> (String, usize) {
    let mut inner = Vec::new();
    let mut sizes = Vec::new();
    let mut outer = Vec::new();
    for (at, SelectedColumn { value, kind, base }) in values.iter().enumerate() {
        inner.push(match kind {
            ValueType::Bytes => format!("{value} AS c{at}"),
            ValueType::Json if !matches!(&**base, "json" | "jsonb") => {
                format!("pg_catalog.to_jsonb({value})::text AS c{at}")
            }
            _ => format!("{value}::text AS c{at}"),
        });
        let shown = match kind {
            ValueType::Bytes => format!("pg_catalog.encode(b.c{at}, 'base64')"),
            _ => format!("b.c{at}"),
        };
        if postgres_can_be_large(*kind) {
            sizes.push(format!("coalesce(octet_length(a.c{at}), 0)::bigint"));
            outer.push(format!("CASE WHEN b.size <= {most} THEN {shown} END"));
        } else {
            outer.push(shown);
        }
    }
    if inner.is_empty() {
        inner.push("NULL".to_owned());
    }
    let inner = format!("SELECT {} {rest}", inner.join(", "));
    if sizes.is_empty() {
        return (inner, 0);
    }
    // `OFFSET 0` prevents the planner from computing the size again for each value.
    let sql = format!(
        "SELECT {}, b.size::text FROM (SELECT a.*, {} AS size FROM ({inner}) AS a OFFSET 0) AS b",
        outer.join(", "),
        sizes.join(" + ")
    );
    (sql, 1)
}

pub(super) fn postgres_kind(base: &str) -> ValueType {
    match base {
        "bool" => ValueType::Boolean,
        "int2" | "int4" | "int8" | "oid" => ValueType::Integer,
        "float4" | "float8" => ValueType::Number,
        "numeric" => ValueType::Decimal,
        "text" | "varchar" | "bpchar" | "char" | "name" | "citext" => ValueType::Text,
        "bytea" => ValueType::Bytes,
        "date" => ValueType::Date,
        "time" | "timetz" => ValueType::Time,
        "timestamp" | "timestamptz" => ValueType::Timestamp,
        "uuid" => ValueType::Uuid,
        // Arrays and composite types are written as JSON.
        "json" | "jsonb" | "array" | "composite" => ValueType::Json,
        _ => ValueType::Other,
    }
}

fn mysql_kind(base: &str) -> ValueType {
    match base {
        "tinyint(1)" => ValueType::Boolean,
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" | "bit" => ValueType::Integer,
        "float" | "double" => ValueType::Number,
        "decimal" => ValueType::Decimal,
        "date" => ValueType::Date,
        "time" => ValueType::Time,
        "datetime" | "timestamp" => ValueType::Timestamp,
        "json" => ValueType::Json,
        "uuid" => ValueType::Uuid,
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => ValueType::Bytes,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set" => {
            ValueType::Text
        }
        _ => ValueType::Other,
    }
}

/// The value type of a declared type: by common type names first, then by the type affinity rules of SQLite.
fn sqlite_kind(base: &str) -> ValueType {
    let has = |part: &str| base.contains(part);
    match base {
        _ if has("bool") => ValueType::Boolean,
        _ if has("json") => ValueType::Json,
        _ if has("int") => ValueType::Integer,
        _ if has("char") || has("clob") || has("text") => ValueType::Text,
        _ if has("blob") => ValueType::Bytes,
        _ if has("real") || has("floa") || has("doub") => ValueType::Number,
        _ if has("decimal") || has("numeric") => ValueType::Decimal,
        _ => ValueType::Other,
    }
}
