//! The policy that grants rights by rules.

use std::sync::Arc;

use libris_core::{Identity, Uri};

use super::RuleSet;
use super::classes::RightsClasses;
use crate::rights::{Authenticate, Operation, Policy, Rights};

/// Grants rights by rules, to callers that another policy authenticates.
pub struct RulesPolicy {
    /// Authenticates the callers; the rights that it grants are not used.
    authenticating: Arc<dyn Policy>,
    classes: RightsClasses,
}

impl RulesPolicy {
    /// Grants rights by these rules. The policy `authenticating` authenticates the callers; the rights that it grants
    /// are not used.
    pub fn new(rules: &RuleSet, authenticating: Arc<dyn Policy>) -> Self {
        Self { authenticating, classes: RightsClasses::new(rules.rules.clone()) }
    }
}

impl Policy for RulesPolicy {
    fn authentication(&self) -> &dyn Authenticate {
        self.authenticating.authentication()
    }

    fn deciding_rule(
        &self,
        identity: Option<&Identity>,
        operation: Operation,
        uri: &Uri,
        aliases: &[Uri],
    ) -> Option<usize> {
        self.classes.class(identity).rules.decide_all(operation, uri, aliases).rule
    }

    fn rights(&self, identity: Option<&Identity>) -> Rights {
        match self.authentication().admits(identity) {
            true => self.classes.class(identity).rights,
            false => Rights::nothing(),
        }
    }
}
