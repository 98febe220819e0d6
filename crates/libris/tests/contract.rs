//! The contract suite, on a catalog.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libris::{Catalog, Source, Uri};
use libris_core::contract::{Fixture, check};
use libris_sources::{Files, Inline, files, inline};

struct Joined {
    folder: tempfile::TempDir,
    catalog: Catalog,
}

impl Joined {
    /// Two folders whose URIs interleave, and inline resources on both sides of them.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut sources: Vec<Arc<dyn Source>> = Vec::new();
        for name in ["one", "one.more"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.join("deep")).unwrap();
            std::fs::write(path.join("a.txt"), name).unwrap();
            std::fs::write(path.join("deep/b.md"), name).unwrap();
            sources.push(Arc::new(Files::open(files::Config::new(path)).unwrap()));
        }
        let resource = |uri: &str| inline::InlineEntry {
            text: Some(uri.to_owned()),
            ..inline::InlineEntry::new(Uri::parse(uri).unwrap())
        };
        let config = inline::Config {
            resources: ["a:first", "file:///one-inline", "z:last"].map(resource).into(),
            ..inline::Config::default()
        };
        sources.push(Arc::new(Inline::new(config, folder.path()).unwrap()));
        let catalog = Catalog::new(sources);
        catalog.add_status();
        Self { folder, catalog }
    }

    fn path(&self, uri: &Uri) -> PathBuf {
        self.folder.path().join(uri.path().trim_start_matches('/'))
    }
}

#[async_trait]
impl Fixture for Joined {
    fn source(&self) -> &dyn Source {
        &self.catalog
    }

    fn unknown(&self) -> Uri {
        Uri::parse("file:///one/nowhere.txt").unwrap()
    }

    fn invalid(&self) -> Vec<Uri> {
        ["file:///one/..%2Fone.more/a.txt", "b:nothing"].map(|uri| Uri::parse(uri).unwrap()).into()
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let mount = if number.is_multiple_of(2) { "one" } else { "one.more" };
        let uri = Uri::parse(&format!("file:///{mount}/added-{number}.txt")).unwrap();
        std::fs::write(self.path(&uri), "added").unwrap();
        Some(uri)
    }

    async fn change(&self, uri: &Uri) -> bool {
        std::fs::write(self.path(uri), "changed").is_ok()
    }

    async fn remove(&self, uri: &Uri) -> bool {
        std::fs::remove_file(self.path(uri)).is_ok()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_is_a_source() {
    check(&Joined::new()).await;
}
