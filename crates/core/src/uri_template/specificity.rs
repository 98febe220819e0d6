//! Specificity: which of several patterns for the same URI takes precedence.

use std::cmp::Reverse;

use super::pattern::{Pattern, PatternPart};

/// How specific a pattern for a URI is; the greater takes precedence.
///
/// A pattern is more specific if it has more literal characters; then, if it has fewer variables; then, if fewer of its
/// variables match across slashes. Ties are broken by a hash of the template, so that the order of the sources does not
/// matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specificity {
    literals: usize,
    variables: Reverse<usize>,
    /// The variables of `{+x}` and `{#x}`, which match across slashes.
    reserved: Reverse<usize>,
    hash: u64,
}

impl Specificity {
    /// The specificity of a resource with a fixed URI, greater than that of every template.
    pub const EXACT: Self =
        Self { literals: usize::MAX, variables: Reverse(0), reserved: Reverse(0), hash: u64::MAX };

    /// Whether the pattern has no literal character, so that it matches URIs of any scheme.
    pub fn is_catch_all(&self) -> bool {
        self.literals == 0
    }

    pub(super) fn of(text: &str, pattern: &Pattern) -> Self {
        let mut literals = 0;
        let mut variables = 0;
        let mut reserved = 0;
        for part in &pattern.parts {
            match part {
                PatternPart::Literal(literal) => literals += literal.len(),
                PatternPart::Expression(expression) => {
                    variables += expression.slots.len();
                    if expression.operator.keeps_reserved() {
                        reserved += expression.slots.len();
                    }
                }
            }
        }
        Self { literals, variables: Reverse(variables), reserved: Reverse(reserved), hash: hash(text) }
    }
}

/// FNV-1a. The hash functions of the standard library may change between releases.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
