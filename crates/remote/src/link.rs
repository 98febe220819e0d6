//! The connection to a server: connects, reconnects with backoff, and records why there is no connection.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use libris_core::RequestInput;
use libris_process::GroupedChild;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientRequest, CustomRequest, ErrorCode, Implementation, PingRequest,
    ProtocolVersion, ResourceUpdatedNotificationParam, ServerPeerInfo, ServerResult,
};
use rmcp::service::{NotificationContext, Peer, PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientCacheConfig, ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::cancellation::{self, CancelRequestOnDrop, RequestCanceller};
use crate::config::{ProtocolChoice, RemoteConfig, RemoteTarget};
use crate::fault::{FaultJournal, RemoteFault};
use crate::http::UpstreamHttp;
use crate::upstream_watch::{self, UpstreamEvents};
use crate::{input_required, oauth, skill_list, stdio};

/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A connection that lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// The size of the notification queue. If it overflows, watchers receive `Change::Lost`.
const MAX_NOTIFICATIONS: usize = 1024;

/// The maximum number of concurrent HTTP requests to a server.
const MAX_CONCURRENT_REQUESTS: usize = 32;

/// How long to wait for a session to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The transport waits this many times as long for a response as callers do (`timeout`). The transport must not give up
/// a request before the caller does; its timeout only ends requests that nobody waits for any more.
const TRANSPORT_TIMEOUT_FACTOR: u32 = 2;

/// Who a server is and what it can do.
#[derive(Clone, Debug)]
pub struct ServerIdentity(Arc<ServerPeerInfo>);

impl ServerIdentity {
    /// The negotiated protocol revision, such as `2025-11-25`.
    pub fn revision(&self) -> &str {
        self.0.protocol_version.as_str()
    }

    /// The name of the server, if it gives one.
    pub fn name(&self) -> Option<&str> {
        self.0.server_info.as_ref().map(|info| &*info.name)
    }

    /// The version of the server, if it gives one.
    pub fn version(&self) -> Option<&str> {
        self.0.server_info.as_ref().map(|info| &*info.version)
    }

    /// The display name of the server, if it gives one.
    pub fn title(&self) -> Option<&str> {
        self.0.server_info.as_ref().and_then(|info| info.title.as_deref())
    }

    /// The instructions of the server for models, if it gives some.
    pub fn instructions(&self) -> Option<&str> {
        self.0.instructions.as_deref()
    }

    /// The capabilities of the server as JSON, with the names of the protocol.
    pub fn capabilities(&self) -> Value {
        serde_json::to_value(&self.0.capabilities).unwrap_or_default()
    }
}

/// An established connection.
pub(crate) struct UpstreamSession {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) info: Arc<ServerPeerInfo>,
    /// The number of this connection, counted from 1.
    pub(crate) generation: u64,
    journal: FaultJournal,
    canceller: RequestCanceller,
    /// Notified when a request finds that the connection is lost.
    broken: Notify,
}

impl UpstreamSession {
    /// Whether the revision has `subscriptions/listen` instead of `resources/subscribe`.
    pub(crate) fn is_modern(&self) -> bool {
        !self.info.protocol_version.has_initialize()
    }

    pub(crate) fn identity(&self) -> ServerIdentity {
        ServerIdentity(self.info.clone())
    }

    pub(crate) fn supports_resources(&self) -> bool {
        self.info.capabilities.resources.is_some()
    }

    pub(crate) fn supports_prompts(&self) -> bool {
        self.info.capabilities.prompts.is_some()
    }

    pub(crate) fn supports_tools(&self) -> bool {
        self.info.capabilities.tools.is_some()
    }

    /// Whether the server declares that it reports changes of its list of prompts.
    pub(crate) fn reports_prompt_changes(&self) -> bool {
        self.info.capabilities.prompts.as_ref().is_some_and(|prompts| prompts.list_changed == Some(true))
    }

