//! The reasons why a request failed, and the errors for callers.

use std::time::Duration;

use libris_core::{Error, Uri};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HttpFault {
    /// Not found.
    Missing,
    /// Forbidden.
    Denied,
    /// The service rejects the credentials.
    Credentials,
    /// The service rejects the values of the variables.
    Values,
    /// This required variable has no value.
    Lacking(String),
    /// The value of this variable contains a control character.
    Control(String),
    /// The service limits the rate, with `Retry-After` if it sent one.
    Busy(Option<Duration>),
    /// The service failed or violates HTTP.
    Failed,
    /// The connection failed.
    Unreachable,
    /// Its address is not allowed.
    Refused,
    /// The time-out expired.
    Slow(Duration),
    /// It redirects to another origin, or too often.
    Elsewhere,
    /// The response exceeds the size limit.
    TooLarge { size: u64, limit: u64 },
    /// There is no memory for the response.
    NoMemory,
    /// The media type of the response is not the expected one.
    Kind { sent: String, meant: String },
    /// The response is malformed JSON.
    Malformed,
}

impl HttpFault {
    /// Whether a stale response may be served meanwhile.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Busy(_) | Self::Failed | Self::Unreachable | Self::Slow(_) | Self::NoMemory => true,
            Self::Elsewhere | Self::Refused | Self::Kind { .. } | Self::Malformed => true,
            Self::Missing | Self::Denied | Self::Credentials | Self::TooLarge { .. } => false,
            Self::Values | Self::Lacking(_) | Self::Control(_) => false,
        }
    }

    /// The error for a caller who reads `uri`.
    pub(super) fn of(self, uri: &Uri) -> Error {
        match self {
            Self::Missing => Error::NotFound(uri.clone()),
            Self::Denied => Error::Denied(uri.clone()),
            Self::Lacking(name) => Error::invalid(format!("`{uri}` lacks a value for `{name}`")),
            Self::Control(name) => Error::invalid(format!("`{name}` cannot hold a control character")),
            Self::Values => Error::invalid(format!("the service behind `{uri}` {}", self.why())),
            Self::TooLarge { size, limit } => Error::TooLarge { uri: uri.clone(), size, limit, hint: None },
            Self::NoMemory => Error::NO_MEMORY,
            _ => Error::Unavailable(format!("the service behind `{uri}` {}", self.why())),
        }
    }

    /// The error for a caller who needs the list of `place`.
    pub(super) fn of_list(self, place: &str) -> Error {
        match self {
            Self::NoMemory => Error::NO_MEMORY,
            _ => Error::Unavailable(format!("the service with the list for `{place}` {}", self.why())),
        }
    }

    fn why(&self) -> String {
        match self {
            Self::Missing => "has nothing there".into(),
            Self::Denied | Self::Credentials => {
                "rejects the credentials of this server; tell its administrator".into()
            }
            Self::Values | Self::Lacking(_) | Self::Control(_) => "rejects these values".into(),
            Self::Busy(Some(wait)) => format!("asks to wait; try again in {}", seconds(*wait)),
            Self::Busy(None) => "asks to wait; try again later".into(),
            Self::Failed => "failed; try again later".into(),
            Self::Unreachable => "cannot be reached now; try again later".into(),
            Self::Refused => {
                "is at an address that is not allowed; tell the administrator of this server".into()
            }
            Self::Slow(limit) => format!("did not answer within {}; try again later", seconds(*limit)),
            Self::Elsewhere => "redirects to another origin, which is not followed".into(),
            Self::TooLarge { limit, .. } => format!("sent more than {limit} bytes"),
            Self::Kind { sent, meant } => format!("sent `{sent}` where `{meant}` was expected"),
            Self::Malformed => "sent malformed JSON".into(),
            Self::NoMemory => format!("sends a large answer: {}", Error::NO_MEMORY),
        }
    }
}

fn seconds(time: Duration) -> String {
    match time.as_millis().div_ceil(1000) {
        0 | 1 => "1 second".to_owned(),
        count => format!("{count} seconds"),
    }
}
