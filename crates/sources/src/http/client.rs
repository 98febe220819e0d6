//! Sending requests, within limits.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use libris_core::{Error, Result};
use reqwest::header::{CONTENT_ENCODING, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url, redirect};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::sync::Semaphore;

use super::config::{Limits, Method};
use super::endpoint::Endpoint;
use super::fault::Fault;
use super::guard::{Guard, Refused};

/// The longest that a service can ask us to wait.
const PATIENCE: Duration = Duration::from_secs(300);

/// The most headers that an answer may have.
const HEADERS: usize = 100;

/// Sends requests.
pub(super) struct Client {
    client: reqwest::Client,
    limits: Limits,
    turns: Semaphore,
    /// Until when an origin wants to be left alone.
    quiet: Mutex<HashMap<String, Instant>>,
}

/// An answer as it came.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) data: Vec<u8>,
}

impl Client {
    /// One that is `secure` speaks TLS, and needs the certificates of the system.
    pub(super) fn new(limits: &Limits, guard: Guard, secure: bool) -> Result<Self> {
        let tls = tls(secure)
            .map_err(|cause| Error::failed("set up TLS with the certificates of the system", cause))?;
        let client = reqwest::Client::builder()
            .user_agent(concat!("libris/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .dns_resolver(guard)
            .connect_timeout(limits.connect)
            .http1_max_headers(HEADERS)
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|cause| Error::failed("set up HTTP", cause))?;
        let turns = Semaphore::new(limits.concurrency.max(1));
        Ok(Self { client, limits: limits.clone(), turns, quiet: Mutex::default() })
    }

    /// Asks, with these headers beside those of the endpoint.
    pub(super) async fn ask(
        &self,
        endpoint: &Endpoint,
        url: &Url,
        beside: &HeaderMap,
    ) -> Result<Reply, Fault> {
        if let Some(wait) = self.wait(endpoint.origin()) {
            return Err(Fault::Busy(Some(wait)));
        }
        let limit = self.limits.timeout;
        let asked = tokio::time::timeout(limit, self.follow(endpoint, url.clone(), beside)).await;
        let reply = asked.unwrap_or(Err(Fault::Slow(limit)));
        if let Err(fault) = &reply {
            tracing::debug!(url = %shown(url), ?fault, "a request failed");
        }
        reply
    }

    async fn follow(&self, endpoint: &Endpoint, mut url: Url, beside: &HeaderMap) -> Result<Reply, Fault> {
        let _turn = self.turns.acquire().await.map_err(|_| Fault::Unreachable)?;
        for _ in 0..=self.limits.redirects {
            let method = match endpoint.method {
                Method::GET => reqwest::Method::GET,
                Method::HEAD => reqwest::Method::HEAD,
            };
            let request = self.client.request(method, url.clone());
            let request = request.headers(endpoint.headers.clone()).headers(beside.clone());
            let response = request.send().await.map_err(|cause| failure(cause, &url))?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return self.receive(endpoint, &url, response).await;
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| url.join(location).ok());
            let Some(next) = next.filter(|next| next.origin().ascii_serialization() == endpoint.origin())
            else {
                tracing::warn!(url = %shown(&url), "a redirect to another origin is not followed");
                return Err(Fault::Elsewhere);
            };
            url = next;
        }
        tracing::warn!(url = %shown(&url), "too many redirects");
        Err(Fault::Elsewhere)
    }

    async fn receive(&self, endpoint: &Endpoint, url: &Url, mut response: Response) -> Result<Reply, Fault> {
        let (status, headers) = (response.status(), response.headers().clone());
        if status != StatusCode::NOT_MODIFIED && !status.is_success() {
            return Err(self.refusal(endpoint, url, status, &headers));
        }
        // What was unpacked does not say any more that it was packed.
        if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            tracing::warn!(url = %shown(url), "an answer is packed in a way that was not asked for");
            return Err(Fault::Failed);
        }
        let limit = self.limits.max_size;
        let too_large = |size| Err(Fault::TooLarge { size, limit });
        let mut data = Vec::new();
        if endpoint.method == Method::GET {
            if let Some(size) = response.content_length().filter(|size| *size > limit) {
                return too_large(size);
            }
            // What was packed comes unpacked here, a piece at a time.
            while let Some(piece) = response.chunk().await.map_err(|cause| failure(cause, url))? {
                data.extend_from_slice(&piece);
                if data.len() as u64 > limit {
                    return too_large(data.len() as u64);
                }
            }
        }
        Ok(Reply { status, headers, data })
    }

    fn refusal(&self, endpoint: &Endpoint, url: &Url, status: StatusCode, headers: &HeaderMap) -> Fault {
        let fault = match status.as_u16() {
            404 | 410 => Fault::Missing,
            400 | 414 | 422 => Fault::Values,
            401 | 407 => Fault::Credentials,
            403 => Fault::Denied,
            429 | 503 => {
                let wait = headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
                if let Some(wait) = wait {
                    let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
                    quiet.insert(endpoint.origin().to_owned(), Instant::now() + wait);
                }
                Fault::Busy(wait)
            }
            _ => Fault::Failed,
        };
        if matches!(fault, Fault::Missing) {
            tracing::debug!(url = %shown(url), %status, "a service has nothing there");
        } else {
            tracing::warn!(url = %shown(url), %status, "a service did not answer as it should");
        }
        fault
    }

    /// For how long an origin still wants to be left alone.
    fn wait(&self, origin: &str) -> Option<Duration> {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        let left = quiet.get(origin)?.saturating_duration_since(Instant::now());
        if left.is_zero() {
            quiet.remove(origin);
            return None;
        }
        Some(left)
    }
}

/// For how long a service asks us to wait: a number of seconds or a date.
fn retry_after(text: &str) -> Option<Duration> {
    let wait = match text.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
            SystemTime::from(until).duration_since(SystemTime::now()).unwrap_or_default()
        }
    };
    Some(wait.min(PATIENCE))
}

/// A URL as it may stand in the log: its query can hold a secret.
fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

fn failure(error: reqwest::Error, url: &Url) -> Fault {
    let error = error.without_url();
    let mut causes = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(inner) = cause {
        if inner.is::<Refused>() {
            tracing::warn!(url = %shown(url), "{inner}");
            return Fault::Unreachable;
        }
        causes.push(inner.to_string());
        cause = inner.source();
    }
    tracing::warn!(url = %shown(url), cause = causes.join(": "), "a request failed");
    if error.is_connect() { Fault::Unreachable } else { Fault::Failed }
}

/// Certificates are checked as the system does, where there are any to check.
fn tls(secure: bool) -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = match secure {
        true => config.with_platform_verifier()?,
        false => config.with_root_certificates(rustls::RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::{PATIENCE, retry_after};
    use std::time::Duration;

    #[test]
    fn a_service_asks_for_seconds_or_names_a_date() {
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("99999999"), Some(PATIENCE));
        assert_eq!(retry_after("Wed, 21 Oct 2099 07:28:00 GMT"), Some(PATIENCE));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after("soon"), None);
    }
}
