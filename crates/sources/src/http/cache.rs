//! The response cache, by the rules of HTTP (RFC 9111).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use http::header::{AGE, CACHE_CONTROL, DATE, ETAG, EXPIRES, HeaderMap, HeaderName, LAST_MODIFIED, PRAGMA};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use libris_core::{CacheScope, Flights, Freshness, Proof};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use url::Url;

use super::client::{ApiClient, RawResponse};
use super::config::Caching;
use super::endpoint::ApiEndpoint;
use super::fault::HttpFault;
use super::memory::UNRESERVED_BYTES;
use super::parsing;
use super::response::ApiResponse;

/// The initial capacity, in responses.
const INITIAL_CAPACITY: usize = 64;

/// The memory of a cached response besides its data, in bytes.
const RESPONSE_OVERHEAD: usize = 2048;

/// The maximum number of bytes in the caches of all HTTP sources of the process together. If one cache is configured
/// larger, its size is the limit instead.
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// The number of the endpoint, and the URL of the request.
type StoredResponseKey = (usize, Arc<str>);

/// The key of a request in flight: the generation in which it began, its endpoint and its URL.
type RequestKey = (u64, StoredResponseKey);

type StoredResponses = Cache<StoredResponseKey, Arc<StoredResponse>, StoredResponseWeight>;

/// The caches of all sources in the process, with their configured sizes.
static CACHES: Mutex<Vec<(u64, Weak<StoredResponses>)>> = Mutex::new(Vec::new());

/// Registers a cache, and divides the total size among all existing caches.
fn share(new: &Arc<StoredResponses>, bytes: u64) {
    let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    caches.retain(|(_, cache)| cache.strong_count() > 0);
    caches.push((bytes, Arc::downgrade(new)));
    caches.sort_by_key(|(bytes, _)| *bytes);
    let wanted: Vec<u64> = caches.iter().map(|(bytes, _)| *bytes).collect();
    for ((_, cache), bytes) in caches.iter().zip(shares(&wanted)) {
        if let Some(cache) = cache.upgrade() {
            cache.set_capacity(bytes);
        }
    }
}

/// Fair shares of the total size, given the configured sizes in ascending order. Space that one cache does not
/// need is divided among the others.
fn shares(wanted: &[u64]) -> Vec<u64> {
    let count = wanted.len();
    let mut remaining = wanted.last().copied().unwrap_or_default().max(MAX_TOTAL_BYTES);
    let share = |(at, wanted): (usize, &u64)| {
        let share = (*wanted).min(remaining / (count - at) as u64);
        remaining -= share;
        share
    };
    wanted.iter().enumerate().map(share).collect()
}

/// The response cache.
pub(super) struct HttpCache {
    client: ApiClient,
    config: Caching,
    stored: Arc<StoredResponses>,
    in_flight: Flights<RequestKey, Result<Arc<StoredResponse>, HttpFault>>,
    /// Generation counter: bumped when responses are invalidated. A response to a request from an earlier generation is
    /// not stored, and callers do not join such a request. Locked while a response is stored.
    generation: Mutex<u64>,
}

struct StoredResponse {
    api_response: Arc<ApiResponse>,
    /// Status and headers, updated by revalidation.
    response: http::Response<()>,
    policy: CachePolicy,
    /// The time of the last validation.
    at: SystemTime,
    /// Whether its headers specify a lifetime.
    has_lifetime: bool,
    scope: CacheScope,
    /// Whether the response must not be served stale.
    strict: bool,
}

/// Weighs cached responses by their memory.
#[derive(Clone)]
struct StoredResponseWeight;

impl Weighter<StoredResponseKey, Arc<StoredResponse>> for StoredResponseWeight {
    fn weight(&self, key: &StoredResponseKey, stored: &Arc<StoredResponse>) -> u64 {
        let next = stored.api_response.next.as_ref().map_or(0, |next| next.as_str().len());
        // The cache policy has a copy of the headers.
        let head = 2 * head_size(stored.response.headers());
        (key.1.len() + stored.api_response.body.len() + next + head + RESPONSE_OVERHEAD) as u64
    }
}

/// The size of the headers in bytes, at most that of a response head: 64 KiB.
fn head_size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// A response, from the cache or the API.
pub(super) struct FetchedResponse {
    pub(super) api_response: Arc<ApiResponse>,
    pub(super) freshness: Freshness,
    /// The age of a stale response; `None` if the response is fresh.
    pub(super) stale: Option<Duration>,
}

