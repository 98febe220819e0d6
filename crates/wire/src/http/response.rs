//! HTTP responses: messages, event streams, refusals and metrics, with their headers.

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};

use super::body::Body;
use crate::Refusal;
use crate::envelope::{Framed, Id};
use crate::failure::{
    ErrorObject, HEADER_MISMATCH, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, UNSUPPORTED_VERSION,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A JSON response.
pub(super) fn json(status: StatusCode, framed: Framed) -> Response<Body> {
    let mut response = Response::new(Body::framed(framed));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// An event stream.
pub(super) fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Tells proxies not to buffer events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Gauges and counters in the Prometheus text format, with this prefix in their names.
pub(super) fn metrics(prefix: &str, counts: &[(&'static str, usize)]) -> Response<Body> {
    let lines = counts.iter().map(|(name, count)| {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        format!("# TYPE {prefix}_{name} {kind}\n{prefix}_{name} {count}\n")
    });
    let mut response = Response::new(Body::framed(Framed::whole(lines.collect::<String>())));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A status without a body.
pub(super) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Refuses a request before its message is parsed.
pub(super) fn refusal(status: StatusCode, why: impl Into<String>) -> Response<Body> {
    error(status, None, &ErrorObject::new(INVALID_REQUEST, why.into()))
}

/// The response to a caller that is not admitted.
pub(super) fn not_admitted(refusal: &Refusal) -> Response<Body> {
    let (status, challenge) = match refusal {
        Refusal::Unauthenticated { challenge, .. } => (StatusCode::UNAUTHORIZED, Some(challenge)),
        Refusal::Forbidden { challenge, .. } => (StatusCode::FORBIDDEN, challenge.as_ref()),
        Refusal::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, None),
    };
    let mut response = self::refusal(status, refusal.message());
    if let Some(challenge) = challenge {
        self::challenge(&mut response, status, challenge);
    }
    response
}

/// Sets the status and the `WWW-Authenticate` header of a response.
pub(super) fn challenge(response: &mut Response<Body>, status: StatusCode, challenge: &str) {
    *response.status_mut() = status;
    if let Ok(challenge) = HeaderValue::from_str(challenge) {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
}

/// An error response with this status.
pub(super) fn error(status: StatusCode, id: Option<&Id>, error: &ErrorObject) -> Response<Body> {
    json(status, Framed::error(id, error))
}

/// The response to a request that is refused before the service is called. The error code determines the status.
pub(super) fn rejected(id: Option<&Id>, object: &ErrorObject) -> Response<Body> {
    let status = match object.code {
        METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        PARSE_ERROR | INVALID_REQUEST | HEADER_MISMATCH | UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    error(status, id, object)
}

/// The response to an HTTP method that this path does not support.
pub(super) fn not_allowed(allowed: &'static str) -> Response<Body> {
    let one_of = if allowed.contains(',') { "one of " } else { "" };
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, format!("use {one_of}{allowed}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
