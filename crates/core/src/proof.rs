//! Proofs: cheap validity checks of cached responses.

use std::fmt;
use std::sync::Arc;

/// A check whether a response of a source is still valid.
///
/// A cache runs the check before each use of the response. So the check must not block, and must be far cheaper than a new
/// response. A source that cannot check returns no proof, and its responses are not cached.
#[derive(Clone)]
pub struct Proof(Arc<dyn Fn() -> bool + Send + Sync>);

impl Proof {
    /// A proof that holds while `holds` returns `true`.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    /// A proof for data that never changes.
    pub fn always() -> Self {
        Self::new(|| true)
    }

    /// Whether the response is still valid: the source would return the same one now.
    pub fn holds(&self) -> bool {
        (self.0)()
    }

    /// A proof that holds while both hold.
    pub fn and(self, other: Self) -> Self {
        Self::new(move || self.holds() && other.holds())
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof").finish_non_exhaustive()
    }
}

/// All proofs are equal, so that a proof does not affect the equality of the response that contains it.
impl PartialEq for Proof {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Proof {}
