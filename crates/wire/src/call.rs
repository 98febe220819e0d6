//! What a service may know of, and tell to, whoever sent a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::envelope::Framed;
use crate::{Listener, Revision};

/// A request being answered.
#[derive(Clone)]
pub struct Call {
    /// The revision the answer must be in.
    pub revision: Revision,
    /// What whoever stands before this endpoint has put into the HTTP request.
    pub extensions: http::Extensions,
    progress: Option<Arc<Reporter>>,
    /// Whoever subscribes where there is a session.
    pub(crate) listener: Option<Arc<dyn Listener>>,
}

impl Call {
    /// A call in this revision whose caller wants to hear nothing before the answer.
    pub fn new(revision: Revision) -> Self {
        Self { revision, extensions: http::Extensions::new(), progress: None, listener: None }
    }

    pub(crate) fn in_revision(self, revision: Revision) -> Self {
        Self { revision, ..self }
    }

    pub(crate) fn reporting(self, reporter: Option<Reporter>) -> Self {
        Self { progress: reporter.map(Arc::new), ..self }
    }

    pub(crate) fn with(self, extensions: &http::Extensions) -> Self {
        Self { extensions: extensions.clone(), ..self }
    }

    pub(crate) fn of(self, listener: Option<Arc<dyn Listener>>) -> Self {
        Self { listener, ..self }
    }

    /// Whether the caller wants to hear how far a long request has come.
    pub fn wants_progress(&self) -> bool {
        self.progress.is_some()
    }

    /// Says how far it has come. Reports that come too fast or do not advance are dropped.
    pub fn progress(&self, done: u64, total: Option<u64>) {
        if let Some(progress) = &self.progress {
            progress.report(done, total);
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// Sends `notifications/progress` for one request.
#[derive(Debug)]
pub(crate) struct Reporter {
    token: Box<str>,
    began: Instant,
    /// The last value sent, and when, in milliseconds since `began`.
    last: AtomicU64,
    next: AtomicU64,
    out: mpsc::Sender<Framed>,
}

impl Reporter {
    /// A request answered sooner than this needs no progress.
    const PATIENCE: Duration = Duration::from_millis(200);

    /// `token` is JSON as it came.
    pub(crate) fn new(token: &str, out: mpsc::Sender<Framed>) -> Self {
        Self {
            token: token.into(),
            began: Instant::now(),
            last: AtomicU64::new(0),
            next: AtomicU64::new(Self::PATIENCE.as_millis() as u64),
            out,
        }
    }

    fn report(&self, done: u64, total: Option<u64>) {
        let now = self.began.elapsed().as_millis() as u64;
        if now < self.next.load(Ordering::Relaxed) || done <= self.last.load(Ordering::Relaxed) {
            return;
        }
        self.next.store(now + Self::PATIENCE.as_millis() as u64, Ordering::Relaxed);
        self.last.store(done, Ordering::Relaxed);
        let total = total.map(|total| format!(",\"total\":{total}")).unwrap_or_default();
        let message = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\
             \"params\":{{\"progressToken\":{},\"progress\":{done}{total}}}}}",
            self.token
        );
        // A caller who does not keep up misses a report, never the answer.
        let _ = self.out.try_send(Framed::whole(message));
    }
}
