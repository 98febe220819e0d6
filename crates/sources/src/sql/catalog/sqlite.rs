//! The catalog queries of SQLite.

use super::{Column, Questions, TableInfo, TableName, summaries, table};
use crate::sql::dialect::Dialect;
use crate::sql::driver::{Driver, DriverError, Statement, collect};
use crate::sql::value::ValueType;

/// The most rows that are counted; beyond, the count is estimated from the highest `rowid`.
const COUNTED: u64 = 10_000;

pub(super) fn questions() -> Questions {
    let shown = "t.schema = 'main' AND t.type IN ('table', 'view', 'virtual')
                 AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND (?1 IS NULL OR t.name = ?1)";
    Questions {
        tables: format!(
            "SELECT t.schema, t.name, t.type = 'view', NULL, NULL FROM pragma_table_list t
             WHERE {shown} ORDER BY 2"
        ),
        columns: format!(
            "SELECT t.schema, t.name, c.name, c.type, c.type, '', NOT (c.\"notnull\" OR c.pk),
                    c.dflt_value, NULL
             FROM pragma_table_list t, pragma_table_xinfo(t.name, 'main') c
             WHERE {shown} AND c.hidden <> 1 ORDER BY 2, c.cid"
        ),
        indexes: format!(
            "SELECT schema, name, entry, is_unique, is_primary, column FROM (
                 SELECT t.schema, t.name, 'PRIMARY' AS entry, 1 AS is_unique, 1 AS is_primary,
                        c.name AS column, 0 AS place, c.pk AS position
                 FROM pragma_table_list t, pragma_table_xinfo(t.name, 'main') c WHERE {shown} AND c.pk > 0
                 UNION ALL
                 SELECT t.schema, t.name, i.name, i.\"unique\" AND NOT i.partial, 0, c.name, i.seq + 1, c.seqno
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
    }
}

/// The descriptions of all tables, queried one by one, so that an error in one does not hide the others.
pub(super) async fn tables(driver: &dyn Driver) -> Result<Vec<TableInfo>, DriverError> {
    let mut tables = Vec::new();
    for summary in summaries(driver, &[]).await? {
        tables.extend(table(driver, &[], &summary.name).await?);
    }
    Ok(tables)
}

/// Adds the number of rows, and `rowid` as the key if the table has no other.
pub(super) async fn complete(driver: &dyn Driver, table: &mut TableInfo) -> Result<(), DriverError> {
    if table.summary.view {
        return Ok(());
    }
    let TableName { table: name, .. } = table.name();
    let quoted = Dialect::Sqlite.quote(name);
    let ask = async |sql: String| match collect(driver, &Statement::new(sql, Vec::new())).await {
        Ok(rows) => Ok(rows.first().and_then(|row| row[0].name().parse::<u64>().ok())),
        // A `WITHOUT ROWID` table has no `rowid`, and the module of a virtual table may be missing.
        Err(DriverError::Failed(_) | DriverError::Missing(_)) => Ok(None),
        Err(problem) => Err(problem),
    };
    let count = ask(format!("SELECT count(*) FROM (SELECT 1 FROM {quoted} LIMIT {})", COUNTED + 1)).await?;
    let taken = table.columns.iter().any(|column| column.name.eq_ignore_ascii_case("rowid"));
    let last = match taken {
        true => None,
        false => ask(format!("SELECT max(rowid) FROM {quoted}")).await?,
    };
    table.summary.rows = match count {
        Some(count) if count <= COUNTED => Some(count),
        _ => last,
    };
    if table.key.is_empty() && (last.is_some() || count == Some(0)) && !taken {
        table.key = vec![Column {
            name: "rowid".to_owned(),
            declared: "INTEGER".to_owned(),
            base: "integer".to_owned(),
            cast: String::new(),
            kind: ValueType::Integer,
            nullable: false,
            default: None,
            comment: None,
        }];
    }
    Ok(())
}
