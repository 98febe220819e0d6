//! Sends requests within limits: concurrency, time, size, redirects.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
    USER_AGENT,
};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use libris_core::{Budget, Error, Lease, Result};
use tokio::sync::Notify;
use url::Url;

use super::config::{Method, RequestLimits};
use super::endpoint::ApiEndpoint;
use super::fault::HttpFault;
use super::guard::{AddressGuard, ForbiddenAddress};
use super::memory::{ReceiveError, ReceivedBody};
use crate::http_client::{self, HttpClient};

/// The longest `Retry-After` that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The maximum number of headers in a response.
const MAX_HEADERS: usize = 100;

/// The size of the read buffer, and so of the largest response head. A larger buffer would make one poll of a
/// connection longer: hyper yields only after 128 reads.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// The maximum number of interim responses, such as `100 Continue`, before a response.
const MAX_INTERIM_RESPONSES: usize = 16;

/// An HTTP client with limits.
pub(super) struct ApiClient {
    client: HttpClient<AddressGuard, Empty<Bytes>>,
    limits: RequestLimits,
    permits: Arc<Budget>,
    /// The end of the `Retry-After` period of each origin, with the status that began it.
    paused_origins: Mutex<HashMap<String, (Instant, StatusCode)>>,
}

/// A response as received.
pub(super) struct RawResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) data: Vec<u8>,
    /// The reserved memory, if the data is large.
    pub(super) memory: Option<Lease>,
}

impl ApiClient {
    /// Creates a client. If `secure`, it supports TLS and loads the root certificates of the system.
    pub(super) fn new(limits: &RequestLimits, guard: AddressGuard, secure: bool) -> Result<Self> {
        let tcp = HttpConnector::new_with_resolver(guard);
        let connector = http_client::connector(tcp, limits.connect, secure)
            .map_err(|cause| Error::failed("set up TLS with the certificates of the system", cause))?;
        let mut builder = http_client::builder();
        let client = builder
            .http1_max_headers(MAX_HEADERS)
            .http1_read_buf_exact_size(READ_BUFFER_BYTES)
            .build(connector);
        let permits = Budget::new(limits.concurrency.max(1));
        Ok(Self { client, limits: limits.clone(), permits, paused_origins: Mutex::default() })
    }

    /// Sends a request with the headers of the endpoint and `extra_headers`, under a permit from the share of
    /// `client`. Fails at once during a `Retry-After` period.
    pub(super) async fn send(
        &self,
        endpoint: &ApiEndpoint,
        url: &Url,
        extra_headers: &HeaderMap,
        client: libris_core::Client,
    ) -> Result<RawResponse, HttpFault> {
        if let Some((wait, status)) = self.retry_wait(endpoint.origin()) {
            return Err(HttpFault::Busy(status, Some(wait)));
        }
        let limit = self.limits.timeout;
        let asked = tokio::time::timeout(
            limit,
            self.send_following_redirects(endpoint, url.clone(), extra_headers, client),
        )
        .await;
        let reply = asked.unwrap_or(Err(HttpFault::TimedOut(limit)));
        if let Err(fault) = &reply {
            tracing::debug!(url = %without_query(url), ?fault, "a request failed");
        }
        reply
    }

