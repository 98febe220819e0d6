//! No resource is in the index twice: the feeder adds resources that the index does not have without deleting older versions.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use libris::uri_template::Specificity;
use libris::{Content, Contents, Context, Page, Resource, Result, SearchConfig, Source, Uri};

use super::{files, folder, indexed, search, until, uris, view};

/// A source that repeats the last resource of a page on the next one.
struct Repeating;

#[async_trait]
impl Source for Repeating {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == "note").then_some(Specificity::EXACT)
    }

    fn name(&self) -> Cow<'_, str> {
        "repeating".into()
    }

    async fn list(&self, after: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        let names: &[&str] = if after.is_none() { &["note:a"] } else { &["note:a", "note:b"] };
        let resources = names.iter().map(|name| Resource::new(Uri::parse(name).unwrap(), *name)).collect();
        Ok(Page { resources, more: after.is_none(), ..Page::default() })
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        Ok(Content::text(uri.clone(), "text/plain", "about retention").into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_is_listed_twice_is_indexed_once() {
    let catalog = indexed(vec![Arc::new(Repeating)], SearchConfig::default()).await;
    let answer = search(&view(&catalog), "retention").await;
    let mut found = uris(&answer);
    found.sort_unstable();
    assert_eq!((found, answer.total), (vec!["note:a", "note:b"], 2));
}

/// A catalog that takes the index over has what the one before it committed last.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_commit_of_another_process_is_known() {
    let folder = folder(&[("a.md", "about backups")]);
    let cache = tempfile::tempdir().unwrap();
    let config = SearchConfig { folder: Some(cache.path().join("index")), ..SearchConfig::default() };
    let first = indexed(vec![files(&folder)], config.clone()).await;
    let second = indexed(vec![files(&folder)], config).await;
    std::fs::write(folder.path().join("docs/new.md"), "about retention").unwrap();
    until(&view(&first), "retention", 1).await;
    drop(first);
    // What the second one indexes itself is searchable only after it has taken over.
    std::fs::write(folder.path().join("docs/newer.md"), "about keys").unwrap();
    until(&view(&second), "keys", 1).await;
    let answer = search(&view(&second), "retention").await;
    assert_eq!((uris(&answer), answer.total), (vec!["file:///docs/new.md"], 1));
}
