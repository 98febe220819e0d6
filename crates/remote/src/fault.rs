//! The faults of upstream servers, and their conversion to errors for callers.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libris_core::{Error, Uri};
use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
};

use crate::config::RemoteConfig;
use crate::mount::UriMount;

/// The code of the JSON-RPC error that this crate substitutes for a malformed or oversized response. It is outside the
/// range that JSON-RPC reserves, and `data` contains a [`Substitute`].
const SUBSTITUTE_CODE: i32 = 30_100;

/// A text of a server is cut to this many characters in messages.
const MAX_QUOTED: usize = 300;

/// Why a server could not be reached, or did not answer a request as expected. The messages complete "the MCP server
/// `name` …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RemoteFault {
    #[error(
        "sent a message of more than {limit} bytes; hint: raise `max_message` in an `[[mcp]]` section of `libris.toml` if the server is to be trusted"
    )]
    TooLarge { limit: usize },
    #[error(
        "sent a message of so many JSON values that it would take more than {limit} bytes of memory; hint: raise `max_message` in an `[[mcp]]` section of `libris.toml` if the server is to be trusted"
    )]
    TooComplex { limit: usize },
    #[error("sent bytes that are not UTF-8")]
    NotUtf8,
    #[error(
        "sent {0} lines that are not JSON-RPC messages; hint: the server must write only messages to its standard output"
    )]
    NotJson(usize),
    #[error("answered `{method}` with something else than the result of that method: {cause}")]
    WrongResult { method: &'static str, cause: String },
    #[error("answered with HTTP status {status}{}", .said.as_ref().map(|said| format!(": {said}")).unwrap_or_default())]
    Status { status: u16, said: Option<String> },
    #[error("redirects to another address; hint: use the address `{0}` if it is to be trusted")]
    Redirect(String),
    #[error(
        "answered with `Content-Type: {0}`, which is not MCP; hint: the path of the endpoint is often `/mcp`"
    )]
    ContentType(String),
    #[error(
        "requires authorization; hint: log in with `libris login URL`, or set an access token with `token_env`, or with LIBRIS_TOKEN on the command line"
    )]
    Unauthorized,
    #[error("got no access token: {0}; hint: log in again with `libris login URL`")]
    Token(String),
    #[error("refused the access token; hint: request a token with the scope `{0}`")]
    Scope(String),
    #[error(
        "did not answer within {0:?}; hint: check the server, or raise `timeout` in an `[[mcp]]` section of `libris.toml`"
    )]
    Silent(Duration),
    #[error(
        "was not ready within {0:?}; hint: check the server, or raise `connect_timeout` in an `[[mcp]]` section of `libris.toml`"
    )]
    NotReady(Duration),
    #[error(
        "does not answer reads: the last {0} timed out; hint: check the server, or raise `timeout` in an `[[mcp]]` section of `libris.toml`"
    )]
    Unresponsive(u32),
    #[error("closed the connection{}", .0.as_ref().map(|last| format!(" after it wrote to its standard error: {last}")).unwrap_or_default())]
    Closed(Option<String>),
    #[error("could not be started: {0}")]
    NotStarted(String),
    #[error("could not be reached: {0}; hint: check that it runs, and its URL")]
    Unreachable(String),
    #[error("supports none of the protocol revisions that Libris speaks, only {0}; hint: update the server")]
    Revision(String),
    #[error("answered with error {code}: {message}")]
    Refused { code: i32, message: String },
    #[error(
        "asks for input of a user, which only a client of revision 2026-07-28 can give; hint: configure the server so that it needs none"
    )]
    InputRequired,
    #[error("asks for input with `{0}`, which the client does not support; hint: use another client")]
    UnsupportedInput(String),
    #[error("sent a list with the same cursor twice; hint: report this to the author of the server")]
    RepeatedCursor,
    #[error("sent a list of more than {0} pages; hint: report this to the author of the server")]
    EndlessPages(usize),
    #[error(
        "sent a list of more than {0} resources or templates; hint: raise `max_resources` in an `[[mcp]]` section of `libris.toml`"
    )]
    EndlessList(usize),
    #[error("sent a list of more than {0} tools; hint: report this to the author of the server")]
    ManyTools(usize),
    #[error(
        "sent a list of more than {0} bytes; hint: raise `max_message` in an `[[mcp]]` section of `libris.toml`"
    )]
    LargeList(usize),
    #[error("sent base64 that is malformed")]
    Base64,
    #[error("sent contents with a URI that is malformed")]
    ContentUri,
    #[error("answered with no contents")]
    NoContents,
}

