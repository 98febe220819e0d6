//! Conversion of every column type to JSON.

use serde_json::{Value, json};

use crate::database::{Database, Engine, Shop, test_on};

async fn row(shop: &Shop, path: &str) -> Value {
    serde_json::from_str(&shop.read(path).await).unwrap()
}

#[tokio::test]
async fn sqlite() {
    let database = Database::new(Engine::Sqlite).await;
    database
        .execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, big INT, r REAL, s TEXT, b BLOB, yes BOOLEAN, j JSON, d DATETIME,
                             any, odd INTEGER, inf REAL, none TEXT, bad TEXT);
             INSERT INTO t VALUES (1, 9223372036854775807, 1.5, 'Zoë', x'00ff', 1, '{\"a\": [1, null]}',
                                   '2026-07-28 12:00:00', 'x', 'text', 9e999, NULL, CAST(x'ff41' AS TEXT))",
        )
        .await;
    let shop = database.source("");
    assert_eq!(
        row(&shop, "t/rows/1").await,
        json!({
            "id": 1, "big": i64::MAX, "r": 1.5, "s": "Zoë", "b": "AP8=", "yes": true, "j": { "a": [1, null] },
            "d": "2026-07-28 12:00:00", "any": "x", "odd": "text", "inf": "inf", "none": null, "bad": "/0E=",
        })
    );
}

#[tokio::test]
async fn needs_postgres() {
    let database = Database::new(Engine::Postgres).await;
    database
        .execute(
            "CREATE TYPE mood AS ENUM ('fine', 'sad');
             CREATE TYPE pair AS (a int, b text);
             CREATE DOMAIN age AS int;
             CREATE TABLE t (
                 id int8 PRIMARY KEY, small int2, yes bool, r float8, nan float4, n numeric(30, 10), s text, c char(3),
                 v varchar(5), b bytea, d date, tm time, ts timestamp, tz timestamptz, iv interval, u uuid, j json,
                 jb jsonb, a int[], at text[], m mood, p pair, dm age, ip inet, rg int4range, xm xml, mny money,
                 bits bit(3), pt point, nothing text, tsv tsvector);
             INSERT INTO t VALUES (
                 9223372036854775807, -1, true, 0.1, 'NaN', 12345678901234567890.5, 'Zoë', 'ab', 'x', '\\x00ff',
                 '2026-07-28', '12:30:00.25', '2026-07-28 12:30:00', '2026-07-28 12:30:00+02', '1 day 2 hours',
                 '550e8400-e29b-41d4-a716-446655440000', '{\"b\": 1,  \"a\": 2}', '[1, 2.50]', '{1,NULL,3}',
                 '{\"a,b\",c}', 'sad', ROW(1, 'x'), 44, '10.0.0.1', '[1,5)', '<a/>', 12.5, B'101', '(1,2)', NULL,
                 'fat cat'),
                 (2, 1, false, 'Infinity', 1, 'NaN', '', '', '', '', 'infinity', '00:00', 'infinity', '-infinity',
                  '0', NULL, 'null', 'null', '{}', NULL, NULL, NULL, NULL, NULL, 'empty', NULL, NULL, NULL, NULL,
                  NULL, NULL)",
        )
        .await;
    let shop = database.source(
        "[[query]]
         uri = \"db://t\"
         sql = \"SELECT * FROM t WHERE id > 2\"
         one = true",
    );
    let expected = json!({
        "id": i64::MAX, "small": -1, "yes": true, "r": 0.1, "nan": "NaN", "n": "12345678901234567890.5000000000",
        "s": "Zoë", "c": "ab", "v": "x", "b": "AP8=", "d": "2026-07-28", "tm": "12:30:00.25",
        "ts": "2026-07-28T12:30:00", "tz": "2026-07-28T10:30:00Z", "iv": "P1DT2H",
        "u": "550e8400-e29b-41d4-a716-446655440000", "j": { "b": 1, "a": 2 }, "jb": [1, 2.5], "a": [1, null, 3],
        "at": ["a,b", "c"], "m": "sad", "p": { "a": 1, "b": "x" }, "dm": 44, "ip": "10.0.0.1/32", "rg": "[1,5)",
        "xm": "<a/>", "mny": "$12.50", "bits": "101", "pt": "(1,2)", "nothing": null, "tsv": "'cat' 'fat'",
    });
    let mut by_key = row(&shop, "t/rows/9223372036854775807").await;
    // The locale decides whether `money` is printed with a currency sign.
    let money = by_key["mny"].as_str().unwrap().trim_start_matches('$').to_owned();
    by_key["mny"] = format!("${money}").into();
    assert_eq!(by_key, expected);
    let text = shop.text(&libris_core::Uri::parse("db://t").unwrap()).await.unwrap();
    let mut queried: Value = serde_json::from_str(&text).unwrap();
    queried["mny"] = by_key["mny"].clone();
    assert_eq!(queried, expected, "a query gives the same as the table");
    let odd = row(&shop, "t/rows/2").await;
    assert_eq!(
        [&odd["r"], &odd["n"], &odd["d"], &odd["ts"], &odd["tz"]],
        ["Infinity", "NaN", "infinity", "infinity", "-infinity"]
    );
    assert_eq!(odd["a"], json!([]));
    assert_eq!(odd["j"], Value::Null);
}

