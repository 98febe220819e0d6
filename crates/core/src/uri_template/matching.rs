//! Matching: from a URI to the values of variables, in linear time (dynamic programming, no backtracking).
//!
//! A backward pass computes, for every part of the pattern and every position of the URI, the maximum number of variables
//! that can be bound from there to the end. A forward pass then takes, at each choice, the first option with that maximum.

mod binding;
mod named;
mod positional;
mod text;

use super::pattern::{ExpressionSlots, Pattern, PatternPart};
use super::variables::Variables;
use binding::Bindings;
use named::NamedScores;
use positional::PositionalScores;
use text::UriText;

/// The score of each position of the URI: one plus the maximum number of variables that can be bound from there to the end,
/// or zero if the rest does not match.
type ScoreRow = Vec<u16>;

/// Matches the URI against the pattern.
pub(super) fn matches(pattern: &Pattern, uri: &str) -> Option<Variables> {
    // Most URIs fail here, by scheme or authority.
    let (uri, parts) = match pattern.parts.split_first() {
        Some((PatternPart::Literal(literal), parts)) => (uri.strip_prefix(literal.as_str())?, parts),
        _ => (uri, &*pattern.parts),
    };
    match parts {
        [PatternPart::Expression(slots)] => single(slots, uri).or_else(|| by_scores(parts, uri)),
        _ => by_scores(parts, uri),
    }
}

/// Matches a rest that is the value of the only variable: the most frequent case, as in `db://users/{id}`. `None` if
/// that is not certain, for example because of escapes.
fn single(slots: &ExpressionSlots, value: &str) -> Option<Variables> {
    let [slot] = &*slots.slots else { return None };
    let is_plain = slots.operator.first().is_none() && !slot.explode && slot.limit.is_none();
    let is_value = |byte: u8| byte != b'%' && slot.allowed.allows(byte);
    if !is_plain || value.is_empty() || !value.bytes().all(is_value) {
        return None;
    }
    let mut bindings = Bindings::default();
    bindings.text(slot, value)?;
    Some(bindings.into_variables())
}

/// Matches the rest of the URI against the rest of the pattern.
fn by_scores(parts: &[PatternPart], uri: &str) -> Option<Variables> {
    let text = UriText::new(uri);
    let mut end = vec![0; uri.len() + 1];
    end[uri.len()] = 1;

    let mut scores: Vec<PartScores<'_>> = Vec::with_capacity(parts.len());
    for part in parts.iter().rev() {
        let part_scores = PartScores::new(part, &text, scores.last().map_or(&end, PartScores::entry));
        scores.push(part_scores);
    }
    if scores.last().map_or(&end, PartScores::entry)[0] == 0 {
        return None;
    }

    let mut bindings = Bindings::default();
    let mut at = 0;
    while let Some(part_scores) = scores.pop() {
        let next = scores.last().map_or(&end, PartScores::entry);
        at = match part_scores {
            PartScores::Literal { length, .. } => at + length,
            PartScores::Positional(part_scores) => part_scores.bind_from(&text, next, at, &mut bindings)?,
            PartScores::Named(part_scores) => part_scores.bind_from(&text, next, at, &mut bindings)?,
        };
    }
    Some(bindings.into_variables())
}

/// The scores of one part of the pattern at each position.
enum PartScores<'a> {
    Literal { length: usize, entry: ScoreRow },
    Positional(PositionalScores<'a>),
    Named(NamedScores<'a>),
}

impl<'a> PartScores<'a> {
    fn new(part: &'a PatternPart, text: &UriText<'_>, next: &ScoreRow) -> Self {
        match part {
            PatternPart::Literal(literal) => {
                let mut entry = vec![0; next.len()];
                for at in text.boundaries() {
                    work::count(literal.len());
                    if text.has_literal(at, literal) {
                        entry[at] = next[at + literal.len()];
                    }
                }
                Self::Literal { length: literal.len(), entry }
            }
            PatternPart::Expression(slots) if slots.operator.is_named() => {
                Self::Named(NamedScores::new(slots, text, next))
            }
            PatternPart::Expression(slots) => Self::Positional(PositionalScores::new(slots, text, next)),
        }
    }

    fn entry(&self) -> &ScoreRow {
        match self {
            Self::Literal { entry, .. } => entry,
            Self::Positional(part_scores) => part_scores.entry(),
            Self::Named(part_scores) => part_scores.entry(),
        }
    }
}

/// The score with one more bound variable. Zero (no match) stays zero.
fn with_one_more(score: u16) -> u16 {
    if score == 0 { 0 } else { score.saturating_add(1) }
}

/// Counts the operations of a match, so that a test can check for linear time without a clock.
pub(super) mod work {
    #[cfg(test)]
    thread_local!(static DONE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

    pub(super) fn count(_units: usize) {
        #[cfg(test)]
        DONE.set(DONE.get() + _units);
    }

    /// The operations counted in this thread since the last call.
    #[cfg(test)]
    pub(in crate::uri_template) fn take() -> usize {
        DONE.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, proptest};

    use super::{by_scores, single};
    use crate::uri_template::parse;
    use crate::uri_template::pattern::{Pattern, PatternPart};

    proptest! {
        #[test]
        fn a_single_variable_matches_as_any_other_pattern(
            expression in prop::sample::select(
                vec!["{id}", "{+id}", "{#id}", "{.id}", "{/id}", "{;id}", "{?id}", "{&id}", "{id:2}", "{id*}", "{a,b}"],
            ),
            value in "[ab/?#&;.=%2Fé,]{0,6}",
        ) {
            let pattern = Pattern::new(&parse::parts(expression).unwrap());
            let Some(PatternPart::Expression(slots)) = pattern.parts.first() else { panic!("one expression") };
            if let Some(variables) = single(slots, &value) {
                assert_eq!(Some(variables), by_scores(&pattern.parts, &value), "{expression} {value}");
            }
        }
    }

    #[test]
    fn most_values_are_matched_at_once() {
        let is_single = |template: &str, value: &str| {
            let pattern = Pattern::new(&parse::parts(template).unwrap());
            let [PatternPart::Expression(slots)] = &*pattern.parts else { panic!("one expression") };
            single(slots, value).is_some()
        };
        assert!(is_single("{id}", "7") && is_single("{+path}", "a/b"));
        assert!(!is_single("{id}", "a/b") && !is_single("{id}", "%20") && !is_single("{?id}", "?id=7"));
    }
}
