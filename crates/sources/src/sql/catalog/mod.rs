//! Reads the catalog of a database: tables, columns, indexes, foreign keys.
//!
//! Each database has four queries with the same result columns, so that their results can be combined by the same
//! code. Names from a URI are bound as values; later statements contain only names from the result.

mod mysql;
mod postgres;
mod sqlite;

use std::collections::BTreeMap;

use super::dialect::Dialect;
use super::driver::{Driver, DriverError, Statement, collect};
use super::value::{Bind, Cell, ValueType};

/// A table or view, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TableName {
    pub(super) schema: String,
    pub(super) table: String,
}

/// The summary of a table in a listing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) name: TableName,
    pub(super) view: bool,
    pub(super) comment: Option<String>,
    /// The estimated number of rows, if the database has one.
    pub(super) rows: Option<u64>,
}

/// The full description of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableInfo {
    pub(super) summary: Summary,
    pub(super) columns: Vec<Column>,
    /// The columns that identify a row: the primary key, or else a unique index without nulls.
    pub(super) key: Vec<Column>,
    /// Whether `key` was declared as the primary key.
    pub(super) primary: bool,
    pub(super) indexes: Vec<Index>,
    pub(super) references: Vec<ForeignKey>,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) name: String,
    /// The declared type.
    pub(super) declared: String,
    /// The internal name of the type.
    pub(super) base: String,
    /// The type in a cast.
    pub(super) cast: String,
    pub(super) kind: ValueType,
    pub(super) nullable: bool,
    pub(super) default: Option<String>,
    pub(super) comment: Option<String>,
}

/// An index.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Index {
    pub(super) name: String,
    pub(super) unique: bool,
    pub(super) primary: bool,
    pub(super) columns: Vec<String>,
}

/// A foreign key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ForeignKey {
    pub(super) columns: Vec<String>,
    pub(super) target: TableName,
    /// The referenced columns; empty for the primary key.
    pub(super) target_columns: Vec<String>,
}

/// The catalog queries, each of which may be restricted to one table.
struct Questions {
    /// Schema, table, whether it is a view, comment, estimate of rows.
    tables: String,
    /// Schema, table, column, type, base type, cast type, whether null is allowed, default, comment.
    columns: String,
    /// Schema, table, index, whether it is unique, whether it is primary, column.
    indexes: String,
    /// Schema, table, constraint, column; referenced schema, table and column; ordinal position from 1.
    references: String,
}

fn questions(dialect: Dialect, schemas: &[String]) -> Questions {
    match dialect {
        Dialect::Sqlite => sqlite::questions(),
        Dialect::Postgres => postgres::questions(),
        Dialect::Mysql => mysql::questions(schemas),
    }
}

/// All tables and views, without their columns.
pub(super) async fn summaries(driver: &dyn Driver, schemas: &[String]) -> Result<Vec<Summary>, DriverError> {
    let tables = ask(driver, questions(driver.dialect(), schemas).tables, None).await?;
    Ok(tables.iter().map(|row| summary(row)).collect())
}

/// The description of one table, if it exists.
pub(super) async fn table(
    driver: &dyn Driver,
    schemas: &[String],
    name: &TableName,
) -> Result<Option<TableInfo>, DriverError> {
    // MySQL compares names by a collation, which may equate different spellings.
    Ok(describe(driver, schemas, Some(name)).await?.into_iter().find(|table| table.name() == name))
}

/// The descriptions of all tables.
pub(super) async fn tables(driver: &dyn Driver, schemas: &[String]) -> Result<Vec<TableInfo>, DriverError> {
    match driver.dialect() {
        Dialect::Sqlite => sqlite::tables(driver).await,
        Dialect::Postgres | Dialect::Mysql => describe(driver, schemas, None).await,
    }
}