    /// Sends a request and follows redirects within the origin of the endpoint.
    async fn send_following_redirects(
        &self,
        endpoint: &ApiEndpoint,
        mut url: Url,
        extra_headers: &HeaderMap,
        client: libris_core::Client,
    ) -> Result<RawResponse, HttpFault> {
        let _permit = self.permits.take(client, 1).await.ok_or(HttpFault::Unreachable)?;
        for _ in 0..=self.limits.redirects {
            let mut request = request(endpoint, &url, extra_headers).ok_or(HttpFault::Failed)?;
            let interim = InterimCounter::count(&mut request);
            let response = tokio::select! {
                response = self.client.request(request) => response.map_err(|cause| {
                    let reached = !cause.is_connect();
                    classify(&cause, &url, reached)
                })?,
                () = interim.too_many() => {
                    tracing::warn!(url = %without_query(&url), "a service sends only interim responses");
                    return Err(HttpFault::Failed);
                }
            };
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return self.receive(endpoint, &url, response, client).await;
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| url.join(location).ok());
            let Some(next) = next.filter(|next| next.origin().ascii_serialization() == endpoint.origin())
            else {
                tracing::warn!(url = %without_query(&url), "did not follow a redirect to another origin");
                return Err(HttpFault::Redirected);
            };
            url = next;
        }
        tracing::warn!(url = %without_query(&url), "too many redirects");
        Err(HttpFault::Redirected)
    }

    /// Receives the body within the limits. An error status is a fault.
    async fn receive(
        &self,
        endpoint: &ApiEndpoint,
        url: &Url,
        response: Response<Incoming>,
        client: libris_core::Client,
    ) -> Result<RawResponse, HttpFault> {
        let (response, mut body) = response.into_parts();
        let (status, headers) = (response.status, response.headers);
        if status != StatusCode::NOT_MODIFIED && !status.is_success() {
            return Err(self.status_fault(endpoint, url, status, &headers));
        }
        let limit = self.limits.max_size;
        let mut received = match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"identity") => {
                let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
                let length = length.filter(|_: &u64| endpoint.method == Method::GET);
                match length.filter(|size| *size > limit) {
                    Some(size) => return Err(HttpFault::TooLarge { size, limit }),
                    None => ReceivedBody::plain(limit, length, client),
                }
            }
            Some(b"gzip" | b"x-gzip") => ReceivedBody::gzip(limit, client),
            Some(_) => {
                tracing::warn!(url = %without_query(url), "a response has an unsupported content encoding");
                return Err(HttpFault::Encoding);
            }
        };
        let receive_fault = |error| match error {
            ReceiveError::TooLarge(size) => HttpFault::TooLarge { size, limit },
            ReceiveError::NoMemory => HttpFault::NoMemory,
            ReceiveError::Malformed(cause) => classify(&cause, url, true),
        };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|cause| classify(&cause, url, true))?;
            if let Some(piece) = frame.data_ref() {
                received.write(piece).await.map_err(receive_fault)?;
            }
        }
        let (data, memory) = received.finish().await.map_err(receive_fault)?;
        Ok(RawResponse { status, headers, data, memory })
    }

    /// The fault for an error status. Starts a `Retry-After` period if the service asks for one.
    fn status_fault(
        &self,
        endpoint: &ApiEndpoint,
        url: &Url,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> HttpFault {
        let fault = match status.as_u16() {
            429 | 503 => {
                let wait = headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
                if let Some(wait) = wait {
                    let mut paused_origins =
                        self.paused_origins.lock().unwrap_or_else(PoisonError::into_inner);
                    paused_origins.insert(endpoint.origin().to_owned(), (Instant::now() + wait, status));
                }
                HttpFault::Busy(status, wait)
            }
            _ => HttpFault::Status(status),
        };
        if fault.is_missing() {
            tracing::debug!(url = %without_query(url), %status, "a service returned not found");
        } else {
            tracing::warn!(url = %without_query(url), %status, "a service returned an error");
        }
        fault
    }

    /// The remaining `Retry-After` period of an origin, with the status that began it.
    fn retry_wait(&self, origin: &str) -> Option<(Duration, StatusCode)> {
        let mut paused_origins = self.paused_origins.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, status) = *paused_origins.get(origin)?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            paused_origins.remove(origin);
            return None;
        }
        Some((left, status))
    }
}

/// A counter of interim responses: hyper alone would skip any number of them.
#[derive(Clone, Default)]
struct InterimCounter(Arc<InterimCount>);

#[derive(Default)]
struct InterimCount {
    count: AtomicUsize,
    full: Notify,
}

impl InterimCounter {
    /// Counts the interim responses to this request.
    fn count<B>(request: &mut http::Request<B>) -> Self {
        let interim = Self::default();
        let counted = interim.clone();
        hyper::ext::on_informational(request, move |_| {
            if counted.0.count.fetch_add(1, Ordering::Relaxed) == MAX_INTERIM_RESPONSES {
                counted.0.full.notify_one();
            }
        });
        interim
    }

    /// Waits until the limit is exceeded.
    async fn too_many(&self) {
        self.0.full.notified().await;
    }
}

