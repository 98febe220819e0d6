//! The listing of the workspace: cached, and searched once for concurrent callers (single-flight).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libris_core::{Completion, Error, Flights, Proof, Resource, Result, Uri};
use tokio::time::timeout;

use super::objects::{self, NotionObject, ObjectKind, ObjectMap};
use super::{INFO_URI, NotionInner};

/// The maximum number of bytes of the responses of a search.
pub(super) const MAX_SEARCH_BYTES: u64 = 256 << 20;

/// How long a caller waits for a new search before it gets the stale listing.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the stale listing is used, after such a wait, before a caller waits again.
const STALE_PAUSE: Duration = Duration::from_secs(10);

/// The objects and resources of a workspace.
pub(super) struct WorkspaceListing {
    all: ObjectMap,
    pub(super) resources: BTreeMap<Uri, Resource>,
}

/// The last listing, and the search for the next.
#[derive(Default)]
pub(super) struct Listings {
    last: Mutex<Option<LastListing>>,
    searches: Flights<(), ListingOutcome>,
}

type ListingOutcome = Result<Arc<WorkspaceListing>, Arc<Error>>;

struct LastListing {
    listing: Arc<WorkspaceListing>,
    /// The time at which the listing becomes stale.
    until: Instant,
}

impl Listings {
    fn last(&self) -> MutexGuard<'_, Option<LastListing>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self) -> Option<Arc<WorkspaceListing>> {
        let last = self.last();
        last.as_ref().filter(|last| Instant::now() < last.until).map(|last| last.listing.clone())
    }
}

/// A proof that holds while this is the last listing, and fresh; `None` if it is stale already.
pub(super) fn listing_proof(inner: &Arc<NotionInner>, listing: &Arc<WorkspaceListing>) -> Option<Proof> {
    let (inner, listing) = (Arc::downgrade(inner), Arc::downgrade(listing));
    let proof = Proof::new(move || {
        let fresh = inner.upgrade().and_then(|inner| inner.listings.fresh());
        fresh.is_some_and(|fresh| std::ptr::eq(Arc::as_ptr(&fresh), listing.as_ptr()))
    });
    Some(proof).filter(Proof::holds)
}

impl NotionInner {
    /// The cached listing if it is fresh, otherwise a new listing. If Notion is slow or fails, the stale listing; an
    /// error if there is none.
    pub(super) async fn listing(self: &Arc<Self>) -> Result<Arc<WorkspaceListing>> {
        if let Some(listing) = self.listings.fresh() {
            return Ok(listing);
        }
        let before = self.listings.last().as_ref().map(|last| last.listing.clone());
        let search =
            self.listings.searches.join(&(), || self.listings.fresh().map(Ok), || self.clone().search());
        let Some(before) = before else { return search.await.map_err(|error| Error::from_shared(&error)) };
        // The search is awaited in a task of its own, so that it continues for later callers.
        let error = match timeout(SEARCH_TIMEOUT, tokio::spawn(search)).await {
            Ok(Ok(Ok(listing))) => return Ok(listing),
            Ok(Ok(Err(error))) => Some(error),
            Ok(Err(_)) | Err(_) => None,
        };
        // A stale listing is better than an error, which would affect the whole list.
        tracing::warn!(?error, "could not search Notion; the previous list is used");
        if let Some(last) = &mut *self.listings.last() {
            last.until = last.until.max(Instant::now() + STALE_PAUSE);
        }
        Ok(before)
    }

    async fn search(self: Arc<Self>) -> ListingOutcome {
        let info = Uri::parse(INFO_URI).map_err(Arc::new)?;
        let found = objects::search(&self.client, None, MAX_SEARCH_BYTES).await;
        found.map(|all| self.replace_listing(all)).map_err(|fault| {
            Arc::new(match fault.into_error(&info) {
                // The error concerns the whole list and not the resource at this URI.
                Error::Missing { hint, .. } => Error::Unavailable(hint),
                error => error,
            })
        })
    }

    /// Replaces the listing with the objects of a search.
    pub(super) fn replace_listing(&self, all: ObjectMap) -> Arc<WorkspaceListing> {
        let listing = Arc::new(WorkspaceListing::new(all));
        let until = Instant::now() + self.config.cache;
        *self.listings.last() = Some(LastListing { listing: listing.clone(), until });
        listing
    }

    /// Makes the listing stale.
    pub(super) fn expire_listing(&self) {
        if let Some(last) = &mut *self.listings.last() {
            last.until = Instant::now();
        }
    }

    /// The objects of the last search, even if they are stale.
    pub(super) fn last_objects(&self) -> Option<ObjectMap> {
        self.listings.last().as_ref().map(|last| last.listing.all.clone())
    }
}

impl WorkspaceListing {
    fn new(all: ObjectMap) -> Self {
        let info = Uri::parse(INFO_URI).ok().map(|uri| Resource {
            title: Some("Notion workspace".into()),
            description: Some("Whose workspace this is, and what it is called.".into()),
            mime: Some("application/json".into()),
            ..Resource::new(uri, "info")
        });
        let resources = all.values().flat_map(NotionObject::resources).chain(info);
        let resources = resources.map(|resource| (resource.uri.clone(), resource)).collect();
        Self { all, resources }
    }

    /// Completes an id from a part of the title or a prefix of the id. Objects whose titles begin with the typed text
    /// come first.
    pub(super) fn complete(&self, kind: ObjectKind, typed: &str, limit: usize) -> Completion {
        let typed = typed.to_lowercase();
        let mut fits: Vec<(u8, &str, &str)> = Vec::new();
        for found in self.all.values().filter(|found| found.kind == kind) {
            let title = found.title.to_lowercase();
            let rank = if title.starts_with(&typed) {
                0
            } else if title.contains(&typed) {
                1
            } else if found.id.starts_with(&typed) {
                2
            } else {
                continue;
            };
            fits.push((rank, &found.title, &found.id));
        }
        fits.sort_unstable();
        let total = fits.len();
        let values: Vec<_> = fits.into_iter().take(limit).map(|(_, _, id)| id.to_owned()).collect();
        Completion { more: total > values.len(), values, total: Some(total as u64), proof: None }
    }
}
