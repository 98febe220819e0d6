//! The contract suite, on every database.

use std::time::Duration;

use async_trait::async_trait;
use libris_core::contract::{Fixture, check};
use libris_core::{Source, Uri};

use crate::database::{Database, Engine, Shop};

struct Tables {
    database: Database,
    shop: Shop,
}

impl Tables {
    async fn new(engine: Engine) -> Self {
        let database = Database::new(engine).await;
        let text = if engine == Engine::Mysql { "varchar(50)" } else { "text" };
        database
            .execute(&format!(
                "CREATE TABLE customers (id integer PRIMARY KEY, name {text} NOT NULL);
                 INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace'), (12, 'Barbara');
                 CREATE TABLE items (purchase integer, position integer, title {text}, PRIMARY KEY (purchase, position));
                 INSERT INTO items VALUES (1, 1, 'pen'), (1, 2, 'ink'), (2, 1, 'paper');
                 CREATE TABLE words (word {text} NOT NULL, PRIMARY KEY (word));
                 INSERT INTO words VALUES ('a/b'), ('c,d'), ('..'), ('%41'), ('Zoë'), ('\"q\"'), ('');
                 CREATE TABLE nothing_yet (id integer PRIMARY KEY);
                 CREATE VIEW names AS SELECT name FROM customers"
            ))
            .await;
        let concat = if engine == Engine::Mysql { "CONCAT(:typed, '%')" } else { ":typed || '%'" };
        let shop = database.source(&format!(
            "poll = \"100ms\"
             query = [
                 {{ uri = \"db://customers/{{id}}/profile\", sql = \"SELECT * FROM customers WHERE id = :id\",
                   one = true, parameters = {{ id = \"integer\" }},
                   complete = {{ id = \"SELECT id FROM customers ORDER BY id\" }} }},
                 {{ uri = \"db://customers{{?name}}\",
                   sql = \"SELECT * FROM customers WHERE name = :name OR :name IS NULL\",
                   complete = {{ name = \"SELECT name FROM customers WHERE name LIKE {concat}\" }} }},
                 {{ uri = \"db://customers/all\", sql = \"SELECT * FROM customers ORDER BY id\", format = \"csv\" }},
             ]"
        ));
        Self { database, shop }
    }

    fn table(uri: &Uri) -> String {
        uri.path().trim_matches('/').split('/').next().unwrap().to_owned()
    }
}

#[async_trait]
impl Fixture for Tables {
    fn source(&self) -> &dyn Source {
        &self.shop.sql
    }

    fn unknown(&self) -> Uri {
        self.shop.uri("nothing/schema")
    }

    fn invalid(&self) -> Vec<Uri> {
        let paths = [
            "customers/rows/one",
            "customers/rows/1%2C2",
            "customers/rows/%00",
            "customers/rows/99999999999999999999999",
            "customers/rows?limit=0",
            "customers/rows?limit=all",
            "customers/rows?after=x",
            "customers/rows?format=xml",
            "customers/schema?format=csv",
            "customers%22/schema",
            "..%2f..%2fetc%2fpasswd/schema",
            "%00/schema",
            "items/rows/1",
            "items/rows/%221,2",
            "names/rows/1",
            "customers",
            "CUSTOMERS/rows/one",
        ];
        let mut uris: Vec<_> = paths.iter().map(|path| self.shop.uri(path)).collect();
        let queries =
            ["db://customers/x/profile", "db://customers/999/profile", "db://customers/1/profile?format=x"];
        uris.extend(queries.iter().map(|uri| Uri::parse(uri).unwrap()));
        uris
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        self.database.execute(&format!("CREATE TABLE added_{number} (id integer PRIMARY KEY)")).await;
        Some(self.shop.uri(&format!("added_{number}/schema")))
    }

    async fn change(&self, uri: &Uri) -> bool {
        let sql = format!("ALTER TABLE {} ADD COLUMN more integer", Self::table(uri));
        self.database.try_execute(&sql).await.is_ok()
    }

    async fn remove(&self, uri: &Uri) -> bool {
        self.database.try_execute(&format!("DROP TABLE {}", Self::table(uri))).await.is_ok()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

#[tokio::test]
async fn sqlite() {
    check(&Tables::new(Engine::Sqlite).await).await;
}

#[tokio::test]
async fn needs_postgres() {
    check(&Tables::new(Engine::Postgres).await).await;
}

#[tokio::test]
async fn needs_mariadb() {
    check(&Tables::new(Engine::Mysql).await).await;
}
