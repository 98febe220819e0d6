//! Why an answer could not be had, and what of that is told.

use std::time::Duration;

use libris_core::{Error, Uri};

/// Why an answer could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HttpFault {
    /// There is nothing there.
    Missing,
    /// It is not for us.
    Denied,
    /// Our credentials were not accepted.
    Credentials,
    /// The values of the variables were not accepted.
    Values,
    /// This variable has no value, and must have one.
    Lacking(String),
    /// The value of this variable has a control character in it.
    Control(String),
    /// It asks to wait, and says for how long where it does.
    Busy(Option<Duration>),
    /// It failed, or does not do what an API does.
    Failed,
    /// It cannot be reached.
    Unreachable,
    /// Its address may not be asked.
    Refused,
    /// It took longer than this.
    Slow(Duration),
    /// It leads elsewhere.
    Elsewhere,
    /// It sends more than is taken.
    TooLarge { size: u64, limit: u64 },
    /// There is no memory for what it sends.
    NoMemory,
    /// It sends something else than it should: this media type, where another is meant.
    Kind { sent: String, meant: String },
    /// It sends JSON that is none.
    Malformed,
}

impl HttpFault {
    /// Whether the answer before may be given while this lasts.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Busy(_) | Self::Failed | Self::Unreachable | Self::Slow(_) | Self::NoMemory => true,
            Self::Elsewhere | Self::Refused | Self::Kind { .. } | Self::Malformed => true,
            Self::Missing | Self::Denied | Self::Credentials | Self::TooLarge { .. } => false,
            Self::Values | Self::Lacking(_) | Self::Control(_) => false,
        }
    }

    /// What is told to whoever asked for `uri`.
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

    /// What is told to whoever asked for a list that `place` needs.
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
                "does not accept the credentials of this server; tell whoever runs it".into()
            }
            Self::Values | Self::Lacking(_) | Self::Control(_) => "does not accept these values".into(),
            Self::Busy(Some(wait)) => format!("asks to wait; try again in {}", seconds(*wait)),
            Self::Busy(None) => "asks to wait; try again later".into(),
            Self::Failed => "failed; try again later".into(),
            Self::Unreachable => "cannot be reached now; try again later".into(),
            Self::Refused => "is at an address that is not allowed; tell whoever runs this server".into(),
            Self::Slow(limit) => format!("did not answer within {}; try again later", seconds(*limit)),
            Self::Elsewhere => "redirects to another place, which is not followed".into(),
            Self::TooLarge { limit, .. } => format!("sent more than the {limit} bytes that are taken"),
            Self::Kind { sent, meant } => format!("sent `{sent}` where `{meant}` was expected"),
            Self::Malformed => "sent JSON that is malformed".into(),
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
