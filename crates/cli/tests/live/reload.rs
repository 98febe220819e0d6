//! Reloading the configuration.

use serde_json::json;

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

    // A configuration that does not parse changes nothing; SIGHUP loads the next valid one immediately.
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
        // Pending signals are merged, so this waits until the first was handled.
        eventually("it is reported", async || program.said("out of range") > count).await;
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

/// A source that cannot be opened is unavailable, the others are served, and it appears once it can be opened.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_be_opened_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libris.toml");
    let command = "[[command]]\nuri = \"clock://now\"\nrun = [\"date\"]\n\
                   [[command]]\nuri = \"none://\"\nrun = [\"no-such-program\"]\n";
    let missing = "[[files]]\npath = \"minutes\"\n[[sql]]\nurl_env = \"NO_SUCH_VARIABLE\"\n";
    std::fs::write(&file, format!("{FIRST}{command}{missing}")).unwrap();
    let program = Program::serve(&["--config", file.to_str().unwrap()]);
    let client = Client::connect(&program, Era::Modern, &[]).await;
    let listed = client.list().await;
    assert!(listed.contains_key("note://one") && listed.contains_key("clock://now"), "{listed:?}");
    let status = client.read("libris://status").await.unwrap()[0]["text"].as_str().unwrap().to_owned();
    for name in ["files minutes", "sql", "command libris.toml"] {
        assert!(status.contains(name), "{status}");
    }
    assert!(!status.contains(folder.path().to_str().unwrap()), "{status}");
    assert_eq!(program.metric("sources_unavailable").await, 3);
    let answer = client.ask("resources/read", json!({ "uri": "file:///minutes/a.md" })).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("resource not found: it may belong to `"), "{message}");

    std::fs::create_dir(folder.path().join("minutes")).unwrap();
    eventually("the list is told", async || client.heard_of_list()).await;
    assert!(client.list().await.contains_key("file:///minutes/"));
    assert_eq!(program.metric("sources_unavailable").await, 2);
}

/// A reload with a source that cannot be opened: its previous version stays, and the rest takes effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_be_opened_again_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libris.toml");
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    let docs = "[[files]]\npath = \"docs\"\n";
    std::fs::write(&file, format!("{FIRST}{docs}")).unwrap();
    let program = Program::serve(&["--config", file.to_str().unwrap()]);
    let client = Client::connect(&program, Era::Modern, &[]).await;
    assert!(client.list().await.contains_key("file:///docs/"));
    let second = FIRST.replace("first", "second");
    std::fs::write(&file, format!("{second}{docs}mount = \"a/b\"\n")).unwrap();
    program.signal("HUP");
    let text = async || client.read("note://one").await.map(|contents| contents[0]["text"].clone());
    eventually("the second is in force", async || text().await.is_some_and(|text| text == "second")).await;
    assert!(client.list().await.contains_key("file:///docs/"));
    assert_eq!(program.said("error: could not serve"), 1);
}
