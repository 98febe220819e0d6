//! Cached responses: their proofs hold while nothing changes, and end with a change.
//!
//! `LIBRIS_MODEL_OPERATIONS=10000 cargo test --test sql never_stale` runs more operations.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use libris_core::{CompletionRequest, Context, Proof, Source as _, UriTemplate};

use sqlx::{Connection as _, Executor as _};

use crate::database::{Database, Engine, Shop, test_on};

async fn read_proof(shop: &Shop, path: &str) -> Option<Proof> {
    match shop.sql.read(&shop.uri(path), &Context::default()).await {
        Ok(contents) => contents.freshness.proof,
        Err(error) => {
            assert!(error.is_not_found(), "{error}");
            error.proof().cloned()
        }
    }
}

async fn list_proof(shop: &Shop) -> Option<Proof> {
    shop.sql.list(None, 100, &Context::default()).await.unwrap().freshness.proof
}

async fn completion_proof(shop: &Shop, template: &str, variable: &str) -> Option<Proof> {
    let template = UriTemplate::parse(&format!("{}{template}", shop.sql.root())).unwrap();
    let known = BTreeMap::from([("table".to_owned(), "t".to_owned())]);
    let request = CompletionRequest { template: &template, variable, typed: "", known: &known, limit: 100 };
    shop.sql.complete(request, &Context::default()).await.unwrap().proof
}

fn holds(proof: &Option<Proof>) -> bool {
    proof.as_ref().is_some_and(Proof::holds)
}

const READ: [&str; 8] =
    ["schema", "t/schema", "t/", "t/rows", "t/rows/1", "t/rows/99", "absent/schema", "absent/rows"];

#[tokio::test]
async fn responses_of_sqlite_are_cached_until_a_commit() {
    for mode in ["delete", "wal"] {
        let database = Database::new(Engine::Sqlite).await;
        database.execute(&format!("PRAGMA journal_mode = {mode}")).await;
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'a')").await;
        let shop = database.source("");
        let responses = async || {
            let mut proofs = Vec::new();
            for path in READ {
                proofs.push((path, read_proof(&shop, path).await));
            }
            proofs.push(("keys", completion_proof(&shop, "{table}/rows/{key}{?format}", "key").await));
            proofs
        };
        let (listed, read) = (list_proof(&shop).await, responses().await);
        let tables = completion_proof(&shop, "{table}/schema{?format}", "table").await;
        assert!(holds(&listed) && holds(&tables), "{mode}");
        for (what, proof) in &read {
            assert!(holds(proof), "{mode}: {what}");
        }
        // An uncommitted change is not visible, and one that is rolled back never will be.
        database.execute("BEGIN; INSERT INTO t VALUES (2, 'b'); ROLLBACK").await;
        assert!(holds(&read[0].1), "{mode}");
        database.execute("UPDATE t SET v = 'b'").await;
        for (what, proof) in &read {
            assert!(!holds(proof), "{mode}: {what} is outdated");
        }
        assert!(holds(&listed) && holds(&tables), "{mode}: neither lists nor names of tables depend on rows");
        let read = responses().await;
        database.execute("CREATE TABLE absent (id INTEGER PRIMARY KEY)").await;
        assert!(!holds(&listed) && !holds(&tables), "{mode}");
        for (what, proof) in &read {
            assert!(!holds(proof), "{mode}: {what} is outdated");
        }
    }
}

#[tokio::test]
async fn completions_know_new_tables_and_views_at_once() {
    let database = Database::new(Engine::Sqlite).await;
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)").await;
    let shop = database.source("");
    let names = async |template: &str| {
        let template = UriTemplate::parse(&format!("{}{template}", shop.sql.root())).unwrap();
        let known = BTreeMap::new();
        let request = CompletionRequest {
            template: &template,
            variable: "table",
            typed: "",
            known: &known,
            limit: 100,
        };
        shop.sql.complete(request, &Context::default()).await.unwrap().values
    };
    assert_eq!(names("{table}/schema{?format}").await, ["t"]);
    database.execute("CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE VIEW s AS SELECT 1").await;
    assert_eq!(names("{table}/schema{?format}").await, ["a", "s", "t"]);
    assert_eq!(names("{table}/rows/{key}{?format}").await, ["a", "t"], "views have no keys");
    database.execute("DROP TABLE t").await;
    assert_eq!(names("{table}/schema{?format}").await, ["a", "s"]);
}

