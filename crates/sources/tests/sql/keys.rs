//! Keyset pagination over keys of SQLite, which may mix storage classes and contain nulls.

use std::collections::HashSet;

use libris_core::Uri;
use serde_json::Value;

use crate::database::{Database, Engine, Shop};

/// Reads all pages of a table. Returns the values of the column `n` of all rows, in order, and checks that the key of
/// the last row of each page finds that row.
async fn walk(shop: &Shop, table: &str, limit: usize) -> Vec<i64> {
    let mut seen = Vec::new();
    let mut uri = shop.uri(&format!("{table}/rows?limit={limit}"));
    loop {
        let page: Value = serde_json::from_str(&shop.text(&uri).await.unwrap()).unwrap();
        seen.extend(page["rows"].as_array().unwrap().iter().map(|row| row["n"].as_i64().unwrap()));
        assert!(seen.len() <= 100, "{table}: the pages do not end: {uri}");
        let Some(next) = page["next"].as_str() else { return seen };
        uri = Uri::parse(next).unwrap();
        let key = next.split("after=").nth(1).unwrap().split('&').next().unwrap();
        let row: Value = serde_json::from_str(&shop.read(&format!("{table}/rows/{key}")).await).unwrap();
        assert_eq!(row["n"].as_i64(), seen.last().copied(), "{table}: the row with the key {key}");
    }
}

#[tokio::test]
async fn pages_contain_every_row_once() {
    let mixed = "(1, 1), ('1', 2), (2, 3), ('2', 4), (2.5, 5), ('2.5', 6), (x'32', 7), ('Mg==', 8), ('text~2', 9),
                 ('', 10), ('null', 11), ('null,1', 12), (1e999, 13), ('inf', 14), ('true', 15), ('two', 16),
                 (CAST(x'ff41' AS TEXT), 17), (x'', 18), (-9223372036854775808, 19), (1e300, 20), ('~', 21), ('\"', 22),
                 ('a,b', 23), ('..', 24)";
    let nulls = "(NULL, 30), (NULL, 31), (NULL, 32), (NULL, 33)";
    let database = Database::new(Engine::Sqlite).await;
    let tables = [
        ("untyped", "k, n, PRIMARY KEY (k)"),
        ("text", "k TEXT, n, PRIMARY KEY (k)"),
        ("blob", "k BLOB, n, PRIMARY KEY (k)"),
        ("int", "k INT, n, PRIMARY KEY (k)"),
        ("integer_descending", "k INTEGER PRIMARY KEY DESC, n"),
        ("real", "k REAL, n, PRIMARY KEY (k)"),
        ("boolean", "k BOOLEAN, n, PRIMARY KEY (k)"),
        ("json", "k JSON, n, PRIMARY KEY (k)"),
        ("time", "k DATETIME, n, PRIMARY KEY (k)"),
        ("named", "k, n, rowid TEXT, PRIMARY KEY (k)"),
    ];
    for (table, columns) in tables {
        // The affinity of some columns makes some of the keys equal.
        let sql = format!(
            "CREATE TABLE \"{table}\" ({columns});
             INSERT OR IGNORE INTO \"{table}\" (k, n) VALUES {mixed}, {nulls}"
        );
        database.execute(&sql).await;
    }
    database
        .execute(&format!(
            "CREATE TABLE two (a, b, n, PRIMARY KEY (a, b));
             INSERT INTO two SELECT k, 'x', n FROM untyped;
             INSERT INTO two SELECT 7, k, n + 50 FROM untyped;
             CREATE TABLE strict_keys (k, n, PRIMARY KEY (k)) WITHOUT ROWID;
             INSERT INTO strict_keys VALUES {mixed}"
        ))
        .await;
    let shop = database.source("");
    for table in tables.map(|(table, _)| table).into_iter().chain(["two", "strict_keys"]) {
        let all = walk(&shop, table, 1000).await;
        let expected = match table {
            "two" => 56,
            "strict_keys" => 24,
            "untyped" | "blob" | "named" => 28,
            _ => all.len(),
        };
        assert_eq!(all.len(), expected, "{table}");
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "{table}");
        for limit in [1, 2, 3] {
            assert_eq!(walk(&shop, table, limit).await, all, "{table} by {limit}");
        }
    }
    let next = shop.read("untyped/rows?limit=2").await;
    assert!(next.contains("rows?after=null,26&limit=2"), "{next}");
}

/// Keys of one storage class have no prefix.
#[tokio::test]
async fn usual_keys_are_plain() {
    let database = Database::new(Engine::Sqlite).await;
    database
        .execute(
            "CREATE TABLE t (k TEXT PRIMARY KEY); INSERT INTO t VALUES ('2'), ('it''s');
             CREATE TABLE u (k PRIMARY KEY); INSERT INTO u VALUES (2), ('2'), ('two')",
        )
        .await;
    let shop = database.source("");
    assert_eq!(shop.read("t/rows/2").await, r#"{"k":"2"}"#);
    assert_eq!(shop.read("t/rows/it's").await, r#"{"k":"it's"}"#);
    assert_eq!(shop.read("u/rows/2").await, r#"{"k":2}"#);
    assert_eq!(shop.read("u/rows/text~2").await, r#"{"k":"2"}"#);
    assert_eq!(shop.read("u/rows/two").await, r#"{"k":"two"}"#);
}
