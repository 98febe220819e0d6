//! The sessions of clients that open with a handshake.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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
    used: Mutex<Instant>,
    running: Mutex<HashMap<Id, CancellationToken>>,
}

/// After this long without a sign of life, a session makes room for a new one.
const FORGOTTEN: Duration = Duration::from_secs(60);

impl Session {
    pub(super) fn new(revision: Revision, in_flight: usize, listener: Arc<dyn Listener>) -> Self {
        Self {
            revision,
            news: Arc::new(Mailbox::new(listener)),
            in_flight: Arc::new(Semaphore::new(in_flight)),
            ended: CancellationToken::new(),
            used: Mutex::new(Instant::now()),
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

    fn idle(&self, now: Instant) -> Duration {
        if self.news.streams() > 0 || !lock(&self.running).is_empty() {
            return Duration::ZERO;
        }
        now.saturating_duration_since(*lock(&self.used))
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
        *lock(&self.session.used) = Instant::now();
        lock(&self.session.running).remove(&self.id);
    }
}

/// All sessions by their ids.
pub(super) struct Sessions {
    most: usize,
    idle: Duration,
    open: Mutex<HashMap<String, Arc<Session>>>,
}

impl Sessions {
    pub(super) fn new(most: usize, idle: Duration) -> Self {
        Self { most, idle, open: Mutex::default() }
    }

    /// Opens a session under an id that cannot be guessed; `None` if there are too many.
    pub(super) fn open(&self, session: Session) -> Option<String> {
        let id = unguessable()?;
        let mut open = lock(&self.open);
        if open.len() >= self.most {
            // Clients that come and never say goodbye must not keep others out.
            let now = Instant::now();
            let idle = open.iter().map(|(id, session)| (session.idle(now), id)).max();
            let (_, idle) = idle.filter(|(idle, _)| *idle >= FORGOTTEN.min(self.idle))?;
            let idle = idle.clone();
            if let Some(session) = open.remove(&idle) {
                session.ended.cancel();
            }
        }
        open.insert(id.clone(), Arc::new(session));
        Some(id)
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Session>> {
        let session = lock(&self.open).get(id).cloned()?;
        *lock(&session.used) = Instant::now();
        Some(session)
    }

    /// How many sessions are open, and how many streams they have.
    pub(super) fn count(&self) -> (usize, usize) {
        let open = lock(&self.open);
        let streams = open.values().map(|session| session.news.streams()).sum();
        (open.len(), streams)
    }

    pub(super) fn close(&self, id: &str) -> bool {
        let closed = lock(&self.open).remove(id);
        if let Some(session) = &closed {
            session.ended.cancel();
        }
        closed.is_some()
    }

    /// Ends the sessions that have been idle for too long.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        lock(&self.open).retain(|_, session| {
            let stays = session.idle(now) < self.idle;
            if !stays {
                session.ended.cancel();
            }
            stays
        });
    }
}

/// 128 random bits as text.
pub(super) fn unguessable() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::{Session, Sessions};
    use crate::{Failure, Listener, News, Revision};
    use std::sync::Arc;
    use std::time::Duration;

    struct Nobody;

    #[async_trait::async_trait]
    impl Listener for Nobody {
        async fn follow_list(&self) -> Result<(), Failure> {
            Ok(())
        }
        fn listed(&self) {}
        async fn subscribe(&self, _: &str) -> Result<(), Failure> {
            Ok(())
        }
        fn unsubscribe(&self, _: &str) {}
        async fn next(&self) -> News {
            std::future::pending().await
        }
        fn owe(&self, _: News) {}
    }

    fn session() -> Session {
        Session::new(Revision::V2025_06_18, 1, Arc::new(Nobody))
    }

    #[test]
    fn sessions_are_bounded_and_idle_ones_make_room() {
        let sessions = Sessions::new(2, Duration::from_secs(60));
        let first = sessions.open(session()).unwrap();
        sessions.open(session()).unwrap();
        assert_eq!(sessions.open(session()), None);
        assert!(sessions.close(&first));
        assert!(sessions.find(&first).is_none());
        assert!(sessions.open(session()).is_some());

        let sessions = Sessions::new(1, Duration::ZERO);
        sessions.open(session()).unwrap();
        assert!(sessions.open(session()).is_some());
    }
}
