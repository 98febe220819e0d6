//! Matching of expressions with positional values: `{a,b}`, `{/a,b}`, `{.a,b}`.

use super::binding::Bindings;
use super::text::{SlidingMaximum, UriText};
use super::{ScoreRow, filled};
use crate::uri_template::pattern::ExpressionSlots;

pub(super) struct PositionalScores<'a> {
    slots: &'a ExpressionSlots,
    /// For each slot, the score of a value that begins at the position.
    values: Vec<ScoreRow>,
    /// For each slot, the score if no slot before it is bound.
    fresh: Vec<ScoreRow>,
    /// For each slot, the score if a slot before it is bound, so that a separator comes first.
    going: Vec<ScoreRow>,
}

impl<'a> PositionalScores<'a> {
    /// The backward pass: computes the scores from `next`, the scores of the following part.
    pub(super) fn new(slots: &'a ExpressionSlots, text: &UriText<'_>, next: &ScoreRow) -> Self {
        let mut plan = Self { slots, values: Vec::new(), fresh: Vec::new(), going: Vec::new() };
        let operator = slots.operator;
        for slot in slots.slots.iter().rev() {
            let after = plan.going.last().unwrap_or(next);
            let skipped = plan.fresh.last().unwrap_or(next);
            let mut value = vec![0; next.len()];
            let mut window = SlidingMaximum::new(slot);
            for at in text.boundaries().rev() {
                value[at] = window.push(after[at], text.after(at, slot.allowed).is_some());
            }
            let mut fresh = skipped.clone();
            let mut going = after.clone();
            for at in text.boundaries() {
                let first = match operator.first() {
                    None => value[at],
                    Some(mark) if text.is(at, mark) => value[at + 1],
                    Some(_) => 0,
                };
                fresh[at] = fresh[at].max(filled(first));
                if text.is(at, operator.separator()) {
                    going[at] = going[at].max(filled(value[at + 1]));
                }
            }
            plan.values.push(value);
            plan.fresh.push(fresh);
            plan.going.push(going);
        }
        plan.values.reverse();
        plan.fresh.reverse();
        plan.going.reverse();
        plan
    }

    /// The score of this part and all that follow, by the position where this part begins.
    pub(super) fn entry(&self) -> &ScoreRow {
        &self.fresh[0]
    }

    /// The forward pass: binds the variables from `at` on, and returns the position after the expression.
    pub(super) fn walk(
        &self,
        text: &UriText<'_>,
        next: &ScoreRow,
        mut at: usize,
        bindings: &mut Bindings,
    ) -> Option<usize> {
        let operator = self.slots.operator;
        let mut mark = operator.first();
        let mut rows = &self.fresh;
        for (index, slot) in self.slots.slots.iter().enumerate() {
            let start = match mark {
                None => at,
                Some(mark) if text.is(at, mark) => at + 1,
                Some(_) => continue,
            };
            let score = self.values[index][start];
            if score == 0 || filled(score) != rows[index][at] {
                continue;
            }
            let after = self.going.get(index + 1).unwrap_or(next);
            at = text.longest(slot, start, after, score)?;
            let value = text.slice(start, at);
            if slot.explode {
                bindings.list(slot, value.split(char::from(operator.separator())))?;
            } else {
                bindings.text(slot, value)?;
            }
            mark = Some(operator.separator());
            rows = &self.going;
        }
        Some(at)
    }
}
