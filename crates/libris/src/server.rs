//! The server: a source as an MCP service.

use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use libris_core::{Error, Identity, InputRequired, Source, Uri};
use libris_wire::{AppPage, Caller, Failure, Refusal, ServerInfo, Service};

use quick_cache::sync::Cache;

use crate::Catalog;
use crate::audit::{AuditDecision, AuditLog, AuditRecord};
use crate::caller_instructions::KnownInstructions;
use crate::caller_view::CallerView;
use crate::health::rfc3339;
use crate::lock::lock;
use crate::path_note::PathNote;
use crate::response_cache::ResponseCache;
use crate::rights::{CurrentPolicy, Identified, OpenPolicy, Policy};
use crate::subscriptions::{SubscriptionConfig, SubscriptionHub};
use crate::tools::ToolsConfig;
use crate::tools::source::ShadowedTools;
use crate::view::View;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name by which programs identify the server. Default: the file name of the program.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The version of the server. Default: `0.0.0`.
    pub version: String,
    /// A description of the server.
    pub description: Option<String>,
    /// Instructions for models that use the server. Default: generated for each caller from the resources that it may
    /// see.
    pub instructions: Option<String>,
    /// Whether clients are offered the prompt `use-resources`, which tells a model what the server has. Default: yes.
    pub built_in_prompt: bool,
    /// Notes on resources by path, which the default instructions and `libris://index` contain.
    pub notes: Vec<PathNote>,
    /// The number of items per page of a list, for example of resources or prompts. Default: 100.
    pub page: usize,
    /// The size of the response cache in bytes; 0 disables it. Default: 36 MiB.
    pub cache_bytes: u64,
    /// Limits and debouncing of subscriptions.
    pub subscriptions: SubscriptionConfig,
    /// The tools for models.
    pub tools: ToolsConfig,
    /// The page that hosts show inside a chat, with the tool that opens it. Default: none.
    pub app: Option<Arc<dyn AppPage>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: program(),
            title: None,
            version: "0.0.0".into(),
            description: None,
            instructions: None,
            built_in_prompt: true,
            notes: Vec::new(),
            page: 100,
            cache_bytes: 36 << 20,
            subscriptions: SubscriptionConfig::default(),
            tools: ToolsConfig::default(),
            app: None,
        }
    }
}

/// The file name of the running program, without its extension.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name =
        path.as_deref().and_then(|path| path.file_stem()).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "server".to_owned())
}

/// A source as an MCP service.
pub struct Server {
    inner: Arc<ServerInner>,
    /// The view of anonymous callers, cached until the policy is replaced.
    anonymous: RwLock<Arc<CallerView>>,
    /// The views of identities, by the address of the identity's data. The view keeps the data alive, so that no other
    /// identity gets the same address.
    identified: Cache<usize, Arc<CallerView>>,
}

/// The maximum number of views of identities that are cached.
const CACHED_VIEWS: usize = 4_096;

/// The maximum number of rights classes whose instructions are cached.
const CACHED_INSTRUCTIONS: usize = 64;

/// The state that all views of a server share.
pub(crate) struct ServerInner {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) access: Arc<CurrentPolicy>,
    pub(crate) config: Config,
    pub(crate) cache: ResponseCache,
    pub(crate) hub: SubscriptionHub,
    /// The generated instructions, by rights class.
    pub(crate) instructions: Cache<u64, Arc<KnownInstructions>>,
    /// The source, if it is a catalog.
    catalog: Option<Arc<Catalog>>,
    pub(crate) audit: Option<Arc<dyn AuditLog>>,
    pub(crate) shadowed_tools: ShadowedTools,
}

impl ServerInner {
    /// The name and description of the server.
    pub(crate) fn info(&self) -> ServerInfo {
        let Config { name, title, version, description, instructions, .. } = self.config.clone();
        ServerInfo { name, title, version, description, instructions }
    }

    /// Starts the search index of a catalog that builds it on demand, and waits a few seconds for it.
    pub(crate) async fn start_search(&self) {
        #[cfg(feature = "search")]
        if let Some(catalog) = &self.catalog {
            catalog.start_search_on_demand().await;
        }
    }

    /// Whether the sizes in the metadata of a resource are reliable, because they do not come from another MCP server.
    pub(crate) fn has_own_sizes(&self, uri: &Uri) -> bool {
        match &self.catalog {
            Some(catalog) => catalog.has_own_sizes(uri),
            None => !self.source.is_exclusive(),
        }
    }

