//! The reasons why a request failed, and the errors for callers.

use std::time::Duration;

use http::StatusCode;
use libris_core::{Error, Uri};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HttpFault {
    /// No endpoint has this URI, or the URL cannot contain the value of a variable.
    Missing,
    /// The service answered with this error status.
    Status(StatusCode),
    /// The service limits the rate or is overloaded (429 or 503), with the time in `Retry-After` if it sent one.
    Busy(StatusCode, Option<Duration>),
    /// A value would change the structure of the URL.
    InvalidValues,
    /// This required variable has no value.
    MissingVariable(String),
    /// The value of this variable contains a control character.
    ControlCharacter(String),
    /// The value of a variable is not one of those that the API documents. The text is the message for callers,
    /// which names the documented values.
    InvalidChoice(String),
    /// The service violates HTTP, or the connection ended early.
    Failed,
    /// The response has an unsupported content encoding.
    Encoding,
    /// The connection failed.
    Unreachable,
    /// TLS failed: the certificate is not trusted, for example.
    Tls,
    /// The address of the service is not allowed.
    ForbiddenAddress,
    /// The time-out expired.
    TimedOut(Duration),
    /// The service redirects to another origin, or too often.
    Redirected,
    /// The response exceeds the size limit.
    TooLarge { size: u64, limit: u64 },
    /// The memory budget has no room for the response.
    NoMemory,
    /// The media type of the response is not the expected one.
    UnexpectedMediaType { sent: String, expected: String },
    /// The response is malformed JSON.
    Malformed,
    /// The response has no list at this configured JSON pointer.
    NoList { pointer: String, found: PointerTarget },
}

/// The target of a JSON pointer that does not lead to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PointerTarget {
    Nothing,
    Scalar,
}

