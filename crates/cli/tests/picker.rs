//! The picker over HTTP: its files, its policy, previews through the view, and when it is served.

#![cfg(feature = "picker")]

mod process;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use process::HttpServer;
use reqwest::{Client, Response};
use serde_json::{Value, json};

/// A folder with documents, some of which a rule hides.
fn furnished(more: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let docs = folder.path().join("docs");
    std::fs::create_dir_all(docs.join("secret")).unwrap();
    std::fs::write(docs.join("start.md"), "# Start\n\n![seen](a.svg) ![hidden](secret/b.svg)\n").unwrap();
    std::fs::write(docs.join("a.svg"), "<svg xmlns=\"http://www.w3.org/2000/svg\"/>").unwrap();
    std::fs::write(docs.join("secret/b.svg"), "<svg xmlns=\"http://www.w3.org/2000/svg\"/>").unwrap();
    std::fs::write(docs.join("secret/plan.md"), "# Plan\n").unwrap();
    std::fs::write(docs.join("long.log"), "a line of a log\n".repeat(200_000)).unwrap();
    let config = format!(
        "{more}\n[[files]]\npath = \"docs\"\n[[rule]]\nuri = \"file:///docs/secret/**\"\naction = \"deny\"\n\
         [[rule]]\nuri = \"**\"\naction = \"allow\"\n"
    );
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    folder
}

async fn serve(folder: &Path, more: &[&str]) -> (HttpServer, String) {
    let config = folder.join("libris.toml");
    let mut arguments = vec![OsStr::new("--config"), config.as_os_str()];
    arguments.extend(more.iter().map(OsStr::new));
    let server = HttpServer::start(&arguments).await;
    let origin = server.url.strip_suffix("/mcp").unwrap().to_owned();
    (server, origin)
}

async fn preview(origin: &str, request: Value) -> (u16, Value) {
    let response = Client::new()
        .post(format!("{origin}/picker/preview"))
        .body(request.to_string())
        .send()
        .await
        .unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
}

async fn get(url: String) -> Response {
    Client::new().get(url).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served_with_a_strict_policy() {
    let folder = furnished("");
    let (_server, origin) = serve(folder.path(), &[]).await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/status", "text/html; charset=utf-8"),
        ("/picker/app.js", "text/javascript; charset=utf-8"),
        ("/picker/style.css", "text/css; charset=utf-8"),
    ] {
        let response = get(format!("{origin}{path}")).await;
        let headers = response.headers().clone();
        assert_eq!(
            (response.status().as_u16(), &headers["content-type"]),
            (200, &kind.parse().unwrap()),
            "{path}"
        );
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert!(!response.text().await.unwrap().is_empty());
    }
    assert_eq!(get(format!("{origin}/picker/none.js")).await.status().as_u16(), 404);
    assert_eq!(get(format!("{origin}/elsewhere")).await.status().as_u16(), 404);
    let posted = Client::new().post(format!("{origin}/")).send().await.unwrap();
    assert_eq!(posted.status().as_u16(), 405);
    let foreign = Client::new().get(format!("{origin}/")).header("origin", "http://evil.example");
    assert_eq!(foreign.send().await.unwrap().status().as_u16(), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn previews_show_what_the_view_reads() {
    let folder = furnished("");
    let (_server, origin) = serve(folder.path(), &[]).await;
    let (status, start) = preview(&origin, json!({ "uri": "file:///docs/start.md" })).await;
    assert_eq!((status, &start["kind"]), (200, &json!("markdown")));
    let html = start["html"].as_str().unwrap();
    assert!(html.contains("<h1 id=\"start\">Start</h1>"), "{html}");
    // The picture that the rule hides looks like one that is missing.
    assert_eq!(html.matches("data:image/svg+xml;base64,").count(), 1, "{html}");
    assert!(html.contains("<span class=\"picture\">hidden</span>"), "{html}");
    let hidden = preview(&origin, json!({ "uri": "file:///docs/secret/plan.md" })).await;
    let missing = preview(&origin, json!({ "uri": "file:///docs/secret/none.md" })).await;
    assert_eq!(hidden, missing);
    assert_eq!(hidden, (404, json!({ "error": "resource not found" })));
    let (status, part) = preview(&origin, json!({ "uri": "file:///docs/long.log", "size": 3_200_000 })).await;
    assert_eq!((status, &part["totalBytes"]), (200, &json!(3_200_000)));
    assert!(
        part["next"].as_str().unwrap().starts_with("file:///docs/long.log?bytes=262144-"),
        "{}",
        part["next"]
    );
    for wrong in [json!({}), json!({ "uri": 7 }), json!({ "uri": "file:///docs/start.md", "path": "/etc" })] {
        assert_eq!(preview(&origin, wrong).await.0, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_public_and_its_data_are_not() {
    let folder = furnished("");
    let keys = folder.path().join("keys.toml");
    let keys = keys.to_str().unwrap();
    let added =
        Command::new(env!("CARGO_BIN_EXE_libris")).args(["key", "add", "ci", "--keys", keys]).output();
    let key = String::from_utf8(added.unwrap().stdout).unwrap().trim().to_owned();
    let (_server, origin) = serve(folder.path(), &["--keys", keys]).await;
    assert_eq!(get(format!("{origin}/")).await.status().as_u16(), 200);
    assert_eq!(preview(&origin, json!({ "uri": "file:///docs/start.md" })).await.0, 401);
    assert_eq!(get(format!("{origin}/metrics")).await.status().as_u16(), 401);
    let admitted = Client::new()
        .post(format!("{origin}/picker/preview"))
        .header("authorization", format!("Bearer {key}"))
        .body(json!({ "uri": "file:///docs/start.md" }).to_string());
    assert_eq!(admitted.send().await.unwrap().status().as_u16(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picker_can_be_switched_off() {
    let folder = furnished("[listen]\npicker = false\n");
    for (arguments, status) in [(&[][..], 404), (&["--picker"], 200), (&["--no-picker"], 404)] {
        let (_server, origin) = serve(folder.path(), arguments).await;
        assert_eq!(get(format!("{origin}/")).await.status().as_u16(), status, "{arguments:?}");
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn browse_opens_the_page_with_search() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    let folder = furnished("");
    let (browser, opened) = (folder.path().join("browser"), folder.path().join("opened"));
    std::fs::write(&browser, format!("#!/bin/sh\nprintf %s \"$1\" > '{}'\n", opened.display())).unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (more, is_opened) in [(None, true), (Some("--no-open"), false)] {
        let _ = std::fs::remove_file(&opened);
        let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_libris"))
            .arg("browse")
            .arg(folder.path().join("docs"))
            .args(more)
            .env("BROWSER", &browser)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
        let page = loop {
            let line = said.next_line().await.unwrap().expect("libris says where the page is");
            if let Some((_, page)) = line.split_once("browse at ") {
                break page.to_owned();
            }
        };
        let until = Instant::now() + Duration::from_secs(60);
        while is_opened && std::fs::read_to_string(&opened).unwrap_or_default() != page {
            assert!(Instant::now() < until, "the browser is not opened at {page}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let status = get(format!("{page}metrics")).await.text().await.unwrap();
        assert!(status.contains("libris_search_resources"), "{status}");
        assert_eq!(get(page).await.status().as_u16(), 200);
        assert_eq!(opened.exists(), is_opened);
    }
}
