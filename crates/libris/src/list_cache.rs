//! Caches the lists of sources that compute their whole list for every page, such as sources with `#[list]` functions.
//!
//! A walk is the pass of one client over all pages of a list. For the first page, the source computes its list (a run);
//! the following pages come from the cached list. See [`Source::whole_list`].
//!
//! Another walk, or a change of the list, may replace the cached list while a walk is under way. Pages begin after a
//! URI, not at an index. So a walk still returns every resource that is in all versions of the list, and none twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use libris_core::{
    Annotations, Budget, CacheScope, Client, Context, Error, Flights, Freshness, Lease, Page, Proof,
    Resource, Result, Source, Uri,
};
use tokio::time::{Instant, sleep_until};

use crate::lock::lock;

/// The memory limit for the cached lists of all sources of a catalog.
pub(crate) const CACHE_BYTES: usize = 28 << 20;

/// The part of [`CACHE_BYTES`] that the lists for the identities of one client may use. The lists that are the same for
/// all callers count as those of a client of their own.
const SHARE_BYTES: usize = CACHE_BYTES / 8 * 7;

/// The maximum number of resources of a cached list.
const MAX_RESOURCES: usize = 200_000;

/// The memory that a resource needs besides its texts: the struct, and the headers of its allocations.
const RESOURCE_OVERHEAD: usize = size_of::<CachedResource>() + 64;

/// The memory of a cached list besides its resources and its key.
const LIST_OVERHEAD: usize = size_of::<CachedList>() + 128;

/// The memory budget for the cached lists of a catalog.
pub(crate) fn budget() -> Arc<Budget> {
    Budget::with_share(CACHE_BYTES, SHARE_BYTES)
}

/// The cached lists of one source: one for all callers, or one per identity.
pub(crate) struct ListCache(Arc<ListCacheState>);

struct ListCacheState {
    budget: Arc<Budget>,
    lists: Mutex<CachedLists>,
    in_flight: Flights<CallerKey, Result<Arc<CachedList>, Arc<Error>>>,
}

/// The identity that a list depends on; `None` for a list that is the same for all callers, and for anonymous callers.
type CallerKey = Option<String>;

#[derive(Default)]
struct CachedLists {
    by_caller: HashMap<CallerKey, Arc<CachedList>>,
    /// Whether the task that removes expired lists is running.
    is_sweeping: bool,
}

/// A list that a source returned.
struct CachedList {
    /// In URI order; `None` if the list is too large for the cache, so that the source must list each page itself.
    resources: Option<Vec<CachedResource>>,
    freshness: Freshness,
    /// Whether the source used the identity of the caller.
    identity_used: bool,
    expires: Instant,
    /// Holds until the source reports a change of its list. A list without a proof is valid until it expires.
    proof: Option<Proof>,
    /// The memory of the list, released with it.
    _memory: Option<Lease>,
}

/// A resource in compact form: consecutive resources share the metadata that is equal.
struct CachedResource {
    uri: Uri,
    name: Box<str>,
    title: Option<Box<str>>,
    description: Option<Arc<str>>,
    size: Option<u64>,
    modified: Option<jiff::Timestamp>,
    /// All other metadata.
    common: Arc<Resource>,
}

/// A request for one page.
#[derive(Clone, Copy)]
pub(crate) struct PageRequest<'a> {
    pub(crate) after: Option<&'a Uri>,
    pub(crate) limit: usize,
}

impl ListCache {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self(Arc::new(ListCacheState { budget, lists: Mutex::default(), in_flight: Flights::default() }))
    }

    /// One page. For the first page, the source computes its list; for a following page, only if there is no valid
    /// cached list. Concurrent callers share one run (single-flight). If the list is too large for the cache, the
    /// source lists each page itself.
    pub(crate) async fn page(
        &self,
        source: &Arc<dyn Source>,
        scope: CacheScope,
        request: PageRequest<'_>,
        context: &Context,
    ) -> Result<Page> {
        let caller = match scope {
            CacheScope::Public => None,
            CacheScope::Private => context.identity_key(),
        };
        // A first page runs the source, unless the list is known to be too large for the cache.
        let found =
            || self.0.find(&caller).filter(|list| request.after.is_some() || list.resources.is_none());
        let list = match found() {
            Some(list) => list,
            None => {
                let run = || {
                    let context = match scope {
                        CacheScope::Public => context.clone().without_caller(),
                        CacheScope::Private => context.clone(),
                    };
                    self.0.clone().run(source.clone(), caller.clone(), request.limit, context)
                };
                let join = || self.0.in_flight.join(&caller, || found().map(Ok), run);
                let outcome = match join().await {
                    // The list changed during the run, perhaps before this caller joined: run once more.
                    Ok(list) if !list.is_valid() => join().await,
                    outcome => outcome,
                };
                outcome.map_err(|error| Error::from_shared(&error))?
            }
        };
        if list.identity_used {
            // Records that the response depends on the caller.
            let _ = context.identity();
        }
        match list.page(request) {
            Some(page) => Ok(page),
            None => source.list(request.after, request.limit, context).await,
        }
    }
}

