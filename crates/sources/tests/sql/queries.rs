//! Configured queries.

use std::collections::BTreeMap;

use libris_core::{CompletionRequest, ContentBody, Context, Error, Source as _, Uri};
use libris_sources::{Sql, sql};

use crate::database::{Database, Engine, test_on};

const USERS: &str = "
    CREATE TABLE users (id integer PRIMARY KEY, name varchar(50), born date);
    INSERT INTO users VALUES (1, 'Ada', '1815-12-10'), (2, 'Grace', '1906-12-09'), (3, 'Ann', '1900-01-01')";

const QUERIES: &str = r#"
    [[query]]
    uri = "db://users/{user_id}/profile"
    sql = "SELECT id, name, ':user_id' AS quoted FROM users WHERE id = :user_id AND :user_id > 0 -- one"
    parameters = { user_id = "integer" }
    complete = { user_id = "SELECT id FROM users ORDER BY id" }
    one = true

    [[query]]
    uri = "db://users/named/{name}{?since}"
    sql = "SELECT name, born FROM users WHERE name = :name AND (:since IS NULL OR born >= :since) ORDER BY id;"
    parameters = { since = "date" }
    complete = { name = "SELECT name FROM users WHERE born >= coalesce(:since, '0001-01-01') ORDER BY name" }
    format = "markdown"

    [[query]]
    uri = "db://users/all"
    sql = "SELECT id, name FROM users ORDER BY id DESC"
"#;

test_on!(queries_are_resources, sqlite, needs_postgres, needs_mariadb);

