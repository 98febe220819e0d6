//! Reads, lists and watches while the database server is stopped and restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libris_core::{Context, Error, Source as _};

use crate::database::{Database, Engine, test_on};
use crate::server::Server;
use crate::watch::Subscriber;

const READS: usize = 1000;

test_on!(multi_thread a_thousand_reads_outlast_a_restart, needs_postgres);

async fn a_thousand_reads_outlast_a_restart(engine: Engine) {
    let server = tokio::task::spawn_blocking(Server::postgres).await.unwrap();
    let database = Database::on(engine, &server).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, v text); INSERT INTO t SELECT n, 'old' FROM generate_series(1, 100) n").await;
    let shop = Arc::new(database.source("poll = \"200ms\"\ntimeout = \"3s\""));
    let row = shop.uri("t/rows/7");
    let mut subscriber = Subscriber::to(&shop, std::slice::from_ref(&row)).await;
    subscriber.settle().await;
    let done = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let (shop, done) = (Arc::clone(&shop), Arc::clone(&done));
            tokio::spawn(async move {
                let (mut failed, mut slowest) = (0, Duration::ZERO);
                while done.fetch_add(1, Ordering::SeqCst) < READS {
                    let begun = Instant::now();
                    match shop.text(&shop.uri(&format!("t/rows/{}", reader + 7))).await {
                        Ok(text) => assert!(text.contains("old") || text.contains("new"), "{text}"),
                        Err(Error::Unavailable(why)) => {
                            assert!(why.starts_with("the database `shop` cannot be reached now: "), "{why}");
                            failed += 1;
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                    slowest = slowest.max(begun.elapsed());
                }
                (failed, slowest)
            })
        })
        .collect();
    while done.load(Ordering::SeqCst) < READS / 4 {
        tokio::task::yield_now().await;
    }
    let stopped = tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    // A list during the outage is an error, not an empty page.
    let list = shop.sql.list(None, 10, &Context::default()).await.unwrap_err();
    let expected =
        "the database `shop` cannot be reached now: nothing listens at its address; try again later";
    assert_eq!(list.to_string(), expected);
    let server = tokio::task::spawn_blocking(|| stopped.start()).await.unwrap();
    database.execute("UPDATE t SET v = 'new' WHERE id = 7").await;
    subscriber.hears(&[row]).await;
    assert_eq!(shop.read("t/rows/7").await, r#"{"id":7,"v":"new"}"#);
    let (mut failed, mut slowest) = (0, Duration::ZERO);
    for reader in readers {
        let (one, time) = reader.await.unwrap();
        failed += one;
        slowest = slowest.max(time);
    }
    println!("{failed} of {READS} reads failed, the slowest took {slowest:?}");
    assert!(failed > 0, "the outage was noticed");
    assert!(slowest < Duration::from_secs(5), "no read hung: {slowest:?}");
    assert!(shop.sql.list(None, 10, &Context::default()).await.is_ok());
    drop(server);
}

test_on!(a_database_may_be_away_at_first, needs_postgres);

async fn a_database_may_be_away_at_first(engine: Engine) {
    let server = tokio::task::spawn_blocking(Server::postgres).await.unwrap();
    let database = Database::on(engine, &server).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)").await;
    let stopped = tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    let shop = database.source("poll = \"200ms\"");
    assert!(!shop.sql.templates(&Context::default()).await.unwrap().templates.is_empty());
    assert!(matches!(shop.error("t/schema").await, Error::Unavailable(_)));
    let row = shop.uri("t/rows/1");
    let mut subscriber = Subscriber::to(&shop, std::slice::from_ref(&row)).await;
    let server = tokio::task::spawn_blocking(|| stopped.start()).await.unwrap();
    subscriber.hears(&[row]).await;
    assert!(shop.read("t/schema").await.contains("Primary key"));
    drop(server);
}

test_on!(a_password_comes_from_the_environment, needs_mariadb);

async fn a_password_comes_from_the_environment(engine: Engine) {
    let database = Database::new(engine).await;
    // Cargo sets this variable for every test.
    let (variable, password) = ("CARGO_PKG_NAME", std::env::var("CARGO_PKG_NAME").unwrap());
    let name = database.url.rsplit('/').next().unwrap();
    let user =
        format!("CREATE USER {name}@'%' IDENTIFIED BY '{password}'; GRANT SELECT ON {name}.* TO {name}@'%'");
    database.execute(&format!("CREATE TABLE t (id int PRIMARY KEY); {user}")).await;
    let url = database.url.replace("root@", &format!("{name}@"));
    let database = Database { url, ..database };
    assert!(matches!(database.source("").error("t/schema").await, Error::Unavailable(_)));
    let shop = database.source(&format!("password_env = \"{variable}\""));
    assert!(shop.read("t/schema").await.contains("Primary key: id"));
}
