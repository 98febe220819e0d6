//! A large workspace lists, reads and completes.

use std::collections::{BTreeMap, BTreeSet};

use libris_core::{CompletionRequest, Context, Source as _, Uri, UriTemplate};
use serde_json::{Value, json};

use super::Bench;
use super::server::{id, paragraph, rich};

/// 500 pages, 3 databases whose rows are some of them, and one page with blocks eight deep.
fn fill(bench: &Bench) {
    let mut workspace = bench.server.workspace();
    for (number, title) in [(1001, "Tasks"), (1002, "People"), (1003, "Places")] {
        workspace.database(&id(number), &id(number + 1000), title);
    }
    for number in 1..=500 {
        let parent = match number {
            1..=250 => {
                json!({ "type": "data_source_id", "data_source_id": id(2001), "database_id": id(1001) })
            }
            _ => json!({ "type": "workspace", "workspace": true }),
        };
        workspace.page(&id(number), &format!("Page {number}"), parent);
    }
    let item = |number: usize, words: &str, deeper: bool| json!({ "object": "block", "id": id(number), "type": "bulleted_list_item", "has_children": deeper, "bulleted_list_item": { "rich_text": rich(words) } });
    let mut below = id(500);
    for depth in 1..=8 {
        let own = 5000 + depth;
        workspace
            .blocks
            .insert(below, vec![item(own, &format!("Level {depth}"), depth < 8), paragraph("Beside")]);
        below = id(own);
    }
    workspace.blocks.insert(id(499), (0..250).map(|number| paragraph(&format!("Line {number}"))).collect());
}

