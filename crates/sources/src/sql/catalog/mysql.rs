//! The catalog queries of MySQL and MariaDB.

use super::{CatalogQueries, TableColumn, TableInfo};
use crate::sql::dialect::Dialect;

/// The condition that restricts a catalog query to the configured schemas; without any, to the database of the
/// connection. If the name of a table is bound, the condition also restricts the query to that table.
/// `schema` and `table` are the columns that hold the two names.
fn table_condition(schema: &str, table: &str, schemas: &[String]) -> String {
    let within = match schemas.is_empty() {
        true => format!("{schema} = DATABASE()"),
        // Schemas from the configuration, as string literals.
        false => {
            let names =
                schemas.iter().map(|name| format!("'{}'", name.replace('\\', "\\\\").replace('\'', "''")));
            format!("{schema} IN ({})", names.collect::<Vec<_>>().join(", "))
        }
    };
    let placeholder = Dialect::Mysql.placeholder(1);
    format!(
        "{within} AND {schema} NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')
         AND ({placeholder} IS NULL OR ({schema} = {placeholder} AND {table} = {placeholder}))"
    )
}

/// In MariaDB, a column that was declared as JSON is a text column with the constraint `json_valid(…)`. Gives such
/// columns the type JSON, and removes these constraints.
pub(super) fn recognise_json(table: &mut TableInfo) {
    let TableInfo { columns, checks, .. } = table;
    checks.retain(|check| {
        let is_json = |column: &&mut TableColumn| {
            column.base == "longtext"
                && check.expression == format!("json_valid(`{}`)", column.name.replace('`', "``"))
        };
        let Some(column) = columns.iter_mut().find(is_json) else { return true };
        "json".clone_into(&mut column.base);
        column.kind = Dialect::Mysql.kind(&column.base);
        false
    });
}

pub(super) fn catalog_queries(schemas: &[String]) -> CatalogQueries {
    let table_condition = |schema, table| table_condition(schema, table, schemas);
    CatalogQueries {
        tables: format!(
            "SELECT t.table_schema, t.table_name, t.table_type LIKE '%VIEW',
                    CASE WHEN t.table_type LIKE '%VIEW' THEN NULL ELSE t.table_comment END, t.table_rows
             FROM information_schema.tables t WHERE {} ORDER BY 1, 2",
            table_condition("t.table_schema", "t.table_name")
        ),
        columns: format!(
            "SELECT c.table_schema, c.table_name, c.column_name, c.column_type,
                    CASE WHEN c.column_type LIKE 'tinyint(1)%' THEN 'tinyint(1)' ELSE c.data_type END,
                    CASE c.data_type
                         WHEN 'decimal' THEN
                              CONCAT('DECIMAL(', c.numeric_precision, ', ', c.numeric_scale, ')')
                         WHEN 'date' THEN 'DATE' WHEN 'time' THEN 'TIME(6)' ELSE 'DATETIME(6)' END,
                    c.is_nullable, c.column_default, c.column_comment, NULL
             FROM information_schema.columns c WHERE {} AND c.privileges LIKE '%select%' ORDER BY 1, 2, c.ordinal_position",
            table_condition("c.table_schema", "c.table_name")
        ),
        indexes: format!(
            "SELECT s.table_schema, s.table_name, s.index_name, s.non_unique = 0, s.index_name = 'PRIMARY',
                    CASE WHEN s.sub_part IS NULL THEN s.column_name ELSE
                         CONCAT(s.column_name, '(', s.sub_part, ')') END,
                    s.index_type IN ('BTREE', 'HASH')
             FROM information_schema.statistics s WHERE {}
             ORDER BY 1, 2, s.index_name = 'PRIMARY' DESC, s.index_name, s.seq_in_index",
            table_condition("s.table_schema", "s.table_name")
        ),
        references: format!(
            "SELECT k.table_schema, k.table_name, k.constraint_name, k.column_name,
                    k.referenced_table_schema, k.referenced_table_name, k.referenced_column_name,
                    k.ordinal_position
             FROM information_schema.key_column_usage k
             WHERE {} AND k.referenced_table_name IS NOT NULL
             ORDER BY 1, 2, k.constraint_name, k.ordinal_position",
            table_condition("k.table_schema", "k.table_name")
        ),
        // MariaDB executes `/*M!…*/`, MySQL from 5.7 on `/*!50700…*/`, and MySQL from 8.0.16 on `/*!80016…*/`. MySQL
        // 5.7 has no CHECK constraints. MariaDB must not join two tables of the information schema: it would open
        // every table of every database for the second one.
        checks: format!(
            "SELECT k.constraint_schema, k.table_name, k.constraint_name,
                    COALESCE(/*M!100222 k.check_clause, */ /*!80016 x.check_clause, */ NULL)
             FROM /*M!100222 information_schema.check_constraints k */
                  /*!50700 information_schema.table_constraints k */
                  /*!80016 JOIN information_schema.check_constraints x
                  ON x.constraint_schema = k.constraint_schema AND x.constraint_name = k.constraint_name */
             WHERE {} /*!50700 AND k.constraint_type = 'CHECK' */ ORDER BY 1, 2, 3",
            table_condition("k.constraint_schema", "k.table_name")
        ),
        definitions: format!(
            "SELECT k.table_schema, k.table_name, k.view_definition FROM information_schema.views k
             WHERE {} ORDER BY 1, 2",
            table_condition("k.table_schema", "k.table_name")
        ),
    }
}

/// The values in a declared type such as `enum('a','it''s')` or `set('a','b')`; empty for other types.
pub(super) fn enum_values(declared: &str) -> Vec<String> {
    let Some(mut rest) = declared.strip_prefix("enum(").or_else(|| declared.strip_prefix("set(")) else {
        return Vec::new();
    };
    let mut values = Vec::new();
    while let Some(quoted) = rest.trim_start_matches(',').strip_prefix('\'') {
        let mut value = String::new();
        rest = quoted;
        while let Some((part, more)) = rest.split_once('\'') {
            value.push_str(part);
            rest = more;
            let Some(more) = rest.strip_prefix('\'') else { break };
            value.push('\'');
            rest = more;
        }
        values.push(value);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::enum_values;

    #[test]
    fn enum_values_are_parsed() {
        assert_eq!(enum_values("enum('a','it''s','x,y','')"), ["a", "it's", "x,y", ""]);
        assert_eq!(enum_values("set('a')"), ["a"]);
        assert_eq!(enum_values("varchar(3)"), [""; 0]);
    }
}