/// The required freshness of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequiredFreshness {
    /// Fresh by the rules of HTTP.
    Fresh,
    /// Requested from the API or revalidated, even if the cached response is fresh. A request that is already in flight
    /// counts.
    Now,
}

impl HttpCache {
    pub(super) fn new(client: ApiClient, config: Caching) -> Self {
        let options = OptionsBuilder::new()
            // With several shards, no response could be larger than the share of one shard.
            .shards(1)
            .estimated_items_capacity(INITIAL_CAPACITY)
            .weight_capacity(config.bytes)
            .build()
            .expect("both capacities are given");
        let (hashes, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let stored = Arc::new(Cache::with_options(options, StoredResponseWeight, hashes, life));
        share(&stored, config.bytes);
        Self { client, config, stored, in_flight: Flights::default(), generation: Mutex::new(0) }
    }

    /// The response of an endpoint at a URL, from the cache if it is fresh enough there, otherwise from the API. A
    /// request to the API needs a permit from the concurrency share of `client`. During an outage, a stale response
    /// may be returned.
    pub(super) async fn get(
        self: &Arc<Self>,
        endpoint: &Arc<ApiEndpoint>,
        url: Url,
        required: RequiredFreshness,
        client: libris_core::Client,
    ) -> Result<FetchedResponse, HttpFault> {
        let key: StoredResponseKey = (endpoint.number, url.as_str().into());
        let found = || {
            let fresh =
                |stored: &Arc<StoredResponse>| !self.remaining_ttl(stored, SystemTime::now()).is_zero();
            self.stored.get(&key).filter(|stored| required == RequiredFreshness::Fresh && fresh(stored))
        };
        if let Some(stored) = found() {
            return Ok(self.fetched(&key, &stored, None));
        }
        let join_or_fetch = || {
            let request = (*self.generation(), key.clone());
            let start = || self.clone().fetch(endpoint.clone(), url.clone(), request.clone(), client);
            (request.0, self.in_flight.join(&request, || found().map(Ok), start))
        };
        let (generation, asked) = join_or_fetch();
        let mut outcome = asked.await;
        let is_current = *self.generation() == generation;
        if !is_current {
            // Responses were invalidated during the request, so its response may be outdated.
            outcome = join_or_fetch().1.await;
        }
        let fault = match outcome {
            Ok(stored) => return Ok(self.fetched(&key, &stored, None)),
            Err(fault) => fault,
        };
        match self.stored.get(&key).filter(|_| fault.is_outage()) {
            Some(stored) if self.may_be_served_stale(&stored) => {
                let known = SystemTime::now().duration_since(stored.at).unwrap_or_default();
                Ok(self.fetched(&key, &stored, Some(known)))
            }
            _ => Err(fault),
        }
    }

    /// The cached response, even if it is stale.
    pub(super) fn stored(&self, endpoint: &ApiEndpoint, url: &Url) -> Option<Arc<ApiResponse>> {
        self.stored.get(&(endpoint.number, url.as_str().into())).map(|stored| stored.api_response.clone())
    }

    fn generation(&self) -> MutexGuard<'_, u64> {
        self.generation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the response of an endpoint at a URL.
    pub(super) fn forget(&self, endpoint: &ApiEndpoint, url: &Url) {
        let mut generation = self.generation();
        *generation += 1;
        let key: StoredResponseKey = (endpoint.number, url.as_str().into());
        self.stored.remove(&key);
    }

    /// Drops all responses.
    pub(super) fn forget_all(&self) {
        let mut generation = self.generation();
        *generation += 1;
        self.stored.clear();
    }

    /// Sends the request, as a conditional one if a response is stored, and stores the response.
    async fn fetch(
        self: Arc<Self>,
        endpoint: Arc<ApiEndpoint>,
        url: Url,
        (generation, key): RequestKey,
        client: libris_core::Client,
    ) -> Result<Arc<StoredResponse>, HttpFault> {
        let request = request(&endpoint, &url);
        let before = self.stored.get(&key);
        let now = SystemTime::now();
        let conditions =
            before.as_ref().map(|stored| conditions(&stored.policy, &request, now)).unwrap_or_default();
        let asked = self.client.send(&endpoint, &url, &conditions, client).await;
        let reply = match asked {
            Err(fault) if !fault.is_outage() => {
                // The API rejected the request, for example because the resource is gone, so the stored response must
                // not be served stale.
                self.stored.remove(&key);
                return Err(fault);
            }
            asked => asked?,
        };
        let at = SystemTime::now();
        let (api_response, response) = match before.filter(|_| reply.status == StatusCode::NOT_MODIFIED) {
            Some(stored) => (stored.api_response.clone(), renewed(&stored.response, &reply.headers)),
            None if reply.status == StatusCode::NOT_MODIFIED => return Err(HttpFault::Failed),
            None => {
                let (response, large) = (response(&reply), reply.data.len() > UNRESERVED_BYTES);
                let (endpoint, url) = (Arc::clone(&endpoint), url.clone());
                let api_response = move || ApiResponse::new(&endpoint, &url, reply);
                // Decoding and validating a large response is CPU-bound.
                let api_response =
                    if large { parsing::blocking(api_response).await? } else { api_response()? };
                (Arc::new(api_response), response)
            }
        };
        let options = CacheOptions { shared: false, cache_heuristic: 0.0, ..CacheOptions::default() };
        let policy = CachePolicy::new_options(&request, &response, at, options);
        let has_lifetime = specifies_lifetime(response.headers());
        let has_directive = |directive| has_directive(response.headers(), directive);
        let private = if has_directive("private") { CacheScope::Private } else { CacheScope::Public };
        let scope = private.max(self.config.scope);
        let strict = has_directive("must-revalidate") || has_directive("no-cache");
        let stored = StoredResponse { api_response, response, policy, at, has_lifetime, scope, strict };
        let stored = Arc::new(stored);
        let current = self.generation();
        if *current != generation {
            return Ok(stored);
        }
        if stored.policy.is_storable() {
            self.stored.insert(key.clone(), stored.clone());
            // The cache refuses a response that is too large; such a response keeps its memory reserved.
            if self
                .stored
                .get(&key)
                .is_some_and(|cached| Arc::ptr_eq(&cached.api_response, &stored.api_response))
            {
                stored.api_response.release_reservation();
            }
        } else {
            self.stored.remove(&key);
        }
        Ok(stored)
    }

    /// How long a stored response stays fresh, from `now` on.
    fn remaining_ttl(&self, stored: &StoredResponse, now: SystemTime) -> Duration {
        let age = now.duration_since(stored.at).unwrap_or_default();
        let ttl = match stored.has_lifetime {
            true => stored.policy.time_to_live(now),
            false => self.config.ttl.saturating_sub(age),
        };
        ttl.min(self.config.max_age.saturating_sub(age))
    }

    fn may_be_served_stale(&self, stored: &StoredResponse) -> bool {
        let age = SystemTime::now().duration_since(stored.at).unwrap_or_default();
        !stored.strict
            && age < self.remaining_ttl(stored, stored.at).saturating_add(self.config.stale_if_error)
    }

    /// A stored response with its freshness; `stale` is the age of a stale response, which gets no proof.
    fn fetched(
        &self,
        key: &StoredResponseKey,
        stored: &StoredResponse,
        stale: Option<Duration>,
    ) -> FetchedResponse {
        let now = Instant::now();
        let ttl =
            if stale.is_some() { Duration::ZERO } else { self.remaining_ttl(stored, SystemTime::now()) };
        let expires = now.checked_add(ttl).filter(|_| !ttl.is_zero());
        let freshness = Freshness::proven(expires.map(|expires| self.proof(key, stored, expires)));
        let freshness = Freshness { expires, ..freshness.with_ttl(ttl).with_scope(stored.scope) };
        FetchedResponse { api_response: stored.api_response.clone(), freshness, stale }
    }

    /// A proof that holds while a response is fresh and still in the cache. Polling may replace the response before it
    /// expires.
    fn proof(&self, key: &StoredResponseKey, stored: &StoredResponse, expires: Instant) -> Proof {
        let (store, key, api_response) =
            (Arc::downgrade(&self.stored), key.clone(), Arc::downgrade(&stored.api_response));
        Proof::new(move || {
            let is_same = |now: Arc<StoredResponse>| {
                std::ptr::eq(Arc::as_ptr(&now.api_response), api_response.as_ptr())
            };
            Instant::now() < expires
                && store.upgrade().and_then(|store| store.peek(&key)).is_some_and(is_same)
        })
    }
}

fn request(endpoint: &ApiEndpoint, url: &Url) -> http::Request<()> {
    let mut request = http::Request::new(());
    *request.method_mut() = endpoint.method.into();
    *request.uri_mut() = url.as_str().parse().unwrap_or_default();
    *request.headers_mut() = endpoint.headers.clone();
    request
}

fn response(reply: &RawResponse) -> http::Response<()> {
    let mut response = http::Response::new(());
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers.clone();
    response
}

/// A cached response, updated with the headers of a `304 Not Modified`.
fn renewed(stored: &http::Response<()>, updates: &HeaderMap) -> http::Response<()> {
    let mut response = stored.clone();
    let headers = response.headers_mut();
    // These headers describe the earlier response message.
    headers.remove(AGE);
    headers.remove(DATE);
    // The stored validators (`ETag`, `Last-Modified`) stay: the service has just confirmed them.
    for name in updates.keys().filter(|name| ![ETAG, LAST_MODIFIED].contains(name)) {
        headers.remove(name);
        for value in updates.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    response
}

/// The headers of a conditional request.
fn conditions(policy: &CachePolicy, request: &http::Request<()>, now: SystemTime) -> HeaderMap {
    use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};
    // The policy returns conditions only for a stale response, so it is evaluated for a time at which this response
    // is stale.
    let later = now + Duration::from_secs(10 * 365 * 24 * 3600);
    let mut conditions = HeaderMap::new();
    if let BeforeRequest::Stale { request, .. } = policy.before_request(request, later) {
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE] {
            if let Some(value) = request.headers.get(&name) {
                conditions.insert(name, value.clone());
            }
        }
    }
    conditions
}