impl RemoteFault {
    /// The error for the caller. `uri` is the served URI, if the request was for one resource.
    pub(crate) fn into_error(self, config: &RemoteConfig, uri: Option<&Uri>) -> Error {
        let server = &config.name;
        match (&self, uri) {
            (Self::Refused { code, message }, Some(uri)) if means_not_found(*code, message) => {
                match hint_of(message, &config.mount) {
                    Some(hint) => Error::missing(uri, format!("the MCP server `{server}` says: {hint}")),
                    None => Error::NotFound(uri.clone()),
                }
            }
            (Self::TooLarge { limit }, Some(uri)) => Error::TooLarge {
                uri: uri.clone(),
                size: *limit as u64 + 1,
                limit: *limit as u64,
                hint: Some(format!(
                    "raise `max_message` of the MCP server `{server}` in an `[[mcp]]` section of `libris.toml`"
                )),
            },
            (Self::Refused { code, .. }, _) if *code == ErrorCode::INVALID_PARAMS.0 => {
                Error::invalid(format!("the MCP server `{server}` {self}"))
            }
            _ => Error::Unavailable(format!("the MCP server `{server}` {self}")),
        }
    }

    /// Whether the server said that there is no such resource.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code, message } if means_not_found(*code, message))
    }

    /// The fault for the error of a request.
    pub(crate) fn of_request(error: ServiceError, timeout: Duration, journal: &FaultJournal) -> Self {
        match error {
            ServiceError::McpError(data) => Self::of_data(data),
            ServiceError::Timeout { .. } => Self::Silent(timeout),
            ServiceError::TransportClosed | ServiceError::Cancelled { .. } => journal.closed(),
            ServiceError::UnexpectedResponse => {
                let cause = "it has another shape".to_owned();
                Self::WrongResult { method: "the request", cause }
            }
            ServiceError::TransportSend(sent) => Self::of_transport(sent.error.as_ref(), journal),
            other => Self::Unreachable(quoted(&other.to_string())),
        }
    }

    /// The fault for the error of a handshake.
    pub(crate) fn of_handshake(error: ClientInitializeError, journal: &FaultJournal) -> Self {
        match error {
            ClientInitializeError::JsonRpcError(data) => Self::of_data(data),
            ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => journal.closed(),
            ClientInitializeError::TransportError { error, .. } => {
                Self::of_transport(error.error.as_ref(), journal)
            }
            ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
                let versions: Vec<_> =
                    server_supported.iter().take(8).map(|version| quoted(version.as_str())).collect();
                Self::Revision(if versions.is_empty() { "none".into() } else { versions.join(", ") })
            }
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
                Self::of_handshake(*fallback, journal)
            }
            ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
                Self::WrongResult { method: "initialize", cause: "it has another shape".into() }
            }
            other => Self::Unreachable(quoted(&other.to_string())),
        }
    }

    /// The fault for a JSON-RPC error, which may be a [`Substitute`] of this crate.
    fn of_data(data: ErrorData) -> Self {
        let ours = data.data.as_ref().filter(|_| data.code.0 == SUBSTITUTE_CODE).and_then(Substitute::parse);
        match ours {
            Some(fault) => fault,
            None => Self::Refused { code: data.code.0, message: quoted(&data.message) },
        }
    }

    /// The fault for an error of the transport: the first one in the chain of causes that is recognised.
    fn of_transport(error: &(dyn StdError + 'static), journal: &FaultJournal) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(fault) = error.downcast_ref::<Self>() {
                return fault.clone();
            }
            match error.downcast_ref::<StreamableHttpError<Self>>() {
                // `source()` does not return what these variants contain.
                Some(StreamableHttpError::Client(fault)) => return fault.clone(),
                Some(StreamableHttpError::SessionExpired) => return Self::Closed(None),
                Some(StreamableHttpError::Auth(error)) => return Self::Token(quoted(&error.to_string())),
                Some(StreamableHttpError::UnexpectedContentType(kind)) => {
                    return Self::ContentType(quoted(kind.as_deref().unwrap_or("none")));
                }
                _ => {}
            }
            if error.is::<AuthRequiredError>() {
                return Self::Unauthorized;
            }
            if let Some(error) = error.downcast_ref::<InsufficientScopeError>() {
                return Self::Scope(quoted(error.required_scope.as_deref().unwrap_or("that it names")));
            }
            if let Some(error) = error.downcast_ref::<HttpStatusError>() {
                return Self::Status { status: error.status, said: None };
            }
            if error.is::<std::io::Error>() {
                return journal.closed();
            }
            cause = error.source();
        }
        Self::Unreachable(quoted(&error.to_string()))
    }

    /// The JSON-RPC error that carries this fault in place of a response.
    pub(crate) fn substitute(&self) -> ErrorData {
        let data = serde_json::to_value(Substitute::of(self)).unwrap_or_default();
        ErrorData::new(ErrorCode(SUBSTITUTE_CODE), self.to_string(), Some(data))
    }
}

/// A fault in the `data` of a JSON-RPC error. In rmcp, a transport can make a single request fail only with a JSON-RPC
/// error.
#[derive(serde::Serialize, serde::Deserialize)]
enum Substitute {
    TooLarge(usize),
    TooComplex(usize),
    NotUtf8,
    WrongResult(String, String),
}

