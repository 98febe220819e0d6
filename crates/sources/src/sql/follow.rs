//! The state of the resources that clients subscribe to.

use std::collections::BTreeMap;

use libris_core::{Client, Uri};

/// The followed resources.
pub(super) type FollowedSqlResources = crate::followed::Followed<FollowedSqlResource>;

/// The state of a followed resource.
pub(super) struct FollowedSqlResource {
    /// The digest of the resource's contents at the last poll; `None` before the first poll.
    pub(super) digest: Option<u64>,
    /// Whether a client of another replica may have read an older state, so that the first poll reports a change.
    pub(super) is_baseline_reported: bool,
    /// The client whose polling time a poll of this resource uses up.
    pub(super) client: Client,
}

/// Followed resources, each with the digest of its contents at the last poll.
pub(super) type SqlResourceDigests = Vec<(Uri, Option<u64>)>;

/// The followed resources by client, in the order of their URIs.
pub(super) fn by_client(followed: &FollowedSqlResources) -> BTreeMap<Client, SqlResourceDigests> {
    let all: Vec<_> = followed.collect(|(uri, known)| Some((known.client, (uri.clone(), known.digest))));
    let mut clients = BTreeMap::<_, SqlResourceDigests>::new();
    for (client, digest) in all {
        clients.entry(client).or_default().push(digest);
    }
    clients
}
