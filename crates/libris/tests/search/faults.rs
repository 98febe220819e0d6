//! Sources that cannot be listed, read or watched for a while: nothing is lost, and what is missing is named.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use libris::uri_template::Specificity;
use libris::{Catalog, Change, Contents, Context, Error, Page, Result, SearchConfig, Source, Uri};

use crate::{Notes, files, folder, indexed, search, status, until, uris, view};

/// Notes with a date that fail as a test says.
struct Failing {
    notes: Notes,
    /// How many of the next reads, lists and watches fail.
    reads: AtomicUsize,
    lists: AtomicUsize,
    watches: AtomicUsize,
    changes: tokio::sync::broadcast::Sender<Change>,
}

impl Failing {
    fn new(reads: usize, lists: usize, watches: usize) -> Arc<Self> {
        Arc::new(Self {
            notes: Notes::new(&[("note:a", "about retention"), ("note:b", "about backups")]),
            reads: reads.into(),
            lists: lists.into(),
            watches: watches.into(),
            changes: tokio::sync::broadcast::channel(8).0,
        })
    }

    fn fails(counter: &AtomicUsize) -> bool {
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[async_trait]
impl Source for Failing {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.notes.covers(uri)
    }

    fn name(&self) -> Cow<'_, str> {
        "failing".into()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        if Self::fails(&self.lists) {
            return Err(Error::failed("list the notes", "the test says so"));
        }
        let mut page = self.notes.list(after, limit, context).await?;
        for resource in &mut page.resources {
            resource.annotations.last_modified = Some("2026-01-31T12:00:00Z".parse().unwrap());
        }
        Ok(page)
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        match Self::fails(&self.reads) {
            true => Err(Error::Busy("too many documents are waiting")),
            false => self.notes.read(uri, context).await,
        }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        if Self::fails(&self.watches) {
            return Err(Error::failed("watch the notes", "the test says so"));
        }
        let changes = self.changes.subscribe();
        let changes = futures_util::stream::unfold(changes, async |mut changes| {
            let change = changes.recv().await.ok()?;
            Some((change, changes))
        });
        Ok(Some(changes.boxed()))
    }
}

/// A resource that cannot be read is found by its text once it can, and the status says that it is missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_could_not_be_read_is_read_again() {
    let source = Failing::new(usize::MAX, 0, 0);
    let catalog = indexed(vec![source.clone()], SearchConfig::default()).await;
    let attempts = usize::MAX - source.reads.load(Ordering::Relaxed);
    assert!(attempts > 2, "each is read several times before the index counts as complete: {attempts}");
    // The status follows the completion.
    let named = async {
        while !status(&catalog).await.contains("2 could not be read") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), named).await.expect("the status names what was not read");
    let view = view(&catalog);
    assert_eq!(search(&view, "retention").await.hits, []);
    source.reads.store(0, Ordering::Relaxed);
    assert_eq!(uris(&until(&view, "retention", 1).await), ["note:a"]);
    assert_eq!(uris(&until(&view, "backups", 1).await), ["note:b"]);
    // The status follows the commit that makes the text findable.
    let forgotten = async {
        while status(&catalog).await.contains("could not be read") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), forgotten).await.expect("the status is current");
    // A short failure goes unnoticed.
    let catalog = indexed(vec![Failing::new(1, 0, 0)], SearchConfig::default()).await;
    assert_eq!(search(&self::view(&catalog), "retention").await.hits.len(), 1);
}

/// Texts that could not be read are read by the next process, although the resources have the same dates.
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_text_is_not_lost_after_a_restart() {
    let cache = tempfile::tempdir().unwrap();
    let config = SearchConfig { folder: Some(cache.path().join("index")), ..SearchConfig::default() };
    let catalog = indexed(vec![Failing::new(usize::MAX, 0, 0)], config.clone()).await;
    assert_eq!(search(&view(&catalog), "retention").await.hits, []);
    drop(catalog);
    let catalog = indexed(vec![Failing::new(0, 0, 0)], config).await;
    assert_eq!(uris(&until(&view(&catalog), "retention", 1).await), ["note:a"]);
}

/// A catalog in strict mode, whose index is being built.
fn strict(source: &Arc<Failing>) -> Arc<Catalog> {
    let config = libris::catalog::Config { strict: true, ..libris::catalog::Config::default() };
    let catalog = Arc::new(Catalog::with_config(vec![source.clone()], config));
    catalog.start_search(SearchConfig { is_awaited: true, ..SearchConfig::default() }).unwrap();
    catalog
}

/// A change that is reported while the sources cannot be listed removes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_listing_removes_no_resource() {
    let source = Failing::new(0, 0, 0);
    let catalog = strict(&source);
    catalog.search_index_completed().await.unwrap();
    source.lists.store(usize::MAX, Ordering::Relaxed);
    let before = source.lists.load(Ordering::Relaxed);
    while source.changes.send(Change::Updated(Uri::parse("note:a").unwrap())).is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let noticed = async {
        while source.lists.load(Ordering::Relaxed) == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), noticed).await.expect("the change is noticed");
    // The listing of the change failed; the next commit would remove the resource.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(uris(&search(&view(&catalog), "retention").await), ["note:a"]);
}

