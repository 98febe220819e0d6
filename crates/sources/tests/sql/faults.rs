//! Errors that say what to do: wrong URIs, wrong values, and databases that need another configuration.

use libris_core::{Error, Source as _};

use crate::database::{Database, Engine, test_on};

test_on!(wrong_uris_are_explained, sqlite, needs_postgres, needs_mariadb);

async fn wrong_uris_are_explained(engine: Engine) {
    let database = Database::new(engine).await;
    database
        .execute(
            "CREATE TABLE orders (id integer PRIMARY KEY, name varchar(9));
             CREATE TABLE items (purchase integer, position integer, PRIMARY KEY (purchase, position));
             CREATE VIEW names AS SELECT name FROM orders",
        )
        .await;
    let shop = database.source("");
    let paths = [
        "ordres/rows",
        "ORDERS/schema",
        "x/rows/1",
        "shema",
        "orders",
        "orders/row/7",
        "orders/schemas",
        "orders/x/y",
        "schema?fromat=json",
        "orders/schema?lines=1",
        "orders/rows/1?lmit=5",
        "orders/rows/7",
        "orders/rows/seven",
        "orders/rows?after=seven",
        "orders/rows?limit=0",
        "orders/rows?format=xml",
        "orders/schema?format=csv",
        "items/rows/1",
        "items/rows/1,2",
        "items/rows/1,x",
        "names/rows/1",
    ];
    let mut said = Vec::new();
    for path in paths {
        let uri = shop.uri(path);
        assert!(shop.sql.covers(&uri).is_some(), "{uri}");
        let scheme = uri.scheme().to_owned();
        let error = shop.error(path).await.to_string().replace(&format!("{scheme}://"), "sql://");
        said.push(format!("{path}\n  {error}"));
    }
    insta::allow_duplicates! {
        insta::assert_snapshot!(said.join("\n"), @r"
        ordres/rows
          no resource at `sql://shop/ordres/rows`: there is no table or view `ordres`; did you mean `orders`?
        ORDERS/schema
          no resource at `sql://shop/ORDERS/schema`: there is no table or view `ORDERS`; did you mean `orders`?
        x/rows/1
          no resource at `sql://shop/x/rows/1`: there is no table or view `x`; there are `items`, `names`, `orders`
        shema
          no resource at `sql://shop/shema`: did you mean `sql://shop/schema`?
        orders
          no resource at `sql://shop/orders`: a table has `sql://shop/orders/schema` and `sql://shop/orders/rows`, and `sql://shop/orders/` with both
        orders/row/7
          no resource at `sql://shop/orders/row/7`: a table has `schema`, `rows` and `rows/KEY`, not `row/7`; did you mean `rows`?
        orders/schemas
          no resource at `sql://shop/orders/schemas`: a table has `schema`, `rows` and `rows/KEY`, not `schemas`; did you mean `schema`?
        orders/x/y
          no resource at `sql://shop/orders/x/y`: a table has `schema`, `rows` and `rows/KEY`, not `x/y`
        schema?fromat=json
          no resource at `sql://shop/schema?fromat=json`: there is no option `fromat`: use only `format` here
        orders/schema?lines=1
          no resource at `sql://shop/orders/schema?lines=1`: there is no option `lines`: use only `format` here
        orders/rows/1?lmit=5
          no resource at `sql://shop/orders/rows/1?lmit=5`: there is no option `lmit`: use only `format` here
        orders/rows/7
          no resource at `sql://shop/orders/rows/7`: `orders` has no row with the key `7` (column `id`); read its `rows` to see the keys
        orders/rows/seven
          `key` must be a whole number for the column `id`, not `seven`
        orders/rows?after=seven
          `after` must be a whole number for the column `id`, not `seven`
        orders/rows?limit=0
          `limit` must be a whole number from 1 on, not `0`
        orders/rows?format=xml
          `format` must be one of `json`, `csv`, `markdown`, not `xml`
        orders/schema?format=csv
          `format` must be one of `markdown`, `json`, not `csv`
        items/rows/1
          `key` has 1 value, but the key has 2 columns: write a value for each of `purchase`, `position`, separated by commas
        items/rows/1,2
          no resource at `sql://shop/items/rows/1,2`: `items` has no row with the key `1,2` (columns `purchase`, `position`); read its `rows` to see the keys
        items/rows/1,x
          `key` must be a whole number for the column `position`, not `x`
        names/rows/1
          `names` has no key to find a row by: read its first rows, or configure a query
        ");
    }
    // A hidden table is not suggested.
    let some = database.source("tables = [\"items\"]");
    let error = some.error("ordres/rows").await.to_string();
    assert!(!error.contains("`orders`") && error.ends_with("; there are `items`"), "{error}");
}

test_on!(values_that_only_the_database_checks, needs_postgres);

async fn values_that_only_the_database_checks(engine: Engine) {
    let database = Database::new(engine).await;
    database
        .execute(
            "CREATE TYPE mood AS ENUM ('fine', 'sad');
             CREATE TABLE people (mood mood, tags text[], PRIMARY KEY (mood, tags))",
        )
        .await;
    let shop = database.source("");
    let expected = "the database rejects a value: check its type; `mood` is mood, `tags` is text[]";
    for path in ["people/rows/angry,%7B%7D", "people/rows?after=fine,x", "people/rows?mood=angry"] {
        let error = shop.error(path).await;
        assert!(error.to_string().starts_with(expected), "{path}: {error}");
        assert!(matches!(error, Error::Invalid(_)));
    }
}

/// The error of reading the schema of a database at another URL.
async fn at(database: Database, url: String) -> String {
    let error = Database { url, ..database }.source("").error("schema").await;
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(!format!("{error:?}").contains("s3cret"));
    error.to_string()
}

test_on!(a_rejected_password_is_permanent, needs_postgres, needs_mariadb);

async fn a_rejected_password_is_permanent(engine: Engine) {
    let database = Database::new(engine).await;
    let user = if engine == Engine::Postgres { "ada@" } else { "root@" };
    let url = match engine {
        // The other tests connect without a password.
        Engine::Postgres => {
            let server = crate::server::Server::postgres_with_passwords();
            let url = server.url("postgres").replace(user, "ada:s3cret@");
            let error = at(database, url).await;
            drop(server);
            return assert_eq!(error, REJECTED);
        }
        _ => database.url.replace(user, "nobody:s3cret@"),
    };
    assert_eq!(at(database, url).await, REJECTED);
}

const REJECTED: &str = "the database `shop` cannot be used: it rejects the user or the password; hint: correct the \
                        user in `url`, and the password there or in the variable that `password_env` names";

test_on!(a_missing_database_is_permanent, needs_postgres, needs_mariadb);

async fn a_missing_database_is_permanent(engine: Engine) {
    let database = Database::new(engine).await;
    let url = database.url.rsplit_once('/').unwrap().0.to_owned() + "/gone";
    assert_eq!(
        at(database, url).await,
        "the database `shop` cannot be used: the server has no database of this name; hint: correct the name of the \
         database in `url`, or create the database"
    );
}

test_on!(a_user_without_access_is_permanent, needs_postgres, needs_mariadb);

async fn a_user_without_access_is_permanent(engine: Engine) {
    let database = Database::new(engine).await;
    let name = database.url.rsplit('/').next().unwrap().to_owned();
    let (admin, sql) = match engine {
        Engine::Postgres => {
            ("ada@", format!("CREATE ROLE guest_{name} LOGIN; REVOKE CONNECT ON DATABASE {name} FROM PUBLIC"))
        }
        _ => ("root@", format!("CREATE USER guest_{name}@'%'")),
    };
    database.execute(&sql).await;
    let url = database.url.replace(admin, &format!("guest_{name}@"));
    assert_eq!(
        at(database, url).await,
        "the database `shop` cannot be used: the server does not admit the user to this database; hint: let an \
         administrator grant the user access from this host, with SELECT on the tables"
    );
}

test_on!(a_missing_privilege_is_named, needs_postgres, needs_mariadb);

/// A query whose user may not read a table fails alone: the database is not unavailable.
async fn a_missing_privilege_is_named(engine: Engine) {
    let database = Database::new(engine).await;
    let name = database.url.rsplit('/').next().unwrap().to_owned();
    let (admin, host) = if engine == Engine::Postgres { ("ada@", "") } else { ("root@", "@'%'") };
    let create = if engine == Engine::Postgres { "CREATE ROLE r LOGIN" } else { "CREATE USER r@'%'" };
    let create = create.replace(" r", &format!(" reader_{name}"));
    database
        .execute(&format!(
            "CREATE TABLE open (id integer PRIMARY KEY); CREATE TABLE closed (id integer PRIMARY KEY); {create};
             GRANT SELECT ON open TO reader_{name}{host}"
        ))
        .await;
    let url = database.url.replace(admin, &format!("reader_{name}@"));
    let database = Database { url, ..database };
    let shop = database.source("[[query]]\nuri = \"db://closed\"\nsql = \"SELECT id FROM closed\"");
    assert_eq!(shop.read("open/rows").await, "{\"rows\":[]}");
    assert!(shop.error("closed/rows").await.is_not_found());
    let error = shop.text(&libris_core::Uri::parse("db://closed").unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error:?}");
    assert!(error.to_string().contains("grant SELECT"), "{error}");
}

#[tokio::test]
async fn files_that_sqlite_cannot_read() {
    let database = Database::new(Engine::Sqlite).await;
    let path = database.folder.path().join("shop.db");
    std::fs::write(&path, "this is no database, but a text that is long enough to be one".repeat(20))
        .unwrap();
    assert_eq!(
        database.source("").error("schema").await.to_string(),
        "the database `shop` cannot be used: its file is not a SQLite database; hint: correct the path in `url`"
    );
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)").await;
    let mut bytes = std::fs::read(&path).unwrap();
    let page = bytes.len() / 2;
    bytes[100..page].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(
        database.source("").error("schema").await.to_string(),
        "the database `shop` cannot be used: its file is damaged; hint: restore the file from a backup"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_without_permission() {
    use std::os::unix::fs::PermissionsExt as _;
    let database = Database::new(Engine::Sqlite).await;
    let path = database.folder.path().join("shop.db");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o0)).unwrap();
    // Root may read every file.
    if std::fs::File::open(&path).is_ok() {
        return;
    }
    assert_eq!(
        database.source("").error("schema").await.to_string(),
        "the database `shop` cannot be used: its file cannot be opened; hint: give Libris permission to read the file \
         and its folder"
    );
}

