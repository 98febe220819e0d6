//! Equality filters on indexed columns.

use std::collections::BTreeMap;

use libris_core::{CompletionRequest, Context, Source as _, Uri};
use serde_json::Value;

use crate::database::{Database, Engine, test_on};

const ALBUMS: &str = "
    CREATE TABLE albums (id integer PRIMARY KEY, title varchar(50), artist integer, year integer, label varchar(9),
        released date, note varchar(9));
    CREATE INDEX by_title ON albums (title);
    CREATE INDEX by_artist ON albums (artist, year);
    CREATE INDEX by_release ON albums (released);
    CREATE VIEW titles AS SELECT title FROM albums;
    INSERT INTO albums VALUES (1, 'Debut', 7, 1993, 'a', '1993-07-05', NULL),
        (2, 'Post', 7, 1995, 'a', '1995-06-13', NULL), (3, 'Homogenic', 7, 1997, 'a', '1997-09-22', NULL),
        (4, 'Homogenic', 8, 1997, 'b', '1997-09-22', NULL), (5, 'a&b=c', 8, 2001, 'b', NULL, NULL),
        (6, '', 9, 2001, 'c', NULL, NULL)";

test_on!(rows_are_found_by_indexed_columns, sqlite, needs_postgres, needs_mariadb);

async fn rows_are_found_by_indexed_columns(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(ALBUMS).await;
    let shop = database.source("");
    let ids = async |query: &str| {
        let page: Value = serde_json::from_str(&shop.read(&format!("albums/rows?{query}")).await).unwrap();
        let ids = page["rows"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap());
        (ids.collect::<Vec<_>>(), page["next"].as_str().map(ToOwned::to_owned))
    };
    assert_eq!(ids("title=Homogenic").await, (vec![3, 4], None), "{engine:?}");
    assert_eq!(ids("title=Homogenic&artist=8").await.0, [4], "{engine:?}");
    assert_eq!(ids("artist=7&year=1995").await.0, [2], "{engine:?}");
    assert_eq!(ids("released=1997-09-22").await.0, [3, 4], "{engine:?}");
    assert_eq!(ids("id=6").await.0, [6]);
    assert_eq!(ids("title=").await.0, [6], "{engine:?}");
    assert_eq!(ids("title=a%26b%3Dc").await.0, [5]);
    assert_eq!(ids("title=Vespertine").await, (vec![], None));
    // With pages: the filters are part of the URI of the next page.
    let (first, next) = ids("limit=2&artist=7&format=json").await;
    assert_eq!(first, [1, 2]);
    let next = next.unwrap();
    assert_eq!(next, shop.uri("albums/rows?artist=7&after=2&limit=2&format=json").to_string());
    let rest: Value = serde_json::from_str(&shop.text(&Uri::parse(&next).unwrap()).await.unwrap()).unwrap();
    assert_eq!((rest["rows"].as_array().unwrap().len(), &rest["rows"][0]["id"]), (1, &3.into()));
    assert_eq!(rest["next"], Value::Null);
    let (_, next) = ids("title=Homogenic&limit=1").await;
    assert!(next.unwrap().ends_with("rows?title=Homogenic&after=3&limit=1"));
}

test_on!(other_filters_are_explained, sqlite, needs_postgres, needs_mariadb);

