//! Streamable HTTP for legacy clients: sessions, notifications, batches and the event streams of sessions.

use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::header::{HeaderMap, HeaderValue};
use http::{Response, StatusCode};

use super::body::Body;
use super::headers::{Accepts, LAST_EVENT, McpHeaders, SESSION, VERSION, text};
use super::session::HttpSession;
use super::sessions::{Peer, random_id};
use super::shared_session::NotRestored;
use super::streamable::TOO_MANY;
use super::{Endpoint, response};
use crate::envelope::Id;
use crate::failure::ErrorObject;
use crate::protocol;
use crate::request::{McpRequest, Params};
use crate::time_limit::within;
use crate::{Era, Revision, ServiceView};

/// The error message if there are too many sessions.
const FULL: &str = "there are too many sessions in use; try again later";

impl Endpoint {
    /// Opens a session.
    pub(super) async fn initialize(
        self: Arc<Self>,
        peer: Peer,
        view: Arc<dyn ServiceView>,
        id: &Id,
        params: &Params<'_>,
    ) -> Result<Response<Body>, ErrorObject> {
        let request = McpRequest::parse(Revision::negotiate(""), &*view, "initialize", params)?;
        let McpRequest::Initialize { asked, shows_apps, .. } = &request else {
            return Err(ErrorObject::method_not_found("initialize"));
        };
        let revision = Revision::negotiate(asked);
        let listener = view.listener(peer.client).map_err(|failure| failure.object(revision))?;
        let full = || self.busy(Some(id), FULL);
        let Some(session_id) = random_id().map(Arc::<str>::from) else { return Ok(full()) };
        let (in_flight, shared) = (self.protocol.limits.in_flight, self.shared_session(&session_id));
        let session =
            HttpSession::new(view.clone(), revision, in_flight, listener, shared).showing_apps(*shows_apps);
        let Some(session) = self.sessions.open(&session_id, session, peer) else { return Ok(full()) };
        self.save(&session_id, &session).await;
        let framed = self.protocol.answer(&self.call(peer, view, revision), id, &request).await;
        let mut response = response::json(StatusCode::OK, framed);
        if let Ok(session) = HeaderValue::from_str(&session_id) {
            response.headers_mut().insert(SESSION, session);
        }
        Ok(response)
    }

