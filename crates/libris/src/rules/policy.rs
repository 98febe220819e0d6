//! The policy that grants rights by rules.

use std::sync::Arc;

use async_trait::async_trait;
use libris_core::{Identity, Uri};
use libris_wire::{Caller, Refusal};

use super::RuleSet;
use super::classes::RightsClasses;
use crate::rights::{Identified, Operation, Policy, Rights};

/// Grants rights by rules, to callers that another policy authenticates.
pub struct RulesPolicy {
    authentication: Arc<dyn Policy>,
    rules: RuleSet,
    classes: RightsClasses,
}

impl RulesPolicy {
    /// Grants rights by these rules. `authentication` identifies callers; the rights that it grants are not used, except
    /// that an identity whose credentials are no longer valid has none.
    pub fn new(rules: &RuleSet, authentication: Arc<dyn Policy>) -> Self {
        Self { authentication, rules: rules.clone(), classes: RightsClasses::new(rules.rules.clone()) }
    }
}

#[async_trait]
impl Policy for RulesPolicy {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        self.authentication.identify(caller)
    }

    async fn authenticate(&self, caller: &Caller<'_>) -> Result<Option<Identity>, Refusal> {
        self.authentication.authenticate(caller).await
    }

    fn is_valid(&self, identity: &Identity) -> bool {
        self.authentication.is_valid(identity)
    }

    fn scope_challenge(&self, scopes: &[Box<str>]) -> Option<String> {
        self.authentication.scope_challenge(scopes)
    }

    fn public_document(&self, path: &str) -> Option<String> {
        self.authentication.public_document(path)
    }

    async fn maintain(&self, revoked: &(dyn Fn() + Send + Sync)) {
        self.authentication.maintain(revoked).await;
    }

    fn deciding_rule(
        &self,
        identity: Option<&Identity>,
        operation: Operation,
        uri: &Uri,
        aliases: &[Uri],
    ) -> Option<usize> {
        self.rules.explain(identity, operation, uri, aliases).rule
    }

    fn rights(&self, identity: Option<&Identity>) -> Rights {
        match identity {
            Some(identity) if !self.is_valid(identity) => Rights::nothing(),
            identity => self.classes.rights(identity),
        }
    }
}
