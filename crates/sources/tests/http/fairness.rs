//! Requests of one client do not delay those of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libris_core::{Client, ContentMemory, Context, Source as _};
use tokio::task::JoinSet;

use crate::server::{Answer, Body, Server};
use crate::{config, source, uri};

fn context(last: u8) -> Context {
    Context::default().with_client(Client::at([127, 0, 0, last].into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_of_one_client_do_not_hold_up_another() {
    let server = Server::start(|received| match received.target.as_str() {
        "/quick" => Answer::json("1"),
        _ => Answer { body: Body::Never, ..Answer::json("") },
    })
    .await;
    let text = format!(
        "base = \"{}\"\nlimits = {{ allow_private = true, timeout = \"5m\", concurrency = 4 }}\n[[template]]\nuri = \
         \"any://{{x}}\"\nurl = \"{{/x}}\"",
        server.url()
    );
    let source = Arc::new(libris_sources::Http::new(config(&text)).unwrap());
    let mut slow = JoinSet::new();
    for at in 0..60 {
        let source = source.clone();
        slow.spawn(async move { source.read(&uri(&format!("any://{at}")), &context(1)).await });
    }
    let asked = async {
        let mut count = 0;
        while count < 3 {
            count += server.received().len();
            tokio::task::yield_now().await;
        }
        count
    };
    let asked =
        tokio::time::timeout(Duration::from_secs(20), asked).await.expect("the slow ones are asked for");
    let (quick, second) = (uri("any://quick"), context(2));
    let quick = tokio::time::timeout(Duration::from_secs(20), source.read(&quick, &second)).await;
    assert!(quick.expect("it waits for the slow ones").is_ok());
    assert_eq!((asked, server.received().len()), (3, 1));
}

/// An unlimited memory budget that records reservations.
#[derive(Default)]
struct Counted(AtomicUsize);

impl ContentMemory for Counted {
    fn reserve(&self, bytes: usize) -> bool {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    fn grow(&self, bytes: usize) -> bool {
        self.reserve(bytes)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_for_each_reader_is_counted() {
    let server = Server::start(|_| {
        Answer::new(200, "text/plain", "x".repeat(500_000)).with("cache-control", "max-age=600")
    })
    .await;
    let source = source(&server, "[[resource]]\nuri = \"any://large\"\nurl = \"/large\"");
    for _ in 0..3 {
        let memory = Arc::new(Counted::default());
        let context = Context::default().with_memory(memory.clone());
        let contents = source.read(&uri("any://large"), &context).await.unwrap();
        assert_eq!((contents.parts[0].body.len(), memory.0.load(Ordering::Relaxed)), (500_000, 500_000));
    }
    assert_eq!(server.received().len(), 1);
}

/// Large pages of a list stay in memory until the last one has arrived. Walks beyond the memory for them wait with what
/// they have, which is at most 1 MiB and a page.
// The handlers of second pages block their threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn walks_of_large_lists_share_memory() {
    const MIB: usize = 1 << 20;
    const WALKS: u8 = 5;
    let release = Arc::new(AtomicUsize::new(0));
    let (seen, released) = (Arc::new(AtomicUsize::new(0)), release.clone());
    let counted = seen.clone();
    // The body of the second page is large too; it is sent when the test says so.
    let server = Server::start(move |received| {
        let item = serde_json::json!([{ "id": received.target.len(), "filling": "x".repeat(MIB + MIB / 2) }]);
        let answer = Answer::json(item).with("cache-control", "no-store");
        if !received.target.contains("page=2") {
            return answer.with("link", "<?page=2>; rel=\"next\"");
        }
        counted.fetch_add(1, Ordering::SeqCst);
        while released.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        answer
    })
    .await;
    // Each walk reserves twice `max_size`: 12 of 32 MiB, so that two fit.
    let text = format!(
        "base = \"{}\"\nlimits = {{ allow_private = true, timeout = \"1m\", max_size = {}, concurrency = 32 }}\n\
         [[template]]\nuri = \"a://{{id}}\"\nurl = \"stations/{{id}}\"\nlist = {{ url = \"stations\", values = {{ id = \
         \"/id\" }} }}\n",
        server.url(),
        6 * MIB
    );
    let mut walks = JoinSet::new();
    for client in 1..=WALKS {
        // A source of its own each, since walks of one source share their requests.
        let source = libris_sources::Http::new(config(&text)).unwrap();
        walks.spawn(async move { source.list(None, 100, &context(client)).await });
    }
    let first_pages = async {
        let mut first = 0;
        while first < usize::from(WALKS) || seen.load(Ordering::SeqCst) < 2 {
            first += server.received().iter().filter(|received| !received.target.contains("page=2")).count();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), first_pages).await.expect("two walks go on");
    // The others would ask for their second page now.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(seen.load(Ordering::SeqCst), 2, "more walks hold their pages than fit");
    release.store(1, Ordering::SeqCst);
    let listed = walks.join_all().await;
    assert!(
        listed.iter().all(|page| page.as_ref().is_ok_and(|page| page.resources.len() == 2)),
        "{listed:?}"
    );
}
