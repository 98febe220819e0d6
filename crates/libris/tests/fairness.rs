//! Fairness of a catalog: slow reads and searches of one client do not delay another client.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use libris::uri_template::Specificity;
use libris::{
    Catalog, Content, Contents, Context, Page, Result, SearchAnswer, SearchHit, SearchQuery, Source, Uri,
};
use libris_core::Client;
use libris_sources::{Git, Sql, git, sql};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

/// The number of concurrent slow reads.
const SLOW: usize = 60;

fn context(last: u8) -> Context {
    Context::default().with_client(Client::at([127, 0, 0, last].into()))
}

/// The number of slow reads of one client that end before another client's read.
async fn ended_before(source: impl Source, slow: &str, quick: &str) -> usize {
    let catalog = Arc::new(Catalog::new(vec![Arc::new(source)]));
    let (slow, quick) = (Uri::parse(slow).unwrap(), Uri::parse(quick).unwrap());
    let (asked, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut reads = JoinSet::new();
    for _ in 0..SLOW {
        let (catalog, slow, asked, ended) = (catalog.clone(), slow.clone(), asked.clone(), ended.clone());
        reads.spawn(async move {
            asked.fetch_add(1, Ordering::SeqCst);
            let read = catalog.read(&slow, &context(1)).await;
            ended.fetch_add(1, Ordering::SeqCst);
            read
        });
    }
    while asked.load(Ordering::SeqCst) < SLOW {
        tokio::task::yield_now().await;
    }
    catalog.read(&quick, &context(2)).await.unwrap();
    let ended = ended.load(Ordering::SeqCst);
    // They succeed: they are slow because of their work, not because of a failure.
    reads.join_next().await.unwrap().unwrap().unwrap();
    ended
}

#[tokio::test]
async fn slow_queries_of_one_client_do_not_hold_up_another() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    database.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1);").unwrap();
    let config = serde_json::json!({
        "url": format!("sqlite:{}", file.display()),
        "name": "shop",
        "timeout": "5m",
        "query": [{
            "uri": "slow://count",
            "sql": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 200000) \
                    SELECT count(*) FROM c",
        }],
    });
    let config: sql::Config = serde_json::from_value(config).unwrap();
    let source = Sql::open(config, dir.path()).unwrap();
    let ended = ended_before(source, "slow://count", "sqlite://shop/t/rows/1").await;
    assert!(ended < SLOW / 3, "{ended} slow queries were waited for");
}

/// A repository with one file and this many commits that change it.
fn repository(path: &Path, commits: usize) {
    let run = |arguments: &[&str], input: &str| {
        let mut git = Command::new("git")
            .arg("-C")
            .arg(path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        git.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(git.wait().unwrap().success());
    };
    run(&["init", "-q", "--bare"], "");
    let commit = |at: usize| {
        let text = at.to_string();
        format!(
            "commit refs/heads/main\ncommitter A <a@example.org> {at} +0000\ndata 1\nm\nM 644 inline file\ndata \
             {}\n{text}\n",
            text.len()
        )
    };
    run(&["fast-import", "--quiet"], &(1..=commits).map(commit).collect::<String>());
    run(&["symbolic-ref", "HEAD", "refs/heads/main"], "");
}

#[tokio::test]
async fn slow_reads_of_a_repository_by_one_client_do_not_hold_up_another() {
    let dir = tempfile::tempdir().unwrap();
    repository(dir.path(), 1_000);
    let path = dir.path().to_owned();
    let config = git::Config { path, name: Some("r".into()), ..git::Config::default() };
    let source = Git::open(config).unwrap();
    let slow = "git://r/log/HEAD?path=nothing&limit=1000";
    let ended = ended_before(source, slow, "git://r/blob/HEAD/file").await;
    assert!(ended < SLOW / 3, "{ended} slow reads were waited for");
}

/// A source whose blocking work continues until the test ends it, even if the read is dropped.
struct Uninterruptible {
    begun: mpsc::UnboundedSender<std::sync::mpsc::Sender<()>>,
}

impl Uninterruptible {
    async fn work(&self, context: &Context) {
        let (end, ended) = std::sync::mpsc::channel();
        let context = context.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _context = context;
            let _ = ended.recv();
        });
        let _ = self.begun.send(end);
        work.await.unwrap();
    }
}

