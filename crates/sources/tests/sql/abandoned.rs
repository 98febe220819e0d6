//! Reads dropped before they complete: their queries are cancelled, and the connection limit holds.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use libris_core::Uri;
use sqlx::Connection as _;

use crate::database::{Database, Engine, Shop, test_on};

/// How long callers wait before they drop the read.
const PATIENCE: Duration = Duration::from_millis(30);

/// How long the cancellation of a query may take on a loaded machine.
const END: Duration = Duration::from_secs(8);

/// Connections that the source opens in addition to `connections`, to cancel queries.
const CANCELLING: i64 = 1;

/// A connection that counts the connections of the source.
enum Observer {
    Postgres(sqlx::PgConnection),
    Mysql(sqlx::MySqlConnection),
}

impl Observer {
    async fn of(database: &Database) -> Self {
        match database.engine {
            Engine::Postgres => Self::Postgres(sqlx::PgConnection::connect(&database.url).await.unwrap()),
            _ => Self::Mysql(sqlx::MySqlConnection::connect(&database.url).await.unwrap()),
        }
    }

    /// The number of other connections to the database, and how many of them run a query.
    async fn count(&mut self) -> (i64, i64) {
        match self {
            Self::Postgres(connection) => sqlx::query_as(
                "SELECT count(*), count(*) FILTER (WHERE state = 'active') FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .fetch_one(connection)
            .await
            .unwrap(),
            Self::Mysql(connection) => sqlx::query_as(
                "SELECT COUNT(*), CAST(COALESCE(SUM(command <> 'Sleep'), 0) AS SIGNED)
                 FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
            )
            .fetch_one(connection)
            .await
            .unwrap(),
        }
    }
}

async fn ask_and_leave(shop: &Shop, uri: &Uri, callers: usize) {
    let callers = (0..callers).map(|_| tokio::time::timeout(PATIENCE, shop.text(uri)));
    for answer in join_all(callers).await {
        assert!(answer.is_err(), "the query is slow: {answer:?}");
    }
}

test_on!(abandoned_queries_are_cancelled_on_the_server, needs_postgres, needs_mariadb);

async fn abandoned_queries_are_cancelled_on_the_server(engine: Engine) {
    let sql = match engine {
        Engine::Postgres => "SELECT pg_sleep(25)::text",
        _ => "SELECT SLEEP(25) FROM t",
    };
    let database = Database::new(engine).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let query = format!("[[query]]\nuri = \"db://t\"\nsql = {sql:?}");
    let shop = database.source(&format!("connections = 2\ntimeout = \"30s\"\n{query}"));
    let uri = Uri::parse("db://t").unwrap();
    let mut observer = Observer::of(&database).await;
    let mut most = 0;
    for _ in 0..8 {
        ask_and_leave(&shop, &uri, 4).await;
        most = most.max(observer.count().await.0);
    }
    let begun = Instant::now();
    assert!(shop.read("t/rows").await.contains("\"id\":1"), "{engine:?}");
    assert!(begun.elapsed() < END, "{engine:?}: the next read took {:?}", begun.elapsed());
    loop {
        let (open, active) = observer.count().await;
        most = most.max(open);
        if active == 0 {
            break;
        }
        assert!(begun.elapsed() < END, "{engine:?}: {active} of {open} still run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("{engine:?}: {most} connections at most, all ended after {:?}", begun.elapsed());
    assert!(most <= 2 + CANCELLING, "{engine:?}: {most} connections, of which 2 are allowed");
}

test_on!(a_query_that_cannot_be_cancelled_ends_by_its_time_limit, needs_postgres);

/// If the server refuses the connection that would cancel a query, the statement timeout ends the query.
async fn a_query_that_cannot_be_cancelled_ends_by_its_time_limit(engine: Engine) {
    let database = Database::new(engine).await;
    let name = database.url.rsplit('/').next().unwrap().to_owned();
    database
        .execute(&format!(
            "CREATE TABLE t (id integer PRIMARY KEY); CREATE ROLE {name} LOGIN CONNECTION LIMIT 1;
             GRANT SELECT ON t TO {name}"
        ))
        .await;
    let mut observer = Observer::of(&database).await;
    let url = database.url.replace("ada@", &format!("{name}@"));
    let database = Database { url, ..database };
    let query = "[[query]]\nuri = \"db://t\"\nsql = \"SELECT pg_sleep(25)::text\"";
    let shop = database.source(&format!("connections = 1\ntimeout = \"2s\"\n{query}"));
    let uri = Uri::parse("db://t").unwrap();
    shop.read("t/rows").await;
    ask_and_leave(&shop, &uri, 3).await;
    let mut most = 0;
    let begun = Instant::now();
    while shop.text(&shop.uri("t/rows")).await.is_err() {
        most = most.max(observer.count().await.0);
        assert!(begun.elapsed() < END, "the connection is not free");
    }
    assert!(most <= 1, "{most} connections, of which 1 is allowed");
    assert_eq!(observer.count().await.1, 0);
}

/// The number of threads of this process, and of its open files in the folder of the database.
fn taken(folder: &Path) -> (usize, usize) {
    let entries = |path: &str| std::fs::read_dir(path).unwrap().flatten();
    let threads = entries("/proc/self/task").count();
    let open = entries("/proc/self/fd").filter_map(|entry| std::fs::read_link(entry.path()).ok());
    (threads, open.filter(|path| path.starts_with(folder)).count())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_locked_file_takes_no_more_than_its_connections() {
    let database = Database::new(Engine::Sqlite).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let shop = database.source("connections = 4\ntimeout = \"20s\"");
    let uri = shop.uri("t/rows");
    let before = taken(database.folder.path());
    let mut lock = sqlx::SqliteConnection::connect(&database.url).await.unwrap();
    sqlx::Executor::execute(&mut lock, "BEGIN EXCLUSIVE").await.unwrap();
    let held = taken(database.folder.path()).1;
    let (mut threads, mut files) = (0, 0);
    for _ in 0..40 {
        ask_and_leave(&shop, &uri, 5).await;
        let now = taken(database.folder.path());
        (threads, files) = (threads.max(now.0), files.max(now.1));
    }
    println!("{threads} threads from {}, {files} files from {held}", before.0);
    // Tests that run concurrently add threads, but fewer than 64.
    assert!(threads <= before.0 + 64, "{threads} threads from {}", before.0);
    assert!(files <= held + 2 * 4, "{files} files from {held}");
    sqlx::Executor::execute(&mut lock, "ROLLBACK").await.unwrap();
    let begun = Instant::now();
    assert!(shop.text(&uri).await.unwrap().contains("\"id\":1"));
    assert!(begun.elapsed() < END, "the next read took {:?}", begun.elapsed());
}

/// A read of a locked file fails after `timeout`, and the error says that the file is locked.
#[tokio::test]
async fn a_locked_file_is_waited_for_no_longer_than_the_time_out() {
    let database = Database::new(Engine::Sqlite).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)").await;
    let shop = database.source("connections = 2\ntimeout = \"400ms\"");
    let mut lock = sqlx::SqliteConnection::connect(&database.url).await.unwrap();
    sqlx::Executor::execute(&mut lock, "BEGIN EXCLUSIVE").await.unwrap();
    let begun = Instant::now();
    let error = shop.error("t/rows").await;
    assert!(error.to_string().contains("it is locked"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    sqlx::Executor::execute(&mut lock, "ROLLBACK").await.unwrap();
    assert_eq!(shop.read("t/rows").await, "{\"rows\":[]}");
}
