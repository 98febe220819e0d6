//! The configuration of authentication.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use libris_core::Identity;
use serde::Deserialize;
use url::{Host, Url};

use crate::metadata::{OFFLINE_ACCESS, is_scope};

/// The `[auth]` section of the configuration file: how callers authenticate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// The URL of the endpoint as clients know it, such as `https://docs.example.com/mcp`. Access tokens must have this
    /// URL in their `aud` claim. Required if there are issuers.
    pub resource: Option<String>,
    /// The authorization servers whose access tokens are accepted.
    #[serde(rename = "issuer")]
    pub issuers: Vec<IssuerConfig>,
    /// The scopes that every access token must have. Challenges name them, so that clients request them.
    pub scopes: Vec<Box<str>>,
    /// The hierarchy of scopes: a caller with a scope also has the scopes that this scope implies, directly or through
    /// other scopes.
    pub implied_scopes: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// The file of API keys, which `libris key` writes. Relative to the configuration file.
    pub keys: Option<PathBuf>,
    /// Whether requests without credentials are accepted, as requests of an anonymous caller.
    pub anonymous: bool,
    /// Whether a verified TLS client certificate identifies its caller.
    #[serde(skip)]
    pub client_certificates: bool,
}

/// An authorization server whose access tokens are accepted: JWTs, signed with its keys.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The issuer's identifier, exactly as in the `iss` claim of its tokens.
    pub issuer: String,
    /// The URL or the file of its key set (JWKS). Default: the URL in the issuer's metadata.
    #[serde(default)]
    pub jwks: Option<String>,
    /// The accepted signature algorithms.
    #[serde(default = "default_algorithms")]
    pub algorithms: Vec<JwtAlgorithm>,
    /// The claim that names the caller.
    #[serde(default = "default_subject")]
    pub subject_claim: String,
    /// The claim that lists the caller's groups: a name, or a path such as `realm_access.roles`.
    #[serde(default = "default_groups")]
    pub groups_claim: String,
    /// The shortest time between two fetches of the key set because of tokens that name an unknown key. Default: 10
    /// seconds.
    #[serde(skip, default = "default_interval")]
    pub min_refresh_interval: Duration,
}

impl IssuerConfig {
    /// An issuer with default settings.
    pub fn new(issuer: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            jwks: None,
            algorithms: default_algorithms(),
            subject_claim: default_subject(),
            groups_claim: default_groups(),
            min_refresh_interval: default_interval(),
        }
    }
}

/// A signature algorithm. HMAC algorithms are not supported: with a shared secret, whoever can verify a token could
/// also issue one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs)]
pub enum JwtAlgorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

impl From<JwtAlgorithm> for Algorithm {
    fn from(algorithm: JwtAlgorithm) -> Self {
        match algorithm {
            JwtAlgorithm::RS256 => Self::RS256,
            JwtAlgorithm::RS384 => Self::RS384,
            JwtAlgorithm::RS512 => Self::RS512,
            JwtAlgorithm::PS256 => Self::PS256,
            JwtAlgorithm::PS384 => Self::PS384,
            JwtAlgorithm::PS512 => Self::PS512,
            JwtAlgorithm::ES256 => Self::ES256,
            JwtAlgorithm::ES384 => Self::ES384,
            JwtAlgorithm::EdDSA => Self::EdDSA,
        }
    }
}

fn default_algorithms() -> Vec<JwtAlgorithm> {
    vec![JwtAlgorithm::RS256, JwtAlgorithm::PS256, JwtAlgorithm::ES256, JwtAlgorithm::EdDSA]
}

fn default_subject() -> String {
    "sub".to_owned()
}

fn default_groups() -> String {
    "groups".to_owned()
}

fn default_interval() -> Duration {
    Duration::from_secs(10)
}

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There are issuers, but `resource` is missing.
    #[error("`auth.resource` is missing; hint: set it to the URL of the endpoint, as clients know it")]
    ResourceMissing,
    /// The resource is not a URL.
    #[error("`{0}` is not the URL of an endpoint; hint: use one such as `https://docs.example.com/mcp`")]
    Resource(String),
    /// An issuer is not a URL.
    #[error("`{0}` is not the URL of an issuer; hint: use `https`, or `http` for an issuer on this machine")]
    Issuer(String),
    /// The URL of a key set is not secure.
    #[error("`{0}` is not the URL of a key set; hint: use `https`, or `http` for an issuer on this machine")]
    KeySet(String),
    /// Two entries have the same issuer.
    #[error("the issuer `{0}` is configured twice; hint: remove one of the entries")]
    DuplicateIssuer(String),
    /// The list of algorithms is empty.
    #[error("the issuer `{0}` has no algorithms; hint: remove `algorithms`, or name some")]
    NoAlgorithms(String),
    /// A text that cannot be a scope.
    #[error(
        "`{0}` is not a scope: a scope has only ASCII characters, and no spaces, quotation marks or backslashes"
    )]
    Scope(Box<str>),
    /// `offline_access` is among the required scopes.
    #[error("a server cannot require the scope `offline_access`; hint: clients request it from the issuer")]
    OfflineAccess,
    /// The file of API keys cannot be used.
    #[error(transparent)]
    Keys(#[from] crate::KeyFileError),
    /// The TLS client for fetching key sets could not be set up.
    #[error(
        "could not set up TLS with the certificates of the system; hint: install them, as with the package `ca-certificates`"
    )]
    Tls(#[source] rustls::Error),
}

