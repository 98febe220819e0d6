//! Rules over an HTTP API and a Notion workspace, which get none of the credentials of the callers.

use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::libris;
use crate::logged_server::LoggedServer;

#[path = "../../../sources/tests/notion/server.rs"]
#[allow(dead_code, reason = "written for other tests")]
mod notion_server;

use notion_server::{Server, TOKEN, id};

/// An API of stations, and the headers of the requests that it got.
#[derive(Clone, Default)]
struct StationApi {
    requests: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

impl StationApi {
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let answer = async |State(api): State<Self>, request: Request| {
            let path = request.uri().path().to_owned();
            api.requests.lock().unwrap().push((path.clone(), request.headers().clone()));
            let text = match &*path {
                "/stations" => json!({ "stations": [{ "id": "oslo" }, { "id": "paris" }] }).to_string(),
                _ => format!("{{\"weather\":\"zephyr at {path}\"}}"),
            };
            ([("content-type", "application/json")], text)
        };
        let app = axum::Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }
}

const API: &str = r#"
[auth]
keys = "keys.toml"

[[http]]
base = "BASE"
headers = { x-own = { env = "OWN_TOKEN" } }

[http.limits]
allow_private = true

[[http.resource]]
uri = "weather://stations"
url = "stations"

[[http.resource]]
uri = "weather://secret"
url = "secret"

[[http.template]]
uri = "weather://station/{id}"
url = "stations/{id}"

[http.template.list]
from = "weather://stations"
items = "/stations"
values = { id = "/id" }

[[rule]]
group = "staff"
action = "allow"

[[rule]]
uri = ["weather://secret", "weather://station/paris"]
action = "deny"

[[rule]]
action = "allow"
"#;

/// What a caller lists, completes and finds, as text.
async fn seen(server: &LoggedServer, key: &str, template: &str, variable: &str, word: &str) -> [String; 3] {
    let mut texts = Vec::new();
    let completing = json!({
        "ref": { "type": "ref/resource", "uri": template },
        "argument": { "name": variable, "value": "" },
    });
    let search = json!({ "name": "search_resources", "arguments": { "query": word } });
    for (method, params) in
        [("resources/list", json!({})), ("completion/complete", completing), ("tools/call", search)]
    {
        let (status, answer) = server.ask(Some(key), method, params).await;
        assert_eq!(status, 200, "{answer}");
        texts.push(answer["result"].to_string());
    }
    texts.try_into().unwrap()
}

/// Asserts that a read is answered like that of something absent.
async fn assert_hidden(server: &LoggedServer, key: &str, hidden: &str, absent: &str) {
    let read = async |uri: &str| {
        let (status, answer) = server.ask(Some(key), "resources/read", json!({ "uri": uri })).await;
        (status, answer.to_string().replace(uri, "URI"))
    };
    let (hidden_answer, absent_answer) = (read(hidden).await, read(absent).await);
    assert!(hidden_answer.1.contains("error"), "{hidden}: {hidden_answer:?}");
    assert_eq!(hidden_answer, absent_answer, "{hidden}");
}

/// The keys of a guest and of a member of the group `staff`.
fn keys(folder: &std::path::Path) -> [String; 2] {
    [&["guest"][..], &["ada", "--group", "staff"]].map(|caller| {
        let arguments = [&["key", "add"][..], caller, &["--keys", "keys.toml"]].concat();
        let (ok, key) = libris(folder, &arguments);
        assert!(ok, "{key}");
        format!("Bearer {}", key.lines().next().unwrap())
    })
}

