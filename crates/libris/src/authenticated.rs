//! Authentication by `libris-auth`, and a policy that grants all rights to every authenticated caller.

use std::sync::Arc;

use async_trait::async_trait;
use libris_auth::Authenticator;
use libris_core::Identity;
use libris_wire::{Caller, Refusal};

use crate::rights::{Authenticate, Identified, Policy, Rights};

#[async_trait]
impl Authenticate for Authenticator {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        Self::identify(self, caller).map_or(Identified::Deferred, Identified::from)
    }

    async fn authenticate(&self, caller: &Caller<'_>) -> Result<Option<Identity>, Refusal> {
        Self::authenticate(self, caller).await
    }

    fn admits_anonymous(&self) -> bool {
        Self::admits_anonymous(self)
    }

    fn is_valid(&self, identity: &Identity) -> bool {
        Self::is_valid(self, identity)
    }

    fn scope_challenge(&self, scopes: &[Box<str>]) -> Option<String> {
        Self::scope_challenge(self, scopes)
    }

    fn public_document(&self, path: &str) -> Option<String> {
        self.resource()?.document(path).map(ToOwned::to_owned)
    }

    async fn maintain(&self, revoked: &(dyn Fn() + Send + Sync)) {
        Self::maintain(self, revoked).await;
    }
}

/// Grants all rights to every authenticated caller, and to anonymous callers if the authentication admits them.
pub struct AuthenticatedCallers {
    authentication: Arc<dyn Authenticate>,
}

impl AuthenticatedCallers {
    /// A policy that admits the callers whom `authentication` accepts.
    pub fn new(authentication: Arc<dyn Authenticate>) -> Self {
        Self { authentication }
    }
}

impl Policy for AuthenticatedCallers {
    fn authentication(&self) -> &dyn Authenticate {
        &*self.authentication
    }

    fn rights(&self, identity: Option<&Identity>) -> Rights {
        match self.authentication.admits(identity) {
            true => Rights::everything(),
            false => Rights::nothing(),
        }
    }
}
