//! An outage of one of three servers behind a gateway: over stdio, and over HTTP in both eras.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::gateway::{Session, gateway, until, updated};
use crate::process::HttpServer;
use crate::{LIBRIS, LONG, folder};

/// How much longer the median read may take during an outage than at a gateway without the server that is lost. Both are
/// measured in turns, so that a busy machine slows down both. The constant is below any time-out or attempt to connect.
const MAX_FACTOR: (u32, u32) = (3, 2);
const MAX_EXTRA: Duration = Duration::from_millis(2);

/// The median times of a read through each of two gateways, measured in turns.
async fn median_times(sessions: [&Session; 2], uri: &str) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..61 {
        for (session, times) in sessions.iter().zip(&mut times) {
            let began = Instant::now();
            let read = session.ask("resources/read", json!({ "uri": uri })).await;
            times.push(began.elapsed());
            assert_eq!(read["result"]["contents"][0]["text"], "first", "{uri}: {read}");
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    })
}

/// Kills a server over HTTP. `killed` is its protocol, and `other` that of the other server over HTTP.
async fn outage(killed: &str, other: &str) {
    let folders = ["one", "two", "three"].map(|name| folder(name, &[("a.md", "first")]));
    let [one, two, three] = ["one", "two", "three"];
    let path = |at: usize, name: &str| folders[at].path().join(name);
    let mut upstream = HttpServer::start(&[path(0, one).as_os_str()]).await;
    let address = upstream.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let there = HttpServer::start(&[path(1, two).as_os_str()]).await;
    let far = format!(
        "[[mcp]]\nname = \"far\"\nurl = {:?}\nuris = \"prefixed\"\nprotocol = {killed:?}\nretry = \"50ms\"\n",
        upstream.url
    );
    let others = format!(
        "[[mcp]]\nname = \"there\"\nurl = {:?}\nuris = \"prefixed\"\nprotocol = {other:?}\n\
         [[mcp]]\nname = \"near\"\nrun = [{LIBRIS:?}, \"serve\", {:?}, \"--stdio\"]\nuris = \"prefixed\"\n\
         protocol = \"initialize\"\n[[files]]\npath = {:?}\n",
        there.url,
        path(2, three),
        path(2, three),
    );
    let whole = gateway(folders[0].path(), &format!("{far}{others}")).await;
    let without = gateway(folders[1].path(), &others).await;
    let session = Session::open(&whole.url, None).await;
    let control = Session::open(&without.url, None).await;
    let mut events = session.events().await;
    let far = "far+file:///one/a.md";
    let read = async |uri: &str| session.ask("resources/read", json!({ "uri": uri })).await;
    assert_eq!(read(far).await["result"]["contents"][0]["text"], "first");
    let subscribed = session.ask("resources/subscribe", json!({ "uri": far })).await;
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    // Changes before the subscription are unknown, so it counts as one.
    tokio::time::timeout(LONG, updated(&mut events, far)).await.expect("the subscription is accepted");

    upstream.process.kill().await.unwrap();
    until(async || read(far).await["error"].is_object()).await;
    let others = ["there+file:///two/a.md", "near+file:///three/a.md", "file:///three/a.md"];
    for uri in others {
        let [during, usual] = median_times([&session, &control], uri).await;
        println!("{uri}: {during:?} during the outage, {usual:?} without the server");
        assert!(
            during < usual * MAX_FACTOR.0 / MAX_FACTOR.1 + MAX_EXTRA,
            "{uri}: {during:?}, usually {usual:?}"
        );
    }
    let list = session.ask("resources/list", json!({})).await;
    assert!(others.iter().all(|uri| list.to_string().contains(uri)), "{list}");
    until(async || {
        let list = session.ask("resources/list", json!({})).await;
        let unavailable = list["result"]["_meta"].to_string();
        assert!(!unavailable.contains("mcp near") && !unavailable.contains("mcp there"), "{unavailable}");
        unavailable.contains("mcp far")
    })
    .await;

    std::fs::write(path(0, one).join("a.md"), "second, during the outage").unwrap();
    let _again = HttpServer::start_on(&address, &[path(0, one).as_os_str()]).await;
    tokio::time::timeout(LONG, updated(&mut events, far)).await.expect("the subscriber is notified");
    until(async || read(far).await["result"]["contents"][0]["text"] == "second, during the outage").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_hear_of_changes_during_an_outage_of_a_legacy_server_and_others_notice_nothing() {
    outage("initialize", "discover").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_hear_of_changes_during_an_outage_of_a_modern_server_and_others_notice_nothing() {
    outage("discover", "initialize").await;
}
