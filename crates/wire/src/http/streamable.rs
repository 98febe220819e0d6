//! Streamable HTTP: a client sends every message in a POST to one endpoint, in both protocol eras.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Request as HttpRequest, Response, StatusCode};
use http_body::Body as HttpBody;
use libris_core::Lease;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::body::{Body, Event};
use super::headers::{Accepts, METHOD, McpHeaders, NAME, Refused, VERSION, text};
use super::session::{HttpSession, Running};
use super::sessions::Peer;
use super::{ClientCertificate, Endpoint, response};
use crate::call::{Call, Reporter};
use crate::content_budget::{ContentLease, Outgoing};
use crate::envelope::{self, Framed, Id, Incoming, Malformed, Message};
use crate::failure::{ErrorObject, INTERNAL_ERROR};
use crate::offload::off_worker;
use crate::protocol::{CONTENT_BUDGET_FULL, RequestEnvelope};
use crate::request::{ListenFilter, McpRequest};
use crate::time_limit::within;
use crate::{Caller, Channel, Era, Failure, Revision, ServiceView};

/// The error message if the limit on requests in progress is reached.
pub(super) const TOO_MANY: &str = "too many requests are in progress; try again later";

/// The limits that a request in progress counts against, until its response exists.
struct InProgress {
    _lease: Option<Lease>,
    /// For a request of a session: its registration in the session, and its in-flight permit.
    session: Option<(Running, Option<OwnedSemaphorePermit>)>,
}

