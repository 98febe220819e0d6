//! Servers that misbehave, over stdio and HTTP: each is survived, and the message says what it did.
#![cfg(unix)]

mod bounds;
mod http;
mod server;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt as _;
use libris_core::{Change, CompletionRequest, ContentBody, Context, Error, Source as _, Uri, UriTemplate};
use libris_remote::{ChildEnvironment, Remote, RemoteConfig, RemoteLimits, RemoteTarget};

/// Long enough for a busy machine: a test that works does not wait for it.
const LONG: Duration = Duration::from_secs(60);

/// The time-out of a request to a server that does not answer.
const SHORT: Duration = Duration::from_millis(500);

fn limits() -> RemoteLimits {
    RemoteLimits {
        connect_timeout: LONG,
        timeout: LONG,
        retry: Duration::from_millis(50),
        max_message: 1 << 20,
        max_pages: 50,
        max_resources: 2000,
        ..RemoteLimits::default()
    }
}

/// This program as a server that misbehaves in one way.
fn misbehaving(how: &str) -> RemoteTarget {
    let variables = [("HOSTILE", how.into())].map(|(name, value): (_, OsString)| (name.into(), value));
    RemoteTarget::Stdio {
        program: std::env::current_exe().unwrap().into(),
        arguments: ["--exact", "server_process", "--nocapture", "--test-threads=2"].map(Into::into).into(),
        folder: PathBuf::new(),
        environment: ChildEnvironment::Only(variables.into()),
    }
}

fn remote_with(how: &str, limits: RemoteLimits) -> Remote {
    let config = RemoteConfig { limits, tools: true, ..RemoteConfig::new("odd", misbehaving(how)) };
    Remote::new(config).unwrap()
}

fn remote(how: &str) -> Remote {
    remote_with(how, limits())
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

async fn list(remote: &Remote) -> Result<Vec<String>, Error> {
    let page = remote.list(None, 5000, &Context::default()).await?;
    Ok(page.resources.iter().map(|resource| resource.uri.to_string()).collect())
}

async fn read(remote: &Remote, text: &str) -> Result<String, Error> {
    let contents = remote.read(&uri(text), &Context::default()).await?;
    Ok(match &contents.parts[0].body {
        ContentBody::Text(text) => text.clone(),
        ContentBody::Bytes(bytes) => format!("{} bytes", bytes.len()),
    })
}

/// The server still answers another request, so that what it did cost one request only.
async fn still_answers(remote: &Remote) {
    assert_eq!(read(remote, "odd://good").await.unwrap(), "good");
}

/// The server of the other tests, which start this program for it.
#[test]
fn server_process() {
    if let Ok(how) = std::env::var("HOSTILE") {
        server::run(&how);
        std::process::exit(0);
    }
}

#[tokio::test]
async fn a_server_that_behaves_is_listed_and_read() {
    let remote = remote("well");
    assert_eq!(list(&remote).await.unwrap(), ["odd://bad", "odd://good", "odd://with%20space"]);
    still_answers(&remote).await;
    // The server gets its own spelling of a URI back.
    assert_eq!(read(&remote, "odd://with%20space").await.unwrap(), "read odd://with space");
    let missing = read(&remote, "odd://missing").await.unwrap_err();
    assert!(matches!(missing, Error::NotFound(_)), "{missing:?}");
    let identity = remote.identity().await.unwrap();
    assert_eq!((identity.name(), identity.revision()), (Some("odd"), "2025-11-25"));
    remote.close().await;
}

#[tokio::test]
async fn a_cursor_that_repeats_ends_the_list() {
    let error = list(&remote("looping cursor")).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` sent a list with the same cursor twice; hint: report this to the author of the server"
    );
}

#[tokio::test]
async fn pages_without_end_are_cut_off() {
    let error = list(&remote("endless pages")).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` sent a list of more than 50 pages; hint: report this to the author of the server"
    );
}

#[tokio::test]
async fn templates_that_are_too_large_together_are_refused() {
    let remote = remote("large templates");
    let error = remote.templates(&Context::default()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` sent a list of more than 4194304 bytes; hint: raise `max_message` in an `[[mcp]]` section of `libris.toml`"
    );
    still_answers(&remote).await;
}

#[tokio::test]
async fn a_page_with_too_many_resources_is_refused() {
    let error = list(&remote("many resources")).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` sent a list of more than 2000 resources or templates; hint: raise `max_resources` in an `[[mcp]]` section of `libris.toml`"
    );
}

