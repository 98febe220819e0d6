//! Random access rules, and a reference implementation of what they decide.

use std::sync::Arc;

use libris::rules::{Effect, Operations, Rule, RuleSet, RulesPolicy, UriPattern, Who};
use libris::{Identity, Operation, Policy, Rights, Uri};

use crate::random::Random;

/// What a rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    Deny,
    /// Requires the scope `drafts`.
    Require,
}

/// The callers that a rule is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlainWho {
    Anyone,
    AnyUser,
    User(&'static str),
    Group(&'static str),
    Scope(&'static str),
}

/// A rule: callers, pattern, operations, and the decision.
pub(crate) type PlainRule = (PlainWho, &'static str, &'static [Operation], Verdict);

/// A caller: its name if it has one, its groups and its scopes.
pub(crate) struct Person {
    pub(crate) name: Option<&'static str>,
    pub(crate) groups: &'static [&'static str],
    pub(crate) scopes: &'static [&'static str],
}

/// The reference: the first rule that matches decides, and without one the operation is denied. A resource that requires a
/// scope is listed.
pub(crate) fn decide(rules: &[PlainRule], person: &Person, operation: Operation, uri: &str) -> Verdict {
    let path = uri.split('?').next().unwrap().trim_end_matches('/');
    let is_for = |who| match who {
        PlainWho::Anyone => true,
        PlainWho::AnyUser => person.name.is_some(),
        PlainWho::User(name) => person.name == Some(name),
        PlainWho::Group(group) => person.groups.contains(&group),
        PlainWho::Scope(scope) => person.scopes.contains(&scope),
    };
    let is_first = |(who, pattern, operations, _): &&PlainRule| {
        is_for(*who)
            && operations.contains(&operation)
            && matches(&pattern.split('/').collect::<Vec<_>>(), &path.split('/').collect::<Vec<_>>())
    };
    match rules.iter().find(is_first).map(|(.., verdict)| *verdict) {
        Some(Verdict::Require) if person.scopes.contains(&"drafts") => Verdict::Allow,
        Some(Verdict::Require) if operation == Operation::List => Verdict::Allow,
        Some(verdict) => verdict,
        None => Verdict::Deny,
    }
}

fn matches(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        (["**"], _) => true,
        (["**", rest @ ..], _) => (0..=path.len()).any(|skipped| matches(rest, &path[skipped..])),
        (["*", rest @ ..], [_, others @ ..]) => matches(rest, others),
        ([one, rest @ ..], [other, others @ ..]) => one == other && matches(rest, others),
        ([], []) => true,
        _ => false,
    }
}

/// Patterns, of which those with wildcards match a directory of the shelf if they match something new in it: then a template
/// leads somewhere exactly if it leads to something that is there.
const PATTERNS: [&str; 10] = [
    "**",
    "shelf:///**",
    "shelf:///d0/**",
    "shelf:///d1/**",
    "shelf:///d2/**",
    "shelf:///*",
    "shelf:///d0/f1",
    "shelf:///d1/f3",
    "shelf:///d2/g001",
    "shelf:///p1",
];

const WHO: [PlainWho; 10] = [
    PlainWho::Anyone,
    PlainWho::Anyone,
    PlainWho::AnyUser,
    PlainWho::User("A"),
    PlainWho::User("B"),
    PlainWho::User("nobody"),
    PlainWho::Group("hr"),
    PlainWho::Group("it"),
    PlainWho::Scope("drafts"),
    PlainWho::Scope("other"),
];

const OPERATIONS: [&[Operation]; 5] = [
    &Operation::ALL,
    &Operation::ALL,
    &[Operation::Read],
    &[Operation::List, Operation::Read],
    &[Operation::Subscribe, Operation::Search],
];

/// Rules for everybody, about all operations, that allow or deny.
pub(crate) fn simple(seed: u64) -> Vec<PlainRule> {
    let mut random = Random::new(seed);
    let rule = |random: &mut Random| {
        let verdict = if random.chance(50) { Verdict::Allow } else { Verdict::Deny };
        (PlainWho::Anyone, *random.pick(&PATTERNS), &Operation::ALL[..], verdict)
    };
    (0..1 + random.below(6)).map(|_| rule(&mut random)).collect()
}

/// Rules of every kind.
pub(crate) fn any(random: &mut Random) -> Vec<PlainRule> {
    let rule = |random: &mut Random| {
        let who = *random.pick(&WHO);
        let verdict = *random.pick(&[Verdict::Allow, Verdict::Allow, Verdict::Deny, Verdict::Require]);
        (who, *random.pick(&PATTERNS), *random.pick(&OPERATIONS), verdict)
    };
    (0..3 + random.below(9)).map(|_| rule(random)).collect()
}

/// The same rules for the server.
pub(crate) fn compiled(rules: &[PlainRule]) -> RuleSet {
    let who = |who: PlainWho| match who {
        PlainWho::Anyone => Who::ANYONE,
        PlainWho::AnyUser => Who { users: vec!["*".into()], ..Who::ANYONE },
        PlainWho::User(name) => Who { users: vec![name.into()], ..Who::ANYONE },
        PlainWho::Group(group) => Who { groups: vec![group.into()], ..Who::ANYONE },
        PlainWho::Scope(scope) => Who { scopes: vec![scope.into()], ..Who::ANYONE },
    };
    let rule = |(whom, pattern, operations, verdict): &PlainRule| Rule {
        who: who(*whom),
        uris: vec![UriPattern::parse(pattern).unwrap()],
        operations: operations.iter().copied().collect::<Operations>(),
        effect: match verdict {
            Verdict::Allow => Effect::Allow,
            Verdict::Deny => Effect::Deny,
            Verdict::Require => Effect::Require(["drafts".into()].into()),
        },
    };
    RuleSet::new(rules.iter().map(rule).collect())
}

/// The rights that rules grant to everybody.
pub(crate) fn rights(rules: &[PlainRule]) -> Rights {
    struct Nobody;
    impl Policy for Nobody {
        fn rights(&self, _: Option<&Identity>) -> Rights {
            Rights::nothing()
        }
    }
    RulesPolicy::new(&compiled(rules), Arc::new(Nobody)).rights(None)
}

/// Whether rules for everybody show a resource.
pub(crate) fn shows(rules: &[PlainRule], uri: &Uri) -> bool {
    decide(rules, &Person { name: None, groups: &[], scopes: &[] }, Operation::Read, uri.as_str())
        == Verdict::Allow
}
