//! Change detection by polling, while resources are followed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use libris_core::{Change, Client, Context, Source};
use libris_sources::Http;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

use crate::server::{Answer, Body, Server};
use crate::{config, read, source, uri};

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn what_is_subscribed_to_is_told() {
    let number = Arc::new(AtomicU32::new(1));
    let said = number.clone();
    let server = Server::start(move |received| match said.load(Ordering::SeqCst) {
        0 => Answer::status(404),
        99 => Answer::status(500),
        number => Answer::json(number).tagged(received),
    })
    .await;
    let source = source(&server, "[[template]]\nuri = \"count://{what}\"\nurl = \"{/what}\"\n");
    let mut changes = source.watch().await.unwrap().unwrap();
    let sheep = uri("count://sheep");
    assert_eq!(read(&source, "count://sheep").await.unwrap(), "1");
    source.follow(&sheep, Client::default());
    // An outage is not a change; different content after it is.
    for now in [2, 3, 0, 4, 99, 5] {
        number.store(now, Ordering::SeqCst);
        if now == 99 {
            continue;
        }
        let change = timeout(LONG, changes.next()).await.expect("a change is told").unwrap();
        assert_eq!(change, Change::Updated(sheep.clone()), "{now}");
    }
    assert!(server.received().iter().all(|received| received.target == "/sheep"));
    assert_eq!(read(&source, "count://sheep").await.unwrap(), "5");
    // Dropping the watch ends polling.
    drop(changes);
    server.received();
    let mut changes = source.watch().await.unwrap().unwrap();
    let goats = uri("count://goats");
    read(&source, "count://goats").await.unwrap();
    source.follow(&goats, Client::default());
    number.store(6, Ordering::SeqCst);
    assert_eq!(timeout(LONG, changes.next()).await.unwrap().unwrap(), Change::Updated(goats));
    assert!(server.received().iter().all(|received| received.target == "/goats"));
}

#[tokio::test]
async fn what_nobody_subscribes_to_any_more_is_not_asked_for() {
    let (asked, mut targets) = unbounded_channel();
    let server = Server::start(move |received| {
        asked.send(received.target.clone()).unwrap();
        Answer::json("1")
    })
    .await;
    let source = source(&server, "[[template]]\nuri = \"count://{what}\"\nurl = \"{/what}\"\n");
    let mut changes = source.watch().await.unwrap().unwrap();
    let looking = tokio::spawn(async move { changes.next().await });
    let [sheep, goats] = ["count://sheep", "count://goats"].map(uri);
    source.follow(&sheep, Client::default());
    source.follow(&goats, Client::default());
    let mut next = async || timeout(LONG, targets.recv()).await.expect("it is asked for").unwrap();
    while next().await != "/sheep" {}
    source.unfollow(&sheep);
    let mut seen = Vec::new();
    while seen.iter().filter(|target| *target == "/goats").count() < 8 {
        seen.push(next().await);
    }
    // One or two polls may have been in flight.
    assert!(seen.iter().filter(|target| *target == "/sheep").count() <= 2, "{seen:?}");
    looking.abort();
}