    fn replace_policy(&self, policy: Arc<dyn Policy>) {
        self.access.replace(policy);
        self.hub.rights_changed();
    }

    fn revoke(&self) {
        self.access.invalidate();
        self.hub.rights_changed();
    }
}

/// Replaces the policy of a server that [`Serve`](crate::Serve) runs.
#[derive(Clone, Default)]
pub struct PolicyHandle(Arc<Mutex<PolicyState>>);

#[derive(Default)]
struct PolicyState {
    /// The policy that was set last, for servers that are started later.
    replaced: Option<Arc<dyn Policy>>,
    servers: Vec<Weak<ServerInner>>,
}

impl PolicyHandle {
    /// Replaces the policy, for open sessions and streams too.
    pub fn replace(&self, policy: Arc<dyn Policy>) {
        let mut state = lock(&self.0);
        state.replaced = Some(policy.clone());
        state.servers.retain(|server| server.strong_count() > 0);
        for server in state.servers.iter().filter_map(Weak::upgrade) {
            server.replace_policy(policy.clone());
        }
    }

    /// Adds a server. If the policy was replaced before, the server gets the new policy.
    pub(crate) fn attach(&self, server: &Server) {
        let mut state = lock(&self.0);
        state.servers.push(Arc::downgrade(&server.inner));
        if let Some(policy) = &state.replaced {
            server.inner.replace_policy(policy.clone());
        }
    }
}

/// How often the tasks of a policy check whether the server was dropped.
const DROPPED_CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl Server {
    /// Serves a source, usually a [`Catalog`](crate::Catalog), without access control.
    pub fn new(source: Arc<dyn Source>, config: Config) -> Self {
        Self::with_policy(source, config, Arc::new(OpenPolicy))
    }

    /// Serves a source under a policy, which authenticates callers and grants them rights.
    pub fn with_policy(source: Arc<dyn Source>, config: Config, policy: Arc<dyn Policy>) -> Self {
        Self::build(source, config, policy, None, None)
    }

    /// Serves a source under a policy, and records the decisions in an audit log.
    pub fn with_audit(
        source: Arc<dyn Source>,
        config: Config,
        policy: Arc<dyn Policy>,
        audit: Arc<dyn AuditLog>,
    ) -> Self {
        Self::build(source, config, policy, None, Some(audit))
    }

    /// Serves a catalog under a policy, with the health of its sources in the metrics.
    pub(crate) fn of_catalog(
        catalog: Arc<Catalog>,
        config: Config,
        policy: Arc<dyn Policy>,
        audit: Option<Arc<dyn AuditLog>>,
    ) -> Self {
        Self::build(catalog.clone(), config, policy, Some(catalog), audit)
    }

    fn build(
        source: Arc<dyn Source>,
        config: Config,
        policy: Arc<dyn Policy>,
        catalog: Option<Arc<Catalog>>,
        audit: Option<Arc<dyn AuditLog>>,
    ) -> Self {
        let relay = catalog.as_ref().and_then(|catalog| catalog.relay());
        let recent = relay.map(|relay| relay.recent().clone());
        let hub = SubscriptionHub::new(source.clone(), config.subscriptions.clone(), recent);
        let access = Arc::new(CurrentPolicy::new(policy));
        let inner = Arc::new(ServerInner {
            source,
            access,
            cache: ResponseCache::new(config.cache_bytes),
            config,
            hub,
            instructions: Cache::new(CACHED_INSTRUCTIONS),
            catalog,
            audit,
            shadowed_tools: ShadowedTools::default(),
        });
        let anonymous = RwLock::new(Arc::new(CallerView::new(inner.clone(), None)));
        Self { anonymous, identified: Cache::new(CACHED_VIEWS), inner }
    }

    /// Replaces the policy, for open sessions and streams too. Listeners whose rights class changed get `list_changed`.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        self.inner.access.replace(policy);
        self.inner.hub.rights_changed();
    }

    /// Evaluates the rights of every open session and stream again, because identities were revoked. Event streams of
    /// identities that are no longer valid end.
    pub fn revoke(&self) {
        self.inner.revoke();
    }

    /// Runs the tasks of the policy, such as reloading keys, until the server is dropped.
    pub(crate) fn maintain(&self) -> impl Future<Output = ()> + Send + 'static {
        let (access, inner) = (self.inner.access.clone(), Arc::downgrade(&self.inner));
        async move {
            let revoked = || {
                if let Some(inner) = inner.upgrade() {
                    inner.revoke();
                }
            };
            let mut checks = tokio::time::interval(DROPPED_CHECK_INTERVAL);
            let mut maintained = std::pin::pin!(access.maintain(&revoked));
            loop {
                tokio::select! {
                    () = &mut maintained => return,
                    _ = checks.tick() => if inner.strong_count() == 0 { return },
                }
            }
        }
    }

    /// The view of a caller with this identity, for programs that list and read without MCP.
    pub fn view_for(&self, identity: Option<Identity>) -> View {
        View::new(self.inner.source.clone(), self.inner.access.clone(), identity)
    }

    fn anonymous(&self) -> Arc<CallerView> {
        let view = self.anonymous.read().unwrap_or_else(PoisonError::into_inner);
        if view.is_current() {
            return view.clone();
        }
        drop(view);
        let view = Arc::new(CallerView::new(self.inner.clone(), None));
        *self.anonymous.write().unwrap_or_else(PoisonError::into_inner) = view.clone();
        view
    }

    fn view(&self, identity: Option<Identity>) -> Arc<dyn libris_wire::ServiceView> {
        match identity {
            None => self.anonymous(),
            Some(identity) => self.identified(identity),
        }
    }

    fn identified(&self, identity: Identity) -> Arc<CallerView> {
        let key = identity.address();
        if let Some(view) = self.identified.get(&key).filter(|view| view.is_current()) {
            return view;
        }
        let view = Arc::new(CallerView::new(self.inner.clone(), Some(identity)));
        self.identified.insert(key, view.clone());
        view
    }

    /// Records that a caller was refused.
    fn audit_refusal(&self, caller: &Caller<'_>, began: Instant) {
        if let Some(log) = &self.inner.audit {
            log.record(&AuditRecord {
                who: None,
                address: caller.client.address(),
                operation: "authenticate",
                uri: None,
                decision: AuditDecision::Deny,
                rule: None,
                failure: None,
                bytes: 0,
                took: began.elapsed(),
            });
        }
    }
}

