//! What a source says happened.

use crate::Uri;

/// Something that happened to a source's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// What reading a resource gives is different now.
    Updated(Uri),
    /// What the list shows of a resource is different now.
    Described(Uri),
    /// A resource is there that was not.
    Added(Uri),
    /// A resource that was there is gone.
    Removed(Uri),
    /// Changes were missed. Whoever keeps something about this source must look again.
    Lost,
}
