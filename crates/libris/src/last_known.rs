//! The last known listings of sources, served while a source is unavailable (stale-if-error).
//!
//! A source whose pages have a proof lists from memory or from disk and rarely fails, so its pages are not stored: the
//! copies would cost more than they gain. A source that [may fail](libris_core::Source::may_fail) is the exception.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use libris_core::{Annotations, Page, Resource, SourceTool, Template, Uri};

use crate::lock::lock;

/// The largest total [`weight`] of the stored resources of a source.
const SOURCE_LIMIT: usize = 8_000;

/// The largest total [`weight`] of the stored resources of all sources of a catalog.
pub(crate) const CATALOG_LIMIT: usize = 12_000;

/// The number of bytes of text that increase the weight of a resource by one.
pub(crate) const TEXT_UNIT: usize = 1 << 10;

/// The largest number of templates that are stored per source. If a source has more, none are stored.
const TEMPLATE_LIMIT: usize = 1_000;

/// The quota for the stored resources of all sources of a catalog.
#[derive(Default)]
pub(crate) struct LastKnownQuota {
    used: AtomicUsize,
}

impl LastKnownQuota {
    /// Takes up to `wanted` from the quota and returns the amount taken.
    fn take(&self, wanted: usize) -> usize {
        let mut taken = 0;
        let update = |used: usize| {
            taken = wanted.min(CATALOG_LIMIT.saturating_sub(used));
            Some(used + taken)
        };
        // The closure always returns `Some`.
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        taken
    }

    fn give_back(&self, amount: usize) {
        self.used.fetch_sub(amount, Ordering::Relaxed);
    }
}

/// The last known resources, templates and tools of one source.
pub(crate) struct LastKnown {
    listing: Mutex<Option<KnownListing>>,
    /// Whether there is a listing. [`forget`](Self::forget), which every page with a proof calls, checks this flag
    /// without a lock.
    is_listed: AtomicBool,
    templates: Mutex<Option<Vec<Template>>>,
    /// Shared with the source, so they take no additional memory while the source is available.
    tools: Mutex<Option<Arc<[SourceTool]>>>,
    quota: Arc<LastKnownQuota>,
}

/// A prefix of the resources of a source in URI order, without gaps.
#[derive(Default)]
struct KnownListing {
    resources: Vec<Resource>,
    /// Whether these are all resources of the source.
    complete: bool,
    weight: usize,
}

/// The size of a stored listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredListingSize {
    pub(crate) resources: usize,
    pub(crate) complete: bool,
}

impl LastKnown {
    pub(crate) fn new(quota: Arc<LastKnownQuota>) -> Self {
        Self {
            listing: Mutex::default(),
            is_listed: AtomicBool::new(false),
            templates: Mutex::default(),
            tools: Mutex::default(),
            quota,
        }
    }

    /// Stores a page of the source, if it overlaps or continues the stored prefix.
    pub(crate) fn learn(&self, after: Option<&Uri>, page: &Page) {
        let mut listing = lock(&self.listing);
        if listing.is_none() && after.is_some() {
            return;
        }
        self.is_listed.store(true, Ordering::Relaxed);
        listing.get_or_insert_default().learn(after, page, &self.quota);
    }

    /// Removes the stored listing.
    pub(crate) fn forget(&self) {
        if self.is_listed.swap(false, Ordering::Relaxed)
            && let Some(listing) = lock(&self.listing).take()
        {
            self.quota.give_back(listing.weight);
        }
    }

    /// The stored page after `after`; `None` if there is no stored listing.
    pub(crate) fn page(&self, after: Option<&Uri>, limit: usize) -> Option<Page> {
        let listing = lock(&self.listing);
        let KnownListing { resources, .. } = listing.as_ref()?;
        let start = after.map_or(0, |after| resources.partition_point(|resource| resource.uri <= *after));
        let rest = &resources[start..];
        let page = &rest[..rest.len().min(limit)];
        Some(Page { resources: page.to_vec(), more: page.len() < rest.len(), ..Page::default() })
    }

    /// The size of the stored listing; `None` if there is none.
    pub(crate) fn stored_size(&self) -> Option<StoredListingSize> {
        let listing = lock(&self.listing);
        listing.as_ref().map(|listing| StoredListingSize {
            resources: listing.resources.len(),
            complete: listing.complete,
        })
    }

