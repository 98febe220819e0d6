//! Streamable HTTP: every message a POST to one endpoint, for both eras.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts as Head;
use http::{Request as HttpRequest, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::body::{Body, Event};
use super::gather::MOST;
use super::headers::{LAST_EVENT, METHOD, NAME, Refused, SESSION, Said, Takes, VERSION, text};
use super::session::Session;
use super::{Endpoint, response};
use crate::call::{Call, Reporter};
use crate::envelope::{self, Framed, Id, Incoming, Malformed, Message};
use crate::failure::{ErrorObject, INTERNAL_ERROR};
use crate::patience::within;
use crate::protocol;
use crate::request::{Filter, Params, Request};
use crate::{Era, Revision};

/// How much of a body that is too large is read and dropped. Many clients look for an answer only once
/// they have sent everything, and take a connection that is closed before for a failure.
const DRAINED: usize = 64 << 20;

/// Answers of up to this many KiB are sent however many wait: hyper and the system keep as much.
const SMALL: usize = 64;

/// How long a large answer waits for room.
const WAIT: Duration = Duration::from_secs(5);

/// How long a client may take to send the body of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads the body of a request, which must be JSON and within the limit.
pub(super) async fn body<B>(headers: &HeaderMap, body: B, limit: usize) -> Result<Bytes, Response<Body>>
where
    B: HttpBody + Send,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let why = "the `Content-Type` must be `application/json`";
        return Err(response::refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let mut body = pin!(body);
    let collecting = async {
        // Most come in one piece, which needs no copy.
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        let mut size = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Err(response::refusal(StatusCode::BAD_REQUEST, "the body ended early"));
            };
            let Ok(mut data) = frame.into_data() else { continue };
            let piece = data.remaining();
            size += piece;
            if size > limit + DRAINED {
                break;
            }
            if size > limit {
                (first, rest) = (Bytes::new(), BytesMut::new());
            } else if size == piece {
                first = data.copy_to_bytes(piece);
            } else {
                if rest.is_empty() {
                    rest.put(std::mem::take(&mut first));
                }
                rest.put(data);
            }
        }
        if size > limit {
            let why = format!("a message may have {limit} bytes at most");
            return Err(response::refusal(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    };
    let late = || response::refusal(StatusCode::REQUEST_TIMEOUT, "the body took too long");
    within(PATIENCE, collecting).await.unwrap_or_else(|| Err(late()))
}

impl Endpoint {
    /// Takes one message, or a batch where the session's revision has them.
    pub(super) async fn post<B>(self: Arc<Self>, request: HttpRequest<B>) -> Response<Body>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, incoming) = request.into_parts();
        let headers = &head.headers;
        let takes = Takes::of(headers);
        if !takes.json && !takes.events {
            let why = "the `Accept` header must list `application/json` and `text/event-stream`";
            return response::refusal(StatusCode::NOT_ACCEPTABLE, why);
        }
        let bytes = match body(headers, incoming, self.protocol.limits.message).await {
            Ok(bytes) => bytes,
            Err(refusal) => return refusal,
        };
        match envelope::parse(&bytes) {
            Err(Malformed { id, error }) => response::rejected(id.as_ref(), &error),
            Ok(Incoming::Batch(batch)) => self.batch(&head, &batch).await,
            Ok(Incoming::One(Message::Request { id, method, params })) => {
                let answered = self.request(&head, takes, &id, &method, &params).await;
                answered.unwrap_or_else(|error| response::rejected(Some(&id), &error))
            }
            Ok(Incoming::One(Message::Notification { method, params })) => {
                self.notification(headers, &method, &params)
            }
            Ok(Incoming::One(Message::Response)) => match self.session(headers) {
                Ok(_) => response::bare(StatusCode::ACCEPTED),
                Err(refusal) => refusal,
            },
        }
    }

    async fn request(
        self: Arc<Self>,
        head: &Head,
        takes: Takes,
        id: &Id,
        method: &str,
        params: &Params<'_>,
    ) -> Result<Response<Body>, ErrorObject> {
        let headers = &head.headers;
        let meta = params.meta()?;
        let header = text(headers, &VERSION)?;
        let modern_header =
            header.is_some_and(|date| Revision::named(date).is_some_and(|it| it.facts().era == Era::Modern));
        let token = meta.progress_token();
        if modern_header || meta.version()?.is_some() {
            let name = || params.subject(method).map_or(Ok(None), |_| text(headers, &NAME));
            let said =
                Said { version: header, method: text(headers, &METHOD)?, name: name()?, session: None };
            let revision = match said.modern(method, params) {
                Ok(revision) => revision,
                // What a modern request must carry and does not is a bad request, whatever the code.
                Err(Refused::Incomplete(error)) => {
                    return Ok(response::error(StatusCode::BAD_REQUEST, Some(id), &error));
                }
                Err(Refused::Wrong(error)) => return Err(error),
            };
            if let Some(framed) = self.protocol.kept(revision, None, Instant::now(), id, method, params) {
                return Ok(self.framed(takes, Some(id), framed).await);
            }
            let request = Request::parse(revision, method, params)?;
            if let Request::Listen(filter) = &request {
                return self.listen(takes, revision, id, filter).await;
            }
            let call = Call::new(revision).with(&head.extensions);
            return Ok(self.answer(takes, call, token, id, request).await);
        }
        if method == "initialize" {
            return self.initialize(id, params).await;
        }
        let session = match self.session(headers) {
            Ok(session) => session,
            Err(refusal) => return Ok(refusal),
        };
        let (listener, now) = (&*session.news.listener, Instant::now());
        if let Some(framed) = self.protocol.kept(session.revision, Some(listener), now, id, method, params) {
            return Ok(self.framed(takes, Some(id), framed).await);
        }
        // In a session a request that makes no sense is answered like any other.
        let request = match Request::parse(session.revision, method, params) {
            Ok(request) => request,
            Err(error) => return Ok(response::error(StatusCode::OK, Some(id), &error)),
        };
        let call = Call::new(session.revision).with(&head.extensions);
        Ok(self.in_session(&session, takes, call, token, id, request).await)
    }

    /// Answers in a session, unless the client takes the request back or the session ends.
    pub(super) async fn in_session(
        self: Arc<Self>,
        session: &Arc<Session>,
        takes: Takes,
        call: Call,
        token: Option<&str>,
        id: &Id,
        request: Request,
    ) -> Response<Body> {
        let running = session.run(id);
        let Ok(_permit) = session.in_flight.acquire().await else {
            return response::bare(StatusCode::ACCEPTED);
        };
        let call = call.of(Some(session.news.listener.clone()));
        tokio::select! {
            answered = self.answer(takes, call, token, id, request) => answered,
            // Nobody waits for the answer to a cancelled request; its stream just ends.
            () = running.token.cancelled() => response::events(Body::empty()),
        }
    }

    /// Answers with JSON, or with a stream of events once there is progress to tell.
    pub(super) async fn answer(
        self: Arc<Self>,
        takes: Takes,
        call: Call,
        token: Option<&str>,
        id: &Id,
        request: Request,
    ) -> Response<Body> {
        let Ok(turn) = self.turns.clone().acquire_owned().await else {
            return response::bare(StatusCode::ACCEPTED);
        };
        let Some(token) = token.filter(|_| takes.events) else {
            let framed = self.protocol.answer(&call, id, &request).await;
            return self.framed(takes, Some(id), framed).await;
        };
        let (sender, mut receiver) = mpsc::channel(8);
        let call = call.reporting(Some(Reporter::new(token, sender)));
        let endpoint = self.clone();
        let (asked, id) = (id.clone(), id.clone());
        let mut answer = Box::pin(async move { endpoint.protocol.answer(&call, &id, &request).await });
        tokio::select! {
            biased;
            framed = &mut answer => self.framed(takes, Some(&asked), framed).await,
            Some(first) = receiver.recv() => {
                let progress = stream::unfold(receiver, async |mut receiver| {
                    receiver.recv().await.map(|framed| (framed, receiver))
                });
                // The call holds the sender, so progress ends when the answer is there.
                let rest = stream::select(progress, answer.into_stream());
                let events = stream::iter([first]).chain(rest).map(move |framed| {
                    let _held = &turn;
                    Event::from(framed)
                });
                response::events(Body::events(events.boxed(), self.config.keep_alive))
            }
        }
    }

    /// Opens the stream of a client that listens.
    async fn listen(
        &self,
        takes: Takes,
        revision: Revision,
        id: &Id,
        filter: &Filter,
    ) -> Result<Response<Body>, ErrorObject> {
        if !takes.events {
            let why = "the `Accept` header must list `text/event-stream`";
            return Ok(response::refusal(StatusCode::NOT_ACCEPTABLE, why));
        }
        let Ok(permit) = self.listens.clone().try_acquire_owned() else {
            let why = "there are too many streams open; try again later";
            return Ok(response::refusal(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let opened = self.protocol.listen(revision, id, filter, self.closing.clone()).await;
        let stream = match opened {
            Ok(stream) => stream,
            Err(error) => return Ok(response::error(StatusCode::OK, Some(id), &error)),
        };
        let events = stream.map(move |framed| {
            let _held = &permit;
            Event::from(framed)
        });
        Ok(response::events(Body::events(events.boxed(), self.config.keep_alive)))
    }

    /// An answer as a response, if there is room for it.
    pub(super) async fn framed(&self, takes: Takes, id: Option<&Id>, framed: Framed) -> Response<Body> {
        // What is being sent of something that is encoded meanwhile stands in memory twice.
        let twice = if framed.encoded().is_none() { framed.size().min(MOST) } else { 0 };
        let room = match self.room(framed.size() + twice).await {
            Ok(room) => room,
            Err(error) => return response::error(StatusCode::SERVICE_UNAVAILABLE, id, &error),
        };
        let response = if takes.json {
            response::json(StatusCode::OK, framed)
        } else {
            let events = stream::iter([Event::from(framed)]);
            response::events(Body::events(events.boxed(), self.config.keep_alive))
        };
        response.map(|body| body.holding(room))
    }

    /// Room for an answer of this many bytes; small ones need none.
    async fn room(&self, size: usize) -> Result<Option<OwnedSemaphorePermit>, ErrorObject> {
        let size = size.min(self.config.unsent) >> 10;
        if size <= SMALL {
            return Ok(None);
        }
        let acquired = self.room.clone().acquire_many_owned(u32::try_from(size).unwrap_or(u32::MAX));
        match within(WAIT, acquired).await {
            Some(Ok(room)) => Ok(Some(room)),
            _ => {
                let why = "too many answers wait for their clients to take them; try again later";
                Err(ErrorObject::new(INTERNAL_ERROR, why))
            }
        }
    }

    async fn initialize(
        self: Arc<Self>,
        id: &Id,
        params: &Params<'_>,
    ) -> Result<Response<Body>, ErrorObject> {
        let request = Request::parse(Revision::negotiate(""), "initialize", params)?;
        let Request::Initialize { asked } = &request else {
            return Err(ErrorObject::method_not_found("initialize"));
        };
        let revision = Revision::negotiate(asked);
        let listener = self.protocol.listener().map_err(|failure| failure.object(revision))?;
        let session = Session::new(revision, self.protocol.limits.in_flight, listener);
        let Some(session) = self.sessions.open(session) else {
            let why = "there are too many sessions; try again later";
            return Ok(response::refusal(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let framed = self.protocol.answer(&Call::new(revision), id, &request).await;
        let mut response = response::json(StatusCode::OK, framed);
        if let Ok(session) = HeaderValue::from_str(&session) {
            response.headers_mut().insert(SESSION, session);
        }
        Ok(response)
    }

    fn notification(&self, headers: &HeaderMap, method: &str, params: &Params<'_>) -> Response<Body> {
        // Modern clients have no notifications to send over HTTP and no session to send them in.
        if headers.contains_key(SESSION) {
            let session = match self.session(headers) {
                Ok(session) => session,
                Err(refusal) => return refusal,
            };
            if method == "notifications/cancelled"
                && let Some(id) = params.request_id.and_then(Id::parse)
            {
                session.cancel(&id);
            }
        }
        response::bare(StatusCode::ACCEPTED)
    }

    async fn batch(self: Arc<Self>, head: &Head, batch: &[&str]) -> Response<Body> {
        let headers = &head.headers;
        let session = match self.session(headers) {
            Ok(session) => session,
            Err(refusal) => return refusal,
        };
        if !session.revision.facts().batches {
            let why = "this protocol version has no batches";
            return response::refusal(StatusCode::BAD_REQUEST, why);
        }
        let call = Call::new(session.revision).with(&head.extensions).of(Some(session.news.listener.clone()));
        let items: Vec<Box<str>> = batch.iter().map(|&item| item.into()).collect();
        let (Ok(_permit), Ok(_turn)) = (session.in_flight.acquire().await, self.turns.acquire().await) else {
            return response::bare(StatusCode::ACCEPTED);
        };
        match self.protocol.batch(Some(&call), &items).await {
            Some(framed) => self.framed(Takes::of(headers), None, framed).await,
            None => response::bare(StatusCode::ACCEPTED),
        }
    }

    /// Opens the stream on which a session hears of what it did not ask for.
    pub(super) fn get<B>(&self, request: &HttpRequest<B>) -> Response<Body> {
        let headers = request.headers();
        if !headers.contains_key(SESSION) {
            return response::not_allowed("POST");
        }
        if !Takes::of(headers).events {
            let why = "the `Accept` header must list `text/event-stream`";
            return response::refusal(StatusCode::NOT_ACCEPTABLE, why);
        }
        let session = match self.session(headers) {
            Ok(session) => session,
            Err(refusal) => return refusal,
        };
        let closing = self.closing.clone();
        let seen = text(headers, &LAST_EVENT).ok().flatten().and_then(|id| id.parse().ok());
        let news = session.news.open(seen);
        let listener = session.news.listener.clone();
        // The stream opens at once; what it takes to watch may take longer.
        let begun = async move {
            protocol::follow(&*listener).await;
            None
        };
        let ends = async move {
            tokio::select! {
                () = closing.cancelled() => {}
                () = session.ended.cancelled() => {}
            }
        };
        let begun = begun.into_stream().filter_map(std::future::ready);
        let events = stream::select(begun, news).take_until(ends);
        response::events(Body::events(events.boxed(), self.config.keep_alive))
    }

    /// Ends a session.
    pub(super) fn delete<B>(&self, request: &HttpRequest<B>) -> Response<Body> {
        let Some(id) = request.headers().get(SESSION) else { return response::not_allowed("POST") };
        match self.session(request.headers()) {
            Ok(_) => {
                self.sessions.close(id.to_str().unwrap_or_default());
                response::bare(StatusCode::NO_CONTENT)
            }
            Err(refusal) => refusal,
        }
    }

    /// The session that a request says it belongs to, if there is nothing to say against it.
    pub(super) fn find_session(&self, said: &Said<'_>) -> Option<Arc<Session>> {
        if said
            .version
            .is_some_and(|date| Revision::named(date).is_none_or(|it| it.facts().era == Era::Modern))
        {
            return None;
        }
        self.sessions.find(said.session?)
    }

    fn session(&self, headers: &HeaderMap) -> Result<Arc<Session>, Response<Body>> {
        let Some(id) = headers.get(SESSION) else {
            let why = "the `Mcp-Session-Id` header is missing; send `initialize` first, \
                       or name a protocol version in `_meta`";
            return Err(response::refusal(StatusCode::BAD_REQUEST, why));
        };
        let session = self.sessions.find(id.to_str().unwrap_or_default()).ok_or_else(unknown_session)?;
        match text(headers, &VERSION) {
            Ok(Some(date)) if Revision::named(date).is_none() => {
                Err(response::rejected(None, &ErrorObject::unsupported_version(date)))
            }
            Ok(_) => Ok(session),
            Err(error) => Err(response::rejected(None, &error)),
        }
    }
}

fn unknown_session() -> Response<Body> {
    response::refusal(StatusCode::NOT_FOUND, "this session has ended or never was; send `initialize`")
}
