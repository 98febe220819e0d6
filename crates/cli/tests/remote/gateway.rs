//! Servers behind a gateway: shared subscriptions, outages, collisions, credentials.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use libris::{Catalog, Change, Content, ContentBody, Context, Error, Server, Source, Uri};
use libris_remote::{ProtocolChoice, UriMount};
use serde_json::{Value, json};

use crate::process::{HttpServer, serve};
use crate::recorder::Recorder;
use crate::toolbox::{Handshake, Toolbox};
use crate::{LONG, folder, over_http, over_stdio, remote};

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

/// Polls until the condition holds.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let polled = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, polled).await.expect("the condition holds in time");
}

async fn listed(catalog: &Catalog) -> Vec<String> {
    let page = catalog.list(None, 1000, &Context::default()).await.unwrap();
    page.resources.iter().map(|resource| resource.uri.to_string()).collect()
}

/// A client of the gateway, in a legacy session.
pub(crate) struct Session {
    client: reqwest::Client,
    url: String,
    id: String,
}

impl Session {
    pub(crate) async fn open(url: &str, token: Option<&str>) -> Self {
        let mut headers = reqwest::header::HeaderMap::new();
        if let Some(token) = token {
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let client = reqwest::Client::builder().default_headers(headers).build().unwrap();
        let mut session = Self { client, url: url.to_owned(), id: String::new() };
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let (headers, _) = session.send("initialize", params).await;
        session.id = headers["mcp-session-id"].to_str().unwrap().to_owned();
        session
    }

    async fn send(&self, method: &str, params: Value) -> (reqwest::header::HeaderMap, Value) {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = self.client.post(&self.url).header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        if !self.id.is_empty() {
            request = request.header("mcp-session-id", &self.id).header("mcp-protocol-version", "2025-11-25");
        }
        let response = request.body(body.to_string()).send().await.unwrap();
        let headers = response.headers().clone();
        let text = response.text().await.unwrap();
        (
            headers,
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("`{method}` was answered with {text}")),
        )
    }

    /// The event stream of the session.
    pub(crate) async fn events(&self) -> reqwest::Response {
        let request = self.client.get(&self.url).header("accept", "text/event-stream");
        let request = request.header("mcp-session-id", &self.id).header("mcp-protocol-version", "2025-11-25");
        request.send().await.unwrap()
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        self.send(method, params).await.1
    }
}

