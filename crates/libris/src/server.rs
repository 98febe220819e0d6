//! A source spoken over MCP.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use libris_core::{Error, Identity, Source};
use libris_wire::{About, Caller, Failure, Refusal, Service};

use crate::Catalog;
use crate::caller_view::CallerView;
use crate::health::Health;
use crate::response_cache::ResponseCache;
use crate::rights::{Access, OpenPolicy, Policy};
use crate::subscriptions::{Hub, SubscriptionConfig};
use crate::view::View;

/// How a source is served.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's name to programs.
    pub name: String,
    /// Its name to people.
    pub title: Option<String>,
    /// Its version.
    pub version: String,
    /// What it is.
    pub description: Option<String>,
    /// What a model should know about using it.
    pub instructions: Option<String>,
    /// How many resources or templates one page holds.
    pub page: usize,
    /// How many bytes of encoded answers are kept in memory.
    pub cache_bytes: u64,
    /// How changes are told.
    pub subscriptions: SubscriptionConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "libris".into(),
            title: None,
            version: env!("CARGO_PKG_VERSION").into(),
            description: None,
            instructions: None,
            page: 100,
            cache_bytes: 64 << 20,
            subscriptions: SubscriptionConfig::default(),
        }
    }
}

/// A source spoken over MCP.
pub struct Server {
    inner: Arc<Inner>,
    /// The view of callers that have not shown who they are, as the policy had it when it was last asked for.
    anonymous: RwLock<Arc<CallerView>>,
}

/// What all views of a server share.
pub(crate) struct Inner {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) access: Arc<Access>,
    pub(crate) config: Config,
    pub(crate) cache: ResponseCache,
    pub(crate) hub: Hub,
    health: Option<Arc<Health>>,
}

impl Server {
    /// Serves this source, which is most often a [`Catalog`](crate::Catalog), to everybody.
    pub fn new(source: Arc<dyn Source>, config: Config) -> Self {
        Self::with_policy(source, config, Arc::new(OpenPolicy))
    }

    /// Serves this source to whom the policy admits, and as much of it as the policy shows.
    pub fn with_policy(source: Arc<dyn Source>, config: Config, policy: Arc<dyn Policy>) -> Self {
        Self::build(source, config, policy, None)
    }

    /// Serves this catalog to everybody, with the health of its sources in the metrics.
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
        let hub = Hub::new(source.clone(), config.subscriptions.clone());
        let access = Arc::new(Access::new(policy));
        let inner = Arc::new(Inner {
            source,
            access,
            cache: ResponseCache::new(config.cache_bytes),
            config,
            hub,
            health,
        });
        Self { anonymous: RwLock::new(Arc::new(CallerView::new(inner.clone(), None))), inner }
    }

    /// Replaces the policy. OpenPolicy sessions and streams keep to the new one from now on, and those whose rights have
    /// changed are told that their list has.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        self.inner.access.replace(policy);
        self.inner.hub.rights_changed();
    }

    /// What a caller with this identity may see, for those who list and read without the protocol.
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

    fn view(&self, caller: &Caller<'_>) -> Result<Arc<dyn libris_wire::View>, Refusal> {
        Ok(match self.inner.access.identify(caller)? {
            None => self.anonymous(),
            identity => Arc::new(CallerView::new(self.inner.clone(), identity)),
        })
    }
}

#[async_trait]
impl Service for Server {
    fn about(&self) -> About {
        let Config { name, title, version, description, instructions, .. } = self.inner.config.clone();
        About { name, title, version, description, instructions }
    }

    fn known(&self, caller: &Caller<'_>) -> Option<Arc<dyn libris_wire::View>> {
        self.view(caller).ok()
    }

    async fn admit(&self, caller: &Caller<'_>) -> Result<Arc<dyn libris_wire::View>, Refusal> {
        self.view(caller)
    }

    fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts = self.inner.hub.counts();
        counts.push(("cache_bytes", self.inner.cache.bytes()));
        counts.extend(self.inner.health.iter().flat_map(|health| health.counts()));
        counts
    }
}

/// What is sent of an error. Causes are logged: they could name a path, a query or a secret.
pub(crate) fn explain(error: Error) -> Failure {
    match &error {
        Error::NotFound(uri) | Error::Denied(uri) => Failure::NotFound { uri: uri.to_string() },
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
                // Whoever writes a first server has no log yet, and would look for this in vain.
                eprintln!("libris: {error}: {}", cause.unwrap_or_default());
            }
            Failure::Internal { message: error.to_string(), data: None }
        }
    }
}
