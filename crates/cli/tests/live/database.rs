//! A database that changes, is removed and restored while it is served.

use std::path::Path;

use serde_json::json;
use sqlx::{Connection as _, Executor as _};

use crate::client::{Client, Era, Program, eventually};

/// The number of changes of one row, none of which may cause a notification of another.
const UNRELATED_CHANGES: usize = 5;

pub(crate) async fn execute(path: &Path, sql: &str) {
    let mut connection =
        sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    connection.execute(sql).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_told_through_every_change() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join("libris.toml"), folder.path().join("shop.db"));
    let config = "[[sql]]\nurl = \"sqlite:shop.db\"\n";
    std::fs::write(&file, config).unwrap();
    std::fs::write(&path, "").unwrap();
    execute(&path, "CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        .await;
    let program = Program::serve(&["--config", file.to_str().unwrap()]);
    let uris = [1, 2].map(|id| format!("sqlite://shop/t/rows/{id}"));
    let clients = [
        Client::connect(&program, Era::Legacy, &uris).await,
        Client::connect(&program, Era::Modern, &uris).await,
    ];
    let told = async |what: &str, uri: &String| {
        for client in &clients {
            eventually(what, async || client.heard_of().contains(uri)).await;
        }
    };
    execute(&path, "UPDATE t SET v = 'changed' WHERE id = 1").await;
    told("a row that changed", &uris[0]).await;
    assert_eq!(clients[0].read(&uris[0]).await.unwrap()[0]["text"], r#"{"id":1,"v":"changed"}"#);

    // A row that did not change causes no notification. Only the change at the moment of the subscription may cause one,
    // which may arrive late.
    let updates =
        |client: &Client| client.heard.lock().unwrap().updates.get(&uris[1]).copied().unwrap_or_default();
    let before = clients.each_ref().map(updates);
    for round in 0..UNRELATED_CHANGES {
        execute(&path, &format!("UPDATE t SET v = 'round {round}' WHERE id = 1")).await;
        told("a row that changed again", &uris[0]).await;
    }
    for (client, before) in clients.iter().zip(before) {
        let more = updates(client) - before;
        assert!(more <= 1, "{more} notifications of a row that did not change");
    }

    // Rows are notified although the source was replaced.
    std::fs::write(&file, format!("{config}title = \"Our shop\"\n")).unwrap();
    told("a source that was replaced", &uris[1]).await;
    execute(&path, "UPDATE t SET v = 'changed' WHERE id = 2").await;
    told("a row of the new source", &uris[1]).await;

    let away = folder.path().join("away.db");
    std::fs::rename(&path, &away).unwrap();
    let answer = clients[1].ask("resources/list", json!({})).await;
    let why = "the database `shop` cannot be reached now: its file is not there; try again later; `libris://status` \
               has the state of the sources";
    let expected = format!("`sqlite shop` is unavailable; the error: {why}");
    assert_eq!(answer["error"]["message"], expected, "{answer}");
    assert_eq!(answer["error"]["code"], -32603);
    let answer = clients[1].ask("resources/read", json!({ "uri": uris[0] })).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("`sqlite shop` is unavailable since 20"), "{message}");
    assert!(message.ends_with(&format!(": {why}")), "{message}");
    execute(&away, "UPDATE t SET v = 'meanwhile' WHERE id = 1").await;
    std::fs::rename(&away, &path).unwrap();
    told("a row that changed meanwhile", &uris[0]).await;
    assert_eq!(clients[1].read(&uris[0]).await.unwrap()[0]["text"], r#"{"id":1,"v":"meanwhile"}"#);
}