impl ListCacheState {
    fn find(&self, caller: &CallerKey) -> Option<Arc<CachedList>> {
        let lists = lock(&self.lists);
        lists.by_caller.get(caller).filter(|list| list.is_fresh()).cloned()
    }

    /// Runs the source and caches its list, unless the whole list fits on one page of `limit` resources.
    async fn run(
        self: Arc<Self>,
        source: Arc<dyn Source>,
        caller: CallerKey,
        limit: usize,
        context: Context,
    ) -> Result<Arc<CachedList>, Arc<Error>> {
        // The proof is taken before the run, so that a change during the run makes the list invalid.
        let Freshness { ttl, proof, .. } = source.whole_list().unwrap_or_default();
        let page = source.list(None, MAX_RESOURCES + 1, &context).await.map_err(Arc::new)?;
        let expires = Instant::now() + ttl;
        let (freshness, identity_used) = (page.freshness.clone(), context.identity_was_used());
        let is_one_page = !page.more && page.resources.len() <= limit;
        // Releases the memory of the previous list first.
        lock(&self.lists).by_caller.remove(&caller);
        let (resources, memory) = match is_one_page {
            true => (Some(compact(page.resources).0), None),
            false => self.reserved(page, &caller, context.client()),
        };
        let is_counted = memory.is_some();
        let list = CachedList { resources, freshness, identity_used, expires, proof, _memory: memory };
        let list = Arc::new(list);
        if is_counted {
            self.insert(caller, list.clone());
        }
        Ok(list)
    }

    /// The resources to cache, and the memory lease of the cache entry. Without resources, the entry only records that
    /// the list does not fit into the cache. Without a lease, there is not even memory for such an entry.
    ///
    /// The lists for identities count against the share of the client. A list that is the same for all callers does
    /// not: otherwise a client that has used up its share could keep this list out of the cache by being the first to
    /// request it.
    fn reserved(
        &self,
        page: Page,
        caller: &CallerKey,
        client: Client,
    ) -> (Option<Vec<CachedResource>>, Option<Lease>) {
        let payer = if caller.is_some() { client } else { Client::default() };
        let entry = LIST_OVERHEAD + caller.as_ref().map_or(0, String::len);
        let listed = (!page.more).then(|| compact(page.resources));
        let whole = listed.and_then(|(resources, bytes)| {
            // The budget would reduce a larger amount to the share instead of refusing it.
            let bytes = Some(bytes + entry).filter(|bytes| *bytes <= SHARE_BYTES)?;
            Some((resources, self.budget.try_take(payer, bytes)?))
        });
        match whole {
            Some((resources, memory)) => (Some(resources), Some(memory)),
            None => (None, self.budget.try_take(payer, entry)),
        }
    }

    fn insert(self: &Arc<Self>, caller: CallerKey, list: Arc<CachedList>) {
        let mut lists = lock(&self.lists);
        lists.by_caller.insert(caller, list);
        if !std::mem::replace(&mut lists.is_sweeping, true) {
            let state = Arc::downgrade(self);
            tokio::spawn(async move {
                while let Some(next) = state.upgrade().and_then(|state| state.sweep()) {
                    sleep_until(next).await;
                }
            });
        }
    }

    /// Removes expired and invalid lists. Returns when the next one expires; `None` if no list is left.
    fn sweep(&self) -> Option<Instant> {
        let mut lists = lock(&self.lists);
        lists.by_caller.retain(|_, list| list.is_fresh());
        let next = lists.by_caller.values().map(|list| list.expires).min();
        lists.is_sweeping = next.is_some();
        next
    }
}

