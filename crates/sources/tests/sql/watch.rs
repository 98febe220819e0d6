//! Change notifications, by polling and by triggers.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use libris_core::{Change, Client, Source as _, Uri};

use crate::database::{Database, Engine, Shop, test_on};

const TABLES: &str = "
    CREATE TABLE t (id integer PRIMARY KEY, v varchar(20));
    INSERT INTO t VALUES (1, 'a'), (2, 'b')";

const QUERY: &str = "[[query]]\nuri = \"db://count\"\nsql = \"SELECT count(*) AS c FROM t\"\none = true\n";

/// Watches the source and follows URIs, as the server does for its subscribers.
pub(crate) struct Subscriber {
    pub(crate) changes: BoxStream<'static, Change>,
    uris: Vec<Uri>,
}

impl Subscriber {
    pub(crate) async fn to(shop: &Shop, uris: &[Uri]) -> Self {
        let changes = shop.sql.watch().await.unwrap().unwrap();
        let uris: Vec<_> = uris.iter().map(|uri| shop.sql.subject(uri)).collect();
        uris.iter().for_each(|uri| shop.sql.follow(uri, Client::default()));
        Self { changes, uris }
    }

    /// Waits until each of these URIs is reported. Returns the other followed URIs that were reported meanwhile.
    pub(crate) async fn hears(&mut self, expected: &[Uri]) -> Vec<Uri> {
        let mut missing: Vec<_> = expected.to_vec();
        let mut others = Vec::new();
        let heard = async {
            while !missing.is_empty() {
                match self.changes.next().await.unwrap() {
                    Change::Updated(uri) if missing.contains(&uri) => missing.retain(|other| *other != uri),
                    Change::Updated(uri) if self.uris.contains(&uri) => others.push(uri),
                    Change::Lost => missing.clear(),
                    _ => {}
                }
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), heard).await;
        assert!(in_time.is_ok(), "not told of {missing:?}, only of {others:?}");
        others
    }

    /// Drains the reported changes until none is reported for 600 ms.
    pub(crate) async fn settle(&mut self) {
        while tokio::time::timeout(Duration::from_millis(600), self.changes.next()).await.is_ok() {}
    }
}

test_on!(what_is_subscribed_to_is_told, sqlite, needs_postgres, needs_mariadb);

async fn what_is_subscribed_to_is_told(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(TABLES).await;
    let shop = database.source(&format!("poll = \"100ms\"\n{QUERY}"));
    let (one, two) = (shop.uri("t/rows/1"), shop.uri("t/rows/2"));
    let (page, count) = (shop.uri("t/rows?limit=5"), Uri::parse("db://count").unwrap());
    let all = [one.clone(), two.clone(), page.clone(), count.clone()];
    let mut subscriber = Subscriber::to(&shop, &all).await;
    subscriber.settle().await;
    database.execute("UPDATE t SET v = 'changed' WHERE id = 1").await;
    let others = subscriber.hears(&[one.clone(), page.clone()]).await;
    assert_eq!(others, [], "{engine:?}: only what changed is told");
    database.execute("INSERT INTO t VALUES (3, 'c')").await;
    subscriber.hears(&[page.clone(), count.clone()]).await;
    database.execute("DELETE FROM t WHERE id = 2").await;
    subscriber.hears(&[two, page, count]).await;
}

#[tokio::test]
async fn a_row_is_the_same_in_any_spelling() {
    let database = Database::new(Engine::Sqlite).await;
    database.execute("CREATE TABLE p (a integer, b integer, PRIMARY KEY (a, b))").await;
    let shop = database.source("");
    let plain = shop.sql.subject(&shop.uri("p/rows/1,2"));
    assert_eq!(shop.sql.subject(&shop.uri("p/rows/1%2C2")), plain);
    assert_eq!(shop.sql.subject(&shop.uri("p/rows/1,2?format=csv")), plain);
    assert_eq!(shop.sql.subject(&shop.uri("p/schema?format=json")), shop.uri("p/schema"));
}

test_on!(triggers_tell_at_once_and_by_row, needs_postgres);

async fn triggers_tell_at_once_and_by_row(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(TABLES).await;
    database.execute("CREATE TABLE \"o'dd\" (a text, b int, PRIMARY KEY (a, b))").await;
    // Polling is too rare to report any of these changes: only triggers do.
    let shop = database.source(&format!("poll = \"1h\"\nchannel = \"shop changes\"\n{QUERY}"));
    let script = shop.sql.triggers().await.unwrap().unwrap();
    database.execute(&script).await;
    // The script is idempotent.
    database.execute(&script).await;
    let (one, page) = (shop.uri("t/rows/1"), shop.uri("t/rows"));
    let count = Uri::parse("db://count").unwrap();
    let odd = shop.uri("o%27dd/rows/x%20y,7");
    let all = [one.clone(), page.clone(), count.clone()];
    let mut subscriber = Subscriber::to(&shop, &all).await;
    subscriber.settle().await;
    database.execute("UPDATE t SET v = 'changed' WHERE id = 1").await;
    subscriber.hears(&[one.clone(), page.clone()]).await;
    database.execute("INSERT INTO t VALUES (9, 'new')").await;
    // Triggers report rows that nobody follows, too.
    subscriber.hears(&[shop.uri("t/rows/9"), page.clone(), count.clone()]).await;
    database.execute("INSERT INTO \"o'dd\" VALUES ('x y', 7)").await;
    subscriber.hears(&[odd]).await;
    database.execute("TRUNCATE t").await;
    subscriber.hears(&[one, page.clone(), count.clone()]).await;
    database.execute("INSERT INTO t VALUES (1, 'again'); NOTIFY \"shop changes\", 'whatever'").await;
    subscriber.hears(&[page, count]).await;
}

