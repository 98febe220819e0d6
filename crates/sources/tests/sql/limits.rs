//! Limits on rows, bytes and time.

use std::time::{Duration, Instant};

use libris_core::{Error, Uri};
use serde_json::Value;

use crate::database::{Database, Engine, test_on};

fn numbers(engine: Engine, count: u32, value: &str) -> String {
    let rows: Vec<_> = (1..=count).map(|number| format!("({number}, {value})")).collect();
    let kind = if engine == Engine::Mysql { "longtext" } else { "text" };
    format!("CREATE TABLE t (id integer PRIMARY KEY, v {kind}); INSERT INTO t VALUES {}", rows.join(", "))
}

fn repeated(engine: Engine, count: u32) -> String {
    match engine {
        Engine::Sqlite => format!("printf('%.*c', {count}, 'x')"),
        Engine::Postgres | Engine::Mysql => format!("repeat('x', {count})"),
    }
}

test_on!(pages_hold_as_much_as_fits_and_go_on, sqlite, needs_postgres, needs_mariadb);

async fn pages_hold_as_much_as_fits_and_go_on(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(&numbers(engine, 25, &repeated(engine, 100))).await;
    let shop = database.source("max_bytes = 1000\nmax_rows = 20");
    let mut next = shop.uri("t/rows?limit=1000");
    let mut seen = Vec::new();
    loop {
        let text = shop.text(&next).await.unwrap();
        assert!(text.len() < 1200, "{engine:?}: {}", text.len());
        let page: Value = serde_json::from_str(&text).unwrap();
        seen.extend(page["rows"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()));
        match page["next"].as_str() {
            Some(uri) => next = Uri::parse(uri).unwrap(),
            None => break,
        }
    }
    assert_eq!(seen, (1..=25).collect::<Vec<_>>(), "{engine:?}");
}

/// `max_rows` limits a page of small rows, which `max_bytes` does not.
#[tokio::test]
async fn a_page_has_no_more_rows_than_the_configuration_says() {
    let database = Database::new(Engine::Sqlite).await;
    database.execute(&numbers(Engine::Sqlite, 25, "'x'")).await;
    let shop = database.source("max_rows = 20");
    for limit in ["20", "21", "1000", "18446744073709551615"] {
        let page: Value = serde_json::from_str(&shop.read(&format!("t/rows?limit={limit}")).await).unwrap();
        let ids: Vec<_> =
            page["rows"].as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, (1..=20).collect::<Vec<_>>(), "limit={limit}");
        let next = Uri::parse(page["next"].as_str().unwrap()).unwrap();
        let rest: Value = serde_json::from_str(&shop.text(&next).await.unwrap()).unwrap();
        assert_eq!(rest["rows"].as_array().unwrap().len(), 5, "{next}");
    }
    let page: Value = serde_json::from_str(&shop.read("t/rows?limit=3").await).unwrap();
    assert_eq!(page["rows"].as_array().unwrap().len(), 3);
}

test_on!(huge_values_are_too_large, sqlite, needs_postgres, needs_mariadb);

async fn huge_values_are_too_large(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(&numbers(engine, 2, &repeated(engine, 8_000_000))).await;
    let shop = database.source("max_bytes = 10000\n[[query]]\nuri = \"db://t\"\nsql = \"SELECT v FROM t\"");
    for uri in [shop.uri("t/rows/1"), shop.uri("t/rows"), Uri::parse("db://t").unwrap()] {
        let error = shop.text(&uri).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 10000, .. }), "{engine:?}: {uri}: {error:?}");
    }
    // The next read works although the connection was closed in the middle of a result.
    assert!(shop.read("t/schema").await.contains("Primary key: id"));
}

test_on!(what_takes_too_long_ends, sqlite, needs_postgres, needs_mariadb);