async fn queries_are_resources(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(USERS).await;
    let shop = database.source(QUERIES);
    let read = async |uri: &str| shop.text(&Uri::parse(uri).unwrap()).await;
    let text = read("db://users/1/profile").await.unwrap();
    assert_eq!(text, r#"{"id":1,"name":"Ada","quoted":":user_id"}"#, "{engine:?}");
    assert!(matches!(read("db://users/9/profile").await, Err(Error::NotFound(_))));
    let error = read("db://users/1%20OR%201=1/profile").await.unwrap_err();
    assert_eq!(error.to_string(), "`user_id` must be a whole number, not `1 OR 1=1`");
    assert_eq!(
        read("db://users/1/profile?format=csv").await.unwrap(),
        "id,name,quoted\r\n1,Ada,:user_id\r\n"
    );
    let named = read("db://users/named/Grace").await.unwrap();
    assert_eq!(named, "| name | born |\n| --- | --- |\n| Grace | 1906-12-09 |\n", "{engine:?}");
    assert!(!read("db://users/named/Grace?since=1950-01-01").await.unwrap().contains("1906"));
    let empty = read("db://users/named/Nobody?format=csv").await.unwrap();
    assert_eq!(empty, "name,born\r\n", "{engine:?}");
    let error = read("db://users/named/Grace?since=soon").await.unwrap_err();
    assert_eq!(error.to_string(), "`since` must be a date such as `2026-07-28`, not `soon`");
    let all = "{\"rows\":[\n{\"id\":3,\"name\":\"Ann\"},\n{\"id\":2,\"name\":\"Grace\"},\n{\"id\":1,\"name\":\"Ada\"}]}";
    assert_eq!(read("db://users/all").await.unwrap(), all, "{engine:?}: in the order of the query");
    let listed = shop.sql.list(None, 100, &Context::default()).await.unwrap().resources;
    assert!(listed.iter().any(|resource| resource.uri.as_str() == "db://users/all"));
    let few = database.source(&format!("max_rows = 2\n{QUERIES}"));
    let cut = few.text(&Uri::parse("db://users/all").unwrap()).await.unwrap();
    assert!(cut.ends_with(",\"more\":true}") && cut.contains("Grace") && !cut.contains("Ada"), "{cut}");
}

test_on!(variables_are_completed_by_queries, sqlite, needs_postgres, needs_mariadb);

async fn variables_are_completed_by_queries(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(USERS).await;
    let shop = database.source(QUERIES);
    let templates = shop.sql.templates(&Context::default()).await.unwrap().templates;
    let template = templates.iter().find(|template| template.uri.as_str().contains("named")).unwrap();
    let complete = async |variable, typed, known: &[(&str, &str)]| {
        let known: BTreeMap<_, _> =
            known.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let asked = CompletionRequest { template: &template.uri, variable, typed, known: &known, limit: 100 };
        shop.sql.complete(asked, &Context::default()).await.unwrap().values
    };
    assert_eq!(complete("name", "a", &[]).await, ["Ada", "Ann"], "{engine:?}");
    assert_eq!(complete("name", "", &[("since", "1890-01-01")]).await, ["Ann", "Grace"]);
    assert_eq!(complete("format", "c", &[]).await, ["csv"]);
    let rows = templates.iter().find(|template| template.uri.as_str().contains("rows/")).unwrap();
    let key = async |typed| {
        let known = BTreeMap::from([("table".to_owned(), "users".to_owned())]);
        let asked =
            CompletionRequest { template: &rows.uri, variable: "key", typed, known: &known, limit: 100 };
        shop.sql.complete(asked, &Context::default()).await.unwrap().values
    };
    assert_eq!(key("").await, ["1", "2", "3"]);
    assert_eq!(key("2").await, ["2"]);
    assert!(key("x'; --").await.is_empty());
}

/// Opening a source with a wrong configuration fails with a message that names the mistake.
#[test]
fn mistakes_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shop.db"), "").unwrap();
    let open = |text: &str| {
        let config: sql::Config = toml::from_str(text).unwrap();
        Sql::open(config, folder.path()).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let query = |uri: &str, sql: &str, more: &str| {
        open(&format!("url = \"sqlite:shop.db\"\n[[query]]\nuri = {uri:?}\nsql = {sql:?}\n{more}"))
    };
    let said = [
        open(""),
        open("url = \"sqlite:gone.db\"").replace(&folder.path().display().to_string(), "…"),
        open("url = \"oracle://x\""),
        open("url = \"postgres://ada:s3cret@[host/shop\""),
        open("url_env = \"LIBRIS_TEST_UNSET\""),
        open("url = \"sqlite:shop.db\"\nmax_rows = 0"),
        query("db://a/{id}", "SELECT :ib", ""),
        query("db://a/{id}", "DELETE FROM a WHERE id = :id", ""),
        query("db://a/{id}", "SELECT 1; SELECT 2", ""),
        query("db://a/{id}", "SELECT ?", ""),
        query("db://a/{id}", "SELECT :id", "parameters = { ib = \"integer\" }"),
        query("db://a/{id}", "SELECT :id", "complete = { id = \"SELECT :nothing\" }"),
        query("db://a", "SELECT 1", "mime = \"text/html\""),
        query("db://a", "SELECT 1", "contents = \"a\"\none = true"),
        query("db://a", "SELECT 1", "contents = \"a\"\nmime = \"pdf\""),
        query("db://a", "SELECT 1", "contents = \"a\"\nmime = \"text/html\"\nmime_column = \"b\""),
    ];
    insta::assert_snapshot!(said.join("\n"), @r"
    a database needs either `url` or `url_env`
    there is no file `…/gone.db`; hint: check the path
    the URL of a database must begin with `sqlite:`, `postgres://` or `mysql://`
    the URL of the database is malformed: write `postgres://user@host:port/database`
    the environment variable `LIBRIS_TEST_UNSET` is not set; hint: set it before you start Libris
    `max_rows` must be from 1 to 1000000, not `0`
    the query `db://a/{id}` is wrong: its URI has no variable `ib`, only `id`
    the query `db://a/{id}` is wrong: its `sql` must be a query that begins with SELECT, WITH, VALUES or TABLE
    the query `db://a/{id}` is wrong: its `sql` must be one statement
    the query `db://a/{id}` is wrong: its `sql` has positional parameters: write `:name` instead
    the query `db://a/{id}` is wrong: its URI has no variable `ib`, only `id`
    the query `db://a/{id}` is wrong: its URI has no variable `nothing`, only `id`
    the query `db://a` is wrong: `mime` and `mime_column` are only for a query with `contents`
    the query `db://a` is wrong: `one` and `format` are for rows, and have no effect with `contents`; hint: omit them
    the query `db://a` is wrong: its `mime` must be a media type such as `application/pdf`, not `pdf`
    the query `db://a` is wrong: it has both `mime` and `mime_column`
    ");
}

test_on!(queries_only_read, sqlite, needs_postgres, needs_mariadb);

/// Configured queries run in read-only transactions.
async fn queries_only_read(engine: Engine) {
    let attempts = [
        (Engine::Postgres, "WITH gone AS (DELETE FROM users RETURNING *) SELECT * FROM gone"),
        (Engine::Postgres, "SELECT nextval('numbers')"),
        (Engine::Postgres, "SELECT * FROM users FOR UPDATE"),
        (Engine::Postgres, "SELECT destroy()"),
        (Engine::Mysql, "SELECT destroy()"),
        (Engine::Sqlite, "WITH x AS (SELECT 1) DELETE FROM users"),
    ];
    let database = Database::new(engine).await;
    database.execute(USERS).await;
    match engine {
        Engine::Postgres => {
            database
                .execute(
                    "CREATE SEQUENCE numbers;
                     CREATE FUNCTION destroy() RETURNS int LANGUAGE plpgsql AS
                     'BEGIN DELETE FROM users; RETURN 1; END'",
                )
                .await;
        }
        Engine::Mysql => {
            let sql =
                "CREATE FUNCTION destroy() RETURNS int DETERMINISTIC BEGIN DELETE FROM users; RETURN 1; END";
            database.execute(sql).await;
        }
        Engine::Sqlite => {}
    }
    for (_, sql) in attempts.iter().filter(|attempt| attempt.0 == engine) {
        let shop = database.source(&format!("[[query]]\nuri = \"db://try\"\nsql = {sql:?}"));
        let outcome = shop.text(&Uri::parse("db://try").unwrap()).await;
        assert!(matches!(outcome, Err(Error::Failed { .. })), "{engine:?}: {sql}: {outcome:?}");
        assert_eq!(shop.read("users/rows").await.matches("\"id\"").count(), 3, "{engine:?}: {sql}");
    }
}

test_on!(queries_keep_their_order_and_names, sqlite, needs_postgres, needs_mariadb);

/// The subquery that enforces limits preserves the row order and column names of the configured query.
async fn queries_keep_their_order_and_names(engine: Engine) {
    let either = "SELECT v FROM t WHERE id = 1 UNION ALL SELECT v FROM t WHERE id > 1 ORDER BY v DESC";
    let cases = [
        (
            "SELECT v, v, id FROM t ORDER BY id DESC -- the last first",
            r#"{"rows":[{"v":"c","v_2":"c","id":3},{"v":"b","v_2":"b","id":2},{"v":"a","v_2":"a","id":1}]}"#,
        ),
        ("SELECT v FROM t ORDER BY id DESC LIMIT 2", r#"{"rows":[{"v":"c"},{"v":"b"}]}"#),
        (either, r#"{"rows":[{"v":"c"},{"v":"b"},{"v":"a"}]}"#),
        (
            "WITH x AS (SELECT v AS w FROM t) SELECT w, upper(w) AS u FROM x ORDER BY w DESC;",
            r#"{"rows":[{"w":"c","u":"C"},{"w":"b","u":"B"},{"w":"a","u":"A"}]}"#,
        ),
        ("SELECT NULL AS n, '' AS e FROM t WHERE id = 1", r#"{"rows":[{"n":null,"e":""}]}"#),
    ];
    let database = Database::new(engine).await;
    let table = "CREATE TABLE t (id integer PRIMARY KEY, v text)";
    database.execute(&format!("{table}; INSERT INTO t VALUES (2, 'b'), (1, 'a'), (3, 'c')")).await;
    for (sql, expected) in cases {
        let shop = database.source(&format!("[[query]]\nuri = \"db://q\"\nsql = {sql:?}"));
        let text = shop.text(&Uri::parse("db://q").unwrap()).await;
        let text = text.unwrap_or_else(|error| panic!("{engine:?}: {sql}: {error:?}"));
        assert_eq!(text.replace('\n', ""), expected, "{engine:?}: {sql}");
    }
}

test_on!(what_is_offered_is_bounded_in_total, sqlite, needs_postgres, needs_mariadb);

/// `max_bytes` bounds the total size of the completion values.
async fn what_is_offered_is_bounded_in_total(engine: Engine) {
    let database = Database::new(engine).await;
    let rows: Vec<_> = (100..160).map(|id| format!("('{id}{}')", "x".repeat(97))).collect();
    let table = "CREATE TABLE t (v varchar(200) PRIMARY KEY)";
    database.execute(&format!("{table}; INSERT INTO t VALUES {}", rows.join(", "))).await;
    let query = "[[query]]\nuri = \"db://q/{v}\"\nsql = \"SELECT :v\"\n\
                 complete = { v = \"SELECT v FROM t ORDER BY v\" }";
    let shop = database.source(&format!("max_bytes = 1000\n{query}"));
    let templates = shop.sql.templates(&Context::default()).await.unwrap().templates;
    let table = BTreeMap::from([("table".to_owned(), "t".to_owned())]);
    for (variable, part) in [("v", "db://q"), ("key", "rows/")] {
        let template = templates.iter().find(|template| template.uri.as_str().contains(part)).unwrap();
        let asked =
            CompletionRequest { template: &template.uri, variable, typed: "1", known: &table, limit: 100 };
        let offered = shop.sql.complete(asked, &Context::default()).await.unwrap();
        assert_eq!((offered.values.len(), offered.more), (10, true), "{engine:?}: {variable}");
    }
}

/// Attachments: a PDF, HTML in a BLOB, a text, and null.
const ATTACHMENTS: &str = r#"
    [[query]]
    uri = "db://attachments/{id}"
    sql = "SELECT kind, data FROM attachments WHERE id = :id"
    parameters = { id = "integer" }
    contents = "data"
    mime_column = "kind"

    [[query]]
    uri = "db://notes/{id}.txt"
    sql = "SELECT note FROM attachments WHERE id = :id"
    parameters = { id = "integer" }
    contents = "note"

    [[query]]
    uri = "db://first"
    sql = "SELECT data FROM attachments WHERE id = 1"
    contents = "data"
    mime = "application/x-own"
"#;

test_on!(a_cell_is_the_contents_of_a_resource, sqlite, needs_postgres, needs_mariadb);

async fn a_cell_is_the_contents_of_a_resource(engine: Engine) {
    let pdf = b"%PDF-1.4\n\xff\x00 \n%%EOF";
    let page = "<!DOCTYPE html><p>Über</p>";
    let hex = |data: &[u8]| data.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let literal = |data: &[u8]| match engine {
        Engine::Postgres => format!("'\\x{}'", hex(data)),
        Engine::Sqlite | Engine::Mysql => format!("x'{}'", hex(data)),
    };
    let bytes = match engine {
        Engine::Sqlite => "blob",
        Engine::Postgres => "bytea",
        Engine::Mysql => "longblob",
    };
    let database = Database::new(engine).await;
    let table = format!(
        "CREATE TABLE attachments (id integer PRIMARY KEY, kind varchar(50), data {bytes}, note text)"
    );
    let rows = format!(
        "(1, 'application/pdf', {}, 'a note'), (2, 'text/html', {}, NULL), (3, NULL, {}, ''), (4, 'x', NULL, NULL), \
         (5, 'application/x-five', {}, NULL)",
        literal(pdf),
        literal(page.as_bytes()),
        literal(pdf),
        literal(pdf),
    );
    database.execute(&format!("{table}; INSERT INTO attachments VALUES {rows}")).await;
    let shop = database.source(ATTACHMENTS);
    let read = async |shop: &Sql, uri: &str| {
        let contents = shop.read(&Uri::parse(uri).unwrap(), &Context::default()).await?;
        let [part] = <[_; 1]>::try_from(contents.parts).unwrap();
        assert_eq!(part.uri.as_str(), uri);
        Ok::<_, Error>((part.mime.unwrap(), part.body))
    };
    let found = |mime: &str, body: ContentBody| Ok::<_, Error>((mime.to_owned(), body));
    let data = || ContentBody::Bytes(pdf.to_vec().into());
    let text = |text: &str| ContentBody::Text(text.to_owned());
    let cases = [
        ("db://attachments/1", found("application/pdf", data())),
        ("db://attachments/2", found("text/html", text(page))),
        ("db://attachments/3", found("application/pdf", data())),
        // The column decides, not the contents.
        ("db://attachments/5", found("application/x-five", data())),
        ("db://notes/1.txt", found("text/plain", text("a note"))),
        ("db://notes/3.txt", found("text/plain", text(""))),
        ("db://first", found("application/x-own", data())),
    ];
    for (uri, expected) in cases {
        let found = read(&shop.sql, uri).await;
        assert_eq!(found.unwrap(), expected.unwrap(), "{engine:?}: {uri}");
    }
    // Neither a missing row nor a null is a resource.
    for uri in ["db://attachments/4", "db://attachments/6", "db://notes/2.txt"] {
        assert!(matches!(read(&shop.sql, uri).await, Err(Error::NotFound(_))), "{engine:?}: {uri}");
    }
    let listed = shop.sql.list(None, 100, &Context::default()).await.unwrap().resources;
    let first = listed.iter().find(|resource| resource.uri.as_str() == "db://first").unwrap();
    assert_eq!(first.mime.as_deref(), Some("application/x-own"));
    assert!(shop.sql.verify().await.unwrap().is_empty());
    // The database compares the size with the limit, so that a larger value is not loaded.
    let small = database.source(&format!("max_bytes = {}\n{ATTACHMENTS}", pdf.len() - 1));
    let error = read(&small.sql, "db://first").await.unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { size, .. } if size == pdf.len() as u64),
        "{engine:?}: {error:?}"
    );
    let wrong = database.source(&ATTACHMENTS.replace("mime_column = \"kind\"", "mime_column = \"type\""));
    let errors = wrong.sql.verify().await.unwrap();
    assert_eq!(
        errors[0].to_string(),
        "the query `db://attachments/{id}` is wrong: its result has no column `type`; hint: correct `contents` or \
         `mime_column`"
    );
    assert!(matches!(read(&wrong.sql, "db://attachments/1").await, Err(Error::Failed { .. })));
}