#[tokio::test]
async fn contents_that_are_too_large_fail_one_read() {
    for how in ["huge, id first", "huge, id last"] {
        let remote = remote(how);
        let error = read(&remote, "odd://bad").await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 1_048_576, .. }), "{how}: {error:?}");
        still_answers(&remote).await;
    }
}

#[tokio::test]
async fn a_line_without_end_closes_the_connection() {
    let error = read(&remote("endless line"), "odd://bad").await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
}

#[tokio::test]
async fn bytes_that_are_not_utf8_fail_one_read() {
    let remote = remote("not UTF-8");
    let error = read(&remote, "odd://bad").await.unwrap_err().to_string();
    assert_eq!(error, "the MCP server `odd` sent bytes that are not UTF-8");
    still_answers(&remote).await;
}

#[tokio::test]
async fn results_of_the_wrong_type_fail_one_read() {
    let remote = remote("wrong types");
    let error = read(&remote, "odd://bad").await.unwrap_err().to_string();
    let expected =
        "the MCP server `odd` answered `resources/read` with something else than the result of that method: ";
    assert!(error.starts_with(expected), "{error}");
    // The malformed entries are left out, and the others are listed.
    assert_eq!(list(&remote).await.unwrap(), ["odd://bad", "odd://good"]);
    let templates = remote.templates(&Context::default()).await.unwrap().templates;
    assert_eq!(
        templates.iter().map(|template| template.uri.as_str()).collect::<Vec<_>>(),
        ["odd://{+path}{?a,b}{&x*}"]
    );
    still_answers(&remote).await;
}

#[tokio::test]
async fn malformed_base64_fails_one_read() {
    let remote = remote("base64");
    let error = read(&remote, "odd://bad").await.unwrap_err().to_string();
    assert_eq!(error, "the MCP server `odd` sent base64 that is malformed");
    still_answers(&remote).await;
}

#[tokio::test]
async fn silence_ends_with_the_time_out() {
    let remote = remote_with("silent", RemoteLimits { timeout: SHORT, ..limits() });
    remote.identity().await.unwrap();
    let error = read(&remote, "odd://bad").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` did not answer within 500ms; hint: check the server, or raise `timeout` in an `[[mcp]]` section of `libris.toml`"
    );
}

#[tokio::test]
async fn a_server_that_never_introduces_itself_is_given_up() {
    let remote = remote_with("mute", RemoteLimits { connect_timeout: SHORT, ..limits() });
    let error = remote.identity().await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` was not ready within 500ms; hint: check the server, or raise `connect_timeout` in an `[[mcp]]` section of `libris.toml`"
    );
}

/// As one that `npx` downloads first.
#[tokio::test]
async fn a_server_that_takes_long_to_start_is_waited_for() {
    let remote = remote("slow start");
    still_answers(&remote).await;
    assert_eq!(remote.identity().await.unwrap().revision(), "2025-11-25");
}

/// It answers `server/discover` after rmcp has sent `initialize`, and refuses the latter.
#[tokio::test]
async fn a_server_of_the_newest_revision_that_takes_long_to_start_is_waited_for() {
    let remote = remote("slow start, modern");
    still_answers(&remote).await;
    assert_eq!(remote.identity().await.unwrap().revision(), "2026-07-28");
}

