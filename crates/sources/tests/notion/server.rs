//! A fake Notion API server that follows Notion's documentation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "ntn_a-token-that-nobody-may-see";

/// The content of the workspace.
pub(crate) struct Workspace {
    pub(crate) pages: BTreeMap<String, Value>,
    /// The children by their parent block or page.
    pub(crate) blocks: BTreeMap<String, Vec<Value>>,
    pub(crate) databases: BTreeMap<String, Value>,
    pub(crate) tables: BTreeMap<String, Value>,
    /// The requests, with their times.
    pub(crate) requests: Vec<(Instant, String)>,
    /// Until when every request is answered with 429 Too Many Requests.
    pub(crate) storm: Option<Instant>,
    /// The value of `Retry-After`, in seconds, and the status that it is sent with.
    pub(crate) retry_after: u64,
    pub(crate) refusal: u16,
    /// Overridden responses by a part of the path.
    pub(crate) odd: Vec<(&'static str, Odd)>,
    minutes: i64,
}

/// Answers that are not as documented.
#[derive(Clone, Copy)]
pub(crate) enum Odd {
    Status(u16),
    Html,
    Redirect,
    Huge,
    /// 502 Bad Gateway this many times.
    Down(usize),
    /// The same cursor on every page.
    Endless,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    workspace: Arc<Mutex<Workspace>>,
}

pub(crate) fn id(number: usize) -> String {
    format!("0b5f3c1e-0000-4000-8000-{number:012x}")
}

pub(crate) fn rich(content: &str) -> Value {
    json!([{ "type": "text", "plain_text": content, "annotations": {}, "href": null }])
}

impl Default for Workspace {
    fn default() -> Self {
        Self {
            pages: BTreeMap::new(),
            blocks: BTreeMap::new(),
            databases: BTreeMap::new(),
            tables: BTreeMap::new(),
            requests: Vec::new(),
            storm: None,
            // Another time than the client waits when it is not told how long.
            retry_after: 2,
            refusal: 429,
            odd: Vec::new(),
            minutes: 0,
        }
    }
}

impl Workspace {
    /// The time of the next edit. Notion rounds to the minute, so each is one later.
    fn tick(&mut self) -> String {
        self.minutes += 1;
        let now = Timestamp::now() + SignedDuration::from_mins(self.minutes);
        now.strftime("%Y-%m-%dT%H:%M:00.000Z").to_string()
    }

    pub(crate) fn page(&mut self, id: &str, title: &str, parent: Value) {
        let edited = self.tick();
        let page = json!({
            "object": "page", "id": id, "parent": parent, "in_trash": false, "last_edited_time": edited,
            "icon": { "type": "emoji", "emoji": "📄" }, "url": format!("https://www.notion.so/{id}"),
            "properties": { "Name": { "id": "title", "type": "title", "title": rich(title) } },
        });
        self.pages.insert(id.into(), page);
    }

    pub(crate) fn edit(&mut self, id: &str, words: &str) {
        let edited = self.tick();
        self.pages.get_mut(id).unwrap()["last_edited_time"] = edited.into();
        self.blocks.insert(id.into(), vec![paragraph(words)]);
    }

    /// Gives a page an icon that was uploaded.
    pub(crate) fn icon(&mut self, id: &str, url: &str) {
        self.pages.get_mut(id).unwrap()["icon"] = json!({ "type": "file", "file": { "url": url } });
    }

    /// The number of requests whose paths contain this text.
    pub(crate) fn asked(&self, part: &str) -> usize {
        self.requests.iter().filter(|(_, path)| path.contains(part)).count()
    }

    pub(crate) fn database(&mut self, id: &str, table: &str, title: &str) {
        let edited = self.tick();
        let tables = json!([{ "id": table, "name": title }]);
        let database = json!({ "object": "database", "id": id, "title": rich(title), "description": [], "data_sources": tables, "in_trash": false });
        self.databases.insert(id.into(), database);
        self.tables.insert(table.into(), json!({
            "object": "data_source", "id": table, "title": rich(title), "last_edited_time": edited, "in_trash": false,
            "parent": { "type": "database_id", "database_id": id }, "icon": { "type": "external", "external": { "url": "https://example.com/i.png" } },
            "properties": { "Name": { "id": "title", "name": "Name", "type": "title", "title": {} } },
        }));
    }

    fn searched(&self) -> Vec<Value> {
        let mut all: Vec<_> = self.pages.values().chain(self.tables.values()).cloned().collect();
        all.sort_by_key(|object| std::cmp::Reverse(object["last_edited_time"].to_string()));
        // The addresses of files are signed anew with each answer.
        for address in all.iter_mut().filter_map(|object| object.pointer_mut("/icon/file/url")) {
            let signed = format!("{}?X-Amz-Signature={}", address.as_str().unwrap(), self.requests.len());
            *address = signed.into();
        }
        all
    }