test_on!(wrong_queries_are_found, sqlite, needs_postgres, needs_mariadb);

/// A check prepares the configured queries and those that complete variables, without running them.
async fn wrong_queries_are_found(engine: Engine) {
    let database = Database::new(engine).await;
    database
        .execute("CREATE TABLE t (id integer PRIMARY KEY, v varchar(9)); INSERT INTO t VALUES (1, 'a')")
        .await;
    let query = |sql: &str, complete: &str| {
        database.source(&format!(
            "[[query]]\nuri = \"db://t/{{id}}\"\nsql = \"{sql}\"\nparameters = {{ id = \"integer\" }}\n\
             complete = {{ id = \"{complete}\" }}"
        ))
    };
    let right = query("SELECT v FROM t WHERE id = :id", "SELECT id FROM t WHERE v >= :typed");
    assert!(right.sql.verify().await.unwrap().is_empty());
    let ordered = query("SELECT v FROM t WHERE id = :id ORDER BY v", "SELECT id FROM t ORDER BY id");
    assert!(ordered.sql.verify().await.unwrap().is_empty());
    let slow = match engine {
        Engine::Postgres => "SELECT pg_sleep(60) WHERE :id IS NULL",
        Engine::Mysql => "SELECT sleep(60) FROM t WHERE :id IS NULL",
        Engine::Sqlite => {
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c WHERE :id IS NULL"
        }
    };
    assert!(query(slow, "SELECT 1").sql.verify().await.unwrap().is_empty());
    let wrong = async |sql: &str, complete: &str| match &query(sql, complete).sql.verify().await.unwrap()[..]
    {
        [error] => error.to_string(),
        errors => panic!("{errors:?}"),
    };
    let column = wrong("SELECT vv FROM t WHERE id = :id", "SELECT 1").await;
    let table = wrong("SELECT :id", "SELECT id FROM tt").await;
    let syntax = wrong("SELECT v FORM t WHERE id = :id", "SELECT 1").await;
    assert!(column.starts_with("the query `db://t/{id}` is wrong: ") && column.contains("vv"), "{column}");
    let expected = "the query `db://t/{id}` to complete `id` is wrong: ";
    assert!(table.starts_with(expected) && table.contains("tt"), "{table}");
    assert!(syntax.starts_with("the query `db://t/{id}` is wrong: "), "{syntax}");
}
