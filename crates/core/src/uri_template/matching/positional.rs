//! Matching of expressions with positional values: `{a,b}`, `{/a,b}`, `{.a,b}`.

use super::binding::Bindings;
use super::text::{SlidingMaximum, UriText};
use super::{ScoreRow, with_one_more};
use crate::uri_template::pattern::ExpressionSlots;

/// The scores of an expression with positional values.
pub(super) struct PositionalScores<'a> {
    slots: &'a ExpressionSlots,
    /// For each slot, the score of a value that begins at the position.
    values: Vec<ScoreRow>,
    /// For each slot, the score if no slot before it is bound.
    before_first: Vec<ScoreRow>,
    /// For each slot, the score if a slot before it is bound, so that a separator must precede its value.
    after_first: Vec<ScoreRow>,
}

impl<'a> PositionalScores<'a> {
    /// The backward pass: computes the scores from `next`, the scores of the following part.
    pub(super) fn new(slots: &'a ExpressionSlots, text: &UriText<'_>, next: &ScoreRow) -> Self {
        let mut scores =
            Self { slots, values: Vec::new(), before_first: Vec::new(), after_first: Vec::new() };
        let operator = slots.operator;
        for slot in slots.slots.iter().rev() {
            let after = scores.after_first.last().unwrap_or(next);
            let skipped = scores.before_first.last().unwrap_or(next);
            let mut value = vec![0; next.len()];
            let mut window = SlidingMaximum::new(slot);
            for at in text.boundaries().rev() {
                value[at] = window.push(after[at], text.char_end(at, slot.allowed).is_some());
            }
            let mut before_first = skipped.clone();
            let mut after_first = after.clone();
            for at in text.boundaries() {
                let first = match operator.first() {
                    None => value[at],
                    Some(mark) if text.has_byte(at, mark) => value[at + 1],
                    Some(_) => 0,
                };
                before_first[at] = before_first[at].max(with_one_more(first));
                if text.has_byte(at, operator.separator()) {
                    after_first[at] = after_first[at].max(with_one_more(value[at + 1]));
                }
            }
            scores.values.push(value);
            scores.before_first.push(before_first);
            scores.after_first.push(after_first);
        }
        scores.values.reverse();
        scores.before_first.reverse();
        scores.after_first.reverse();
        scores
    }

    /// The score of this part and all that follow, for each position at which this part may begin.
    pub(super) fn entry(&self) -> &ScoreRow {
        &self.before_first[0]
    }

    /// The forward pass: binds the variables from `at` on, and returns the position after the expression.
    pub(super) fn bind_from(
        &self,
        text: &UriText<'_>,
        next: &ScoreRow,
        mut at: usize,
        bindings: &mut Bindings,
    ) -> Option<usize> {
        let operator = self.slots.operator;
        let mut mark = operator.first();
        let mut rows = &self.before_first;
        for (index, slot) in self.slots.slots.iter().enumerate() {
            let start = match mark {
                None => at,
                Some(mark) if text.has_byte(at, mark) => at + 1,
                Some(_) => continue,
            };
            let score = self.values[index][start];
            if score == 0 || with_one_more(score) != rows[index][at] {
                continue;
            }
            let after = self.after_first.get(index + 1).unwrap_or(next);
            at = text.longest(slot, start, after, score)?;
            let value = text.slice(start, at);
            if slot.explode {
                bindings.list(slot, value.split(char::from(operator.separator())))?;
            } else {
                bindings.text(slot, value)?;
            }
            mark = Some(operator.separator());
            rows = &self.after_first;
        }
        Some(at)
    }
}