async fn other_filters_are_explained(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(ALBUMS).await;
    let shop = database.source("");
    let said = async |path: &str| shop.error(path).await.to_string();
    let many: Vec<_> = (0..9).map(|number| format!("c{number}=1")).collect();
    if engine == Engine::Sqlite {
        // SQLite accepts any value in a column.
        assert_eq!(shop.read("albums/rows?released=soon").await, "{\"rows\":[]}");
        return;
    }
    let said = [
        said("albums/rows?label=a").await,
        said("albums/rows?year=1997").await,
        said("albums/rows?titel=x").await,
        said("albums/rows?lmit=2").await,
        said("albums/rows?x=2").await,
        said("albums/rows?filter=2").await,
        said("albums/rows?artist=Bj%C3%B6rk").await,
        said("albums/rows?released=soon").await,
        said("albums/rows?title=a&title=b").await,
        said(&format!("albums/rows?{}", many.join("&"))).await,
        said("titles/rows?title=Debut").await,
    ];
    insta::allow_duplicates! {
        insta::assert_snapshot!(said.join("\n"), @r"
        `albums` cannot be filtered by `label`: no index begins with it; filter by `id`, `title`, `artist` or `released`, or configure a query
        `albums` cannot be filtered by `year`: no index begins with it; filter by `id`, `title`, `artist` or `released`, or configure a query
        `albums` has no column `titel`; did you mean `title`?
        `albums` has no column `lmit`; did you mean `limit`?
        `albums` has no column `x`; filter by `id`, `title`, `artist` or `released`, or configure a query
        write a filter as `COLUMN=VALUE`; filter by `id`, `title`, `artist` or `released`, or configure a query
        `artist` must be a whole number, not `Björk`
        `released` must be a date such as `2026-07-28`, not `soon`
        there are two filters of the column `title`: give one
        there are 9 filters: give at most 8
        `titles` cannot be filtered by `title`: no index begins with it; configure a query instead
        ");
    }
}

/// A partial index does not find all rows, and an index of an expression finds none by a column.
#[tokio::test]
async fn only_whole_indexes_of_columns_count() {
    let database = Database::new(Engine::Sqlite).await;
    database
        .execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c, d);
             CREATE INDEX partial ON t (a) WHERE a > 5; CREATE INDEX expression ON t (b + 1, c);
             CREATE INDEX whole ON t (d)",
        )
        .await;
    let shop = database.source("");
    for column in ["a", "b", "c"] {
        let error = shop.error(&format!("t/rows?{column}=1")).await.to_string();
        let expected = format!("`t` cannot be filtered by `{column}`: no index begins with it; ");
        assert_eq!(error, expected + "filter by `id` or `d`, or configure a query");
    }
    assert_eq!(shop.read("t/rows?d=1").await, "{\"rows\":[]}");
}

test_on!(filters_are_completed, sqlite, needs_postgres, needs_mariadb);

async fn filters_are_completed(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute(ALBUMS).await;
    let shop = database.source("");
    let templates = shop.sql.templates(&Context::default()).await.unwrap().templates;
    let template = &templates.iter().find(|one| one.uri.as_str().contains("filter")).unwrap().uri;
    let known = BTreeMap::from([("table".to_owned(), "albums".to_owned())]);
    let complete = async |typed: &str| {
        let request = CompletionRequest { template, variable: "filter", typed, known: &known, limit: 100 };
        shop.sql.complete(request, &Context::default()).await.unwrap().values
    };
    assert_eq!(complete("").await, ["id=", "title=", "artist=", "released="], "{engine:?}");
    assert_eq!(complete("T").await, ["title="]);
    assert_eq!(complete("id=").await, ["id=1", "id=2", "id=3", "id=4", "id=5", "id=6"], "{engine:?}");
    assert_eq!(complete("id=3").await, ["id=3"]);
    assert_eq!(complete("title=").await, [""; 0]);
    assert_eq!(complete("year=").await, [""; 0]);
    // What is completed is one text.
    let (whole, parts) = (shop.read("albums/rows?filter=id%3D3").await, shop.read("albums/rows?id=3").await);
    assert_eq!(whole, parts);
    assert_eq!(shop.read("albums/rows?filter=id%3D").await, shop.read("albums/rows").await);
    if engine == Engine::Mysql {
        database.execute("CREATE TABLE moods (mood ENUM('calm', 'loud'), INDEX (mood))").await;
        let known = BTreeMap::from([("table".to_owned(), "moods".to_owned())]);
        let request =
            CompletionRequest { template, variable: "filter", typed: "mood=", known: &known, limit: 9 };
        let values = shop.sql.complete(request, &Context::default()).await.unwrap().values;
        assert_eq!(values, ["mood=calm", "mood=loud"]);
    }
}
