//! Rights classes: the rules that apply to a caller.

use std::sync::Arc;

use libris_core::{Identity, Uri};
use quick_cache::sync::Cache;

use super::pattern::{normal_form, normal_prefix, with_slashes};
use super::{Effect, Operations, Rule, UriPattern, language};
use crate::rights::{Decision, Operation, Rights, Rules};

/// The maximum number of cached rights classes. A class that was evicted gets a new number, so it no longer shares the
/// responses that were cached for its old number.
const MAX_CLASSES: usize = 1_024;

/// How many steps the search for a visible URI may take, over all rules together: a few milliseconds.
const MAX_STEPS: usize = 50_000;

/// The decision of the rules about one operation on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDecision {
    /// The decision.
    pub decision: Decision,
    /// The index of the rule that decides; `None` if no rule matches.
    pub rule: Option<usize>,
    /// The other name of the resource that the rule matches, if it is not the URI itself.
    pub alias: Option<Uri>,
}

/// The rules that apply to the callers of one class, in order.
pub(super) struct ClassRules {
    rules: Vec<ClassRule>,
}

/// A rule that applies to the callers of a class.
#[derive(Debug)]
struct ClassRule {
    index: usize,
    operations: Operations,
    uris: Box<[UriPattern]>,
    decision: Decision,
}

/// How a rule applies to the callers of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Application {
    No,
    Yes,
    /// The rule requires scopes that the callers have.
    Satisfied,
}

impl Application {
    fn of(rule: &Rule, identity: Option<&Identity>) -> Self {
        let has = |scope: &str| identity.is_some_and(|identity| identity.scopes().contains(scope));
        match &rule.effect {
            _ if !rule.who.includes(identity) => Self::No,
            Effect::Require(scopes) if scopes.iter().all(|scope| has(scope)) => Self::Satisfied,
            _ => Self::Yes,
        }
    }
}

/// How each rule applies to a caller, up to the first rule that matches every operation on every URI.
fn applications(rules: &[Rule], identity: Option<&Identity>) -> Box<[Application]> {
    let mut applications = Vec::with_capacity(rules.len());
    for rule in rules {
        let application = Application::of(rule, identity);
        applications.push(application);
        if application != Application::No
            && rule.operations == Operations::ALL
            && rule.uris.iter().any(UriPattern::is_everything)
        {
            break;
        }
    }
    applications.into()
}

impl ClassRules {
    /// The rules that apply to a caller.
    pub(super) fn new(rules: &[Rule], identity: Option<&Identity>) -> Self {
        Self::of(rules, &applications(rules, identity))
    }

    fn of(rules: &[Rule], applications: &[Application]) -> Self {
        let class_rule = |(index, (rule, application)): (usize, (&Rule, &Application))| {
            let decision = match (&rule.effect, application) {
                (_, Application::No) => return None,
                (Effect::Allow, _) | (Effect::Require(_), Application::Satisfied) => Decision::Allow,
                (Effect::Deny, _) => Decision::Deny,
                (Effect::Require(scopes), Application::Yes) => Decision::Require(scopes.clone()),
            };
            let (operations, uris) = (rule.operations, rule.uris.clone().into());
            Some(ClassRule { index, operations, uris, decision })
        };
        Self { rules: rules.iter().zip(applications).enumerate().filter_map(class_rule).collect() }
    }

    /// Whether the rules allow everything.
    fn allow_everything(&self) -> bool {
        self.rules.first().is_some_and(|rule| {
            rule.decision == Decision::Allow
                && rule.operations == Operations::ALL
                && rule.uris.iter().any(UriPattern::is_everything)
        })
    }

    /// The decision of the first rule that matches.
    pub(super) fn first_match(&self, operation: Operation, uri: &Uri) -> RuleDecision {
        let normal = normal_form(uri.as_str());
        let first = self.matching_rule(operation, &normal);
        // A source may decode `%2F` to a slash, so a rule that restricts the URI with the slash also restricts the URI
        // with `%2F`.
        let stricter = with_slashes(&normal)
            .and_then(|slashes| self.matching_rule(operation, &slashes))
            .filter(|rule| rule.decision != Decision::Allow);
        match stricter.filter(|_| first.is_some()).or(first) {
            Some(rule) => RuleDecision {
                decision: effective(operation, &rule.decision),
                rule: Some(rule.index),
                alias: None,
            },
            None => RuleDecision { decision: Decision::Deny, rule: None, alias: None },
        }
    }

