//! The session of a client that opens with a handshake.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::mailbox::Mailbox;
use crate::envelope::Id;
use crate::lock::lock;
use crate::{Listener, Revision, View};

/// For each request of a session that is worked on, how many may wait.
const WAITING: usize = 8;

/// A client that has opened with a handshake.
pub(super) struct Session {
    pub(super) revision: Revision,
    /// What its requests are answered from.
    pub(super) view: Arc<dyn View>,
    /// Bounds the requests worked on at once.
    pub(super) in_flight: Arc<Semaphore>,
    /// Bounds those that wait for that.
    pub(super) waiting: Semaphore,
    /// Ends with the session, and its streams with it.
    pub(super) ended: CancellationToken,
    pub(super) news: Arc<Mailbox>,
    /// By their ids, with a number that tells two of the same id apart.
    running: Mutex<HashMap<Id, (u64, CancellationToken)>>,
    requests: AtomicU64,
    /// How many batches are being answered.
    batches: AtomicUsize,
}

impl Session {
    pub(super) fn new(
        view: Arc<dyn View>,
        revision: Revision,
        in_flight: usize,
        listener: Arc<dyn Listener>,
    ) -> Self {
        Self {
            revision,
            view,
            news: Arc::new(Mailbox::new(listener)),
            in_flight: Arc::new(Semaphore::new(in_flight)),
            waiting: Semaphore::new(WAITING * in_flight),
            ended: CancellationToken::new(),
            running: Mutex::default(),
            requests: AtomicU64::new(0),
            batches: AtomicUsize::new(0),
        }
    }

    /// Whether it was opened by the caller of this view.
    pub(super) fn belongs_to(&self, view: &dyn View) -> bool {
        self.view.caller() == view.caller()
    }

    /// Notes that a request is being answered, until the guard is dropped.
    pub(super) fn run(self: &Arc<Self>, id: &Id) -> Running {
        let token = self.ended.child_token();
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        lock(&self.running).insert(id.clone(), (number, token.clone()));
        Running { session: self.clone(), id: id.clone(), number, token }
    }

    /// Notes that a batch is being answered, until the guard is dropped.
    pub(super) fn run_batch(self: &Arc<Self>) -> RunningBatch {
        self.batches.fetch_add(1, Ordering::Relaxed);
        RunningBatch { session: self.clone() }
    }

    /// Stops the answering of a request.
    pub(super) fn cancel(&self, id: &Id) {
        if let Some((_, token)) = lock(&self.running).get(id) {
            token.cancel();
        }
    }

    /// Whether it has a request or a batch in progress, so that it does not make room for another session.
    pub(super) fn is_busy(&self) -> bool {
        self.batches.load(Ordering::Relaxed) > 0 || !lock(&self.running).is_empty()
    }

    /// Whether it has a stream open or a request in progress, so that it does not end by itself.
    pub(super) fn is_in_use(&self) -> bool {
        self.news.streams() > 0 || self.is_busy()
    }
}

/// A request being answered.
pub(super) struct Running {
    session: Arc<Session>,
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

/// A batch being answered.
pub(super) struct RunningBatch {
    session: Arc<Session>,
}

impl Drop for RunningBatch {
    fn drop(&mut self) {
        self.session.batches.fetch_sub(1, Ordering::Relaxed);
    }
}
