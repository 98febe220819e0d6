//! An issuer of access tokens, and its keys as they were last fetched.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use libris_core::{FileVersion, FileVersionStamp};

use crate::config::{AuthConfig, ConfigError, IssuerConfig};
use crate::discovery::{DocumentClient, FetchError, KeySetLocation};
use crate::key_set::KeySet;

/// A key set from a URL is fetched again after this time, so that tokens signed with a withdrawn key are refused.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// The time after which a failed fetch from a URL is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

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
struct Attempt {
    at: Option<Instant>,
    has_failed: bool,
    /// The version of the file with the key set; its stamp is `None` for a key set from a URL.
    version: FileVersion<Option<FileVersionStamp>>,
}

impl Default for Attempt {
    fn default() -> Self {
        Self { at: None, has_failed: false, version: FileVersion::new(None) }
    }
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
    /// changed. After a failed fetch from a URL, the next one follows within [`RETRY_INTERVAL`]; a file that could not be
    /// read is read again at once.
    pub(crate) fn keep_current(self: &Arc<Self>) {
        // The first token causes the first fetch.
        if self.keys().is_none() {
            return;
        }
        let stamp = self.stamp();
        let is_due = match &self.location {
            KeySetLocation::File(_) => stamp.is_some() && self.attempt().version.is_due(&stamp),
            _ => {
                let Attempt { at, has_failed, .. } = *self.attempt();
                let interval = if has_failed { RETRY_INTERVAL } else { MAX_AGE };
                at.is_none_or(|last| last.elapsed() >= interval)
            }
        };
        // If a fetch is running, the next call finds its result.
        if is_due && self.fetches.try_lock().is_ok() {
            let issuer = self.clone();
            tokio::spawn(async move {
                let _fetching = issuer.fetches.lock().await;
                issuer.fetch().await;
            });
        }
    }

    /// The stamp of the file with the key set; `None` for a key set from a URL.
    fn stamp(&self) -> Option<FileVersionStamp> {
        match &self.location {
            KeySetLocation::File(path) => FileVersionStamp::of(path),
            _ => None,
        }
    }

    /// Fetches the keys, and replaces the current keys if the fetched keys differ. On failure, the current keys stay in
    /// use.
    async fn fetch(&self) {
        self.attempt().at = Some(Instant::now());
        // Before the file is read, so that a later change is noticed.
        let stamp = self.stamp();
        let fetched = self.client.key_set(&self.name, &self.location, &self.settings).await;
        let is_new = {
            let mut attempt = self.attempt();
            let had_failed = std::mem::replace(&mut attempt.has_failed, fetched.is_err());
            match &fetched {
                Err(FetchError::File(..)) => attempt.version.set_unreadable(stamp),
                _ => {
                    attempt.version.set_read(stamp);
                    stamp.is_some() || !had_failed
                }
            }
        };
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let issuer = &*self.name;
                // An issuer that cannot be reached is reported once, not at each attempt.
                match is_new {
                    true => tracing::warn!(issuer, %error, cause, "could not fetch the keys of an issuer"),
                    false => {
                        tracing::debug!(issuer, %error, cause, "still could not fetch the keys of an issuer")
                    }
                }
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::Issuer;
    use crate::config::{AuthConfig, IssuerConfig};
    use crate::without_descriptors::{NoDescriptors, is_child};

    const KEY: &str = r#"{"kty":"EC","crv":"P-256","kid":"1","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}"#;

    /// A key is withdrawn while the process has no free file descriptors: the file is read once it has some.
    #[test]
    fn a_withdrawal_is_not_lost_if_the_file_cannot_be_read_for_a_while() {
        let name = "issuer::tests::a_withdrawal_is_not_lost_if_the_file_cannot_be_read_for_a_while";
        if !is_child(name) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        std::fs::write(&path, format!("{{\"keys\":[{KEY}]}}")).unwrap();
        let jwks = Some(path.to_str().unwrap().to_owned());
        let issuers = vec![IssuerConfig { jwks, ..IssuerConfig::new("https://issuer.example") }];
        let config = AuthConfig { issuers, ..AuthConfig::default() };
        let issuer = Issuer::all(&config, &Arc::<AtomicU64>::default(), &[]).unwrap().remove(0);
        let keys = || issuer.keys().unwrap().len();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            issuer.fetch().await;
            assert_eq!(keys(), 1);
            std::fs::write(&path, r#"{"keys":[]}"#).unwrap();
            let exhausted = NoDescriptors::begin();
            for _ in 0..2 {
                issuer.fetch().await;
                assert_eq!(keys(), 1);
            }
            drop(exhausted);
            // The file has not changed since.
            issuer.keep_current();
            let fetched = async {
                while keys() > 0 {
                    tokio::task::yield_now().await;
                }
            };
            let limit = std::time::Duration::from_secs(30);
            tokio::time::timeout(limit, fetched).await.expect("the keys are read again");
        });
    }
}
