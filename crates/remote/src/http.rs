//! The HTTP client for rmcp's Streamable HTTP transport. It limits the size of bodies and events, and does not follow
//! redirects.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, USER_AGENT, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use sse_stream::{Sse, SseStream};

use crate::decode::{self, DecodeFailure, PendingMethods};
use crate::fault::{RemoteFault, quoted};
use crate::json_weight;

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";
const SESSION_ID: &str = "mcp-session-id";
const LAST_EVENT_ID: &str = "last-event-id";

/// The maximum number of bytes of an error response that are read.
const MAX_ERROR_BODY: usize = 64 << 10;

/// The maximum number of headers in a response.
const MAX_HEADERS: usize = 100;

/// An HTTP client with limits.
#[derive(Clone)]
pub(crate) struct UpstreamHttp {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    max_message: usize,
    /// The timeout for the head of a response, and separately for its body. The body of an event stream has no timeout.
    timeout: Duration,
}

type TransportFailure = StreamableHttpError<RemoteFault>;
type ServerEvents = BoxStream<'static, Result<Sse, SseError>>;

impl UpstreamHttp {
    /// A client for the endpoint at `url`. The trust store of the system is loaded only for `https`.
    pub(crate) fn new(
        url: &str,
        max_message: usize,
        connect: Duration,
        timeout: Duration,
    ) -> Result<Self, RemoteFault> {
        let connector = connector(HttpConnector::new(), connect, url.starts_with("https:"))?;
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .http1_max_headers(MAX_HEADERS);
        Ok(Self { client: builder.build(connector), max_message, timeout })
    }

    /// Sends a request and waits for the head of the response. Redirects and missing authorization are errors.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, TransportFailure> {
        let answered = tokio::time::timeout(self.timeout, self.client.request(request)).await;
        let response = answered
            .map_err(|_| failed(RemoteFault::Silent(self.timeout)))?
            .map_err(|cause| failed(RemoteFault::Unreachable(innermost(&cause))))?;
        let challenge = || {
            let value = response.headers().get(WWW_AUTHENTICATE);
            String::from_utf8_lossy(value.map(HeaderValue::as_bytes).unwrap_or_default()).into_owned()
        };
        match response.status() {
            StatusCode::UNAUTHORIZED => {
                Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge())))
            }
            StatusCode::FORBIDDEN if response.headers().contains_key(WWW_AUTHENTICATE) => {
                let scope = scope(&challenge());
                Err(StreamableHttpError::InsufficientScope(InsufficientScopeError::new(challenge(), scope)))
            }
            status if status.is_redirection() => {
                let location =
                    response.headers().get(LOCATION).map(HeaderValue::as_bytes).unwrap_or_default();
                Err(failed(RemoteFault::Redirect(quoted(&String::from_utf8_lossy(location)))))
            }
            _ => Ok(response),
        }
    }

    /// Reads the body of a response, at most `limit` bytes, within the timeout.
    async fn body(&self, response: Response<Incoming>, limit: usize) -> Result<Bytes, RemoteFault> {
        let too_large = RemoteFault::TooLarge { limit };
        if response.body().size_hint().lower() > limit as u64 {
            return Err(too_large);
        }
        let body = Limited::new(response.into_body(), limit).collect();
        match tokio::time::timeout(self.timeout, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(cause)) if cause.is::<http_body_util::LengthLimitError>() => Err(too_large),
            Ok(Err(_)) => Err(RemoteFault::Closed(None)),
            Err(_) => Err(RemoteFault::Silent(self.timeout)),
        }
    }

    /// The events of a response. If an event exceeds the limit, an error response to `request` takes its place, and the
    /// stream ends.
    fn events(
        &self,
        response: Response<Incoming>,
        pending: PendingMethods,
        request: Option<RequestId>,
    ) -> ServerEvents {
        let body = response.into_body().into_data_stream();
        let max_message = self.max_message;
        let bounded = BoundedEvents { body, limit: max_message, size: 0, line: 0, has_failed: false };
        let events = SseStream::from_bytes_stream(bounded);
        let checked = move |event: Result<Sse, SseError>| match (event, &request) {
            (Err(SseError::Body(cause)), Some(id)) => match cause.downcast_ref::<RemoteFault>() {
                Some(fault @ RemoteFault::TooLarge { .. }) => {
                    let response = decode::substitute(id.clone(), fault);
                    Ok(Sse::default().data(serde_json::to_string(&response).unwrap_or_default()))
                }
                _ => Err(SseError::Body(cause)),
            },
            (event, _) => event.and_then(|event| checked_event(event, &pending, max_message)),
        };
        events.map(checked).boxed()
    }
}