async fn what_takes_too_long_ends(engine: Engine) {
    let sql = match engine {
        Engine::Sqlite => {
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        }
        Engine::Postgres => "SELECT pg_sleep(60)::text",
        Engine::Mysql => "SELECT SLEEP(60)",
    };
    let database = Database::new(engine).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)").await;
    let shop = database.source(&format!("timeout = \"300ms\"\n[[query]]\nuri = \"db://t\"\nsql = {sql:?}"));
    let begun = Instant::now();
    // More concurrent reads than connections.
    let uri = Uri::parse("db://t").unwrap();
    let reads = futures_util::future::join_all((0..6).map(|_| shop.text(&uri))).await;
    for read in reads {
        // MySQL interrupts `SLEEP` and returns a row instead of an error.
        let early = engine == Engine::Mysql && read.is_ok();
        let slow =
            matches!(&read, Err(Error::Unavailable(why)) if why.contains("did not answer within 300ms"));
        assert!(early || slow, "{engine:?}: {read:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{engine:?}: {:?}", begun.elapsed());
    assert_eq!(shop.read("t/rows").await, "{\"rows\":[]}");
}

test_on!(abandoned_reads_free_their_connections, needs_postgres);

/// A dropped read releases its connection before its query would have ended.
async fn abandoned_reads_free_their_connections(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)").await;
    let sql = "SELECT pg_sleep(3)::text";
    let shop = database.source(&format!("connections = 2\n[[query]]\nuri = \"db://t\"\nsql = {sql:?}"));
    let uri = Uri::parse("db://t").unwrap();
    for _ in 0..4 {
        let slow = tokio::time::timeout(Duration::from_millis(50), shop.text(&uri)).await;
        assert!(slow.is_err());
    }
    let begun = Instant::now();
    shop.read("t/rows").await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

/// Every numeric setting has bounds, and the error names them.
#[tokio::test]
async fn numbers_out_of_bounds_are_refused() {
    let database = Database::new(Engine::Sqlite).await;
    let refused = |line: &str| {
        let text = format!("url = {:?}\n{line}", database.url);
        let config: libris_sources::sql::Config = toml::from_str(&text).unwrap();
        libris_sources::Sql::open(config, database.folder.path()).err().map(|error| error.to_string())
    };
    let cases = [
        (
            "connections = 9223372036854775807",
            "`connections` must be from 1 to 256, not `9223372036854775807`",
        ),
        ("connections = 0", "`connections` must be from 1 to 256, not `0`"),
        ("max_rows = 9223372036854775807", "`max_rows` must be from 1 to 1000000, not `9223372036854775807`"),
        ("max_rows = 0", "`max_rows` must be from 1 to 1000000, not `0`"),
        ("max_bytes = 268435457", "`max_bytes` must be from 1 to 268435456, not `268435457`"),
        ("timeout = \"0s\"", "`timeout` must be from `1ms` to `1h`, not `0s`"),
        ("timeout = \"30days\"", "`timeout` must be from `1ms` to `1h`, not `30days`"),
        ("poll = \"1ns\"", "`poll` must be from `10ms` to `1day`, not `1ns`"),
        ("poll = \"2days\"", "`poll` must be from `10ms` to `1day`, not `2days`"),
    ];
    for (line, expected) in cases {
        let said = refused(line).unwrap_or_else(|| panic!("{line} is accepted"));
        assert!(said.contains(expected), "{line}: {said}");
    }
    for line in ["connections = 256", "max_rows = 1000000", "max_bytes = 268435456", "timeout = \"1h\""] {
        assert_eq!(refused(line), None, "{line}");
    }
}

#[tokio::test]
async fn a_schema_that_is_too_large_is_refused() {
    let database = Database::new(Engine::Sqlite).await;
    // A long comment in a statement is part of the schema.
    let table = |name: &str| format!("CREATE TABLE {name} (id integer /* {} */)", "x".repeat(900_000));
    let tables: Vec<_> = (0..17).map(|number| table(&format!("t{number}"))).collect();
    database.execute(&tables.join(";")).await;
    let shop = database.source("");
    assert!(shop.text(&shop.uri("t1/rows")).await.is_ok());
    database.execute(&format!("{};{}", table("u"), table("v"))).await;
    let shop = database.source("");
    let error = shop.text(&shop.uri("t1/rows")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the schema of the database `shop` is larger than 16777216 bytes; hint: let its user see fewer tables"
    );
}
