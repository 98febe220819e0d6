//! A client of the Notion API with rate limiting and retries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::GaiResolver;
use libris_core::{Error, Result, Uri};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use super::Config;
use crate::http_client::{self, HttpClient};

/// The API version.
const VERSION: &str = "2026-03-11";

/// The first and the longest delay of the exponential back-off, for responses without `Retry-After`.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(16);

/// The longest `Retry-After` that is respected, in seconds.
const MAX_RETRY_AFTER_SECONDS: u64 = 3_600;

/// The maximum number of requests of one read.
const MAX_READ_REQUESTS: u64 = 2_000;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum NotionFault {
    /// The object does not exist or is not shared with the integration.
    Missing,
    /// The integration lacks a capability.
    Forbidden,
    /// The response exceeds the size limit.
    TooLarge {
        size: u64,
        limit: u64,
    },
    Other(Error),
}

impl NotionFault {
    /// The error of reading `uri`.
    pub(super) fn into_error(self, uri: &Uri) -> Error {
        match self {
            Self::Missing => Error::missing(
                uri,
                "Notion has no such page or database, or it is not shared with the connection of this server; hint: share it with the connection in Notion",
            ),
            Self::Forbidden => Error::missing(
                uri,
                "Notion answered 403 Forbidden: check that the connection of this server may read content",
            ),
            Self::TooLarge { size, limit } => Error::TooLarge { uri: uri.clone(), size, limit, hint: None },
            Self::Other(error) => error,
        }
    }
}

/// Counts the requests and the received bytes of one read against their limits.
pub(super) struct RequestBudget {
    limit: u64,
    bytes: AtomicU64,
    requests: AtomicU64,
}

impl RequestBudget {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, bytes: AtomicU64::new(0), requests: AtomicU64::new(0) }
    }

    /// Counts a request.
    fn request(&self) -> Result<(), NotionFault> {
        match self.requests.fetch_add(1, Ordering::Relaxed) {
            0..MAX_READ_REQUESTS => Ok(()),
            _ => Err(NotionFault::Other(Error::Unavailable(
                "this takes too many requests to Notion; read a smaller page or database".into(),
            ))),
        }
    }

    /// Counts received bytes.
    fn bytes(&self, count: usize) -> Result<(), NotionFault> {
        let size = self.bytes.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        match size > self.limit {
            true => Err(NotionFault::TooLarge { size, limit: self.limit }),
            false => Ok(()),
        }
    }
}

/// A client of the Notion API.
pub(super) struct NotionClient {
    http: HttpClient<GaiResolver, Full<Bytes>>,
    base: String,
    headers: HeaderMap,
    /// The time-out of one attempt.
    timeout: Duration,
    permits: Semaphore,
    /// The end of the current `Retry-After` period, with the status that began it.
    retry_not_before: Mutex<Option<(Instant, StatusCode)>>,
    /// How long a request is retried, from its first permit on.
    time_limit: Duration,
}

/// The outcome of one attempt.
enum RequestAttempt {
    Value(Value),
    /// The request must be retried: the time in `Retry-After` if there is one, the status if there was a response,
    /// and the reason for the log.
    Retry(Option<Duration>, Option<StatusCode>, String),
}

