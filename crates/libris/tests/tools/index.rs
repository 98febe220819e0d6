//! The index of a library and the instructions, which follow the library.

use std::sync::Arc;

use libris::{Config, PathNote, Server};
use serde_json::json;

use crate::host::{Host, MODERN, REVISIONS, catalog, folder, write};

fn server_of(folder: &tempfile::TempDir) -> Arc<Server> {
    let notes = vec![PathNote { path: "adr/".to_owned(), note: "why things are as they are".to_owned() }];
    let catalog = catalog(folder);
    catalog.add_index(notes.clone());
    Arc::new(Server::new(catalog, Config { notes, ..Config::default() }))
}

async fn read(host: &mut Host, uri: &str) -> String {
    let answer = host.ask("resources/read", json!({ "uri": uri })).await;
    answer["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_and_the_instructions_follow_the_library() {
    let folder = folder(&[("adr/1.md", "# Use Rust\n"), ("guide.md", "# Guide\n")]);
    let mut host = Host::stdio(server_of(&folder), MODERN).await;
    for _ in 0..2 {
        let index = read(&mut host, "libris://index").await;
        for part in
            ["[Use Rust](file:///docs/adr/1.md)", "[Guide](file:///docs/guide.md)", "adr/: why things"]
        {
            assert!(index.contains(part), "{index}");
        }
    }
    let listed = host.ask("resources/list", json!({})).await.to_string();
    assert!(listed.contains("\"libris://index\""), "{listed}");
    write(&folder, "new.md", b"# Something new\n");
    let index = read(&mut host, "libris://index").await;
    assert!(index.contains("[Something new](file:///docs/new.md)"), "{index}");
    for revision in REVISIONS {
        // A new server, because instructions without a proof are used for a while.
        let host = Host::http(server_of(&folder), revision).await;
        let instructions = host.introduction["instructions"].as_str().unwrap();
        for part in ["search_resources", "file:///docs/ (3 resources)", "why things", "libris://index"] {
            assert!(instructions.contains(part), "{revision}: {instructions}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_library_has_an_index_for_each_folder() {
    let texts: Vec<_> = (0..600)
        .map(|number| (format!("f{:02}/{number:03}.md", number % 12), format!("# Number {number}\n")))
        .collect();
    let texts: Vec<_> = texts.iter().map(|(path, text)| (&**path, &**text)).collect();
    let folder = folder(&texts);
    let mut host = Host::http(server_of(&folder), MODERN).await;
    let index = read(&mut host, "libris://index").await;
    assert!(index.len() <= 8 << 10, "{}", index.len());
    assert!(index.contains("more than"), "{index}");
    let link =
        index.split_whitespace().find(|word| word.starts_with("libris://index?below=")).unwrap().to_owned();
    let part = read(&mut host, &link).await;
    assert!(part.starts_with("# Index of file:///docs/f") && part.contains("[Number "), "{part}");
    assert!(part.len() <= 8 << 10);
    let missing = host.ask("resources/read", json!({ "uri": "libris://index?below=file:///nowhere/" })).await;
    assert_eq!(missing["error"]["code"], -32602, "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_instructions_are_sent_as_they_are() {
    let folder = folder(&[("a.md", "x")]);
    let config = Config { instructions: Some("Read a.md.".to_owned()), ..Config::default() };
    let host = Host::stdio(Arc::new(Server::new(catalog(&folder), config)), MODERN).await;
    assert_eq!(host.introduction["instructions"], "Read a.md.");
}
