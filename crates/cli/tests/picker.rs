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
         [[rule]]\nuri = \"file:///docs/**\"\naction = \"allow\"\n"
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
    // The rest begins with the first line that the part does not show.
    let rest = &part["rest"];
    let lines = rest["linesBefore"].as_u64().unwrap();
    assert!(lines > 1_000 && rest["byte"] == lines * "a line of a log\n".len() as u64, "{rest}");
    let next = json!({ "uri": "file:///docs/long.log", "size": 3_200_000, "start": rest });
    let (_, next) = preview(&origin, next).await;
    assert!(next["rest"]["linesBefore"].as_u64().unwrap() > lines, "{}", next["rest"]);
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
    for (arguments, status) in [(&[][..], 404), (&["--picker"][..], 200), (&["--no-picker"][..], 404)] {
        let (_server, origin) = serve(folder.path(), arguments).await;
        assert_eq!(get(format!("{origin}/")).await.status().as_u16(), status, "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_whatever_answers_them() {
    let folder = furnished("");
    // Rules that allow only documents hide the metrics.
    std::fs::write(folder.path().join("libris.toml"), "[[files]]\npath = \"docs\"\n").unwrap();
    let (_server, origin) = serve(folder.path(), &[]).await;
    let counted = async || {
        let metrics = get(format!("{origin}/metrics")).await.text().await.unwrap();
        let line = metrics.lines().find(|line| line.starts_with("libris_requests_total ")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let before = counted().await;
    for _ in 0..3 {
        ask(&origin, &json!({}), "resources/read", json!({ "uri": "file:///docs/start.md" })).await;
    }
    get(format!("{origin}/picker/app.js")).await;
    // A request with a field that the fast path does not know.
    let page = Client::new().get(format!("{origin}/status")).header("x-other", "1").send().await.unwrap();
    assert_eq!(page.status().as_u16(), 200);
    assert_eq!(counted().await - before, 6);
}

/// The capabilities of a host that shows apps.
fn apps() -> Value {
    json!({ "extensions": { "io.modelcontextprotocol/ui": { "mimeTypes": ["text/html;profile=mcp-app"] } } })
}

/// Sends a request of 2026-07-28 from a client with these capabilities.
async fn ask(origin: &str, capabilities: &Value, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let mut request = Client::new()
        .post(format!("{origin}/mcp"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    if let Some(name) = params["uri"].as_str().or(params["name"].as_str()) {
        request = request.header("mcp-name", name);
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let response = request.body(body.to_string()).send().await.unwrap();
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// Sends a request of the page, as its host passes it on.
async fn ask_app(origin: &str, method: &str, params: Value) -> Value {
    let arguments = json!({ "method": method, "params": params });
    let called = json!({ "name": "picker_request", "arguments": arguments });
    ask(origin, &apps(), "tools/call", called).await["result"].take()
}

fn names(listed: &Value) -> Vec<&str> {
    listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

const TOOLS: [&str; 3] = ["search_resources", "read_resource", "list_resources"];

#[tokio::test(flavor = "multi_thread")]
async fn the_app_is_for_hosts_that_show_apps() {
    let folder = furnished("");
    let (_server, origin) = serve(folder.path(), &[]).await;
    // The response to one host is not cached for another.
    for _ in 0..2 {
        let plain = ask(&origin, &json!({}), "tools/list", json!({})).await;
        assert_eq!(names(&plain), TOOLS);
        let listed = ask(&origin, &apps(), "tools/list", json!({})).await;
        assert_eq!(names(&listed), [&TOOLS[..], &["open_picker", "picker_request"]].concat());
        let tools = &listed["result"]["tools"];
        let linked = |visibility: &str| json!({ "ui": { "resourceUri": "ui://libris/picker", "visibility": [visibility] } });
        assert_eq!((&tools[3]["_meta"], &tools[4]["_meta"]), (&linked("model"), &linked("app")));
        assert_eq!(tools[0]["_meta"], Value::Null);
    }
    for (capabilities, declared) in [(json!({}), Value::Null), (apps(), json!({}))] {
        let found = ask(&origin, &capabilities, "server/discover", json!({})).await;
        assert_eq!(found["result"]["capabilities"]["extensions"]["io.modelcontextprotocol/ui"], declared);
    }
    let read = ask(&origin, &apps(), "resources/read", json!({ "uri": "ui://libris/picker" })).await;
    let page = &read["result"]["contents"][0];
    assert_eq!(page["mimeType"], "text/html;profile=mcp-app");
    assert_eq!(
        page["_meta"]["ui"],
        json!({ "prefersBorder": true, "permissions": { "clipboardWrite": {} } })
    );
    let document = page["text"].as_str().unwrap();
    assert!(document.starts_with("<!doctype html>") && document.contains("id=\"query\""), "{document}");
    let listed = ask(&origin, &apps(), "resources/list", json!({})).await.to_string();
    assert!(!listed.contains("ui://"), "{listed}");
    let opened = json!({ "name": "open_picker", "arguments": { "query": "on call" } });
    let opened = ask(&origin, &apps(), "tools/call", opened).await;
    assert_eq!(opened["result"]["structuredContent"], json!({ "query": "on call" }));
    let wrong = json!({ "name": "open_picker", "arguments": { "path": "x" } });
    assert_eq!(ask(&origin, &apps(), "tools/call", wrong).await["result"]["isError"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_remembers_whether_its_host_shows_apps() {
    let folder = furnished("");
    let (_server, origin) = serve(folder.path(), &[]).await;
    for (capabilities, is_shown) in [(json!({}), false), (apps(), true), (json!({}), false)] {
        let send = |session: Option<String>, body: Value| {
            let mut request = Client::new()
                .post(format!("{origin}/mcp"))
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream");
            if let Some(session) = session {
                request = request.header("mcp-session-id", session);
            }
            request.body(body.to_string()).send()
        };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "host", "version": "1" },
        });
        let opened = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let welcome = send(None, opened).await.unwrap();
        let session = welcome.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let welcome: Value = serde_json::from_str(&welcome.text().await.unwrap()).unwrap();
        let declared = &welcome["result"]["capabilities"]["extensions"]["io.modelcontextprotocol/ui"];
        assert_eq!(declared.is_object(), is_shown, "{welcome}");
        // The second response would come from the cache.
        for id in 2..4 {
            let list = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {} });
            let listed = send(Some(session.clone()), list).await.unwrap().text().await.unwrap();
            let listed: Value = serde_json::from_str(&listed).unwrap();
            assert_eq!(names(&listed).contains(&"open_picker"), is_shown, "{listed}");
        }
    }
}

#[test]
fn hosts_that_start_the_server_show_the_app() {
    use std::io::Write as _;

    let folder = furnished("");
    for (capabilities, is_shown) in [(apps(), true), (json!({}), false)] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_libris"))
            .arg("serve")
            .arg(folder.path().join("docs"))
            .arg("--stdio")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "host", "version": "1" },
        });
        let mut input = process.stdin.take().unwrap();
        let opened = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} });
        writeln!(input, "{opened}\n{list}").unwrap();
        drop(input);
        let output = String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap();
        let answers: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let listed = answers.iter().find(|answer| answer["id"] == 2).unwrap();
        assert_eq!(names(listed).contains(&"open_picker"), is_shown, "{listed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_app_shows_what_the_view_shows() {
    let folder = furnished("");
    let (_server, origin) = serve(folder.path(), &[]).await;
    let found = ask_app(&origin, "server/discover", json!({})).await["structuredContent"].take();
    let skills = json!({ "io.modelcontextprotocol/skills": {} });
    assert_eq!(found["capabilities"], json!({ "tools": {}, "extensions": skills }));
    assert!(found["serverInfo"]["name"].is_string() && found["instructions"].is_string(), "{found}");
    for (method, params, member) in [
        ("resources/directory/read", json!({ "uri": "file:///docs" }), "resources"),
        ("resources/list", json!({}), "resources"),
        ("resources/templates/list", json!({}), "resourceTemplates"),
        ("resources/read", json!({ "uri": "file:///docs/start.md" }), "contents"),
        ("tools/list", json!({}), "tools"),
    ] {
        let direct = ask(&origin, &json!({}), method, params.clone()).await["result"][member].take();
        let answered = ask_app(&origin, method, params).await["structuredContent"][member].take();
        assert!(direct.as_array().is_some_and(|items| !items.is_empty()), "{method}: {direct}");
        assert_eq!(answered, direct, "{method}");
        assert!(!answered.to_string().contains("plan.md"), "{answered}");
    }
    let listed = ask_app(&origin, "skills/list", json!({})).await;
    assert_eq!(listed["structuredContent"]["skills"], json!([]), "{listed}");
    let preview = ask_app(&origin, "picker/preview", json!({ "uri": "file:///docs/start.md" })).await;
    assert_eq!(preview["structuredContent"]["kind"], "markdown");
    let completed = json!({
        "ref": { "type": "ref/resource", "uri": "file:///docs/{+path}{?lines,bytes}" },
        "argument": { "name": "path", "value": "" },
    });
    let completed = ask_app(&origin, "completion/complete", completed).await;
    let values = completed["structuredContent"]["completion"]["values"].to_string();
    assert!(values.contains("start.md") && !values.contains("plan.md"), "{completed}");
    // What is hidden looks like what is not there.
    for method in ["picker/preview", "resources/read"] {
        let [hidden, missing] =
            ["file:///docs/secret/plan.md", "file:///docs/secret/none.md"].map(|uri| json!({ "uri": uri }));
        let (hidden, missing) =
            (ask_app(&origin, method, hidden).await, ask_app(&origin, method, missing).await);
        assert_eq!(hidden["content"], missing["content"]);
        assert_eq!(
            (&hidden["isError"], &hidden["content"][0]["text"]),
            (&json!(true), &json!("resource not found"))
        );
    }
    let wrong = ask_app(&origin, "resources/subscribe", json!({})).await;
    assert_eq!(wrong["content"][0]["text"], "the picker does not support the method `resources/subscribe`");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_app_can_be_switched_off() {
    let denied = "[[rule]]\nuri = \"libris://tools/open_picker\"\naction = \"deny\"\n";
    for (more, arguments) in [
        ("[tools]\npicker = false\n", &[][..]),
        ("tools = false\n", &[][..]),
        ("", &["--no-picker"][..]),
        (denied, &[][..]),
    ] {
        let folder = furnished(more);
        let (_server, origin) = serve(folder.path(), arguments).await;
        let found = ask(&origin, &apps(), "server/discover", json!({})).await["result"].take();
        assert_eq!(found["capabilities"]["extensions"]["io.modelcontextprotocol/ui"], Value::Null, "{more}");
        let read = ask(&origin, &apps(), "resources/read", json!({ "uri": "ui://libris/picker" })).await;
        assert_eq!(read["error"]["message"], "resource not found", "{more}");
        if more != "tools = false\n" {
            assert_eq!(names(&ask(&origin, &apps(), "tools/list", json!({})).await), TOOLS, "{more}");
            for name in ["open_picker", "picker_request"] {
                let called = json!({ "name": name, "arguments": { "method": "server/discover" } });
                let refused = ask(&origin, &apps(), "tools/call", called).await;
                let message = refused["error"]["message"].as_str().unwrap_or_default();
                assert!(message.starts_with(&format!("unknown tool `{name}`")), "{more}: {refused}");
            }
        }
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
