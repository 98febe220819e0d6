//! A small server over HTTP that records what it is asked for, and sends notifications when a test says so.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;

/// The templates of the server: forms that gateways have failed at, and one that is malformed.
const TEMPLATES: [&str; 4] = ["tpl://query{?a,b}", "tpl://many{/x*}", "tpl://more{?x*}", "tpl://broken{x"];

/// A document with the text "Minutes of the meeting", in base64.
const RTF: &str = "e1xydGYxXGFuc2kgTWludXRlcyBvZiB0aGUgbWVldGluZ1xwYXIgfQ==";

/// What a server can do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ServerKind {
    /// It has lists, completion and subscriptions.
    Complete,
    /// Its capabilities are only `resources: {}`, and it does not know `resources/list`.
    TemplatesOnly,
    /// It answers everything but reads.
    Hanging,
}

/// The server. It ends when it is dropped.
pub(crate) struct Recorder {
    pub(crate) url: String,
    shared: Shared,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    kind: Arc<Mutex<ServerKind>>,
    requests: Arc<Mutex<Vec<(String, Value, HeaderMap)>>>,
    notifications: broadcast::Sender<String>,
    resources: Arc<Mutex<Vec<Value>>>,
    /// If not zero: lists of resources have one resource per page, and each page takes this long.
    page_delay: Arc<Mutex<Duration>>,
    /// How many of the next subscriptions are refused.
    refused: Arc<Mutex<usize>>,
}

impl Recorder {
    /// Starts a server with these URIs.
    pub(crate) async fn start(uris: &[&str]) -> Self {
        Self::of_kind(ServerKind::Complete, uris).await
    }

    /// Starts a server that has only templates, and answers `resources/list` with an error.
    pub(crate) async fn with_templates_only() -> Self {
        Self::of_kind(ServerKind::TemplatesOnly, &[]).await
    }

    /// Starts a server with these URIs that never answers reads.
    pub(crate) async fn hanging(uris: &[&str]) -> Self {
        Self::of_kind(ServerKind::Hanging, uris).await
    }

    async fn of_kind(kind: ServerKind, uris: &[&str]) -> Self {
        let resources = uris.iter().map(|uri| json!({ "uri": uri, "name": uri })).collect();
        let shared = Shared {
            kind: Arc::new(Mutex::new(kind)),
            requests: Arc::default(),
            notifications: broadcast::Sender::new(64),
            resources: Arc::new(Mutex::new(resources)),
            page_delay: Arc::default(),
            refused: Arc::default(),
        };
        let router = Router::new().route("/mcp", post(answer).get(events)).with_state(shared.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared, task }
    }

    /// The parameters of the requests with this method.
    pub(crate) fn requests(&self, method: &str) -> Vec<Value> {
        let requests = self.shared.requests.lock().unwrap();
        requests.iter().filter(|(asked, ..)| asked == method).map(|(_, params, _)| params.clone()).collect()
    }

    /// The URIs in the requests with this method.
    pub(crate) fn uris(&self, method: &str) -> Vec<String> {
        self.requests(method).iter().map(|params| params["uri"].as_str().unwrap().to_owned()).collect()
    }

    /// All requests as text, with their headers.
    pub(crate) fn transcript(&self) -> String {
        format!("{:?}", self.shared.requests.lock().unwrap())
    }

    /// The header of this name in all requests; empty where it is missing.
    pub(crate) fn headers(&self, name: &str) -> Vec<String> {
        let requests = self.shared.requests.lock().unwrap();
        let values =
            requests.iter().map(|(.., headers)| headers.get(name).map(|value| value.to_str().unwrap()));
        values.map(|value| value.unwrap_or_default().to_owned()).collect()
    }

    /// Gives all resources this name.
    pub(crate) fn rename(&self, name: &str) {
        self.shared.resources.lock().unwrap().iter_mut().for_each(|resource| resource["name"] = name.into());
    }

    /// Adds these members to the resource with this URI in lists.
    pub(crate) fn describe(&self, uri: &str, members: Value) {
        let mut resources = self.shared.resources.lock().unwrap();
        let resource = resources.iter_mut().find(|resource| resource["uri"] == uri).expect("it is listed");
        let Value::Object(members) = members else { panic!("{members}") };
        resource.as_object_mut().unwrap().extend(members);
    }

    /// From now on, lists of resources have one resource per page, and each page takes this long.
    pub(crate) fn slow_down(&self, page_delay: Duration) {
        *self.shared.page_delay.lock().unwrap() = page_delay;
    }