#[tokio::test]
async fn a_long_round_keeps_nobody_waiting() {
    let slow = Arc::new(AtomicBool::new(false));
    let is_slow = slow.clone();
    let (asked, mut targets) = unbounded_channel();
    let server = Server::start(move |received| {
        asked.send(received.target.clone()).unwrap();
        match received.target.as_str() {
            "/cities" if is_slow.load(Ordering::SeqCst) => Answer { body: Body::Never, ..Answer::json("") },
            "/cities" => Answer::json("[]"),
            _ => Answer::json("1"),
        }
    })
    .await;
    // The list request delays a polling round by up to its time-out.
    let text = format!(
        "base = \"{}\"\npoll = \"30ms\"\nlimits = {{ allow_private = true, timeout = \"1h\" }}
         [[template]]\nuri = \"city://{{id}}\"\nurl = \"cities/{{id}}\"
         list = {{ url = \"cities\", values = {{ id = \"/id\" }} }}",
        server.url()
    );
    let source = Http::new(config(&text)).unwrap();
    let mut changes = source.watch().await.unwrap().unwrap();
    let looking = tokio::spawn(async move { changes.next().await });
    slow.store(true, Ordering::SeqCst);
    let mut until = async |target: &str| {
        while timeout(LONG, targets.recv()).await.expect("it is asked for").unwrap() != target {}
    };
    // The first request is the baseline of the watch.
    until("/cities").await;
    until("/cities").await;
    source.follow(&uri("city://lima"), Client::default());
    until("/cities/lima").await;
    looking.abort();
}

#[tokio::test]
async fn more_than_can_be_followed_is_told_too() {
    let server = Server::start(|received| Answer::json("1").tagged(received)).await;
    let source = source(&server, "[[template]]\nuri = \"count://{what}\"\nurl = \"{/what}\"\n");
    let mut changes = source.watch().await.unwrap().unwrap();
    for number in 0..1_001 {
        source.follow(&uri(&format!("count://{number}")), Client::default());
    }
    assert_eq!(timeout(LONG, changes.next()).await.unwrap().unwrap(), Change::Lost);
}

#[tokio::test]
async fn lists_are_told() {
    let cities = Arc::new(Mutex::new(vec![json!({ "id": "a", "name": "A" })]));
    let held = cities.clone();
    let server =
        Server::start(move |received| Answer::json(json!(*held.lock().unwrap())).tagged(received)).await;
    let source = source(
        &server,
        r#"
        [[template]]
        uri = "city://{id}"
        url = "cities/{id}"
        list = { url = "cities", values = { id = "/id" }, title = "/name" }
        "#,
    );
    let mut changes = source.watch().await.unwrap().unwrap();
    cities.lock().unwrap().push(json!({ "id": "b", "name": "B" }));
    let mut next = async || timeout(LONG, changes.next()).await.unwrap().unwrap();
    assert_eq!(next().await, Change::Added(uri("city://b")));
    cities.lock().unwrap()[1]["name"] = "Bee".into();
    assert_eq!(next().await, Change::Described(uri("city://b")));
    cities.lock().unwrap().remove(0);
    assert_eq!(next().await, Change::Removed(uri("city://a")));
    // Items without a valid `id` are skipped.
    cities.lock().unwrap().extend([
        json!({ "id": ".." }),
        json!({ "id": null }),
        json!(7),
        json!({ "id": "c" }),
    ]);
    assert_eq!(next().await, Change::Added(uri("city://c")));
    let listed = source.list(None, 10, &Context::default()).await.unwrap().resources;
    assert_eq!(listed.iter().map(|one| one.uri.as_str()).collect::<Vec<_>>(), ["city://b", "city://c"]);
}

#[tokio::test]
async fn nothing_is_asked_while_nobody_waits() {
    let server = Server::start(|_| Answer::json("1")).await;
    let source = source(&server, "[[resource]]\nuri = \"a://b\"\nurl = \"b\"\n");
    let changes = source.watch().await.unwrap().unwrap();
    let unheard = timeout(Duration::from_millis(300), changes.into_future()).await;
    assert!(unheard.is_err() && server.received().is_empty());
}

#[tokio::test]
async fn what_other_replicas_follow_is_told_once_its_state_is_known() {
    let number = Arc::new(AtomicU32::new(1));
    let said = number.clone();
    let server =
        Server::start(move |received| Answer::json(said.load(Ordering::SeqCst)).tagged(received)).await;
    let source = source(&server, "[[template]]\nuri = \"count://{what}\"\nurl = \"{/what}\"\n");
    let mut changes = source.watch().await.unwrap().unwrap();
    let sheep = uri("count://sheep");
    source.follow_for_replicas(&sheep);
    // A client of another replica may have read something else before.
    let told = Change::Updated(sheep.clone());
    assert_eq!(timeout(LONG, changes.next()).await.unwrap().unwrap(), told);
    source.follow_for_replicas(&sheep);
    number.store(2, Ordering::SeqCst);
    assert_eq!(timeout(LONG, changes.next()).await.unwrap().unwrap(), told);
    assert_eq!(read(&source, "count://sheep").await.unwrap(), "2");
}
