//! The changes that a source reports.

use crate::Uri;

/// A change of the resources of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The contents of a resource changed.
    Updated(Uri),
    /// The metadata of a listed resource changed.
    Described(Uri),
    /// A resource was added.
    Added(Uri),
    /// A resource was removed.
    Removed(Uri),
    /// The tools or the prompts of the source changed.
    Features,
    /// The source may have missed changes, for example in a queue overflow. Watchers must list and read again.
    Lost,
}