/// A connector for HTTP and, if `is_https`, for HTTPS with the trust store of the system.
pub(crate) fn connector<R>(
    mut tcp: HttpConnector<R>,
    timeout: Duration,
    is_https: bool,
) -> Result<HttpsConnector<HttpConnector<R>>, RemoteFault> {
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    let unusable = |cause: rustls::Error| RemoteFault::Unreachable(format!("TLS cannot be set up: {cause}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let tls = match is_https {
        true => tls.with_platform_verifier().map_err(unusable)?,
        false => tls.with_root_certificates(rustls::RootCertStore::empty()),
    };
    let tls = tls.with_no_client_auth();
    Ok(HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp))
}

/// Decodes the response in an event by its method, and encodes it again: malformed entries of a list are left out, and a
/// malformed response becomes an error. Other events are unchanged. An event that would take too much memory, and answers no
/// known request, ends the stream.
fn checked_event(mut event: Sse, pending: &PendingMethods, max_message: usize) -> Result<Sse, SseError> {
    #[derive(Deserialize)]
    struct EventEnvelope<'a> {
        #[serde(borrow)]
        result: Option<&'a RawValue>,
    }
    let Some(data) = &event.data else { return Ok(event) };
    let is_response = || serde_json::from_str(data).is_ok_and(|EventEnvelope { result }| result.is_some());
    if json_weight::check(data.as_bytes(), max_message).is_err() || is_response() {
        let replaced = match decode::message(data.as_bytes(), pending, max_message) {
            Ok(message) => Some(message),
            Err(DecodeFailure::Response(id, fault)) => Some(decode::substitute(id, &fault)),
            Err(DecodeFailure::Unknown(fault)) => return Err(SseError::Body(Box::new(fault))),
            Err(DecodeFailure::NotMessage) => None,
        };
        if let Some(text) = replaced.and_then(|message| serde_json::to_string(&message).ok()) {
            event.data = Some(text);
        }
    }
    Ok(event)
}

impl StreamableHttpClient for UpstreamHttp {
    type Error = RemoteFault;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, TransportFailure> {
        let pending = PendingMethods::default();
        pending.record(&message);
        let has_session = session_id.is_some();
        let body = Bytes::from(serde_json::to_vec(&message)?);
        let parts = RequestParts {
            method: Method::POST,
            session_id,
            last_event_id: None,
            auth_header,
            custom_headers,
        };
        let mut request = parts.request(&uri, body)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let response = self.send(request).await?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let new_session = header(&response, SESSION_ID);
        let kind = header(&response, CONTENT_TYPE.as_str()).unwrap_or_default();
        if !status.is_success() {
            return self.error_response(response, &message, has_session).await;
        }
        if kind.starts_with(EVENT_STREAM) {
            let id = match &message {
                ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
                _ => None,
            };
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, pending, id), new_session));
        }
        let awaits_response = matches!(message, ClientJsonRpcMessage::Request(_));
        if !kind.starts_with(JSON) {
            return match awaits_response {
                true => Err(failed(RemoteFault::ContentType(quoted(&kind)))),
                false => Ok(StreamableHttpPostResponse::Accepted),
            };
        }
        let body = self.body(response, self.max_message).await.map_err(failed)?;
        match decode::message(&body, &pending, self.max_message) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, new_session)),
            Err(_) if !awaits_response => Ok(StreamableHttpPostResponse::Accepted),
            Err(DecodeFailure::Response(id, fault)) => {
                Ok(StreamableHttpPostResponse::Json(decode::substitute(id, &fault), new_session))
            }
            Err(DecodeFailure::Unknown(fault)) => Err(failed(fault)),
            Err(DecodeFailure::NotMessage) => {
                let cause = "it is not a JSON-RPC message".to_owned();
                Err(failed(RemoteFault::WrongResult { method: "the request", cause }))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), TransportFailure> {
        let session_id = Some(session_id);
        let parts = RequestParts {
            method: Method::DELETE,
            session_id,
            last_event_id: None,
            auth_header,
            custom_headers,
        };
        self.send(parts.request(&uri, Bytes::new())?).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<ServerEvents, TransportFailure> {
        let parts =
            RequestParts { method: Method::GET, session_id, last_event_id, auth_header, custom_headers };
        let response = self.send(parts.request(&uri, Bytes::new())?).await?;
        let status = response.status();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if !status.is_success() {
            return Err(failed(RemoteFault::Status { status: status.as_u16(), said: None }));
        }
        match header(&response, CONTENT_TYPE.as_str()) {
            Some(kind) if kind.starts_with(EVENT_STREAM) => {
                Ok(self.events(response, PendingMethods::default(), None))
            }
            kind => Err(StreamableHttpError::UnexpectedContentType(kind.map(|kind| quoted(&kind)))),
        }
    }
}

