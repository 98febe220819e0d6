//! A URI split into characters.

use std::collections::VecDeque;

use super::work;
use crate::uri::percent;
use crate::uri_template::pattern::{AllowedBytes, VariableSlot};

/// A URI split into characters. A character may consist of several escapes. A value begins and ends only at a character
/// boundary, never inside a character.
pub(super) struct UriText<'a> {
    text: &'a str,
    /// The length of the character at each position; zero inside a character.
    lengths: Vec<u8>,
    /// The character at each position: an unescaped byte, [`ESCAPED`], or [`NEVER`].
    kinds: Vec<u8>,
}

/// An escaped character, which is never a delimiter.
const ESCAPED: u8 = 0x80;
/// An escape that is not part of a valid UTF-8 character. No value can contain it.
const NEVER: u8 = 0xff;

impl<'a> UriText<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut lengths = vec![0; text.len()];
        let mut kinds = vec![NEVER; text.len()];
        let mut at = 0;
        while at < text.len() {
            work::count(1);
            let (length, kind) = character(&text.as_bytes()[at..]);
            lengths[at] = length;
            kinds[at] = kind;
            at += usize::from(length);
        }
        Self { text, lengths, kinds }
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn slice(&self, start: usize, end: usize) -> &'a str {
        &self.text[start..end]
    }

    /// The positions where a character begins, and the end.
    pub(super) fn boundaries(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..=self.len()).filter(|&at| at == self.len() || self.lengths[at] > 0)
    }

    /// Whether the URI has this literal at `at`.
    pub(super) fn has_literal(&self, at: usize, literal: &str) -> bool {
        self.text.as_bytes()[at..].starts_with(literal.as_bytes())
    }

    /// Whether the URI has this unescaped byte at `at`.
    pub(super) fn has_byte(&self, at: usize, byte: u8) -> bool {
        self.kinds.get(at) == Some(&byte)
    }

    /// The end of the character at `at`, if a value may contain it.
    pub(super) fn char_end(&self, at: usize, allowed: AllowedBytes) -> Option<usize> {
        let kind = *self.kinds.get(at)?;
        (kind == ESCAPED || allowed.allows(kind)).then(|| at + usize::from(self.lengths[at]))
    }

    /// The end of the longest value that begins at `start` and at whose end `row` has this score (greedy match); `None`
    /// if there is no such value.
    pub(super) fn longest(
        &self,
        slot: &VariableSlot,
        start: usize,
        row: &[u16],
        score: u16,
    ) -> Option<usize> {
        let mut found = None;
        let mut at = start;
        let mut taken = 0;
        loop {
            work::count(1);
            if row[at] == score {
                found = Some(at);
            }
            if slot.limit == Some(taken) {
                return found;
            }
            match self.char_end(at, slot.allowed) {
                Some(after) => at = after,
                None => return found,
            }
            taken += 1;
        }
    }
}

/// The length and the kind of the first character.
fn character(text: &[u8]) -> (u8, u8) {
    if !percent::is_escape(text) {
        return (1, if text[0].is_ascii() { text[0] } else { NEVER });
    }
    let mut decoded = [0; 4];
    for (at, escape) in text.chunks(3).take(4).enumerate() {
        if !percent::is_escape(escape) {
            break;
        }
        decoded[at] = percent::byte(escape[1], escape[2]);
        if std::str::from_utf8(&decoded[..=at]).is_ok() {
            return (3 * (at as u8 + 1), ESCAPED);
        }
    }
    (3, NEVER)
}

/// Computes, from the last position to the first, the best score of a value that begins there.
///
/// The value may end anywhere up to its length limit, so this is a sliding window maximum with a monotonic queue.
pub(super) struct SlidingMaximum {
    limit: usize,
    index: usize,
    /// Candidates for the maximum: the index, counted from the end of the URI, and the score. The lowest index is
    /// first.
    queue: VecDeque<(usize, u16)>,
}

impl SlidingMaximum {
    pub(super) fn new(slot: &VariableSlot) -> Self {
        Self { limit: slot.limit.unwrap_or(usize::MAX), index: 0, queue: VecDeque::new() }
    }

    /// Moves to the preceding position and returns the best score of a value that begins there. `score` is the
    /// score of a value that ends at that position. `open` is true if a value may contain the character at that
    /// position.
    pub(super) fn push(&mut self, score: u16, open: bool) -> u16 {
        work::count(1);
        if !open {
            self.queue.clear();
        }
        while self.queue.back().is_some_and(|&(_, other)| other <= score) {
            work::count(1);
            self.queue.pop_back();
        }
        self.queue.push_back((self.index, score));
        while self.queue.front().is_some_and(|&(index, _)| self.index - index > self.limit) {
            work::count(1);
            self.queue.pop_front();
        }
        self.index += 1;
        self.queue.front().map_or(0, |&(_, best)| best)
    }
}