#[tokio::test]
async fn some_garbage_is_ignored_and_garbage_without_end_is_not() {
    still_answers(&remote("some garbage")).await;
    let error = read(&remote("garbage"), "odd://bad").await.unwrap_err().to_string();
    assert!(
        error.starts_with("the MCP server `odd` sent 1000 lines that are not JSON-RPC messages"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_ends_within_an_answer_is_started_again() {
    let remote = remote("half an answer");
    let error = read(&remote, "odd://bad").await.unwrap_err().to_string();
    assert!(
        error
            .starts_with("the MCP server `odd` closed the connection after it wrote to its standard error: "),
        "{error}"
    );
    assert!(error.ends_with("odd: out of paper \\u{1b}[31m"), "{error}");
    let again = async {
        while read(&remote, "odd://good").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, again).await.expect("it is started again");
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let RemoteTarget::Stdio { arguments, folder, environment, .. } = misbehaving("well") else {
        unreachable!()
    };
    let target = RemoteTarget::Stdio { program: "no-such-program".into(), arguments, folder, environment };
    let error =
        Remote::new(RemoteConfig::new("odd", target)).unwrap().identity().await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` could not be started: there is no program `no-such-program`; hint: install it, or write its \
         full path"
    );
}

#[tokio::test]
async fn answers_to_nobody_and_requests_to_the_client_are_harmless() {
    let remote = remote("talkative");
    still_answers(&remote).await;
    assert_eq!(list(&remote).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_flood_of_notifications_is_bounded() {
    let remote = remote("flood");
    let mut changes = remote.watch().await.unwrap().unwrap();
    // The flood comes before the answer.
    still_answers(&remote).await;
    let lost = async { while changes.next().await != Some(Change::Lost) {} };
    tokio::time::timeout(LONG, lost).await.expect("it is told that changes were lost");
}

#[tokio::test]
async fn texts_with_escape_sequences_are_data_and_not_part_of_messages() {
    let remote = remote("escapes");
    let page = remote.list(None, 10, &Context::default()).await.unwrap();
    assert_eq!(page.resources[0].name, "\u{1b}]0;owned\u{7}name");
    let error = read(&remote, "odd://bad").await.unwrap_err().to_string();
    assert_eq!(error, "the MCP server `odd` answered with error 7: no \\u{1b}[2J paper");
}

/// The text of the result of a tool, or the error.
async fn call(remote: &Remote, tool: &str) -> Result<String, Error> {
    let result = remote.call_tool(tool, serde_json::Map::new(), &Context::default()).await?;
    let result = result.expect("the server lists the tool");
    Ok(result.content[0].block["text"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn malformed_tools_are_left_out() {
    let remote = remote("well");
    let listed = remote.tools(&Context::default()).await.unwrap();
    let names: Vec<_> = listed.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["bad", "good"]);
    assert_eq!(call(&remote, "good").await.unwrap(), "called good");
    let unlisted = remote.call_tool("no schema", serde_json::Map::new(), &Context::default()).await.unwrap();
    assert_eq!(unlisted, None);
}

#[tokio::test]
async fn too_many_tools_and_too_large_ones_are_refused() {
    let many = remote("many tools");
    let error = many.tools(&Context::default()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` sent a list of more than 1000 tools; hint: report this to the author of the server"
    );
    still_answers(&many).await;
    let large = remote("large tools");
    let error = large.tools(&Context::default()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` sent a list of more than 4194304 bytes; hint: raise `max_message` in an `[[mcp]]` section of `libris.toml`"
    );
    still_answers(&large).await;
}

#[tokio::test]
async fn results_of_tools_that_are_none_fail_one_call() {
    for (how, cause) in
        [("wrong types", "a content block has no `type`"), ("task", "`content` is not a list")]
    {
        let remote = remote(how);
        let error = call(&remote, "bad").await.unwrap_err().to_string();
        let expected =
            "the MCP server `odd` answered `tools/call` with something else than the result of that method: ";
        assert_eq!(error, format!("{expected}{cause}"));
        assert_eq!(call(&remote, "good").await.unwrap(), "called good");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_password_gets_none() {
    let remote = remote("input");
    let error = call(&remote, "bad").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the MCP server `odd` asks for input of a user, which only a client of revision 2026-07-28 can give; hint: \
         configure the server so that it needs none"
    );
    still_answers(&remote).await;
}

#[tokio::test]
async fn completions_are_bounded() {
    let remote = remote("well");
    remote.templates(&Context::default()).await.unwrap();
    let (template, known) = (UriTemplate::parse("odd://{+path}{?a,b}{&x*}").unwrap(), BTreeMap::new());
    let request =
        CompletionRequest { template: &template, variable: "path", typed: "x", known: &known, limit: 100 };
    let completion = remote.complete(request, &Context::default()).await.unwrap();
    assert_eq!((completion.values.len(), &*completion.values[0], completion.more), (100, "x0", true));
}
