//! An issuer of access tokens, and its keys as they were last fetched.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use crate::config::{AuthConfig, ConfigError, IssuerConfig};
use crate::discovery::{DocumentClient, KeySetLocation};
use crate::key_set::KeySet;

/// A key set from a URL is fetched again after this time, so that tokens signed with a withdrawn key are refused.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// An issuer of access tokens.
pub(crate) struct Issuer {
    pub(crate) config: IssuerConfig,
    pub(crate) name: Arc<str>,
    /// The text of all settings that decide what identity a token of this issuer has.
    settings: String,
    location: KeySetLocation,
    client: DocumentClient,
    keys: RwLock<Option<Arc<KeySet>>>,
    /// Incremented when the keys of any issuer change. Shared with the [`Authenticator`](crate::Authenticator).
    generation: Arc<AtomicU64>,
    /// Held during a fetch, so that at most one fetch runs at a time.
    fetches: tokio::sync::Mutex<()>,
    attempt: Mutex<Attempt>,
}

/// The last attempt to fetch the keys.
#[derive(Default)]
struct Attempt {
    at: Option<Instant>,
    /// The modification time and size of the file with the key set; `None` for a key set from a URL.
    stamp: Option<(SystemTime, u64)>,
}

impl Issuer {
    /// The issuers of a configuration that passed [`AuthConfig::check`]. `generation` is incremented when the keys of
    /// any issuer change. An issuer of `current` whose settings are unchanged is kept, with its fetched keys.
    pub(crate) fn all(
        config: &AuthConfig,
        generation: &Arc<AtomicU64>,
        current: &[Arc<Self>],
    ) -> Result<Vec<Arc<Self>>, ConfigError> {
        let settings_of = |issuer: &IssuerConfig| {
            format!("{:?}", (issuer, &config.resource, &config.scopes, &config.implied_scopes))
        };
        let mut locations = Vec::new();
        for issuer in &config.issuers {
            let location =
                KeySetLocation::of(issuer).map_err(|_| ConfigError::Issuer(issuer.issuer.clone()))?;
            locations.push((issuer, location));
        }
        let is_https = |location: &KeySetLocation| match location {
            KeySetLocation::Url(url) | KeySetLocation::Discovered(url) => url.scheme() == "https",
            KeySetLocation::File(_) => false,
        };
        // Loads the certificates of the system only if they are needed: a machine may have none.
        let secure = locations.iter().any(|(_, location)| is_https(location));
        let client = DocumentClient::new(secure).map_err(ConfigError::Tls)?;
        let issuers = locations.into_iter().map(|(config, location)| {
            let settings = settings_of(config);
            if let Some(unchanged) = current.iter().find(|current| current.settings == settings) {
                return unchanged.clone();
            }
            Arc::new(Self {
                settings,
                name: config.issuer.as_str().into(),
                config: config.clone(),
                location,
                client: client.clone(),
                keys: RwLock::default(),
                generation: generation.clone(),
                fetches: tokio::sync::Mutex::default(),
                attempt: Mutex::default(),
            })
        });
        Ok(issuers.collect())
    }

    /// The keys as they were last fetched.
    pub(crate) fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn attempt(&self) -> std::sync::MutexGuard<'_, Attempt> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches the keys because the key set `known` lacks the key of a token; `None`: no keys were fetched yet. Does
    /// nothing if the keys were replaced since, or if the last attempt was less than `min_refresh_interval` ago.
    /// Concurrent callers share a fetch, which continues when a caller disconnects.
    pub(crate) async fn refresh(self: &Arc<Self>, known: Option<&Arc<KeySet>>) {
        let (issuer, known) = (self.clone(), known.cloned());
        let fetching = tokio::spawn(async move {
            let _fetching = issuer.fetches.lock().await;
            let current = issuer.keys();
            let was_replaced = match (&current, &known) {
                (Some(current), Some(known)) => !Arc::ptr_eq(current, known),
                (current, known) => current.is_some() != known.is_some(),
            };
            let last = issuer.attempt().at;
            let too_soon = last.is_some_and(|last| last.elapsed() < issuer.config.min_refresh_interval);
            if !was_replaced && !too_soon {
                issuer.fetch().await;
            }
        });
        // Fails only if the task panicked; then the keys are unchanged.
        let _ = fetching.await;
    }

    /// Starts a fetch in the background if keys from a URL are older than [`MAX_AGE`], or if the file with the keys has
    /// changed.
    pub(crate) fn keep_current(self: &Arc<Self>) {
        // The first token causes the first fetch.
        if self.keys().is_none() {
            return;
        }
        let due = match &self.location {
            KeySetLocation::File(path) => {
                let stamp = stamp(path);
                stamp.is_some() && stamp != self.attempt().stamp
            }
            _ => self.attempt().at.is_none_or(|last| last.elapsed() >= MAX_AGE),
        };
        if due {
            self.begin_attempt();
            let issuer = self.clone();
            tokio::spawn(async move {
                let _fetching = issuer.fetches.lock().await;
                issuer.fetch().await;
            });
        }
    }

    fn begin_attempt(&self) {
        let mut attempt = self.attempt();
        attempt.at = Some(Instant::now());
        if let KeySetLocation::File(path) = &self.location {
            attempt.stamp = stamp(path);
        }
    }

    /// Fetches the keys, and replaces the current keys if the fetched keys differ. On failure, the current keys stay in
    /// use.
    async fn fetch(&self) {
        self.begin_attempt();
        let fetched = match self.client.key_set(&self.name, &self.location, &self.settings).await {
            Ok(fetched) => fetched,
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(issuer = &*self.name, %error, cause, "could not fetch the keys of an issuer");
                return;
            }
        };
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.as_ref().is_some_and(|keys| keys.is_same(&fetched)) {
            return;
        }
        tracing::info!(issuer = &*self.name, keys = fetched.len(), "fetched the keys of an issuer");
        *keys = Some(Arc::new(fetched));
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

/// The modification time and size of a file.
fn stamp(path: &std::path::Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