/// A gateway of these servers.
pub(crate) async fn gateway(folder: &Path, config: &str) -> HttpServer {
    let file = folder.join("gateway.toml");
    std::fs::write(&file, config).unwrap();
    HttpServer::start(&[OsStr::new("--config"), file.as_os_str()]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_subscribers_make_one_subscription() {
    let recorder = Recorder::start(&["odd://one", "odd://two"]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway =
        gateway(folder.path(), &format!("[[mcp]]\nname = \"odd\"\nurl = \"{}\"\n", recorder.url)).await;
    let first = Session::open(&gateway.url, None).await;
    let subscribed = first.ask("resources/subscribe", json!({ "uri": "odd://one" })).await;
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    subscribe_a_thousand(&gateway.url, "odd://one").await;
    until(async || !recorder.requests("resources/subscribe").is_empty()).await;
    // What is asked later is answered later: a second subscription would have been requested by now.
    first.ask("resources/read", json!({ "uri": "odd://two" })).await;
    assert_eq!(recorder.uris("resources/subscribe"), ["odd://one"]);
    let answer = first.ask("resources/unsubscribe", json!({ "uri": "odd://one" })).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    assert!(recorder.requests("resources/unsubscribe").is_empty(), "1,000 others are subscribed");
}

/// Subscribes 1,000 clients.
async fn subscribe_a_thousand(gateway: &str, uri: &str) {
    for _ in 0..10 {
        let sessions = (0..100).map(|_| async {
            let session = Session::open(gateway, None).await;
            let answer = session.ask("resources/subscribe", json!({ "uri": uri })).await;
            assert_eq!(answer["result"], json!({}), "{answer}");
        });
        futures_util::future::join_all(sessions).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_subscribers_make_one_stream() {
    let toolbox = Toolbox::start(Handshake::Discover, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway =
        gateway(folder.path(), &format!("[[mcp]]\nname = \"odd\"\nurl = \"{}\"\n", toolbox.url)).await;
    let first = Session::open(&gateway.url, None).await;
    let mut events = first.events().await;
    let subscribed = first.ask("resources/subscribe", json!({ "uri": "odd://ask" })).await;
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    subscribe_a_thousand(&gateway.url, "odd://ask").await;
    tokio::time::timeout(LONG, updated(&mut events, "odd://ask"))
        .await
        .expect("the subscription is accepted");
    toolbox.notify("notifications/resources/updated", &json!({ "uri": "odd://ask" }));
    tokio::time::timeout(LONG, updated(&mut events, "odd://ask")).await.expect("the update is passed on");
    let streams = toolbox.requests("subscriptions/listen");
    let subscriptions: Vec<_> =
        streams.iter().map(|stream| &stream["params"]["notifications"]["resourceSubscriptions"]).collect();
    assert_eq!(subscriptions, [&json!(["odd://ask"])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_pass_through_under_the_prefix() {
    let recorder = Recorder::start(&["odd://one"]).await;
    let mount = UriMount::prefixed("far").unwrap();
    let remote = remote("far", over_http(&recorder.url), ProtocolChoice::Auto, mount);
    let mut changes = remote.watch().await.unwrap().unwrap();
    remote.follow(&uri("far+odd://one"), libris::wire::Client::default());
    let next = async |changes: &mut futures_util::stream::BoxStream<'static, Change>| {
        tokio::time::timeout(LONG, changes.next()).await.expect("a change").unwrap()
    };
    // Changes before the subscription are unknown, so it counts as one.
    assert_eq!(next(&mut changes).await, Change::Updated(uri("far+odd://one")));
    until(async || recorder.is_listened_to()).await;
    recorder.notify("notifications/resources/updated", &json!({ "uri": "odd://one" }));
    assert_eq!(next(&mut changes).await, Change::Updated(uri("far+odd://one")));
    remote.unfollow(&uri("far+odd://one"));
    until(async || recorder.uris("resources/unsubscribe") == ["odd://one"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_and_bytes_pass_unchanged_and_tokens_of_callers_do_not_pass() {
    let recorder = Recorder::start(&["odd://one"]).await;
    recorder.describe("odd://one", json!({ "_meta": { "ui": { "resourceUri": "ui://app/view" }, "k": 1 } }));
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[[mcp]]\nname = \"far\"\nurl = \"{}\"\nuris = \"prefixed\"\n", recorder.url);
    let gateway = gateway(folder.path(), &config).await;
    let session = Session::open(&gateway.url, Some("the-token-of-the-caller")).await;
    let read = session
        .ask("resources/read", json!({ "uri": "far+odd://one", "_meta": { "secret": "of-the-caller" } }))
        .await;
    assert_eq!(
        read["result"]["contents"],
        json!([
            { "uri": "far+odd://one", "mimeType": "text/plain", "text": "one" },
            { "uri": "far+odd://one/part", "blob": "AAEC/w==" },
        ])
    );
    let list = session.ask("resources/list", json!({})).await;
    let uris: Vec<_> = list["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["uri"].as_str().unwrap())
        .collect();
    let others: Vec<_> = uris.into_iter().filter(|uri| !uri.starts_with("libris:")).collect();
    assert_eq!(others, ["far+odd://one"]);
    let own =
        list["result"]["resources"].as_array().unwrap().iter().find(|one| one["uri"] == "far+odd://one");
    assert_eq!(own.unwrap()["_meta"], json!({ "ui": { "resourceUri": "ui://far+app/view" }, "k": 1 }));
    assert!(!recorder.requests("resources/read").is_empty());
    assert!(!recorder.transcript().contains("of-the-caller"), "{}", recorder.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_of_any_form_pass_and_a_malformed_one_is_left_out() {
    let recorder = Recorder::start(&["odd://one"]).await;
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[[mcp]]\nname = \"far\"\nurl = \"{}\"\nuris = \"prefixed\"\n", recorder.url);
    let gateway = gateway(folder.path(), &config).await;
    let session = Session::open(&gateway.url, None).await;
    let list = session.ask("resources/templates/list", json!({})).await;
    let listed = list["result"]["resourceTemplates"].as_array().unwrap().iter();
    let listed: Vec<_> = listed.map(|template| template["uriTemplate"].as_str().unwrap()).collect();
    let mut far: Vec<_> = listed.into_iter().filter(|template| template.starts_with("far+tpl:")).collect();
    far.sort_unstable();
    assert_eq!(far, ["far+tpl://many{/x*}", "far+tpl://more{?x*}", "far+tpl://query{?a,b}"]);

    for uri in ["tpl://query?a=1&b=2", "tpl://query?b=2", "tpl://many/x/y%20z", "tpl://more?x=1&x=2"] {
        let read = session.ask("resources/read", json!({ "uri": format!("far+{uri}") })).await;
        let contents = &read["result"]["contents"];
        assert_eq!(contents[0]["uri"], format!("far+{uri}"), "{read}");
        assert_eq!(contents[1]["blob"], "AAEC/w==", "{read}");
    }
    assert_eq!(
        recorder.uris("resources/read"),
        ["tpl://query?a=1&b=2", "tpl://query?b=2", "tpl://many/x/y%20z", "tpl://more?x=1&x=2"]
    );

    let reference = json!({ "type": "ref/resource", "uri": "far+tpl://query{?a,b}" });
    let argument = json!({ "name": "b", "value": "x" });
    let params = json!({ "ref": reference, "argument": argument, "context": { "arguments": { "a": "1" } } });
    let completed = session.ask("completion/complete", params).await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["x/y", "z&z"]), "{completed}");
    let asked = &recorder.requests("completion/complete")[0];
    assert_eq!(asked["ref"]["uri"], "tpl://query{?a,b}");
    assert_eq!((&asked["argument"], &asked["context"]["arguments"]), (&argument, &json!({ "a": "1" })));
}

/// The median time of a read.
pub(crate) async fn median_time(read: impl AsyncFn()) -> Duration {
    let mut times = Vec::new();
    for _ in 0..41 {
        let began = Instant::now();
        read().await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Asserts that reads take no longer than they took before. The constant is for a machine that is busy with other tests; it
/// is far below the time of an attempt to connect that fails.
pub(crate) fn assert_as_fast(after: Duration, before: Duration) {
    assert!(after < before * 3 + Duration::from_millis(20), "{after:?}, before the outage {before:?}");
}

/// Waits for the notification that this resource was updated.
pub(crate) async fn updated(events: &mut reqwest::Response, uri: &str) {
    let mut received = String::new();
    let notification = json!({ "uri": uri }).to_string();
    while !(received.contains("notifications/resources/updated") && received.contains(&notification)) {
        let chunk = events.chunk().await.unwrap().expect("the stream goes on");
        received.push_str(&String::from_utf8_lossy(&chunk));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uri_of_two_servers_is_served_from_neither() {
    let one = Recorder::start(&["odd://both", "odd://one"]).await;
    let two = Recorder::start(&["odd://both", "odd://two", "file:///library/a.md"]).await;
    let folder = folder("library", &[("a.md", "here")]);
    let kept = |name: &str, url: &str| {
        Arc::new(remote(name, over_http(url), ProtocolChoice::Initialize, UriMount::Kept)) as Arc<dyn Source>
    };
    let files =
        libris_sources::Files::open(libris_sources::files::Config::new(folder.path().join("library")))
            .unwrap();
    let catalog = Catalog::new(vec![kept("one", &one.url), kept("two", &two.url), Arc::new(files)]);
    assert_eq!(listed(&catalog).await, ["file:///library/", "odd://one", "odd://two"]);
    let error = catalog.read(&uri("odd://both"), &Context::default()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "`odd://both` is served neither from `mcp one` nor from `mcp two`, because both have it; hint: set `uris = \
         \"prefixed\"` for one of them"
    );
    // A server cannot put itself in the place of a local file either.
    let error =
        catalog.read(&uri("file:///library/a.md"), &Context::default()).await.unwrap_err().to_string();
    assert!(error.contains("neither from `mcp two` nor from `files library`"), "{error}");
    assert!(two.requests("resources/read").is_empty() && one.requests("resources/read").is_empty());
    let read = catalog.read(&uri("odd://two"), &Context::default()).await.unwrap();
    assert_eq!(read.parts[0], Content::text(uri("odd://two"), "text/plain", "one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn uris_of_other_sources_are_not_sent_to_a_server() {
    let recorder = Recorder::start(&["odd://one"]).await;
    let source = remote("far", over_http(&recorder.url), ProtocolChoice::Initialize, UriMount::Kept);
    let catalog = Catalog::new(vec![Arc::new(source)]);
    listed(&catalog).await;
    let error = catalog.read(&uri("file:///home/ada/secret-plans"), &Context::default()).await.unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
    assert!(recorder.requests("resources/read").is_empty());
}

/// The text of a resource, or the error.
async fn text(catalog: &Catalog, at: &str) -> Result<String, Error> {
    let contents = catalog.read(&uri(at), &Context::default()).await?;
    match &contents.parts[0].body {
        ContentBody::Text(text) => Ok(text.clone()),
        ContentBody::Bytes(bytes) => panic!("{bytes:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_is_named_and_the_others_answer() {
    let folders = [folder("one", &[("a.md", "first")]), folder("two", &[("a.md", "first")])];
    let (one, two) = (folders[0].path().join("one"), folders[1].path().join("two"));
    let mut server = HttpServer::start(&[one.as_os_str()]).await;
    let address = server.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let far = Arc::new(remote("far", over_http(&server.url), ProtocolChoice::Auto, UriMount::Kept));
    let near = Arc::new(remote("near", over_stdio(&two), ProtocolChoice::Auto, UriMount::Kept));
    let catalog = Arc::new(Catalog::new(vec![far, near]));
    let view = Server::new(catalog.clone(), libris::Config::default()).view_for(None);
    let mut changes = catalog.watch().await.unwrap().unwrap();
    catalog.follow(&uri("file:///one/a.md"), libris::wire::Client::default());
    assert_eq!(text(&catalog, "file:///one/a.md").await.unwrap(), "first");
    assert_eq!(
        listed(&catalog).await.len(),
        4,
        "both libraries; both have a status, which is served from neither"
    );

    server.process.kill().await.unwrap();
    until(async || text(&catalog, "file:///one/a.md").await.is_err()).await;
    until(async || {
        let page = view.snapshot().list(None, 1000, &Context::default()).await.unwrap();
        page.unavailable.iter().any(|unavailable| unavailable.source == "mcp far")
    })
    .await;
    assert_eq!(text(&catalog, "file:///two/a.md").await.unwrap(), "first");

    std::fs::write(one.join("a.md"), "second").unwrap();
    // What was reported before the outage is of no interest.
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(1), changes.next()).await {}
    let _again = serve(&[one.as_os_str()])
        .args(["--http", &address])
        .stdin(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let told = async { while changes.next().await != Some(Change::Lost) {} };
    tokio::time::timeout(LONG, told).await.expect("watchers are told to look again");
    until(async || text(&catalog, "file:///one/a.md").await.is_ok_and(|text| text == "second")).await;
    until(async || {
        let page = view.snapshot().list(None, 1000, &Context::default()).await.unwrap();
        page.unavailable.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_cursor_walks_through_all_servers() {
    let names: Vec<_> = (0..25).map(|number| (format!("{number:02}.md"), number.to_string())).collect();
    let files: Vec<_> = names.iter().map(|(name, text)| (&**name, &**text)).collect();
    let folders = [folder("one", &files), folder("two", &files)];
    let http = HttpServer::start(&[folders[1].path().join("two").as_os_str()]).await;
    let config = format!(
        "[server]\npage_size = 7\n[[mcp]]\nname = \"one\"\nrun = [{:?}, \"serve\", {:?}, \"--stdio\"]\n\
         [[mcp]]\nname = \"two\"\nurl = {:?}\nuris = \"prefixed\"\n",
        crate::LIBRIS,
        folders[0].path().join("one"),
        http.url,
    );
    let gateway = gateway(folders[0].path(), &config).await;
    let session = Session::open(&gateway.url, None).await;
    let (mut uris, mut cursor) = (Vec::new(), None);
    loop {
        let params = cursor.map_or_else(|| json!({}), |cursor: Value| json!({ "cursor": cursor }));
        let page = session.ask("resources/list", params).await;
        let resources = page["result"]["resources"].as_array().unwrap();
        assert!(resources.len() <= 7);
        uris.extend(resources.iter().map(|resource| resource["uri"].as_str().unwrap().to_owned()));
        cursor = page["result"].get("nextCursor").cloned();
        if cursor.is_none() {
            break;
        }
    }
    let mut sorted = uris.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(uris, sorted);
    // Two folders of 25 files, besides the resources of the gateway and of the servers themselves.
    let files = uris.iter().filter(|uri| uri.contains("file:///"));
    assert_eq!(files.count(), 2 * 26, "{uris:?}");
}
