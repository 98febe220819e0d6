//! What rules hide does not exist: a server under rules answers every request, by every method and on every route, byte for
//! byte like a server that does not have what the rules hide from the caller.

#![cfg(all(unix, feature = "picker", feature = "search", feature = "sql"))]

mod process;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use process::HttpServer;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use sqlx::Connection as _;

/// Longer than anything takes here, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The files, with a word of their own in each.
const FILES: [&str; 14] = [
    "start.md",
    "plan.html",
    "a/one.md",
    "a/two.txt",
    "a/page.html",
    "b/one.md",
    "b/three.md",
    "b/data.csv",
    "b/deep/four.md",
    "b/deep/page.html",
    "odd/a b & c.md",
    "odd/100%.md",
    "skills/greet/SKILL.md",
    "skills/greet/words.txt",
];

/// The tables of the database.
const TABLES: [&str; 3] = ["items", "people", "wages"];

/// Decides whether a pattern matches a URI, independently of the code under test.
type Matches = fn(&str) -> bool;

/// Patterns of rules, and which URIs they match.
const PATTERNS: [(&str, Matches); 8] = [
    ("file:///docs/a/**", |uri| uri.starts_with("file:///docs/a/")),
    ("file:///docs/b/one.md", |uri| uri == "file:///docs/b/one.md"),
    ("file:///docs/b/deep/**", |uri| uri.starts_with("file:///docs/b/deep/")),
    ("file:///docs/**/*.html", |uri| uri.ends_with(".html")),
    ("file:///docs/odd/a%20b%20&%20c.md", |uri| uri == "file:///docs/odd/a%20b%20&%20c.md"),
    ("file:///docs/odd/100%25.md", |uri| uri == "file:///docs/odd/100%25.md"),
    ("file:///docs/skills/**", |uri| uri.starts_with("file:///docs/skills/")),
    ("sqlite://shop/wages/**", |uri| uri.starts_with("sqlite://shop/wages/")),
];

/// The callers: the name of the key, if any, and the group.
const CALLERS: [(Option<&str>, &str); 4] =
    [(Some("ada"), "hr"), (Some("bob"), "it"), (Some("eve"), "guests"), (None, "")];

/// A rule: the number of its pattern, the group that it is for, and whether it allows.
type HidingRule = (usize, Option<&'static str>, bool);

/// A seeded pseudo-random generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Rules that deny some of the patterns, to everybody or to a group, some of them with an exception for a group.
fn random_rules(seed: u64) -> Vec<HidingRule> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let groups = ["hr", "it", "guests"];
    let mut rules = Vec::new();
    for pattern in 0..PATTERNS.len() {
        let mut group = || groups[random.below(3) as usize];
        let (exception, only) = (group(), group());
        match random.below(6) {
            0 => {}
            1 | 2 => rules.push((pattern, None, false)),
            3 => rules.push((pattern, Some(only), false)),
            _ => rules.extend([(pattern, Some(exception), true), (pattern, None, false)]),
        }
    }
    rules
}

/// The reference: the first rule that matches decides, and what none matches is visible.
fn hides(rules: &[HidingRule], group: &str, uri: &str) -> bool {
    let matching =
        |(pattern, only, _): &&HidingRule| only.is_none_or(|only| only == group) && PATTERNS[*pattern].1(uri);
    rules.iter().find(matching).is_some_and(|(_, _, allows)| !allows)
}

fn uri_of(file: &str) -> String {
    format!("file:///docs/{}", file.replace('%', "%25").replace(' ', "%20"))
}

fn table_uri(table: &str) -> String {
    format!("sqlite://shop/{table}/schema")
}

