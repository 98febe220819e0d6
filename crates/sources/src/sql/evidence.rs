//! How long a response can be cached: while the version of the database is unchanged, or for the time in the
//! setting `cache`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use libris_core::Proof;
use tokio::time::Instant;

use super::SqlInner;
use super::driver::{DatabaseVersion, NotificationListener, ObservedVersion};

/// How often the listener checks whether its source still exists.
const LISTENER_CHECK: Duration = Duration::from_secs(5);

/// The first and the longest pause before another attempt to listen (exponential backoff).
const LISTENER_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The state of the database when a request began.
pub(super) enum SqlEvidence {
    /// The database has a version, which is compared at each use of a cached response.
    Version(ObservedVersion),
    /// Responses are cached for the time in the setting `cache`, or until the database notifies of a change.
    Timed(TimedEvidence),
    /// Nothing is cached.
    Unknown,
}

/// The evidence for responses that are cached for the time in the setting `cache`.
#[derive(Clone)]
pub(super) struct TimedEvidence {
    until: Instant,
    notifications: Arc<NotificationCount>,
    /// The value of `notifications` when the request began.
    seen: u64,
}

/// The number of notifications of changes so far.
#[derive(Default)]
pub(super) struct NotificationCount(AtomicU64);

impl NotificationCount {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn advance(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl SqlEvidence {
    /// The version of the database, if it has one.
    pub(super) fn version(&self) -> Option<DatabaseVersion> {
        match self {
            Self::Version(observed) => Some(observed.version),
            Self::Timed(_) | Self::Unknown => None,
        }
    }

    /// The proof for a response that depends on rows.
    pub(super) fn data_proof(&self) -> Option<Proof> {
        match self {
            Self::Version(observed) => Some(observed.data_proof()),
            Self::Timed(timed) => Some(timed.proof()),
            Self::Unknown => None,
        }
    }

    /// The proof for a response that depends only on the catalog.
    pub(super) fn schema_proof(&self) -> Option<Proof> {
        match self {
            Self::Version(observed) => Some(observed.schema_proof()),
            other => other.data_proof(),
        }
    }

    /// The proof for a response that may differ without a change of the data, for example because of `random()`.
    /// Such a response can be cached for the time in the setting `cache`, but not for as long as a version stays
    /// the same.
    pub(super) fn unrepeatable_proof(&self) -> Option<Proof> {
        match self {
            Self::Timed(timed) => Some(timed.proof()),
            Self::Version(_) | Self::Unknown => None,
        }
    }
}

impl TimedEvidence {
    fn proof(&self) -> Proof {
        let Self { until, notifications, seen } = self.clone();
        Proof::new(move || Instant::now() < until && notifications.now() == seen)
    }
}

impl SqlInner {
    /// The state of the database now. Must be called before the first statement of a request, so that a change
    /// during the request makes the proofs fail.
    pub(super) async fn observe(&self) -> SqlEvidence {
        if let Some(observed) = self.driver.observe().await {
            return SqlEvidence::Version(observed);
        }
        if self.config.cache.is_zero() {
            return SqlEvidence::Unknown;
        }
        self.listen_once();
        let notifications = Arc::clone(&self.notifications);
        let seen = notifications.now();
        SqlEvidence::Timed(TimedEvidence { until: Instant::now() + self.config.cache, notifications, seen })
    }

    /// Starts to count notifications, at the first call.
    fn listen_once(&self) {
        if !self.is_listening.swap(true, Ordering::Relaxed)
            && let Some(listener) = self.driver.listen(&self.config.channel)
        {
            let source = Arc::downgrade(&self.is_listening);
            tokio::spawn(count(listener, Arc::clone(&self.notifications), source));
        }
    }
}

/// Counts notifications until the source is dropped. While the listener cannot connect, cached responses expire
/// only after the time in the setting `cache`.
async fn count(
    mut listener: Box<dyn NotificationListener>,
    count: Arc<NotificationCount>,
    source: Weak<AtomicBool>,
) {
    let mut pause = LISTENER_PAUSE.0;
    while source.strong_count() > 0 {
        if let Err(problem) = listener.begin().await {
            tracing::debug!(?problem, "could not listen for changes of cached responses");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LISTENER_PAUSE.1);
            continue;
        }
        pause = LISTENER_PAUSE.0;
        // Notifications may have been missed before, so all cached responses become invalid.
        count.advance();
        while source.strong_count() > 0 {
            match tokio::time::timeout(LISTENER_CHECK, listener.next_notification()).await {
                Ok(Ok(_)) => count.advance(),
                Ok(Err(_)) => break,
                Err(_) => {}
            }
        }
        count.advance();
    }
}