impl NotionClient {
    pub(super) fn new(config: &Config, token: &str) -> Result<Self> {
        let base = base(&config.url)?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
            Error::invalid("the Notion token has invalid characters; hint: copy the token again")
        })?;
        authorization.set_sensitive(true);
        let headers = HeaderMap::from_iter([
            (AUTHORIZATION, authorization),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (USER_AGENT, HeaderValue::from_static(http_client::USER_AGENT)),
            (HeaderName::from_static("notion-version"), HeaderValue::from_static(VERSION)),
        ]);
        let secure = base.starts_with("https:");
        let connector = http_client::connector(HttpConnector::new(), config.timeout, secure)
            .map_err(|cause| Error::failed("set up TLS for Notion", cause))?;
        // The client follows no redirects: the token is for this host only.
        let http = http_client::builder().build(connector);
        Ok(Self {
            http,
            base,
            headers,
            timeout: config.timeout,
            permits: Semaphore::new(config.concurrent),
            retry_not_before: Mutex::default(),
            time_limit: config.retry_timeout,
        })
    }

    pub(super) async fn get(&self, path: &str, budget: &RequestBudget) -> Result<Value, NotionFault> {
        self.send_with_retries(Method::GET, path, None, budget).await
    }

    pub(super) async fn post(
        &self,
        path: &str,
        body: Value,
        budget: &RequestBudget,
    ) -> Result<Value, NotionFault> {
        self.send_with_retries(Method::POST, path, Some(body), budget).await
    }

    /// Sends a request, and retries it within the time limit.
    async fn send_with_retries(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        budget: &RequestBudget,
    ) -> Result<Value, NotionFault> {
        let mut wait = FIRST_BACKOFF;
        let mut deadline = None;
        loop {
            budget.request()?;
            let (after, status, why) = {
                let _permit = self.permits.acquire().await;
                // The deadline excludes the wait for the permit.
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.time_limit);
                self.wait_retry_after(deadline).await?;
                match self.send_once(method.clone(), path, body.as_ref(), budget).await? {
                    RequestAttempt::Value(value) => return Ok(value),
                    RequestAttempt::Retry(after, status, why) => (after, status, why),
                }
            };
            let until = Instant::now() + after.unwrap_or(wait);
            if after.is_some()
                && let Some(status) = status
            {
                // Other requests would be rejected too, so all of them wait.
                let mut retry_not_before =
                    self.retry_not_before.lock().unwrap_or_else(PoisonError::into_inner);
                *retry_not_before = (*retry_not_before).max(Some((until, status)));
            }
            tracing::debug!(path, why, wait = ?until - Instant::now(), "retrying a request to Notion");
            if deadline.is_some_and(|deadline| until > deadline) {
                tracing::warn!(path, why, "Notion does not answer");
                return Err(busy(status, after));
            }
            sleep_until(until).await;
            wait = (wait * 2).min(MAX_BACKOFF);
        }
    }

    /// Waits for the end of the `Retry-After` period; fails at once if the period ends after `deadline`.
    async fn wait_retry_after(&self, deadline: Instant) -> Result<(), NotionFault> {
        let retry_not_before = *self.retry_not_before.lock().unwrap_or_else(PoisonError::into_inner);
        match retry_not_before {
            Some((until, status)) if until > deadline => {
                Err(busy(Some(status), Some(until.saturating_duration_since(Instant::now()))))
            }
            Some((until, _)) => {
                sleep_until(until).await;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Makes one attempt, with its time-out.
    async fn send_once(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        budget: &RequestBudget,
    ) -> Result<RequestAttempt, NotionFault> {
        let data = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::new(Full::from(data));
        *request.method_mut() = method;
        *request.headers_mut() = self.headers.clone();
        *request.uri_mut() = format!("{}{path}", self.base)
            .parse()
            .map_err(|cause: http::uri::InvalidUri| failed("build the URL of a request to Notion", cause))?;
        match timeout(self.timeout, self.send(request, budget)).await {
            Ok(answer) => answer,
            Err(_) => Ok(RequestAttempt::Retry(None, None, "it took too long".into())),
        }
    }

    /// Sends a request, receives the response and decides whether to retry.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        budget: &RequestBudget,
    ) -> Result<RequestAttempt, NotionFault> {
        let method = request.method().clone();
        let response = match self.http.request(request).await {
            Ok(response) => response,
            Err(cause) => return Ok(RequestAttempt::Retry(None, None, chain(&cause))),
        };
        let status = response.status();
        let after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
        let after = after.map(|after: u64| after.min(MAX_RETRY_AFTER_SECONDS));
        let mut body = response.into_body();
        let mut data = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame.map(|frame| frame.into_data()) {
                Ok(Ok(chunk)) => {
                    budget.bytes(chunk.len())?;
                    data.extend_from_slice(&chunk);
                }
                // Trailers are ignored.
                Ok(Err(_)) => {}
                Err(cause) => return Ok(RequestAttempt::Retry(None, None, chain(&cause))),
            }
        }
        let retry = |after: Option<u64>| {
            Ok(RequestAttempt::Retry(after.map(Duration::from_secs), Some(status), status.to_string()))
        };
        match status.as_u16() {
            200 => serde_json::from_slice(&data)
                .map(RequestAttempt::Value)
                .map_err(|cause| failed("parse the response of Notion", cause)),
            404 => Err(NotionFault::Missing),
            // 529 is Notion's code for overload.
            429 | 529 => retry(Some(after.unwrap_or(1))),
            409 | 500 | 502 | 503 | 504 => retry(after),
            _ => Err(classify(&method, status, &data)),
        }
    }
}

/// Validates the URL of the API. The token must not be sent without TLS.
fn base(url: &str) -> Result<String> {
    let wrong = || Error::invalid(format!("the `url` of Notion must be `https://…`, not `{url}`"));
    let base: http::Uri = url.parse().map_err(|_| wrong())?;
    let local = matches!(base.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    let plain = base.query().is_none() && !url.contains(['#', '@']);
    match base.scheme_str() {
        Some("https") if plain => Ok(url.trim_end_matches('/').to_owned()),
        Some("http") if plain && local => Ok(url.trim_end_matches('/').to_owned()),
        _ => Err(wrong()),
    }
}

/// The error after the last retry.
fn busy(status: Option<StatusCode>, wait: Option<Duration>) -> NotionFault {
    let when = match wait.map(|wait| wait.as_millis().div_ceil(1000)) {
        None => "later".to_owned(),
        Some(0 | 1) => "in 1 second".to_owned(),
        Some(seconds) => format!("in {seconds} seconds"),
    };
    NotionFault::Other(Error::Unavailable(match status {
        // The name of a status without a standard name is `<unknown status code>`.
        Some(status) if status.canonical_reason().is_some() => {
            format!("Notion answered {status}; try again {when}")
        }
        Some(status) => format!("Notion answered {}; try again {when}", status.as_u16()),
        None => "Notion does not answer now; try again later".to_owned(),
    }))
}

fn failed(doing: &'static str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> NotionFault {
    NotionFault::Other(Error::failed(doing, cause))
}

/// Classifies an error response.
fn classify(method: &Method, status: StatusCode, data: &[u8]) -> NotionFault {
    let error: Value = serde_json::from_slice(data).unwrap_or_default();
    let code = error["code"].as_str().unwrap_or("?").to_owned();
    match status.as_u16() {
        // The ID in a GET request belongs to another kind of object, or to none.
        400 if code == "validation_error" && method == Method::GET => NotionFault::Missing,
        400 if code == "validation_error" => {
            let why = "Notion rejects the request: `after` must be the value of `next` of the previous page";
            NotionFault::Other(Error::invalid(why))
        }
        401 => {
            tracing::error!(
                "Notion rejects the token; hint: create a new one, and set it in the environment"
            );
            NotionFault::Other(Error::Unavailable(
                "Notion answered 401 Unauthorized: check the token of this server".into(),
            ))
        }
        403 => {
            tracing::warn!(%code, "the Notion token lacks a capability; hint: grant it in the settings of the connection in Notion");
            NotionFault::Forbidden
        }
        _ => failed("query Notion", format!("{status}: {code}")),
    }
}

/// A network error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