    /// Whether the server declares that it reports changes of its list of tools.
    pub(crate) fn reports_tool_changes(&self) -> bool {
        self.info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true))
    }

    pub(crate) fn supports_skills(&self) -> bool {
        self.skill_settings().is_some()
    }

    /// Whether the server answers `resources/directory/read`.
    pub(crate) fn reads_directories(&self) -> bool {
        let settings = self.skill_settings().and_then(|settings| settings.get("directoryRead"));
        settings.and_then(Value::as_bool) == Some(true)
    }

    fn skill_settings(&self) -> Option<&rmcp::model::JsonObject> {
        self.info.capabilities.extensions.as_ref()?.get(skill_list::EXTENSION)
    }

    /// Sends a request of an extension.
    pub(crate) async fn custom(&self, method: &str, params: Option<Value>) -> Result<Value, ServiceError> {
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, params));
        match self.request(request, None).await? {
            ServerResult::CustomResult(result) => Ok(result.0),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }

    /// Sends a request, and cancels it if the future is dropped, or the transport fails, before the response arrives.
    ///
    /// `input` is what a client can give if the server needs input; the server learns it only in the revisions that have
    /// requests in several rounds.
    pub(crate) async fn request(
        &self,
        request: ClientRequest,
        input: Option<&RequestInput>,
    ) -> Result<ServerResult, ServiceError> {
        let mut options = PeerRequestOptions::no_options();
        options.meta = input.filter(|_| self.is_modern()).map(input_required::metadata);
        let handle = self.peer.send_cancellable_request(request, options).await?;
        let guard = CancelRequestOnDrop::new(&self.canceller, handle.id.clone());
        let result = handle.await_response().await;
        // Without an answer, such as after a timeout of the transport, the server may still be working.
        if matches!(result, Ok(_) | Err(ServiceError::McpError(_))) {
            guard.answered();
        }
        result
    }

    pub(crate) fn reports_list_changes(&self) -> bool {
        self.info
            .capabilities
            .resources
            .as_ref()
            .is_some_and(|resources| resources.list_changed == Some(true))
    }

    pub(crate) fn supports_subscriptions(&self) -> bool {
        self.info.capabilities.resources.as_ref().is_some_and(|resources| resources.subscribe == Some(true))
    }

    /// Converts the error of a failed request. If the connection is lost, this makes the link reconnect.
    pub(crate) fn fault(&self, error: ServiceError, limit: Duration) -> RemoteFault {
        let fault = RemoteFault::of_request(error, limit, &self.journal);
        if matches!(fault, RemoteFault::Unreachable(_) | RemoteFault::Closed(_)) {
            self.broken.notify_one();
        }
        fault
    }

    /// Pings the server. Revision 2026-07-28 has no ping, so for it this returns `true`; there, the end of the
    /// `subscriptions/listen` stream shows that the connection is lost.
    pub(crate) async fn is_alive(&self, limit: Duration) -> bool {
        if self.is_modern() {
            return true;
        }
        let ping = self.peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
        matches!(timeout(limit, ping).await, Ok(Ok(_) | Err(ServiceError::McpError(_))))
    }

    /// Completes when a request has found that the connection is lost.
    pub(crate) async fn broken(&self) {
        self.broken.notified().await;
    }
}

#[derive(Clone)]
enum LinkState {
    /// An attempt to connect is in progress. Contains the fault of the previous attempt if that one timed out.
    Connecting(Option<RemoteFault>),
    Up(Arc<UpstreamSession>),
    Down(RemoteFault),
}

