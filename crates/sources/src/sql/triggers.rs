//! The triggers that make PostgreSQL notify of every changed row.

use super::catalog::TableInfo;
use super::dialect::Dialect;

/// A script that creates the trigger function and, for each table, the triggers that call it. The function sends
/// a notification with the key of the changed row.
pub(super) fn script(tables: &[TableInfo], channel: &str) -> String {
    let quote = |name: &str| Dialect::Postgres.quote(name);
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let mut script = String::from(FUNCTION);
    for table in tables.iter().filter(|table| !table.summary.view) {
        let name = table.name();
        let target = format!("{}.{}", quote(&name.schema), quote(&name.table));
        let columns = table.key.iter().map(|column| text(&column.name));
        let arguments: Vec<_> = [text(channel)].into_iter().chain(columns).collect();
        let arguments = arguments.join(", ");
        script.push_str(&format!(
            "\nDROP TRIGGER IF EXISTS libris_row ON {target};
CREATE TRIGGER libris_row AFTER INSERT OR UPDATE OR DELETE ON {target}
    FOR EACH ROW EXECUTE FUNCTION libris_tell({arguments});
DROP TRIGGER IF EXISTS libris_truncate ON {target};
CREATE TRIGGER libris_truncate AFTER TRUNCATE ON {target}
    FOR EACH STATEMENT EXECUTE FUNCTION libris_tell({arguments});
"
        ));
    }
    script.push_str("\nCOMMIT;\n");
    script
}

/// The trigger function. Its first argument is the channel, the others are the columns of the key. A payload may have
/// at most 8,000 bytes, so a longer key is omitted, and the notification is for the whole table.
const FUNCTION: &str = "BEGIN;

CREATE OR REPLACE FUNCTION libris_tell() RETURNS trigger LANGUAGE plpgsql AS $libris$
DECLARE
    changed jsonb[] := ARRAY[]::jsonb[];
    entry jsonb;
    keys jsonb;
    message text;
BEGIN
    IF TG_OP IN ('UPDATE', 'DELETE') THEN changed := changed || to_jsonb(OLD); END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN changed := changed || to_jsonb(NEW); END IF;
    IF TG_OP = 'TRUNCATE' THEN changed := changed || '{}'::jsonb; END IF;
    FOREACH entry IN ARRAY changed LOOP
        SELECT jsonb_agg(entry ->> TG_ARGV[at] ORDER BY at) INTO keys FROM generate_series(1, TG_NARGS - 1) AS at;
        message := jsonb_build_object('schema', TG_TABLE_SCHEMA, 'table', TG_TABLE_NAME, 'key', keys)::text;
        IF octet_length(message) > 7900 OR TG_OP = 'TRUNCATE' THEN
            message := jsonb_build_object('schema', TG_TABLE_SCHEMA, 'table', TG_TABLE_NAME)::text;
        END IF;
        PERFORM pg_notify(TG_ARGV[0], message);
    END LOOP;
    RETURN NULL;
END
$libris$;
";