#[tokio::test]
async fn rules_hold_for_an_api_which_gets_no_credentials_of_callers() {
    let folder = tempfile::tempdir().unwrap();
    let api = StationApi::default();
    let config = API.replace("BASE", &api.start().await);
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    let [guest, staff] = keys(folder.path());
    let server = LoggedServer::start(folder.path(), &[], &[("OWN_TOKEN", "the server's own")]);
    let read = async |key: &str, uri: &str| {
        let (status, answer) = server.ask(Some(key), "resources/read", json!({ "uri": uri })).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["contents"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    let (template, variable) = ("weather://station/{id}", "id");
    // First those who may see everything, so that everything is cached.
    let all = seen(&server, &staff, template, variable, "zephyr").await;
    assert!(all[0].contains("weather://secret") && all[0].contains("weather://station/paris"), "{all:?}");
    assert!(all[1].contains("paris") && all[1].contains("oslo"), "{all:?}");
    for uri in ["weather://secret", "weather://station/paris", "weather://station/oslo"] {
        assert!(read(&staff, uri).await.contains("zephyr"));
    }
    let some = seen(&server, &guest, template, variable, "zephyr").await;
    for text in &some {
        assert!(!text.contains("secret") && !text.contains("paris"), "{text}");
    }
    assert!(some[0].contains("weather://station/oslo") && some[1].contains("oslo"), "{some:?}");
    let before = api.requests.lock().unwrap().len();
    assert_hidden(&server, &guest, "weather://secret", "weather://absent").await;
    assert_eq!(api.requests.lock().unwrap().len(), before, "a hidden resource is not requested");
    assert!(read(&guest, "weather://station/oslo").await.contains("zephyr"));
    let (_, answer) =
        server.ask(Some(&guest), "resources/read", json!({ "uri": "weather://station/paris" })).await;
    assert!(answer["error"].is_object() && !answer.to_string().contains("zephyr"), "{answer}");
    // The API got the token of this server, and nothing of its callers.
    let requests = api.requests.lock().unwrap();
    assert!(requests.len() >= 4, "{requests:?}");
    for (path, headers) in &*requests {
        assert_eq!(headers["x-own"], "the server's own", "{path}");
        assert!(!headers.contains_key("authorization"), "{path}: {headers:?}");
        let all = format!("{headers:?}");
        for key in [&guest, &staff] {
            assert!(!all.contains(key.trim_start_matches("Bearer ")), "{path}: {all}");
        }
    }
}

#[tokio::test]
async fn rules_hold_for_every_name_of_a_notion_page() {
    let notion = Server::start().await;
    {
        let mut workspace = notion.workspace();
        for (number, title) in [(1, "Roadmap"), (2, "Salaries")] {
            workspace.page(&id(number), title, json!({ "type": "workspace" }));
            workspace.edit(&id(number), &format!("zephyr {title}"));
        }
        workspace.database(&id(100), &id(101), "Tasks");
    }
    let (hidden, absent) = (id(2), id(77));
    let undashed = |id: &str| id.replace('-', "");
    // Each rule names the hidden page, and then the database, in another way.
    for (page, database) in [
        (format!("notion://pages/{hidden}"), format!("notion://databases/{}/**", id(100))),
        (
            format!("notion://workspace/pages/{hidden}"),
            format!("notion://databases/{}/rows", undashed(&id(100))),
        ),
        (
            format!("notion://pages/{}", undashed(&hidden)),
            format!("notion://databases/{}/*", undashed(&id(100))),
        ),
        (
            format!("notion://workspace/pages/{}", undashed(&hidden)),
            format!("notion://databases/{}/rows", id(100)),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "[auth]\nkeys = \"keys.toml\"\n[notion]\nurl = \"{}\"\n\
             [[rule]]\ngroup = \"staff\"\naction = \"allow\"\n\
             [[rule]]\nuri = [\"{page}\", \"{database}\"]\naction = \"deny\"\n[[rule]]\naction = \"allow\"\n",
            notion.url
        );
        std::fs::write(folder.path().join("libris.toml"), config).unwrap();
        let [guest, staff] = keys(folder.path());
        let server = LoggedServer::start(folder.path(), &[], &[("NOTION_TOKEN", TOKEN)]);
        let template = "notion://pages/{pageId}{?format}";
        let all = seen(&server, &staff, template, "pageId", "Salaries").await;
        assert!(all.iter().take(2).all(|text| text.contains(&hidden)), "{all:?}");
        let some = seen(&server, &guest, template, "pageId", "Salaries").await;
        for text in &some {
            assert!(!text.contains(&hidden) && !text.contains("\"Salaries\""), "{page}: {text}");
        }
        assert!(some.iter().take(2).all(|text| text.contains(&id(1))), "{page}: {some:?}");
        let names = |id: &str| {
            let ids = [id.to_owned(), undashed(id), id.to_uppercase()];
            let prefixes = ["notion://pages/", "notion://workspace/pages/"];
            prefixes.map(|prefix| ids.clone().map(|id| format!("{prefix}{id}"))).concat()
        };
        for (name, absent) in names(&hidden).into_iter().zip(names(&absent)) {
            let read = async |key: &str| -> Value {
                server.ask(Some(key), "resources/read", json!({ "uri": name })).await.1
            };
            assert!(read(&staff).await.to_string().contains("zephyr"), "{name}");
            assert_hidden(&server, &guest, &name, &absent).await;
            let format = "?format=json";
            assert_hidden(&server, &guest, &format!("{name}{format}"), &format!("{absent}{format}")).await;
        }
        for database in [id(100), undashed(&id(100))] {
            let rows = format!("notion://databases/{database}/rows");
            assert_hidden(&server, &guest, &rows, &format!("notion://databases/{absent}/rows")).await;
        }
    }
}