async fn describe(
    driver: &dyn Driver,
    schemas: &[String],
    only: Option<&TableName>,
) -> Result<Vec<TableInfo>, DriverError> {
    let asked = questions(driver.dialect(), schemas);
    let mut tables: BTreeMap<TableName, TableInfo> = BTreeMap::new();
    for row in ask(driver, asked.tables, only).await? {
        let summary = summary(&row);
        tables.insert(summary.name.clone(), TableInfo::new(summary));
    }
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    // A view of a dropped table has no columns, but exists.
    let broken = driver.dialect() == Dialect::Sqlite && tables.values().all(|table| table.summary.view);
    let known = |answer: Result<Vec<_>, DriverError>| match answer {
        Err(DriverError::Missing(_) | DriverError::Failed(_)) if broken => Ok(Vec::new()),
        answer => answer,
    };
    for row in known(ask(driver, asked.columns, only).await)? {
        let Some(table) = tables.get_mut(&name(&row)) else { continue };
        table.columns.push(column(driver.dialect(), &row));
    }
    for row in known(ask(driver, asked.indexes, only).await)? {
        let Some(table) = tables.get_mut(&name(&row)) else { continue };
        table.add_index(&row);
    }
    for row in known(ask(driver, asked.references, only).await)? {
        let Some(table) = tables.get_mut(&name(&row)) else { continue };
        table.add_reference(&row);
    }
    let mut tables: Vec<_> = tables.into_values().collect();
    for table in &mut tables {
        table.choose_key();
    }
    if driver.dialect() == Dialect::Sqlite {
        for table in &mut tables {
            sqlite::complete(driver, table).await?;
        }
    }
    Ok(tables)
}

/// Runs a catalog query; `only` restricts it to one table.
async fn ask(
    driver: &dyn Driver,
    sql: String,
    only: Option<&TableName>,
) -> Result<Vec<Vec<Cell>>, DriverError> {
    let value = |text: Option<&String>| text.cloned().map_or(Bind::Null, Bind::Text);
    let (schema, table) = (value(only.map(|name| &name.schema)), value(only.map(|name| &name.table)));
    // Without numbered placeholders, each value is bound as often as it is used.
    let binds = match driver.dialect() {
        Dialect::Postgres => vec![schema, table],
        Dialect::Sqlite => vec![table],
        Dialect::Mysql => vec![schema.clone(), schema, table],
    };
    collect(driver, &Statement::new(sql, binds)).await
}

fn name(row: &[Cell]) -> TableName {
    TableName { schema: row[0].name(), table: row[1].name() }
}

fn said(cell: &Cell) -> Option<String> {
    Some(cell.name()).filter(|text| !text.is_empty())
}

fn summary(row: &[Cell]) -> Summary {
    Summary {
        name: name(row),
        view: row[2].truth(),
        comment: said(&row[3]),
        rows: row[4].name().parse().ok(),
    }
}

fn column(dialect: Dialect, row: &[Cell]) -> Column {
    let base = row[4].name();
    Column {
        name: row[2].name(),
        declared: row[3].name(),
        cast: row[5].name(),
        kind: dialect.kind(&base),
        base,
        nullable: row[6].truth(),
        default: said(&row[7]),
        comment: said(&row[8]),
    }
}

impl TableInfo {
    fn new(summary: Summary) -> Self {
        Self {
            summary,
            columns: Vec::new(),
            key: Vec::new(),
            primary: false,
            indexes: Vec::new(),
            references: Vec::new(),
        }
    }

    pub(super) fn name(&self) -> &TableName {
        &self.summary.name
    }

    fn add_index(&mut self, row: &[Cell]) {
        let name = row[2].name();
        if self.indexes.last().is_none_or(|last| last.name != name) {
            let (unique, primary) = (row[3].truth(), row[4].truth());
            self.indexes.push(Index { name, unique, primary, columns: Vec::new() });
        }
        if let Some(index) = self.indexes.last_mut() {
            index.columns.push(said(&row[5]).unwrap_or_else(|| "(an expression)".to_owned()));
        }
    }

    fn add_reference(&mut self, row: &[Cell]) {
        // The rows of one constraint are adjacent. Its name is not unique, so the column numbered 1 marks the first.
        let column = row[3].name();
        let target = TableName { schema: row[4].name(), table: row[5].name() };
        let first = row[7].name() == "1";
        if first || self.references.is_empty() {
            self.references.push(ForeignKey { columns: Vec::new(), target, target_columns: Vec::new() });
        }
        if let Some(reference) = self.references.last_mut() {
            reference.columns.push(column);
            reference.target_columns.extend(said(&row[6]));
        }
    }

    /// The primary key, or else the shortest unique index whose columns are never null.
    fn choose_key(&mut self) {
        let columns = |index: &Index| -> Option<Vec<Column>> {
            let find = |name: &String| self.columns.iter().find(|column| column.name == *name).cloned();
            index.columns.iter().map(find).collect()
        };
        let primary = self.indexes.iter().find(|index| index.primary).and_then(columns);
        self.primary = primary.is_some();
        let unique = || {
            let certain = |key: &Vec<Column>| key.iter().all(|column| !column.nullable);
            let unique = self.indexes.iter().filter(|index| index.unique);
            unique.filter_map(columns).filter(certain).min_by_key(Vec::len)
        };
        self.key = primary.or_else(unique).unwrap_or_default();
    }
}
