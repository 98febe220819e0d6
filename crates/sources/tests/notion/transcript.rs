//! What a client gets from Notion.

use std::time::Duration;

use serde_json::json;

use super::Bench;
use super::server::{Odd, id};

#[path = "../transcripts/mod.rs"]
mod transcripts;

#[tokio::test]
async fn what_a_client_gets() {
    let bench = Bench::with(|config| {
        config.cache = Duration::ZERO;
        config.retry_timeout = Duration::from_millis(100);
    })
    .await;
    {
        let mut workspace = bench.server.workspace();
        workspace.page(&id(1), "Handbook", json!({ "type": "workspace" }));
        workspace.edit(&id(1), "Welcome.");
        workspace.database(&id(100), &id(101), "Tasks");
    }
    let (page, database) = (id(1), id(100));
    let mut transcript = transcripts::Transcript::of(&bench.notion);
    transcript.list().await;
    transcript.templates().await;
    transcript.complete("notion://pages/{pageId}{?format}", "pageId", "hand").await;
    for uri in [
        "notion://workspace/info".to_owned(),
        format!("notion://pages/{page}"),
        format!("notion://pages/{page}?format=pdf"),
        format!("notion://pages/{page}?fromat=json"),
        "notion://pages/handbook".to_owned(),
        format!("notion://pages/{}", id(77)),
        format!("notion://page/{page}"),
        format!("notion://databases/{database}"),
    ] {
        transcript.read(&uri).await;
    }
    for number in 0..501 {
        let parent = json!({ "type": "data_source_id", "data_source_id": id(101), "database_id": id(100) });
        bench.server.workspace().page(&id(1000 + number), &format!("Task {number}"), parent);
    }
    transcript.read(&format!("notion://databases/{database}/rows")).await;
    for status in [401, 403, 500, 429] {
        bench.server.workspace().odd = vec![("/v1/", Odd::Status(status))];
        transcript.read(&format!("notion://pages/{page}")).await;
    }
    insta::with_settings!({ filters => [(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "[time]")] }, {
        insta::assert_snapshot!("notion", transcript.text());
    });
}
