//! The audit log of a server over HTTP.

use std::time::Instant;

use serde_json::{Value, json};

use crate::logged_server::LoggedServer;
use crate::{PATIENCE, folder, libris};

#[tokio::test]
async fn the_log_is_rotated_by_sighup() {
    let folder = folder("[audit]\nfile = \"audit.log\"\n[auth]\nkeys = \"keys.toml\"\n");
    let (_, key) = libris(folder.path(), &["key", "add", "ci", "--keys", "keys.toml"]);
    let key = format!("Bearer {}", key.lines().next().unwrap());
    let (log, old) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
    let mut server = LoggedServer::start(folder.path(), &[], &[]);
    let read = async |uri: &str| {
        let (status, answer) = server.ask(Some(&key), "resources/read", json!({ "uri": uri })).await;
        assert_eq!(status, 200, "{answer}");
    };
    read("file:///docs/a.md").await;
    let (status, _) = server.ask(Some("Bearer wrong"), "resources/read", json!({ "uri": "file:///" })).await;
    assert_eq!(status, 401);
    let until = Instant::now() + PATIENCE;
    while std::fs::read_to_string(&log).unwrap().lines().count() < 2 {
        assert!(Instant::now() < until, "the log is not written");
        std::thread::yield_now();
    }
    std::fs::rename(&log, &old).unwrap();
    server.hang_up();
    while !log.exists() {
        assert!(Instant::now() < until, "the log is not opened again");
        std::thread::yield_now();
    }
    read("file:///docs/b.md").await;
    server.end();
    let shown = |path| {
        let text = std::fs::read_to_string(path).unwrap();
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            format!("{} {} {} {}", line["who"], line["operation"], line["uri"], line["decision"])
        };
        text.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        shown(&old),
        ["\"ci\" \"read\" \"file:///docs/a.md\" \"allow\"", "null \"authenticate\" null \"deny\""]
    );
    assert_eq!(shown(&log), ["\"ci\" \"read\" \"file:///docs/b.md\" \"allow\""]);
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&log).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
