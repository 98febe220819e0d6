//! The MCP headers of a request, and the content types that it accepts.

use std::borrow::Cow;

use base64_turbo::STANDARD;
use http::header::{ACCEPT, HeaderMap, HeaderName};

use crate::failure::{ErrorObject, HEADER_MISMATCH, INVALID_PARAMS};
use crate::request::Params;
use crate::{Revision, protocol};

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// The `Accept` value that nearly all clients send.
pub(super) const USUAL_ACCEPT: &[u8] = b"application/json, text/event-stream";

/// The MCP headers of a request. `name` is the URI or the name in the parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct McpHeaders<'a> {
    pub(super) version: Option<&'a str>,
    pub(super) method: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) session: Option<&'a str>,
}

impl McpHeaders<'_> {
    /// Checks that the MCP headers of a modern (2026-07-28) request match its body, and returns its revision.
    pub(super) fn check_modern(&self, method: &str, params: &Params<'_>) -> Result<Revision, Refused> {
        let meta = params.meta()?;
        let named = meta.version()?.ok_or_else(|| Refused::Incomplete(protocol::missing_version()))?;
        check_same(&VERSION, self.version, named)?;
        let revision = protocol::modern_revision(named, meta).map_err(|error| match error.code {
            INVALID_PARAMS => Refused::Incomplete(error),
            _ => Refused::Wrong(error),
        })?;
        check_same(&METHOD, self.method, method)?;
        if let Some(expected) = params.mcp_name(method) {
            let name = self.name.map(decode_name).transpose()?;
            check_same(&NAME, name.as_deref(), expected)?;
        }
        Ok(revision)
    }
}

/// The content types that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl Accepts {
    /// Both, as nearly all clients do.
    pub(super) const BOTH: Self = Self { json: true, events: true };

    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut accepts = Self { json: false, events: false };
        let mut is_present = false;
        for value in headers.get_all(ACCEPT) {
            if value == USUAL_ACCEPT {
                return Self::BOTH;
            }
            for range in value.to_str().unwrap_or_default().split(',') {
                is_present = true;
                let range = range.split(';').next().unwrap_or_default().trim();
                let is = |names: &[&str]| names.iter().any(|name| range.eq_ignore_ascii_case(name));
                accepts.json |= is(&["*/*", "application/json", "application/*"]);
                accepts.events |= is(&["*/*", "text/event-stream", "text/*"]);
            }
        }
        if is_present { accepts } else { Self::BOTH }
    }
}

/// Why a modern request is refused.
pub(super) enum Refused {
    /// A required member of `_meta` is missing or invalid: status 400.
    Incomplete(ErrorObject),
    /// Any other error: its code determines the status.
    Wrong(ErrorObject),
}

impl From<ErrorObject> for Refused {
    fn from(error: ErrorObject) -> Self {
        Self::Wrong(error)
    }
}

/// Checks that a header has the same value as the body.
fn check_same(name: &HeaderName, header: Option<&str>, body: &str) -> Result<(), ErrorObject> {
    if header == Some(body) {
        return Ok(());
    }
    let why = match header {
        None => format!("the `{name}` header is missing"),
        Some(_) => format!("the `{name}` header does not match the body"),
    };
    Err(ErrorObject::new(HEADER_MISMATCH, why))
}

/// The value of a header, which must not be repeated and must be text; `None` if the header is missing.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ErrorObject> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = |why: &str| ErrorObject::new(HEADER_MISMATCH, format!("the `{name}` header {why}"));
    if values.next().is_some() {
        return Err(wrong("is repeated"));
    }
    value.to_str().map(|value| Some(value.trim())).map_err(|_| wrong("has invalid characters"))
}

/// Decodes the value of the `Mcp-Name` header: names with characters that a header cannot carry are sent as Base64.
fn decode_name(value: &str) -> Result<Cow<'_, str>, ErrorObject> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(inner).ok();
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(Cow::Owned).ok_or_else(|| {
        ErrorObject::new(HEADER_MISMATCH, format!("the `{NAME}` header is not base64 of UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use super::{Accepts, decode_name};
    use http::header::{ACCEPT, HeaderMap};

    fn accepts(accept: &str) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        let Accepts { json, events } = Accepts::of(&headers);
        (json, events)
    }

    #[test]
    fn the_accept_header_is_parsed() {
        assert_eq!(accepts("application/json, text/event-stream"), (true, true));
        assert_eq!(accepts("Text/Event-Stream;q=1"), (false, true));
        assert_eq!(accepts("*/*"), (true, true));
        assert_eq!(accepts("text/html"), (false, false));
    }

    #[test]
    fn names_in_base64_are_decoded() {
        assert_eq!(decode_name("plain").unwrap(), "plain");
        assert_eq!(decode_name("=?base64?SGVsbG8sIOS4lueVjA==?=").unwrap(), "Hello, 世界");
        for invalid in ["!", "SGk", "SGl=", "SGk=\n", "SG k="] {
            assert!(decode_name(&format!("=?base64?{invalid}?=")).is_err(), "{invalid:?}");
        }
        assert_eq!(decode_name("=?BASE64?SGk=?=").unwrap(), "=?BASE64?SGk=?=");
    }
}