impl CachedList {
    fn is_fresh(&self) -> bool {
        Instant::now() < self.expires && self.is_valid()
    }

    fn is_valid(&self) -> bool {
        self.proof.as_ref().is_none_or(Proof::holds)
    }

    /// One page; `None` if the list is too large for the cache.
    fn page(&self, PageRequest { after, limit }: PageRequest<'_>) -> Option<Page> {
        let resources = self.resources.as_ref()?;
        let start = after.map_or(0, |after| resources.partition_point(|resource| resource.uri <= *after));
        let rest = &resources[start..];
        let page = &rest[..rest.len().min(limit)];
        Some(Page {
            resources: page.iter().map(CachedResource::resource).collect(),
            more: page.len() < rest.len(),
            freshness: self.freshness.clone(),
            ..Page::default()
        })
    }
}

impl CachedResource {
    fn resource(&self) -> Resource {
        let common = &*self.common;
        Resource {
            uri: self.uri.clone(),
            name: self.name.to_string(),
            title: self.title.as_ref().map(ToString::to_string),
            description: self.description.as_ref().map(ToString::to_string),
            mime: common.mime.clone(),
            size: self.size,
            icons: common.icons.clone(),
            annotations: Annotations { last_modified: self.modified, ..common.annotations.clone() },
            meta: common.meta.clone(),
        }
    }
}

/// The resources in compact form, and the memory that they need in bytes.
fn compact(resources: Vec<Resource>) -> (Vec<CachedResource>, usize) {
    let mut compact: Vec<CachedResource> = Vec::with_capacity(resources.len());
    let mut bytes = 0;
    for mut resource in resources {
        let uri = resource.uri.clone();
        let name = std::mem::take(&mut resource.name).into_boxed_str();
        let title = resource.title.take().map(String::into_boxed_str);
        let (size, modified) = (resource.size.take(), resource.annotations.last_modified.take());
        let description = resource.description.take();
        let before = compact.last();
        let same = |description: &String| {
            before.and_then(|before| before.description.clone()).filter(|it| **it == **description)
        };
        let description = description.map(|description| {
            same(&description).unwrap_or_else(|| {
                bytes += description.len() + 32;
                description.into()
            })
        });
        let common = match before {
            Some(before) => {
                resource.uri = before.common.uri.clone();
                (resource == *before.common).then(|| before.common.clone())
            }
            None => None,
        };
        let common = common.unwrap_or_else(|| {
            bytes += common_weight(&resource);
            Arc::new(resource)
        });
        bytes += RESOURCE_OVERHEAD
            + uri.as_str().len()
            + name.len()
            + title.as_ref().map_or(0, |title| title.len());
        compact.push(CachedResource { uri, name, title, description, size, modified, common });
    }
    (compact, bytes)
}

/// The memory of metadata that consecutive resources share.
fn common_weight(resource: &Resource) -> usize {
    let icons = resource.icons.iter().map(|icon| {
        size_of_val(icon) + icon.src.len() + icon.sizes.iter().map(|size| size.len() + 24).sum::<usize>()
    });
    // A JSON value needs several times the memory of its text.
    let meta = resource.meta.as_ref().and_then(|meta| serde_json::to_string(meta).ok());
    let meta = meta.map_or(0, |text| 8 * text.len());
    size_of::<Resource>() + 64 + resource.mime.as_ref().map_or(0, String::len) + icons.sum::<usize>() + meta
}

#[cfg(test)]
mod tests {
    use super::{ListCache, PageRequest, SHARE_BYTES, budget, compact};
    use async_trait::async_trait;
    use libris_core::uri_template::Specificity;
    use libris_core::{
        Annotations, CacheScope, Client, Contents, Context, Error, Freshness, Icon, Identity, Page, Proof,
        Resource, Result, Source, Uri,
    };
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn resource(number: usize) -> Resource {
        let uri = Uri::parse(&format!("docs://documents/{number:06}")).unwrap();
        Resource {
            title: number.is_multiple_of(3).then(|| format!("Document {number}")),
            description: Some(if number.is_multiple_of(2) {
                "One document.".into()
            } else {
                format!("number {number}")
            }),
            mime: Some("text/markdown".into()),
            size: Some(number as u64),
            icons: vec![Icon {
                src: "https://docs.example/icon.png".into(),
                mime: None,
                sizes: vec![],
                theme: None,
            }],
            annotations: Annotations {
                priority: Some(if number < 5 { 0.5 } else { 0.8 }),
                last_modified: jiff::Timestamp::from_second(number as i64).ok(),
                ..Annotations::default()
            },
            ..Resource::new(uri, format!("{number}"))
        }
    }

