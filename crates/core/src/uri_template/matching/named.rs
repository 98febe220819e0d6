//! Matching of expressions with named values in any order: `{?a,b}`, `{&a,b}`, `{;a,b}`.

use super::binding::Bindings;
use super::text::{SlidingMaximum, UriText};
use super::{ScoreRow, with_one_more, work};
use crate::uri_template::parse::Operator;
use crate::uri_template::pattern::{ExpressionSlots, VariableSlot};

/// The scores of an expression with named values.
pub(super) struct NamedScores<'a> {
    slots: &'a ExpressionSlots,
    /// For each slot, the score of a value that begins at the position.
    values: Vec<ScoreRow>,
    /// The score of a position inside a foreign name: a name of no slot, which the slot with `*` accepts.
    names: ScoreRow,
    /// The score if no parameter has been matched yet.
    before_first: ScoreRow,
    /// The score if a parameter has been matched, so that a separator must precede the next one.
    after_first: ScoreRow,
}

/// A possible reading of a parameter of the URI.
enum ParameterReading {
    /// The slot, and the position where the value after `=` begins.
    Value(usize, usize),
    /// The slot, and the position where its name without a value ends.
    Bare(usize, usize),
    /// A foreign name, accepted by this slot with `*`.
    Foreign(usize),
}

impl<'a> NamedScores<'a> {
    /// The backward pass: computes the scores from `next`, the scores of the following part.
    pub(super) fn new(slots: &'a ExpressionSlots, text: &UriText<'_>, next: &ScoreRow) -> Self {
        let count = slots.slots.len();
        let mut scores = Self {
            slots,
            values: vec![vec![0; next.len()]; count],
            names: vec![0; next.len()],
            before_first: next.clone(),
            after_first: next.clone(),
        };
        let mut windows: Vec<_> = slots.slots.iter().map(SlidingMaximum::new).collect();
        for at in text.boundaries().rev() {
            if text.has_byte(at, slots.operator.separator()) {
                scores.after_first[at] = scores.after_first[at].max(scores.best(text, at + 1));
            }
            if slots.operator.first().is_some_and(|mark| text.has_byte(at, mark)) {
                scores.before_first[at] = scores.before_first[at].max(scores.best(text, at + 1));
            }
            for ((slot, row), window) in slots.slots.iter().zip(&mut scores.values).zip(&mut windows) {
                row[at] = window.push(scores.after_first[at], text.char_end(at, slot.allowed).is_some());
            }
            if let Some(foreign) = scores.foreign() {
                let more = match text.char_end(at, slots.slots[foreign].allowed) {
                    Some(after) if text.has_byte(at, b'=') => scores.values[foreign][after],
                    Some(after) => scores.names[after],
                    None => 0,
                };
                scores.names[at] = more.max(scores.after_first[at]);
            }
        }
        scores
    }

    /// The score of this part and all that follow, for each position at which this part may begin.
    pub(super) fn entry(&self) -> &ScoreRow {
        &self.before_first
    }

    /// The slot that accepts foreign names: the first with `*`.
    fn foreign(&self) -> Option<usize> {
        self.slots.slots.iter().position(|slot| slot.explode)
    }

    /// The possible readings of a parameter that begins at `at`, with their scores, the preferred reading first.
    fn readings(&self, text: &UriText<'_>, at: usize) -> impl Iterator<Item = (ParameterReading, u16)> {
        let named = self.slots.slots.iter().enumerate().flat_map(move |(index, slot)| {
            work::count(slot.key.len());
            let end = text.has_literal(at, &slot.key).then_some(at + slot.key.len());
            let value = end
                .filter(|&end| text.has_byte(end, b'='))
                .map(|end| (ParameterReading::Value(index, end + 1), self.values[index][end + 1]));
            let bare = end
                .filter(|&end| self.may_be_bare(text, end))
                .map(|end| (ParameterReading::Bare(index, end), self.after_first[end]));
            [value, bare].into_iter().flatten()
        });
        let foreign = self.foreign().map(|index| (ParameterReading::Foreign(index), self.names[at]));
        named.chain(foreign)
    }

    /// Whether a name without a value may end at `end`. Only `{;var}` expands to such names. In a query, such a name
    /// must be followed by a separator, a fragment or the end, so that `a` does not match in `ab=1`.
    fn may_be_bare(&self, text: &UriText<'_>, end: usize) -> bool {
        self.slots.operator == Operator::Parameter
            || end == text.len()
            || text.has_byte(end, b'#')
            || text.has_byte(end, self.slots.operator.separator())
    }

    fn best(&self, text: &UriText<'_>, at: usize) -> u16 {
        self.readings(text, at).map(|(_, score)| with_one_more(score)).max().unwrap_or(0)
    }

    /// The forward pass: binds the variables from `at` on, and returns the position after the expression.
    pub(super) fn bind_from(
        &self,
        text: &UriText<'_>,
        next: &ScoreRow,
        mut at: usize,
        bindings: &mut Bindings,
    ) -> Option<usize> {
        let mut mark = self.slots.operator.first()?;
        let mut score = self.before_first[at];
        let mut pairs = vec![Vec::new(); self.slots.slots.len()];
        while text.has_byte(at, mark) {
            let Some((reading, rest)) =
                self.readings(text, at + 1).find(|&(_, rest)| rest > 0 && with_one_more(rest) == score)
            else {
                break;
            };
            let (index, name, value);
            (index, name, value, at) = match reading {
                ParameterReading::Value(index, start) => {
                    let end = text.longest(&self.slots.slots[index], start, &self.after_first, rest)?;
                    (index, text.slice(at + 1, start - 1), text.slice(start, end), end)
                }
                ParameterReading::Bare(index, end) => (index, text.slice(at + 1, end), "", end),
                ParameterReading::Foreign(index) => {
                    let (name, value, end) = self.match_foreign(index, text, at + 1, rest)?;
                    (index, name, value, end)
                }
            };
            pairs[index].push((name, value));
            mark = self.slots.operator.separator();
            score = rest;
        }
        debug_assert_eq!(next[at], score);
        for (slot, pairs) in self.slots.slots.iter().zip(pairs) {
            bind(slot, &pairs, bindings)?;
        }
        Some(at)
    }

    /// Matches a parameter with a foreign name; returns its name, its value and its end.
    fn match_foreign<'t>(
        &self,
        index: usize,
        text: &UriText<'t>,
        start: usize,
        score: u16,
    ) -> Option<(&'t str, &'t str, usize)> {
        let slot = &self.slots.slots[index];
        let mut at = start;
        while let Some(after) = text.char_end(at, slot.allowed) {
            work::count(1);
            if text.has_byte(at, b'=') {
                if self.values[index][after] != score {
                    break;
                }
                let end = text.longest(slot, after, &self.after_first, score)?;
                return Some((text.slice(start, at), text.slice(after, end), end));
            }
            if self.names[after] != score {
                break;
            }
            at = after;
        }
        Some((text.slice(start, at), "", at))
    }
}

fn bind(slot: &VariableSlot, pairs: &[(&str, &str)], bindings: &mut Bindings) -> Option<()> {
    if !slot.explode {
        return pairs.iter().try_for_each(|(_, value)| bindings.text(slot, value));
    }
    if pairs.is_empty() {
        Some(())
    } else if pairs.iter().all(|(name, _)| *name == slot.key) {
        bindings.list(slot, pairs.iter().map(|(_, value)| *value))
    } else {
        bindings.map(slot, pairs)
    }
}