/// Creates a folder with a configuration and what is not hidden.
async fn furnish(folder: &Path, rules: &[HidingRule], is_hidden: impl Fn(&str) -> bool) {
    let docs = folder.join("docs");
    std::fs::create_dir_all(&docs).unwrap();
    for file in FILES.iter().filter(|file| !is_hidden(&uri_of(file))) {
        let path = docs.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let word: String = file.chars().filter(char::is_ascii_alphanumeric).collect();
        let text = match file {
            _ if file.ends_with(".html") => {
                format!("<html><body><h1>On {word}</h1><p>Everybody reads {word}.</p></body></html>")
            }
            _ if file.ends_with("SKILL.md") => {
                format!("---\nname: greet\ndescription: How to greet {word}\n---\n\nSay {word}.\n")
            }
            _ => format!("# On {word}\n\nEverybody reads {word}.\n\n## Details\n\nMore on {word}.\n"),
        };
        std::fs::write(path, text).unwrap();
    }
    // A folder exists if the rules do not hide it, also without files.
    for name in ["a", "b", "b/deep", "odd", "skills", "skills/greet"] {
        if !is_hidden(&uri_of(&format!("{name}/"))) {
            std::fs::create_dir_all(docs.join(name)).unwrap();
        }
    }
    settle(&docs);
    let database = folder.join("shop.db");
    let url = format!("sqlite:{}?mode=rwc", database.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    for table in TABLES.iter().filter(|table| !is_hidden(&table_uri(table))) {
        for statement in [
            format!("CREATE TABLE {table} (id INTEGER PRIMARY KEY, {table}_name TEXT)"),
            format!("INSERT INTO {table} VALUES (1, 'first of {table}')"),
        ] {
            sqlx::query(&statement).execute(&mut connection).await.unwrap();
        }
    }
    connection.close().await.unwrap();
    let mut config = "[server]\npage_size = 4\n[auth]\nkeys = \"keys.toml\"\nanonymous = true\n\
                      [search]\nenabled = true\n[tools]\nbundle = true\n[[files]]\npath = \"docs\"\n\
                      [[sql]]\nurl = \"sqlite:shop.db\"\n"
        .to_owned();
    for (pattern, group, allows) in rules {
        let group = group.map(|group| format!("group = \"{group}\"\n")).unwrap_or_default();
        let action = if *allows { "allow" } else { "deny" };
        config += &format!("[[rule]]\nuri = \"{}\"\n{group}action = \"{action}\"\n", PATTERNS[*pattern].0);
    }
    config += "[[rule]]\naction = \"allow\"\n";
    std::fs::write(folder.join("libris.toml"), config).unwrap();
}

/// Gives everything in a folder the same modification time.
fn settle(path: &Path) {
    if path.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| settle(&entry.unwrap().path()));
    }
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// A request by one of the methods of the protocol, or to a route.
#[derive(Clone, Debug)]
enum Request {
    Mcp(&'static str, Value),
    Http { method: &'static str, path: String, depth: &'static str, body: String },
}

/// A server, and the key of the caller.
struct Asked<'a> {
    origin: &'a str,
    key: Option<&'a str>,
}

impl Asked<'_> {
    /// The status, the headers that tell something about the resource, and the body of a response.
    async fn ask(&self, request: &Request) -> (u16, Vec<String>, String) {
        let client = Client::new();
        let mut built = match request {
            Request::Mcp(method, params) => {
                let mut params = params.clone();
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                let name = match *method {
                    "resources/read" => params["uri"].as_str(),
                    "tools/call" | "prompts/get" => params["name"].as_str(),
                    _ => None,
                };
                let mut built = client
                    .post(format!("{}/mcp", self.origin))
                    .header("content-type", "application/json")
                    .header("accept", "application/json, text/event-stream")
                    .header("mcp-protocol-version", "2026-07-28")
                    .header("mcp-method", *method);
                if let Some(name) = name {
                    built = built.header("mcp-name", name);
                }
                built.body(
                    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string(),
                )
            }
            Request::Http { method, path, depth, body } => client
                .request(Method::from_bytes(method.as_bytes()).unwrap(), format!("{}{path}", self.origin))
                .header("depth", *depth)
                .body(body.clone()),
        };
        if let Some(key) = self.key {
            built = built.header("authorization", format!("Bearer {key}"));
        }
        let response = built.send().await.unwrap();
        let headers = response.headers();
        let header =
            |name: &&str| headers.get(*name).map(|value| format!("{name}: {}", value.to_str().unwrap()));
        let told = ["content-type", "content-length", "etag", "last-modified", "www-authenticate", "allow"];
        let told = told.iter().filter_map(header).collect();
        (response.status().as_u16(), told, without_delimiters(response.text().await.unwrap()))
    }

    /// Waits until everything is in the search index.
    async fn indexed(&self) {
        let status = Request::Mcp("resources/read", json!({ "uri": "libris://status?as=json" }));
        let end = std::time::Instant::now() + LONG;
        loop {
            let (_, _, body) = self.ask(&status).await;
            if body.contains("\\\"complete\\\": true") {
                return;
            }
            assert!(std::time::Instant::now() < end, "{body}");
        }
    }
}