#[tokio::test]
async fn what_differs_without_a_change_is_not_cached() {
    let database = Database::new(Engine::Sqlite).await;
    database
        .execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1);
             CREATE VIEW dice AS SELECT random() AS number FROM t",
        )
        .await;
    let shop = database.source("query = [{ uri = \"db://now\", sql = \"SELECT datetime('now') AS now\" }]");
    assert_eq!(read_proof(&shop, "dice/rows").await.map(|_| ()), None);
    assert_eq!(read_proof(&shop, "dice/").await.map(|_| ()), None);
    assert!(holds(&read_proof(&shop, "dice/schema").await));
    let query = libris_core::Uri::parse("db://now").unwrap();
    let contents = shop.sql.read(&query, &Context::default()).await.unwrap();
    assert!(contents.freshness.proof.is_none());
}

#[tokio::test]
async fn rows_show_a_new_column_at_once() {
    let database = Database::new(Engine::Sqlite).await;
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let shop = database.source("");
    assert_eq!(shop.read("t/rows/1").await, r#"{"id":1}"#);
    database.execute("ALTER TABLE t ADD COLUMN v DEFAULT 'new'").await;
    assert_eq!(shop.read("t/rows/1").await, r#"{"id":1,"v":"new"}"#);
    database
        .execute("DROP TABLE t; CREATE TABLE t (id INTEGER PRIMARY KEY, w); INSERT INTO t VALUES (1, 2)")
        .await;
    assert_eq!(shop.read("t/rows/1").await, r#"{"id":1,"w":2}"#);
}

#[tokio::test]
async fn a_replaced_file_outdates_everything() {
    let database = Database::new(Engine::Sqlite).await;
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let shop = database.source("");
    let (listed, row) = (list_proof(&shop).await, read_proof(&shop, "t/rows/1").await);
    assert!(holds(&listed) && holds(&row));
    let path = database.folder.path().join("shop.db");
    let copy = database.folder.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    assert!(!holds(&listed) && !holds(&row), "another file, though with the same versions");
    assert!(holds(&list_proof(&shop).await) && holds(&read_proof(&shop, "t/rows/1").await));
}

test_on!(a_server_is_asked_each_time, needs_postgres, needs_mariadb);

async fn a_server_is_asked_each_time(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, v integer); INSERT INTO t VALUES (1, 1)").await;
    let shop = database.source("");
    assert!(list_proof(&shop).await.is_none());
    for path in READ {
        assert!(read_proof(&shop, path).await.is_none(), "{path}");
    }
}

test_on!(a_server_is_cached_for_a_time, needs_postgres, needs_mariadb);

async fn a_server_is_cached_for_a_time(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, v integer); INSERT INTO t VALUES (1, 1)").await;
    let shop = database.source("cache = \"300ms\"");
    let begun = Instant::now();
    let proof = read_proof(&shop, "t/rows/1").await;
    assert!(proof.is_some());
    while holds(&proof) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the time is over");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for path in READ {
        assert!(read_proof(&shop, path).await.is_some(), "{path}");
    }
    assert!(list_proof(&shop).await.is_some());
}

test_on!(a_notification_outdates_what_is_cached, needs_postgres);

async fn a_notification_outdates_what_is_cached(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, v integer); INSERT INTO t VALUES (1, 1)").await;
    let shop = database.source("cache = \"1h\"");
    let triggers = shop.sql.triggers().await.unwrap().unwrap();
    database.execute(&triggers).await;
    // The listener has begun when a response outlives it.
    let begun = Instant::now();
    let mut proof = read_proof(&shop, "t/rows/1").await;
    for number in 2.. {
        database.execute(&format!("UPDATE t SET v = {number}")).await;
        let waiting = Instant::now();
        while holds(&proof) && waiting.elapsed() < Duration::from_secs(2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if !holds(&proof) && number > 3 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no notification arrives");
        proof = read_proof(&shop, "t/rows/1").await;
    }
}

