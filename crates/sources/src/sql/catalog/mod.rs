//! Reads the catalog of a database: tables, columns, indexes, foreign keys, CHECK constraints, view definitions.
//!
//! Each SQL dialect has its own six queries. Their result columns are the same in all dialects, so that the same code
//! combines the results. Names from a URI are bound as values. Later statements contain only names that the catalog
//! returned.

mod create_table;
mod mysql;
mod postgres;
mod sqlite;

use std::collections::{BTreeMap, HashSet};

use super::dialect::Dialect;
use super::driver::{Driver, DriverError, Statement, collect};
use super::value::{BindValue, SqlValue, ValueType};

/// A table or view, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TableName {
    pub(super) schema: String,
    pub(super) table: String,
}

/// The summary of a table in a listing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableSummary {
    pub(super) name: TableName,
    pub(super) view: bool,
    pub(super) comment: Option<String>,
    /// The number of rows, which may be an estimate; `None` if it is unknown.
    pub(super) rows: Option<u64>,
}

/// The full description of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableInfo {
    pub(super) summary: TableSummary,
    pub(super) columns: Vec<TableColumn>,
    /// The columns that identify a row: the primary key, or else a unique index without nulls.
    pub(super) key: Vec<TableColumn>,
    /// Whether `key` was declared as the primary key.
    pub(super) primary: bool,
    /// The `rowid` of SQLite if `key` may contain nulls, because keys with nulls are not unique.
    pub(super) tie_breaker: Option<TableColumn>,
    pub(super) indexes: Vec<TableIndex>,
    pub(super) references: Vec<ForeignKey>,
    pub(super) checks: Vec<CheckConstraint>,
    /// The query of a view, or the statement that created a table with comments in SQLite.
    pub(super) definition: Option<String>,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableColumn {
    pub(super) name: String,
    /// The declared type.
    pub(super) declared: String,
    /// The name of the type in the catalog, from which `kind` is derived.
    pub(super) base: String,
    /// The type to cast bound values to; empty for SQLite, which needs no casts.
    pub(super) cast: String,
    pub(super) kind: ValueType,
    pub(super) nullable: bool,
    pub(super) default: Option<String>,
    pub(super) comment: Option<String>,
    /// The values of an enum; otherwise empty.
    pub(super) values: Vec<String>,
}

/// An index.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableIndex {
    pub(super) name: String,
    pub(super) unique: bool,
    pub(super) primary: bool,
    /// Whether the index can find all rows with a given value of its first column, unlike a partial or full-text index.
    pub(super) equality: bool,
    pub(super) columns: Vec<String>,
}

/// A foreign key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ForeignKey {
    pub(super) columns: Vec<String>,
    pub(super) target: TableName,
    /// The referenced columns; empty if the foreign key refers to the primary key of `target`.
    pub(super) target_columns: Vec<String>,
}

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CheckConstraint {
    /// Its name; empty if it has none.
    pub(super) name: String,
    pub(super) expression: String,
}

/// The catalog queries of one SQL dialect. Bound values may restrict each of them to one table. The comment of each
/// field lists the result columns.
struct CatalogQueries {
    /// Schema, table, whether it is a view, comment, estimate of rows.
    tables: String,
    /// Schema, table, column, type, base type, cast type, whether null is allowed, default, comment,
    /// values of an enum as a JSON array.
    columns: String,
    /// Schema, table, index, whether it is unique, whether it is primary, column, `equality` of [`TableIndex`].
    indexes: String,
    /// Schema, table, constraint, column; referenced schema, table and column; ordinal position from 1.
    references: String,
    /// Schema, table, name, expression.
    checks: String,
    /// Schema, table, definition.
    definitions: String,
}

fn catalog_queries(dialect: Dialect, schemas: &[String]) -> CatalogQueries {
    match dialect {
        Dialect::Sqlite => sqlite::catalog_queries(),
        Dialect::Postgres => postgres::catalog_queries(),
        Dialect::Mysql => mysql::catalog_queries(schemas),
    }
}

