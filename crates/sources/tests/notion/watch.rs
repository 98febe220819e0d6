//! Edits are reported as changes and invalidate cached content.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use libris_core::{Change, Context, Source as _, Uri};
use serde_json::json;

use super::Bench;
use super::server::{SOON, id};

#[tokio::test]
async fn edits_are_told() {
    // Everything is searched again only after an hour, so this is by what was edited last.
    let bench = Bench::with(|config| config.cache = Duration::from_secs(3600)).await;
    let row = json!({ "type": "data_source_id", "data_source_id": id(101), "database_id": id(100) });
    {
        let mut workspace = bench.server.workspace();
        workspace.database(&id(100), &id(101), "Tasks");
        workspace.page(&id(1), "A row", row.clone());
        workspace.page(&id(2), "Another", json!({ "type": "workspace" }));
    }
    let listed = bench.notion.list(None, 10, &Context::default()).await.unwrap().freshness.proof.unwrap();
    assert!(listed.holds());
    let page = format!("notion://pages/{}", id(1));
    let before = bench.read(&page).await.unwrap().freshness.proof.unwrap();
    let rows =
        bench.read(&format!("notion://databases/{}/rows", id(100))).await.unwrap().freshness.proof.unwrap();
    let other = bench.read(&format!("notion://pages/{}", id(2))).await.unwrap().freshness.proof.unwrap();
    let mut changes = bench.notion.watch().await.unwrap().unwrap();
    let mut told = async |wanted: Change| {
        let look = async { while changes.next().await.expect("a change") != wanted {} };
        tokio::time::timeout(SOON, look).await.unwrap_or_else(|_| panic!("{wanted:?} was not told"));
    };
    let uri = |text: &str| Uri::parse(text).unwrap();
    assert!(before.holds());
    bench.server.workspace().edit(&id(1), "new words");
    told(Change::Updated(uri(&page))).await;
    told(Change::Updated(uri(&format!("notion://databases/{}/rows", id(100))))).await;
    assert!(!before.holds() && !rows.holds() && other.holds());
    assert!(bench.text(&page).await.contains("new words"));
    bench.server.workspace().page(&id(3), "New", row);
    let added = format!("notion://pages/{}", id(3));
    told(Change::Added(uri(&added))).await;
    assert!(!listed.holds());
    // The list knows it without another search.
    let listed = bench.notion.list(None, 10, &Context::default()).await.unwrap().resources;
    assert!(listed.iter().any(|resource| resource.uri.as_str() == added));
}

#[tokio::test]
async fn a_signed_icon_is_no_change() {
    let bench = Bench::with(|config| config.cache = Duration::from_secs(3600)).await;
    {
        let mut workspace = bench.server.workspace();
        workspace.page(&id(1), "A page", json!({ "type": "workspace" }));
        workspace.icon(&id(1), "https://files.example/cat.png");
    }
    bench.notion.list(None, 10, &Context::default()).await.unwrap();
    let page = format!("notion://pages/{}", id(1));
    let before = bench.read(&page).await.unwrap().freshness.proof.unwrap();
    let mut changes = bench.notion.watch().await.unwrap().unwrap();
    let several_looks = async {
        while bench.server.workspace().asked("/search") < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        change = changes.next() => panic!("{change:?}"),
        () = several_looks => {}
    }
    // Another picture is told for the list; the page itself is as it was.
    bench.server.workspace().icon(&id(1), "https://files.example/dog.png");
    let change = tokio::time::timeout(SOON, changes.next()).await.expect("a change");
    assert_eq!(change, Some(Change::Described(Uri::parse(&page).unwrap())));
    assert!(before.holds());
}

#[tokio::test]
async fn a_change_that_another_replica_reports_drops_what_it_concerns() {
    let bench = Bench::with(|config| config.cache = Duration::from_secs(3600)).await;
    {
        let mut workspace = bench.server.workspace();
        workspace.page(&id(1), "One", json!({ "type": "workspace" }));
        workspace.page(&id(2), "Two", json!({ "type": "workspace" }));
    }
    bench.notion.list(None, 10, &Context::default()).await.unwrap();
    let uris = [1, 2].map(|number| format!("notion://pages/{}", id(number)));
    let mut proofs = Vec::new();
    for uri in &uris {
        proofs.push(bench.read(uri).await.unwrap().freshness.proof.unwrap());
    }
    bench.notion.invalidate(&Change::Updated(Uri::parse(&uris[0]).unwrap()));
    assert!(!proofs[0].holds() && proofs[1].holds());
    let searches = bench.server.workspace().asked("/search");
    bench.notion.list(None, 10, &Context::default()).await.unwrap();
    assert!(bench.server.workspace().asked("/search") > searches, "the list is searched again");
    bench.notion.invalidate(&Change::Lost);
    assert!(!proofs[1].holds());
}

#[tokio::test]
async fn contents_are_cached_for_a_time() {
    let page = format!("notion://pages/{}", id(1));
    let workspace = json!({ "type": "workspace" });
    let bench = Bench::with(|config| config.cache = Duration::from_secs(3600)).await;
    bench.server.workspace().page(&id(1), "A page", workspace.clone());
    let freshness = bench.read(&page).await.unwrap().freshness;
    assert!(freshness.proof.unwrap().holds());
    assert!(freshness.ttl > Duration::from_secs(3000) && freshness.ttl <= Duration::from_secs(3600));
    const BRIEF: Duration = Duration::from_millis(100);
    let bench = Bench::with(|config| config.cache = BRIEF).await;
    bench.server.workspace().page(&id(1), "A page", workspace);
    for _ in 0..2 {
        let begun = Instant::now();
        let proof = bench.read(&page).await.unwrap().freshness.proof.unwrap();
        while proof.holds() {
            assert!(begun.elapsed() < SOON, "the time is over");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The second read is not answered from the contents of the first one.
        assert!(begun.elapsed() >= BRIEF, "{:?}", begun.elapsed());
    }
    let bench = Bench::with(|config| config.cache = Duration::ZERO).await;
    bench.server.workspace().page(&id(1), "A page", json!({ "type": "workspace" }));
    assert!(bench.read(&page).await.unwrap().freshness.proof.is_none());
}