#[tokio::test]
async fn sqlite_needs_no_time() {
    let database = Database::new(Engine::Sqlite).await;
    let error = database.try_source("cache = \"2s\"").err().unwrap();
    assert_eq!(
        error.to_string(),
        "`cache` is for PostgreSQL and MySQL; hint: remove it, because responses from SQLite are cached until its file \
         changes"
    );
}

const TABLES: [&str; 3] = ["alpha", "beta", "gamma"];

/// What a read or a list returns, and its proof.
async fn response(shop: &Shop, path: &str) -> (String, Option<Proof>) {
    if path == "list" {
        let page = shop.sql.list(None, 100, &Context::default()).await.unwrap();
        return (format!("{:?}", page.resources), page.freshness.proof);
    }
    match shop.sql.read(&shop.uri(path), &Context::default()).await {
        Ok(contents) => (format!("{:?}", contents.parts), contents.freshness.proof),
        Err(error) => (error.to_string(), error.proof().cloned()),
    }
}

/// A statement that changes something, or nothing.
fn statement(number: usize, random: &mut impl FnMut(usize) -> usize) -> String {
    let (table, key) = (TABLES[random(TABLES.len())], random(4));
    match random(9) {
        0 => format!("DROP TABLE IF EXISTS {table}"),
        1 | 2 => format!("CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY, v)"),
        3 => format!("DELETE FROM {table} WHERE id = {key}"),
        4 => format!("BEGIN; DELETE FROM {table}; ROLLBACK"),
        5 => format!("ALTER TABLE {table} ADD COLUMN c{number}"),
        _ => format!("INSERT OR REPLACE INTO {table} (id, v) VALUES ({key}, {number})"),
    }
}

/// There is one pause in this many operations, and at least one.
const PAUSE_INTERVAL: usize = 200;

/// The time without a change after which the `stat` result of a database is trusted. Without pauses, the test would
/// hardly ever check a database by `stat` only.
const SETTLE: Duration = Duration::from_millis(2200);

#[tokio::test]
async fn cached_responses_are_never_stale() {
    let operations = std::env::var("LIBRIS_MODEL_OPERATIONS").map_or(200, |number| number.parse().unwrap());
    let mut paths = vec!["list".to_owned(), "schema".to_owned()];
    for table in TABLES {
        paths.extend(["schema", "rows", "rows/0", "rows/1", "rows/2"].map(|rest| format!("{table}/{rest}")));
    }
    for (seed, mode) in [(1_u64, "delete"), (2, "wal")] {
        let database = Database::new(Engine::Sqlite).await;
        let mut writer = sqlx::SqliteConnection::connect(&database.url).await.unwrap();
        writer.execute(&*format!("PRAGMA journal_mode = {mode}")).await.unwrap();
        let shop = database.source("");
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |most: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) as usize % most
        };
        let mut cached = std::collections::HashMap::new();
        let (mut reused, mut outdated) = (0, 0);
        for number in 0..operations {
            if number % PAUSE_INTERVAL == operations / 2 % PAUSE_INTERVAL {
                tokio::time::sleep(SETTLE).await;
                for path in &paths {
                    cached.insert(path, response(&shop, path).await);
                }
            }
            // A statement about a table that does not exist changes nothing, and may leave a transaction open.
            if writer.execute(&*statement(number, &mut random)).await.is_err() {
                let _ = writer.execute("ROLLBACK").await;
            }
            for _ in 0..6 {
                let path = &paths[random(paths.len())];
                let (now, proof) = response(&shop, path).await;
                if let Some((before, proof)) = cached.insert(path, (now.clone(), proof)) {
                    let is_valid = holds(&proof);
                    assert!(
                        !is_valid || before == now,
                        "operation {number}: {mode}: {path}: {before} is now {now}"
                    );
                    (reused, outdated) = (reused + usize::from(is_valid), outdated + usize::from(!is_valid));
                }
            }
        }
        assert!(reused > 10 && outdated > 10, "{mode}: {reused} reused, {outdated} outdated");
    }
}
