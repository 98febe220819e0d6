//! Access rules: who may perform which operation on which resources. The first rule that matches decides; if none does,
//! access is denied.
//!
//! Rules name resources by URI patterns ([`UriPattern`]). The rules that apply to a caller are its rights class
//! (`classes`): callers to whom the same rules apply share cached responses. [`RulesPolicy`] grants the rights.
//!
//! A pattern is compared with the URI without its query, fragment and trailing slash, and with percent-escapes decoded:
//! all spellings of a URI, and all parts of a resource, have the same rights. Sources report further names of a
//! resource ([`Source::aliases`](libris_core::Source::aliases)); a rule that denies one of them denies the resource.

mod classes;
mod language;
mod pattern;
mod policy;
mod shadow;

use std::sync::Arc;

use libris_core::{Identity, Uri};

use crate::rights::Operation;

pub use self::classes::RuleDecision;
pub use self::pattern::UriPattern;
pub use self::policy::RulesPolicy;

/// One access rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The callers that the rule applies to.
    pub who: Who,
    /// The resources that the rule applies to.
    pub uris: Vec<UriPattern>,
    /// The operations that the rule applies to.
    pub operations: Operations,
    /// The effect of the rule.
    pub effect: Effect,
}

/// The callers that a rule applies to: those that meet at least one of the criteria. Without criteria, every caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The names of identities. `*` is every authenticated caller.
    pub users: Vec<Box<str>>,
    /// Groups of which the caller is a member.
    pub groups: Vec<Box<str>>,
    /// Scopes that were granted to the caller.
    pub scopes: Vec<Box<str>>,
}

impl Who {
    /// Every caller, authenticated or not.
    pub const ANYONE: Self = Self { users: Vec::new(), groups: Vec::new(), scopes: Vec::new() };

    /// Whether the rule applies to every caller.
    pub fn is_anyone(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.scopes.is_empty()
    }

    /// Whether the rule applies to a caller; `None` is an anonymous one.
    pub fn includes(&self, identity: Option<&Identity>) -> bool {
        if self.is_anyone() {
            return true;
        }
        let Some(identity) = identity else { return false };
        self.users.iter().any(|user| **user == *"*" || **user == *identity.name())
            || self.groups.iter().any(|group| identity.groups().contains(group))
            || self.scopes.iter().any(|scope| identity.scopes().contains(scope))
    }

    /// Whether this includes every caller that `other` includes. Compares only the lists, so the result may be `false`
    /// although all members of a group are named as users.
    fn covers(&self, other: &Self) -> bool {
        let all = |mine: &[Box<str>], theirs: &[Box<str>]| theirs.iter().all(|one| mine.contains(one));
        if self.is_anyone() {
            return true;
        }
        // Only authenticated callers have groups and scopes, so `*` includes all of them.
        !other.is_anyone()
            && (self.users.iter().any(|user| **user == *"*")
                || all(&self.users, &other.users)
                    && all(&self.groups, &other.groups)
                    && all(&self.scopes, &other.scopes))
    }
}

/// A set of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(u8);

impl Operations {
    /// All operations.
    pub const ALL: Self = Self(0b1111);

    /// Whether the set contains this operation.
    pub fn contains(self, operation: Operation) -> bool {
        self.0 & bit(operation) != 0
    }
}

impl FromIterator<Operation> for Operations {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Self(operations.into_iter().fold(0, |bits, operation| bits | bit(operation)))
    }
}

const fn bit(operation: Operation) -> u8 {
    match operation {
        Operation::List => 1,
        Operation::Read => 2,
        Operation::Subscribe => 4,
        Operation::Search => 8,
    }
}

/// The effect of a rule on an operation that it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The operation is allowed.
    Allow,
    /// The resource looks as if it did not exist.
    Deny,
    /// The operation is allowed to callers that have been granted all of these scopes. For others, the resource is
    /// visible, and the operation fails with a challenge that names the scopes.
    Require(Arc<[Box<str>]>),
}

/// The rules of a server, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    rules: Arc<[Rule]>,
}

impl RuleSet {
    /// The maximum number of rules that a configuration should allow: in the worst case, each decision compares a URI
    /// with all rules. [`new`](Self::new) does not check it.
    pub const LIMIT: usize = 1_000;

    /// A set of these rules. The first that matches decides.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules: rules.into() }
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The indexes of the rules that never decide, because earlier rules match everything that they match.
    pub fn shadowed(&self) -> Vec<usize> {
        shadow::shadowed(&self.rules)
    }

    /// The decision about an operation of a caller on a resource, which also has the names `aliases`, and the rule that
    /// decides. If no rule matches, the operation is denied.
    pub fn explain(
        &self,
        identity: Option<&Identity>,
        operation: Operation,
        uri: &Uri,
        aliases: &[Uri],
    ) -> RuleDecision {
        classes::ClassRules::new(&self.rules, identity).decide_all(operation, uri, aliases)
    }
}
