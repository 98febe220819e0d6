//! Authenticates callers by their credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use libris_core::{Authentication, Identity};
use libris_wire::{Caller, Channel, Refusal};

use crate::api_keys::{KeyFile, KeyStore, PREFIX};
use crate::bearer::{self, InvalidToken};
use crate::config::{AuthConfig, ConfigError};
use crate::issuer::Issuer;
use crate::jwt::UnverifiedToken;
use crate::metadata::{self, ProtectedResource};
use crate::remembered::RememberedCredentials;
use crate::{certificate, local_user, ring_verifier};

/// How often to check with `stat` whether a key file has changed. The check is cheap, and more reliable than a file
/// watch, which ends when the file is replaced.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Authenticates callers: access tokens, API keys, client certificates, and the local user.
pub struct Authenticator {
    config: AuthConfig,
    resource: Option<ProtectedResource>,
    issuers: Vec<Arc<Issuer>>,
    keys: Option<KeyStore>,
    remembered: RememberedCredentials,
    /// Generation counter, incremented when the API keys or the keys of an issuer change. A cached credential with an
    /// older generation is verified again.
    generation: Arc<AtomicU64>,
    local_user: Identity,
}

impl Authenticator {
    /// The memory limit of the cache of verified credentials, in bytes.
    pub const CACHE_BYTES: usize = 4 << 20;

    /// Checks the configuration and reads the API keys. The keys of issuers are fetched when the first token arrives.
    pub fn new(config: AuthConfig) -> Result<Self, ConfigError> {
        Self::with_issuers_of(config, Arc::default(), &[])
    }

    /// Like [`new`](Self::new), for a changed configuration. Issuers whose settings are unchanged keep the keys that
    /// were fetched, and identities of their tokens stay valid.
    pub fn reconfigured(&self, config: AuthConfig) -> Result<Self, ConfigError> {
        Self::with_issuers_of(config, self.generation.clone(), &self.issuers)
    }

    fn with_issuers_of(
        config: AuthConfig,
        generation: Arc<AtomicU64>,
        current: &[Arc<Issuer>],
    ) -> Result<Self, ConfigError> {
        ring_verifier::install();
        config.check()?;
        let keys = config.keys.as_ref().map(|path| KeyStore::open(KeyFile::at(path), &config)).transpose()?;
        Ok(Self {
            resource: ProtectedResource::new(&config)?,
            issuers: Issuer::all(&config, &generation, current)?,
            keys,
            remembered: RememberedCredentials::new(Self::CACHE_BYTES),
            generation,
            local_user: local_user(),
            config,
        })
    }

    /// The metadata of this server as a protected resource; `None` if it accepts no access tokens.
    pub fn resource(&self) -> Option<&ProtectedResource> {
        self.resource.as_ref()
    }

    /// The configuration.
    pub fn config(&self) -> &AuthConfig {
        &self.config
    }

    /// Authenticates a caller without waiting. `None`: the caller sent an access token that is not cached; call
    /// [`authenticate`](Self::authenticate), which verifies its signature. `Some(Ok(None))`: the caller is anonymous.
    pub fn identify(&self, caller: &Caller<'_>) -> Option<Result<Option<Identity>, Refusal>> {
        if caller.channel == Channel::Stdio {
            return Some(Ok(Some(self.local_user.clone())));
        }
        if let Some(identity) = caller.extensions.and_then(|extensions| extensions.get::<Identity>()) {
            return Some(Ok(Some(identity.clone())));
        }
        let generation = self.generation.load(Ordering::Acquire);
        if let Some(authorization) = caller.authorization {
            let credentials = match bearer::credentials(authorization) {
                Ok(credentials) => credentials,
                Err(invalid) => return Some(Err(self.refused(invalid))),
            };
            if let Some(identity) = self.remembered.find(credentials, generation) {
                return Some(Ok(Some(identity)));
            }
            let token = match bearer::token(credentials) {
                Ok(token) => token,
                Err(invalid) => return Some(Err(self.refused(invalid))),
            };
            return match &self.keys {
                Some(keys) if token.starts_with(PREFIX) => {
                    let identity = keys.identify(token).ok_or_else(|| self.refused(InvalidToken::ApiKey));
                    if let Ok(identity) = &identity {
                        self.remembered.insert(caller.client, token.as_bytes(), generation, identity.clone());
                    }
                    Some(identity.map(Some))
                }
                _ if self.issuers.is_empty() => Some(Err(self.refused(InvalidToken::ApiKey))),
                _ => None,
            };
        }
        if let Some(der) = caller.certificate.filter(|_| self.config.client_certificates) {
            if let Some(identity) = self.remembered.find(der, generation) {
                return Some(Ok(Some(identity)));
            }
            let identity = certificate::identity(der).map_err(|invalid| self.refused(invalid));
            if let Ok(identity) = &identity {
                self.remembered.insert(caller.client, der, generation, identity.clone());
            }
            return Some(identity.map(Some));
        }
        Some(match self.config.anonymous {
            true => Ok(None),
            false => Err(Refusal::Unauthenticated {
                challenge: metadata::unauthenticated(self.resource.as_ref(), None),
                message: "authentication is required: send `Authorization: Bearer TOKEN`".to_owned(),
            }),
        })
    }

