//! The session of a legacy client, which `initialize` opens.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::notification_log::NotificationLog;
use super::session_store::SavedSession;
use super::shared_session::{SharedSession, principal};
use crate::envelope::Id;
use crate::lock::lock;
use crate::{Listener, Revision, ServiceView};

/// How many requests of a session may be queued for each one that may be in flight.
const QUEUED_PER_IN_FLIGHT: usize = 8;

/// The session of a legacy client.
pub(super) struct HttpSession {
    pub(super) revision: Revision,
    /// Whether the client shows apps.
    pub(super) shows_apps: bool,
    /// The view of the identity that was last used in the session.
    view: Mutex<Arc<dyn ServiceView>>,
    /// Bounds the requests in flight.
    pub(super) in_flight: Arc<Semaphore>,
    /// Bounds the queued requests.
    pub(super) waiting: Semaphore,
    /// Cancelled when the session ends; ends its event streams too.
    pub(super) ended: CancellationToken,
    pub(super) notifications: Arc<NotificationLog>,
    /// Its entry in the store that replicas share, if there is one.
    shared: Option<SharedSession>,
    /// Requests in progress by id. The number distinguishes requests with the same id.
    running: Mutex<HashMap<Id, (u64, CancellationToken)>>,
    /// The number of the next request.
    requests: AtomicU64,
    /// The number of batches in progress.
    batches: AtomicUsize,
}

impl HttpSession {
    pub(super) fn new(
        view: Arc<dyn ServiceView>,
        revision: Revision,
        in_flight: usize,
        listener: Arc<dyn Listener>,
        shared: Option<SharedSession>,
    ) -> Self {
        Self {
            revision,
            shows_apps: false,
            view: Mutex::new(view),
            notifications: Arc::new(NotificationLog::new(listener, shared.clone())),
            shared,
            in_flight: Arc::new(Semaphore::new(in_flight)),
            waiting: Semaphore::new(QUEUED_PER_IN_FLIGHT * in_flight),
            ended: CancellationToken::new(),
            running: Mutex::default(),
            requests: AtomicU64::new(0),
            batches: AtomicUsize::new(0),
        }
    }

    /// Sets whether the client shows apps.
    pub(super) fn showing_apps(self, shows_apps: bool) -> Self {
        Self { shows_apps, ..self }
    }

    /// The view that answers requests of this caller in the session; `None` if another principal opened the session.
    /// If the caller has renewed its token, which may have other scopes, the session uses the new identity from now on.
    pub(super) fn view_of(&self, caller: &Arc<dyn ServiceView>) -> Option<Arc<dyn ServiceView>> {
        let mut current = lock(&self.view);
        match (current.caller(), caller.caller()) {
            (None, None) => Some(current.clone()),
            (Some(last), Some(now)) if last == now => Some(current.clone()),
            (Some(last), Some(now)) if last.is_same_principal(now) => {
                self.notifications.listener.renew(Some(now));
                *current = caller.clone();
                Some(caller.clone())
            }
            _ => None,
        }
    }

    /// The state that other replicas need to serve the session.
    pub(super) fn saved(&self) -> SavedSession {
        SavedSession {
            revision: self.revision.facts().date.to_owned(),
            shows_apps: self.shows_apps,
            principal: lock(&self.view).caller().map(principal),
            subscriptions: self.notifications.subscriptions(),
            ..SavedSession::default()
        }
    }

    /// Ends the session here, and at other replicas if it was opened here.
    pub(super) fn evict(&self) {
        self.ended.cancel();
        if let Some(shared) = self.shared.as_ref().filter(|shared| shared.is_opened_here) {
            shared.store.end(&shared.id);
        }
    }

    /// Registers a request as in progress until the guard is dropped.
    pub(super) fn run(self: &Arc<Self>, id: &Id) -> Running {
        let token = self.ended.child_token();
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        lock(&self.running).insert(id.clone(), (number, token.clone()));
        Running { session: self.clone(), id: id.clone(), number, token }
    }

    /// Registers a batch as in progress until the guard is dropped.
    pub(super) fn run_batch(self: &Arc<Self>) -> RunningBatch {
        self.batches.fetch_add(1, Ordering::Relaxed);
        RunningBatch { session: self.clone() }
    }

    /// Cancels a request.
    pub(super) fn cancel(&self, id: &Id) {
        if let Some((_, token)) = lock(&self.running).get(id) {
            token.cancel();
        }
    }

    /// Whether a request or a batch is in progress, so that the session must not be evicted.
    pub(super) fn is_busy(&self) -> bool {
        self.batches.load(Ordering::Relaxed) > 0 || !lock(&self.running).is_empty()
    }

    /// Whether an event stream is open or a request is in progress, so that the session is not idle.
    pub(super) fn is_in_use(&self) -> bool {
        self.notifications.streams() > 0 || self.is_busy()
    }
}

/// A request in progress.
pub(super) struct Running {
    session: Arc<HttpSession>,
    id: Id,
    number: u64,
    pub(super) token: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = lock(&self.session.running);
        if running.get(&self.id).is_some_and(|(number, _)| *number == self.number) {
            running.remove(&self.id);
        }
    }
}

/// A batch in progress.
pub(super) struct RunningBatch {
    session: Arc<HttpSession>,
}

impl Drop for RunningBatch {
    fn drop(&mut self) {
        self.session.batches.fetch_sub(1, Ordering::Relaxed);
    }
}
