//! The client commands on another server: snapshots of their output at 80 columns, and their exit codes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::process::HttpServer;
use crate::recorder::Recorder;
use crate::{LIBRIS, folder};

const FILES: [(&str, &str); 4] = [
    (
        "guide/intro.md",
        "---\ntitle: An introduction that is much longer than what is left of a line\n---\nHello\n",
    ),
    ("guide/logo.png", "\u{89}PNG"),
    ("data.json", "{\"a\": 1}\n"),
    ("notes/a b.txt", "one\ntwo\nthree\n"),
];

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(LIBRIS);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env("COLUMNS", "80").env_remove("LIBRIS_LOG");
    command
}

fn libris(folder: &Path, arguments: &[&str]) -> String {
    let output = command(folder, arguments).output().unwrap();
    format!(
        "exit: {}\n{}{}",
        output.status.code().unwrap(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8(output.stderr).unwrap()
    )
}

/// The command on a server over stdio, which serves the folder `library`.
fn on_server(folder: &Path, arguments: &[&str]) -> String {
    let server = ["--", LIBRIS, "serve", "library", "--stdio"];
    libris(folder, &[arguments, &server].concat())
}

#[test]
fn ls_lists_what_a_server_has() {
    let folder = folder("library", &FILES);
    let remote = on_server(folder.path(), &["ls"]);
    let uris = |said: &str| -> Vec<String> {
        said.lines().skip(1).map(|line| line.split("  ").next().unwrap().to_owned()).collect()
    };
    assert!(remote.starts_with("exit: 0\n"), "{remote}");
    assert!(remote.lines().all(|line| line.chars().count() <= 80), "{remote}");
    // Only the server has resources of its own, such as its status.
    let mut listed = uris(&remote);
    listed.retain(|uri| !uri.starts_with("libris:"));
    assert_eq!(listed, uris(&libris(folder.path(), &["ls", "library"])));
    assert!(listed.contains(&"file:///library/notes/a%20b.txt".to_owned()), "{remote}");
    assert!(remote.contains("file:///library/guide/intro.md  An introduction that is"), "{remote}");

    let tree = on_server(folder.path(), &["ls", "--tree", "--below", "file:"]);
    let expected = "exit: 0\nfile://\n└── library\n    ├── data.json\n    ├── guide\n    │   ├── intro.md\n    \
                    │   └── logo.png\n    └── notes\n        └── a%20b.txt\n";
    assert_eq!(tree, expected);
    let long = on_server(folder.path(), &["ls", "--long", "--below", "file:///library/data.json"]);
    let line = long.lines().nth(1).unwrap();
    assert!(line.trim_start().starts_with("9 B  20") && line.contains("  application/json  "), "{long}");
    assert_eq!(on_server(folder.path(), &["ls", "--mime", "video/*"]), "exit: 1\nno resource matches\n");
    let json = on_server(folder.path(), &["ls", "--json", "--mime", "text/markdown", "--below", "file:"]);
    let (_, json) = json.split_once('\n').unwrap();
    let resource: serde_json::Value = serde_json::from_str(json).unwrap();
    let expected = (&"file:///library/guide/intro.md".into(), &"text/markdown".into());
    assert_eq!((&resource["uri"], &resource["mimeType"]), expected);
    assert!(resource["annotations"]["lastModified"].is_string(), "{resource}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_filters_by_the_annotations_of_a_server() {
    let recorder = Recorder::start(&["odd://model", "odd://none", "odd://old", "odd://user"]).await;
    let annotated = |uri: &str, annotations: Value| {
        recorder.describe(uri, json!({ "annotations": annotations }));
    };
    annotated("odd://model", json!({ "audience": ["assistant"], "priority": 0.2 }));
    annotated("odd://old", json!({ "lastModified": "2020-01-01T00:00:00Z", "priority": 0.8 }));
    annotated(
        "odd://user",
        json!({ "audience": ["user"], "priority": 0.5, "lastModified": "2026-01-31T00:00:00Z" }),
    );
    let folder = tempfile::tempdir().unwrap();
    let ls = |filter: &[&str]| libris(folder.path(), &[&["ls"], filter, &[&recorder.url]].concat());
    // A resource without an audience is for everybody; one without a priority or a time does not pass.
    let cases: [(&[&str], &[&str]); 7] = [
        (&["--audience", "user"], &["odd://none", "odd://old", "odd://user"]),
        (&["--audience", "assistant"], &["odd://model", "odd://none", "odd://old"]),
        (&["--min-priority", "0.5"], &["odd://old", "odd://user"]),
        (&["--min-priority", "0.51"], &["odd://old"]),
        (&["--modified-since", "2026-01-31T00:00:00Z"], &["odd://user"]),
        (&["--modified-since", "2019-12-31T00:00:00Z"], &["odd://old", "odd://user"]),
        (&["--audience", "assistant", "--min-priority", "0.5"], &["odd://old"]),
    ];
    for (filter, expected) in cases {
        assert_eq!(ls(filter), format!("exit: 0\n{}\n", expected.join("\n")), "{filter:?}");
    }
    let nothing = ls(&["--modified-since", "2026-01-31T00:00:01Z"]);
    assert_eq!(nothing, "exit: 1\nno resource matches\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_the_environment_is_sent() {
    let recorder = Recorder::start(&["odd://one"]).await;
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path(), &["read", "odd://one", &recorder.url])
        .env("LIBRIS_TOKEN", "token-of-the-test")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let authorized = recorder.headers("authorization");
    assert!(!authorized.is_empty());
    assert!(authorized.iter().all(|header| header == "Bearer token-of-the-test"), "{authorized:?}");
    libris(folder.path(), &["read", "odd://one", &recorder.url]);
    assert!(
        recorder.headers("authorization").contains(&String::new()),
        "without the variable, there is none"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_a_server_are_read_as_text() {
    let recorder = Recorder::start(&["odd://report.rtf", "odd://strict.rtf", "odd://one"]).await;
    let folder = tempfile::tempdir().unwrap();
    let read = |uri: &str| libris(folder.path(), &["read", "--as", "text", uri, &recorder.url]);
    // One ignores the query, and the other is not found with it.
    for uri in ["odd://report.rtf", "odd://strict.rtf"] {
        assert_eq!(read(uri), "exit: 0\nMinutes of the meeting\n", "{uri}");
    }
    let plain = libris(folder.path(), &["read", "--json", "odd://report.rtf", &recorder.url]);
    assert!(plain.contains("\"blob\":\"e1xydGYx"), "{plain}");
}

#[test]
fn read_prints_contents_as_they_are() {
    let folder = folder("library", &FILES);
    let read = |arguments: &[&str]| on_server(folder.path(), &[&["read"], arguments].concat());
    assert_eq!(read(&["file:///library/notes/a%20b.txt?lines=2-3"]), "exit: 0\ntwo\nthree\n");
    let json = read(&["--json", "file:///library/data.json"]);
    assert!(
        json.contains(r#""mimeType":"application/json""#) && json.contains(r#""text":"{\"a\": 1}\n""#),
        "{json}"
    );
    let missing = read(&["file:///library/none.txt"]);
    let expected = "exit: 3\nerror: could not read `file:///library/none.txt`\n  because: no resource at";
    assert!(missing.starts_with(expected), "{missing}");
    let wrong = read(&["no URI"]);
    assert!(wrong.starts_with("exit: 1\nerror: not a URI: "), "{wrong}");
    assert_eq!(read(&["-o", "copy.png", "file:///library/guide/logo.png"]), "exit: 0\n");
    let file = |path: &str| std::fs::read(folder.path().join(path)).unwrap();
    assert_eq!(file("copy.png"), file("library/guide/logo.png"));
}

#[test]
fn templates_and_completion_are_those_of_the_server() {
    let folder = folder("library", &FILES);
    let template = "file:///library/{+path}{?lines,bytes}";
    let templates = on_server(folder.path(), &["templates"]);
    assert!(templates.starts_with("exit: 0\n") && templates.contains(template), "{templates}");
    let complete = |arguments: &[&str]| on_server(folder.path(), &[&["complete"], arguments].concat());
    let completed = complete(&[template, "path=guide/i"]);
    assert_eq!(completed, "exit: 0\nguide/intro.md\n");
    let nothing = complete(&["--json", template, "path=nothing-like-this"]);
    assert!(nothing.starts_with("exit: 1\n{") && nothing.contains(r#""values":[]"#), "{nothing}");
    assert_eq!(
        complete(&[template, "paht"]),
        format!(
            "exit: 1\nerror: `{template}` has no variable `paht`\nhint: its variables are `path`, `lines`, `bytes`\n"
        )
    );
    let unknown = complete(&["file:///x/{a}", "a"]);
    assert!(unknown.contains("unknown template `file:///x/{a}`"), "{unknown}");
}

#[test]
fn info_says_who_a_server_is() {
    let folder = folder("library", &FILES);
    let info = on_server(folder.path(), &["info"]);
    assert!(info.starts_with("exit: 0\ntarget        libris\nserver        libris "), "{info}");
    assert!(info.contains("\nrevision      2026-07-28\n") && info.contains("\ncapabilities  "), "{info}");
    let json = on_server(folder.path(), &["info", "--json"]);
    assert!(
        json.contains(r#""resources":{"listChanged":true,"subscribe":true}"#)
            || json.contains(r#""resources":{"subscribe":true,"listChanged":true}"#),
        "{json}"
    );
    let local = libris(folder.path(), &["info", "library"]);
    assert!(local.starts_with("exit: 0\ntarget        library\nsource        files\n"), "{local}");
    assert!(local.contains("\nrevisions     2026-07-28, 2025-11-25"), "{local}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_work_over_http_too() {
    let folder = folder("library", &FILES);
    let server = HttpServer::start(&[folder.path().join("library").as_os_str()]).await;
    let over_http = libris(folder.path(), &["ls", &server.url]);
    assert_eq!(over_http, on_server(folder.path(), &["ls"]));
    let read = libris(folder.path(), &["read", "file:///library/data.json", &server.url]);
    assert_eq!(read, "exit: 0\n{\"a\": 1}\n");
}

#[test]
fn failures_have_messages_and_exit_codes() {
    let folder = folder("library", &FILES);
    assert_eq!(
        libris(folder.path(), &["ls", "--", "no-such-program"]),
        "exit: 4\nerror: could not list the resources\n  because: the MCP server `no-such-program` could not be started: \
         there is no program `no-such-program`\nhint: install it, or write its full path\n"
    );
    let ended = libris(folder.path(), &["ls", "--", "sh", "-c", "echo out of paper >&2; exit 3"]);
    let expected =
        "exit: 4\nerror: could not list the resources\n  because: the MCP server `sh` closed the connection";
    assert!(ended.starts_with(expected) && ended.contains("out of paper"), "{ended}");
    let refused = libris(folder.path(), &["info", "http://127.0.0.1:1/mcp"]);
    assert!(
        refused.starts_with("exit: 4\nerror: could not connect to `http://127.0.0.1:1/mcp`\n"),
        "{refused}"
    );
    let unsupported = libris(folder.path(), &["ls", "ftp://example.com/"]);
    assert!(
        unsupported.starts_with("exit: 1\nerror: `ftp://` is not a supported source\nhint: "),
        "{unsupported}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_a_server_reaches_a_terminal_escaped() {
    let recorder = Recorder::start(&["odd://one"]).await;
    recorder.rename("\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}name");
    let folder = tempfile::tempdir().unwrap();
    let listed = libris(folder.path(), &["ls", &recorder.url]);
    assert_eq!(listed, "exit: 0\nodd://one  \\u{1b}]0;owned\\u{7}\\u{1b}[2J\\u{202e}name\n");
    // JSON has escapes of its own.
    let json = libris(folder.path(), &["ls", "--json", &recorder.url]);
    assert!(json.contains(r#""name":"\u001b]0;owned\u0007\u001b[2J"#), "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_fit_and_columns_are_as_wide_as_their_values() {
    let recorder = Recorder::start(&["odd://one"]).await;
    recorder.rename(&"図書館の本 ".repeat(12));
    let folder = tempfile::tempdir().unwrap();
    // Each of these characters takes two columns.
    let listed = libris(folder.path(), &["ls", &recorder.url]);
    assert_eq!(listed, format!("exit: 0\nodd://one  {}図…\n", "図書館の本 ".repeat(6)));
    // There are no sizes, times and types.
    let long = libris(folder.path(), &["ls", "--long", &recorder.url]);
    assert!(long.starts_with("exit: 0\n-  -  -  odd://one  図書館の本 "), "{long}");
    let empty = libris(folder.path(), &["prompts", &recorder.url]);
    assert_eq!(empty, "exit: 1\nthe target has no prompts\n");
    assert_eq!(libris(folder.path(), &["skills", &recorder.url]), "exit: 1\nthe target has no skills\n");
    let info = libris(folder.path(), &["info", &recorder.url]);
    assert!(info.lines().all(|line| line.chars().count() <= 80), "{info}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_prints_changes_and_runs_a_program() {
    let folder = folder("library", &FILES);
    let program = folder.path().join("told");
    std::fs::write(&program, "#!/bin/sh\necho \"$1 $2\" >> told.txt\n").unwrap();
    let mut permissions = std::fs::metadata(&program).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    std::fs::set_permissions(&program, permissions).unwrap();
    let uri = "file:///library/data.json";
    let arguments = [
        "watch", "--count", "2", "--exec", "./told", "--uri", uri, "--", LIBRIS, "serve", "library",
        "--stdio",
    ];
    let mut watch =
        command(folder.path(), &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    // The subscription counts as a change, because earlier ones are unknown.
    assert_eq!(lines.next().unwrap().unwrap(), format!("updated {uri}"));
    std::fs::write(folder.path().join("library/data.json"), "{\"a\": 22}\n").unwrap();
    assert!(lines.next().unwrap().unwrap().ends_with(uri));
    assert!(watch.wait().unwrap().success());
    let told = std::fs::read_to_string(folder.path().join("told.txt")).unwrap();
    assert_eq!(told.lines().count(), 2);
    assert!(told.starts_with(&format!("updated {uri}\n")), "{told}");
}
