//! Fairness of a catalog: slow reads of one client do not delay another client.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use libris::uri_template::Specificity;
use libris::{Catalog, Content, Contents, Context, Page, Result, Source, Uri};
use libris_core::Client;
use libris_sources::{Git, Sql, git, sql};
use tokio::sync::mpsc;
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
