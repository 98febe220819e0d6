//! Decides questions about the sets of URIs that patterns match, by simulating the patterns as finite automata.

use std::collections::HashSet;

use super::pattern::{PatternToken, UriPattern};

/// The states of a pattern's automaton (NFA) after some input. There are two states for each token, and an accepting
/// state after the last token.
///
/// The first state of a token is before it. The second is within the segments of [`PatternToken::Segments`], and after
/// the slash of [`PatternToken::Below`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct States(Vec<u32>);

impl States {
    /// The states before any input.
    pub(super) fn start(tokens: &[PatternToken]) -> Self {
        let mut states = Self(Vec::with_capacity(4));
        states.enter(tokens, 0);
        states
    }

    /// The states after one more byte.
    pub(super) fn after(&self, tokens: &[PatternToken], byte: u8) -> Self {
        let mut next = Self(Vec::with_capacity(self.0.len() + 1));
        for &state in &self.0 {
            let at = state as usize / 2;
            let is_second = state % 2 == 1;
            match tokens.get(at) {
                Some(PatternToken::Byte(expected)) if *expected == byte => next.enter(tokens, at + 1),
                Some(PatternToken::Star) if byte != b'/' => next.enter(tokens, at),
                Some(PatternToken::Segments) if byte == b'/' => next.enter(tokens, at),
                Some(PatternToken::Segments) => next.add(2 * at + 1),
                Some(PatternToken::Below) if is_second || byte == b'/' => next.add(2 * at + 1),
                Some(PatternToken::Anything) => next.add(2 * at + 1),
                _ => {}
            }
        }
        next.0.sort_unstable();
        next
    }

    /// Enters the state before a token, and the states that are reachable from it without input.
    fn enter(&mut self, tokens: &[PatternToken], at: usize) {
        self.add(2 * at);
        if let Some(PatternToken::Star | PatternToken::Segments) = tokens.get(at) {
            self.enter(tokens, at + 1);
        }
    }

    fn add(&mut self, state: usize) {
        let state = state as u32;
        if !self.0.contains(&state) {
            self.0.push(state);
        }
    }

    /// Whether the input so far matches.
    pub(super) fn accept(&self, tokens: &[PatternToken]) -> bool {
        self.0.iter().any(|state| {
            matches!(
                tokens.get(*state as usize / 2),
                None | Some(PatternToken::Below | PatternToken::Anything)
            )
        })
    }

    /// Whether no input that begins with the input so far matches.
    pub(super) fn is_dead(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every input that begins with the input so far is certain to match. `false` does not exclude it.
    fn accept_all(&self, tokens: &[PatternToken]) -> bool {
        self.0.iter().any(|state| match tokens.get(*state as usize / 2) {
            Some(PatternToken::Below) => state % 2 == 1,
            Some(PatternToken::Anything) => true,
            _ => false,
        })
    }
}

/// The state of a pattern's automaton after some input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run<'p> {
    /// The rest of the pattern's literal prefix, which the input must match next.
    literal: &'p [u8],
    states: States,
    tokens: TokenList<'p>,
}

/// Tokens that are compared by identity: a search never changes them.
#[derive(Clone, Copy, Debug)]
struct TokenList<'p>(&'p [PatternToken]);

impl PartialEq for TokenList<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for TokenList<'_> {}

impl std::hash::Hash for TokenList<'_> {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.0.as_ptr().hash(hasher);
    }
}

impl<'p> Run<'p> {
    /// The pattern after this input; `None` if no URI that begins with the input matches.
    fn start(pattern: &'p UriPattern, input: &[u8]) -> Option<Self> {
        let tokens = pattern.rest();
        let literal = pattern.literal();
        let common = literal.len().min(input.len());
        if literal[..common] != input[..common] {
            return None;
        }
        let run =
            Self { literal: &literal[common..], states: States::start(tokens), tokens: TokenList(tokens) };
        input[common..].iter().try_fold(run, |run, byte| run.after(*byte))
    }

    fn after(self, byte: u8) -> Option<Self> {
        if let [first, rest @ ..] = self.literal {
            return (*first == byte).then_some(Self { literal: rest, ..self });
        }
        let states = self.states.after(self.tokens.0, byte);
        (!states.is_dead()).then_some(Self { states, ..self })
    }

    fn accepts(&self) -> bool {
        self.literal.is_empty() && self.states.accept(self.tokens.0)
    }

    fn accepts_all(&self) -> bool {
        self.literal.is_empty() && self.states.accept_all(self.tokens.0)
    }

    /// Adds the bytes that the pattern treats differently from other bytes at this point.
    fn bytes(&self, into: &mut HashSet<u8>) {
        into.extend(self.literal.first());
        into.extend(self.states.0.iter().filter_map(|state| match self.tokens.0.get(*state as usize / 2) {
            Some(PatternToken::Byte(byte)) => Some(*byte),
            _ => None,
        }));
    }
}

/// Whether there is a URI that begins with `prefix` and matches `pattern`, but none of `others`. URIs and patterns are in
/// normal form, which does not end in a slash.
///
/// `steps` limits the time and the memory of the search: each byte that a pattern consumes is a step, and is subtracted.
/// Returns `None` if the search would need more.
pub(super) fn has_match<'p>(
    prefix: &[u8],
    pattern: &'p UriPattern,
    others: impl IntoIterator<Item = &'p UriPattern>,
    steps: &mut usize,
) -> Option<bool> {
    let Some(run) = Run::start(pattern, prefix) else { return Some(false) };
    let others: Vec<_> = others.into_iter().filter_map(|other| Run::start(other, prefix)).collect();
    *steps = steps.checked_sub(1 + others.len())?;
    let mut seen = HashSet::new();
    let mut waiting = vec![SearchNode { run, others, last: prefix.last().copied() }];
    while let Some(node) = waiting.pop() {
        if node.others.iter().any(Run::accepts_all) {
            continue;
        }
        // If no other pattern can match any more, any input that completes this pattern is a match. There is such an
        // input, because the run of this pattern is not dead.
        if node.others.is_empty() || node.is_match() {
            return Some(true);
        }
        for byte in node.bytes() {
            *steps = steps.checked_sub(1 + node.others.len())?;
            let Some(next) = node.after(byte) else { continue };
            if seen.insert((next.run.clone(), next.others.clone(), byte == b'/')) {
                waiting.push(next);
            }
        }
    }
    Some(false)
}

/// A node of the search: the states of all patterns after some input.
struct SearchNode<'p> {
    run: Run<'p>,
    others: Vec<Run<'p>>,
    last: Option<u8>,
}

impl SearchNode<'_> {
    fn is_match(&self) -> bool {
        self.last != Some(b'/') && self.run.accepts() && !self.others.iter().any(Run::accepts)
    }

    /// The bytes to continue with: each that a pattern expects, and one that no pattern expects. The latter is last, so
    /// that the search tries it first: it usually ends the matches of the other patterns.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = HashSet::from([b'/']);
        self.run.bytes(&mut bytes);
        self.others.iter().for_each(|other| other.bytes(&mut bytes));
        let unexpected = (b'a'..=b'z').chain(0..=u8::MAX).find(|byte| !bytes.contains(byte));
        let mut bytes: Vec<_> = bytes.into_iter().collect();
        bytes.sort_unstable();
        bytes.extend(unexpected);
        bytes
    }

    fn after(&self, byte: u8) -> Option<Self> {
        let run = self.run.clone().after(byte)?;
        let others = self.others.iter().cloned().filter_map(|other| other.after(byte)).collect();
        Some(Self { run, others, last: Some(byte) })
    }
}

#[cfg(test)]
mod tests;
