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

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_are_out_of_bounds_do_not_end_the_reading_of_configurations() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libris.toml");
    std::fs::write(&file, FIRST).unwrap();
    let program = Program::serve(&["--config", file.to_str().unwrap()]);
    let uri = "note://one".to_owned();
    let client = Client::connect(&program, Era::Modern, &[]).await;
    let text = async || client.read(&uri).await.map(|contents| contents[0]["text"].clone());
    let most = i64::MAX;
    for (count, wrong) in [
        format!(
            "[[http]]\nbase = \"http://127.0.0.1:1/\"\nlimits.concurrency = {most}\nlimits.allow_private = true\n\
             [[http.resource]]\nuri = \"a://b\"\nurl = \"b\"\n"
        ),
        format!("[[git]]\npath = \".\"\nmax_size = {most}\n"),
        format!("[[files]]\npath = \".\"\ndirectory_entries = {most}\n"),
        "[live]\nwindow = \"500000000000y\"\n".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        std::fs::write(&file, format!("{FIRST}\n{wrong}")).unwrap();
        program.signal("HUP");
        // Signals that arrive together are one, so this waits until the first was heard.
        eventually("it is reported", async || program.said("out of range; hint: ") > count).await;
        let before = count.checked_sub(1).map_or("first".to_owned(), |before| before.to_string());
        assert_eq!(text().await.unwrap(), before);
        std::fs::write(&file, FIRST.replace("first", &count.to_string())).unwrap();
        program.signal("HUP");
        let now = count.to_string();
        eventually("the next is in force", async || text().await.is_some_and(|text| text == *now)).await;
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_in_the_place_of_the_configuration_does_not_end_the_reading_of_configurations() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libris.toml");
    std::fs::write(&file, FIRST).unwrap();
    let program = Program::serve(&["--config", file.to_str().unwrap()]);
    let uri = "note://one".to_owned();
    let client = Client::connect(&program, Era::Modern, &[]).await;
    let text = async || client.read(&uri).await.map(|contents| contents[0]["text"].clone());
    assert_eq!(text().await.unwrap(), "first");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &file).unwrap();
    program.signal("HUP");
    eventually("the pipe is reported", async || program.said("it is not a regular file") > 0).await;
    let next = folder.path().join("next");
    std::fs::write(&next, FIRST.replace("first", "second")).unwrap();
    std::fs::rename(&next, &file).unwrap();
    eventually("the second is in force", async || text().await.is_some_and(|text| text == "second")).await;
}
