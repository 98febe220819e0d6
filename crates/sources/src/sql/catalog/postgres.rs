//! The catalog queries of PostgreSQL. All result columns are text.

use super::CatalogQueries;

/// The condition for tables of which the user may read at least one column, without partitions and system schemas.
/// `$1` and `$2` restrict it to one schema and table, unless they are null.
const READABLE_TABLES: &str = "
    c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
    AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
    AND ($1::text IS NULL OR n.nspname = $1) AND ($2::text IS NULL OR c.relname = $2)";

/// The condition that the user may read all columns of the table `c` whose numbers are in the array `columns`.
fn readable(columns: &str) -> String {
    format!(
        "NOT EXISTS (SELECT FROM unnest({columns}) AS u(number)
                     WHERE u.number > 0 AND NOT has_column_privilege(c.oid, u.number, 'SELECT'))"
    )
}

pub(super) fn catalog_queries() -> CatalogQueries {
    CatalogQueries {
        tables: format!(
            "SELECT n.nspname::text, c.relname::text, (c.relkind IN ('v', 'm'))::text,
                    obj_description(c.oid, 'pg_class'),
                    CASE WHEN c.reltuples >= 0 AND c.relkind <> 'v' THEN c.reltuples::bigint::text END
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             WHERE {READABLE_TABLES} ORDER BY 1, 2"
        ),
        columns: format!(
            "SELECT n.nspname::text, c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod),
                    CASE WHEN b.typtype = 'c' THEN 'composite' WHEN b.typcategory = 'A' THEN 'array'
                         ELSE b.typname::text END,
                    format_type(a.atttypid, -1), (NOT a.attnotnull)::text,
                    pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum),
                    (SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder)::text FROM pg_catalog.pg_enum e
                     WHERE e.enumtypid IN (b.oid, b.typelem))
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
             JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
             LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
             WHERE {READABLE_TABLES} AND has_column_privilege(c.oid, a.attnum, 'SELECT') ORDER BY 1, 2, a.attnum"
        ),
        indexes: format!(
            "SELECT n.nspname::text, c.relname::text, i.relname::text,
                    (x.indisunique AND x.indpred IS NULL AND x.indimmediate)::text, x.indisprimary::text,
                    coalesce(a.attname::text, pg_get_indexdef(x.indexrelid, k.position::int, true)),
                    (x.indpred IS NULL AND m.amname IN ('btree', 'hash'))::text
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_catalog.pg_index x ON x.indrelid = c.oid AND x.indisvalid
             JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
             JOIN pg_catalog.pg_am m ON m.oid = i.relam
             CROSS JOIN LATERAL unnest(x.indkey::int2[]) WITH ORDINALITY AS k(attribute, position)
             LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attribute
                  AND k.attribute > 0
             WHERE {READABLE_TABLES} AND k.position <= x.indnkeyatts AND {}
             ORDER BY 1, 2, x.indisprimary DESC, i.relname, k.position",
            readable("x.indkey::int2[]")
        ),
        references: format!(
            "SELECT n.nspname::text, c.relname::text, r.conname::text, a.attname::text,
                    m.nspname::text, f.relname::text, b.attname::text, k.position::text
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_catalog.pg_constraint r ON r.conrelid = c.oid AND r.contype = 'f'
             JOIN pg_catalog.pg_class f ON f.oid = r.confrelid
             JOIN pg_catalog.pg_namespace m ON m.oid = f.relnamespace
             CROSS JOIN LATERAL unnest(r.conkey, r.confkey) WITH ORDINALITY AS k(here, there, position)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.here
             JOIN pg_catalog.pg_attribute b ON b.attrelid = f.oid AND b.attnum = k.there
             WHERE {READABLE_TABLES} AND {} AND has_any_column_privilege(f.oid, 'SELECT')
             ORDER BY 1, 2, r.conname, k.position",
            readable("r.conkey")
        ),
        // The CHECK constraints of the table, and those of the domains of its columns.
        checks: format!(
            "SELECT n.nspname::text, c.relname::text, r.conname::text, pg_get_expr(r.conbin, r.conrelid, true)
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_catalog.pg_constraint r ON r.conrelid = c.oid AND r.contype = 'c'
             WHERE {READABLE_TABLES} AND {}
             UNION ALL
             SELECT n.nspname::text, c.relname::text, a.attname::text, pg_get_expr(r.conbin, 0, true)
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             JOIN pg_catalog.pg_constraint r ON r.contypid = a.atttypid AND r.contype = 'c'
             WHERE {READABLE_TABLES} AND has_column_privilege(c.oid, a.attnum, 'SELECT') ORDER BY 1, 2, 3",
            readable("r.conkey")
        ),
        definitions: format!(
            "SELECT n.nspname::text, c.relname::text, pg_get_viewdef(c.oid, true)
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             WHERE {READABLE_TABLES} AND c.relkind IN ('v', 'm') ORDER BY 1, 2"
        ),
    }
}