/// The connection to a server. A background task establishes it, and establishes it again whenever it is lost.
pub(crate) struct UpstreamLink {
    state: watch::Receiver<LinkState>,
    /// Counts the connections that ended. Lists and contents that were fetched over a connection are no longer current
    /// after its end.
    losses: Arc<AtomicU64>,
    closing: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl UpstreamLink {
    /// Starts to connect. Must be called within a tokio runtime.
    pub(crate) fn start(config: RemoteConfig, events: Weak<UpstreamEvents>, losses: Arc<AtomicU64>) -> Self {
        let (sender, state) = watch::channel(LinkState::Connecting(None));
        let closing = Arc::new(Notify::new());
        let supervisor = Supervisor {
            config,
            sender,
            events,
            generation: 0,
            losses: losses.clone(),
            closing: closing.clone(),
        };
        let task = Mutex::new(Some(tokio::spawn(supervisor.run())));
        Self { state, losses, closing, task }
    }

    /// The connection; waits at most `limit` while it is being established. Does not wait if the previous attempt timed out,
    /// because this one probably will, too.
    pub(crate) async fn session(&self, limit: Duration) -> Result<Arc<UpstreamSession>, RemoteFault> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, LinkState::Connecting(None)));
        match timeout(limit, settled).await {
            Err(_) => Err(RemoteFault::NotReady(limit)),
            Ok(Err(_)) => Err(RemoteFault::Closed(None)),
            Ok(Ok(state)) => match &*state {
                LinkState::Up(session) => Ok(session.clone()),
                LinkState::Down(fault) | LinkState::Connecting(Some(fault)) => Err(fault.clone()),
                LinkState::Connecting(None) => Err(RemoteFault::NotReady(limit)),
            },
        }
    }

    /// The number of connections that ended.
    pub(crate) fn losses(&self) -> &Arc<AtomicU64> {
        &self.losses
    }

    /// Closes the session, and kills the process of the server.
    pub(crate) async fn close(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task {
            self.closing.notify_one();
            if timeout(CLOSE_TIMEOUT * 2, &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

impl Drop for UpstreamLink {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // This also kills the process of the server, which the task owns.
            task.abort();
        }
    }
}

/// The task behind a [`UpstreamLink`].
struct Supervisor {
    config: RemoteConfig,
    sender: watch::Sender<LinkState>,
    events: Weak<UpstreamEvents>,
    generation: u64,
    losses: Arc<AtomicU64>,
    closing: Arc<Notify>,
}

/// A connection, and the values that must live as long as the connection does.
struct Established {
    service: RunningService<RoleClient, UpstreamHandler>,
    session: Arc<UpstreamSession>,
    notifications: mpsc::Receiver<UpstreamNotification>,
    overflow: Arc<Notify>,
    /// The child process of the server, which is killed on drop.
    _process: Option<GroupedChild>,
}

impl Supervisor {
    async fn run(mut self) {
        let mut pause = self.config.limits.retry;
        let mut timed_out = None;
        loop {
            self.sender.send_replace(LinkState::Connecting(timed_out.take()));
            let limit = self.config.limits.connect_timeout;
            let connected = match timeout(limit, self.connect()).await {
                Ok(connected) => connected,
                Err(_) => Err(RemoteFault::NotReady(limit)),
            };
            let is_timeout =
                |fault: &&RemoteFault| matches!(fault, RemoteFault::NotReady(_) | RemoteFault::Silent(_));
            timed_out = connected.as_ref().err().filter(is_timeout).cloned();
            let fault = match connected {
                Ok(established) => {
                    let since = Instant::now();
                    let Some(fault) = self.serve(established).await else { return };
                    if since.elapsed() >= STABLE_AFTER {
                        pause = self.config.limits.retry;
                    }
                    fault
                }
                Err(fault) => fault,
            };
            let server = &self.config.name;
            tracing::debug!(server, %fault, "no connection to an MCP server");
            self.sender.send_replace(LinkState::Down(fault));
            tokio::select! {
                () = sleep(pause) => {}
                () = self.closing.notified() => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&mut self) -> Result<Established, RemoteFault> {
        match self.connect_by(self.config.protocol).await {
            // Some servers answer methods that they do not know, such as `server/discover`, with an empty result.
            Err(RemoteFault::WrongResult { .. }) if self.config.protocol == ProtocolChoice::Auto => {
                self.connect_by(ProtocolChoice::Initialize).await
            }
            // rmcp gives up `server/discover` after ten seconds and sends `initialize`. A server that took longer to
            // start then answers `server/discover`, and therefore refuses `initialize`.
            Err(RemoteFault::Refused { code, .. })
                if code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0
                    && self.config.protocol == ProtocolChoice::Auto =>
            {
                self.connect_by(ProtocolChoice::Discover).await
            }
            connected => connected,
        }
    }

    async fn connect_by(&mut self, protocol: ProtocolChoice) -> Result<Established, RemoteFault> {
        let journal = FaultJournal::default();
        let (sender, notifications) = mpsc::channel(MAX_NOTIFICATIONS);
        let overflow = Arc::new(Notify::new());
        let handler = UpstreamHandler { sender, overflow: overflow.clone() };
        let lifecycle = lifecycle(protocol);
        let limits = &self.config.limits;
        let (service, process) = match &self.config.target {
            target @ RemoteTarget::Stdio { .. } => {
                let (transport, process) = stdio::start(target, limits.max_message, &journal)?;
                (handler.serve_with_lifecycle(transport, lifecycle).await, Some(process))
            }
            RemoteTarget::Http { url, token, headers, stored } => {
                let timeout = limits.timeout.saturating_mul(TRANSPORT_TIMEOUT_FACTOR);
                let client = UpstreamHttp::new(url, limits.max_message, limits.connect_timeout, timeout)?;
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .max_concurrent_requests(MAX_CONCURRENT_REQUESTS)
                    .max_sse_event_size(limits.max_message)
                    .control_request_timeout(cancellation::ATTEMPT_TIMEOUT)
                    // The link reconnects instead, so that watchers learn that changes may have been lost.
                    .reinit_on_expired_session(false)
                    .custom_headers(headers.iter().filter_map(|(name, value)| header(name, value)).collect());
                config.auth_header = token.clone();
                let stored = stored.as_ref().filter(|stored| token.is_none() && stored.has_token(url));
                let service = match stored {
                    Some(stored) => {
                        let client = oauth::with_stored_token(client, url, stored).await?;
                        let transport = StreamableHttpClientTransport::with_client(client, config);
                        handler.serve_with_lifecycle(transport, lifecycle).await
                    }
                    None => {
                        let transport = StreamableHttpClientTransport::with_client(client, config);
                        handler.serve_with_lifecycle(transport, lifecycle).await
                    }
                };
                (service, None)
            }
        };
        let service = service.map_err(|error| RemoteFault::of_handshake(error, &journal))?;
        // Libris caches responses itself, by the caller's rights, which rmcp does not know.
        service.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
        let info = service.peer().peer_info().ok_or(RemoteFault::Closed(None))?;
        self.generation += 1;
        let session = UpstreamSession {
            peer: service.peer().clone(),
            info,
            generation: self.generation,
            journal,
            canceller: RequestCanceller::new(service.peer().clone()),
            broken: Notify::new(),
        };
        Ok(Established { service, session: Arc::new(session), notifications, overflow, _process: process })
    }

    /// Serves a connection until it ends, and returns why it ended; `None` if this link was closed.
    async fn serve(&self, established: Established) -> Option<RemoteFault> {
        let Established { service, session, mut notifications, overflow, _process } = established;
        self.sender.send_replace(LinkState::Up(session.clone()));
        let token = service.cancellation_token();
        let mut ended = pin!(service.waiting());
        let watched =
            upstream_watch::run(&self.events, &session, &mut notifications, &overflow, &self.config);
        let (is_wanted, has_ended) = tokio::select! {
            _ = &mut ended => (true, true),
            () = watched => (true, false),
            () = self.closing.notified() => (false, false),
        };
        self.losses.fetch_add(1, Ordering::AcqRel);
        if !has_ended {
            token.cancel();
            let _ = timeout(CLOSE_TIMEOUT, ended).await;
        }
        is_wanted.then(|| session.journal.closed())
    }
}

fn lifecycle(choice: ProtocolChoice) -> ClientLifecycleMode {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    match choice {
        ProtocolChoice::Auto => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
        ProtocolChoice::Initialize => ClientLifecycleMode::Initialize,
        ProtocolChoice::Discover => ClientLifecycleMode::Discover { preferred_versions },
    }
}

fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
}

/// A notification from a server, of a kind that this crate handles.
#[derive(Debug)]
pub(crate) enum UpstreamNotification {
    Updated(String),
    ListChanged,
    /// The list of prompts or tools has changed.
    FeaturesChanged,
}

/// Queues the notifications of a server. It declares no capabilities, so a server must not request sampling, roots or
/// input.
#[derive(Clone)]
struct UpstreamHandler {
    sender: mpsc::Sender<UpstreamNotification>,
    overflow: Arc<Notify>,
}

impl UpstreamHandler {
    fn queue(&self, notification: UpstreamNotification) {
        if self.sender.try_send(notification).is_err() {
            self.overflow.notify_one();
        }
    }
}

impl ClientHandler for UpstreamHandler {
    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.queue(UpstreamNotification::Updated(params.uri));
    }

    async fn on_resource_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.queue(UpstreamNotification::ListChanged);
    }

    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.queue(UpstreamNotification::FeaturesChanged);
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.queue(UpstreamNotification::FeaturesChanged);
    }

    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("libris", env!("CARGO_PKG_VERSION"));
        let mut config = ClientConfig::new(ClientCapabilities::default(), client);
        config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        config
    }
}