impl UpstreamHttp {
    /// Converts an HTTP error response: the JSON-RPC error in its body if there is one, otherwise a fault with the
    /// status.
    async fn error_response(
        &self,
        response: Response<Incoming>,
        message: &ClientJsonRpcMessage,
        has_session: bool,
    ) -> Result<StreamableHttpPostResponse, TransportFailure> {
        let status = response.status();
        let body = self.body(response, MAX_ERROR_BODY).await.unwrap_or_default();
        let error = match serde_json::from_slice(&body) {
            Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
            _ => None,
        };
        let ClientJsonRpcMessage::Request(request) = message else {
            return Err(failed(RemoteFault::Status { status: status.as_u16(), said: None }));
        };
        let json = |error: ErrorData| {
            Ok(StreamableHttpPostResponse::Json(
                ServerJsonRpcMessage::error(error, Some(request.id.clone())),
                None,
            ))
        };
        // A server that does not know `server/discover` may reject it with any 4xx status, and without the id.
        let is_discover = matches!(request.request, ClientRequest::DiscoverRequest(_)) && !has_session;
        let is_legacy = is_discover && status.is_client_error() && status != StatusCode::FORBIDDEN;
        match error {
            Some(error) => json(error.error),
            None if is_legacy => json(ErrorData::invalid_request(format!("HTTP status {status}"), None)),
            None => {
                let said = quoted(&String::from_utf8_lossy(&body));
                let said = (!said.is_empty() && !said.starts_with('<')).then_some(said);
                Err(failed(RemoteFault::Status { status: status.as_u16(), said }))
            }
        }
    }
}

/// A request without its body.
struct RequestParts {
    method: Method,
    session_id: Option<Arc<str>>,
    last_event_id: Option<String>,
    auth_header: Option<String>,
    custom_headers: HashMap<HeaderName, HeaderValue>,
}

impl RequestParts {
    fn request(self, uri: &str, body: Bytes) -> Result<Request<Full<Bytes>>, TransportFailure> {
        let accept = match self.method {
            Method::GET => EVENT_STREAM.to_owned(),
            _ => format!("{JSON}, {EVENT_STREAM}"),
        };
        let agent = concat!("libris/", env!("CARGO_PKG_VERSION"));
        let mut builder =
            Request::builder().method(self.method).uri(uri).header(ACCEPT, accept).header(USER_AGENT, agent);
        if let Some(session) = &self.session_id {
            builder = builder.header(SESSION_ID, &**session);
        }
        if let Some(event) = self.last_event_id {
            builder = builder.header(LAST_EVENT_ID, event);
        }
        if let Some(token) = self.auth_header {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                failed(RemoteFault::Unreachable(
                    "the access token has characters that no header may have".into(),
                ))
            })?;
            value.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, value);
        }
        for (name, value) in self.custom_headers {
            builder = builder.header(name, value);
        }
        builder.body(Full::new(body)).map_err(|cause| failed(RemoteFault::Unreachable(cause.to_string())))
    }
}