    /// Stores the templates of the source.
    pub(crate) fn learn_templates(&self, templates: &[Template]) {
        let mut known = lock(&self.templates);
        if known.as_deref() != Some(templates) {
            *known = (templates.len() <= TEMPLATE_LIMIT).then(|| templates.to_vec());
        }
    }

    /// The stored templates.
    pub(crate) fn templates(&self) -> Option<Vec<Template>> {
        lock(&self.templates).clone()
    }

    /// Stores the tools of the source.
    pub(crate) fn learn_tools(&self, tools: &Arc<[SourceTool]>) {
        *lock(&self.tools) = Some(tools.clone());
    }

    /// The stored tools.
    pub(crate) fn tools(&self) -> Option<Arc<[SourceTool]>> {
        lock(&self.tools).clone()
    }
}

impl Drop for LastKnown {
    fn drop(&mut self) {
        let listing = lock(&self.listing).take();
        self.quota.give_back(listing.map_or(0, |listing| listing.weight));
    }
}

impl KnownListing {
    /// Replaces the range that the page covers, if it overlaps or continues the stored prefix.
    fn learn(&mut self, after: Option<&Uri>, page: &Page, quota: &LastKnownQuota) {
        if page.more && page.resources.is_empty() {
            return;
        }
        let up_to = |uri: &Uri| self.resources.partition_point(|resource| resource.uri <= *uri);
        let start = match after {
            None => 0,
            Some(after) => {
                let is_reached =
                    self.complete || self.resources.last().is_some_and(|last| *after <= last.uri);
                if !is_reached {
                    return;
                }
                up_to(after)
            }
        };
        // The last page covers everything after its start.
        let end = match page.resources.last().filter(|_| page.more) {
            Some(last) => up_to(&last.uri),
            None => self.resources.len(),
        };
        let complete = !page.more || (self.complete && end < self.resources.len());
        if complete == self.complete && self.resources[start..end] == page.resources {
            return;
        }
        let before: usize = self.resources[start..end].iter().map(weight).sum();
        let added: usize = page.resources.iter().map(weight).sum();
        self.resources.splice(start..end, page.resources.iter().cloned());
        let wanted = self.weight - before + added;
        let room = self.weight + quota.take(wanted.saturating_sub(self.weight));
        // Drops resources from the end until the listing fits.
        let (mut used, limit) = (wanted, room.min(SOURCE_LIMIT));
        let mut length = self.resources.len();
        while used > limit {
            length -= 1;
            used -= weight(&self.resources[length]);
        }
        self.complete = complete && length == self.resources.len();
        self.resources.truncate(length);
        quota.give_back(room - used);
        self.weight = used;
    }
}

/// How much of the quota a resource uses: 1, and 1 more for each [`TEXT_UNIT`] bytes of its texts.
fn weight(resource: &Resource) -> usize {
    let Resource { uri, name, title, description, mime, icons, annotations, meta, size: _ } = resource;
    let Annotations { audience, .. } = annotations;
    let texts = [title, description, mime].into_iter().flatten().map(String::len).sum::<usize>();
    let icons: usize = icons
        .iter()
        .map(|icon| 128 + icon.src.len() + icon.sizes.iter().map(String::len).sum::<usize>())
        .sum();
    let meta =
        meta.as_ref().map_or(0, |meta| serde_json::to_string(meta).map_or(TEXT_UNIT, |text| text.len()));
    1 + (uri.as_str().len() + name.len() + texts + icons + audience.len() + meta) / TEXT_UNIT
}

#[cfg(test)]
mod tests {
    use super::{CATALOG_LIMIT, LastKnown, LastKnownQuota, SOURCE_LIMIT, StoredListingSize};
    use libris_core::{Page, Resource, Uri};
    use proptest::collection::{btree_set, vec};
    use proptest::{prop_assert, prop_assert_eq, proptest};
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn uri(number: usize) -> Uri {
        Uri::parse(&format!("a:{number:06}")).unwrap()
    }

    fn page(numbers: impl IntoIterator<Item = usize>, more: bool) -> Page {
        let resources = numbers.into_iter().map(|number| Resource::new(uri(number), "a")).collect();
        Page { resources, more, ..Page::default() }
    }

    fn numbers(page: &Page) -> Vec<usize> {
        page.resources.iter().map(|resource| resource.uri.path().parse().unwrap()).collect()
    }

