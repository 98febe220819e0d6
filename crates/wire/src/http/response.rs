//! Responses that are no events: answers, refusals, and what goes with them.

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

/// A JSON answer.
pub(super) fn json(status: StatusCode, framed: Framed) -> Response<Body> {
    let mut response = Response::new(Body::framed(framed));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A stream of events.
pub(super) fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that gather output would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Gauges and counters in the text format of Prometheus, their names with this prefix.
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

/// A status and nothing else.
pub(super) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A refusal of a request that was not looked into.
pub(super) fn refusal(status: StatusCode, why: impl Into<String>) -> Response<Body> {
    error(status, None, &ErrorObject::new(INVALID_REQUEST, why.into()))
}

/// The response to a caller that is not admitted.
pub(super) fn not_admitted(refusal: &Refusal) -> Response<Body> {
    let (status, challenge) = match refusal {
        Refusal::Unauthenticated { challenge, .. } => (StatusCode::UNAUTHORIZED, Some(challenge)),
        Refusal::Forbidden { challenge, .. } => (StatusCode::FORBIDDEN, challenge.as_ref()),
    };
    let mut response = self::refusal(status, refusal.message());
    if let Some(challenge) = challenge.and_then(|challenge| HeaderValue::from_str(challenge).ok()) {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

/// An error object with this status.
pub(super) fn error(status: StatusCode, id: Option<&Id>, error: &ErrorObject) -> Response<Body> {
    json(status, Framed::error(id, error))
}

/// An error found before the service was asked, with the status that its code calls for.
pub(super) fn rejected(id: Option<&Id>, object: &ErrorObject) -> Response<Body> {
    let status = match object.code {
        METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        PARSE_ERROR | INVALID_REQUEST | HEADER_MISMATCH | UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    error(status, id, object)
}

/// A method that this path does not have.
pub(super) fn not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, format!("use one of {allowed}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
