//! A Notion workspace through the binary and the rmcp client.

#[path = "../../sources/tests/notion/server.rs"]
#[allow(dead_code)]
mod server;

use std::path::Path;
use std::process::{Output, Stdio};

use rmcp::model::{ReadResourceRequestParams, ResourceContents};
use rmcp::transport::TokioChildProcess;
use rmcp::{ServiceError, ServiceExt as _};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use server::{Server, TOKEN, id};

/// The configuration that the manual shows, for a server of the test.
fn config(url: &str) -> TempDir {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/notion.md");
    let manual = std::fs::read_to_string(manual).expect("the manual");
    let (_, rest) = manual.split_once("```text\n[notion]").expect("a configuration");
    let (shown, _) = rest.split_once("```").expect("its end");
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("[notion]{}", shown.replace("https://api.notion.com", url));
    std::fs::write(folder.path().join("libris.toml"), config).expect("a file");
    folder
}

fn libris(arguments: &[&str], folder: &TempDir, token: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_libris"));
    command.args(arguments).current_dir(folder.path()).env("NOTION_TOKEN", token).kill_on_drop(true);
    command
}

async fn workspace() -> Server {
    let server = Server::start().await;
    server.workspace().page(&id(1), "Roadmap", json!({ "type": "workspace" }));
    server.workspace().database(&id(100), &id(101), "Tasks");
    server.workspace().edit(&id(1), "What comes next");
    server
}

#[tokio::test]
async fn a_page_is_found_and_read() {
    let server = workspace().await;
    let folder = config(&server.url);
    let command = libris(&["serve", "--stdio", "--log", "trace"], &folder, TOKEN);
    let (child, stderr) =
        TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn().expect("libris starts");
    let said = tokio::spawn(async move {
        let mut said = String::new();
        stderr.expect("its words").read_to_string(&mut said).await.expect("text");
        said
    });
    let client = ().serve(child).await.expect("a connection");
    let listed = client.list_all_resources().await.expect("a list");
    let names: Vec<_> = listed.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["index", "status", "Tasks: rows", "Tasks: columns", "Roadmap", "info"]);
    let template = "notion://pages/{pageId}{?format}";
    let ids = client.complete_resource_simple(template, "pageId", "road").await.expect("a completion");
    assert_eq!(ids, [id(1)]);
    let uri = format!("notion://workspace/pages/{}", ids[0]);
    let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.expect("it reads");
    let [ResourceContents::TextResourceContents { text, mime_type, .. }] = &read.contents[..] else {
        panic!("it is {read:?}");
    };
    assert_eq!(
        (text.as_str(), mime_type.as_deref()),
        ("# Roadmap\n\nWhat comes next\n", Some("text/markdown"))
    );
    let missing = format!("notion://pages/{}", id(77));
    let Err(ServiceError::McpError(error)) =
        client.read_resource(ReadResourceRequestParams::new(missing.as_str())).await
    else {
        panic!("it was found");
    };
    assert_eq!(error.data.expect("data")["uri"], missing);
    client.cancel().await.expect("a clean end");
    let said = said.await.expect("its words");
    assert!(said.contains("TRACE") && !said.contains(TOKEN), "{said}");
}

#[tokio::test]
async fn what_is_wrong_is_said_without_the_token() {
    let server = workspace().await;
    let said = async |token: &str, url: &str| {
        let folder = config(url);
        let Output { stderr, status, .. } =
            libris(&["check"], &folder, token).output().await.expect("libris runs");
        assert!(!status.success());
        let said = String::from_utf8(stderr).expect("text");
        assert!(token.is_empty() || !said.contains(token), "{said}");
        said.lines().filter(|line| !line.contains(" ERROR ")).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(said("", &server.url).await, @r#"
    error: could not serve `Notion`
      because: the environment variable `NOTION_TOKEN` has no Notion token: set it
    "#);
    insta::assert_snapshot!(said("ntn_wrong", &server.url).await, @r#"
    error: could not list `Notion`
      because: Notion answered 401 Unauthorized: check the token of this server
    "#);
    insta::assert_snapshot!(said("ntn_secret\nX-Injected: 1", &server.url).await, @r#"
    error: could not serve `Notion`
      because: the Notion token has invalid characters
    hint: copy the token again
    "#);
    insta::assert_snapshot!(said("ntn_secret", "http://notion.example").await, @r#"
    error: could not serve `Notion`
      because: the `url` of Notion must be `https://…`, not `http://notion.example`
    "#);
}
