//! The identity of an authenticated caller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;

use crate::Meta;

/// How a caller was authenticated. Two callers with the same name are the same principal only if they were authenticated in
/// the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Authentication {
    /// By the program that embeds the server.
    Program,
    /// Without credentials: the local user who started the server over stdio.
    LocalUser,
    /// By an access token of this issuer.
    Token {
        /// The `iss` claim.
        issuer: Arc<str>,
    },
    /// By the API key with this id.
    ApiKey {
        /// The id, which is not secret.
        id: Arc<str>,
    },
    /// By a TLS client certificate.
    Certificate,
}

/// The identity of an authenticated caller. Clones share their data.
#[derive(Clone, Debug)]
pub struct Identity(Arc<IdentityData>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct IdentityData {
    name: Arc<str>,
    authentication: Authentication,
    groups: BTreeSet<Box<str>>,
    scopes: BTreeSet<Box<str>>,
    claims: Arc<Meta>,
    expires: Option<SystemTime>,
    signing_key: Option<Arc<str>>,
}

impl Identity {
    /// An identity with this name, authenticated by the program that embeds the server.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(IdentityData {
            name: name.into(),
            authentication: Authentication::Program,
            groups: BTreeSet::new(),
            scopes: BTreeSet::new(),
            claims: Arc::default(),
            expires: None,
            signing_key: None,
        }))
    }

    /// Changes the data of this clone. Other clones keep theirs.
    fn with(mut self, change: impl FnOnce(&mut IdentityData)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Sets how the caller was authenticated.
    pub fn with_authentication(self, authentication: Authentication) -> Self {
        self.with(|data| data.authentication = authentication)
    }

    /// Sets the groups to which the caller belongs.
    pub fn with_groups<G: Into<Box<str>>>(self, groups: impl IntoIterator<Item = G>) -> Self {
        self.with(|data| data.groups = groups.into_iter().map(Into::into).collect())
    }

    /// Sets the scopes that were granted to the caller.
    pub fn with_scopes<S: Into<Box<str>>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.with(|data| data.scopes = scopes.into_iter().map(Into::into).collect())
    }

    /// Sets further claims, such as an e-mail address.
    pub fn with_claims(self, claims: Meta) -> Self {
        self.with(|data| data.claims = Arc::new(claims))
    }

    /// Sets when the credentials expire.
    pub fn with_expiry(self, expires: Option<SystemTime>) -> Self {
        self.with(|data| data.expires = expires)
    }

    /// Sets the fingerprint of the key that verified the token.
    pub fn with_signing_key(self, fingerprint: Arc<str>) -> Self {
        self.with(|data| data.signing_key = Some(fingerprint))
    }

    /// The name: the subject of a token or certificate, or the name of an API key.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How the caller was authenticated.
    pub fn authentication(&self) -> &Authentication {
        &self.0.authentication
    }

    /// The groups to which the caller belongs.
    pub fn groups(&self) -> &BTreeSet<Box<str>> {
        &self.0.groups
    }

    /// The scopes that were granted to the caller.
    pub fn scopes(&self) -> &BTreeSet<Box<str>> {
        &self.0.scopes
    }

    /// Further claims.
    pub fn claims(&self) -> &Meta {
        &self.0.claims
    }

    /// When the credentials expire.
    pub fn expires(&self) -> Option<SystemTime> {
        self.0.expires
    }

    /// The fingerprint of the key that verified the token. It differs between keys with the same id.
    pub fn signing_key(&self) -> Option<&str> {
        self.0.signing_key.as_deref()
    }

    /// Whether the credentials have expired at this time.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        self.0.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether both identities are of the same principal, as after a token was renewed: the same name, authenticated in
    /// the same way by the same authority.
    pub fn is_same_principal(&self, other: &Self) -> bool {
        self.0.name == other.0.name && self.0.authentication == other.0.authentication
    }

    /// The memory address of the data that clones of this identity share. A cache may use it as a key while it holds a
    /// clone; as long as a clone exists, the address is not reused.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// A cache key. It differs between identities with different names, authentication, groups, scopes or claims. It is
    /// the same for identities that differ only in expiry or signing key, so that a renewed token has the same key.
    pub(crate) fn cache_key(&self) -> String {
        let IdentityData { name, authentication, groups, scopes, claims, expires: _, signing_key: _ } =
            &*self.0;
        json!([**name, format!("{authentication:?}"), groups, scopes, **claims]).to_string()
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Identity {}

#[cfg(test)]
mod tests {
    use super::{Authentication, Identity};
    use std::time::{Duration, SystemTime};

    fn token(name: &str, issuer: &str) -> Identity {
        Identity::new(name).with_authentication(Authentication::Token { issuer: issuer.into() })
    }

    #[test]
    fn a_principal_is_a_name_and_its_authentication() {
        let ada = token("ada", "https://one.example");
        assert!(ada.is_same_principal(&ada.clone().with_scopes(["read"]).with_groups(["staff"])));
        assert!(!ada.is_same_principal(&token("bob", "https://one.example")));
        assert!(!ada.is_same_principal(&token("ada", "https://other.example")));
        assert!(!ada.is_same_principal(&Identity::new("ada")));
        let key =
            |id: &str| Identity::new("ada").with_authentication(Authentication::ApiKey { id: id.into() });
        assert!(key("1").is_same_principal(&key("1")) && !key("1").is_same_principal(&key("2")));
    }

    #[test]
    fn cache_keys_distinguish_identities_but_ignore_the_expiry() {
        let ada = token("ada", "https://one.example");
        let others = [
            token("ada", "https://other.example"),
            ada.clone().with_groups(["staff"]),
            ada.clone().with_scopes(["staff"]),
            ada.clone().with_claims([("role".to_owned(), "editor".into())].into_iter().collect()),
        ];
        for other in &others {
            assert_ne!(ada, *other);
            assert_ne!(ada.cache_key(), other.cache_key(), "{other:?}");
        }
        let later = ada.clone().with_expiry(Some(SystemTime::now()));
        assert_eq!(ada.cache_key(), later.cache_key());
    }

    #[test]
    fn credentials_have_expired_from_their_expiry_on() {
        let now = SystemTime::now();
        let ada = Identity::new("ada").with_expiry(Some(now));
        assert!(ada.has_expired(now) && !ada.has_expired(now - Duration::from_nanos(1)));
        assert!(!Identity::new("ada").has_expired(now));
    }
}