#[tokio::test]
async fn needs_mariadb() {
    let database = Database::new(Engine::Mysql).await;
    database
        .execute(
            "CREATE TABLE t (
                 id bigint unsigned PRIMARY KEY, t tinyint, yes boolean, m mediumint, r double, f float,
                 n decimal(30, 10), s varchar(20), c char(3), x text, b varbinary(10), bl blob, d date, tm time(2),
                 dt datetime(3), ts timestamp NULL, y year, e enum('a', 'b'), st set('x', 'y'), bits bit(10), j json,
                 g point, nothing text, zero date, neg time);
             SET sql_mode = '';
             INSERT INTO t VALUES (
                 18446744073709551615, -1, true, -5, 0.5, 1.5, 12345678901234567890.5, 'Zoë', 'ab', 'text',
                 x'00ff', x'ff00', '2026-07-28', '12:30:00.25', '2026-07-28 12:30:00.5', '2026-07-28 12:30:00', 2026,
                 'b', 'x,y', b'1000000001', '{\"a\": [1]}', POINT(1, 2), NULL, '0000-00-00', '-26:00:01')",
        )
        .await;
    let shop = database.source("");
    let mut row = row(&shop, "t/rows/18446744073709551615").await;
    let moment = row["ts"].take();
    assert!(moment.as_str().unwrap().ends_with('Z'), "{moment}");
    assert_eq!(
        row,
        json!({
            "id": u64::MAX, "t": -1, "yes": true, "m": -5, "r": 0.5, "f": 1.5, "n": "12345678901234567890.5000000000",
            "s": "Zoë", "c": "ab", "x": "text", "b": "AP8=", "bl": "/wA=", "d": "2026-07-28", "tm": "12:30:00.250000",
            "dt": "2026-07-28T12:30:00.500000", "ts": null, "y": 2026, "e": "b", "st": "x,y", "bits": 513,
            "j": { "a": [1] }, "g": "POINT(1 2)", "nothing": null, "zero": "0000-00-00", "neg": "-26:00:01",
        })
    );
}

test_on!(keys_of_every_type, sqlite, needs_postgres, needs_mariadb);