/// A response without the random parts of the delimiters around texts, which each server chooses anew.
fn without_delimiters(mut body: String) -> String {
    const BEGIN: &str = "--- begin ";
    const LENGTH: usize = 16;
    while let Some(at) = body.find(BEGIN).map(|at| at + BEGIN.len()) {
        let delimiter = body[at..at + LENGTH].to_owned();
        body = body.replace(&format!("{BEGIN}{delimiter}"), "--- delimiter").replace(&delimiter, "delimiter");
    }
    body
}

/// Requests about everything that may be there, is hidden from somebody, or is absent.
fn requests() -> Vec<Request> {
    let mut all = Vec::new();
    let mut files: Vec<_> = FILES.iter().map(|file| uri_of(file)).collect();
    files.extend(
        ["file:///docs/absent.md", "file:///docs/a/absent.md", "file:///docs/b/deep/absent.html"]
            .map(String::from),
    );
    let folders = ["", "a/", "b/", "b/deep/", "odd/", "skills/", "skills/greet/", "absent/"];
    let folders = folders.map(uri_of);
    let databases: Vec<_> = TABLES
        .iter()
        .chain(&["absent"])
        .flat_map(|table| {
            ["", "schema", "rows", "rows/1"].map(|rest| format!("sqlite://shop/{table}/{rest}"))
        })
        .chain(
            ["sqlite://shop/", "sqlite://shop/schema", "sqlite://shop/schema?format=json"].map(String::from),
        )
        .collect();
    let call = |name: &str, arguments: Value| {
        Request::Mcp("tools/call", json!({ "name": name, "arguments": arguments }))
    };
    let http = |method, path: String, depth| Request::Http { method, path, depth, body: String::new() };
    for uri in files.iter().chain(&folders).chain(&databases) {
        let spelled = uri.replacen("ne.md", "%6Ee.md", 1);
        for name in
            [uri.clone(), spelled, format!("{uri}?lines=1-1"), format!("{uri}?as=text"), format!("{uri}#x")]
        {
            all.push(Request::Mcp("resources/read", json!({ "uri": name })));
        }
        all.push(Request::Mcp("resources/directory/read", json!({ "uri": uri })));
        all.push(Request::Mcp("skills/get", json!({ "uri": uri })));
        all.push(call("read_resource", json!({ "uri": uri })));
        all.push(call("list_resources", json!({ "parent": uri })));
        let below = percent_encoding(uri);
        all.push(Request::Mcp("resources/read", json!({ "uri": format!("libris://index?below={below}") })));
        let body = json!({ "uri": uri }).to_string();
        all.push(Request::Http { method: "POST", path: "/picker/preview".to_owned(), depth: "0", body });
        let path = format!("/dav/{}", uri.replacen(":///", "/", 1).replacen("://", "/", 1));
        for (method, depth) in [("GET", "0"), ("HEAD", "0"), ("PROPFIND", "0"), ("PROPFIND", "1")] {
            all.push(http(method, path.clone(), depth));
        }
    }
    for query in
        ["everybody reads", "one", "page", "aone", "bdeepfour", "oddabc", "wages", "nothing at all", "greet"]
    {
        all.push(call("search_resources", json!({ "query": query })));
        all.push(call(
            "search_resources",
            json!({ "query": query, "limit": 50, "scope": "file:///docs/b/" }),
        ));
        all.push(call("bundle_resources", json!({ "query": query })));
    }
    for typed in ["", "a", "a/", "b/", "b/deep/", "o", "odd/1", "one", "skills/", "plan"] {
        all.push(Request::Mcp(
            "completion/complete",
            json!({
                "ref": { "type": "ref/resource", "uri": "file:///docs/{+path}{?lines,bytes}" },
                "argument": { "name": "path", "value": typed },
            }),
        ));
    }
    for typed in ["", "w", "wag", "p"] {
        all.push(Request::Mcp(
            "completion/complete",
            json!({
                "ref": { "type": "ref/resource", "uri": "sqlite://shop/{table}/schema{?format}" },
                "argument": { "name": "table", "value": typed },
            }),
        ));
    }
    for method in ["resources/templates/list", "skills/list", "prompts/list", "tools/list", "server/discover"]
    {
        all.push(Request::Mcp(method, json!({})));
    }
    all.push(Request::Mcp("prompts/get", json!({ "name": "use-resources" })));
    for uri in ["libris://index", "libris://status", "libris://status?as=json"] {
        all.push(Request::Mcp("resources/read", json!({ "uri": uri })));
    }
    for path in ["/dav/", "/dav/file/", "/dav/sqlite/", "/dav/sqlite/shop/"] {
        all.push(http("PROPFIND", path.to_owned(), "1"));
    }
    all
}

