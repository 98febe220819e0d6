//! The server: a source as an MCP service.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use libris_core::{Error, Identity, Source};
use libris_wire::{Caller, Failure, Refusal, ServerInfo, Service};

use crate::Catalog;
use crate::caller_view::CallerView;
use crate::health::Health;
use crate::response_cache::ResponseCache;
use crate::rights::{CurrentPolicy, Identified, OpenPolicy, Policy};
use crate::subscriptions::{SubscriptionConfig, SubscriptionHub};
use crate::view::View;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the server, for programs. Default: the file name of the program.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The version of the server. Default: `0.0.0`.
    pub version: String,
    /// A description of the server.
    pub description: Option<String>,
    /// Instructions for models that use the server.
    pub instructions: Option<String>,
    /// The number of resources or templates per page.
    pub page: usize,
    /// The size of the response cache in bytes; 0 disables it.
    pub cache_bytes: u64,
    /// Limits and debouncing of subscriptions.
    pub subscriptions: SubscriptionConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: program(),
            title: None,
            version: "0.0.0".into(),
            description: None,
            instructions: None,
            page: 100,
            cache_bytes: 36 << 20,
            subscriptions: SubscriptionConfig::default(),
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
}

/// The state that all views of a server share.
pub(crate) struct ServerInner {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) access: Arc<CurrentPolicy>,
    pub(crate) config: Config,
    pub(crate) cache: ResponseCache,
    pub(crate) hub: SubscriptionHub,
    health: Option<Arc<Health>>,
}

impl Server {
    /// Serves a source, usually a [`Catalog`](crate::Catalog), without access control.
    pub fn new(source: Arc<dyn Source>, config: Config) -> Self {
        Self::with_policy(source, config, Arc::new(OpenPolicy))
    }

    /// Serves a source under a policy, which authenticates callers and grants them rights.
    pub fn with_policy(source: Arc<dyn Source>, config: Config, policy: Arc<dyn Policy>) -> Self {
        Self::build(source, config, policy, None)
    }

    /// Serves a catalog under a policy, with the health of its sources in the metrics.
    pub(crate) fn of_catalog(catalog: Arc<Catalog>, config: Config, policy: Arc<dyn Policy>) -> Self {
        let health = catalog.health().clone();
        Self::build(catalog, config, policy, Some(health))
    }

    fn build(
        source: Arc<dyn Source>,
        config: Config,
        policy: Arc<dyn Policy>,
        health: Option<Arc<Health>>,
    ) -> Self {
        let hub = SubscriptionHub::new(source.clone(), config.subscriptions.clone());
        let access = Arc::new(CurrentPolicy::new(policy));
        let inner = Arc::new(ServerInner {
            source,
            access,
            cache: ResponseCache::new(config.cache_bytes),
            config,
            hub,
            health,
        });
        Self { anonymous: RwLock::new(Arc::new(CallerView::new(inner.clone(), None))), inner }
    }

    /// Replaces the policy, for open sessions and streams too. Listeners whose rights class changed get `list_changed`.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        self.inner.access.replace(policy);
        self.inner.hub.rights_changed();
    }

    /// Evaluates the rights of every open session and stream again, because identities were revoked. Event streams of
    /// identities that are no longer valid end.
    pub fn revoke(&self) {
        self.inner.access.invalidate();
        self.inner.hub.rights_changed();
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
            identity => Arc::new(CallerView::new(self.inner.clone(), identity)),
        }
    }
}

#[async_trait]
impl Service for Server {
    fn info(&self) -> ServerInfo {
        let Config { name, title, version, description, instructions, .. } = self.inner.config.clone();
        ServerInfo { name, title, version, description, instructions }
    }

    fn cached_view(&self, caller: &Caller<'_>) -> Option<Arc<dyn libris_wire::ServiceView>> {
        match self.inner.access.identify(caller) {
            Identified::Caller(identity) => Some(self.view(identity)),
            Identified::Refused(_) | Identified::Deferred => None,
        }
    }

    async fn admit(&self, caller: &Caller<'_>) -> Result<Arc<dyn libris_wire::ServiceView>, Refusal> {
        let identity = match self.inner.access.identify(caller) {
            Identified::Caller(identity) => identity,
            Identified::Refused(refusal) => return Err(refusal),
            Identified::Deferred => self.inner.access.policy().authenticate(caller).await?,
        };
        Ok(self.view(identity))
    }

    fn scope_challenge(&self, scopes: &[Box<str>]) -> Option<String> {
        self.inner.access.policy().scope_challenge(scopes)
    }

    fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts = self.inner.hub.counts();
        counts.push(("cache_bytes", self.inner.cache.bytes()));
        counts.extend(self.inner.health.iter().flat_map(|health| health.counts()));
        counts
    }
}

/// Converts an error to its protocol form. The cause is logged and not sent: it could contain a path, a query or a
/// secret.
pub(crate) fn to_failure(error: Error) -> Failure {
    match &error {
        Error::NotFound(uri) | Error::Denied(uri) => Failure::not_found(uri.as_str()),
        Error::Missing { uri, hint } => Failure::NotFound { uri: uri.to_string(), hint: Some(hint.clone()) },
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
    use crate::{last_known, shared_reads};
    use libris_wire::http;

    /// Clients can fill all budgets at once, so it is their sum that must fit into the memory of a small machine.
    #[test]
    fn all_memory_budgets_together_are_within_224_mib() {
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
        ];
        let sum: usize = budgets.iter().sum();
        assert!(sum <= 224 << 20, "{} MiB: {budgets:?}; docs/protocol.md promises 224 MiB", sum >> 20);
        assert!(client_subscription_bytes < subscription_bytes);
    }

    /// What one client may have of each budget holds the largest contents and messages that the defaults allow.
    #[test]
    fn each_memory_budget_holds_the_largest_content() {
        let http::Config { body_bytes, limits, .. } = http::Config::default();
        let share = |bytes: usize| bytes - bytes / 4;
        let content = 8 << 20;
        // A quarter of each is for what is smaller.
        assert!(share(share(limits.content_bytes)) >= 2 * content);
        assert!(share(share(body_bytes)) >= 2 * limits.message);
        assert!(share(shared_reads::LOADING_BYTES) >= content);
        assert!(shared_reads::CACHE_BYTES as usize / 2 > content);
        assert!(Config::default().cache_bytes as usize / 2 / 10 * 9 > content / 3 * 4);
    }
}
