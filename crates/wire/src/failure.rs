//! The errors of requests, and their JSON-RPC error objects.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::members::Members;
use crate::{Era, Revision};

pub(crate) const PARSE_ERROR: i32 = -32700;
pub(crate) const INVALID_REQUEST: i32 = -32600;
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
pub(crate) const INVALID_PARAMS: i32 = -32602;
pub(crate) const INTERNAL_ERROR: i32 = -32603;
pub(crate) const HEADER_MISMATCH: i32 = -32020;
pub(crate) const UNSUPPORTED_VERSION: i32 = -32022;

/// The delay after which a client that was refused because of a limit may retry.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The error of a request. Its message and data are sent to the caller.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Failure {
    /// No resource has this URI, or the caller may not see it.
    NotFound {
        /// The requested URI.
        uri: String,
        /// What is wrong with the URI, and what to request instead.
        hint: Option<String>,
    },
    /// The caller's access token lacks scopes: HTTP status 403 with a challenge.
    ScopeRequired {
        /// All scopes that the request requires.
        scopes: Arc<[Box<str>]>,
        /// The message to the caller.
        message: String,
    },
    /// The parameters are invalid.
    Invalid {
        /// The problem, and how to fix it.
        message: String,
    },
    /// A limit is reached; the same request may succeed later.
    Busy {
        /// Which limit is reached, and what to do.
        message: String,
    },
    /// A source needs input from the user. In a revision with results that ask for input, this is the result of the
    /// request and not an error.
    InputRequired {
        /// The requests that the client must fulfil, by name.
        requests: Option<Value>,
        /// The state that the client must return unchanged.
        state: Option<String>,
    },
    /// An internal error.
    Internal {
        /// The message to the caller, without confidential details.
        message: String,
        /// Details for programs.
        data: Option<Value>,
    },
}

impl Failure {
    /// A [`Failure::NotFound`] without a hint.
    pub fn not_found(uri: impl Into<String>) -> Self {
        Self::NotFound { uri: uri.into(), hint: None }
    }

    /// A [`Failure::Invalid`] with this message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into() }
    }

    /// The members of the result that asks the client for input; `None` for every other failure, and in revisions
    /// without such results.
    pub(crate) fn input_request(&self, revision: Revision) -> Option<Members> {
        let Self::InputRequired { requests, state } = self else { return None };
        if revision.facts().era == Era::Legacy {
            return None;
        }
        let requests = requests.as_ref().map(|requests| format!("\"inputRequests\":{requests}"));
        let state = state.as_ref().map(|state| format!("\"requestState\":{}", json!(state)));
        let members: Vec<_> = requests.into_iter().chain(state).collect();
        Some(members.join(",").into_bytes().into())
    }

    /// The error object in the format of `revision`.
    pub(crate) fn object(self, revision: Revision) -> ErrorObject {
        match self {
            Self::NotFound { uri, hint } => ErrorObject {
                code: revision.facts().not_found,
                message: match hint {
                    Some(hint) => format!("resource not found: {hint}").into(),
                    None => "resource not found".into(),
                },
                data: Some(json!({ "uri": uri })),
                required_scopes: None,
            },
            Self::ScopeRequired { scopes, message } => ErrorObject {
                code: INVALID_REQUEST,
                message: message.into(),
                data: Some(json!({ "error": "insufficient_scope", "scope": scopes.join(" ") })),
                required_scopes: Some(scopes),
            },
            Self::Invalid { message } => ErrorObject::new(INVALID_PARAMS, message),
            Self::Busy { message } => ErrorObject {
                code: INTERNAL_ERROR,
                message: message.into(),
                data: Some(json!({ "retryAfterMs": RETRY_AFTER.as_millis() as u64 })),
                required_scopes: None,
            },
            Self::InputRequired { .. } => ErrorObject::new(
                INTERNAL_ERROR,
                "a source needs input of the user, for which this protocol revision has no results",
            ),
            Self::Internal { message, data } => {
                ErrorObject { code: INTERNAL_ERROR, message: message.into(), data, required_scopes: None }
            }
        }
    }
}

/// A JSON-RPC error object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ErrorObject {
    pub(crate) code: i32,
    pub(crate) message: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Value>,
    /// All scopes that the request requires, if the caller's token lacks some of them: for the challenge in the HTTP
    /// response.
    #[serde(skip)]
    pub(crate) required_scopes: Option<Arc<[Box<str>]>>,
}

impl ErrorObject {
    pub(crate) fn new(code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None, required_scopes: None }
    }

    pub(crate) fn method_not_found(method: &str) -> Self {
        let shown: String = method.chars().take(100).collect();
        Self::new(METHOD_NOT_FOUND, format!("unknown method `{shown}`"))
    }

    pub(crate) fn unsupported_version(requested: &str) -> Self {
        let supported: Vec<_> = Revision::ALL.iter().map(|revision| revision.facts().date).collect();
        let requested: String = requested.chars().take(100).collect();
        Self {
            code: UNSUPPORTED_VERSION,
            message: "unsupported protocol version".into(),
            data: Some(json!({ "supported": supported, "requested": requested })),
            required_scopes: None,
        }
    }
}
