//! Which of several answers to the same URI is meant most closely.

use std::cmp::Reverse;

use super::pattern::{Pattern, PatternPart};

/// How closely a URI is described by what covers it; the closer is the greater.
///
/// More literal characters win, then fewer variables, then fewer of those that match across slashes.
/// What is still equal is ordered by a hash of the template, so that the order in which sources are
/// named never decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specificity {
    literals: usize,
    variables: Reverse<usize>,
    reserved: Reverse<usize>,
    hash: u64,
}

impl Specificity {
    /// That of a resource which is there by itself: it beats every template.
    pub const EXACT: Self =
        Self { literals: usize::MAX, variables: Reverse(0), reserved: Reverse(0), hash: u64::MAX };

    pub(super) fn of(text: &str, pattern: &Pattern) -> Self {
        let mut literals = 0;
        let mut variables = 0;
        let mut reserved = 0;
        for step in &pattern.parts {
            match step {
                PatternPart::Literal(literal) => literals += literal.len(),
                PatternPart::Expression(expression) => {
                    variables += expression.slots.len();
                    if expression.operator.reserved() {
                        reserved += expression.slots.len();
                    }
                }
            }
        }
        Self { literals, variables: Reverse(variables), reserved: Reverse(reserved), hash: hash(text) }
    }
}

/// FNV-1a, because the hashes of the standard library may differ from one release to the next.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
