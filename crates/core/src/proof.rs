//! Knowing that an answer is still right without making it again.

use std::fmt;
use std::sync::Arc;

/// Tells whether a source would still give the answer that this came with.
///
/// Whoever keeps an answer asks before each time it is handed out, so it must cost far less than making
/// the answer, and must not wait. A source that cannot tell gives no proof, and its answers are not kept.
#[derive(Clone)]
pub struct Proof(Arc<dyn Fn() -> bool + Send + Sync>);

impl Proof {
    /// A proof that holds for as long as `holds` says so.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    /// A proof for what never changes.
    pub fn always() -> Self {
        Self::new(|| true)
    }

    /// Whether a new answer would be the same.
    pub fn holds(&self) -> bool {
        (self.0)()
    }

    /// A proof that holds while both do.
    pub fn and(self, other: Self) -> Self {
        Self::new(move || self.holds() && other.holds())
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof").finish_non_exhaustive()
    }
}

/// Always: a proof says when an answer was right, and nothing about what it is.
impl PartialEq for Proof {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}