    fn answer(&self, method: &str, path: &str, query: &str, question: &Value) -> Result<Value, u16> {
        let cursor = question["start_cursor"]
            .as_str()
            .or_else(|| query.split('&').find_map(|pair| pair.strip_prefix("start_cursor=")));
        let segments: Vec<_> = path.trim_matches('/').split('/').collect();
        let found = |object: Option<&Value>| object.cloned().ok_or(404);
        match (method, &segments[..]) {
            ("GET", ["v1", "users", "me"]) => Ok(
                json!({ "object": "user", "id": id(0), "name": "Libris", "type": "bot", "bot": { "workspace_name": "Example", "owner": { "type": "workspace" } } }),
            ),
            // It can tell that an ID is of another kind.
            ("GET", ["v1", "pages", id] | ["v1", "blocks", id, ..]) if self.databases.contains_key(*id) => {
                Err(400)
            }
            ("POST", ["v1", "search"]) => page_of(&self.searched(), cursor),
            ("GET", ["v1", "pages", id]) => found(self.pages.get(*id)),
            ("GET", ["v1", "blocks", id, "children"]) => match self.blocks.get(*id) {
                Some(blocks) => page_of(blocks, cursor),
                None if self.pages.contains_key(*id) => page_of(&[], cursor),
                None => Err(404),
            },
            ("GET", ["v1", "databases", id]) => found(self.databases.get(*id)),
            ("GET", ["v1", "data_sources", id]) => found(self.tables.get(*id)),
            ("POST", ["v1", "data_sources", id, "query"]) => {
                let rows: Vec<_> = self
                    .pages
                    .values()
                    .filter(|page| page["parent"]["data_source_id"] == **id)
                    .cloned()
                    .collect();
                page_of(&rows, cursor)
            }
            _ => Err(400),
        }
    }
}

pub(crate) fn paragraph(words: &str) -> Value {
    json!({ "object": "block", "id": id(usize::MAX >> 16), "type": "paragraph", "has_children": false, "paragraph": { "rich_text": rich(words) } })
}

/// A page of a hundred items from the cursor on.
fn page_of(all: &[Value], cursor: Option<&str>) -> Result<Value, u16> {
    let from: usize = cursor.map_or(Ok(0), str::parse).map_err(|_| 400_u16)?;
    let end = all.len().min(from + 100);
    let more = end < all.len();
    Ok(
        json!({ "object": "list", "results": all.get(from..end).unwrap_or_default(), "has_more": more, "next_cursor": more.then(|| end.to_string()) }),
    )
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { url, workspace: Arc::default() };
        let app = axum::Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        server
    }

    pub(crate) fn workspace(&self) -> MutexGuard<'_, Workspace> {
        self.workspace.lock().unwrap()
    }
}

async fn answer(State(server): State<Server>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let data = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    let mut workspace = server.workspace();
    workspace.requests.push((Instant::now(), format!("{} {path}", parts.method)));
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if header("authorization") != format!("Bearer {TOKEN}") {
        return fault(401, "unauthorized");
    }
    if header("notion-version").is_empty() {
        return fault(400, "missing_version");
    }
    if workspace.storm.is_some_and(|until| Instant::now() < until) {
        let mut response = fault(workspace.refusal, "rate_limited");
        response.headers_mut().insert("retry-after", workspace.retry_after.into());
        return response;
    }
    let odd = workspace.odd.iter_mut().find(|(part, _)| path.contains(*part)).map(|(_, odd)| odd);
    match odd {
        Some(Odd::Status(status)) => return fault(*status, "odd"),
        Some(Odd::Html) => return Response::new("<html>Not what you think</html>".into()),
        Some(Odd::Redirect) => {
            let location = format!("{}/v1/users/me", server.url);
            return (StatusCode::FOUND, [("location", location)]).into_response();
        }
        Some(Odd::Huge) => return Response::new(Body::from(vec![b' '; 20 << 20])),
        Some(Odd::Endless) => {
            return Response::new(
                json!({ "results": [], "has_more": true, "next_cursor": "1" }).to_string().into(),
            );
        }
        Some(Odd::Down(left)) if *left > 0 => {
            *left -= 1;
            return fault(502, "bad_gateway");
        }
        _ => {}
    }
    let question = serde_json::from_slice(&data).unwrap_or_default();
    match workspace.answer(parts.method.as_str(), path, query, &question) {
        Ok(value) => Response::new(value.to_string().into()),
        Err(404) => fault(404, "object_not_found"),
        Err(status) => fault(status, "validation_error"),
    }
}

fn fault(status: u16, code: &str) -> Response<Body> {
    let body = json!({ "object": "error", "status": status, "code": code, "message": "…" }).to_string();
    (StatusCode::from_u16(status).unwrap(), body).into_response()
}

/// How long a test waits for an event.
pub(crate) const SOON: Duration = Duration::from_secs(30);
