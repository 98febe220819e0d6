//! The session of a client that opens with a handshake.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::mailbox::Mailbox;
use crate::envelope::Id;
use crate::lock::lock;
use crate::{Listener, Revision};

/// A client that has opened with a handshake.
pub(super) struct Session {
    pub(super) revision: Revision,
    /// Bounds the requests worked on at once.
    pub(super) in_flight: Arc<Semaphore>,
    /// Ends with the session, and its streams with it.
    pub(super) ended: CancellationToken,
    pub(super) news: Arc<Mailbox>,
    running: Mutex<HashMap<Id, CancellationToken>>,
}

impl Session {
    pub(super) fn new(revision: Revision, in_flight: usize, listener: Arc<dyn Listener>) -> Self {
        Self {
            revision,
            news: Arc::new(Mailbox::new(listener)),
            in_flight: Arc::new(Semaphore::new(in_flight)),
            ended: CancellationToken::new(),
            running: Mutex::default(),
        }
    }

    /// Notes that a request is being answered, until the guard is dropped.
    pub(super) fn run(self: &Arc<Self>, id: &Id) -> Running {
        let token = self.ended.child_token();
        lock(&self.running).insert(id.clone(), token.clone());
        Running { session: self.clone(), id: id.clone(), token }
    }

    /// Stops the answering of a request.
    pub(super) fn cancel(&self, id: &Id) {
        if let Some(token) = lock(&self.running).get(id) {
            token.cancel();
        }
    }

    /// Whether it has a stream open or a request in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.news.streams() > 0 || !lock(&self.running).is_empty()
    }
}

/// A request being answered.
pub(super) struct Running {
    session: Arc<Session>,
    id: Id,
    pub(super) token: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.session.running).remove(&self.id);
    }
}