    #[test]
    fn pages_are_stored_without_gaps() {
        let known = LastKnown::new(Arc::default());
        assert_eq!(known.page(None, 9), None);
        known.learn(Some(&uri(5)), &page([6, 7], false));
        assert_eq!(known.page(None, 9), None, "the pages before it are missing");
        known.learn(None, &page([1, 3], true));
        known.learn(Some(&uri(5)), &page([6, 7], false));
        assert_eq!(known.stored_size(), Some(StoredListingSize { resources: 2, complete: false }));
        known.learn(Some(&uri(3)), &page([4, 5], true));
        known.learn(Some(&uri(5)), &page([6, 7], false));
        assert_eq!(known.stored_size(), Some(StoredListingSize { resources: 6, complete: true }));
        known.learn(None, &page([2, 3], true));
        let first = known.page(None, 3).unwrap();
        assert_eq!((numbers(&first), first.more), (vec![2, 3, 4], true));
        let rest = known.page(Some(&uri(4)), 3).unwrap();
        assert_eq!((numbers(&rest), rest.more), (vec![5, 6, 7], false));
        known.learn(None, &page([], false));
        assert_eq!(known.stored_size(), Some(StoredListingSize { resources: 0, complete: true }));
        known.forget();
        assert_eq!(known.stored_size(), None);
    }

    #[test]
    fn stored_listings_are_bounded() {
        let quota = Arc::new(LastKnownQuota::default());
        let used = || quota.used.load(Ordering::Relaxed);
        let sources: Vec<_> = (0..7).map(|_| LastKnown::new(quota.clone())).collect();
        for (index, source) in sources.iter().enumerate() {
            source.learn(None, &page(0..6_000, true));
            source.learn(Some(&uri(5_999)), &page(6_000..12_000, false));
            let room = CATALOG_LIMIT.saturating_sub(index * SOURCE_LIMIT).min(SOURCE_LIMIT);
            assert_eq!(source.stored_size(), Some(StoredListingSize { resources: room, complete: false }));
        }
        assert_eq!(used(), CATALOG_LIMIT);
        drop(sources);
        assert_eq!(used(), 0);

        let source = LastKnown::new(quota.clone());
        let mut long = page(0..100, false);
        for resource in &mut long.resources {
            resource.description = Some("d".repeat(1 << 20));
        }
        source.learn(None, &long);
        assert_eq!(source.stored_size(), Some(StoredListingSize { resources: 7, complete: false }));
        assert!(used() <= SOURCE_LIMIT);
    }

    proptest! {
        /// Whatever pages of a changing source are stored, the listing is sorted, has no duplicates and is counted
        /// correctly; a full pass over a source that does not change then stores exactly its resources.
        #[test]
        fn a_full_pass_over_a_source_is_stored(
            listings in vec(btree_set(0..40_usize, 0..20), 1..6),
            steps in vec((0..6_usize, 0..41_usize, 1..7_usize), 0..40),
            last in btree_set(0..40_usize, 0..20),
            limit in 1..9_usize,
        ) {
            let quota = Arc::new(LastKnownQuota::default());
            let known = LastKnown::new(quota.clone());
            let ask = |listing: &BTreeSet<usize>, after: Option<usize>, limit: usize| {
                let mut rest = listing.iter().copied().filter(|number| after.is_none_or(|after| *number > after));
                let first: Vec<_> = rest.by_ref().take(limit).collect();
                let more = rest.next().is_some();
                page(first, more)
            };
            for (listing, after, limit) in steps {
                let after = after.checked_sub(1);
                let page = ask(&listings[listing % listings.len()], after, limit);
                known.learn(after.map(uri).as_ref(), &page);
                if let Some(all) = known.page(None, usize::MAX) {
                    let all = numbers(&all);
                    prop_assert!(all.is_sorted_by(|one, other| one < other), "{:?}", all);
                    prop_assert_eq!(quota.used.load(Ordering::Relaxed), all.len());
                }
            }
            let mut after = None;
            loop {
                let page = ask(&last, after, limit);
                known.learn(after.map(uri).as_ref(), &page);
                after = numbers(&page).last().copied();
                if !page.more {
                    break;
                }
            }
            let all = numbers(&known.page(None, usize::MAX).unwrap());
            prop_assert_eq!(all, last.into_iter().collect::<Vec<_>>());
            prop_assert!(known.stored_size().unwrap().complete);
        }
    }
}
