//! Searches by the database itself.

use libris_core::{Context, SearchAnswer, SearchQuery, Source as _, Uri, Visibility};

use crate::database::{Database, Engine, Shop, test_on};

/// Notes with a full-text index, and a table without one.
fn notes(engine: Engine) -> String {
    let rows = "INSERT INTO notes VALUES (1, 'Backups', 'The retention of backups is thirty days'),
            (2, 'Keys', 'Rotate the signing keys every month'),
            (3, 'Both', 'Backups of keys: how keys are kept, and where the keys of backups are'),
            (4, 'Garden', 'The keys to the garden gate');
        CREATE TABLE plain (id integer PRIMARY KEY, body varchar(50));
        INSERT INTO plain VALUES (1, 'retention of keys');";
    let table = "CREATE TABLE notes (id integer PRIMARY KEY, title varchar(50), body varchar(200));";
    match engine {
        Engine::Sqlite => format!(
            "{table}{rows}
             CREATE VIRTUAL TABLE notes_fts USING fts5(title, body, content='notes', content_rowid='id', tokenize='porter');
             INSERT INTO notes_fts(notes_fts) VALUES ('rebuild')"
        ),
        _ => format!("{table}{rows} CREATE INDEX by_text ON notes USING gin (to_tsvector('english', title || ' ' || body))"),
    }
}

async fn search(source: &Shop, text: &str, context: &Context) -> Option<SearchAnswer> {
    source.sql.search(&SearchQuery::new(text, 10), context).await.unwrap()
}

fn ids(answer: Option<&SearchAnswer>) -> Vec<&str> {
    answer.unwrap().hits.iter().map(|hit| hit.uri.rsplit_once("notes/rows/").unwrap().1).collect()
}

test_on!(rows_are_found_by_the_index_of_the_database, sqlite, needs_postgres);

async fn rows_are_found_by_the_index_of_the_database(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(&notes(engine)).await;
    let shop = database.source("");
    let everything = Context::default();
    let answer = search(&shop, "rotating signing keys", &everything).await;
    // Words are optional, and stemmed by the database.
    assert_eq!(ids(answer.as_ref())[0], "2", "{engine:?}");
    let answer = answer.unwrap();
    assert_eq!((answer.hits.len(), answer.total), (3, 3), "{engine:?}");
    let hit = &answer.hits[0];
    assert_eq!(
        (hit.name.as_str(), hit.title.as_deref(), hit.mime.as_deref()),
        ("2", Some("Row 2 of notes"), Some("application/json"))
    );
    assert!(hit.description.as_deref().unwrap().contains("Rotate the signing keys"), "{hit:?}");
    // What is found can be read.
    let text = shop.text(&Uri::parse(&hit.uri).unwrap()).await.unwrap();
    assert!(text.contains("signing"), "{text}");
    assert_eq!(ids(search(&shop, "\"signing keys\"", &everything).await.as_ref()), ["2"], "{engine:?}");
    let mut found = ids(search(&shop, "backups -retention", &everything).await.as_ref()).join(" ");
    assert_eq!(found, "3", "{engine:?}");
    for text in ["zebra", "\" OR 1 --", "NEAR(", "xyzzy NOT(", "*"] {
        let answer = search(&shop, text, &everything).await;
        found = answer.map(|answer| answer.hits.len().to_string()).unwrap_or_default();
        assert!(["", "0"].contains(&&*found), "{engine:?} {text}: {found}");
    }
    let below =
        SearchQuery { uri_prefix: Some(shop.uri("other").to_string()), ..SearchQuery::new("keys", 10) };
    assert_eq!(shop.sql.search(&below, &everything).await.unwrap().unwrap().hits, []);
    let few = shop.sql.search(&SearchQuery::new("keys", 2), &everything).await.unwrap().unwrap();
    assert_eq!((few.hits.len(), few.total), (2, 3), "{engine:?}");
}

/// Sees all but the row 2.
struct WithoutRow;

impl Visibility for WithoutRow {
    fn sees(&self, uri: &Uri) -> bool {
        !uri.as_str().ends_with("/rows/2")
    }
}

test_on!(hidden_rows_and_tables_are_not_found, sqlite, needs_postgres);

async fn hidden_rows_and_tables_are_not_found(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(&notes(engine)).await;
    let shop = database.source("");
    let restricted = Context::default().with_visibility(std::sync::Arc::new(WithoutRow));
    let answer = search(&shop, "signing keys", &restricted).await;
    let found = ids(answer.as_ref());
    assert!(!found.contains(&"2") && found.len() == 2, "{engine:?} {found:?}");
    assert_eq!(answer.unwrap().total, 2, "{engine:?}");
    let plain = database.source("tables = [\"plain\"]");
    assert_eq!(search(&plain, "keys", &Context::default()).await, None, "{engine:?}");
}

test_on!(full_text_tables_of_their_own_are_searched, sqlite);

async fn full_text_tables_of_their_own_are_searched(engine: Engine) {
    let database = Database::new(engine).await;
    database
        .execute(
            "CREATE VIRTUAL TABLE notes USING fts5(title, body);
             INSERT INTO notes VALUES ('Keys', 'Rotate them'), ('Other', 'Something');
             CREATE VIRTUAL TABLE bare USING fts5(body, content='');
             INSERT INTO bare(rowid, body) VALUES (1, 'rotate')",
        )
        .await;
    let shop = database.source("");
    let answer = search(&shop, "rotate", &Context::default()).await;
    assert_eq!(ids(answer.as_ref()), ["1"]);
    let text = shop.text(&Uri::parse(&answer.unwrap().hits[0].uri).unwrap()).await.unwrap();
    assert!(text.contains("Rotate them"), "{text}");
}

test_on!(a_generated_column_is_searched_in_its_language, needs_postgres);

async fn a_generated_column_is_searched_in_its_language(engine: Engine) {
    let database = Database::new(engine).await;
    database
        .execute(
            "CREATE TABLE notes (id integer PRIMARY KEY, body text,
                 found tsvector GENERATED ALWAYS AS (to_tsvector('german', body)) STORED);
             CREATE INDEX by_found ON notes USING gin (found);
             INSERT INTO notes VALUES (1, 'Die Sicherungen der Daten'), (2, 'Etwas anderes')",
        )
        .await;
    let shop = database.source("");
    assert_eq!(ids(search(&shop, "Sicherung", &Context::default()).await.as_ref()), ["1"]);
}