fn failed(fault: RemoteFault) -> TransportFailure {
    StreamableHttpError::Client(fault)
}

fn header(response: &Response<Incoming>, name: &str) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The scope in a `WWW-Authenticate` challenge.
fn scope(challenge: &str) -> Option<String> {
    let rest = challenge.split_once("scope=\"")?.1;
    Some(rest.split_once('"')?.0.to_owned())
}

/// The innermost cause of a failure, which is the most specific one, such as "connection refused".
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    quoted(&cause.to_string())
}

/// The bytes of an event stream. They end with an error when an event exceeds the limit.
struct BoundedEvents<S> {
    body: S,
    limit: usize,
    /// The bytes of the current event so far.
    size: usize,
    /// The bytes of the current line so far.
    line: usize,
    has_failed: bool,
}

impl<S: Stream<Item = Result<Bytes, hyper::Error>> + Unpin> Stream for BoundedEvents<S> {
    type Item = Result<Bytes, RemoteFault>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let Some(bytes) = ready!(Pin::new(&mut self.body).poll_next(context)) else {
            return Poll::Ready(None);
        };
        let Ok(bytes) = bytes else {
            self.has_failed = true;
            return Poll::Ready(Some(Err(RemoteFault::Closed(None))));
        };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.size += line.len();
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            self.line += text.strip_suffix(b"\r").unwrap_or(text).len();
            if line.ends_with(b"\n") && std::mem::take(&mut self.line) == 0 {
                // An empty line ends an event.
                self.size = 0;
            }
            if self.size > self.limit {
                self.has_failed = true;
                return Poll::Ready(Some(Err(RemoteFault::TooLarge { limit: self.limit })));
            }
        }
        Poll::Ready(Some(Ok(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{StreamExt as _, stream};

    use sse_stream::Sse;

    use super::{BoundedEvents, checked_event, scope};
    use crate::decode::PendingMethods;
    use crate::fault::RemoteFault;

    async fn sizes(limit: usize, chunks: &[&str]) -> Vec<Result<usize, RemoteFault>> {
        let chunks: Vec<_> = chunks.iter().map(|text| Ok(Bytes::copy_from_slice(text.as_bytes()))).collect();
        let bounded =
            BoundedEvents { body: stream::iter(chunks), limit, size: 0, line: 0, has_failed: false };
        bounded.map(|bytes| bytes.map(|bytes| bytes.len())).collect().await
    }

    #[tokio::test]
    async fn an_event_has_a_limit_and_a_stream_has_none() {
        let events = "data: 12345\r\n\r\ndata: 12345\n\n";
        assert_eq!(sizes(14, &[events, events, "data: 1", "2345\n", "\n"]).await.len(), 5);
        let too_large = Err(RemoteFault::TooLarge { limit: 14 });
        assert_eq!(sizes(14, &["data: 123", "456789", "0"]).await, [Ok(9), too_large.clone()]);
        assert_eq!(sizes(14, &["data: 1\ndata: 2\ndata: 3\n"]).await, [too_large]);
    }

    #[test]
    fn an_event_of_very_many_values_is_not_decoded() {
        let checked =
            |text: String| checked_event(Sse::default().data(text), &PendingMethods::default(), 1 << 20);
        let values = "{},".repeat(100_000);
        let response = checked(format!(r#"{{"jsonrpc":"2.0","id":7,"result":[{values}0]}}"#)).unwrap();
        let error: serde_json::Value = serde_json::from_str(&response.data.unwrap()).unwrap();
        assert_eq!((&error["id"], error["error"]["code"].is_number()), (&7.into(), true), "{error}");
        let notification = format!(r#"{{"jsonrpc":"2.0","method":"a","params":[{values}0]}}"#);
        assert!(checked(notification).is_err());
        let usual = r#"{"jsonrpc":"2.0","method":"a"}"#;
        assert_eq!(checked(usual.to_owned()).unwrap().data.as_deref(), Some(usual));
    }

    #[test]
    fn the_scope_of_a_challenge_is_found() {
        assert_eq!(scope(r#"Bearer error="insufficient_scope", scope="a b", x="y""#).as_deref(), Some("a b"));
        assert_eq!(scope("Bearer"), None);
    }
}
