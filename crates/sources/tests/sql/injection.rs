//! SQL injection through keys, parameters, table names and completions.

use std::collections::BTreeMap;

use libris_core::{CompletionRequest, Context, Error, Source as _, Uri};

use crate::database::{Database, Engine, test_on};

/// Injected texts, tried wherever text of the caller is used.
const ATTEMPTS: [&str; 20] = [
    "'; DROP TABLE canary; --",
    "1; DELETE FROM canary",
    "1 OR 1=1",
    "1' OR '1'='1",
    "\" OR \"\"=\"",
    "1) OR (1=1",
    "1 UNION SELECT secret FROM canary",
    "' UNION SELECT secret FROM canary --",
    "1/**/OR/**/1=1",
    "\\'; DROP TABLE canary; #",
    "\\\\",
    "`canary`",
    "$$; DROP TABLE canary; $$",
    "$1",
    "?",
    ":id",
    "../canary",
    "ｃａｎａｒｙ",
    "1\u{2019} OR 1=1",
    "a\0b",
];

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

test_on!(nothing_is_injected, sqlite, needs_postgres, needs_mariadb);

async fn nothing_is_injected(engine: Engine) {
    let database = Database::new(engine).await;
    let text = if engine == Engine::Mysql { "varchar(100)" } else { "text" };
    database
        .execute(&format!(
            "CREATE TABLE canary (id integer PRIMARY KEY, secret {text}); INSERT INTO canary VALUES (1, 'sings');
             CREATE TABLE users (id integer PRIMARY KEY, name {text} NOT NULL); INSERT INTO users VALUES (1, 'Ada');
             CREATE TABLE words (word {text} PRIMARY KEY); INSERT INTO words VALUES ('w')"
        ))
        .await;
    let shop = database.source(
        r#"tables = ["users", "words"]
           [[query]]
           uri = "db://by-name/{name}{?id,note}"
           sql = "SELECT id, name FROM users WHERE name = :name AND (:id IS NULL OR id = :id) AND (:note IS NULL OR :note = 'x')"
           parameters = { id = "integer" }
           complete = { name = "SELECT name FROM users WHERE name = :typed" }"#,
    );
    for attempt in ATTEMPTS {
        let text = encoded(attempt);
        let uris = [
            shop.uri(&format!("users/rows/{text}")),
            shop.uri(&format!("words/rows/{text}")),
            shop.uri(&format!("users/rows?after={text}")),
            shop.uri(&format!("words/rows?after={text}&limit=5")),
            shop.uri(&format!("users/rows?limit={text}")),
            shop.uri(&format!("users/rows?format={text}")),
            shop.uri(&format!("users/rows?id={text}")),
            shop.uri(&format!("words/rows?word={text}")),
            shop.uri(&format!("users/rows?{text}=1")),
            shop.uri(&format!("{text}/rows")),
            shop.uri(&format!("{text}/schema")),
            shop.uri(&format!("users{text}/rows/1")),
            shop.uri(&format!("main.{text}/rows/1")),
            Uri::parse(&format!("db://by-name/{text}")).unwrap(),
            Uri::parse(&format!("db://by-name/Ada?id={text}")).unwrap(),
            Uri::parse(&format!("db://by-name/Ada?note={text}")).unwrap(),
        ];
        for uri in uris {
            match shop.text(&uri).await {
                Err(Error::NotFound(_) | Error::Missing { .. } | Error::Invalid(_)) => {}
                Err(error) => panic!("{engine:?}: {uri} failed: {error:?}"),
                Ok(text) => {
                    // A page may start at any text: `after` compares, and `w` sorts after some of these.
                    let harmless = ["{\"rows\":[]}", "{\"rows\":[\n{\"word\":\"w\"}]}"];
                    assert!(harmless.contains(&&*text), "{engine:?}: {uri} gave {text}");
                }
            }
        }
        for template in shop.sql.templates(&Context::default()).await.unwrap().templates {
            for variable in template.uri.variables() {
                for table in ["users", "words", attempt] {
                    let known = BTreeMap::from([("table".to_owned(), table.to_owned())]);
                    let asked = CompletionRequest {
                        template: &template.uri,
                        variable,
                        typed: attempt,
                        known: &known,
                        limit: 100,
                    };
                    match shop.sql.complete(asked, &Context::default()).await {
                        Ok(completion) => {
                            assert!(completion.values.is_empty(), "{engine:?}: {completion:?}")
                        }
                        Err(Error::Invalid(_)) => {}
                        Err(error) => {
                            panic!("{engine:?}: completing {variable} from {attempt}: {error:?}")
                        }
                    }
                }
            }
        }
    }
    let all = database.source("");
    assert_eq!(all.read("canary/rows").await, "{\"rows\":[\n{\"id\":1,\"secret\":\"sings\"}]}", "{engine:?}");
    assert_eq!(all.read("users/rows").await, "{\"rows\":[\n{\"id\":1,\"name\":\"Ada\"}]}", "{engine:?}");
    assert_eq!(all.read("words/rows").await, "{\"rows\":[\n{\"word\":\"w\"}]}", "{engine:?}");
}

test_on!(hidden_tables_are_not_reached_by_another_spelling, sqlite, needs_postgres, needs_mariadb);

/// No spelling of its name reaches a table that `tables` excludes.
async fn hidden_tables_are_not_reached_by_another_spelling(engine: Engine) {
    let database = Database::new(engine).await;
    database
        .execute("CREATE TABLE canary (id integer PRIMARY KEY); CREATE TABLE users (id integer PRIMARY KEY)")
        .await;
    let shop = database.source("tables = [\"users\"]");
    let spellings = [
        "canary",
        "CANARY",
        "Canary",
        "%63anary",
        "canary%20",
        "%22canary%22",
        "main.canary",
        "public.canary",
        "users%22,%22canary",
        "users%2F..%2Fcanary",
        "users/../canary",
        "sqlite_master",
        "information_schema.tables",
        "pg_catalog.pg_class",
        "mysql.user",
        "users.canary",
        "c%C3%A1nary",
    ];
    for spelling in spellings {
        for rest in ["schema", "rows", "rows/1", ""] {
            let error = shop.error(&format!("{spelling}/{rest}")).await;
            assert!(
                error.is_not_found() || matches!(error, Error::Invalid(_)),
                "{engine:?} {spelling}: {error:?}"
            );
        }
    }
}