    /// Handles a notification, which has no response message.
    pub(super) async fn notification(
        &self,
        peer: Peer,
        view: &Arc<dyn ServiceView>,
        headers: &HeaderMap,
        method: &str,
        params: &Params<'_>,
    ) -> Response<Body> {
        // Modern clients send no notifications over HTTP and have no session.
        if headers.contains_key(SESSION) {
            let (session, _) = match self.session(peer, view, headers).await {
                Ok(found) => found,
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

    /// Answers a batch, if the session's revision has batches.
    pub(super) async fn batch(
        self: Arc<Self>,
        peer: Peer,
        view: &Arc<dyn ServiceView>,
        headers: &HeaderMap,
        batch: &[&str],
    ) -> Response<Body> {
        let (session, view) = match self.session(peer, view, headers).await {
            Ok(found) => found,
            Err(refusal) => return refusal,
        };
        if !session.revision.facts().batches {
            let why = "this protocol version has no batches";
            return response::refusal(StatusCode::BAD_REQUEST, why);
        }
        let call = self.call(peer, view, session.revision).showing_apps(session.shows_apps);
        let call = call.with_listener(Some(session.notifications.listener.clone()));
        let most = self.protocol.limits.batch;
        if batch.len() > most {
            let why = format!("a batch may have {most} messages at most");
            return response::refusal(StatusCode::BAD_REQUEST, why);
        }
        let Some(_request_slot) = self.requests.try_take(peer.client, 1) else {
            return self.busy(None, TOO_MANY);
        };
        let _running = session.run_batch();
        let answering = async {
            let Ok(_queue_slot) = session.waiting.try_acquire() else { return self.busy(None, TOO_MANY) };
            let permit = within(self.protocol.limits.time, session.in_flight.acquire()).await;
            let Some(Ok(_permit)) = permit else { return self.busy(None, TOO_MANY) };
            match self.protocol.batch(Some(&call), batch).await {
                Some(framed) => self.respond(Accepts::of(headers), &call, None, framed).await,
                None => response::bare(StatusCode::ACCEPTED),
            }
        };
        tokio::select! {
            answered = answering => answered,
            // An empty event stream, as for every request that is in progress when its session ends.
            () = session.ended.cancelled() => response::events(Body::empty()),
        }
    }

    /// Opens the event stream for the notifications of a session.
    pub(super) async fn get(
        &self,
        peer: Peer,
        view: &Arc<dyn ServiceView>,
        headers: &HeaderMap,
    ) -> Response<Body> {
        if !headers.contains_key(SESSION) {
            return response::not_allowed("POST");
        }
        if !Accepts::of(headers).events {
            let why = "the `Accept` header must list `text/event-stream`";
            return response::refusal(StatusCode::NOT_ACCEPTABLE, why);
        }
        let (session, view) = match self.session(peer, view, headers).await {
            Ok(found) => found,
            Err(refusal) => return refusal,
        };
        let Some(lease) = self.event_streams.try_take(peer.client, 1) else {
            return self.busy(None, "there are too many streams open; try again later");
        };
        let closing = self.closing.clone();
        let seen = text(headers, &LAST_EVENT).ok().flatten().and_then(|id| id.parse().ok());
        let notifications = session.notifications.open(seen);
        let listener = session.notifications.listener.clone();
        // The response is sent at once. The stream then subscribes to changes of the lists, which may take longer.
        let begun = async move {
            protocol::follow_lists(&*listener).await;
            None
        };
        let authentication_ended = protocol::authentication_ended(&*view);
        let ends = async move {
            tokio::select! {
                () = closing.cancelled() => {}
                () = session.ended.cancelled() => {}
                () = authentication_ended => {}
            }
        };
        let begun = begun.into_stream().filter_map(std::future::ready);
        let events = stream::select(begun, notifications).take_until(ends);
        let events = self.metered(peer.client, events.boxed());
        response::events(Body::events(events, self.config.keep_alive).listening(lease))
    }

    /// Ends a session.
    pub(super) async fn delete(
        &self,
        peer: Peer,
        view: &Arc<dyn ServiceView>,
        headers: &HeaderMap,
    ) -> Response<Body> {
        let Some(id) = headers.get(SESSION) else { return response::not_allowed("POST") };
        match self.session(peer, view, headers).await {
            Ok(_) => {
                let id = id.to_str().unwrap_or_default();
                self.sessions.close(id);
                self.store.iter().for_each(|store| store.end(id));
                response::bare(StatusCode::NO_CONTENT)
            }
            Err(refusal) => refusal,
        }
    }

    /// The session that the headers name, and the view for this caller in it. `None` if this replica does not have the
    /// session, if it belongs to another caller, or if the version header names something other than a legacy revision.
    pub(super) fn find_session(
        &self,
        view: &Arc<dyn ServiceView>,
        mcp: &McpHeaders<'_>,
    ) -> Option<SessionView> {
        if mcp
            .version
            .is_some_and(|date| Revision::named(date).is_none_or(|it| it.facts().era == Era::Modern))
        {
            return None;
        }
        self.sessions.find(mcp.session?).and_then(|session| with_view(session, view))
    }

    /// The session that the headers name and the view for this caller in it, or the response that refuses the request.
    /// A session of another caller is refused as unknown. A session that another replica opened is restored.
    pub(super) async fn session(
        &self,
        peer: Peer,
        view: &Arc<dyn ServiceView>,
        headers: &HeaderMap,
    ) -> Result<SessionView, Response<Body>> {
        let Some(id) = headers.get(SESSION) else {
            let why = "the `Mcp-Session-Id` header is missing; send `initialize` first, \
                       or name a protocol version in `_meta`";
            return Err(response::refusal(StatusCode::BAD_REQUEST, why));
        };
        let id = id.to_str().unwrap_or_default();
        let session = match self.sessions.find(id) {
            Some(session) => session,
            None => match self.restore(peer, view, id).await {
                Ok(session) => session,
                Err(NotRestored::Unknown) => return Err(unknown_session()),
                Err(NotRestored::Full) => return Err(self.busy(None, FULL)),
                Err(NotRestored::Unavailable) => {
                    let why = "the session may be one of another replica, and the session store cannot be reached; \
                               try again later";
                    return Err(self.busy(None, why));
                }
            },
        };
        let session = with_view(session, view).ok_or_else(unknown_session)?;
        match text(headers, &VERSION) {
            Ok(Some(date)) if Revision::named(date).is_none() => {
                Err(response::rejected(None, &ErrorObject::unsupported_version(date)))
            }
            Ok(_) => Ok(session),
            Err(error) => Err(response::rejected(None, &error)),
        }
    }
}

/// A session, and the view that answers a request in it.
pub(super) type SessionView = (Arc<HttpSession>, Arc<dyn ServiceView>);

fn with_view(session: Arc<HttpSession>, caller: &Arc<dyn ServiceView>) -> Option<SessionView> {
    let view = session.view_of(caller)?;
    Some((session, view))
}

fn unknown_session() -> Response<Body> {
    response::refusal(
        StatusCode::NOT_FOUND,
        "unknown or expired session; send `initialize` to open a new one",
    )
}
