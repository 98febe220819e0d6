//! What a service may know of, and tell to, whoever sent a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};


use tokio::sync::mpsc;

use crate::Revision;
use crate::envelope::Framed;

/// A request being answered.
#[derive(Clone, Debug)]
pub struct Call {
    /// The revision the answer must be in.
    pub revision: Revision,
    progress: Option<Arc<Reporter>>,
}

impl Call {
    /// A call in this revision whose caller wants to hear nothing before the answer.
    pub fn new(revision: Revision) -> Self {
        Self { revision, progress: None }
    }

    pub(crate) fn with_progress(revision: Revision, progress: Option<Reporter>) -> Self {
        Self { revision, progress: progress.map(Arc::new) }
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