    /// The next subscriptions are refused.
    pub(crate) fn refuse_subscriptions(&self, times: usize) {
        *self.shared.refused.lock().unwrap() = times;
    }

    /// From now on, reads are answered.
    pub(crate) fn recover(&self) {
        *self.shared.kind.lock().unwrap() = ServerKind::Complete;
    }

    /// Whether an event stream is open.
    pub(crate) fn is_listened_to(&self) -> bool {
        self.shared.notifications.receiver_count() > 0
    }

    /// Sends a notification to all event streams.
    pub(crate) fn notify(&self, method: &str, params: &Value) {
        let text = json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string();
        self.shared.notifications.send(text).expect("an event stream is open");
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Shared>, headers: HeaderMap, body: String) -> Response {
    let request: Value = serde_json::from_str(&body).unwrap();
    let (method, params) =
        (request["method"].as_str().unwrap_or_default().to_owned(), request["params"].clone());
    shared.requests.lock().unwrap().push((method.clone(), params.clone(), headers));
    let id = request["id"].clone();
    if id.is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let kind = *shared.kind.lock().unwrap();
    let capabilities = match kind {
        ServerKind::TemplatesOnly => json!({ "resources": {} }),
        _ => json!({ "resources": { "subscribe": true }, "completions": {} }),
    };
    if kind == ServerKind::Hanging && method == "resources/read" {
        return std::future::pending().await;
    }
    let refused = |code: i32, message: &str| {
        let error = json!({ "code": code, "message": message });
        json_response(&json!({ "jsonrpc": "2.0", "id": id, "error": error }), None)
    };
    let result = match &*method {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": { "name": "recorder", "version": "1" },
        }),
        "resources/list" if kind != ServerKind::TemplatesOnly => list(&shared, &params).await,
        "resources/templates/list" => {
            let templates: Vec<_> = TEMPLATES
                .iter()
                .map(|template| json!({ "uriTemplate": template, "name": "of the recorder" }))
                .collect();
            json!({ "resourceTemplates": templates })
        }
        "completion/complete" => json!({ "completion": { "values": ["x/y", "z&z"] } }),
        "resources/read" if params["uri"] == "odd://strict.rtf?as=text" => {
            return refused(-32002, "Resource not found");
        }
        // Queries are ignored, as many servers do.
        "resources/read" if params["uri"].as_str().is_some_and(|uri| uri.contains(".rtf")) => {
            json!({ "contents": [{ "uri": params["uri"], "mimeType": "application/rtf", "blob": RTF }] })
        }
        "resources/read" => json!({ "contents": [
            { "uri": params["uri"], "mimeType": "text/plain", "text": "one" },
            { "uri": format!("{}/part", params["uri"].as_str().unwrap()), "blob": "AAEC/w==" },
        ] }),
        "resources/subscribe" if take_one(&shared.refused) => {
            return refused(-32603, "too many subscriptions");
        }
        "resources/subscribe" | "resources/unsubscribe" | "ping" => json!({}),
        _ => return refused(-32601, "unknown method"),
    };
    let session = (method == "initialize").then_some("session-1");
    json_response(&json!({ "jsonrpc": "2.0", "id": id, "result": result }), session)
}

/// Counts down; whether there was one left.
fn take_one(left: &Mutex<usize>) -> bool {
    let mut left = left.lock().unwrap();
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    is_left
}

async fn list(shared: &Shared, params: &Value) -> Value {
    let (resources, delay) = (shared.resources.lock().unwrap().clone(), *shared.page_delay.lock().unwrap());
    if delay.is_zero() {
        return json!({ "resources": resources });
    }
    tokio::time::sleep(delay).await;
    let at = params["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
    let next = (at + 1 < resources.len()).then(|| (at + 1).to_string());
    json!({ "resources": [resources[at]], "nextCursor": next })
}

fn json_response(body: &Value, session: Option<&str>) -> Response {
    let mut response = ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
    if let Some(session) = session {
        response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
    }
    response
}

async fn events(State(shared): State<Shared>) -> Response {
    let notifications = shared.notifications.subscribe();
    let events = futures_util::stream::unfold(notifications, async |mut notifications| {
        let text = notifications.recv().await.ok()?;
        Some((Ok::<_, Infallible>(format!("data: {text}\n\n")), notifications))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events.boxed())).into_response()
}
