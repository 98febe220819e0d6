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
