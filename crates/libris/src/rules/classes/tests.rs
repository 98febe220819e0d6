use std::sync::Arc;

use super::{ClassRules, RightsClasses};
use crate::rights::{Decision, Operation, Rules as _};
use crate::rules::{Effect, Operations, Rule, RuleSet, UriPattern, Who};
use libris_core::{Identity, Uri};
use proptest::prelude::*;

fn rule(who: Who, uri: &str, effect: Effect) -> Rule {
    Rule { who, uris: vec![UriPattern::parse(uri).unwrap()], operations: Operations::ALL, effect }
}

fn group(name: &str) -> Who {
    Who { groups: vec![name.into()], ..Who::ANYONE }
}

fn requires(scope: &str) -> Effect {
    Effect::Require([scope.into()].into())
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

#[test]
fn the_first_rule_that_matches_decides_and_nothing_else_is_allowed() {
    let rules = RuleSet::new(vec![
        rule(group("hr"), "x://salaries/**", Effect::Allow),
        rule(Who::ANYONE, "x://salaries/**", Effect::Deny),
        rule(Who::ANYONE, "x://drafts/**", requires("drafts")),
        rule(Who::ANYONE, "x://**", Effect::Allow),
    ]);
    let hr = Identity::new("ada").with_groups(["hr"]);
    let decide = |identity: Option<&Identity>, operation, text: &str| {
        let found = rules.explain(identity, operation, &uri(text), &[]);
        (found.decision, found.rule)
    };
    assert_eq!(decide(Some(&hr), Operation::Read, "x://salaries/1"), (Decision::Allow, Some(0)));
    assert_eq!(decide(None, Operation::Read, "x://salaries/1"), (Decision::Deny, Some(1)));
    assert_eq!(decide(None, Operation::Read, "x://other"), (Decision::Allow, Some(3)));
    assert_eq!(decide(None, Operation::Read, "y:z"), (Decision::Deny, None));
    let challenge = Decision::Require(["drafts".into()].into());
    for operation in [Operation::Read, Operation::Subscribe, Operation::Search] {
        assert_eq!(decide(None, operation, "x://drafts/a"), (challenge.clone(), Some(2)));
    }
    // A resource that requires a scope is visible.
    assert_eq!(decide(None, Operation::List, "x://drafts/a"), (Decision::Allow, Some(2)));
    let writer = Identity::new("bob").with_scopes(["drafts"]);
    assert_eq!(decide(Some(&writer), Operation::Read, "x://drafts/a"), (Decision::Allow, Some(2)));
}

#[test]
fn only_a_rule_that_names_a_feature_decides_about_it() {
    let decide = |rules: &[(&str, Effect)]| {
        let rules: Vec<_> =
            rules.iter().map(|(pattern, effect)| rule(Who::ANYONE, pattern, effect.clone())).collect();
        Arc::new(ClassRules::new(&rules, None)).decide_feature(&uri("libris://tools/search_resources"))
    };
    let named = ("libris://tools/**", Effect::Deny);
    let everything = |effect| ("**", effect);
    assert_eq!(decide(&[everything(Effect::Deny)]), None);
    assert_eq!(decide(&[("x://**", Effect::Allow)]), None);
    // The last rule would deny it too, but this one names it.
    assert_eq!(decide(&[named.clone(), everything(Effect::Deny)]), Some(Decision::Deny));
    assert_eq!(decide(&[named.clone(), everything(Effect::Allow)]), Some(Decision::Deny));
    assert_eq!(decide(&[everything(Effect::Allow), named]), None);
    let require = decide(&[("libris://tools/*", requires("tools")), everything(requires("tools"))]);
    assert_eq!(require, Some(Decision::Require(["tools".into()].into())));
}

#[test]
fn an_encoded_slash_does_not_lead_past_a_rule() {
    let rules = RuleSet::new(vec![
        rule(Who::ANYONE, "x://a/secret/**", Effect::Deny),
        rule(Who::ANYONE, "x://a/**", Effect::Allow),
    ]);
    for hidden in ["x://a/secret/b", "x://a/secret%2Fb", "x://a/secret%2fb", "x://a%2Fsecret"] {
        assert_eq!(
            rules.explain(None, Operation::Read, &uri(hidden), &[]).decision,
            Decision::Deny,
            "{hidden}"
        );
    }
    assert_eq!(rules.explain(None, Operation::Read, &uri("x://a/b%2Fc"), &[]).decision, Decision::Allow);
}

#[test]
fn a_rule_against_one_name_of_a_resource_is_against_all() {
    let rules = RuleSet::new(vec![
        rule(Who::ANYONE, "x://head/secret", Effect::Deny),
        rule(Who::ANYONE, "x://head/draft", requires("drafts")),
        rule(Who::ANYONE, "x://main/**", Effect::Allow),
    ]);
    let decide = |name: &str, alias: &str| {
        let found = rules.explain(None, Operation::Read, &uri(name), &[uri(alias)]);
        (found.decision, found.rule)
    };
    assert_eq!(decide("x://main/secret", "x://head/secret"), (Decision::Deny, Some(0)));
    assert_eq!(decide("x://main/draft", "x://head/draft").1, Some(1));
    // No rule needs to allow the other name.
    assert_eq!(decide("x://main/a", "x://head/a"), (Decision::Allow, Some(2)));
    assert_eq!(decide("x://dev/a", "x://main/a"), (Decision::Deny, None));
    let class = RightsClasses::new(rules.rules.clone()).class(None).rights;
    for (name, alias) in [("x://main/secret", "x://head/secret"), ("x://main/draft", "x://head/draft")] {
        let expected = rules.explain(None, Operation::Read, &uri(name), &[uri(alias)]).decision;
        assert_eq!(class.decide(Operation::Read, &uri(name), || vec![uri(alias)]), expected);
    }
}

#[test]
fn callers_to_whom_the_same_rules_apply_are_one_class() {
    let rules = RuleSet::new(vec![
        rule(group("admin"), "**", Effect::Allow),
        rule(group("hr"), "x://salaries/**", Effect::Allow),
        rule(Who::ANYONE, "x://drafts/**", requires("drafts")),
        rule(Who::ANYONE, "**", Effect::Deny),
        // Never reached, so it does not divide callers into classes.
        rule(group("late"), "x://late", Effect::Allow),
    ]);
    let classes = RightsClasses::new(rules.rules.clone());
    let class = |identity: Identity| classes.class(Some(&identity)).rights.class();
    let staff = class(Identity::new("ada").with_groups(["staff"]));
    assert_eq!(staff, class(Identity::new("bob")));
    assert_eq!(staff, classes.class(None).rights.class());
    assert_eq!(staff, class(Identity::new("eve").with_groups(["late"])));
    assert_ne!(staff, class(Identity::new("ada").with_groups(["hr"])));
    assert_ne!(staff, class(Identity::new("ada").with_scopes(["drafts"])));
    assert!(classes.class(Some(&Identity::new("root").with_groups(["admin", "hr"]))).rights.are_everything());
}

#[test]
fn the_number_of_classes_is_bounded() {
    let rules: Vec<_> =
        (0..16).map(|at| rule(group(&at.to_string()), &format!("x://{at}"), Effect::Allow)).collect();
    let classes = RightsClasses::new(rules.into());
    for set in 0..4_096_u32 {
        let groups = (0..16).filter(|at| set & 1 << at != 0).map(|at| at.to_string());
        let rights = classes.class(Some(&Identity::new("ada").with_groups(groups))).rights;
        assert_eq!(rights.allow(Operation::Read, &uri("x://3")), set & 8 != 0);
    }
    assert!(classes.classes.len() <= super::MAX_CLASSES);
}

#[test]
fn rules_that_can_never_match_are_found() {
    let read = |uri, effect| Rule {
        operations: [Operation::Read].into_iter().collect(),
        ..rule(Who::ANYONE, uri, effect)
    };
    let rules = RuleSet::new(vec![
        rule(group("hr"), "x://salaries/**", Effect::Allow),
        rule(group("hr"), "x://salaries/2026/*", Effect::Deny),
        rule(group("it"), "x://salaries/**", Effect::Deny),
        read("x://a/**", Effect::Allow),
        read("x://a/b", Effect::Deny),
        rule(Who::ANYONE, "x://a/b", Effect::Deny),
        rule(Who { users: vec!["*".into()], ..Who::ANYONE }, "**", Effect::Allow),
        rule(group("it"), "y://**", Effect::Deny),
        rule(Who::ANYONE, "y://**", Effect::Deny),
    ]);
    assert_eq!(rules.shadowed(), [1, 4, 7]);
}

const PATTERNS: [&str; 9] =
    ["**", "x://a/**", "x://a/*", "x://*/b", "x://a/b", "x://a/b/**", "x://**/c", "x://a", "x://a*"];

const SEGMENTS: [&str; 4] = ["a", "b", "c", "az"];

/// Every URI of up to three segments, with and without a slash at the end.
fn universe() -> Vec<Uri> {
    let mut all = Vec::new();
    for one in SEGMENTS {
        all.push(format!("x://{one}"));
        for two in SEGMENTS {
            all.push(format!("x://{one}/{two}"));
            all.extend(SEGMENTS.map(|three| format!("x://{one}/{two}/{three}")));
        }
    }
    let slashes: Vec<_> = all.iter().map(|text| format!("{text}/")).collect();
    all.iter().chain(&slashes).map(|text| uri(text)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_template_is_offered_exactly_if_it_leads_to_something_visible(
        rules in prop::collection::vec((prop::sample::select(PATTERNS.to_vec()), 0..3_u8), 1..6),
        prefix in prop::sample::select(vec!["x://", "x://a", "x://a/", "x://a/b/", "x://b", "x://a/b?", "x://az/"]),
    ) {
        let rules: Vec<_> = rules.into_iter().map(|(uri, effect)| rule(Who::ANYONE, uri, match effect {
            0 => Effect::Allow,
            1 => Effect::Deny,
            _ => requires("s"),
        })).collect();
        let class = Arc::new(ClassRules::new(&rules, None));
        let visible = |uri: &Uri| class.decide(Operation::Read, uri) != Decision::Deny;
        let begins = |uri: &&Uri| match prefix.strip_suffix('?') {
            Some(whole) => uri.as_str() == whole,
            None => uri.as_str().starts_with(prefix),
        };
        let expected = universe().iter().filter(begins).any(visible);
        prop_assert_eq!(class.may_allow_below(prefix), expected);
    }
}
