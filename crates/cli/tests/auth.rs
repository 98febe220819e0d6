//! The binary with authentication: `libris key`, a server that requires keys, and who may reach it.

mod process;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use process::HttpServer;
use serde_json::{Value, json};

/// Longer than anything takes here, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn libris(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_libris")).args(arguments).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap()
}

/// A folder with something to serve.
fn furnished() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    std::fs::write(folder.path().join("docs/start.md"), "# Start\n").unwrap();
    folder
}

async fn read(url: &str, key: Option<&str>) -> (u16, String) {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "resources/read",
        "params": {
            "uri": "file:///docs/start.md",
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    });
    let mut request = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "resources/read")
        .header("mcp-name", "file:///docs/start.md")
        .body(body.to_string());
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[test]
fn keys_are_added_listed_and_revoked() {
    let folder = furnished();
    let added =
        libris(folder.path(), &["key", "add", "ci", "--keys", "keys.toml", "--group", "builds", "--json"]);
    assert!(added.status.success(), "{}", said(&added));
    let added: Value = serde_json::from_slice(&added.stdout).unwrap();
    let key = added["key"].as_str().unwrap();
    let secret = key.rsplit('_').next().unwrap();
    assert_eq!((secret.len(), &added["name"], &added["groups"]), (64, &json!("ci"), &json!(["builds"])));
    let again = libris(folder.path(), &["key", "add", "ci", "--keys", "keys.toml"]);
    assert_eq!(
        said(&again),
        "error: there is an API key `ci` already\nhint: choose another name, or revoke that key first\n"
    );
    // The file is that of the configuration, which is in another folder.
    std::fs::create_dir(folder.path().join("etc")).unwrap();
    std::fs::write(folder.path().join("etc/libris.toml"), "[auth]\nkeys = \"../keys.toml\"\n").unwrap();
    let list = libris(folder.path(), &["key", "list", "--config", "etc/libris.toml"]);
    let table = said(&list);
    assert!(table.starts_with("NAME  ID"), "{table}");
    assert!(table.contains("ci    ") && table.contains("builds") && table.contains("never"), "{table}");
    assert!(!table.contains(secret), "{table}");
    let json = said(&libris(folder.path(), &["key", "list", "--keys", "keys.toml", "--json"]));
    assert!(!json.contains(secret) && !json.contains("sha256"), "{json}");
    let expiring =
        libris(folder.path(), &["key", "add", "ada", "--keys", "keys.toml", "--expires", "90d", "--json"]);
    let expiring: Value = serde_json::from_slice(&expiring.stdout).unwrap();
    assert!(expiring["expires"].as_str().unwrap() > expiring["created"].as_str().unwrap());
    let revoked = libris(folder.path(), &["key", "revoke", "ci", "--keys", "keys.toml"]);
    assert_eq!(said(&revoked), "revoked the key of `ci`\n");
    let unknown = libris(folder.path(), &["key", "revoke", "ci", "--keys", "keys.toml"]);
    assert_eq!(said(&unknown), "error: there is no API key `ci`\nhint: `libris key list` shows the keys\n");
    let nowhere = libris(folder.path(), &["key", "list"]);
    assert!(
        said(&nowhere).starts_with("error: the file of API keys is not known\nhint: "),
        "{}",
        said(&nowhere)
    );
    let bad = libris(folder.path(), &["key", "add", "a b", "--keys", "keys.toml"]);
    assert!(said(&bad).starts_with("error: `a b` is not a name for a key\nhint: "), "{}", said(&bad));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_keys_serves_whom_it_knows() {
    let folder = furnished();
    let keys = folder.path().join("keys.toml");
    let keys = keys.to_str().unwrap();
    let added = libris(folder.path(), &["key", "add", "ci", "--keys", keys]);
    let key = String::from_utf8(added.stdout).unwrap().trim().to_owned();
    let docs = folder.path().join("docs");
    let server = HttpServer::start(&[docs.as_os_str(), OsStr::new("--keys"), OsStr::new(keys)]).await;
    assert_eq!(read(&server.url, None).await.0, 401);
    let (status, text) = read(&server.url, Some(&key)).await;
    assert!(status == 200 && text.contains("# Start"), "{status} {text}");
    assert!(libris(folder.path(), &["key", "revoke", "ci", "--keys", keys]).status.success());
    let until = Instant::now() + LONG;
    while read(&server.url, Some(&key)).await.0 != 401 {
        assert!(Instant::now() < until, "the key stays valid");
    }
}

/// Waits until a request with this key has the expected status.
async fn read_until(url: &str, key: Option<&str>, expected: u16) {
    let until = Instant::now() + LONG;
    loop {
        let (status, text) = read(url, key).await;
        if status == expected {
            return;
        }
        assert!(Instant::now() < until, "status {status} instead of {expected}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_authentication_take_effect_while_serving() {
    let folder = furnished();
    let key = |name: &str, file: &str| {
        let added = libris(folder.path(), &["key", "add", name, "--keys", file]);
        String::from_utf8(added.stdout).unwrap().trim().to_owned()
    };
    let (one, other) = (key("one", "one.toml"), key("other", "other.toml"));
    let config = folder.path().join("libris.toml");
    let configure = |auth: &str| {
        // Replaced at once, because a reload may read a file that is written in part.
        std::fs::write(folder.path().join("new.toml"), format!("{auth}\n[[files]]\npath = \"docs\"\n"))
            .unwrap();
        std::fs::rename(folder.path().join("new.toml"), &config).unwrap();
    };
    configure("[auth]\nkeys = \"one.toml\"");
    let arguments = [OsStr::new("--config"), config.as_os_str()];
    let mut server = HttpServer::start(&arguments).await;
    assert_eq!((read(&server.url, Some(&one)).await.0, read(&server.url, Some(&other)).await.0), (200, 401));
    let stream = reqwest::Client::new()
        .post(&server.url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "subscriptions/listen")
        .header("authorization", format!("Bearer {one}"))
        .body(
            json!({
                "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
                "params": {
                    "notifications": { "resourcesListChanged": true },
                    "_meta": {
                        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                        "io.modelcontextprotocol/clientCapabilities": {},
                    },
                },
            })
            .to_string(),
        )
        .send()
        .await
        .unwrap();
    assert_eq!(stream.status().as_u16(), 200);
    // Another file of keys: the stream of a key that is not in it ends.
    configure("[auth]\nkeys = \"other.toml\"");
    read_until(&server.url, Some(&other), 200).await;
    assert_eq!(read(&server.url, Some(&one)).await.0, 401);
    let rest = tokio::time::timeout(LONG, stream.text()).await.expect("the stream ends").unwrap();
    assert!(rest.contains("acknowledged"), "{rest}");
    // An issuer: clients find its metadata.
    std::fs::write(folder.path().join("jwks.json"), "{\"keys\":[]}").unwrap();
    let issuer = "[auth]\nkeys = \"other.toml\"\nresource = \"http://127.0.0.1/mcp\"\n\
                  [[auth.issuer]]\nissuer = \"https://login.example\"\njwks = \"jwks.json\"";
    let metadata = server.url.replace("/mcp", "/.well-known/oauth-protected-resource");
    assert_ne!(reqwest::get(&metadata).await.unwrap().status().as_u16(), 200);
    configure(issuer);
    let until = Instant::now() + LONG;
    loop {
        let text = reqwest::get(&metadata).await.unwrap().text().await.unwrap();
        if text.contains("https://login.example") {
            break;
        }
        assert!(Instant::now() < until, "{text}");
    }
    assert_eq!(read(&server.url, Some(&other)).await.0, 200);
    // What is invalid changes nothing, neither the keys nor the rules.
    configure("[auth]\nkeys = \"one.toml\"\nscopes = [\"offline_access\"]\n[[rule]]\naction = \"deny\"");
    server.says("the previous configuration stays in effect").await;
    assert_eq!((read(&server.url, Some(&one)).await.0, read(&server.url, Some(&other)).await.0), (401, 200));
    // On this machine only, authentication may be removed.
    configure("");
    read_until(&server.url, None, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_does_not_open_a_server_that_others_can_reach() {
    let folder = furnished();
    let added = libris(folder.path(), &["key", "add", "one", "--keys", "keys.toml"]);
    let key = String::from_utf8(added.stdout).unwrap().trim().to_owned();
    let config = folder.path().join("libris.toml");
    let configure = |text: &str| {
        std::fs::write(folder.path().join("new.toml"), format!("{text}\n[[files]]\npath = \"docs\"\n"))
            .unwrap();
        std::fs::rename(folder.path().join("new.toml"), &config).unwrap();
    };
    configure("[auth]\nkeys = \"keys.toml\"");
    let arguments = [OsStr::new("--config"), config.as_os_str()];
    let mut server = HttpServer::start_on("0.0.0.0:0", &arguments).await;
    let url = server.url.replace("0.0.0.0", "127.0.0.1");
    for open in ["", "[auth]\nkeys = \"keys.toml\"\nanonymous = true"] {
        configure(open);
        server.says("the previous configuration stays in effect").await;
        assert_eq!((read(&url, None).await.0, read(&url, Some(&key)).await.0), (401, 200));
    }
}

#[test]
fn a_configuration_that_nobody_can_use_is_refused() {
    let folder = furnished();
    let check = |text: &str| {
        let config = format!("{text}\n[[files]]\npath = \"docs\"\n");
        std::fs::write(folder.path().join("libris.toml"), config).unwrap();
        said(&libris(folder.path(), &["check"]))
    };
    for (text, expected) in [
        ("[auth]", "error: `[auth]` accepts no credentials, so nobody could call\nhint: "),
        (
            "[[auth.issuer]]\nissuer = \"https://login.example\"",
            "error: could not set up authentication\n  because: `auth.resource` is missing\nhint: ",
        ),
        (
            "[auth]\nresource = \"https://docs.example/mcp\"\n[[auth.issuer]]\nissuer = \"http://login.example\"",
            "  because: `http://login.example` is not the URL of an issuer\nhint: ",
        ),
        (
            "[listen.tls]\ncertificate = \"missing.pem\"\nkey = \"missing.key\"",
            "error: could not set up TLS\n  because: could not read the certificates in `missing.pem`",
        ),
    ] {
        let said = check(text);
        assert!(said.contains(expected), "{text}: {said}");
    }
    let fine = check("[auth]\nkeys = \"keys.toml\"");
    assert!(fine.ends_with("ok\n"), "{fine}");
}
