//! A URI cut into characters.

use std::collections::VecDeque;

use super::work;
use crate::uri::percent;
use crate::uri_template::pattern::{AllowedBytes, VariableSlot};

/// A URI cut into characters. Positions are bytes, but only those where a character begins are used,
/// so that no value ends within an escape or within a character of several escapes.
pub(super) struct UriText<'a> {
    text: &'a str,
    /// By position; zero where no character begins.
    lengths: Vec<u8>,
    /// By position: what stands there unescaped, [`ESCAPED`], or [`NEVER`].
    kinds: Vec<u8>,
}

/// A character that is escaped, and so has no meaning of its own.
const ESCAPED: u8 = 0x80;
/// An escape that is no part of a UTF-8 character. No value can hold it.
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

    /// Whether this literal stands here.
    pub(super) fn has(&self, at: usize, literal: &str) -> bool {
        self.text.as_bytes()[at..].starts_with(literal.as_bytes())
    }

    /// Whether this byte stands here unescaped.
    pub(super) fn is(&self, at: usize, byte: u8) -> bool {
        self.kinds.get(at) == Some(&byte)
    }

    /// Where the character that stands here ends, if a value of this allowed may hold it.
    pub(super) fn after(&self, at: usize, allowed: AllowedBytes) -> Option<usize> {
        let kind = *self.kinds.get(at)?;
        (kind == ESCAPED || allowed.allows(kind)).then(|| at + usize::from(self.lengths[at]))
    }

    /// The last position at which a value that begins here may end and `row` still has `score`.
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
            match self.after(at, slot.allowed) {
                Some(after) => at = after,
                None => return found,
            }
            taken += 1;
        }
    }
}

/// The length and the kind of the character that a text begins with.
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

/// The best score that a value can lead to, asked position by position from the end.
///
/// A value that begins somewhere may end anywhere up to its limit, so this is the maximum of a sliding
/// window. Each position enters and leaves the queue once.
pub(super) struct SlidingMaximum {
    limit: usize,
    index: usize,
    /// The index from the end and the score of each end that may still be best, the farthest first.
    queue: VecDeque<(usize, u16)>,
}

impl SlidingMaximum {
    pub(super) fn new(slot: &VariableSlot) -> Self {
        Self { limit: slot.limit.unwrap_or(usize::MAX), index: 0, queue: VecDeque::new() }
    }

    /// Moves on to a position that has this score if the value ends there. `open` says whether a value
    /// may hold the character that stands there.
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
