//! The probes `/healthz` and `/readyz` for orchestrators and load balancers, which need no credentials.

use http::{Method, Request, Response, StatusCode};
use serde_json::json;

use super::body::Body;
use super::{Endpoint, response};
use crate::envelope::Framed;

impl Endpoint {
    /// Answers a probe; `None` for other paths. `/healthz` always succeeds; `/readyz` fails while the server shuts down.
    pub(super) fn probe<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let is_readyz = match request.uri().path() {
            "/healthz" => false,
            "/readyz" => true,
            _ => return None,
        };
        if request.method() != Method::GET {
            return Some(response::not_allowed("GET"));
        }
        let (status, answer) = match is_readyz {
            false => (StatusCode::OK, json!({ "status": "ok" })),
            true if self.closing.is_cancelled() => {
                (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "stopping" }))
            }
            // A degraded server still answers requests, so it stays in rotation.
            true => match self.protocol.degradation() {
                Some(reason) => (StatusCode::OK, json!({ "status": "degraded", "reason": reason })),
                None => (StatusCode::OK, json!({ "status": "ready" })),
            },
        };
        Some(response::json(status, Framed::whole(answer.to_string())))
    }
}
