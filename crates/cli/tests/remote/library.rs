//! The client for programs, on this binary.

use std::pin::pin;

use futures_util::StreamExt as _;
use libris::Change;
use libris_remote::{ParsedContent, ResourceClient};

use crate::{LIBRIS, LONG, folder};

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