/// A URI as the value of a parameter.
fn percent_encoding(uri: &str) -> String {
    uri.replace('%', "%25").replace('&', "%26").replace('#', "%23")
}

async fn check(seed: u64) {
    let rules = random_rules(seed);
    let place = tempfile::tempdir().unwrap();
    let full = place.path().join("full");
    furnish(&full, &rules, |_| false).await;
    let keys: Vec<_> = CALLERS
        .iter()
        .map(|(name, group)| {
            let name = (*name)?;
            let file = full.join("keys.toml");
            let added = Command::new(env!("CARGO_BIN_EXE_libris"))
                .args(["key", "add", name, "--group", group, "--keys"])
                .arg(&file)
                .output()
                .unwrap();
            Some(String::from_utf8(added.stdout).unwrap().trim().to_owned())
        })
        .collect();
    let config = full.join("libris.toml");
    let server = HttpServer::start(&[OsStr::new("--config"), config.as_os_str()]).await;
    let origin = server.url.strip_suffix("/mcp").unwrap().to_owned();
    let mut hidden = BTreeSet::new();
    for ((_, group), key) in CALLERS.iter().zip(&keys) {
        let reduced = place.path().join(format!("reduced-{group}"));
        furnish(&reduced, &rules, |uri| hides(&rules, group, uri)).await;
        std::fs::copy(full.join("keys.toml"), reduced.join("keys.toml")).unwrap();
        let config = reduced.join("libris.toml");
        let other = HttpServer::start(&[OsStr::new("--config"), config.as_os_str()]).await;
        let other_origin = other.url.strip_suffix("/mcp").unwrap().to_owned();
        let (ours, theirs) = (
            Asked { origin: &origin, key: key.as_deref() },
            Asked { origin: &other_origin, key: key.as_deref() },
        );
        ours.indexed().await;
        theirs.indexed().await;
        for request in requests() {
            let (got, expected) = (ours.ask(&request).await, theirs.ask(&request).await);
            assert_eq!(got, expected, "seed {seed}, group `{group}`, {request:?}, {rules:?}");
        }
        // All pages of the list, by their cursors.
        let mut params = json!({});
        loop {
            let request = Request::Mcp("resources/list", params);
            let (got, expected) = (ours.ask(&request).await, theirs.ask(&request).await);
            assert_eq!(got, expected, "seed {seed}, group `{group}`, {request:?}, {rules:?}");
            let page: Value = serde_json::from_str(&got.2).unwrap();
            let Some(cursor) = page["result"]["nextCursor"].as_str() else { break };
            params = json!({ "cursor": cursor });
        }
        let all = FILES.iter().map(|file| uri_of(file)).chain(TABLES.iter().map(|table| table_uri(table)));
        hidden.extend(all.filter(|uri| hides(&rules, group, uri)));
    }
    assert!(!hidden.is_empty(), "the rules of seed {seed} hide nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_as_if_what_is_hidden_were_not_there() {
    for seed in 1..=2 {
        check(seed).await;
    }
}
