//! Keyset pagination of a million rows: the query plans of the databases show that each page is an index range scan.

use serde_json::Value;
use sqlx::{Connection as _, Row as _};

use crate::database::{Database, Engine};
use crate::server;

const MILLION: i64 = 1_000_000;

/// The first page, one in the middle, and a row.
const READS: [&str; 3] = ["million/rows", "million/rows?after=500000", "million/rows/777777"];

/// How many pages are read to measure memory growth.
const PAGES: usize = 50;

async fn fill(engine: Engine) -> Database {
    let database = Database::new(engine).await;
    let series = match engine {
        Engine::Postgres => format!("SELECT n, 'row ' || n FROM generate_series(1, {MILLION}) AS n"),
        Engine::Mysql => format!("SELECT seq, CONCAT('row ', seq) FROM seq_1_to_{MILLION}"),
        Engine::Sqlite => format!(
            "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {MILLION})
             SELECT n, 'row ' || n FROM s"
        ),
    };
    let table = "CREATE TABLE million (id integer PRIMARY KEY, v varchar(20))";
    database.execute(&format!("{table}; INSERT INTO million {series}")).await;
    database
}

/// The resident memory of this process, in KiB.
fn memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

/// Reads the pages and the row, then many pages, and checks that memory does not grow.
async fn read(database: &Database) {
    let shop = database.source("");
    let first: Value = serde_json::from_str(&shop.read(READS[0]).await).unwrap();
    assert_eq!(first["rows"][99]["id"], 100);
    assert!(first["next"].as_str().unwrap().ends_with("/million/rows?after=100"), "{}", first["next"]);
    let middle: Value = serde_json::from_str(&shop.read(READS[1]).await).unwrap();
    assert_eq!((&middle["rows"][0]["id"], &middle["rows"][99]["id"]), (&500_001.into(), &500_100.into()));
    let row: Value = serde_json::from_str(&shop.read(READS[2]).await).unwrap();
    assert_eq!(row["v"], "row 777777");
    // Tests that run concurrently allocate too, so the smallest growth counts.
    let mut grown = i64::MAX;
    for _ in 0..5 {
        let before = memory();
        for number in 0..PAGES {
            shop.read(&format!("million/rows?after={}&limit=1000", number * 20_000)).await;
        }
        grown = grown.min(memory() - before);
        if grown < 8 * 1024 {
            break;
        }
    }
    println!("reading 50,000 rows took {grown} KiB more");
    assert!(grown < 8 * 1024, "reading 50,000 rows took {grown} KiB more");
}

#[tokio::test]
async fn sqlite() {
    let database = fill(Engine::Sqlite).await;
    read(&database).await;
    let mut connection = sqlx::SqliteConnection::connect(&database.url).await.unwrap();
    // A unit test of the source checks that these are its statements.
    let from = r#"SELECT t."id", t."v" FROM "main"."million" AS t"#;
    let plans = [
        (format!(r#"{from} ORDER BY t."id" LIMIT 101"#), "SCAN t"),
        (
            format!(r#"{from} WHERE t."id" > ? ORDER BY t."id" LIMIT 101"#),
            "SEARCH t USING INTEGER PRIMARY KEY (rowid>?)",
        ),
        (
            format!(r#"{from} WHERE t."id" = ? ORDER BY t."id" LIMIT 2"#),
            "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)",
        ),
    ];
    for (statement, expected) in plans {
        let sql = format!("EXPLAIN QUERY PLAN {statement}");
        let explained = sqlx::query(&sql).fetch_all(&mut connection).await.unwrap();
        let plan: Vec<String> = explained.iter().map(|row| row.get("detail")).collect();
        // A plan of one step does not sort: a scan in key order stops at the limit.
        assert_eq!(plan, [expected], "{statement}");
    }
}

#[tokio::test]
async fn needs_postgres() {
    let database = fill(Engine::Postgres).await;
    let name = database.url.rsplit('/').next().unwrap().to_owned();
    for setting in ["log_min_duration = 0", "log_analyze = on", "log_timing = off", "log_format = json"] {
        database
            .execute(&format!("LOAD 'auto_explain'; ALTER DATABASE {name} SET auto_explain.{setting}"))
            .await;
    }
    database.execute(&format!("ALTER DATABASE {name} SET session_preload_libraries = auto_explain")).await;
    database.execute("ANALYZE million").await;
    read(&database).await;
    let log = server::postgres().log();
    let mut plans = Vec::new();
    for entry in log.split("plan:\n").skip(1) {
        let plan: String = entry.lines().take_while(|line| line.starts_with('\t')).collect();
        let Ok(plan) = serde_json::from_str::<Value>(&plan) else { continue };
        if plan["Query Text"].as_str().is_some_and(|text| text.contains(r#""million" AS t"#)) {
            plans.push(plan);
        }
    }
    assert!(plans.len() >= READS.len() + PAGES, "{}", plans.len());
    for (plan, read) in plans.iter().zip(READS) {
        // The outer plan nodes compute and limit the size of each row.
        let mut scan = &plan["Plan"];
        while scan["Plans"].is_array() {
            scan = &scan["Plans"][0];
        }
        assert_eq!(scan["Node Type"], "Index Scan", "{plan:#}");
        let rows = scan["Actual Rows"].as_f64().unwrap();
        println!("{read}: an index scan of {rows} rows");
        assert!(rows <= 101.0, "{plan:#}");
    }
}

#[tokio::test]
async fn needs_mariadb() {
    let database = fill(Engine::Mysql).await;
    database
        .execute(
            "SET GLOBAL log_output = 'TABLE'; SET GLOBAL long_query_time = 0; SET GLOBAL slow_query_log = 1",
        )
        .await;
    read(&database).await;
    let mut connection = sqlx::MySqlConnection::connect(&database.url).await.unwrap();
    let sql = "SELECT CAST(rows_examined AS SIGNED) FROM mysql.slow_log
               WHERE CAST(sql_text AS CHAR) LIKE 'SELECT %`million` AS t%LIMIT%' ORDER BY start_time";
    let examined: Vec<i64> = sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap();
    assert!(examined.len() >= READS.len() + PAGES, "{}", examined.len());
    for (rows, read) in examined.iter().zip(READS) {
        println!("{read}: {rows} rows examined");
        assert!(*rows <= 101, "{rows}");
    }
}