    #[test]
    fn resources_are_restored_from_compact_form() {
        let resources: Vec<_> = (0..10).map(resource).collect();
        let (compact, _) = compact(resources.clone());
        assert_eq!(compact.iter().map(super::CachedResource::resource).collect::<Vec<_>>(), resources);
    }

    /// A source of `resources` resources, whose names have `name` bytes. Counts its runs.
    struct Listing {
        resources: usize,
        name: usize,
        runs: AtomicUsize,
    }

    #[async_trait]
    impl Source for Listing {
        fn covers(&self, _: &Uri) -> Option<Specificity> {
            None
        }

        async fn list(&self, after: Option<&Uri>, limit: usize, _: &Context) -> Result<Page> {
            self.runs.fetch_add(1, Ordering::SeqCst);
            let start = after.map_or(0, |after| after.path()[1..].parse::<usize>().unwrap() + 1);
            let all = (start..self.resources).take(limit);
            let resources =
                all.map(|number| Resource { name: "n".repeat(self.name), ..resource(number) }).collect();
            Ok(Page { resources, more: start + limit < self.resources, ..Page::default() })
        }

        fn whole_list(&self) -> Option<Freshness> {
            Some(Freshness::proven(Proof::always()).with_ttl(Duration::from_secs(30)))
        }