#[tokio::test]
async fn a_file_that_is_replaced_is_another_database() {
    let database = Database::new(Engine::Sqlite).await;
    database.execute(TABLES).await;
    let other = Database::new(Engine::Sqlite).await;
    other.execute("CREATE TABLE t (id integer PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'other')").await;
    let shop = database.source("");
    let one = shop.uri("t/rows/1");
    assert_eq!(shop.read("t/rows/1").await, r#"{"id":1,"v":"a"}"#);
    let mut subscriber = Subscriber::to(&shop, std::slice::from_ref(&one)).await;
    subscriber.settle().await;
    let path = database.folder.path().join("shop.db");
    std::fs::rename(other.folder.path().join("shop.db"), &path).unwrap();
    subscriber.hears(&[one]).await;
    assert_eq!(shop.read("t/rows/1").await, r#"{"id":1,"v":"other"}"#);
    std::fs::remove_file(&path).unwrap();
    let error = shop.error("t/rows/1").await;
    assert_eq!(
        error.to_string(),
        "the database `shop` cannot be reached now: its file is not there; try again later"
    );
}

/// A new file may have the same schema version as the old one, because each file counts its own schema changes.
#[tokio::test]
async fn the_tables_of_a_replaced_file_are_reported() {
    let database = Database::new(Engine::Sqlite).await;
    database.execute(TABLES).await;
    let other = Database::new(Engine::Sqlite).await;
    other.execute("CREATE TABLE u (id integer PRIMARY KEY, v text)").await;
    let shop = database.source("poll = \"50ms\"");
    let one = shop.uri("t/rows/1");
    let mut subscriber = Subscriber::to(&shop, std::slice::from_ref(&one)).await;
    subscriber.settle().await;
    database.execute("UPDATE t SET v = 'changed' WHERE id = 1").await;
    subscriber.hears(&[one]).await;
    subscriber.settle().await;
    std::fs::rename(other.folder.path().join("shop.db"), database.folder.path().join("shop.db")).unwrap();
    let mut missing = vec![Change::Added(shop.uri("u/")), Change::Removed(shop.uri("t/"))];
    let heard = async {
        while !missing.is_empty() {
            let change = subscriber.changes.next().await.unwrap();
            missing.retain(|other| *other != change);
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), heard).await;
    assert!(in_time.is_ok(), "not reported: {missing:?}");
}

#[tokio::test]
async fn what_one_client_follows_does_not_hold_up_another() {
    const SLOW: usize = 16;
    let database = Database::new(Engine::Sqlite).await;
    database.execute(TABLES).await;
    let slow = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000000) \
                SELECT count(*) + (SELECT count(*) FROM t) + length(:n) FROM c";
    let shop = database
        .source(&format!("poll = \"10ms\"\n{QUERY}[[query]]\nuri = \"aa://slow/{{n}}\"\nsql = \"{slow}\"\n"));
    let mut changes = shop.sql.watch().await.unwrap().unwrap();
    let quick = Uri::parse("db://count").unwrap();
    shop.sql.follow(&quick, Client::at([10, 0, 0, 2].into()));
    for number in 0..SLOW {
        shop.sql
            .follow(&Uri::parse(&format!("aa://slow/{number}")).unwrap(), Client::at([10, 0, 0, 1].into()));
    }
    database.execute("INSERT INTO t VALUES (3, 'c')").await;
    let mut others = HashSet::new();
    loop {
        match changes.next().await.unwrap() {
            Change::Updated(uri) if uri == quick => break,
            Change::Updated(uri) if uri.scheme() == "aa" => drop(others.insert(uri)),
            _ => {}
        }
    }
    assert!(others.len() < SLOW * 2 / 3, "it was told after {} others", others.len());
}

test_on!(what_other_replicas_follow_is_told_once_its_state_is_known, sqlite, needs_postgres, needs_mariadb);

async fn what_other_replicas_follow_is_told_once_its_state_is_known(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(TABLES).await;
    let shop = database.source("poll = \"100ms\"\n");
    let one = shop.uri("t/rows/1");
    let mut subscriber = Subscriber::to(&shop, &[]).await;
    subscriber.settle().await;
    // Nothing has changed, but a client of another replica may have read something else before.
    shop.sql.follow_for_replicas(&shop.sql.subject(&one));
    subscriber.hears(std::slice::from_ref(&one)).await;
    database.execute("UPDATE t SET v = 'changed' WHERE id = 1").await;
    subscriber.hears(&[one]).await;
    assert_eq!(shop.sql.polls_shared_service(), !matches!(engine, Engine::Sqlite));
}
