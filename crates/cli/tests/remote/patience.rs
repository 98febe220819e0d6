//! Servers that take long, refuse something at first, or are lost: what they serve arrives in the end.

use std::time::Duration;

use futures_util::StreamExt as _;
use libris::{Change, Source as _, Uri};
use libris_remote::{ProtocolChoice, UriMount};
use serde_json::{Value, json};

use crate::gateway::{Session, gateway, until};
use crate::process::HttpServer;
use crate::recorder::Recorder;
use crate::toolbox::{Handshake, Toolbox};
use crate::{LONG, over_http, remote};

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_takes_longer_than_a_query_is_served_in_the_end() {
    let uris: Vec<_> = (0..8).map(|number| format!("odd://{number}")).collect();
    let recorder = Recorder::start(&uris.iter().map(String::as_str).collect::<Vec<_>>()).await;
    recorder.slow_down(Duration::from_millis(400));
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[server]\nsource_timeout = \"1s\"\n\
         [[mcp]]\nname = \"far\"\nurl = {:?}\nuris = \"prefixed\"\nlist_ttl = \"1s\"\n",
        recorder.url
    );
    let gateway = gateway(folder.path(), &config).await;
    let session = Session::open(&gateway.url, None).await;
    let is_complete = |list: &Value| {
        uris.iter().all(|uri| list.to_string().contains(&format!("\"far+{uri}\"")))
            && !list["result"]["_meta"].to_string().contains("mcp far")
    };
    until(async || is_complete(&session.ask("resources/list", json!({})).await)).await;
    // Queries that gave up did not make the server begin again.
    let first_pages =
        recorder.requests("resources/list").iter().filter(|page| page["cursor"].is_null()).count();
    assert!(first_pages <= 2, "{first_pages}");
    // While the list is fetched again, the one before is served.
    for _ in 0..20 {
        let list = session.ask("resources/list", json!({})).await;
        assert!(is_complete(&list), "{list}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_refused_is_requested_again() {
    let recorder = Recorder::start(&["odd://one", "odd://two"]).await;
    recorder.refuse_subscriptions(3);
    let remote = remote("far", over_http(&recorder.url), ProtocolChoice::Initialize, UriMount::Kept);
    let mut changes = remote.watch().await.unwrap().unwrap();
    remote.follow(&uri("odd://one"), libris::wire::Client::default());
    // The first change is that of the accepted subscription.
    let first = tokio::time::timeout(LONG, changes.next()).await.expect("a change");
    assert_eq!(first, Some(Change::Updated(uri("odd://one"))));
    assert_eq!(recorder.uris("resources/subscribe"), ["odd://one"; 4]);
    // What was not accepted is not cancelled, and what was is.
    recorder.refuse_subscriptions(usize::MAX);
    remote.follow(&uri("odd://two"), libris::wire::Client::default());
    until(async || recorder.uris("resources/subscribe").len() > 6).await;
    remote.unfollow(&uri("odd://two"));
    remote.unfollow(&uri("odd://one"));
    until(async || recorder.uris("resources/unsubscribe") == ["odd://one"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_refused_is_requested_again() {
    let toolbox = Toolbox::start(Handshake::Discover, &[]).await;
    toolbox.fail("subscriptions/listen", 3);
    let remote = remote("far", over_http(&toolbox.url), ProtocolChoice::Discover, UriMount::Kept);
    let mut changes = remote.watch().await.unwrap().unwrap();
    remote.follow(&uri("odd://ask"), libris::wire::Client::default());
    let first = tokio::time::timeout(LONG, changes.next()).await.expect("a change");
    assert_eq!(first, Some(Change::Updated(uri("odd://ask"))));
    toolbox.notify("notifications/resources/updated", &json!({ "uri": "odd://ask" }));
    let second = tokio::time::timeout(LONG, changes.next()).await.expect("a change");
    assert_eq!(second, Some(Change::Updated(uri("odd://ask"))));
    assert_eq!(toolbox.requests("subscriptions/listen").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_passes_through_two_gateways() {
    let handbook = crate::folder("handbook", &[("a.md", "first")]);
    let folder = tempfile::tempdir().unwrap();
    let upstream = HttpServer::start(&[handbook.path().join("handbook").as_os_str()]).await;
    let config = format!("[[mcp]]\nname = \"far\"\nurl = {:?}\nuris = \"prefixed\"\n", upstream.url);
    let gateway = gateway(folder.path(), &config).await;
    let session = Session::open(&gateway.url, None).await;
    let direct = Session::open(&upstream.url, None).await;
    let message = async |session: &Session, uri: &str| {
        let answer = session.ask("resources/read", json!({ "uri": uri })).await;
        answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let told = message(&direct, "file:///hand-book/a.md").await;
    let hint = told.strip_prefix("resource not found: ").unwrap_or_else(|| panic!("{told}"));
    assert!(hint.contains("did you mean `file:///handbook/`?"), "{told}");
    assert_eq!(
        message(&session, "far+file:///hand-book/a.md").await,
        format!(
            "resource not found: the MCP server `far` says: {}",
            hint.replace("`file:", "`far+file:").replace("`libris:", "`far+libris:")
        )
    );
}
