//! A configuration that changes while it is served.

use crate::client::{Client, Era, Program, eventually};

const FIRST: &str = "[[inline.resource]]\nuri = \"note://one\"\ntext = \"first\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libris.toml");
    std::fs::write(&file, FIRST).unwrap();
    let program = Program::serve(&["--config", file.to_str().unwrap()]);
    let uri = "note://one".to_owned();
    let client = Client::connect(&program, Era::Modern, std::slice::from_ref(&uri)).await;
    let text = async || client.read(&uri).await.map(|contents| contents[0]["text"].clone());
    assert_eq!(text().await.unwrap(), "first");

    // A source is changed, and another added.
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    let second = format!("{}\n[[files]]\npath = \"docs\"\n", FIRST.replace("first", "second"));
    std::fs::write(&file, &second).unwrap();
    eventually("the change is told", async || client.heard_of().contains(&uri)).await;
    eventually("the list is told", async || client.heard_of_list()).await;
    assert_eq!(text().await.unwrap(), "second");
    assert!(client.list().await.contains_key("file:///docs/"));

    // The new source is live too.
    std::fs::write(folder.path().join("docs/new.md"), "").unwrap();
    eventually("a file of the new source is told", async || client.heard_of_list()).await;
    assert!(client.list().await.contains_key("file:///docs/new.md"));

    // What does not parse changes nothing, and the next that does is taken at once when asked for.
    std::fs::write(&file, "[[files]\n").unwrap();
    program.signal("HUP");
    std::fs::write(&file, FIRST.replace("first", "third")).unwrap();
    program.signal("HUP");
    eventually("the third is in force", async || text().await.is_some_and(|text| text == "third")).await;
    assert!(!client.list().await.contains_key("file:///docs/"));
}
