//! Requests in several rounds: a source asks for input from the user, and the client repeats its request with the
//! input.

use std::fmt;

use crate::Meta;

/// What a client sent with a request for which a source may ask for input: its capabilities and, if it repeats the
/// request, the input.
///
/// The texts are JSON, unparsed: most sources never ask for input.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RequestInput {
    /// The capabilities of the client, as a JSON object. They say which input it can give.
    pub capabilities: Box<str>,
    /// The responses to the requests of the round before, as a JSON object.
    pub responses: Option<Box<str>>,
    /// The state of the round before, exactly as the source gave it. Any caller can forge it.
    pub state: Option<Box<str>>,
}

impl RequestInput {
    /// Whether the client repeats a request. The response then depends on the input, so it must not be cached.
    pub fn is_retry(&self) -> bool {
        self.responses.is_some() || self.state.is_some()
    }
}

/// Omits the input, which may be confidential.
impl fmt::Debug for RequestInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestInput").field("is_retry", &self.is_retry()).finish_non_exhaustive()
    }
}

/// The input that a source needs to answer a request. The client repeats the request with the input and the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputRequired {
    /// The requests that the client must fulfil, by a name that the source chose, in the form of the protocol.
    pub requests: Option<Meta>,
    /// The state that the client must return unchanged.
    pub state: Option<String>,
}
