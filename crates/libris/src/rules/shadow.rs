//! Finds rules that never decide, because an earlier rule always decides first.

use super::{Rule, language};
use crate::rights::Operation;

/// How many steps the search for a URI that only one rule matches may take.
const MAX_STEPS: usize = 300_000;

const OPERATIONS: [Operation; 4] =
    [Operation::List, Operation::Read, Operation::Subscribe, Operation::Search];

/// The indexes of the rules that never decide: for each of their operations, earlier rules that apply to all of their
/// callers match all of their URIs. A rule for which the search takes more than [`MAX_STEPS`] is not included.
pub(super) fn shadowed(rules: &[Rule]) -> Vec<usize> {
    (0..rules.len()).filter(|at| is_shadowed(&rules[*at], &rules[..*at])).collect()
}

fn is_shadowed(rule: &Rule, before: &[Rule]) -> bool {
    let operations = OPERATIONS.into_iter().filter(|operation| rule.operations.contains(*operation));
    operations.into_iter().all(|operation| {
        let earlier = || {
            let rules = before.iter().filter(|other| other.operations.contains(operation));
            rules.filter(|other| other.who.covers(&rule.who)).flat_map(|other| &other.uris)
        };
        rule.uris.iter().all(|uri| {
            let mut steps = MAX_STEPS;
            language::has_match(b"", uri, earlier(), &mut steps) == Some(false)
        })
    })
}
