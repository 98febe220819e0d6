//! Detects changes of the resources of an API by polling.
//!
//! A round polls the lists and the subscribed resources. The concurrency of a round is limited, so a round takes
//! longer the more resources there are. A newly followed resource is polled at once, outside the rounds. Otherwise
//! a change before its first poll, late in a long round, would be missed.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::future::ready;
use futures_util::stream::{self, StreamExt as _};
use libris_core::{Change, Client, Uri};
use tokio::time::{Instant, sleep_until, timeout};

use super::HttpInner;
use super::cache::RequiredFreshness;
use super::list::ListedResources;
use crate::followed::FollowedWatch;

/// The maximum number of concurrent requests of a round.
const CONCURRENT_REQUESTS: usize = 4;

/// The time-out of the first requests, which a new watch waits for.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The subscribed resources, each with its state at the last poll.
pub(super) type FollowedResources = crate::followed::Followed<PolledState>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolledState {
    /// Not polled yet.
    Unknown,
    /// The poll failed.
    Unreachable,
    Missing,
    /// A response with this digest.
    Present(u64),
}

/// Records the digest of a response that a caller received. A later difference is a change for that caller, even if
/// the resource was not polled yet.
pub(super) fn record_served(followed: &FollowedResources, uri: &Uri, digest: u64) {
    followed.with(uri, |seen| {
        if *seen == PolledState::Unknown {
            *seen = PolledState::Present(digest);
        }
    });
}

/// Records the state `now` of a resource, which is `None` if it could not be determined. Returns whether the state has
/// changed; the first state after `Unknown` is no change.
fn update(followed: &FollowedResources, uri: &Uri, now: Option<PolledState>) -> bool {
    // Compared now and not when the poll began: a caller may have read the resource meanwhile.
    let changed = followed.with(uri, |known| {
        let before = *known;
        match now {
            Some(now) => *known = now,
            None if before == PolledState::Unknown => *known = PolledState::Unreachable,
            None => {}
        }
        before != PolledState::Unknown && now.is_some_and(|now| now != before)
    });
    changed.unwrap_or_default()
}

/// Follows a resource while there is a watch.
pub(super) fn follow(inner: &HttpInner, uri: &Uri) {
    let Some((endpoint, variables)) = inner.endpoint(uri) else { return };
    // Callers have seen the cached response, so a difference from it is a change.
    let cached = endpoint.url(variables).ok().and_then(|url| inner.cache.stored(&endpoint, &url));
    let state = cached.map_or(PolledState::Unknown, |response| PolledState::Present(response.digest));
    inner.followed.add(uri, state, |_, _| {});
}

/// Follows a resource for clients of other replicas. It counts as unreachable so far, so the first successful poll
/// reports a change.
pub(super) fn follow_for_replicas(inner: &HttpInner, uri: &Uri) {
    if inner.endpoint(uri).is_some() {
        inner.followed.add(uri, PolledState::Unreachable, |_, _| {});
    }
}

/// Polls a resource; `None` if its state cannot be determined now.
async fn poll_resource(
    inner: &Arc<HttpInner>,
    uri: &Uri,
    required: RequiredFreshness,
) -> Option<PolledState> {
    match inner.get(uri, required, Client::default()).await {
        Ok(hit) => Some(PolledState::Present(hit.api_response.digest)),
        Err(fault) => fault.is_absence().then_some(PolledState::Missing),
    }
}

/// The stream of changes from now on. First fetches the lists, to compare them later.
pub(super) async fn changes(inner: Arc<HttpInner>) -> BoxStream<'static, Change> {
    let mut watch = ApiWatch::new(inner.clone());
    let lists = stream::iter(inner.lists().map(|number| {
        timeout(FIRST_REQUEST_TIMEOUT, inner.instances(number, RequiredFreshness::Fresh, Client::default()))
    }));
    let lists = lists.buffered(CONCURRENT_REQUESTS).map(|list| match list {
        Ok(Ok((listed, _))) => listed,
        Ok(Err(_)) | Err(_) => ListedResources::default(),
    });
    watch.lists = lists.collect().await;
    let rounds = stream::unfold(watch, async |mut watch| Some((watch.next().await, watch)));
    let watching = inner.followed.watch();
    let newly_followed = stream::unfold((inner, watching), async |(inner, mut watching)| {
        watching.added().await;
        Some((stream::iter(poll_followed(&inner, PolledSubset::New).await), (inner, watching)))
    });
    stream::select(rounds, newly_followed.flatten()).boxed()
}

/// Polls followed resources and returns the changes.
async fn poll_followed(inner: &Arc<HttpInner>, which: PolledSubset) -> Vec<Change> {
    let followed: Vec<Uri> = inner.followed.collect(|(uri, seen)| {
        (which == PolledSubset::All || *seen == PolledState::Unknown).then(|| uri.clone())
    });
    let polls = followed.into_iter().map(|uri| async move {
        let now = poll_resource(inner, &uri, RequiredFreshness::Now).await;
        update(&inner.followed, &uri, now).then_some(Change::Updated(uri))
    });
    stream::iter(polls).buffer_unordered(CONCURRENT_REQUESTS).filter_map(ready).collect().await
}

struct ApiWatch {
    inner: Arc<HttpInner>,
    watching: FollowedWatch<PolledState>,
    /// The contents of each list at the last poll.
    lists: Vec<ListedResources>,
    /// The time of the next round.
    due: Instant,
    /// Changes that are not reported yet.
    changes: VecDeque<Change>,
}

impl ApiWatch {
    fn new(inner: Arc<HttpInner>) -> Self {
        let due = Instant::now() + jittered(inner.poll);
        let watching = inner.followed.watch();
        Self { inner, watching, lists: Vec::new(), due, changes: VecDeque::new() }
    }

    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            sleep_until(self.due).await;
            self.poll_lists().await;
            self.changes.extend(poll_followed(&self.inner, PolledSubset::All).await);
            if self.watching.overflowed() {
                self.changes.push_back(Change::Lost);
            }
            self.due = Instant::now() + jittered(self.inner.poll);
        }
    }

    /// Polls the lists and records the differences.
    async fn poll_lists(&mut self) {
        for number in 0..self.lists.len() {
            // A list that is unavailable counts as unchanged.
            let Ok((now, _)) = self.inner.instances(number, RequiredFreshness::Now, Client::default()).await
            else {
                continue;
            };
            let before = std::mem::replace(&mut self.lists[number], now.clone());
            if Arc::ptr_eq(&before, &now) {
                continue;
            }
            let gone = before.keys().filter(|uri| !now.contains_key(*uri));
            self.changes.extend(gone.map(|uri| Change::Removed(uri.clone())));
            for (uri, found) in &*now {
                match before.get(uri) {
                    None => self.changes.push_back(Change::Added(uri.clone())),
                    Some(other) if other.resource != found.resource => {
                        self.changes.push_back(Change::Described(uri.clone()));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// The followed resources to poll. `New` are those that were not polled yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolledSubset {
    All,
    New,
}

/// Adds jitter, so that servers that were started together do not poll together.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) as f64 / u64::MAX as f64;
    time.mul_f64(0.9 + 0.2 * random).max(Duration::from_millis(10))
}
