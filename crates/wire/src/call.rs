//! The context of a request while a service answers it: its revision, client, memory reservation and progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libris_core::{Client, RequestInput};

use crate::content_budget::{ContentBudget, RequestReservation};
use crate::envelope::Framed;
use crate::{Listener, Revision, ServiceView};

/// A request being answered.
#[derive(Clone)]
pub struct Call {
    /// The revision of the response.
    pub revision: Revision,
    /// The view that answers the request.
    pub(crate) view: Arc<dyn ServiceView>,
    /// The client whose share of each budget the request uses.
    pub client: Client,
    pub(crate) arrived: Instant,
    /// The memory reserved for contents; `None` if no budget applies.
    pub(crate) memory: Option<Arc<RequestReservation>>,
    progress: Option<Arc<Reporter>>,
    /// The listener of the session, to which `resources/subscribe` adds subscriptions; `None` without a session.
    pub(crate) listener: Option<Arc<dyn Listener>>,
    shows_apps: bool,
    input: Option<Arc<RequestInput>>,
}

impl Call {
    /// A call of this view in this revision, without progress notifications.
    pub fn new(view: Arc<dyn ServiceView>, revision: Revision) -> Self {
        Self {
            revision,
            view,
            client: Client::default(),
            arrived: Instant::now(),
            memory: None,
            progress: None,
            listener: None,
            shows_apps: false,
            input: None,
        }
    }

    /// Sets the client, and the budget for the contents that the call loads.
    pub(crate) fn with_client(self, client: Client, content_budget: &Arc<ContentBudget>) -> Self {
        Self { client, memory: Some(Arc::new(RequestReservation::new(content_budget, client))), ..self }
    }

    /// Sets whether the client shows apps.
    pub(crate) fn showing_apps(self, shows_apps: bool) -> Self {
        Self { shows_apps, ..self }
    }

    /// Whether the client shows MCP Apps. Reliable only for `tools/list`: for other methods, this may be `false`
    /// although the client shows apps. `initialize` and `server/discover` read the declaration from their own
    /// parameters, and no other response depends on it.
    pub fn shows_apps(&self) -> bool {
        self.shows_apps
    }

    /// Sets the input capabilities of the client and, if it repeats a request, the input of its user.
    pub(crate) fn with_input(self, input: Option<Arc<RequestInput>>) -> Self {
        Self { input, ..self }
    }

    /// The input capabilities of the client and, if it repeats a request, the input of its user; `None` if the client
    /// cannot give input.
    pub fn input(&self) -> Option<&Arc<RequestInput>> {
        self.input.as_ref()
    }

    /// A call of the same caller with a time limit and a memory reservation of its own, for one piece of a response that
    /// is sent in pieces.
    pub fn for_part(&self) -> Self {
        let memory = self.memory.as_ref().map(|memory| Arc::new(memory.separate()));
        Self { memory, arrived: Instant::now(), ..self.clone() }
    }

    /// The view that answers the request.
    pub fn view(&self) -> &Arc<dyn ServiceView> {
        &self.view
    }

    /// How long ago the request arrived.
    pub fn elapsed(&self) -> Duration {
        self.arrived.elapsed()
    }

    /// The time from which the time limit counts: the arrival of the request, or the time at which the memory that it
    /// waited for was granted. While the request waits for memory, this is the current time.
    pub(crate) fn time_limit_start(&self) -> Instant {
        self.memory.as_ref().and_then(|memory| memory.resumed()).unwrap_or(self.arrived)
    }

    pub(crate) fn with_revision(self, revision: Revision) -> Self {
        Self { revision, ..self }
    }

    pub(crate) fn with_reporter(self, reporter: Option<Reporter>) -> Self {
        Self { progress: reporter.map(Arc::new), ..self }
    }

    /// Sets the listener of the session that the request belongs to.
    pub(crate) fn with_listener(self, listener: Option<Arc<dyn Listener>>) -> Self {
        Self { listener, ..self }
    }

    /// Reserves memory for `bytes` more bytes of contents until the response is sent. Call it before loading the
    /// contents. Returns `false` if memory is short: then drop all contents, await
    /// [`memory_is_free`](Self::memory_is_free), and start over.
    pub fn reserve(&self, bytes: usize) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.reserve(bytes))
    }

    /// Like [`reserve`](Self::reserve), for contents that are being loaded and must not be loaded twice. After `false`,
    /// the request must fail.
    pub fn grow(&self, bytes: usize) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.grow(bytes))
    }

    /// Reserves memory for contents that are loaded already. `bytes` is the size of all contents of the request,
    /// including those for which it has reserved memory before. Returns `false` if memory is short; then the request
    /// must fail.
    pub fn reserve_loaded(&self, bytes: usize) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.reserve_loaded(bytes))
    }

    /// Like [`reserve_loaded`](Self::reserve_loaded). After `false`, the request need not fail: it can drop all contents,
    /// await [`memory_is_free`](Self::memory_is_free), and start over.
    pub fn reserve_total(&self, bytes: usize) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.reserve_total(bytes))
    }

    /// Keeps the memory that is reserved so far: from now on, reservations fail instead of waiting for memory. Call it
    /// before reading more contents while some are in memory, because requests that wait for memory while they hold some
    /// could deadlock.
    pub fn hold(&self) {
        if let Some(memory) = &self.memory {
            memory.hold(0);
        }
    }

    /// Waits for the memory that [`reserve`](Self::reserve) could not get. Returns `false` if it does not become
    /// available in time, or if no reservation failed.
    pub async fn memory_is_free(&self) -> bool {
        match &self.memory {
            Some(memory) => memory.wait().await,
            None => false,
        }
    }

    /// Whether the caller asked for progress notifications.
    pub fn wants_progress(&self) -> bool {
        self.progress.is_some()
    }

    /// Reports progress. Reports that come too fast or do not advance are dropped.
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
pub(crate) struct Reporter {
    token: Box<str>,
    began: Instant,
    /// The last value sent.
    last: AtomicU64,
    /// The earliest time of the next report, in milliseconds since `began`.
    next: AtomicU64,
    /// Sends a message, or drops it if the caller does not read fast enough.
    send: Box<dyn Fn(Framed) + Send + Sync>,
}

impl Reporter {
    /// The minimum interval between reports. A request that is answered within this time sends none.
    const MIN_INTERVAL: Duration = Duration::from_millis(200);

    /// `token` is the progress token as JSON, unchanged.
    pub(crate) fn new(token: &str, send: impl Fn(Framed) + Send + Sync + 'static) -> Self {
        Self {
            token: token.into(),
            began: Instant::now(),
            last: AtomicU64::new(0),
            next: AtomicU64::new(Self::MIN_INTERVAL.as_millis() as u64),
            send: Box::new(send),
        }
    }

    fn report(&self, done: u64, total: Option<u64>) {
        let now = self.began.elapsed().as_millis() as u64;
        if now < self.next.load(Ordering::Relaxed) || done <= self.last.load(Ordering::Relaxed) {
            return;
        }
        self.next.store(now + Self::MIN_INTERVAL.as_millis() as u64, Ordering::Relaxed);
        self.last.store(done, Ordering::Relaxed);
        let total = total.map(|total| format!(",\"total\":{total}")).unwrap_or_default();
        let message = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\
             \"params\":{{\"progressToken\":{},\"progress\":{done}{total}}}}}",
            self.token
        );
        (self.send)(Framed::whole(message));
    }
}
