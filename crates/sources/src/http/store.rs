//! The response cache, by the rules of HTTP (RFC 9111).

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::{AGE, CACHE_CONTROL, DATE, ETAG, EXPIRES, HeaderMap, HeaderName, LAST_MODIFIED, PRAGMA};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use libris_core::{Flights, Freshness, Scope};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use url::Url;

use super::answer::ApiResponse;
use super::client::{ApiClient, RawResponse};
use super::config::Caching;
use super::endpoint::ApiEndpoint;
use super::fault::HttpFault;
use super::memory::SMALL;
use super::parsing;

/// The initial capacity, in responses.
const EXPECTED: usize = 64;

/// The memory of a cached response besides its data, in bytes.
const OVERHEAD: usize = 2048;

/// The total size of the caches of all sources in the process, unless one is configured larger.
const TOTAL: u64 = 64 << 20;

/// The endpoint and the URL of a request.
type CacheKey = (usize, Arc<str>);

type Answers = Cache<CacheKey, Arc<CachedResponse>, ResponseWeight>;

/// The caches of all sources in the process, with their configured sizes.
static CACHES: Mutex<Vec<(u64, Weak<Answers>)>> = Mutex::new(Vec::new());

/// Divides the total size among the existing caches.
fn share(new: &Arc<Answers>, bytes: u64) {
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

/// Fair shares of the total size, given the configured sizes in ascending order: space that one cache does not need
/// is divided among the others.
fn shares(wanted: &[u64]) -> Vec<u64> {
    let count = wanted.len();
    let mut left = wanted.last().copied().unwrap_or_default().max(TOTAL);
    let share = |(at, wanted): (usize, &u64)| {
        let share = (*wanted).min(left / (count - at) as u64);
        left -= share;
        share
    };
    wanted.iter().enumerate().map(share).collect()
}

/// The response cache.
pub(super) struct Store {
    client: ApiClient,
    config: Caching,
    kept: Arc<Answers>,
    under_way: Flights<CacheKey, Result<Arc<CachedResponse>, HttpFault>>,
}

struct CachedResponse {
    answer: Arc<ApiResponse>,
    /// Status and headers, updated by revalidation.
    response: http::Response<()>,
    policy: CachePolicy,
    /// The time of the last validation.
    at: SystemTime,
    /// Whether its headers specify a lifetime.
    says: bool,
    scope: Scope,
    /// Whether it must not be served stale.
    strict: bool,
}

/// Weighs cached responses by their memory.
#[derive(Clone)]
struct ResponseWeight;

impl Weighter<CacheKey, Arc<CachedResponse>> for ResponseWeight {
    fn weight(&self, key: &CacheKey, kept: &Arc<CachedResponse>) -> u64 {
        (key.1.len() + kept.answer.body.len() + OVERHEAD) as u64
    }
}

/// A response, from the cache or the API.
pub(super) struct Hit {
    pub(super) answer: Arc<ApiResponse>,
    pub(super) freshness: Freshness,
    /// The age of a stale response.
    pub(super) stale: Option<Duration>,
}

/// The required freshness of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Fresh by the rules of HTTP.
    Fresh,
    /// Requested or revalidated now.
    Now,
}