#[async_trait]
impl Source for Uninterruptible {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == "slow").then_some(Specificity::EXACT)
    }

    async fn list(&self, _: Option<&Uri>, _: usize, context: &Context) -> Result<Page> {
        self.work(context).await;
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.work(context).await;
        Ok(Content::text(uri.clone(), "text/plain", "").into())
    }

    async fn children(&self, _: &Uri, _: Option<&Uri>, _: usize, context: &Context) -> Result<Page> {
        self.work(context).await;
        Ok(Page::default())
    }

    fn concurrency(&self) -> usize {
        1
    }
}

#[tokio::test]
async fn a_turn_is_held_until_the_work_has_ended() {
    let (begun, mut works) = mpsc::unbounded_channel();
    let catalog = Catalog::new(vec![Arc::new(Uninterruptible { begun })]);
    let uri = Uri::parse("slow://work").unwrap();
    let (one, other) = (context(1), context(2));
    let ask = async |what: usize, context: &Context| match what {
        0 => catalog.read(&uri, context).await.map(drop),
        1 => catalog.list(None, 1, context).await.map(drop),
        _ => catalog.children(&uri, None, 1, context).await.map(drop),
    };
    for what in 0..3 {
        let end = {
            let mut abandoned = Box::pin(ask(what, &one));
            tokio::select! {
                _ = &mut abandoned => unreachable!("the work has not ended"),
                end = works.recv() => end.unwrap(),
            }
        };
        let mut waiting = Box::pin(ask(what, &other));
        for _ in 0..20 {
            assert!((&mut waiting).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        assert!(works.try_recv().is_err(), "the source works on one request at a time: {what}");
        end.send(()).unwrap();
        let end = tokio::select! {
            _ = &mut waiting => unreachable!("the work has not ended"),
            end = works.recv() => end.unwrap(),
        };
        end.send(()).unwrap();
        waiting.await.unwrap();
    }
}

/// A source with contents that callers share. It records for which clients it reads.
#[derive(Default)]
struct Shared {
    readers: Mutex<Vec<Client>>,
}

#[async_trait]
impl Source for Shared {
    fn covers(&self, _: &Uri) -> Option<Specificity> {
        Some(Specificity::EXACT)
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.readers.lock().unwrap().push(context.client());
        Ok(Content::text(uri.clone(), "text/plain", "text").into())
    }

    fn is_shared(&self, _: &Uri) -> bool {
        true
    }
}

#[tokio::test]
async fn a_shared_read_counts_for_the_client_that_started_it() {
    let source = Arc::new(Shared::default());
    let catalog = Catalog::new(vec![source.clone()]);
    for number in 1..=2 {
        let uri = Uri::parse(&format!("shared://{number}")).unwrap();
        catalog.read(&uri, &context(number)).await.unwrap();
    }
    assert_eq!(*source.readers.lock().unwrap(), [1, 2].map(|number| context(number).client()));
}

/// A source with contents that callers share. Reads for client 1 do not end, and those for others take a while.
struct Hanging {
    begun: AtomicUsize,
}

#[async_trait]
impl Source for Hanging {
    fn covers(&self, _: &Uri) -> Option<Specificity> {
        Some(Specificity::EXACT)
    }

    fn concurrency(&self) -> usize {
        4
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        if context.client() == self::context(1).client() {
            std::future::pending::<()>().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        Ok(Content::text(uri.clone(), "text/plain", "text").into())
    }

    fn is_shared(&self, _: &Uri) -> bool {
        true
    }
}

#[tokio::test]
async fn shared_reads_in_the_queue_of_one_client_do_not_hold_up_another() {
    let source = Arc::new(Hanging { begun: AtomicUsize::new(0) });
    let catalog = Arc::new(Catalog::new(vec![source.clone()]));
    let uri = |number: usize| Uri::parse(&format!("shared://{number}")).unwrap();
    let mut reads = JoinSet::new();
    for number in 0..SLOW {
        let (catalog, uri) = (catalog.clone(), uri(number));
        reads.spawn(async move { catalog.read(&uri, &context(1)).await });
    }
    while source.begun.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    // It waits in the queue of client 1. Client 2 needs not wait there.
    let read = async { catalog.read(&uri(SLOW - 1), &context(2)).await };
    tokio::time::timeout(Duration::from_secs(30), read).await.expect("another client is served").unwrap();
    // What client 2 has read is shared with client 1.
    let read = async {
        while reads.join_next().now_or_never().is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), read).await.expect("the same read of client 1 ends");
    assert_eq!(source.begun.load(Ordering::SeqCst), 4);
}

/// A source whose reads and searches share connections in FIFO order, as those of a database do. The searches of client 1
/// occupy their connections until the test ends.
struct Connections {
    free: Arc<Semaphore>,
    /// The number of searches of client 1 that have a connection or wait for one.
    slow: Arc<AtomicUsize>,
}

impl Connections {
    const COUNT: usize = 4;

    async fn run(&self, context: &Context) {
        let connection = self.free.clone().acquire_owned().await.unwrap();
        if context.client() == self::context(1).client() {
            let context = context.clone();
            let work = tokio::spawn(async move {
                let _held = (connection, context);
                std::future::pending::<()>().await;
            });
            work.await.unwrap();
        }
    }
}

#[async_trait]
impl Source for Connections {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (uri.scheme() == "row").then_some(Specificity::EXACT)
    }

    fn concurrency(&self) -> usize {
        Self::COUNT
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.run(context).await;
        Ok(Content::text(uri.clone(), "text/plain", "").into())
    }

    fn has_search(&self) -> bool {
        true
    }

    async fn search(&self, _: &SearchQuery, context: &Context) -> Result<Option<SearchAnswer>> {
        if context.client() == self::context(1).client() {
            self.slow.fetch_add(1, Ordering::SeqCst);
        }
        self.run(context).await;
        let hits = vec![SearchHit { uri: "row://found".to_owned(), ..SearchHit::default() }];
        Ok(Some(SearchAnswer { hits, total: 1, ..SearchAnswer::default() }))
    }
}

#[tokio::test(start_paused = true)]
async fn searches_of_one_client_do_not_hold_up_reads_and_searches_of_another() {
    let slow = Arc::new(AtomicUsize::new(0));
    let free = Arc::new(Semaphore::new(Connections::COUNT));
    let catalog = Arc::new(Catalog::new(vec![Arc::new(Connections { free, slow: slow.clone() })]));
    let mut searches = JoinSet::new();
    for _ in 0..SLOW {
        let catalog = catalog.clone();
        searches.spawn(async move {
            catalog.search(&SearchQuery::new("word", 10), &context(1)).await.unwrap().unwrap().left_out.len()
        });
    }
    // Each search ends at its time limit, without the source, whose work continues.
    let left_out = searches.join_all().await;
    assert_eq!(left_out, [1; SLOW]);
    assert_eq!(slow.load(Ordering::SeqCst), Connections::COUNT - 1, "one connection is left for others");
    let others = async {
        catalog.read(&Uri::parse("row://1").unwrap(), &context(2)).await.unwrap();
        catalog.search(&SearchQuery::new("word", 10), &context(2)).await.unwrap().unwrap().hits.len()
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(1), others).await, Ok(1));
}

