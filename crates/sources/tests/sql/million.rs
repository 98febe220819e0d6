//! A table of a million rows: every page and every row costs the same.

use serde_json::Value;
use sqlx::{Connection as _, Row as _};

use crate::database::{Database, Engine};

const MILLION: i64 = 1_000_000;

/// The statements that pages and rows are made of, as the log of the server or the source has them.
fn statements(engine: Engine) -> [String; 3] {
    let quote =
        |name: &str| if engine == Engine::Mysql { format!("`{name}`") } else { format!("\"{name}\"") };
    let key = format!("t.{}", quote("id"));
    let from = format!("FROM {} AS t", quote("million"));
    [
        format!("SELECT * {from} ORDER BY {key} LIMIT 101"),
        format!("SELECT * {from} WHERE {key} > 500000 ORDER BY {key} LIMIT 101"),
        format!("SELECT * {from} WHERE {key} = 777777 ORDER BY {key} LIMIT 2"),
    ]
}

async fn fill(engine: Engine) -> Database {
    let database = Database::new(engine).await;
    let series = match engine {
        Engine::Postgres => format!("SELECT n, 'row ' || n FROM generate_series(1, {MILLION}) AS n"),
        Engine::Mysql => format!("SELECT seq, CONCAT('row ', seq) FROM seq_1_to_{MILLION}"),
        Engine::Sqlite => format!(
            "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {MILLION}) SELECT n, 'row ' || n FROM s"
        ),
    };
    database
        .execute(&format!(
            "CREATE TABLE million (id integer PRIMARY KEY, v varchar(20)); INSERT INTO million {series}"
        ))
        .await;
    database
}

/// How much memory this process has, in KiB.
fn memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn every_page_and_row_costs_the_same() {
    for engine in crate::database::ENGINES {
        let database = fill(engine).await;
        let shop = database.source("");
        let first: Value = serde_json::from_str(&shop.read("million/rows").await).unwrap();
        assert_eq!(first["rows"][99]["id"], 100);
        assert!(first["next"].as_str().unwrap().ends_with("/million/rows?after=100"), "{}", first["next"]);
        let middle: Value = serde_json::from_str(&shop.read("million/rows?after=500000").await).unwrap();
        assert_eq!((&middle["rows"][0]["id"], &middle["rows"][99]["id"]), (&500_001.into(), &500_100.into()));
        let row: Value = serde_json::from_str(&shop.read("million/rows/777777").await).unwrap();
        assert_eq!(row["v"], "row 777777");
        let before = memory();
        for number in 0..50 {
            shop.read(&format!("million/rows?after={}&limit=1000", number * 20_000)).await;
        }
        let grown = memory() - before;
        assert!(grown < 16 * 1024, "{engine:?}: reading 50,000 rows took {grown} KiB more");
        for (at, statement) in statements(engine).iter().enumerate() {
            let examined = examined(&database, statement).await;
            println!("{engine:?} statement {at} examined {examined} rows");
            assert!(examined <= 101, "{engine:?}: {statement} examined {examined} rows");
        }
    }
}

/// How many rows a statement looks at, by what the database itself says of it.
async fn examined(database: &Database, statement: &str) -> i64 {
    match database.engine {
        Engine::Sqlite => {
            let mut connection = sqlx::SqliteConnection::connect(&database.url).await.unwrap();
            let plan = sqlx::query(&format!("EXPLAIN QUERY PLAN {statement}"))
                .fetch_all(&mut connection)
                .await
                .unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get("detail")).collect();
            // A scan in the order of the key ends with the limit, and nothing is sorted.
            let by_key =
                plan.iter().all(|step| step.contains("USING INTEGER PRIMARY KEY") || step == "SCAN t");
            let scans = !statement.contains("WHERE");
            assert!(by_key && (scans || plan[0].starts_with("SEARCH t")), "{statement}: {plan:?}");
            i64::from(plan.len() > 1) * MILLION
        }
        Engine::Postgres => {
            let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
            let sql = format!("EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {statement}");
            let plan: String = sqlx::query_scalar::<_, String>(&sql)
                .fetch_one(&mut connection)
                .await
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
            let plan: Value = serde_json::from_str(&plan).unwrap();
            let scan = &plan[0]["Plan"]["Plans"][0];
            assert_eq!(scan["Node Type"], "Index Scan", "{plan}");
            scan["Actual Rows"].as_f64().unwrap() as i64
        }
        Engine::Mysql => {
            let mut connection = sqlx::MySqlConnection::connect(&database.url).await.unwrap();
            sqlx::query("FLUSH STATUS").execute(&mut connection).await.unwrap();
            sqlx::query(statement).fetch_all(&mut connection).await.unwrap();
            let sql = "SELECT CAST(SUM(variable_value) AS SIGNED) FROM information_schema.session_status
                       WHERE variable_name IN ('HANDLER_READ_FIRST', 'HANDLER_READ_KEY', 'HANDLER_READ_NEXT', 'HANDLER_READ_RND_NEXT')";
            sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut connection).await.unwrap()
        }
    }
}