    /// The decision about a resource that also has these names: that of the first name which a rule denies, or else of
    /// the first that requires a scope, or else that about `uri`.
    pub(super) fn decide_all(&self, operation: Operation, uri: &Uri, aliases: &[Uri]) -> RuleDecision {
        let first = self.first_match(operation, uri);
        if first.decision == Decision::Deny {
            return first;
        }
        let matched = aliases.iter().filter_map(|alias| {
            let found = self.first_match(operation, alias);
            found.rule.map(|_| RuleDecision { alias: Some(alias.clone()), ..found })
        });
        let others: Vec<_> = matched.collect();
        let denied = others.iter().find(|other| other.decision == Decision::Deny);
        let requires = |decision: &RuleDecision| matches!(decision.decision, Decision::Require(_));
        match denied.or_else(|| others.iter().find(|other| requires(other) && !requires(&first))) {
            Some(other) => other.clone(),
            None => first,
        }
    }

    /// The first rule that matches a URI in normal form.
    fn matching_rule(&self, operation: Operation, normal: &[u8]) -> Option<&ClassRule> {
        self.rules.iter().find(|rule| {
            rule.operations.contains(operation) && rule.uris.iter().any(|uri| uri.matches_normal(normal))
        })
    }
}

/// The decision in effect: a resource that requires a scope is listed, so that clients can request the scope.
fn effective(operation: Operation, decision: &Decision) -> Decision {
    match (operation, decision) {
        (Operation::List, Decision::Require(_)) => Decision::Allow,
        (_, decision) => decision.clone(),
    }
}

impl Rules for Arc<ClassRules> {
    fn allow(&self, operation: Operation, uri: &Uri) -> bool {
        self.decide(operation, uri) == Decision::Allow
    }

    fn decide(&self, operation: Operation, uri: &Uri) -> Decision {
        self.first_match(operation, uri).decision
    }

    fn overrule(&self, operation: Operation, alias: &Uri) -> Option<Decision> {
        let found = self.first_match(operation, alias);
        found.rule.map(|_| found.decision).filter(|decision| *decision != Decision::Allow)
    }

    fn decide_feature(&self, uri: &Uri) -> Option<Decision> {
        let normal = normal_form(uri.as_str());
        let rule = self.matching_rule(Operation::Read, &normal)?;
        let is_named = |pattern: &UriPattern| !pattern.is_everything() && pattern.matches_normal(&normal);
        rule.uris.iter().any(is_named).then(|| rule.decision.clone())
    }

    fn shared_class(&self) -> Option<String> {
        Some(format!("{:?}", self.rules))
    }

    fn may_allow_below(&self, prefix: &str) -> bool {
        let is_visible = |rule: &ClassRule| rule.decision != Decision::Deny;
        let normal = normal_form(prefix);
        let ends_here = self.matching_rule(Operation::Read, &normal).is_some_and(is_visible);
        if ends_here || prefix.contains(['?', '#']) {
            return ends_here;
        }
        let prefix = normal_prefix(prefix);
        let mut steps = MAX_STEPS;
        let rules = || self.rules.iter().filter(|rule| rule.operations.contains(Operation::Read));
        rules().enumerate().filter(|(_, rule)| is_visible(rule)).any(|(at, rule)| {
            let denied = || rules().take(at).filter(|rule| !is_visible(rule)).flat_map(|rule| &rule.uris);
            // If the search gives up, the template is listed: that reveals little, while hiding it might withhold
            // resources that the caller may read.
            rule.uris
                .iter()
                .any(|uri| language::has_match(&prefix, uri, denied(), &mut steps).unwrap_or(true))
        })
    }
}

/// The rights classes of a set of rules, interned by the rules that apply.
pub(super) struct RightsClasses {
    rules: Arc<[Rule]>,
    classes: Cache<Box<[Application]>, InternedClass>,
}

/// The rights of a class, and the rules of the class, which the audit log uses to name the deciding rule.
#[derive(Clone)]
pub(super) struct InternedClass {
    pub(super) rights: Rights,
    pub(super) rules: Arc<ClassRules>,
}

impl RightsClasses {
    pub(super) fn new(rules: Arc<[Rule]>) -> Self {
        Self { rules, classes: Cache::new(MAX_CLASSES) }
    }

    /// The class of a caller.
    pub(super) fn class(&self, identity: Option<&Identity>) -> InternedClass {
        let applications = applications(&self.rules, identity);
        let create = || {
            let rules = Arc::new(ClassRules::of(&self.rules, &applications));
            let rights = match rules.allow_everything() {
                true => Rights::everything(),
                false => Rights::new(rules.clone()),
            };
            Ok::<_, std::convert::Infallible>(InternedClass { rights, rules })
        };
        match self.classes.get_or_insert_with(&applications, create) {
            Ok(class) => class,
            Err(never) => match never {},
        }
    }
}

#[cfg(test)]
mod tests;