impl AuthConfig {
    /// Whether some kind of credentials is accepted, and requests without credentials are refused. Only then may the
    /// server be reachable from other machines.
    pub fn authenticates(&self) -> bool {
        !self.anonymous && (!self.issuers.is_empty() || self.keys.is_some() || self.client_certificates)
    }

    /// Gives an identity the scopes that its scopes imply.
    pub fn with_implied_scopes(&self, identity: Identity) -> Identity {
        let mut scopes: BTreeSet<&str> = BTreeSet::new();
        let mut rest: Vec<&str> = identity.scopes().iter().map(|scope| &**scope).collect();
        // A scope that was seen before is not followed again, so a cycle ends.
        while let Some(scope) = rest.pop() {
            if scopes.insert(scope) {
                rest.extend(self.implied_scopes.get(scope).into_iter().flatten().map(|scope| &**scope));
            }
        }
        if scopes.len() == identity.scopes().len() {
            return identity;
        }
        let scopes: Vec<Box<str>> = scopes.into_iter().map(Into::into).collect();
        identity.with_scopes(scopes)
    }

    /// Refuses a configuration that is invalid or insecure.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let implied = self.implied_scopes.iter().flat_map(|(scope, implied)| implied.iter().chain([scope]));
        if let Some(scope) = self.scopes.iter().chain(implied).find(|scope| !is_scope(scope)) {
            return Err(ConfigError::Scope(scope.clone()));
        }
        if self.scopes.iter().any(|scope| **scope == *OFFLINE_ACCESS) {
            return Err(ConfigError::OfflineAccess);
        }
        for (at, issuer) in self.issuers.iter().enumerate() {
            let name = &issuer.issuer;
            if !Url::parse(name).is_ok_and(|url| is_secure(&url)) {
                return Err(ConfigError::Issuer(name.clone()));
            }
            if self.issuers[..at].iter().any(|other| other.issuer == *name) {
                return Err(ConfigError::DuplicateIssuer(name.clone()));
            }
            if issuer.algorithms.is_empty() {
                return Err(ConfigError::NoAlgorithms(name.clone()));
            }
            if let Some(jwks) = &issuer.jwks
                && jwks.contains("://")
                && !Url::parse(jwks).is_ok_and(|url| is_secure(&url))
            {
                return Err(ConfigError::KeySet(jwks.clone()));
            }
        }
        Ok(())
    }
}

/// Whether responses from this URL cannot be changed in transit: the URL is `https`, or `http` to a loopback address.
pub(crate) fn is_secure(url: &Url) -> bool {
    let is_local = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.host().is_some() && (url.scheme() == "https" || (url.scheme() == "http" && is_local))
}

#[cfg(test)]
mod tests {
    use super::{AuthConfig, IssuerConfig};

    fn check(change: impl FnOnce(&mut AuthConfig)) -> Result<(), String> {
        let mut config = AuthConfig {
            resource: Some("https://docs.example/mcp".to_owned()),
            issuers: vec![IssuerConfig::new("https://login.example")],
            ..AuthConfig::default()
        };
        change(&mut config);
        config.check().map_err(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_safe_is_refused() {
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|it| it.issuers[0].issuer = "http://127.0.0.1:80".into()), Ok(()));
        assert_eq!(check(|it| it.issuers[0].jwks = Some("http://localhost/jwks".into())), Ok(()));
        assert_eq!(check(|it| it.issuers[0].jwks = Some("keys/jwks.json".into())), Ok(()));
        for issuer in ["http://login.example", "login.example", "ftp://login.example"] {
            let error = check(|it| it.issuers[0].issuer = issuer.into()).unwrap_err();
            assert!(error.contains("is not the URL of an issuer"), "{error}");
        }
        let error = check(|it| it.issuers[0].jwks = Some("http://login.example/jwks".into())).unwrap_err();
        assert!(error.contains("is not the URL of a key set"), "{error}");
        assert!(check(|it| it.issuers.push(it.issuers[0].clone())).unwrap_err().contains("twice"));
        assert!(check(|it| it.issuers[0].algorithms.clear()).unwrap_err().contains("no algorithms"));
        assert!(check(|it| it.scopes = vec!["a b".into()]).unwrap_err().contains("is not a scope"));
        assert!(
            check(|it| it.scopes = vec!["offline_access".into()]).unwrap_err().contains("offline_access")
        );
    }

    #[test]
    fn algorithms_with_a_shared_secret_and_none_do_not_exist() {
        for name in ["HS256", "none", "None", "HS512"] {
            let text = format!("[[issuer]]\nissuer = \"https://login.example\"\nalgorithms = [\"{name}\"]");
            assert!(toml::from_str::<AuthConfig>(&text).is_err(), "{name}");
        }
        let text = "[[issuer]]\nissuer = \"https://login.example\"\nalgorithms = [\"ES384\"]";
        assert!(toml::from_str::<AuthConfig>(text).is_ok());
    }
}