/// All tables and views, without their columns.
pub(super) async fn summaries(
    driver: &dyn Driver,
    schemas: &[String],
) -> Result<Vec<TableSummary>, DriverError> {
    let queries = catalog_queries(driver.dialect(), schemas);
    let tables = query(driver, queries.tables, None).await?;
    let mut summaries: Vec<_> = tables.iter().map(|row| summary(row)).collect();
    if driver.dialect() == Dialect::Mysql {
        // MySQL also returns tables that the user may only write to.
        let columns = query(driver, queries.columns, None).await?;
        let readable: HashSet<_> = columns.iter().map(|row| name(row)).collect();
        summaries.retain(|summary| summary.view || readable.contains(&summary.name));
    }
    Ok(summaries)
}

/// The description of one table, if it exists.
pub(super) async fn table(
    driver: &dyn Driver,
    schemas: &[String],
    name: &TableName,
) -> Result<Option<TableInfo>, DriverError> {
    // MySQL compares names by a collation, which may equate different spellings, so the name is compared again
    // here.
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
    let queries = catalog_queries(driver.dialect(), schemas);
    let mut tables: BTreeMap<TableName, TableInfo> = BTreeMap::new();
    for row in query(driver, queries.tables, only).await? {
        let summary = summary(&row);
        tables.insert(summary.name.clone(), TableInfo::new(summary));
    }
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    // In SQLite, a view still exists after its table was dropped, but then the queries for the columns of the view
    // fail.
    let may_be_broken =
        driver.dialect() == Dialect::Sqlite && tables.values().all(|table| table.summary.view);
    let or_empty_if_broken = |answer: Result<Vec<_>, DriverError>| match answer {
        Err(DriverError::Missing(_) | DriverError::Failed(_)) if may_be_broken => Ok(Vec::new()),
        answer => answer,
    };
    for row in or_empty_if_broken(query(driver, queries.columns, only).await)? {
        let Some(table) = tables.get_mut(&name(&row)) else { continue };
        table.columns.push(column(driver.dialect(), &row));
    }
    for row in or_empty_if_broken(query(driver, queries.indexes, only).await)? {
        let Some(table) = tables.get_mut(&name(&row)) else { continue };
        table.add_index(&row);
    }
    for row in or_empty_if_broken(query(driver, queries.references, only).await)? {
        let Some(table) = tables.get_mut(&name(&row)) else { continue };
        table.add_reference(&row);
    }
    for row in query(driver, queries.checks, only).await? {
        let Some(table) = tables.get_mut(&name(&row)) else { continue };
        table
            .checks
            .push(CheckConstraint { name: row[2].to_text_lossy(), expression: row[3].to_text_lossy() });
    }
    if driver.dialect() == Dialect::Mysql {
        tables.values_mut().for_each(mysql::recognise_json);
    }
    for row in query(driver, queries.definitions, only).await? {
        let Some(table) = tables.get_mut(&name(&row)) else { continue };
        table.define(non_empty(&row[2]));
    }
    // Remove tables of which the user may read no column. Views stay, because the columns of a broken view are unknown.
    tables.retain(|_, table| table.summary.view || !table.columns.is_empty());
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
async fn query(
    driver: &dyn Driver,
    sql: String,
    only: Option<&TableName>,
) -> Result<Vec<Vec<SqlValue>>, DriverError> {
    let value = |text: Option<&String>| text.cloned().map_or(BindValue::Null, BindValue::Text);
    let (schema, table) = (value(only.map(|name| &name.schema)), value(only.map(|name| &name.table)));
    // MySQL has no numbered placeholders, so each value is bound as often as it occurs.
    let binds = match driver.dialect() {
        Dialect::Postgres => vec![schema, table],
        Dialect::Sqlite => vec![table],
        Dialect::Mysql => vec![schema.clone(), schema, table],
    };
    collect(driver, &Statement::new(sql, binds)).await
}

fn name(row: &[SqlValue]) -> TableName {
    TableName { schema: row[0].to_text_lossy(), table: row[1].to_text_lossy() }
}

fn non_empty(cell: &SqlValue) -> Option<String> {
    Some(cell.to_text_lossy()).filter(|text| !text.is_empty())
}

fn summary(row: &[SqlValue]) -> TableSummary {
    TableSummary {
        name: name(row),
        view: row[2].as_bool(),
        comment: non_empty(&row[3]),
        rows: row[4].to_text_lossy().parse().ok(),
    }
}

fn column(dialect: Dialect, row: &[SqlValue]) -> TableColumn {
    let base = row[4].to_text_lossy();
    TableColumn {
        name: row[2].to_text_lossy(),
        declared: row[3].to_text_lossy(),
        cast: row[5].to_text_lossy(),
        kind: dialect.kind(&base),
        base,
        nullable: row[6].as_bool(),
        default: non_empty(&row[7]),
        comment: non_empty(&row[8]),
        values: values(dialect, &row[3].to_text_lossy(), &row[9]),
    }
}

/// The values of an enum. MySQL has them in the declared type; for the other databases, `listed` is a JSON array.
fn values(dialect: Dialect, declared: &str, listed: &SqlValue) -> Vec<String> {
    match dialect {
        Dialect::Mysql => mysql::enum_values(declared),
        Dialect::Sqlite | Dialect::Postgres => {
            serde_json::from_str(&listed.to_text_lossy()).unwrap_or_default()
        }
    }
}

impl TableInfo {
    fn new(summary: TableSummary) -> Self {
        Self {
            summary,
            columns: Vec::new(),
            key: Vec::new(),
            primary: false,
            tie_breaker: None,
            indexes: Vec::new(),
            references: Vec::new(),
            checks: Vec::new(),
            definition: None,
        }
    }

    /// Stores the query of a view as its definition. For a SQLite table, `definition` is the `CREATE TABLE` statement:
    /// adds the CHECK constraints in the statement to `checks`, and stores the statement only if it contains comments.
    fn define(&mut self, definition: Option<String>) {
        if self.summary.view {
            self.definition = definition;
            return;
        }
        let scanned = create_table::scan(definition.as_deref().unwrap_or_default());
        self.checks.extend(scanned.checks);
        self.definition = definition.filter(|_| scanned.has_comment);
    }

    /// The columns by which rows can be filtered, in the order of `columns`. Each is the first column of an index.
    pub(super) fn filter_columns(&self) -> Vec<&str> {
        let leads = |column: &&TableColumn| {
            let first = |index: &TableIndex| index.equality && index.columns.first() == Some(&column.name);
            self.indexes.iter().any(first)
        };
        self.columns.iter().filter(leads).map(|column| &*column.name).collect()
    }

    pub(super) fn name(&self) -> &TableName {
        &self.summary.name
    }

    fn add_index(&mut self, row: &[SqlValue]) {
        let name = row[2].to_text_lossy();
        if self.indexes.last().is_none_or(|last| last.name != name) {
            let (unique, primary, equality) = (row[3].as_bool(), row[4].as_bool(), row[6].as_bool());
            self.indexes.push(TableIndex { name, unique, primary, equality, columns: Vec::new() });
        }
        if let Some(index) = self.indexes.last_mut() {
            index.columns.push(non_empty(&row[5]).unwrap_or_else(|| "(an expression)".to_owned()));
        }
    }

    fn add_reference(&mut self, row: &[SqlValue]) {
        // The rows of one constraint are adjacent, and the first of them has the position 1, so that row begins a
        // foreign key. The names of constraints cannot be used for this, because they are not unique.
        let column = row[3].to_text_lossy();
        let target = TableName { schema: row[4].to_text_lossy(), table: row[5].to_text_lossy() };
        let first = row[7].to_text_lossy() == "1";
        if first || self.references.is_empty() {
            self.references.push(ForeignKey { columns: Vec::new(), target, target_columns: Vec::new() });
        }
        if let Some(reference) = self.references.last_mut() {
            reference.columns.push(column);
            reference.target_columns.extend(non_empty(&row[6]));
        }
    }

    /// Sets `key` to the primary key, or else to the unique index with the fewest columns, none of which may be null.
    /// `key` is empty if there is neither.
    fn choose_key(&mut self) {
        let columns = |index: &TableIndex| -> Option<Vec<TableColumn>> {
            let find = |name: &String| self.columns.iter().find(|column| column.name == *name).cloned();
            index.columns.iter().map(find).collect()
        };
        let primary = self.indexes.iter().find(|index| index.primary).and_then(columns);
        self.primary = primary.is_some();
        let unique = || {
            let certain = |key: &Vec<TableColumn>| key.iter().all(|column| !column.nullable);
            let unique = self.indexes.iter().filter(|index| index.unique);
            unique.filter_map(columns).filter(certain).min_by_key(Vec::len)
        };
        self.key = primary.or_else(unique).unwrap_or_default();
    }
}