/// Lets a caller see everything, once the test says so.
#[cfg(feature = "search")]
struct Delayed {
    asked: mpsc::UnboundedSender<()>,
    end: Mutex<std::sync::mpsc::Receiver<()>>,
}

#[cfg(feature = "search")]
impl libris_core::Visibility for Delayed {
    fn sees(&self, _: &Uri) -> bool {
        let _ = self.asked.send(());
        // An error: the test has ended.
        let _ = self.end.lock().unwrap().recv();
        true
    }
}

#[cfg(feature = "search")]
#[tokio::test(flavor = "multi_thread")]
async fn searches_of_the_index_by_one_client_do_not_hold_up_another() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("note.md"), "about retention").unwrap();
    let config = libris_sources::files::Config { path: dir.path().to_owned(), ..Default::default() };
    let source = libris_sources::Files::open(config).unwrap();
    let catalog = Arc::new(Catalog::new(vec![Arc::new(source)]));
    let config = libris::SearchConfig { is_awaited: true, ..libris::SearchConfig::default() };
    catalog.start_search(config).unwrap();
    catalog.search_index_completed().await.unwrap();
    let (asked, mut begun) = mpsc::unbounded_channel();
    let (end, ended) = std::sync::mpsc::channel();
    let delayed = Arc::new(Delayed { asked, end: Mutex::new(ended) });
    let query = SearchQuery::new("retention", 10);
    let mut searches = JoinSet::new();
    for _ in 0..SLOW {
        let (catalog, query) = (catalog.clone(), query.clone());
        let context = context(1).with_visibility(delayed.clone());
        searches.spawn(async move { catalog.search(&query, &context).await });
    }
    // The searches of client 1 that have a permit check what is visible.
    begun.recv().await.unwrap();
    let other = async { catalog.search(&query, &context(2)).await };
    let other = tokio::time::timeout(Duration::from_secs(30), other).await;
    drop(end);
    assert_eq!(other.expect("another client is answered").unwrap().unwrap().hits.len(), 1);
    for search in searches.join_all().await {
        assert_eq!(search.unwrap().unwrap().hits.len(), 1);
    }
}