        async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
            Err(Error::NotFound(uri.clone()))
        }
    }

    /// A source of resources that change.
    struct ChangingList(std::sync::Mutex<Vec<usize>>);

    #[async_trait]
    impl Source for ChangingList {
        fn covers(&self, _: &Uri) -> Option<Specificity> {
            None
        }

        async fn list(&self, after: Option<&Uri>, limit: usize, _: &Context) -> Result<Page> {
            let all = self.0.lock().unwrap().clone();
            let mut rest =
                all.into_iter().map(resource).filter(|one| after.is_none_or(|after| one.uri > *after));
            let resources = rest.by_ref().take(limit).collect();
            Ok(Page { resources, more: rest.next().is_some(), ..Page::default() })
        }

        fn whole_list(&self) -> Option<Freshness> {
            Some(Freshness::proven(Proof::always()).with_ttl(Duration::from_secs(30)))
        }

        async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
            Err(Error::NotFound(uri.clone()))
        }
    }

    #[tokio::test]
    async fn a_walk_neither_skips_nor_repeats_when_another_one_replaces_its_list() {
        let numbers = |numbers: &[usize]| numbers.iter().map(|number| number + 10).collect::<Vec<_>>();
        let changing = Arc::new(ChangingList(numbers(&[0, 2, 4, 6, 8]).into()));
        let source: Arc<dyn Source> = changing.clone();
        let lists = ListCache::new(budget());
        let mut walked = page(&lists, &source, None).await.resources;
        // Another walk begins after each page of the first one.
        for changed in [&[2, 3, 4, 6, 8][..], &[1, 2, 5, 6, 8], &[2, 6, 7, 8]] {
            *changing.0.lock().unwrap() = numbers(changed);
            page(&lists, &source, None).await;
            let last = walked.last().unwrap().uri.path()[1..].parse().unwrap();
            walked.extend(page(&lists, &source, Some(last)).await.resources);
        }
        let walked: Vec<_> =
            walked.iter().map(|one| one.uri.path()[1..].parse::<usize>().unwrap() - 10).collect();
        assert_eq!(walked, [0, 2, 3, 4, 5, 6, 7, 8]);
    }

    async fn page(lists: &ListCache, source: &Arc<dyn Source>, after: Option<usize>) -> Page {
        let after = after.map(|number| resource(number).uri);
        let request = PageRequest { after: after.as_ref(), limit: 2 };
        lists.page(source, CacheScope::Public, request, &Context::default()).await.unwrap()
    }

    async fn listing(resources: usize, name: usize) -> (Arc<Listing>, Arc<dyn Source>, ListCache) {
        let listing = Arc::new(Listing { resources, name, runs: AtomicUsize::new(0) });
        (listing.clone(), listing, ListCache::new(budget()))
    }

    #[tokio::test]
    async fn a_list_that_is_too_large_is_not_cached() {
        // Too many resources, and too many bytes.
        for (resources, name) in [(200_001, 1), (40, 1 << 20)] {
            let (listing, source, lists) = listing(resources, name).await;
            let first = page(&lists, &source, None).await;
            assert_eq!((first.resources.len(), first.more), (2, true));
            assert_eq!(listing.runs.load(Ordering::SeqCst), 2, "once to find out, and once for the page");
            let second = page(&lists, &source, Some(1)).await;
            assert_eq!(second.resources[0].uri, resource(2).uri);
            page(&lists, &source, None).await;
            assert_eq!(listing.runs.load(Ordering::SeqCst), 4, "once for each page");
            // The cache stores that the list is too large, which takes some memory too.
            assert!((1..1_000).contains(&lists.0.budget.used()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_of_expired_lists_is_released() {
        let (_, source, lists) = listing(10, 1).await;
        page(&lists, &source, None).await;
        let used = lists.0.budget.used();
        page(&lists, &source, None).await;
        assert_eq!(lists.0.budget.used(), used, "a new list replaces the one before");
        assert!(used > 0);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(lists.0.budget.used(), 0);
        page(&lists, &source, None).await;
        assert_eq!(lists.0.budget.used(), used);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(lists.0.budget.used(), 0);
    }

    #[tokio::test]
    async fn a_list_of_one_page_is_not_cached() {
        let (listing, source, lists) = listing(2, 1).await;
        assert!(!page(&lists, &source, None).await.more);
        assert_eq!((listing.runs.load(Ordering::SeqCst), lists.0.budget.used()), (1, 0));
    }

    #[test]
    fn a_hundred_thousand_resources_fit() {
        let resources: Vec<_> = (0..100_000).map(resource).collect();
        let (compact, bytes) = compact(resources);
        assert!(bytes > compact.len() * 100 && bytes < SHARE_BYTES, "{bytes}");
    }

    /// The first page for an identity at an address.
    async fn first_page(
        lists: &ListCache,
        source: &Arc<dyn Source>,
        scope: CacheScope,
        last: u8,
        name: &str,
    ) {
        let client = Client::at([127, 0, 0, last].into());
        let context = Context::default().with_client(client).with_identity(Some(Identity::new(name)));
        let request = PageRequest { after: None, limit: 2 };
        lists.page(source, scope, request, &context).await.unwrap();
    }

    #[tokio::test]
    async fn one_client_can_fill_only_its_share() {
        // Each list takes 9 MiB and a little more, so two fit into a share and not three.
        let (listing, source, lists) = listing(9, 1 << 20).await;
        let runs = || listing.runs.load(Ordering::SeqCst);
        for (number, expected) in [(1, 1), (2, 2), (3, 4), (4, 6)] {
            first_page(&lists, &source, CacheScope::Private, 1, &format!("caller {number}")).await;
            assert_eq!(runs(), expected, "{number}: the list is cached, or the source lists the page itself");
        }
        let used = lists.0.budget.used();
        assert!((18 << 20..19 << 20).contains(&used), "{used}");
        // A list that is the same for all callers is cached, whichever client requests it first.
        first_page(&lists, &source, CacheScope::Public, 1, "caller 5").await;
        assert_eq!(runs(), 7);
        assert!(lists.0.budget.used() > 27 << 20);
    }

    #[tokio::test]
    async fn lists_without_memory_leave_nothing_behind() {
        let (_, source, lists) = listing(8, 1 << 20).await;
        let _all = lists.0.budget.try_take(Client::at([127, 0, 0, 1].into()), SHARE_BYTES);
        for number in 0..10 {
            first_page(&lists, &source, CacheScope::Private, 1, &format!("caller {number}")).await;
        }
        assert!(lists.0.lists.lock().unwrap().by_caller.is_empty());
        first_page(&lists, &source, CacheScope::Private, 2, "caller").await;
        assert_eq!(lists.0.lists.lock().unwrap().by_caller.len(), 1);
    }
}