#[tokio::test]
async fn a_large_workspace() {
    let bench = Bench::new().await;
    fill(&bench);
    let mut listed = Vec::new();
    let mut after: Option<Uri> = None;
    loop {
        let page = bench.notion.list(after.as_ref(), 100, &Context::default()).await.unwrap();
        after = page.resources.last().map(|last| last.uri.clone());
        listed.extend(page.resources);
        if !page.more {
            break;
        }
    }
    assert_eq!(listed.len(), 500 + 2 * 3 + 1);
    assert_eq!(listed.iter().map(|resource| &resource.uri).collect::<BTreeSet<_>>().len(), listed.len());
    let one = listed.iter().find(|resource| resource.name == "Page 7").unwrap();
    assert_eq!(one.uri.as_str(), format!("notion://pages/{}", id(7)));
    assert!(one.annotations.last_modified.is_some());
    assert!(one.icons[0].src.starts_with("data:image/svg+xml,%3Csvg"));
    let columns = listed.iter().find(|resource| resource.name == "Tasks: columns").unwrap();
    assert_eq!(columns.icons[0].src, "https://example.com/i.png");
    // All pages of the list came from one search, of six requests.
    assert_eq!(bench.server.workspace().requests.len(), 6);

    insta::assert_snapshot!(bench.text(&format!("notion://pages/{}", id(500))).await, @r#"
    # Page 500

    - Level 1
      - Level 2
        - Level 3
          - Level 4
            - Level 5
              - Level 6
                - Level 7
                  - Level 8

                  Beside

                Beside

              Beside

            Beside

          Beside

        Beside

      Beside

    Beside
    "#);
    let long = bench.text(&format!("notion://pages/{}", id(499))).await;
    assert!(long.contains("Line 0\n\nLine 1\n") && long.ends_with("Line 249\n"));
    let bare = id(500).replace('-', "");
    assert_eq!(
        bench.text(&format!("notion://workspace/pages/{bare}")).await,
        bench.text(&format!("notion://pages/{}?format=markdown", id(500))).await
    );
    let raw: Value =
        serde_json::from_str(&bench.text(&format!("notion://pages/{}?format=json", id(500))).await).unwrap();
    assert_eq!(raw["page"]["object"], "page");
    assert_eq!(raw["blocks"][0]["children"][0]["children"][0]["type"], "bulleted_list_item");

    let template = UriTemplate::parse("notion://pages/{pageId}{?format}").unwrap();
    let complete = async |variable, typed| {
        let asked =
            CompletionRequest { template: &template, variable, typed, known: &BTreeMap::new(), limit: 100 };
        bench.notion.complete(asked, &Context::default()).await.unwrap()
    };
    assert_eq!(
        complete("pageId", "page 42").await.values,
        [id(42), id(420), id(421), id(422), id(423), id(424), id(425), id(426), id(427), id(428), id(429)]
    );
    assert_eq!(complete("pageId", "499").await.values, [id(499)]);
    assert_eq!(complete("pageId", "").await.total, Some(500));
    assert_eq!(complete("format", "j").await.values, ["json"]);
}

#[tokio::test]
async fn databases() {
    let bench = Bench::new().await;
    fill(&bench);
    insta::assert_snapshot!(bench.text(&format!("notion://databases/{}/schema", id(1001))).await, @r#"{"description":"","id":"0b5f3c1e-0000-4000-8000-0000000003e9","rows":"notion://databases/0b5f3c1e-0000-4000-8000-0000000003e9/rows","tables":[{"id":"0b5f3c1e-0000-4000-8000-0000000007d1","properties":{"Name":{"id":"title","name":"Name","title":{},"type":"title"}},"title":"Tasks"}],"title":"Tasks"}"#);
    let rows: Value =
        serde_json::from_str(&bench.text(&format!("notion://databases/{}/rows", id(1001))).await).unwrap();
    assert_eq!(rows["rows"].as_array().unwrap().len(), 250);
    assert_eq!(rows["next"], Value::Null);
    assert_eq!(rows["rows"][0]["properties"], json!({ "Name": "Page 1" }));
    assert_eq!(rows["rows"][0]["uri"], format!("notion://pages/{}", id(1)));
    insta::assert_snapshot!(bench.text("notion://workspace/info").await, @r#"{"connection":"Libris","id":"0b5f3c1e-0000-4000-8000-000000000000","workspace":"Example"}"#);

    // Many rows, in two tables: each is read once, by following `next`.
    {
        let mut workspace = bench.server.workspace();
        let tables = json!([{ "id": id(2001) }, { "id": id(2002) }]);
        workspace.databases.get_mut(&id(1001)).unwrap()["data_sources"] = tables;
        for number in 0..700 {
            let parent =
                json!({ "type": "data_source_id", "data_source_id": id(2002), "database_id": id(1001) });
            workspace.page(&id(3000 + number), "Row", parent);
        }
    }
    let mut uri = format!("notion://databases/{}/rows", id(1001));
    let mut seen = BTreeSet::new();
    let mut reads = 0;
    loop {
        let rows: Value = serde_json::from_str(&bench.text(&uri).await).unwrap();
        let rows_of = rows["rows"].as_array().unwrap();
        assert!(rows_of.iter().all(|row| seen.insert(row["uri"].to_string())));
        reads += 1;
        match rows["next"].as_str() {
            Some(next) => uri = next.to_owned(),
            None => break,
        }
    }
    assert_eq!((seen.len(), reads), (950, 2));
}

#[tokio::test]
async fn a_synced_block_is_read_where_its_original_is() {
    let bench = Bench::new().await;
    {
        let mut workspace = bench.server.workspace();
        workspace.page(&id(1), "Copy", json!({ "type": "workspace" }));
        let synced = |own: usize, from: usize| json!({ "object": "block", "id": id(own), "type": "synced_block", "has_children": false, "synced_block": { "synced_from": { "type": "block_id", "block_id": id(from) } } });
        // The second is of something that is not shared with us, the third of itself.
        workspace.blocks.insert(id(1), vec![synced(2, 10), synced(3, 11), synced(4, 1)]);
        workspace.blocks.insert(id(10), vec![paragraph("The original")]);
    }
    let text = bench.text(&format!("notion://pages/{}", id(1))).await;
    assert!(text.starts_with("# Copy\n\nThe original\n"), "{text}");
}
