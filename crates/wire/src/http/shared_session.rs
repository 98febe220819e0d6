//! Sessions that replicas share: a replica restores a session that another one opened from the store.

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

/// How often a replica records in the store which sessions are in use. Shorter than the minute for which replicas
/// remember changes.
const TOUCH_INTERVAL: Duration = Duration::from_secs(20);

/// The length of a session id. Strings of another length are not looked up in the store.
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
        // If no replica may have served the session for a minute or more, its client may have missed changes. Changes
        // of the last minute are remembered, and reported to every new subscriber.
        let untouched = self.config.idle.saturating_sub(saved.left);
        let missed = untouched + TOUCH_INTERVAL >= notification_log::RESEND_PERIOD;
        join_all(&session, &saved, missed).await;
        session.notifications.listener.listed();
        session.notifications.listener.requeue(Notification::ListChanged);
        let session = self.sessions.open(&id, session, peer).ok_or(NotRestored::Full)?;
        // Subscriptions that the client made at other replicas after the session was loaded, before it was open here.
        if let Some(again) = store.load(&id).await? {
            join_all(&session, &again, false).await;
        }
        tracing::info!("restored a session of another replica");
        Ok(session)
    }

    /// Applies an event of the store.
    async fn apply(&self, store: &Arc<dyn SessionStore>, event: SessionEvent) {
        match event {
            SessionEvent::Subscribed { id, uri } => {
                if let Some(session) = self.sessions.peek(&id)
                    && session.notifications.join(&uri).await.is_err()
                {
                    tracing::debug!("a subscription made at another replica failed at this one");
                }
            }
            SessionEvent::Unsubscribed { id, uri } => {
                if let Some(session) = self.sessions.peek(&id) {
                    session.notifications.leave(&uri);
                }
            }
            SessionEvent::Ended { id } => self.sessions.close(&id),
            SessionEvent::SaveAgain => {
                for (id, session) in self.sessions.all() {
                    if store.save(&id, session.saved(), self.config.idle).await.is_err() {
                        // The store reports again when it is back.
                        return;
                    }
                }
            }
        }
    }
}

/// Renews the saved subscriptions of a session. With `missed`, the client is also notified of a change to each.
async fn join_all(session: &HttpSession, saved: &SavedSession, missed: bool) {
    for uri in &saved.subscriptions {
        // Fails if the resource no longer exists, or if the caller may no longer read it.
        if session.notifications.join(uri).await.is_ok() && missed {
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