impl Substitute {
    fn of(fault: &RemoteFault) -> Option<Self> {
        Some(match fault {
            RemoteFault::TooLarge { limit } => Self::TooLarge(*limit),
            RemoteFault::TooComplex { limit } => Self::TooComplex(*limit),
            RemoteFault::NotUtf8 => Self::NotUtf8,
            RemoteFault::WrongResult { method, cause } => {
                Self::WrongResult((*method).to_owned(), cause.clone())
            }
            _ => return None,
        })
    }

    fn parse(data: &serde_json::Value) -> Option<RemoteFault> {
        Some(match serde_json::from_value::<Option<Self>>(data.clone()).ok()?? {
            Self::TooLarge(limit) => RemoteFault::TooLarge { limit },
            Self::TooComplex(limit) => RemoteFault::TooComplex { limit },
            Self::NotUtf8 => RemoteFault::NotUtf8,
            Self::WrongResult(method, cause) => {
                let known = crate::decode::METHODS.into_iter().find(|known| *known == method);
                RemoteFault::WrongResult { method: known.unwrap_or("the request"), cause }
            }
        })
    }
}

/// Whether the error of a read means that the resource does not exist. Before revision 2026-07-28 the code is -32002,
/// but many servers use other codes and say so only in the message. From then on it is -32602, which has other meanings
/// too, so the message decides.
fn means_not_found(code: i32, message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let says_so = ["not found", "unknown resource", "no resource", "does not exist", "no such"];
    code == ErrorCode::RESOURCE_NOT_FOUND.0
        || (code != ErrorCode::METHOD_NOT_FOUND.0 && says_so.iter().any(|text| message.contains(text)))
}

/// What the message of a server says besides that the resource does not exist, with served URIs; `None` if it says nothing
/// more. Another Libris writes `resource not found: ` and then what to request instead.
fn hint_of(message: &str, mount: &UriMount) -> Option<String> {
    let hint = message.strip_prefix("resource not found: ")?;
    let served = |(at, part): (usize, &str)| match at % 2 {
        // In backticks.
        1 if part.contains(':') => mount.outer(part).map_or_else(|_| part.to_owned(), |uri| uri.to_string()),
        _ => part.to_owned(),
    };
    let parts: Vec<_> = hint.split('`').enumerate().map(served).collect();
    Some(parts.join("`"))
}

/// Prepares a text of a server for a message: cut to [`MAX_QUOTED`], in one line, with control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::new();
    for (count, letter) in text.trim().chars().enumerate() {
        if count == MAX_QUOTED {
            out.push('…');
            break;
        }
        match letter {
            '\n' | '\t' => out.push(' '),
            letter if letter.is_control() => out.extend(letter.escape_default()),
            letter => out.push(letter),
        }
    }
    out
}

/// Records why a connection ended: the fault because of which Libris closed it, and the last lines of standard error.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultJournal(Arc<Mutex<JournalState>>);

#[derive(Debug, Default)]
struct JournalState {
    fatal: Option<RemoteFault>,
    /// The last lines of standard error.
    lines: VecDeque<String>,
}

impl FaultJournal {
    /// How many of the last lines of standard error are recorded.
    const MAX_LINES: usize = 3;

    fn state(&self) -> std::sync::MutexGuard<'_, JournalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the fault because of which the connection is closed; the first one wins.
    pub(crate) fn fail(&self, fault: RemoteFault) {
        self.state().fatal.get_or_insert(fault);
    }

    /// Records a line of standard error.
    pub(crate) fn line(&self, line: &str) {
        let line = quoted(line);
        if line.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.lines.len() == Self::MAX_LINES {
            state.lines.pop_front();
        }
        state.lines.push_back(line);
    }

    /// The fault that describes why the connection ended.
    pub(crate) fn closed(&self) -> RemoteFault {
        let state = self.state();
        let lines = state.lines.iter().map(String::as_str).collect::<Vec<_>>().join(" / ");
        state.fatal.clone().unwrap_or_else(|| RemoteFault::Closed((!lines.is_empty()).then_some(lines)))
    }
}

#[cfg(test)]
mod tests {
    use super::hint_of;
    use crate::mount::UriMount;

    #[test]
    fn a_hint_of_a_server_has_served_uris() {
        let hint = |message: &str| hint_of(message, &UriMount::prefixed("far").unwrap());
        assert_eq!(
            hint("resource not found: there is no branch `mian`; did you mean `git://a/blob/main/b`?")
                .as_deref(),
            Some("there is no branch `mian`; did you mean `far+git://a/blob/main/b`?")
        );
        assert_eq!(hint("resource not found: use `lines`").as_deref(), Some("use `lines`"));
        assert_eq!(hint("Resource not found"), None);
        assert_eq!(hint("Resource not found: demo://x"), None);
    }
}