/// Whether the headers specify a lifetime, which may be zero.
fn specifies_lifetime(headers: &HeaderMap) -> bool {
    let directives = ["max-age", "s-maxage", "no-cache", "no-store"];
    headers.contains_key(EXPIRES)
        || directives.iter().any(|directive| has_directive(headers, directive))
        || has_list_directive(headers, &PRAGMA, "no-cache")
}

/// Whether `Cache-Control` has this directive.
fn has_directive(headers: &HeaderMap, directive: &str) -> bool {
    has_list_directive(headers, &CACHE_CONTROL, directive)
}

fn has_list_directive(headers: &HeaderMap, name: &HeaderName, directive: &str) -> bool {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        let mut names = value.split(',').filter_map(|item| item.split('=').next());
        names.any(|name| name.trim().eq_ignore_ascii_case(directive))
    })
}

#[cfg(test)]
mod tests {
    use super::{Arc, Caching, HttpCache, MAX_TOTAL_BYTES, shares};
    use crate::http::client::ApiClient;
    use crate::http::config::RequestLimits;
    use crate::http::guard::AddressGuard;

    const MIB: u64 = 1 << 20;

    #[test]
    fn caches_share_one_total() {
        assert_eq!(shares(&[32 * MIB]), [32 * MIB]);
        assert_eq!(shares(&[32 * MIB; 4]), [16 * MIB; 4]);
        assert_eq!(shares(&[0, 4 * MIB, 40 * MIB, 40 * MIB]), [0, 4 * MIB, 30 * MIB, 30 * MIB]);
        // A cache that is configured larger than the total size raises the total size.
        assert_eq!(shares(&[32 * MIB, 1024 * MIB]), [32 * MIB, 992 * MIB]);
    }

    #[test]
    fn a_new_source_takes_its_share_from_the_others() {
        let limits = RequestLimits::default();
        let cache = || {
            let client = ApiClient::new(&limits, AddressGuard::new(&limits), false).unwrap();
            HttpCache::new(client, Caching { bytes: 32 * MIB, ..Caching::default() })
        };
        let stores: Vec<_> = (0..8).map(|_| cache()).collect();
        let total: u64 = stores.iter().map(|cache| cache.stored.capacity()).sum();
        assert!(
            total <= MAX_TOTAL_BYTES && stores.iter().all(|cache| cache.stored.capacity() > 0),
            "{total}"
        );
        assert_eq!(Arc::strong_count(&stores[0].stored), 1, "a cache ends with its source");
    }
}
