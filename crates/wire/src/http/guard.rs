//! Checks of `Host` and `Origin`, against web pages that access a local server by DNS rebinding or cross-origin requests.
//!
//! A page that rebinds its own name to our address sends that name as the host. So only configured host names and
//! `localhost` are allowed; IP addresses are always allowed, because they cannot be rebound. A page from elsewhere sends
//! its origin, which must be local, the server's own, or configured.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HOST, HeaderValue, ORIGIN, VARY,
};
use http::uri::Authority;
use http::{Request, Response, StatusCode};
use std::net::IpAddr;

use super::body::Body;
use super::response;

/// The allowed hosts and origins.
pub(super) struct Guard {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Guard {
    pub(super) fn new(hosts: &[String], origins: &[String]) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { hosts: lower(hosts), origins: lower(origins) }
    }

    /// Whether requests without an `Origin` header may have this `Host` value.
    pub(super) fn admits_host(&self, host: &[u8]) -> bool {
        let named = HeaderValue::from_bytes(host).ok();
        named.is_some_and(|host| self.authority(None, Some(&host)).is_ok())
    }

    /// Checks host and origin. Returns the origin of the request, if it has one, for the CORS headers of the response.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<Option<HeaderValue>, &'static str> {
        let headers = request.headers();
        // A proxy may have checked one of two values, while we would use the other.
        if headers.get_all(HOST).iter().count() > 1 || headers.get_all(ORIGIN).iter().count() > 1 {
            return Err("`Host` and `Origin` must not be repeated");
        }
        let authority = self.authority(request.uri().authority(), headers.get(HOST))?;
        let Some(origin) = headers.get(ORIGIN) else { return Ok(None) };
        if self.admits_origin(origin, &authority) {
            Ok(Some(origin.clone()))
        } else {
            Err("this origin is not allowed; allow it with `--allow-origin`, or `allow_origin` in code")
        }
    }

    /// The authority that the request addresses. Fails if its host is not allowed.
    fn authority(
        &self,
        asked: Option<&Authority>,
        host: Option<&HeaderValue>,
    ) -> Result<Authority, &'static str> {
        let named = host.map(|host| host.to_str().unwrap_or_default());
        let authority: Authority = match (asked, named) {
            (Some(authority), _) => authority.clone(),
            (None, Some(named)) => named.parse().map_err(|_| "the `Host` header is not a host")?,
            (None, None) => return Err("the `Host` header is missing"),
        };
        if authority.as_str().contains('@') {
            return Err("the `Host` header is not a host");
        }
        let name = authority.host().to_ascii_lowercase();
        if name == "localhost" || address(&name).is_some() || self.hosts.contains(&name) {
            return Ok(authority);
        }
        Err("this host name is not allowed; allow it with `--allow-host`, or `allow_host` in code")
    }

    /// Whether pages of this origin may send requests: it is configured, it is local, or it equals the authority that
    /// the request addresses.
    fn admits_origin(&self, origin: &HeaderValue, served: &Authority) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        let origin = origin.to_ascii_lowercase();
        if self.origins.contains(&origin) {
            return true;
        }
        let Some((_, rest)) = origin.split_once("://") else { return false };
        let Ok(authority) = rest.parse::<Authority>() else { return false };
        let host = authority.host();
        host == "localhost"
            || address(host).is_some_and(|address| address.is_loopback())
            || authority.as_str().eq_ignore_ascii_case(served.as_str())
    }
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// The response to a CORS preflight request.
pub(super) fn preflight() -> Response<Body> {
    let mut response = response::bare(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, DELETE"));
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static(
            "content-type, accept, authorization, last-event-id, mcp-session-id, mcp-protocol-version, \
             mcp-method, mcp-name",
        ),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Adds the CORS headers that let a page of this origin read the response.
pub(super) fn add_cors_headers(response: &mut Response<Body>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("mcp-session-id"));
    headers.insert(VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use super::Guard;
    use http::Request;

    fn check(host: &str, origin: Option<&str>) -> bool {
        let guard = Guard::new(&["library.example".into()], &["https://app.example".into()]);
        let mut request = Request::builder().uri("/mcp").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        guard.check(&request.body(()).unwrap()).is_ok()
    }

    #[test]
    fn host_names_must_be_allowed_and_addresses_always_are() {
        for host in
            ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80", "10.0.0.7", "Library.Example:1"]
        {
            assert!(check(host, None), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "evil.example:80", "", "a b", "evil.example@localhost"]
        {
            assert!(!check(host, None), "{host}");
        }
    }

    #[test]
    fn a_repeated_header_is_refused() {
        let guard = Guard::new(&[], &[]);
        for (name, second) in [("host", "evil.example"), ("origin", "http://evil.example")] {
            let request = Request::builder()
                .uri("/mcp")
                .header("host", "localhost")
                .header("origin", "http://localhost")
                .header(name, second);
            assert!(guard.check(&request.body(()).unwrap()).is_err(), "{name}");
        }
    }

    #[test]
    fn origins_must_be_local_our_own_or_allowed() {
        let origins =
            ["http://localhost:6274", "http://127.0.0.1:1", "http://[::1]:5", "https://app.example"];
        for origin in origins {
            assert!(check("127.0.0.1:80", Some(origin)), "{origin}");
        }
        assert!(check("library.example:80", Some("http://library.example:80")));
        for origin in ["http://evil.example", "null", "http://10.0.0.9", "http://localhost.evil.example", ""]
        {
            assert!(!check("127.0.0.1:80", Some(origin)), "{origin}");
        }
    }
}
