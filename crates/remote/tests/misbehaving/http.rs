//! Misbehaviour that only HTTP allows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::Bytes;
use futures_util::stream;
use libris_core::Error;
use libris_remote::{Remote, RemoteConfig, RemoteTarget};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{limits, read, still_answers};

/// What the server received.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Vec<HeaderMap>>>);

/// A server that answers reads of `odd://bad` with this function.
async fn server(bad: fn(Value) -> Response) -> (String, Recorded) {
    let recorded = Recorded::default();
    let answer = async move |State(recorded): State<Recorded>, headers: HeaderMap, body: Bytes| {
        recorded.0.lock().unwrap().push(headers);
        let request: Value = serde_json::from_slice(&body).unwrap();
        let id = request["id"].clone();
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "resources": {} },
                "serverInfo": { "name": "odd", "version": "1" },
            }),
            "resources/read" if request["params"]["uri"] == "odd://bad" => return bad(id),
            "resources/read" => json!({ "contents": [{ "uri": "odd://good", "text": "good" }] }),
            _ if id.is_null() => return StatusCode::ACCEPTED.into_response(),
            _ => {
                let error = json!({ "code": -32601, "message": "unknown method" });
                return with_type(
                    "application/json",
                    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string(),
                );
            }
        };
        with_type("application/json", json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
    };
    let router = Router::new().route("/mcp", post(answer)).with_state(recorded.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, recorded)
}

fn with_type(kind: &'static str, body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, kind)], body.into()).into_response()
}

fn remote_at(url: String) -> Remote {
    let target = RemoteTarget::Http { url, token: None, headers: BTreeMap::new(), stored: None };
    Remote::new(RemoteConfig { limits: limits(), ..RemoteConfig::new("odd", target) }).unwrap()
}

/// The error of a read that the server answers with `bad`, after which it still answers.
async fn failure(bad: fn(Value) -> Response) -> Error {
    let (url, _) = server(bad).await;
    let remote = remote_at(url);
    let error = read(&remote, "odd://bad").await.unwrap_err();
    still_answers(&remote).await;
    error
}

fn contents(id: Value, text: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": { "contents": [{ "uri": "odd://bad", "text": text }] } })
        .to_string()
}

/// A body without end, of which nobody can tell the size before.
fn endless(start: &'static str) -> Body {
    let chunks =
        stream::unfold(start, async |chunk| Some((Ok::<_, std::io::Error>(chunk), "xxxxxxxxxxxxxxxx")));
    Body::from_stream(chunks)
}

#[tokio::test]
async fn bodies_and_events_that_are_too_large_fail_one_read() {
    let bodies: [fn(Value) -> Response; 4] = [
        |id| with_type("application/json", contents(id, &"x".repeat(2 << 20))),
        |_| with_type("application/json", endless("{\"jsonrpc\":\"2.0\",\"x\":\"")),
        |id| with_type("text/event-stream", format!("data: {}\n\n", contents(id, &"x".repeat(2 << 20)))),
        |_| with_type("text/event-stream", endless("data: ")),
    ];
    for bad in bodies {
        let error = failure(bad).await;
        assert!(matches!(error, Error::TooLarge { limit: 1_048_576, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn responses_that_are_not_mcp_say_so() {
    type Answer = fn(Value) -> Response;
    let cases: [(Answer, &str); 7] = [
        (
            |_| with_type("text/html", "<html>Log in</html>"),
            "answered with `Content-Type: text/html`, which is not MCP; hint: the path of the endpoint is often `/mcp`",
        ),
        (
            |_| (StatusCode::FOUND, [(header::LOCATION, "http://elsewhere.example/")]).into_response(),
            "redirects to another address; hint: use the address `http://elsewhere.example/` if it is to be trusted",
        ),
        (|_| StatusCode::INTERNAL_SERVER_ERROR.into_response(), "answered with HTTP status 500"),
        (
            |_| (StatusCode::BAD_GATEWAY, "no \u{1b}[2J backend").into_response(),
            "answered with HTTP status 502: no \\u{1b}[2J backend",
        ),
        (
            |_| with_type("application/json", "{\"a\":1"),
            "answered `the request` with something else than the result of that method: it is not a JSON-RPC message",
        ),
        (
            |_| StatusCode::UNAUTHORIZED.into_response(),
            "requires authorization; hint: log in with `libris login URL`, or set an access token with `token_env`, or with LIBRIS_TOKEN on the command line",
        ),
        (
            |_| {
                let challenge = r#"Bearer error="insufficient_scope", scope="files:read""#;
                (StatusCode::FORBIDDEN, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
            },
            "refused the access token; hint: request a token with the scope `files:read`",
        ),
    ];
    for (bad, expected) in cases {
        assert_eq!(failure(bad).await.to_string(), format!("the MCP server `odd` {expected}"));
    }
}

#[tokio::test]
async fn an_answer_in_an_event_stream_is_decoded_like_any_other() {
    let (url, _) =
        server(|id| with_type("text/event-stream", format!("data: {}\n\n", contents(id, "fine")))).await;
    assert_eq!(read(&remote_at(url), "odd://bad").await.unwrap(), "fine");
    let wrong: fn(Value) -> Response = |id| {
        let response = json!({ "jsonrpc": "2.0", "id": id, "result": { "contents": [7] } });
        with_type("text/event-stream", format!("data: {response}\n\n"))
    };
    let error = failure(wrong).await.to_string();
    assert!(
        error.starts_with("the MCP server `odd` answered `resources/read` with something else"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = remote_at(format!("http://127.0.0.1:{port}/mcp")).identity().await.unwrap_err().to_string();
    assert!(error.starts_with("the MCP server `odd` could not be reached: "), "{error}");
}

#[tokio::test]
async fn credentials_are_sent_to_the_server_and_only_over_a_safe_connection() {
    let (url, recorded) = server(|_| StatusCode::IM_A_TEAPOT.into_response()).await;
    let headers = BTreeMap::from([("x-api-key".to_owned(), "key-1".to_owned())]);
    let target =
        RemoteTarget::Http { url, token: Some("token-1".to_owned()), headers: headers.clone(), stored: None };
    let remote = Remote::new(RemoteConfig { limits: limits(), ..RemoteConfig::new("odd", target) }).unwrap();
    still_answers(&remote).await;
    let recorded = recorded.0.lock().unwrap();
    assert!(!recorded.is_empty());
    for headers in recorded.iter() {
        assert_eq!(headers["authorization"], "Bearer token-1");
        assert_eq!(headers["x-api-key"], "key-1");
    }
    let target = RemoteTarget::Http {
        url: "http://mcp.example/mcp".into(),
        token: Some("token-1".into()),
        headers,
        stored: None,
    };
    let error = Remote::new(RemoteConfig::new("odd", target)).err().unwrap().to_string();
    assert!(error.starts_with("credentials would be sent unencrypted"), "{error}");
}