/// In strict mode, a source that cannot be watched or listed makes the search wait neither forever nor in silence.
#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_reports_what_cannot_be_listed_and_recovers() {
    let source = Failing::new(0, usize::MAX, 1);
    let catalog = strict(&source);
    let completed =
        tokio::time::timeout(Duration::from_secs(60), catalog.search_index_completed()).await.unwrap();
    assert!(completed.is_err(), "a listing that fails is no complete index");
    assert!(status(&catalog).await.contains("the sources could not be listed"));
    source.lists.store(0, Ordering::Relaxed);
    assert_eq!(uris(&until(&view(&catalog), "retention", 1).await), ["note:a"]);
}

/// An index that lacks the resources of a source that did not answer is not marked as complete on the disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_partial_index_is_not_marked_as_complete() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("index");
    let config = SearchConfig { folder: Some(folder.clone()), ..SearchConfig::default() };
    let texts = [("other:a", "about retention")];
    let sources: Vec<Arc<dyn Source>> = vec![Failing::new(0, usize::MAX, 0), Arc::new(Notes::new(&texts))];
    let catalog = indexed(sources, config).await;
    assert_eq!(uris(&search(&view(&catalog), "retention").await), ["other:a"]);
    drop(catalog);
    let index = libris_search::SearchIndex::open(&folder).unwrap();
    assert!(!index.is_complete().unwrap());
    assert_eq!(index.len().unwrap(), 1);
}

/// Flipped bits in a file of the index are noticed after a restart, even if no search reads them.
#[tokio::test(flavor = "multi_thread")]
async fn flipped_bits_are_noticed() {
    let folder = folder(&[("a.md", "about retention"), ("b.md", "about backups")]);
    let cache = tempfile::tempdir().unwrap();
    let path = cache.path().join("index");
    let config = SearchConfig { folder: Some(path.clone()), ..SearchConfig::default() };
    let restart = async || indexed(vec![files(&folder)], config.clone()).await;
    drop(restart().await);
    let damaged = || -> Vec<_> {
        let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "store" || end == "term")).collect()
    };
    let before = damaged();
    assert!(!before.is_empty());
    for file in &before {
        let mut data = std::fs::read(file).unwrap();
        let middle = data.len() / 2;
        data[middle] ^= 1;
        std::fs::write(file, data).unwrap();
    }
    let catalog = restart().await;
    let rebuilt = async {
        while before.iter().any(|file| file.exists()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), rebuilt).await.expect("the index is built again");
    assert_eq!(uris(&until(&view(&catalog), "retention", 1).await), ["file:///docs/a.md"]);
}

/// An index whose folder could not be written moves there once it can be.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_returns_to_its_folder() {
    let folder = folder(&[("a.md", "about retention")]);
    let cache = tempfile::tempdir().unwrap();
    let obstacle = cache.path().join("index");
    std::fs::write(&obstacle, "").unwrap();
    let config = SearchConfig { folder: Some(obstacle.clone()), ..SearchConfig::default() };
    let catalog = indexed(vec![files(&folder)], config).await;
    assert!(status(&catalog).await.contains("in memory only"));
    std::fs::remove_file(&obstacle).unwrap();
    let moved = async {
        while status(&catalog).await.contains("in memory only") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), moved).await.expect("the index moves to the disk");
    assert_eq!(uris(&until(&view(&catalog), "retention", 1).await), ["file:///docs/a.md"]);
    assert!(obstacle.join("meta.json").exists());
}

/// A visibility check that panics, as a search does that hits a bug.
struct Panicking;

impl libris_core::Visibility for Panicking {
    fn sees(&self, _: &Uri) -> bool {
        panic!("the test says so")
    }
}

/// A search that fails on an index without damage has the index rebuilt once: a caller cannot repeat it.
#[tokio::test(flavor = "multi_thread")]
async fn failing_searches_rebuild_an_intact_index_once() {
    let folder = folder(&[("a.md", "about retention")]);
    let catalog = indexed(vec![files(&folder)], SearchConfig::default()).await;
    let query = libris::SearchQuery::new("retention", 10);
    let fail = async || {
        let context = Context::default().with_visibility(Arc::new(Panicking));
        catalog.search(&query, &context).await
    };
    let found = async || catalog.search(&query, &Context::default()).await.unwrap().unwrap();
    // The index is dropped, and the feeder builds another one.
    assert!(fail().await.is_ok());
    let rebuilt = async {
        loop {
            let answer = found().await;
            if answer.indexing.is_none() && answer.hits.len() == 1 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), rebuilt).await.expect("the index is rebuilt");
    for _ in 0..3 {
        assert!(fail().await.is_err());
        let answer = found().await;
        assert_eq!((answer.hits.len(), answer.indexing), (1, None), "the index is still in use");
    }
}