/// Keys of every type round-trip through `next` and row URIs.
async fn keys_of_every_type(engine: Engine) {
    let cases = [
        (Engine::Sqlite, "TEXT", "'it''s, \"so\"'"),
        (Engine::Sqlite, "BLOB", "x'00ff10'"),
        (Engine::Sqlite, "REAL", "0.1"),
        (Engine::Sqlite, "DATETIME", "'2026-07-28 12:00:00'"),
        (Engine::Sqlite, "BOOLEAN", "1"),
        (Engine::Sqlite, "", "'text'"),
        (Engine::Sqlite, "DECIMAL(10, 2)", "1.25"),
        (Engine::Sqlite, "INT", "'abc'"),
        (Engine::Sqlite, "INT", "2.5"),
        (Engine::Sqlite, "REAL", "1e999"),
        (Engine::Postgres, "text", "'it''s, \"so\"'"),
        (Engine::Postgres, "bytea", "'\\x00ff10'"),
        (Engine::Postgres, "numeric", "1.50"),
        (Engine::Postgres, "float8", "0.1"),
        (Engine::Postgres, "uuid", "'550e8400-e29b-41d4-a716-446655440000'"),
        (Engine::Postgres, "timestamptz", "'2026-07-28 12:00:00.123456+02'"),
        (Engine::Postgres, "date", "'2026-07-28'"),
        (Engine::Postgres, "bool", "true"),
        (Engine::Postgres, "date", "'-infinity'"),
        (Engine::Postgres, "date", "'0044-03-15 BC'"),
        (Engine::Postgres, "timestamptz", "'infinity'"),
        (Engine::Postgres, "float8", "'-Infinity'"),
        (Engine::Postgres, "char(5)", "'ab'"),
        (Engine::Postgres, "inet", "'10.0.0.1'"),
        (Engine::Postgres, "int4range", "'[1,5)'"),
        (Engine::Postgres, "int[]", "'{1,NULL,3}'"),
        (Engine::Postgres, "text[]", "'{\"a,b\",\"c\\\"d\",\"\\\\\"}'"),
        (Engine::Postgres, "pair", "ROW(1, 'x, \"y\"')"),
        (Engine::Postgres, "pair[]", "ARRAY[ROW(1, 'x')::pair]"),
        (Engine::Postgres, "float8", "'NaN'"),
        (Engine::Postgres, "numeric", "'NaN'"),
        (Engine::Postgres, "jsonb", "'{\"a\": [1]}'"),
        (Engine::Mysql, "varchar(50)", "'it''s, \"so\\\\'"),
        (Engine::Mysql, "binary(4)", "x'00ff10aa'"),
        (Engine::Mysql, "decimal(20, 2)", "1.50"),
        (Engine::Mysql, "bigint unsigned", "18446744073709551615"),
        (Engine::Mysql, "date", "'2026-07-28'"),
        (Engine::Mysql, "datetime(6)", "'2026-07-28 12:00:00.123456'"),
        (Engine::Mysql, "time", "'12:30:00'"),
        (Engine::Mysql, "time", "'-26:00:01'"),
        (Engine::Mysql, "uuid", "'550e8400-e29b-41d4-a716-446655440000'"),
        (Engine::Mysql, "enum('a', 'b')", "'b'"),
        (Engine::Mysql, "boolean", "1"),
        (Engine::Mysql, "double", "0.1"),
        (Engine::Mysql, "float", "0.1"),
        (Engine::Mysql, "date", "'0000-00-00'"),
        (Engine::Mysql, "date", "'2026-00-00'"),
        (Engine::Mysql, "datetime(6)", "'0000-00-00 00:00:00'"),
        (Engine::Mysql, "timestamp", "'0000-00-00 00:00:00'"),
    ];
    let database = Database::new(engine).await;
    if engine == Engine::Postgres {
        database.execute("CREATE TYPE pair AS (a int, b text)").await;
    }
    // Otherwise MySQL rejects zero dates.
    let lenient = if engine == Engine::Mysql { "SET sql_mode = '';" } else { "" };
    let shop = database.source("");
    for (at, (_, kind, value)) in cases.iter().enumerate().filter(|(_, case)| case.0 == engine) {
        let sql = format!(
            "{lenient} CREATE TABLE k{at} (k {kind} NOT NULL, part integer, PRIMARY KEY (k, part));
             INSERT INTO k{at} VALUES ({value}, 1), ({value}, 2), ({value}, 3)"
        );
        database.execute(&sql).await;
        let page = row(&shop, &format!("k{at}/rows?limit=2")).await;
        let next = page["next"].as_str().unwrap_or_else(|| panic!("{engine:?} {kind}: {page}"));
        let rest = shop.text(&libris_core::Uri::parse(next).unwrap()).await;
        let rest = rest.unwrap_or_else(|error| panic!("{engine:?} {kind}: {next}: {error} {error:?}"));
        let rest: Value = serde_json::from_str(&rest).unwrap();
        assert_eq!(rest["rows"].as_array().unwrap().len(), 1, "{engine:?} {kind}: {next} gave {rest}");
        let key = next.split("after=").nth(1).unwrap().split('&').next().unwrap();
        let found = row(&shop, &format!("k{at}/rows/{key}")).await;
        assert_eq!(found["part"], 2, "{engine:?} {kind}: {key}");
    }
}

test_on!(pages_go_through_enumerations, needs_mariadb);

/// MySQL sorts enumeration values by their index, not by their text.
async fn pages_go_through_enumerations(engine: Engine) {
    let database = Database::new(engine).await;
    let sql = "CREATE TABLE e (s enum('open', 'closed', 'archived'), id int, PRIMARY KEY (s, id));
               INSERT INTO e VALUES ('open', 1), ('open', 2), ('closed', 1), ('archived', 1), ('archived', 2)";
    database.execute(sql).await;
    let shop = database.source("");
    let mut page = row(&shop, "e/rows?limit=2").await;
    let mut seen = page["rows"].as_array().unwrap().len();
    while let Some(next) = page["next"].as_str() {
        let text = shop.text(&libris_core::Uri::parse(next).unwrap()).await.unwrap();
        page = serde_json::from_str(&text).unwrap();
        seen += page["rows"].as_array().unwrap().len();
        assert!(seen <= 5, "a row was seen twice");
    }
    assert_eq!(seen, 5);
}

#[tokio::test]
async fn a_broken_view_hides_nothing_else() {
    let database = Database::new(Engine::Sqlite).await;
    database
        .execute("CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE VIEW broken AS SELECT * FROM gone")
        .await;
    let shop = database.source("");
    for path in ["schema", "", "broken/schema", "a/schema"] {
        let text = shop.text(&shop.uri(path)).await;
        assert!(text.is_ok(), "{path}: {text:?}");
    }
}
