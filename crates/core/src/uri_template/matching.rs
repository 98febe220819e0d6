//! From a URI back to variables, in time linear in the URI.
//!
//! A pass from the end works out, for every step of the pattern and every position, how many slots can
//! be filled from there to the end. A walk from the start then takes, at each choice, the first option
//! that keeps to the best number. Nothing is ever tried twice.

mod binding;
mod named;
mod positional;
mod text;

use super::pattern::{Pattern, PatternPart};
use super::variables::Variables;
use binding::Bindings;
use named::NamedPlan;
use positional::PositionalPlan;
use text::UriText;

/// For each position, one more than the most slots that can be filled from there on, or zero if the
/// end cannot be reached.
type Row = Vec<u16>;

/// The variables with which the pattern stands for the URI.
pub(super) fn matches(pattern: &Pattern, uri: &str) -> Option<Variables> {
    // Most URIs are refused here, by the scheme or the authority.
    let (uri, parts) = match pattern.parts.split_first() {
        Some((PatternPart::Literal(literal), parts)) => (uri.strip_prefix(literal.as_str())?, parts),
        _ => (uri, &*pattern.parts),
    };
    let text = UriText::new(uri);
    let mut end = vec![0; uri.len() + 1];
    end[uri.len()] = 1;

    let mut plans: Vec<Plan<'_>> = Vec::with_capacity(parts.len());
    for step in parts.iter().rev() {
        let plan = Plan::new(step, &text, plans.last().map_or(&end, Plan::entry));
        plans.push(plan);
    }
    if plans.last().map_or(&end, Plan::entry)[0] == 0 {
        return None;
    }

    let mut bindings = Bindings::default();
    let mut at = 0;
    while let Some(plan) = plans.pop() {
        let next = plans.last().map_or(&end, Plan::entry);
        at = match plan {
            Plan::Literal { length, .. } => at + length,
            Plan::Positional(plan) => plan.walk(&text, next, at, &mut bindings)?,
            Plan::Named(plan) => plan.walk(&text, next, at, &mut bindings)?,
        };
    }
    Some(bindings.into_variables())
}

/// What a step can do at each position.
enum Plan<'a> {
    Literal { length: usize, entry: Row },
    Positional(PositionalPlan<'a>),
    Named(NamedPlan<'a>),
}

impl<'a> Plan<'a> {
    fn new(step: &'a PatternPart, text: &UriText<'_>, next: &Row) -> Self {
        match step {
            PatternPart::Literal(literal) => {
                let mut entry = vec![0; next.len()];
                for at in text.boundaries() {
                    work::count(literal.len());
                    if text.has(at, literal) {
                        entry[at] = next[at + literal.len()];
                    }
                }
                Self::Literal { length: literal.len(), entry }
            }
            PatternPart::Expression(slots) if slots.operator.named() => {
                Self::Named(NamedPlan::new(slots, text, next))
            }
            PatternPart::Expression(slots) => Self::Positional(PositionalPlan::new(slots, text, next)),
        }
    }

    fn entry(&self) -> &Row {
        match self {
            Self::Literal { entry, .. } => entry,
            Self::Positional(plan) => plan.entry(),
            Self::Named(plan) => plan.entry(),
        }
    }
}

/// One more slot filled, if the end can be reached at all.
fn filled(score: u16) -> u16 {
    if score == 0 { 0 } else { score.saturating_add(1) }
}

/// Counts what a match does, so that a test can prove it linear without a clock.
pub(super) mod work {
    #[cfg(test)]
    thread_local!(static DONE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

    pub(super) fn count(_units: usize) {
        #[cfg(test)]
        DONE.set(DONE.get() + _units);
    }

    /// What was counted in this thread since the last call.
    #[cfg(test)]
    pub(in crate::uri_template) fn take() -> usize {
        DONE.replace(0)
    }
}