impl Store {
    pub(super) fn new(client: ApiClient, config: Caching) -> Self {
        let options = OptionsBuilder::new()
            // Each shard has a share of the bytes, which no response may exceed.
            .shards(1)
            .estimated_items_capacity(EXPECTED)
            .weight_capacity(config.bytes)
            .build()
            .expect("both capacities are given");
        let (hashes, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let kept = Arc::new(Cache::with_options(options, ResponseWeight, hashes, life));
        share(&kept, config.bytes);
        Self { client, config, kept, under_way: Flights::default() }
    }

    /// The response of an endpoint at a URL. A request counts for this client.
    pub(super) async fn get(
        self: &Arc<Self>,
        endpoint: &Arc<ApiEndpoint>,
        url: Url,
        want: Want,
        asker: libris_core::Client,
    ) -> Result<Hit, HttpFault> {
        let key: CacheKey = (endpoint.number, url.as_str().into());
        let found = || {
            let fresh = |kept: &Arc<CachedResponse>| !self.left(kept, SystemTime::now()).is_zero();
            self.kept.get(&key).filter(|kept| want == Want::Fresh && fresh(kept))
        };
        if let Some(kept) = found() {
            return Ok(self.hit(&kept, None));
        }
        let start = || self.clone().ask(endpoint.clone(), url, key.clone(), asker);
        let fault = match self.under_way.join(&key, || found().map(Ok), start).await {
            Ok(kept) => return Ok(self.hit(&kept, None)),
            Err(fault) => fault,
        };
        match self.kept.get(&key).filter(|_| fault.is_outage()) {
            Some(kept) if self.may_be_stale(&kept) => {
                let known = SystemTime::now().duration_since(kept.at).unwrap_or_default();
                Ok(self.hit(&kept, Some(known)))
            }
            _ => Err(fault),
        }
    }

    /// The cached response, however old.
    pub(super) fn kept(&self, endpoint: &ApiEndpoint, url: &Url) -> Option<Arc<ApiResponse>> {
        self.kept.get(&(endpoint.number, url.as_str().into())).map(|kept| kept.answer.clone())
    }

    async fn ask(
        self: Arc<Self>,
        endpoint: Arc<ApiEndpoint>,
        url: Url,
        key: CacheKey,
        asker: libris_core::Client,
    ) -> Result<Arc<CachedResponse>, HttpFault> {
        let request = request(&endpoint, &url);
        let before = self.kept.get(&key);
        let now = SystemTime::now();
        let conditions =
            before.as_ref().map(|kept| conditions(&kept.policy, &request, now)).unwrap_or_default();
        let asked = self.client.ask(&endpoint, &url, &conditions, asker).await;
        let reply = match asked {
            Err(fault) if !fault.is_outage() => {
                // A resource that is gone must not be served stale.
                self.kept.remove(&key);
                return Err(fault);
            }
            asked => asked?,
        };
        let at = SystemTime::now();
        let (answer, response) = match before.filter(|_| reply.status == StatusCode::NOT_MODIFIED) {
            Some(kept) => (kept.answer.clone(), renewed(&kept.response, &reply.headers)),
            None if reply.status == StatusCode::NOT_MODIFIED => return Err(HttpFault::Failed),
            None => {
                let (response, large) = (response(&reply), reply.data.len() > SMALL);
                let (endpoint, path) = (Arc::clone(&endpoint), url.path().to_owned());
                let answer = move || ApiResponse::new(&endpoint, &path, reply);
                // Decoding and validating a large response is CPU-bound.
                let answer = if large { parsing::blocking(answer).await? } else { answer()? };
                (Arc::new(answer), response)
            }
        };
        let options = CacheOptions { shared: false, cache_heuristic: 0.0, ..CacheOptions::default() };
        let policy = CachePolicy::new_options(&request, &response, at, options);
        let says = says_how_long(response.headers());
        let directs = |directive| directs(response.headers(), directive);
        let private = if directs("private") { Scope::Private } else { Scope::Public };
        let scope = private.max(self.config.scope);
        let strict = directs("must-revalidate") || directs("no-cache");
        let kept = CachedResponse { answer, response, policy, at, says, scope, strict };
        let kept = Arc::new(kept);
        if kept.policy.is_storable() {
            self.kept.insert(key.clone(), kept.clone());
            // The cache refuses a response that is too large.
            if self.kept.get(&key).is_some_and(|cached| Arc::ptr_eq(&cached.answer, &kept.answer)) {
                kept.answer.cached();
            }
        } else {
            self.kept.remove(&key);
        }
        Ok(kept)
    }

    /// The remaining lifetime.
    fn left(&self, kept: &CachedResponse, now: SystemTime) -> Duration {
        let age = now.duration_since(kept.at).unwrap_or_default();
        let said = match kept.says {
            true => kept.policy.time_to_live(now),
            false => self.config.ttl.saturating_sub(age),
        };
        said.min(self.config.max_age.saturating_sub(age))
    }

    fn may_be_stale(&self, kept: &CachedResponse) -> bool {
        let age = SystemTime::now().duration_since(kept.at).unwrap_or_default();
        !kept.strict && age < self.left(kept, kept.at).saturating_add(self.config.stale_if_error)
    }

    fn hit(&self, kept: &CachedResponse, stale: Option<Duration>) -> Hit {
        let ttl = if stale.is_some() { Duration::ZERO } else { self.left(kept, SystemTime::now()) };
        let freshness = Freshness::unproven().with_ttl(ttl).with_scope(kept.scope);
        Hit { answer: kept.answer.clone(), freshness, stale }
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
fn renewed(kept: &http::Response<()>, said: &HeaderMap) -> http::Response<()> {
    let mut response = kept.clone();
    let headers = response.headers_mut();
    // These describe the earlier message.
    headers.remove(AGE);
    headers.remove(DATE);
    // The validators of the request are those of the unchanged response.
    for name in said.keys().filter(|name| ![ETAG, LAST_MODIFIED].contains(name)) {
        headers.remove(name);
        for value in said.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    response
}

/// The headers of a conditional request.
fn conditions(policy: &CachePolicy, request: &http::Request<()>, now: SystemTime) -> HeaderMap {
    use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};
    // As of a much later time, because a fresh response would need no request.
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

/// Whether the headers specify a lifetime.
fn says_how_long(headers: &HeaderMap) -> bool {
    let directives = ["max-age", "s-maxage", "no-cache", "no-store"];
    headers.contains_key(EXPIRES)
        || directives.iter().any(|directive| directs(headers, directive))
        || lists(headers, &PRAGMA, "no-cache")
}

/// Whether `Cache-Control` has this directive.
fn directs(headers: &HeaderMap, directive: &str) -> bool {
    lists(headers, &CACHE_CONTROL, directive)
}

fn lists(headers: &HeaderMap, name: &HeaderName, directive: &str) -> bool {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        let mut names = value.split(',').filter_map(|said| said.split('=').next());
        names.any(|name| name.trim().eq_ignore_ascii_case(directive))
    })
}

#[cfg(test)]
mod tests {
    use super::{Arc, Caching, Store, TOTAL, shares};
    use crate::http::client::ApiClient;
    use crate::http::config::RequestLimits;
    use crate::http::guard::AddressGuard;

    const MIB: u64 = 1 << 20;

    #[test]
    fn caches_share_one_total() {
        assert_eq!(shares(&[32 * MIB]), [32 * MIB]);
        assert_eq!(shares(&[32 * MIB; 4]), [16 * MIB; 4]);
        assert_eq!(shares(&[0, 4 * MIB, 40 * MIB, 40 * MIB]), [0, 4 * MIB, 30 * MIB, 30 * MIB]);
        // A cache configured larger than the total raises it.
        assert_eq!(shares(&[32 * MIB, 1024 * MIB]), [32 * MIB, 992 * MIB]);
    }

    #[test]
    fn a_new_source_takes_its_share_from_the_others() {
        let limits = RequestLimits::default();
        let store = || {
            let client = ApiClient::new(&limits, AddressGuard::new(&limits), false).unwrap();
            Store::new(client, Caching { bytes: 32 * MIB, ..Caching::default() })
        };
        let stores: Vec<_> = (0..8).map(|_| store()).collect();
        let total: u64 = stores.iter().map(|store| store.kept.capacity()).sum();
        assert!(total <= TOTAL && stores.iter().all(|store| store.kept.capacity() > 0), "{total}");
        assert_eq!(Arc::strong_count(&stores[0].kept), 1, "a cache ends with its source");
    }
}
