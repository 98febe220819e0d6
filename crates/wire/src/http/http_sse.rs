//! The HTTP+SSE transport of revision 2024-11-05, for clients that support nothing newer.
//!
//! A client opens an event stream with GET `/sse`. The first event names the path to which the client must POST its
//! messages. The client gets every response on the stream. While a client does not read its stream, its POST requests
//! wait (backpressure).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt as _, stream};
use http::{Request as HttpRequest, Response, StatusCode};
use http_body::Body as HttpBody;
use tokio::sync::mpsc;

use super::body::{Body, Event};
use super::sessions::{Peer, random_id};
use super::streamable::TOO_MANY;
use super::{Endpoint, response};
use crate::content_budget::Outgoing;
use crate::envelope::{self, Framed, Incoming, Malformed, Message};
use crate::failure::{ErrorObject, INTERNAL_ERROR};
use crate::lock::lock;
use crate::offload::off_worker;
use crate::protocol::{self, CONTENT_BUDGET_FULL};
use crate::request::McpRequest;
use crate::time_limit::within;
use crate::{Listener, Revision, ServiceView};

/// The maximum number of queued responses of a client that does not read its stream.
const MAX_QUEUED: usize = 8;

/// The clients of this transport by session id.
#[derive(Default)]
pub(super) struct HttpSse {
    open: Arc<Mutex<HashMap<String, SseClient>>>,
}

#[derive(Clone)]
struct SseClient {
    view: Arc<dyn ServiceView>,
    revision: Option<Revision>,
    answers: mpsc::Sender<Event>,
    listener: Arc<dyn Listener>,
}

impl SseClient {
    /// Returns whether the principal of this view opened the session. If the principal has renewed its token, which may
    /// have other scopes, the session uses the new identity from now on.
    fn admit(&mut self, view: &Arc<dyn ServiceView>) -> bool {
        let same = match (self.view.caller(), view.caller()) {
            (None, None) => return true,
            (Some(last), Some(now)) if last == now => return true,
            (Some(last), Some(now)) => last.is_same_principal(now),
            _ => false,
        };
        if same {
            self.listener.renew(view.caller());
            self.view = view.clone();
        }
        same
    }
}

/// Removes a client when its event stream is dropped.
struct SseRegistration {
    id: String,
    open: Arc<Mutex<HashMap<String, SseClient>>>,
}

impl Drop for SseRegistration {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.id);
    }
}

impl Endpoint {
    pub(super) fn sse_stream(&self, peer: Peer, view: Arc<dyn ServiceView>) -> Response<Body> {
        let (Some(sse), Some(id)) = (&self.http_sse, random_id()) else {
            return response::bare(StatusCode::SERVICE_UNAVAILABLE);
        };
        let client = peer.client;
        let full = || self.busy(None, "there are too many streams open; try again later");
        let Some(lease) = self.event_streams.try_take(client, 1) else { return full() };
        let Ok(listener) = view.listener(client) else { return full() };
        let authentication_ended = protocol::authentication_ended(&*view);
        let (answers, receiver) = mpsc::channel(MAX_QUEUED);
        lock(&sse.open)
            .insert(id.clone(), SseClient { view, revision: None, answers, listener: listener.clone() });
        let endpoint = Event::Endpoint(format!("/message?sessionId={id}"));
        let registration = SseRegistration { id, open: sse.open.clone() };
        let answers = stream::unfold((receiver, registration), async |(mut receiver, registration)| {
            receiver.recv().await.map(|event| (event, (receiver, registration)))
        });
        let notifications = stream::unfold(listener, async |listener| {
            Some((Event::from(protocol::notification(&listener.next().await, "")), listener))
        });
        // Only notifications: `content_lease` counts the responses against the rate limit.
        let notifications = self.metered(client, notifications.boxed());
        let closing = self.closing.clone();
        let events =
            stream::iter([endpoint]).chain(stream::select(answers, notifications)).take_until(async move {
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = authentication_ended => {}
                }
            });
        response::events(Body::events(events.boxed(), self.config.keep_alive).listening(lease))
    }

    pub(super) async fn sse_message<B>(
        &self,
        peer: Peer,
        view: Arc<dyn ServiceView>,
        request: HttpRequest<B>,
    ) -> Response<Body>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Some(sse) = &self.http_sse else { return response::bare(StatusCode::NOT_FOUND) };
        let query = request.uri().query().unwrap_or_default();
        let id = query.strip_prefix("sessionId=").unwrap_or_default().to_owned();
        let known =
            lock(&sse.open).get_mut(&id).and_then(|client| client.admit(&view).then(|| client.clone()));
        let Some(SseClient { view: _, revision, answers, listener }) = known else {
            return response::refusal(StatusCode::NOT_FOUND, "this session is unknown or has ended");
        };
        // The request counts while it waits for a queue slot, since its head, and over HTTP/2 a part of its body, is in
        // memory.
        let Some(_request_slot) = self.requests.try_take(peer.client, 1) else {
            return self.busy(None, TOO_MANY);
        };
        // The queue slot is reserved first, so that no response is computed that cannot be queued.
        let queue_slot = match within(self.protocol.limits.time, answers.reserve()).await {
            Some(Ok(queue_slot)) => queue_slot,
            Some(Err(_)) => return response::refusal(StatusCode::NOT_FOUND, "this session has ended"),
            None => return self.busy(None, "too many responses wait on the event stream; read them"),
        };
        let (head, incoming) = request.into_parts();
        let received = match self.receive_json(peer.client, &head.headers, incoming).await {
            Ok(received) => received,
            Err(refusal) => return refusal,
        };
        let parse = || envelope::parse(&received.bytes, self.protocol.limits.batch);
        let (request_id, method, params) = match off_worker(peer.client, received.bytes.len(), parse).await {
            Ok(Incoming::One(Message::Request { id, method, params })) => (id, method, params),
            Ok(Incoming::One(Message::Notification { method, .. })) => {
                if method == "notifications/initialized" {
                    protocol::follow_lists(&*listener).await;
                }
                return response::bare(StatusCode::ACCEPTED);
            }
            Ok(Incoming::One(Message::Response)) => return response::bare(StatusCode::ACCEPTED),
            Ok(Incoming::Batch(_)) => {
                return response::refusal(StatusCode::BAD_REQUEST, "this transport has no batches");
            }
            Err(Malformed { id, error }) => return response::rejected(id.as_ref(), &error),
        };
        let parsed = protocol::parse_request(&*view, &method, &params, revision);
        let event = match parsed {
            Err(error) => Event::from(Framed::error(Some(&request_id), &error)),
            Ok((revision, request)) => {
                if let McpRequest::Initialize { asked, .. } = &request
                    && let Some(client) = lock(&sse.open).get_mut(&id)
                {
                    client.revision = Some(Revision::negotiate(asked));
                }
                let call = self.call(peer, view, revision).with_listener(Some(listener));
                let framed = self.protocol.answer(&call, &request_id, &request).await;
                match self.content_lease(&call, &framed).await {
                    Some(lease) => Event::from(Outgoing { framed, lease: Some(lease) }),
                    None => {
                        let error = ErrorObject::new(INTERNAL_ERROR, CONTENT_BUDGET_FULL);
                        Event::from(Framed::error(Some(&request_id), &error))
                    }
                }
            }
        };
        queue_slot.send(event);
        response::bare(StatusCode::ACCEPTED)
    }
}
