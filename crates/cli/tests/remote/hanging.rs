//! Servers behind a gateway that accept connections or requests and do not answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::folder;
use crate::gateway::{Session, assert_as_fast, gateway, median_time, until};
use crate::process::HttpServer;
use crate::recorder::Recorder;

/// The message of the error of a read, and how long the read took.
async fn failed_read(session: &Session, uri: &str) -> (String, Duration) {
    let began = Instant::now();
    let answer = session.ask("resources/read", json!({ "uri": uri })).await;
    let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    (message, began.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_accepts_and_never_answers_does_not_slow_down_the_others() {
    let folder = folder("two", &[("a.md", "first")]);
    let two = folder.path().join("two");
    let near = HttpServer::start(&[two.as_os_str()]).await;
    let near = format!("[[mcp]]\nname = \"near\"\nurl = {:?}\nuris = \"prefixed\"\n", near.url);
    let read = async |session: &Session| {
        let answer = session.ask("resources/read", json!({ "uri": "near+file:///two/a.md" })).await;
        assert_eq!(answer["result"]["contents"][0]["text"], "first", "{answer}");
    };
    let alone = gateway(folder.path(), &near).await;
    let session = Session::open(&alone.url, None).await;
    let before = median_time(async || read(&session).await).await;

    // The system accepts connections for it.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let limits = "connect_timeout = \"2s\"\nretry = \"1ms\"";
    let far = format!("[[mcp]]\nname = \"far\"\nurl = {url:?}\nuris = \"prefixed\"\n{limits}\n");
    let both = gateway(folder.path(), &format!("[server]\nsource_timeout = \"1s\"\n{near}{far}")).await;
    let session = Session::open(&both.url, None).await;
    assert_as_fast(median_time(async || read(&session).await).await, before);
    until(async || {
        let list = session.ask("resources/list", json!({})).await;
        assert!(list.to_string().contains("near+file:///two/a.md"), "{list}");
        list["result"]["_meta"].to_string().contains("mcp far")
    })
    .await;
    // Once an attempt to connect has timed out, reads do not wait for the following attempts. There is always one.
    let (message, _) = failed_read(&session, "far+odd://one").await;
    assert!(message.contains("mcp far"), "{message}");
    until(async || failed_read(&session, "far+odd://one").await.1 < Duration::from_millis(200)).await;
    let began = Instant::now();
    for _ in 0..20 {
        failed_read(&session, "far+odd://one").await;
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_as_fast(median_time(async || read(&session).await).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_a_server_that_leaves_them_unanswered_fail_at_once_until_it_recovers() {
    let recorder = Recorder::hanging(&["odd://one"]).await;
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[[mcp]]\nname = \"far\"\nurl = {:?}\nuris = \"prefixed\"\ntimeout = \"1s\"\nretry = \"3s\"\n",
        recorder.url
    );
    let gateway = gateway(folder.path(), &config).await;
    let session = Session::open(&gateway.url, None).await;
    for _ in 0..3 {
        let (message, time) = failed_read(&session, "far+odd://one").await;
        assert!(message.contains("did not answer within 1s"), "{message}");
        assert!(time >= Duration::from_secs(1), "{time:?}");
    }
    let mut times = Vec::new();
    for _ in 0..20 {
        let (message, time) = failed_read(&session, "far+odd://one").await;
        assert!(message.contains("does not answer reads: the last 3 timed out"), "{message}");
        times.push(time);
    }
    times.sort_unstable();
    assert!(times[10] < Duration::from_millis(200), "{times:?}");
    assert_eq!(recorder.requests("resources/read").len(), 3, "no other read is sent to the server");
    // Its lists are still served.
    let list: Value = session.ask("resources/list", json!({})).await;
    assert!(list.to_string().contains("far+odd://one"), "{list}");
    recorder.recover();
    until(async || {
        let answer = session.ask("resources/read", json!({ "uri": "far+odd://one" })).await;
        answer["result"]["contents"][0]["text"] == "one"
    })
    .await;
    for _ in 0..5 {
        let answer = session.ask("resources/read", json!({ "uri": "far+odd://one" })).await;
        assert_eq!(answer["result"]["contents"][0]["text"], "one", "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_templates_only_is_served() {
    let templates = Recorder::with_templates_only().await;
    let complete = Recorder::start(&["odd://one"]).await;
    let folder = tempfile::tempdir().unwrap();
    let section =
        |name: &str, url: &str| format!("[[mcp]]\nname = {name:?}\nurl = {url:?}\nuris = \"prefixed\"\n");
    let config = section("far", &templates.url) + &section("near", &complete.url);
    let gateway = gateway(folder.path(), &config).await;
    let session = Session::open(&gateway.url, None).await;
    let list = session.ask("resources/list", json!({})).await;
    let listed = list["result"]["resources"].as_array().unwrap_or_else(|| panic!("{list}"));
    assert!(listed.iter().any(|resource| resource["uri"] == "near+odd://one"), "{list}");
    assert!(!list.to_string().contains("far+"), "{list}");
    assert!(list["result"]["_meta"]["dev.libris/unavailable"].is_null(), "{list}");
    let list = session.ask("resources/templates/list", json!({})).await;
    let listed = list["result"]["resourceTemplates"].as_array().unwrap_or_else(|| panic!("{list}"));
    assert!(listed.iter().any(|template| template["uriTemplate"] == "far+tpl://query{?a,b}"), "{list}");
    assert!(list["result"]["_meta"]["dev.libris/unavailable"].is_null(), "{list}");
    let read = session.ask("resources/read", json!({ "uri": "far+tpl://query?a=1&b=2" })).await;
    assert_eq!(read["result"]["contents"][0]["text"], "one", "{read}");
    // It completes nothing and reports no changes, which is no error for its clients.
    let reference = json!({ "type": "ref/resource", "uri": "far+tpl://query{?a,b}" });
    let params = json!({ "ref": reference, "argument": { "name": "a", "value": "" } });
    let completed = session.ask("completion/complete", params).await;
    assert_eq!(completed["result"]["completion"]["values"], json!([]), "{completed}");
    let subscribed = session.ask("resources/subscribe", json!({ "uri": "far+tpl://query?a=1" })).await;
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    assert!(
        templates.requests("completion/complete").is_empty()
            && templates.requests("resources/subscribe").is_empty()
    );
}
