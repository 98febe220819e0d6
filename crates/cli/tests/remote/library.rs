//! The client for programs, on this binary.

use std::pin::pin;

use futures_util::StreamExt as _;
use libris::Change;
use libris_remote::{ParsedContent, ResourceClient};

use serde_json::json;

use crate::gateway::until;
use crate::toolbox::{Handshake, Toolbox};
use crate::{LIBRIS, LONG, folder};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_reads_from_the_cache_as_long_as_the_server_allows() {
    let toolbox = Toolbox::start(Handshake::Discover, &[]).await;
    let client = ResourceClient::http(&toolbox.url).unwrap();
    let requests = |uri: &str| {
        toolbox.requests("resources/read").iter().filter(|request| request["params"]["uri"] == uri).count()
    };
    let _changes = client.watch(&["odd://public"]).await.unwrap();
    until(async || {
        let listening = toolbox.requests("subscriptions/listen");
        listening.iter().any(|request| request.to_string().contains("odd://public"))
    })
    .await;
    // The subscription counts as a change, because earlier ones are unknown.
    until(async || {
        let before = requests("odd://public");
        client.read("odd://public").await.unwrap();
        requests("odd://public") == before
    })
    .await;
    let before = requests("odd://public");
    for _ in 0..10 {
        assert_eq!(client.read("odd://public").await.unwrap(), ParsedContent::Text("cacheable".into()));
    }
    assert_eq!(requests("odd://public"), before, "the server allows a minute");
    toolbox.notify("notifications/resources/updated", &json!({ "uri": "odd://public" }));
    until(async || {
        client.read("odd://public").await.unwrap();
        requests("odd://public") > before
    })
    .await;
    // The server allows a millisecond.
    client.read("odd://brief").await.unwrap();
    until(async || {
        client.read("odd://brief").await.unwrap();
        requests("odd://brief") > 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_caches_its_private_responses() {
    let toolbox = Toolbox::start(Handshake::Discover, &[]).await;
    let client = ResourceClient::http_with_token(&toolbox.url, "the-token").unwrap();
    let first = client.read("odd://account").await.unwrap();
    for _ in 0..10 {
        assert_eq!(client.read("odd://account").await.unwrap(), first);
    }
    assert_eq!(toolbox.requests("resources/read").len(), 1);
    assert!(toolbox.tokens().iter().all(|token| token == "Bearer the-token"), "{:?}", toolbox.tokens());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_served() {
    let folder = folder("library", &[("a.md", "# A\n")]);
    let library = folder.path().join("library");
    let command = ["serve".as_ref(), "--stdio".as_ref(), "--".as_ref(), LIBRIS.as_ref(), "serve".as_ref()];
    let arguments = command.into_iter().chain([library.as_os_str(), "--stdio".as_ref()]);
    let client = ResourceClient::command(LIBRIS, arguments).unwrap();
    assert_eq!(client.read("file:///library/a.md").await.unwrap(), ParsedContent::Text("# A\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_reads_lists_completes_and_watches() {
    let folder = folder(
        "library",
        &[("settings.json", "{\"theme\": \"dark\"}"), ("a.md", "# A\n"), ("b.bin", "\u{0}\u{1}")],
    );
    let library = folder.path().join("library");
    let client =
        ResourceClient::command(LIBRIS, ["serve".as_ref(), library.as_os_str(), "--stdio".as_ref()]).unwrap();

    #[derive(serde::Deserialize)]
    struct Settings {
        theme: String,
    }
    let settings: Settings = client.read_json("file:///library/settings.json").await.unwrap();
    assert_eq!(settings.theme, "dark");
    let json = client.read("file:///library/settings.json").await.unwrap();
    assert_eq!(json, ParsedContent::Json(serde_json::json!({ "theme": "dark" })));
    assert_eq!(client.read("file:///library/a.md").await.unwrap(), ParsedContent::Text("# A\n".into()));
    assert_eq!(client.read("file:///library/b.bin").await.unwrap(), ParsedContent::Bytes(vec![0, 1].into()));
    let wrong = client.read_json::<Vec<u8>>("file:///library/settings.json").await.unwrap_err().to_string();
    assert!(
        wrong.starts_with("`file:///library/settings.json` is not JSON of the expected form: "),
        "{wrong}"
    );

    let resources: Vec<_> = client.list().map(|resource| resource.unwrap().uri.to_string()).collect().await;
    let files: Vec<_> = resources.iter().filter_map(|uri| uri.strip_prefix("file:///library/")).collect();
    assert_eq!(files, ["", "a.md", "b.bin", "settings.json"]);
    let templates: Vec<_> =
        client.templates().map(|template| template.unwrap().uri.to_string()).collect().await;
    assert_eq!(
        client.complete("file:///library/{+path}{?lines,bytes}", "path", "sett").await.unwrap(),
        ["settings.json"]
    );
    assert!(templates.contains(&"file:///library/{+path}{?lines,bytes}".to_owned()), "{templates:?}");
    let uri = client.expand("file:///library/{+path}{?lines}", [("path", "a.md"), ("lines", "1-1")]).unwrap();
    assert_eq!(uri, "file:///library/a.md?lines=1-1");

    let mut changes = pin!(client.watch(&["file:///library/a.md"]).await.unwrap());
    let updated = Change::Updated(libris::Uri::parse("file:///library/a.md").unwrap());
    // The subscription counts as a change, because earlier ones are unknown.
    let told = async {
        while changes.next().await.unwrap() != updated {}
        std::fs::write(library.join("a.md"), "# B, which is longer\n").unwrap();
        while changes.next().await.unwrap() != updated {}
    };
    tokio::time::timeout(LONG, told).await.expect("two updates");
}