#[async_trait]
impl Service for Server {
    fn info(&self) -> ServerInfo {
        self.inner.info()
    }

    fn cached_view(&self, caller: &Caller<'_>) -> Option<Arc<dyn libris_wire::ServiceView>> {
        match self.inner.access.identify(caller) {
            Identified::Caller(identity) => Some(self.view(identity)),
            Identified::Refused(_) | Identified::Deferred => None,
        }
    }

    async fn admit(&self, caller: &Caller<'_>) -> Result<Arc<dyn libris_wire::ServiceView>, Refusal> {
        let began = Instant::now();
        let identified = match self.inner.access.identify(caller) {
            Identified::Caller(identity) => Ok(identity),
            Identified::Refused(refusal) => Err(refusal),
            Identified::Deferred => self.inner.access.policy().authentication().authenticate(caller).await,
        };
        let identity = identified.inspect_err(|_| self.audit_refusal(caller, began))?;
        Ok(self.view(identity))
    }

    fn scope_challenge(&self, scopes: &[Box<str>]) -> Option<String> {
        self.inner.access.policy().authentication().scope_challenge(scopes)
    }

    fn public_document(&self, path: &str) -> Option<String> {
        self.inner.access.policy().authentication().public_document(path)
    }

    fn degradation(&self) -> Option<String> {
        let cluster = self.inner.catalog.as_ref()?.health().cluster().filter(|state| !state.is_connected)?;
        // The reason may name hosts, so only `libris://status` and the log have it.
        Some(format!("the other replicas cannot be reached since {}", rfc3339(cluster.since)))
    }

    fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts = self.inner.hub.counts();
        counts.push(("cache_bytes", self.inner.cache.bytes()));
        counts.extend(self.inner.audit.iter().map(|log| ("audit_dropped_total", log.dropped())));
        counts.extend(self.inner.catalog.iter().flat_map(|catalog| catalog.health().counts()));
        let relay = self.inner.catalog.as_ref().and_then(|catalog| catalog.relay());
        counts.extend(relay.iter().flat_map(|relay| relay.counts()));
        counts
    }
}