impl HttpFault {
    /// Whether a stale response may be served: the service or this server failed, or the response is unusable. Not if
    /// the service rejected the request, or the response is too large or has no list.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Status(status) => !matches!(status.as_u16(), 400 | 401 | 403 | 404 | 407 | 410 | 414 | 422),
            Self::Busy(..) | Self::Failed | Self::Encoding | Self::Unreachable | Self::Tls => true,
            Self::TimedOut(_) | Self::NoMemory => true,
            Self::Redirected
            | Self::ForbiddenAddress
            | Self::UnexpectedMediaType { .. }
            | Self::Malformed => true,
            Self::Missing | Self::TooLarge { .. } | Self::NoList { .. } => false,
            Self::InvalidValues
            | Self::MissingVariable(_)
            | Self::ControlCharacter(_)
            | Self::InvalidChoice(_) => false,
        }
    }

    /// Whether the service has no such resource.
    pub(super) fn is_missing(&self) -> bool {
        match self {
            Self::Missing => true,
            Self::Status(status) => matches!(*status, StatusCode::NOT_FOUND | StatusCode::GONE),
            _ => false,
        }
    }

    /// Whether the resource counts as missing: the service does not have it, forbids it, or rejects its values.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::InvalidValues
            | Self::MissingVariable(_)
            | Self::ControlCharacter(_)
            | Self::InvalidChoice(_) => true,
            Self::Status(status) if *status == StatusCode::FORBIDDEN || rejects_values(*status) => true,
            fault => fault.is_missing(),
        }
    }

    /// The error for a caller who reads `uri`. The hint says what to check if the service does not know the resource or
    /// rejects its values.
    pub(super) fn into_error(self, uri: &Uri, hint: &str) -> Error {
        let service = || format!("the service behind `{uri}` {}", self.reason());
        match &self {
            Self::Missing => Error::NotFound(uri.clone()),
            Self::Status(_) if self.is_missing() => {
                Error::missing(uri, format!("the service {}{hint}", self.reason()))
            }
            // Not found rather than unavailable: the other resources of the service can be read.
            Self::Status(StatusCode::FORBIDDEN) => {
                Error::missing(uri, format!("the service {}", self.reason()))
            }
            Self::Status(status) if rejects_values(*status) => Error::invalid(service() + hint),
            Self::MissingVariable(name) => {
                Error::invalid(format!("`{uri}` lacks a value for `{name}`: add one"))
            }
            Self::ControlCharacter(name) => {
                Error::invalid(format!("`{name}` contains a control character: remove it"))
            }
            Self::InvalidChoice(why) => Error::invalid(why.clone()),
            Self::InvalidValues => Error::invalid(service()),
            Self::TooLarge { size, limit } => {
                Error::TooLarge { uri: uri.clone(), size: *size, limit: *limit, hint: None }
            }
            Self::NoMemory => Error::NO_MEMORY,
            _ => Error::Unavailable(service()),
        }
    }

    /// The error for a caller who needs a list or completions of `template`.
    pub(super) fn into_list_error(self, template: &str) -> Error {
        match self {
            Self::NoMemory => Error::NO_MEMORY,
            Self::NoList { .. } => Error::Unavailable(format!("the list for `{template}` {}", self.reason())),
            _ => Error::Unavailable(format!("the service with the list for `{template}` {}", self.reason())),
        }
    }

    /// Completes "the service …".
    fn reason(&self) -> String {
        match self {
            Self::Missing => "has nothing there".into(),
            Self::Status(status) => format!("answered {}{}", named(*status), advice(*status)),
            Self::Busy(status, Some(wait)) => {
                format!("answered {}; try again in {}", named(*status), seconds(*wait))
            }
            Self::Busy(status, None) => format!("answered {}; try again later", named(*status)),
            Self::InvalidValues | Self::MissingVariable(_) | Self::ControlCharacter(_) => "rejects these values".into(),
            Self::InvalidChoice(why) => format!("rejects these values: {why}"),
            Self::Failed => "failed; try again later".into(),
            Self::Encoding => "sent a content encoding that is not supported; tell the administrator of this server".into(),
            Self::Unreachable => "cannot be reached now; try again later".into(),
            Self::Tls => {
                "cannot be reached securely: check its certificate, and that its URL begins with the right `https://` or `http://`"
                    .into()
            }
            Self::ForbiddenAddress => {
                "is at an address that is not allowed; tell the administrator of this server".into()
            }
            Self::TimedOut(limit) => format!("did not answer within {}; try again later", seconds(*limit)),
            Self::Redirected => "redirects to another origin, which is not followed".into(),
            Self::TooLarge { limit, .. } => format!("sent more than {limit} bytes"),
            Self::UnexpectedMediaType { sent, expected } => format!("sent `{sent}` where `{expected}` was expected"),
            Self::Malformed => "sent malformed JSON".into(),
            Self::NoMemory => format!("sends a large answer: {}", Error::NO_MEMORY),
            Self::NoList { pointer, found } => {
                let found = match (found, pointer.as_str()) {
                    (_, "") => "the response is not an array or an object".to_owned(),
                    (PointerTarget::Nothing, _) => format!("the response has nothing at the JSON pointer `{pointer}`"),
                    (PointerTarget::Scalar, _) => format!(
                        "what the response has at the JSON pointer `{pointer}` is not an array or an object"
                    ),
                };
                format!("cannot be used: {found}; correct `items` in the configuration")
            }
        }
    }
}

/// Whether the status means that the service rejects the values of the request.
fn rejects_values(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 414 | 422)
}

/// Whether the same request may succeed later.
fn is_transient(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED || status == StatusCode::REQUEST_TIMEOUT
}

/// The status with its standard name. The text that the service sent is not used: it is untrusted.
fn named(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// Advice about an error status, to append to a message.
fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 407 => ": check the credentials that this server sends",
        402 => ": check the plan of the account that this server uses",
        403 => ": check the rights of the credentials that this server sends",
        _ if is_transient(status) => "; try again later",
        _ => "",
    }
}

fn seconds(time: Duration) -> String {
    match time.as_millis().div_ceil(1000) {
        0 | 1 => "1 second".to_owned(),
        count => format!("{count} seconds"),
    }
}
