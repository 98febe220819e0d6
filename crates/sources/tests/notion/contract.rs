//! The contract suite.

use std::time::Duration;

use async_trait::async_trait;
use libris_core::contract::{Fixture, check};
use libris_core::{Source, Uri};
use serde_json::json;

use super::Bench;
use super::server::id;

#[async_trait]
impl Fixture for Bench {
    fn source(&self) -> &dyn Source {
        &self.notion
    }

    fn unknown(&self) -> Uri {
        Uri::parse(&format!("notion://pages/{}", id(999_999))).unwrap()
    }

    fn invalid(&self) -> Vec<Uri> {
        let id = id(1);
        [
            "notion://pages/..%2Fusers%2Fme",
            "notion://pages/abc123",
            "notion://databases/%00/schema",
            "notion://databases/x%3Fy/rows",
            "notion://workspace/other",
            &format!("notion://pages/{id}?format=pdf"),
            &format!("notion://databases/{id}/rows?after=x"),
        ]
        .map(|uri| Uri::parse(uri).unwrap())
        .into()
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let id = id(10_000 + number);
        self.server.workspace().page(&id, "Added", json!({ "type": "workspace" }));
        Some(Uri::parse(&format!("notion://pages/{id}")).unwrap())
    }

    async fn change(&self, uri: &Uri) -> bool {
        self.server.workspace().edit(uri.path().trim_matches('/'), "changed");
        true
    }

    async fn remove(&self, uri: &Uri) -> bool {
        self.server.workspace().pages.remove(uri.path().trim_matches('/')).is_some()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn a_workspace() {
    let bench = Bench::with(|config| config.cache = Duration::ZERO).await;
    {
        let mut workspace = bench.server.workspace();
        for number in 1..5 {
            workspace.page(&id(number), &format!("Page {number}"), json!({ "type": "workspace" }));
        }
        workspace.database(&id(100), &id(101), "Tasks");
    }
    check(&bench).await;
}