/// Parses `Retry-After`: a number of seconds or a date.
fn retry_after(text: &str) -> Option<Duration> {
    let wait = match text.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
            SystemTime::from(until).duration_since(SystemTime::now()).unwrap_or_default()
        }
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// A URL for the log, without its query, which may contain a secret.
fn without_query(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// Logs an error and classifies it; `reached` says whether a connection was established.
fn classify(error: &(dyn std::error::Error + 'static), url: &Url, reached: bool) -> HttpFault {
    let mut causes = vec![error.to_string()];
    let mut cause = error.source();
    let mut tls = false;
    while let Some(inner) = cause {
        let refused = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if inner.is::<ForbiddenAddress>() || refused.is_some_and(|refused| refused.is::<ForbiddenAddress>()) {
            tracing::warn!(url = %without_query(url), "{inner}");
            return HttpFault::ForbiddenAddress;
        }
        tls |= inner.is::<rustls::Error>() || refused.is_some_and(|refused| refused.is::<rustls::Error>());
        causes.push(inner.to_string());
        cause = inner.source();
    }
    tracing::warn!(url = %without_query(url), cause = causes.join(": "), "a request failed");
    match reached {
        true => HttpFault::Failed,
        false if tls => HttpFault::Tls,
        false => HttpFault::Unreachable,
    }
}

fn request(
    endpoint: &ApiEndpoint,
    url: &Url,
    extra_headers: &HeaderMap,
) -> Option<http::Request<Empty<Bytes>>> {
    let mut request = http::Request::new(Empty::new());
    *request.method_mut() = endpoint.method.into();
    *request.uri_mut() = url.as_str().parse().ok()?;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static(http_client::USER_AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    for (name, value) in endpoint.headers.iter().chain(extra_headers) {
        headers.insert(name, value.clone());
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::{
        AddressGuard, ApiClient, ApiEndpoint, ForbiddenAddress, HttpFault, MAX_RETRY_AFTER, Url, classify,
        retry_after,
    };
    use crate::http::config::Config;
    use crate::http::endpoint::EndpointSpec;
    use libris_core::{Error, Uri};
    use std::io;
    use std::time::Duration;
    use tokio::net::TcpListener;

    /// The outcome of `GET /` of `localhost`. The endpoint allows the address, so only the resolver can refuse it.
    async fn ask_localhost(port: u16, allow_private: bool) -> Option<HttpFault> {
        let config = Config::default();
        let url = format!("http://localhost:{port}/");
        let anywhere = AddressGuard { allow_private: true, networks: Vec::new() };
        let endpoint = ApiEndpoint::new(EndpointSpec::new(&url), 0, &config, &anywhere).unwrap();
        let client =
            ApiClient::new(&config.limits, AddressGuard { allow_private, ..anywhere }, false).unwrap();
        client
            .send(&endpoint, &Url::parse(&url).unwrap(), &Default::default(), libris_core::Client::default())
            .await
            .err()
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_private_address_is_not_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(ask_localhost(port, false).await, Some(HttpFault::ForbiddenAddress));
        // The allowed request must be the first connection that the listener accepts.
        let allowed = tokio::spawn(async move { ask_localhost(port, true).await });
        let (first, from) = listener.accept().await.unwrap();
        drop(first);
        assert_eq!(allowed.await.unwrap(), Some(HttpFault::Failed), "{from}");
    }

    #[test]
    fn a_forbidden_address_has_its_own_error() {
        let url = Url::parse("http://intranet.example/").unwrap();
        let failed = |cause| classify(&Error::failed("connect", cause), &url, false);
        assert_eq!(failed(io::Error::other("no route")), HttpFault::Unreachable);
        assert_eq!(failed(io::Error::other(rustls::Error::DecryptError)), HttpFault::Tls);
        let fault = failed(io::Error::other(ForbiddenAddress));
        let error = fault.into_error(&Uri::parse("a://b").unwrap(), "").to_string();
        assert_eq!(
            error,
            "the service behind `a://b` is at an address that is not allowed; tell the administrator of this server"
        );
    }

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("99999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after("Wed, 21 Oct 2099 07:28:00 GMT"), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after("soon"), None);
    }
}