/// Converts an error to its protocol form. The cause is logged and not sent: it could contain a path, a query or a
/// secret.
pub(crate) fn to_failure(error: Error) -> Failure {
    match &error {
        Error::NotFound(uri) | Error::Denied(uri) => Failure::not_found(uri.as_str()),
        Error::Missing { uri, hint, .. } => {
            Failure::NotFound { uri: uri.to_string(), hint: Some(hint.clone()) }
        }
        Error::ScopeRequired { scopes, .. } => {
            Failure::ScopeRequired { scopes: scopes.clone(), message: error.to_string() }
        }
        Error::Invalid(_) | Error::NotDirectory(_) => Failure::invalid(error.to_string()),
        Error::TooLarge { uri, size, limit, hint } => {
            let message = match hint {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            };
            let data = serde_json::json!({ "uri": uri, "size": size, "limit": limit });
            Failure::Internal { message, data: Some(data) }
        }
        Error::Busy(_) => {
            tracing::debug!(%error, "a request was refused");
            Failure::Busy { message: error.to_string() }
        }
        Error::InputRequired(required) => {
            let InputRequired { requests, state } = &**required;
            Failure::InputRequired { requests: requests.clone().map(Into::into), state: state.clone() }
        }
        Error::Unavailable(_) => {
            tracing::warn!(%error, "a request failed");
            Failure::Internal { message: error.to_string(), data: None }
        }
        _ => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, cause = cause.as_deref(), "a source failed");
            if !tracing::dispatcher::has_been_set() {
                // A program without a tracing subscriber would not show the failure anywhere.
                eprintln!("libris: {error}: {}", cause.unwrap_or_default());
            }
            Failure::Internal { message: error.to_string(), data: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Config;
    use crate::subscriptions::SubscriptionConfig;
    use crate::{last_known, list_cache, shared_reads};
    use libris_wire::http;

    /// Clients can fill all budgets at once, so it is their sum that must fit into the memory of a small machine.
    #[test]
    fn all_memory_budgets_together_are_within_240_mib() {
        let http::Config { head_bytes, receiving_bytes, body_bytes, limits, .. } = http::Config::default();
        let Config {
            cache_bytes,
            subscriptions: SubscriptionConfig { subscription_bytes, client_subscription_bytes, .. },
            ..
        } = Config::default();
        let budgets = [
            head_bytes,
            receiving_bytes,
            body_bytes,
            limits.content_bytes,
            cache_bytes as usize,
            subscription_bytes,
            shared_reads::CACHE_BYTES as usize,
            shared_reads::LOADING_BYTES,
            last_known::CATALOG_LIMIT * last_known::TEXT_UNIT,
            remembered_credentials(),
            libris_documents::ReaderConfig::new("libris", [""; 0]).cache_bytes,
        ];
        let sum: usize = budgets.iter().sum();
        assert!(sum <= 240 << 20, "{} MiB: {budgets:?}; docs/protocol.md promises 240 MiB", sum >> 20);
        // The list cache is used only by programs with `#[list]` functions.
        let sum = sum + list_cache::CACHE_BYTES;
        assert!(sum <= 268 << 20, "{} MiB; docs/protocol.md promises 268 MiB", sum >> 20);
        assert!(client_subscription_bytes < subscription_bytes);
    }

    #[cfg(feature = "auth")]
    fn remembered_credentials() -> usize {
        libris_auth::Authenticator::CACHE_BYTES
    }

    #[cfg(not(feature = "auth"))]
    fn remembered_credentials() -> usize {
        0
    }

    /// The share of one client in each budget suffices for the largest contents and messages that the defaults allow.
    #[test]
    fn each_memory_budget_holds_the_largest_content() {
        let http::Config { body_bytes, limits, .. } = http::Config::default();
        let share = |bytes: usize| bytes - bytes / 4;
        let content = 8 << 20;
        // A quarter of each budget is for smaller contents and messages.
        assert!(share(share(limits.content_bytes)) >= 2 * content);
        assert!(share(share(body_bytes)) >= 2 * limits.message);
        assert!(share(shared_reads::LOADING_BYTES) >= content);
        assert!(shared_reads::CACHE_BYTES as usize / 2 > content);
        assert!(Config::default().cache_bytes as usize / 2 / 10 * 9 > content / 3 * 4);
    }
}
