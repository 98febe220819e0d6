//! The MCP messages that a client sends, and parts of those that it receives.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use memchr::{memchr, memmem};
use serde_json::{Value, json};

/// A text that only notifications of a changed resource contain.
pub(crate) const UPDATED: &[u8] = b"notifications/resources/updated";

/// A text that only the first message of a listen stream contains.
pub(crate) const ACKNOWLEDGED: &[u8] = b"notifications/subscriptions/acknowledged";

/// An era of the protocol: stateless, or with a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Era {
    /// Stateless requests.
    Modern,
    /// A handshake, which opens a session over HTTP.
    Legacy,
}

/// Who sends requests over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sender {
    /// A client without credentials.
    Anonymous,
    /// Clients with a bearer token each, so that every connection has another identity.
    Identified,
    /// Clients with a signed access token each, whose rights are those of access rules.
    Authorized,
}

impl Sender {
    /// Its name as an argument of this program.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Era {
    fn version(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28",
            Self::Legacy => "2025-11-25",
        }
    }

    /// A request with the id 1.
    pub(crate) fn request(self, method: &str, mut params: Value) -> Value {
        if self == Self::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.version(),
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
    }

    /// A request to read a resource.
    pub(crate) fn read(self, uri: &str) -> Value {
        self.request("resources/read", json!({ "uri": uri }))
    }

    /// A call of the tool that reads a resource.
    pub(crate) fn call(self, uri: &str) -> Value {
        self.request("tools/call", json!({ "name": "read_resource", "arguments": { "uri": uri } }))
    }

    /// A request for a page of the list.
    pub(crate) fn list(self, cursor: Option<&str>) -> Value {
        self.request("resources/list", cursor.map_or(json!({}), |cursor| json!({ "cursor": cursor })))
    }

    /// A message as the bytes of an HTTP request without credentials.
    pub(crate) fn posted(self, address: SocketAddr, session: Option<&str>, message: &Value) -> Vec<u8> {
        self.posted_with_token(address, session, None, message)
    }

    /// A message as the bytes of an HTTP request, with an optional session id and bearer token.
    pub(crate) fn posted_with_token(
        self,
        address: SocketAddr,
        session: Option<&str>,
        token: Option<&str>,
        message: &Value,
    ) -> Vec<u8> {
        let body = message.to_string();
        let mut head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
            body.len()
        );
        let mut header = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        if let Some(token) = token {
            header("authorization", &format!("Bearer {token}"));
        }
        match self {
            Self::Modern => {
                header("mcp-protocol-version", self.version());
                header("mcp-method", message["method"].as_str().unwrap_or_default());
                let params = &message["params"];
                if let Some(name) = params["uri"].as_str().or_else(|| params["name"].as_str()) {
                    header("mcp-name", name);
                }
            }
            Self::Legacy => {
                if let Some(session) = session {
                    header("mcp-protocol-version", self.version());
                    header("mcp-session-id", session);
                }
            }
        }
        format!("{head}\r\n{body}").into_bytes()
    }
}

/// A `subscriptions/listen` request for one resource.
pub(crate) fn listen(uri: &str) -> Value {
    Era::Modern
        .request("subscriptions/listen", json!({ "notifications": { "resourceSubscriptions": [uri] } }))
}

/// The `initialize` request of a legacy client.
pub(crate) fn initialize() -> Value {
    let client = json!({ "name": "bench", "version": "1" });
    let params = json!({
        "protocolVersion": Era::Legacy.version(), "capabilities": {}, "clientInfo": client
    });
    Era::Legacy.request("initialize", params)
}

/// The `initialized` notification of a legacy client.
pub(crate) fn initialized() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })
}

/// The cursor of the next page, in the bytes of a page.
pub(crate) fn next_cursor(page: &[u8]) -> Result<Option<&str>> {
    const KEY: &[u8] = b"\"nextCursor\":\"";
    let Some(at) = memmem::find(page, KEY) else { return Ok(None) };
    let value = &page[at + KEY.len()..];
    let value = &value[..memchr(b'"', value).context("a cursor does not end")?];
    ensure!(!value.contains(&b'\\'), "a cursor has escapes in it");
    Ok(Some(str::from_utf8(value)?))
}