impl Endpoint {
    /// Handles one message, or a batch if the session's revision has batches.
    pub(super) async fn post<B>(
        self: Arc<Self>,
        peer: Peer,
        view: Arc<dyn ServiceView>,
        request: HttpRequest<B>,
    ) -> Response<Body>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, incoming) = request.into_parts();
        let headers = &head.headers;
        let accepts = Accepts::of(headers);
        if !accepts.json && !accepts.events {
            let why = "the `Accept` header must list `application/json` and `text/event-stream`";
            return response::refusal(StatusCode::NOT_ACCEPTABLE, why);
        }
        let received = match self.receive_json(peer.client, headers, incoming).await {
            Ok(received) => received,
            Err(refusal) => return refusal,
        };
        let bytes = &received.bytes;
        let parse = || envelope::parse(bytes, self.protocol.limits.batch);
        let parsed = off_worker(peer.client, bytes.len(), parse).await;
        let (id, count) = match &parsed {
            Ok(Incoming::Batch(batch)) => (None, batch.len()),
            Ok(Incoming::One(Message::Request { id, .. })) => (Some(id), 1),
            Ok(Incoming::One(_)) | Err(_) => (None, 1),
        };
        if let Err(wait) = self.count_requests(peer.client, count) {
            return self.too_many_requests(id, wait);
        }
        match parsed {
            Err(Malformed { id, error }) => response::rejected(id.as_ref(), &error),
            Ok(Incoming::Batch(batch)) => self.batch(peer, &view, headers, &batch).await,
            Ok(Incoming::One(Message::Request { id, method, params })) => {
                let arrived = Instant::now();
                let shows_apps = params.shows_apps(&method);
                let envelope =
                    RequestEnvelope { arrived, id: &id, method: &method, params: &params, shows_apps };
                let answered = self.request(peer, view, headers, accepts, envelope).await;
                answered.unwrap_or_else(|error| response::rejected(Some(&id), &error))
            }
            Ok(Incoming::One(Message::Notification { method, params })) => {
                self.notification(peer, &view, headers, &method, &params).await
            }
            Ok(Incoming::One(Message::Response)) => match self.session(peer, &view, headers).await {
                Ok(_) => response::bare(StatusCode::ACCEPTED),
                Err(refusal) => refusal,
            },
        }
    }

    async fn request(
        self: Arc<Self>,
        peer: Peer,
        view: Arc<dyn ServiceView>,
        headers: &HeaderMap,
        accepts: Accepts,
        envelope: RequestEnvelope<'_>,
    ) -> Result<Response<Body>, ErrorObject> {
        let RequestEnvelope { id, method, params, .. } = envelope;
        let meta = params.meta()?;
        let header = text(headers, &VERSION)?;
        let modern_header =
            header.is_some_and(|date| Revision::named(date).is_some_and(|it| it.facts().era == Era::Modern));
        let token = meta.progress_token();
        if modern_header || meta.version()?.is_some() {
            let name = || params.mcp_name(method).map_or(Ok(None), |_| text(headers, &NAME));
            let mcp =
                McpHeaders { version: header, method: text(headers, &METHOD)?, name: name()?, session: None };
            let revision = match mcp.check_modern(method, params) {
                Ok(revision) => revision,
                // A modern request that lacks a required member gets status 400, although its error code is
                // `INVALID_PARAMS`.
                Err(Refused::Incomplete(error)) => {
                    return Ok(response::error(StatusCode::BAD_REQUEST, Some(id), &error));
                }
                Err(Refused::Wrong(error)) => return Err(error),
            };
            if let Some(framed) = self.protocol.cached(&*view, revision, None, envelope) {
                return Ok(self.respond(accepts, &self.call(peer, view, revision), Some(id), framed).await);
            }
            let parse = || McpRequest::parse(revision, &*view, method, params);
            let request = off_worker(peer.client, params.size(), parse).await?;
            let call = self.call(peer, view, revision).showing_apps(envelope.shows_apps);
            if let McpRequest::Listen(filter) = &request {
                return self.listen(accepts, &call, id, filter).await;
            }
            return Ok(self.answer(accepts, call, token, id, request).await);
        }
        if method == "initialize" {
            return self.initialize(peer, view, id, params).await;
        }
        let (session, view) = match self.session(peer, &view, headers).await {
            Ok(found) => found,
            Err(refusal) => return Ok(refusal),
        };
        let revision = session.revision;
        let envelope = RequestEnvelope { shows_apps: session.shows_apps, ..envelope };
        let listener = Some(&*session.notifications.listener);
        if let Some(framed) = self.protocol.cached(&*view, revision, listener, envelope) {
            return Ok(self.respond(accepts, &self.call(peer, view, revision), Some(id), framed).await);
        }
        // In a session, an invalid request gets status 200 like other errors.
        let parse = || McpRequest::parse(revision, &*view, method, params);
        let request = match off_worker(peer.client, params.size(), parse).await {
            Ok(request) => request,
            Err(error) => return Ok(response::error(StatusCode::OK, Some(id), &error)),
        };
        let call = self.call(peer, view, revision).showing_apps(session.shows_apps);
        Ok(self.answer_in_session(&session, accepts, call, token, id, request).await)
    }

    /// Admits the sender of a request and returns its view. The error is the response that refuses the request.
    pub(super) async fn admit(
        &self,
        peer: Peer,
        headers: &HeaderMap,
        extensions: &http::Extensions,
    ) -> Result<Arc<dyn ServiceView>, Response<Body>> {
        let mut credentials = headers.get_all(AUTHORIZATION).iter();
        let caller = Caller {
            client: peer.client,
            authorization: credentials.next().map(HeaderValue::as_bytes),
            certificate: extensions.get::<ClientCertificate>().map(ClientCertificate::der),
            extensions: Some(extensions),
            channel: Channel::Network,
        };
        if credentials.next().is_some() {
            let why = "the `Authorization` header is repeated";
            return Err(response::refusal(StatusCode::BAD_REQUEST, why));
        }
        match within(self.protocol.limits.time, self.protocol.admit(&caller)).await {
            Some(admitted) => admitted.map_err(|refusal| response::not_admitted(&refusal)),
            None => Err(self.busy(None, "authentication took too long; try again later")),
        }
    }

    /// A call of this peer.
    pub(super) fn call(&self, peer: Peer, view: Arc<dyn ServiceView>, revision: Revision) -> Call {
        Call::new(view, revision).with_client(peer.client, &self.content_budget)
    }

    /// Answers a request of a session, unless the client cancels it or the session ends.
    pub(super) async fn answer_in_session(
        self: Arc<Self>,
        session: &Arc<HttpSession>,
        accepts: Accepts,
        call: Call,
        token: Option<&str>,
        id: &Id,
        request: McpRequest,
    ) -> Response<Body> {
        // The limit applies to queued requests too, since their heads and bodies are in memory.
        let Ok(lease) = self.take_request_slot(&call, &request) else { return self.busy(Some(id), TOO_MANY) };
        let running = session.run(id);
        let cancelled = running.token.clone();
        let waiting = async {
            // A request that is answered without calling a source is not queued.
            if request.is_exempt() {
                return Some(None);
            }
            let _queue_slot = session.waiting.try_acquire().ok()?;
            let permit = within(self.protocol.limits.time, session.in_flight.clone().acquire_owned()).await?;
            permit.ok().map(Some)
        };
        let permit = tokio::select! {
            permit = waiting => permit,
            () = cancelled.cancelled() => return response::events(Body::empty()),
        };
        let Some(permit) = permit else {
            let why = "the session has too many requests in progress; wait for their responses";
            return self.busy(Some(id), why);
        };
        let in_progress = InProgress { _lease: lease, session: Some((running, permit)) };
        let call = call.with_listener(Some(session.notifications.listener.clone()));
        tokio::select! {
            answered = self.answer_admitted(in_progress, accepts, call, token, id, request) => answered,
            // A cancelled request has no response: the client gets an empty event stream.
            () = cancelled.cancelled() => response::events(Body::empty()),
        }
    }

    /// Answers a request, unless too many are in progress.
    pub(super) async fn answer(
        self: Arc<Self>,
        accepts: Accepts,
        call: Call,
        token: Option<&str>,
        id: &Id,
        request: McpRequest,
    ) -> Response<Body> {
        let Ok(lease) = self.take_request_slot(&call, &request) else { return self.busy(Some(id), TOO_MANY) };
        let in_progress = InProgress { _lease: lease, session: None };
        self.answer_admitted(in_progress, accepts, call, token, id, request).await
    }

    /// Answers a request that is within its limits: with JSON, or with an event stream if a progress notification comes
    /// before the response.
    async fn answer_admitted(
        self: Arc<Self>,
        in_progress: InProgress,
        accepts: Accepts,
        call: Call,
        token: Option<&str>,
        id: &Id,
        request: McpRequest,
    ) -> Response<Body> {
        let Some(token) = token.filter(|_| accepts.events) else {
            let framed = self.protocol.answer(&call, id, &request).await;
            return self.respond(accepts, &call, Some(id), framed).await;
        };
        let (sender, mut receiver) = mpsc::channel(8);
        // If the channel is full, a progress notification is dropped, never the response.
        let send = move |framed| drop(sender.try_send(framed));
        let call = call.with_reporter(Some(Reporter::new(token, send)));
        let (endpoint, asked) = (self.clone(), id.clone());
        let cancelled = in_progress.session.as_ref().map(|(running, _)| running.token.clone());
        // In a task of its own: over HTTP/2 a body is not polled while the flow-control window is closed, so the request
        // would hold its resources without reaching its time limit.
        let answer = tokio::spawn(async move {
            let framed = endpoint.protocol.answer(&call, &asked, &request).await;
            let lease = endpoint.content_lease(&call, &framed).await;
            // The request is no longer in progress; from here on the memory budget bounds the unsent response.
            drop(in_progress);
            (framed, lease)
        });
        let mut answer = AbortOnDropHandle::new(answer)
            .map(|answered| answered.unwrap_or_else(|_| (Framed::whole(""), None)));
        tokio::select! {
            biased;
            (framed, lease) = &mut answer => match lease {
                Some(lease) => self.response(accepts, framed, lease),
                None => self.busy(Some(id), CONTENT_BUDGET_FULL),
            },
            Some(first) = receiver.recv() => {
                let notifications = stream::unfold(receiver, async |mut receiver| {
                    receiver.recv().await.map(|framed| (Event::from(framed), receiver))
                });
                let id = id.clone();
                let answer = answer.map(move |(framed, lease)| match lease {
                    Some(lease) => Event::from(Outgoing { framed, lease: Some(lease) }),
                    None => Event::from(Framed::error(Some(&id), &ErrorObject::new(INTERNAL_ERROR, CONTENT_BUDGET_FULL))),
                });
                // The call owns the sender, so the progress stream ends when the call ends.
                let rest = stream::select(notifications, answer.into_stream());
                let ends = async move {
                    match cancelled {
                        Some(token) => token.cancelled().await,
                        None => std::future::pending().await,
                    }
                };
                let events = stream::iter([Event::from(first)]).chain(rest).take_until(ends);
                response::events(Body::events(events.boxed(), self.config.keep_alive))
            }
        }
    }

    /// Refuses a request with status 503, because a limit is reached or something took too long.
    pub(super) fn busy(&self, id: Option<&Id>, why: &'static str) -> Response<Body> {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let error = Failure::Busy { message: why.into() }.object(Revision::ALL[0]);
        let mut response = response::error(StatusCode::SERVICE_UNAVAILABLE, id, &error);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    /// Refuses a request with status 429 because its client sends requests too fast.
    pub(super) fn too_many_requests(&self, id: Option<&Id>, wait: Duration) -> Response<Body> {
        let error = ErrorObject {
            data: Some(json!({ "retryAfterMs": wait.as_millis() as u64 })),
            ..ErrorObject::new(INTERNAL_ERROR, "too many requests or bytes in a minute; try again later")
        };
        let mut response = response::error(StatusCode::TOO_MANY_REQUESTS, id, &error);
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds as u64));
        response
    }

    /// Refuses a request because the budget of HTTP/2 streams or of event streams is used up. The response has no body:
    /// a body that the client does not read would take memory that no budget counts.
    pub(super) fn no_stream_slot(&self) -> Response<Body> {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut response = response::bare(StatusCode::SERVICE_UNAVAILABLE);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    /// Takes a unit of the request budget, unless the request is exempt. Fails if the budget is used up.
    pub(super) fn take_request_slot(&self, call: &Call, request: &McpRequest) -> Result<Option<Lease>, ()> {
        if request.is_exempt() {
            return Ok(None);
        }
        self.requests.try_take(call.client, 1).map(Some).ok_or(())
    }

    /// Opens the event stream of a `subscriptions/listen` request.
    async fn listen(
        &self,
        accepts: Accepts,
        call: &Call,
        id: &Id,
        filter: &ListenFilter,
    ) -> Result<Response<Body>, ErrorObject> {
        if !accepts.events {
            let why = "the `Accept` header must list `text/event-stream`";
            return Ok(response::refusal(StatusCode::NOT_ACCEPTABLE, why));
        }
        let (Some(lease), Ok(_admitted)) =
            (self.event_streams.try_take(call.client, 1), self.requests.try_take(call.client, 1).ok_or(()))
        else {
            return Ok(self.busy(Some(id), "there are too many streams open; try again later"));
        };
        let opening = self.protocol.listen(call, id, filter, self.closing.clone());
        let Some(opened) = within(self.protocol.limits.time, opening).await else {
            return Ok(self.busy(Some(id), "opening the stream took too long; try again later"));
        };
        let stream = match opened {
            Ok(stream) => stream,
            Err(error) => {
                return Ok(self.with_scope_challenge(
                    response::error(StatusCode::OK, Some(id), &error),
                    error.required_scopes.as_deref(),
                ));
            }
        };
        let events = self.metered(call.client, stream.map(Event::from).boxed());
        Ok(response::events(Body::events(events, self.config.keep_alive).listening(lease)))
    }

    /// The HTTP response for a message; 503 if memory for it is short.
    pub(super) async fn respond(
        &self,
        accepts: Accepts,
        call: &Call,
        id: Option<&Id>,
        framed: Framed,
    ) -> Response<Body> {
        match self.content_lease(call, &framed).await {
            Some(lease) => self.response(accepts, framed, lease),
            None => self.busy(id, CONTENT_BUDGET_FULL),
        }
    }

    fn response(&self, accepts: Accepts, framed: Framed, lease: ContentLease) -> Response<Body> {
        let required_scopes = framed.required_scopes.clone();
        if accepts.json || required_scopes.is_some() {
            let response = response::json(StatusCode::OK, framed).map(|body| body.holding(Some(lease)));
            return self.with_scope_challenge(response, required_scopes.as_deref());
        }
        let events = stream::iter([Event::from(Outgoing { framed, lease: Some(lease) })]);
        response::events(Body::events(events.boxed(), self.config.keep_alive))
    }

    /// If the request requires scopes that the caller's token lacks, makes the response a challenge with status 403.
    fn with_scope_challenge(
        &self,
        mut response: Response<Body>,
        scopes: Option<&[Box<str>]>,
    ) -> Response<Body> {
        if let Some(challenge) = scopes.and_then(|scopes| self.protocol.scope_challenge(scopes)) {
            response::challenge(&mut response, StatusCode::FORBIDDEN, &challenge);
        }
        response
    }

    /// Counts a response against the rate limit of its client, and returns its memory reservation: the reservation that
    /// the call made, resized, or a new one. `None` if memory is short.
    pub(super) async fn content_lease(&self, call: &Call, framed: &Framed) -> Option<ContentLease> {
        self.count_bytes(call.client, framed.size());
        match &call.memory {
            Some(memory) => memory.lease_for(framed).await,
            None => self.content_budget.take(call.client, framed.size()).await,
        }
    }
}
