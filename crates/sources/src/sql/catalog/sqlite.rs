//! The catalog queries of SQLite.

use super::{CatalogQueries, TableColumn, TableInfo, TableName, summaries, table};
use crate::sql::dialect::Dialect;
use crate::sql::driver::{Driver, DriverError, Statement, collect};
use crate::sql::value::ValueType;

/// The maximum number of rows that are counted. The number of rows of a larger table is estimated from its highest
/// `rowid`.
const MAX_COUNTED_ROWS: u64 = 10_000;

pub(super) fn catalog_queries() -> CatalogQueries {
    let shown = "t.schema = 'main' AND t.type IN ('table', 'view', 'virtual')
                 AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND (?1 IS NULL OR t.name = ?1)";
    CatalogQueries {
        tables: format!(
            "SELECT t.schema, t.name, t.type = 'view', NULL, NULL FROM pragma_table_list t
             WHERE {shown} ORDER BY 2"
        ),
        columns: format!(
            "SELECT t.schema, t.name, c.name, c.type, c.type, '',
                    NOT (c.\"notnull\" OR (c.pk AND (t.wr OR t.strict OR NOT EXISTS (
                         SELECT 1 FROM pragma_index_list(t.name, 'main') i WHERE i.origin = 'pk')))),
                    c.dflt_value, NULL, NULL
             FROM pragma_table_list t, pragma_table_xinfo(t.name, 'main') c
             WHERE {shown} AND c.hidden <> 1 ORDER BY 2, c.cid"
        ),
        indexes: format!(
            "SELECT schema, name, entry, is_unique, is_primary, column, equality FROM (
                 SELECT t.schema, t.name, 'PRIMARY' AS entry, 1 AS is_unique, 1 AS is_primary,
                        c.name AS column, 1 AS equality, 0 AS place, c.pk AS position
                 FROM pragma_table_list t, pragma_table_xinfo(t.name, 'main') c WHERE {shown} AND c.pk > 0
                 UNION ALL
                 SELECT t.schema, t.name, i.name, i.\"unique\" AND NOT i.partial, 0, c.name, NOT i.partial,
                        i.seq + 1, c.seqno
                 FROM pragma_table_list t, pragma_index_list(t.name, 'main') i,
                      pragma_index_info(i.name, 'main') c
                 WHERE {shown} AND i.origin <> 'pk')
             ORDER BY name, place, position"
        ),
        references: format!(
            "SELECT t.schema, t.name, f.id, f.\"from\", 'main', f.\"table\", f.\"to\", f.seq + 1
             FROM pragma_table_list t, pragma_foreign_key_list(t.name, 'main') f
             WHERE {shown} ORDER BY 2, f.id, f.seq"
        ),
        // CHECK constraints are part of the definitions.
        checks: "SELECT NULL, NULL, NULL, NULL WHERE ?1 IS NULL AND 0".to_owned(),
        definitions: format!(
            "SELECT t.schema, t.name, s.sql FROM pragma_table_list t
             JOIN main.sqlite_schema s ON s.name = t.name AND s.type IN ('table', 'view')
             WHERE {shown} ORDER BY 2"
        ),
    }
}

/// The descriptions of all tables, queried one by one, so that a broken view does not make the queries for the others
/// fail.
pub(super) async fn tables(driver: &dyn Driver) -> Result<Vec<TableInfo>, DriverError> {
    let mut tables = Vec::new();
    for summary in summaries(driver, &[]).await? {
        tables.extend(table(driver, &[], &summary.name).await?);
    }
    Ok(tables)
}

/// Adds the number of rows. Also adds the `rowid`: as the key if the table has no other key, or as the
/// tie-breaker if its key may contain nulls.
pub(super) async fn complete(driver: &dyn Driver, table: &mut TableInfo) -> Result<(), DriverError> {
    if table.summary.view {
        return Ok(());
    }
    let TableName { table: name, .. } = table.name();
    let quoted = Dialect::Sqlite.quote(name);
    let query = async |sql: String| match collect(driver, &Statement::new(sql, Vec::new())).await {
        Ok(rows) => Ok(rows.first().and_then(|row| row[0].to_text_lossy().parse::<u64>().ok())),
        // A `WITHOUT ROWID` table has no `rowid`, and the module of a virtual table may be missing.
        Err(DriverError::Failed(_) | DriverError::Missing(_)) => Ok(None),
        Err(problem) => Err(problem),
    };
    let count =
        query(format!("SELECT count(*) FROM (SELECT 1 FROM {quoted} LIMIT {})", MAX_COUNTED_ROWS + 1))
            .await?;
    let is_free = |name: &&&str| !table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    let row_id = ["rowid", "_rowid_", "oid"].iter().find(is_free).copied();
    let last = match row_id {
        None => None,
        Some(row_id) => query(format!("SELECT max({row_id}) FROM {quoted}")).await?,
    };
    table.summary.rows = match count {
        Some(count) if count <= MAX_COUNTED_ROWS => Some(count),
        _ => last,
    };
    let Some(row_id) = row_id.filter(|_| last.is_some() || count == Some(0)) else { return Ok(()) };
    let row_id = TableColumn {
        name: row_id.to_owned(),
        declared: "INTEGER".to_owned(),
        base: "integer".to_owned(),
        cast: String::new(),
        kind: ValueType::Integer,
        nullable: false,
        default: None,
        comment: None,
        values: Vec::new(),
    };
    if table.key.is_empty() {
        table.key = vec![row_id];
    } else if table.key.iter().any(|column| column.nullable) {
        table.tie_breaker = Some(row_id);
    }
    Ok(())
}
