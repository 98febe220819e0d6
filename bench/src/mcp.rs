//! Messages of the protocol, as a client of its modern era sends them.

use std::net::SocketAddr;

use serde_json::{Value, json};

const VERSION: &str = "2026-07-28";

/// What the notification of a changed resource has in it, and no other message does.
pub(crate) const UPDATED: &[u8] = b"notifications/resources/updated";

/// What the first message of a stream has in it.
pub(crate) const ACKNOWLEDGED: &[u8] = b"notifications/subscriptions/acknowledged";

/// A request to listen to one resource, and to nothing else.
pub(crate) fn listen(uri: &str) -> Value {
    request("subscriptions/listen", json!({ "notifications": { "resourceSubscriptions": [uri] } }))
}

/// A request to read a resource.
pub(crate) fn read(uri: &str) -> Value {
    request("resources/read", json!({ "uri": uri }))
}

fn request(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// A request as the bytes of an HTTP request.
pub(crate) fn posted(address: SocketAddr, request: &Value) -> Vec<u8> {
    let method = request["method"].as_str().unwrap_or_default();
    let name = request["params"]["uri"].as_str().map(|uri| format!("mcp-name: {uri}\r\n"));
    let body = request.to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: {VERSION}\r\n\
         mcp-method: {method}\r\n{}content-length: {}\r\n\r\n{body}",
        name.unwrap_or_default(),
        body.len()
    )
    .into_bytes()
}
