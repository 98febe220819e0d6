//! The client commands on another server: snapshots of their output at 80 columns, and their exit codes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use insta::assert_snapshot;

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
    assert_snapshot!(remote, @"");
    // Only the server has a status.
    let local = libris(folder.path(), &["ls", "library"]);
    assert_eq!(remote.replace("libris://status  Status of the sources\n", ""), local);
    assert_snapshot!(on_server(folder.path(), &["ls", "--tree", "--below", "file:"]), @"");
    assert_snapshot!(on_server(folder.path(), &["ls", "--mime", "image/*"]), @"");
    assert_snapshot!(on_server(folder.path(), &["ls", "--mime", "video/*"]), @"");
    let json = on_server(folder.path(), &["ls", "--json", "--mime", "text/markdown"]);
    let (_, json) = json.split_once('\n').unwrap();
    let resource: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(
        (&resource["uri"], &resource["mimeType"]),
        (&"file:///library/guide/intro.md".into(), &"text/markdown".into())
    );
    assert!(
        resource["annotations"]["lastModified"].is_string() && resource.get("icons").is_none(),
        "{resource}"
    );
}

#[test]
fn read_prints_contents_as_they_are() {
    let folder = folder("library", &FILES);
    assert_snapshot!(on_server(folder.path(), &["read", "file:///library/notes/a%20b.txt?lines=2-3"]), @"");
    assert_snapshot!(on_server(folder.path(), &["read", "--json", "file:///library/data.json"]), @"");
    assert_snapshot!(on_server(folder.path(), &["read", "file:///library/none.txt"]), @"");
    assert_snapshot!(on_server(folder.path(), &["read", "no URI"]), @"");
    on_server(folder.path(), &["read", "-o", "copy.png", "file:///library/guide/logo.png"]);
    let read = |path: &str| std::fs::read(folder.path().join(path)).unwrap();
    assert_eq!(read("copy.png"), read("library/guide/logo.png"));
}

#[test]
fn templates_and_completion_are_those_of_the_server() {
    let folder = folder("library", &FILES);
    assert_snapshot!(on_server(folder.path(), &["templates"]), @"");
    let template = "file:///library/{+path}{?lines,bytes}";
    assert_snapshot!(on_server(folder.path(), &["complete", template, "path=gui"]), @"");
    assert_snapshot!(on_server(folder.path(), &["complete", "--json", template, "path=nothing"]), @"");
    assert_snapshot!(on_server(folder.path(), &["complete", template, "paht"]), @"");
    assert_snapshot!(on_server(folder.path(), &["complete", "file:///x/{a}", "a"]), @"");
}

#[test]
fn info_says_who_a_server_is() {
    let folder = folder("library", &FILES);
    let version = concat!("libris ", env!("CARGO_PKG_VERSION"));
    assert_snapshot!(on_server(folder.path(), &["info"]).replace(version, "libris VERSION"), @"");
    assert_snapshot!(libris(folder.path(), &["info", "library"]).replace(version, "libris VERSION"), @"");
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
    assert_snapshot!(libris(folder.path(), &["ls", "--", "no-such-program"]), @"");
    assert_snapshot!(libris(folder.path(), &["ls", "--", "sh", "-c", "echo out of paper >&2; exit 3"]), @"");
    let refused = libris(folder.path(), &["info", "http://127.0.0.1:1/mcp"]);
    assert!(
        refused.starts_with("exit: 4\nerror: could not connect to `http://127.0.0.1:1/mcp`\n"),
        "{refused}"
    );
    assert_snapshot!(libris(folder.path(), &["ls", "ftp://example.com/"]), @"");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_a_server_reaches_a_terminal_escaped() {
    let recorder = Recorder::start(&["odd://one"]).await;
    recorder.rename("\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}name");
    let folder = tempfile::tempdir().unwrap();
    assert_snapshot!(libris(folder.path(), &["ls", &recorder.url]), @"");
    // JSON has escapes of its own.
    let json = libris(folder.path(), &["ls", "--json", &recorder.url]);
    assert!(json.contains(r#""name":"\u001b]0;owned\u0007\u001b[2J"#), "{json}");
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