    /// Authenticates a caller, and verifies an access token that is not cached. `Ok(None)`: the caller is anonymous.
    pub async fn authenticate(&self, caller: &Caller<'_>) -> Result<Option<Identity>, Refusal> {
        if let Some(identified) = self.identify(caller) {
            return identified;
        }
        let credentials = bearer::credentials(caller.authorization.unwrap_or_default());
        let token = credentials.and_then(bearer::token);
        let token = token.map_err(|invalid| self.refused(invalid))?;
        // Loaded before the keys: if the keys change in between, the token is cached with an old generation, so the
        // next request verifies it again.
        let mut generation = self.generation.load(Ordering::Acquire);
        let unverified = UnverifiedToken::parse(token).map_err(|invalid| self.refused(invalid))?;
        let issuer = self.issuers.iter().find(|issuer| *issuer.name == *unverified.issuer());
        let issuer = issuer.ok_or_else(|| self.refused(InvalidToken::Issuer))?;
        // Checked first, so that a token that is refused anyway causes no fetch of keys.
        unverified.check_algorithm(issuer).map_err(|invalid| self.refused(invalid))?;
        let mut keys = issuer.keys();
        if keys.as_ref().is_none_or(|keys| unverified.has_unknown_key(keys)) {
            issuer.refresh(keys.as_ref()).await;
            generation = self.generation.load(Ordering::Acquire);
            keys = issuer.keys();
        }
        let Some(keys) = keys else {
            let message = "the keys of the token's issuer are not available; try again later".to_owned();
            return Err(Refusal::Unavailable { message });
        };
        let resource = self.config.resource.as_deref().unwrap_or_default();
        let identity = unverified.verify(issuer, &keys, resource).map_err(|invalid| self.refused(invalid))?;
        let identity = self.config.with_implied_scopes(identity);
        if self.config.scopes.iter().any(|scope| !identity.scopes().contains(scope)) {
            let challenge = metadata::insufficient_scope(self.resource.as_ref(), &self.config.scopes);
            let message = "the token lacks a scope that this server requires".to_owned();
            return Err(Refusal::Forbidden { challenge, message });
        }
        self.remembered.insert(caller.client, token.as_bytes(), generation, identity.clone());
        Ok(Some(identity))
    }

    /// Whether callers without credentials are admitted.
    pub fn admits_anonymous(&self) -> bool {
        self.config.anonymous
    }

    /// Whether the credentials of an identity are still valid. They must not have expired; the API key or the signing
    /// key must still exist, or client certificates must still be accepted; and the credentials must still give the
    /// caller the same name, groups and scopes.
    pub fn is_valid(&self, identity: &Identity) -> bool {
        if identity.has_expired(SystemTime::now()) {
            return false;
        }
        match identity.authentication() {
            Authentication::ApiKey { id } => {
                self.keys.as_ref().is_some_and(|keys| keys.is_valid(id, identity))
            }
            Authentication::Token { issuer } => {
                let keys =
                    self.issuers.iter().find(|known| known.name == *issuer).and_then(|known| known.keys());
                keys.zip(identity.signing_key()).is_some_and(|(keys, key)| keys.has_fingerprint(key))
            }
            Authentication::Certificate => self.config.client_certificates,
            Authentication::Program | Authentication::LocalUser => true,
        }
    }

    /// The `WWW-Authenticate` header for a caller whose token lacks one of these scopes; `None` if the server accepts
    /// no access tokens. The header also names the scopes that every token needs, because a client replaces its token
    /// by one with exactly the scopes of the challenge.
    pub fn scope_challenge(&self, scopes: &[Box<str>]) -> Option<String> {
        let required = &self.config.scopes;
        let more = scopes.iter().filter(|scope| !required.contains(scope));
        let all: Vec<_> = required.iter().chain(more).collect();
        metadata::insufficient_scope(self.resource.as_ref(), &all)
    }

    /// Reloads the API keys and the key sets of issuers when their files change, and fetches key sets from URLs again
    /// when they are old. Calls `revoked` after each change, because identities may have become invalid. Never returns.
    pub async fn maintain(&self, revoked: &(dyn Fn() + Send + Sync)) {
        let mut polls = tokio::time::interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut notified = self.generation.load(Ordering::Acquire);
        loop {
            polls.tick().await;
            if self.keys.as_ref().is_some_and(|keys| keys.reload(&self.config)) {
                self.generation.fetch_add(1, Ordering::AcqRel);
            }
            self.issuers.iter().for_each(Issuer::keep_current);
            let now = self.generation.load(Ordering::Acquire);
            if now != notified {
                notified = now;
                revoked();
            }
        }
    }

    fn refused(&self, invalid: InvalidToken) -> Refusal {
        Refusal::Unauthenticated {
            challenge: metadata::unauthenticated(self.resource.as_ref(), Some(invalid)),
            message: invalid.to_string(),
        }
    }
}
