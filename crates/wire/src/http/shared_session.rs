//! Sessions that replicas share through a store: a replica restores a session that another replica opened.

use std::sync::{Arc, Weak};
use std::time::Duration;

use libris_core::{Authentication, Identity};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::session::HttpSession;
use super::session_store::{SavedSession, SessionEvent, SessionStore, StoreUnavailable};
use super::sessions::Peer;
use super::{Endpoint, notification_log};
use crate::{Era, Notification, Revision, ServiceView};

/// How often a replica records in the store which sessions are in use. Must be shorter than
/// [`RESEND_PERIOD`](notification_log::RESEND_PERIOD), with which [`Endpoint::restore`] compares the time since the last
/// record.
const TOUCH_INTERVAL: Duration = Duration::from_secs(20);

/// The length of a session id. Ids of another length are not looked up in the store.
const ID_LENGTH: usize = 32;

/// The entry of a session in the store.
#[derive(Clone)]
pub(super) struct SharedSession {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) id: Arc<str>,
    /// Whether this replica opened the session.
    pub(super) is_opened_here: bool,
}

/// Why a session is not restored.
pub(super) enum NotRestored {
    /// There is no such session, or it belongs to another caller.
    Unknown,
    /// The store cannot be reached, so the session may exist.
    Unavailable,
    /// There are too many sessions in use, or the client has too many listeners.
    Full,
}

impl From<StoreUnavailable> for NotRestored {
    fn from(_: StoreUnavailable) -> Self {
        Self::Unavailable
    }
}

/// A string that is equal for two identities exactly if they are the same principal.
pub(super) fn principal(identity: &Identity) -> String {
    let authentication = match identity.authentication() {
        Authentication::Program => json!(["program"]),
        Authentication::LocalUser => json!(["local user"]),
        Authentication::Token { issuer } => json!(["token", **issuer]),
        Authentication::ApiKey { id } => json!(["key", **id]),
        Authentication::Certificate => json!(["certificate"]),
    };
    json!([authentication, identity.name()]).to_string()
}

impl Endpoint {
    /// The entry of a new session in the store; `None` if there is no store.
    pub(super) fn shared_session(&self, id: &Arc<str>) -> Option<SharedSession> {
        let store = self.store.clone()?;
        Some(SharedSession { store, id: id.clone(), is_opened_here: true })
    }

    /// Saves a new session. Called before the client gets its id, which the client may send to another replica.
    pub(super) async fn save(&self, id: &str, session: &HttpSession) {
        if let Some(store) = &self.store
            && store.save(id, session.saved(), self.config.idle).await.is_err()
        {
            tracing::debug!("a session is not saved yet, because the store cannot be reached");
        }
    }

    /// Restores a session that another replica opened.
    pub(super) async fn restore(
        &self,
        peer: Peer,
        view: &Arc<dyn ServiceView>,
        id: &str,
    ) -> Result<Arc<HttpSession>, NotRestored> {
        let Some(store) = &self.store else { return Err(NotRestored::Unknown) };
        if id.len() != ID_LENGTH || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotRestored::Unknown);
        }
        let saved = store.load(id).await?.ok_or(NotRestored::Unknown)?;
        if saved.principal != view.caller().map(principal) {
            return Err(NotRestored::Unknown);
        }
        let revision =
            Revision::named(&saved.revision).filter(|revision| revision.facts().era == Era::Legacy);
        let revision = revision.ok_or(NotRestored::Unknown)?;
        let listener = view.listener(peer.client).map_err(|_| NotRestored::Full)?;
        let id: Arc<str> = id.into();
        let shared = SharedSession { store: store.clone(), id: id.clone(), is_opened_here: false };
        let in_flight = self.protocol.limits.in_flight;
        let session = HttpSession::new(view.clone(), revision, in_flight, listener, Some(shared))
            .showing_apps(saved.shows_apps);
        // Changes within `RESEND_PERIOD` before now are reported to every new subscriber. If the session may have been
        // without a replica for longer, its client may have missed changes, and is notified of all resources that it
        // subscribed to. A replica may have stopped just before its next touch, up to `TOUCH_INTERVAL` after the last
        // one.
        let untouched = self.config.idle.saturating_sub(saved.left);
        let missed = untouched + TOUCH_INTERVAL >= notification_log::RESEND_PERIOD;
        subscribe_all(&session, &saved, missed).await;
        session.notifications.listener.listed();
        session.notifications.listener.requeue(Notification::ListChanged);
        let session = self.sessions.open(&id, session, peer).ok_or(NotRestored::Full)?;
        // The session is loaded again for subscriptions that the client made at other replicas after the first load and
        // before the session was open here.
        if let Some(again) = store.load(&id).await? {
            subscribe_all(&session, &again, false).await;
        }
        tracing::info!("restored a session of another replica");
        Ok(session)
    }

    /// Applies an event of the store.
    async fn apply(&self, store: &Arc<dyn SessionStore>, event: SessionEvent) {
        match event {
            SessionEvent::Subscribed { id, uri } => {
                if let Some(session) = self.sessions.peek(&id)
                    && session.notifications.subscribe_locally(&uri).await.is_err()
                {
                    tracing::debug!("a subscription made at another replica failed at this one");
                }
            }
            SessionEvent::Unsubscribed { id, uri } => {
                if let Some(session) = self.sessions.peek(&id) {
                    session.notifications.unsubscribe_locally(&uri);
                }
            }
            SessionEvent::Ended { id } => {
                // This replica may have saved the session again after the other one removed it.
                if self.sessions.close(&id) {
                    store.end(&id);
                }
            }
            SessionEvent::SaveAgain => {
                for (id, session) in self.sessions.all() {
                    // The session may have ended while the sessions before it were saved.
                    if self.sessions.peek(&id).is_none() {
                        continue;
                    }
                    if store.save(&id, session.saved(), self.config.idle).await.is_err() {
                        // The store sends `SaveAgain` once more when it can be reached again.
                        return;
                    }
                }
            }
        }
    }
}

/// Subscribes to the saved subscriptions of a session. With `missed`, the client is also notified of a change to each
/// of the resources.
async fn subscribe_all(session: &HttpSession, saved: &SavedSession, missed: bool) {
    for uri in &saved.subscriptions {
        // An error is ignored: the resource no longer exists, or the caller may no longer read it.
        if session.notifications.subscribe_locally(uri).await.is_ok() && missed {
            session.notifications.listener.requeue(Notification::Updated(uri.as_str().into()));
        }
    }
}

/// Applies the events of the store, and records which sessions are in use, until the endpoint is dropped.
pub(super) async fn run(endpoint: Weak<Endpoint>, store: Arc<dyn SessionStore>) {
    let mut touches = interval(TOUCH_INTERVAL);
    touches.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = store.next() => {
                let Some(endpoint) = endpoint.upgrade() else { return };
                endpoint.apply(&store, event).await;
            }
            _ = touches.tick() => {
                let Some(endpoint) = endpoint.upgrade() else { return };
                let used = endpoint.sessions.used_within(TOUCH_INTERVAL * 2);
                if !used.is_empty() {
                    store.touch(used, endpoint.config.idle);
                }
            }
        }
    }
}
