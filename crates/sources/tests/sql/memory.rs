//! Peak memory of reading large values and many rows, measured in a child process.

use std::process::Command;
use std::time::{Duration, Instant};

use libris_core::{Error, Uri};

use crate::database::{Database, Engine, test_on};

/// The size of the largest value, in bytes.
const HUGE: u32 = 48_000_000;

/// How much the peak memory may grow while values above the limit are read, in KiB.
const GROWTH: u64 = 24 * 1024;

/// The environment variable with the URL of the database for the child process.
const URL: &str = "LIBRIS_TEST_DATABASE";

/// The peak resident memory of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn queries(engine: Engine) -> String {
    let computed = match engine {
        Engine::Sqlite => format!("SELECT zeroblob({HUGE}) AS v"),
        Engine::Postgres | Engine::Mysql => format!("SELECT repeat('x', {HUGE}) AS v"),
    };
    let wide: Vec<_> = (0..60).map(|at| format!("v AS v{at}")).collect();
    let queries = [
        ("huge", "SELECT v FROM t WHERE id = 0".to_owned()),
        ("sorted", "SELECT v, id FROM t WHERE id = 0 ORDER BY id".to_owned()),
        ("computed", computed),
        ("many", "SELECT v FROM t WHERE id > 0 ORDER BY id".to_owned()),
        ("wide", format!("SELECT {} FROM t WHERE id = 1", wide.join(", "))),
    ];
    queries.map(|(name, sql)| format!("[[query]]\nuri = \"db://{name}\"\nsql = {sql:?}\n")).concat()
}

#[cfg(target_os = "linux")]
test_on!(what_is_too_large_is_not_read, sqlite, needs_postgres, needs_mariadb);

#[cfg(target_os = "linux")]
async fn what_is_too_large_is_not_read(engine: Engine) {
    let database = Database::new(engine).await;
    let repeated = |count: u32| match engine {
        Engine::Sqlite => format!("zeroblob({count})"),
        Engine::Postgres | Engine::Mysql => format!("repeat('x', {count})"),
    };
    if engine == Engine::Mysql {
        database.execute("SET GLOBAL max_allowed_packet = 268435456").await;
    }
    let kind = if engine == Engine::Mysql { "longtext" } else { "text" };
    database.execute(&format!("CREATE TABLE t (id integer PRIMARY KEY, v {kind})")).await;
    database.execute(&format!("INSERT INTO t VALUES (0, {})", repeated(HUGE))).await;
    let many: Vec<_> = (1..=100).map(|id| format!("({id}, {})", repeated(700_000))).collect();
    database.execute(&format!("INSERT INTO t VALUES {}", many.join(", "))).await;
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "memory::reader"])
        .env(URL, &database.url)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{engine:?}: {said}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{engine:?}: {said}{errors}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "`what_is_too_large_is_not_read` runs it in a process of its own"]
async fn reader() {
    let url = std::env::var(URL).unwrap();
    let engine = match url.split(':').next() {
        Some("sqlite") => Engine::Sqlite,
        Some("postgres") => Engine::Postgres,
        _ => Engine::Mysql,
    };
    let database = Database { engine, url, folder: tempfile::TempDir::new().unwrap() };
    let shop = database.source(&format!("max_bytes = 1000000\ntimeout = \"20s\"\n{}", queries(engine)));
    shop.read("t/schema").await;
    let before = peak();
    let queries = ["huge", "sorted", "computed", "many", "wide"];
    let queries = queries.map(|name| Uri::parse(&format!("db://{name}")).unwrap());
    for uri in queries.into_iter().chain([shop.uri("t/rows/0"), shop.uri("t/rows")]) {
        let begun = Instant::now();
        let error = shop.text(&uri).await.unwrap_err();
        println!("{uri}: {} KiB, {:?}", peak() - before, begun.elapsed());
        assert!(matches!(error, Error::TooLarge { size, .. } if size > 1_000_000), "{uri}: {error:?}");
        assert!(begun.elapsed() < Duration::from_secs(15), "{uri}: {:?}", begun.elapsed());
    }
    let grown = peak() - before;
    assert!(grown < GROWTH, "reading what is too large took {grown} KiB");
    // A page just below the limit is still served.
    assert!(shop.read("t/rows?after=0&limit=1").await.len() > 700_000);
}
