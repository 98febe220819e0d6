//! Telling what changes in an API that does not tell itself: by asking again, from time to time.
//!
//! Asked again is only what somebody waits for: the lists, and the resources that somebody subscribes to. Few
//! requests are under way at once, so where there is much to ask for, a round takes longer.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::stream::{self, StreamExt as _};
use libris_core::{Change, Interest, Uri};
use tokio::time::{sleep, timeout};

use super::Inner;
use super::fault::Fault;
use super::list::Listed;
use super::store::Want;

/// How many requests of a round are under way at once.
const AT_ONCE: usize = 4;

/// How long somebody who begins to listen is kept waiting while it is found out how things stand.
const WAIT: Duration = Duration::from_secs(5);

/// The resources that somebody subscribes to, with how they were last seen.
#[derive(Default)]
pub(super) struct Followed(Mutex<HashMap<Uri, Follow>>);

struct Follow {
    count: usize,
    seen: Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// Nothing is known yet.
    Unknown,
    Missing,
    /// An answer with this digest.
    There(u64),
}

impl Followed {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uri, Follow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, uri: &Uri, seen: Seen) -> Option<Seen> {
        self.lock().get_mut(uri).map(|follow| std::mem::replace(&mut follow.seen, seen))
    }
}

/// One subscription.
struct Subscription {
    inner: Arc<Inner>,
    uri: Uri,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.inner.followed.lock().entry(self.uri.clone()) {
            entry.get_mut().count -= 1;
            if entry.get().count == 0 {
                entry.remove();
            }
        }
    }
}

/// Follows a resource for as long as what this returns is kept.
pub(super) async fn follow(inner: &Arc<Inner>, uri: &Uri) -> Interest {
    let Some((endpoint, variables)) = inner.endpoint(uri) else { return Interest::default() };
    let subscription = Subscription { inner: inner.clone(), uri: uri.clone() };
    let first = {
        let mut followed = inner.followed.lock();
        let follow = followed.entry(uri.clone()).or_insert(Follow { count: 0, seen: Seen::Unknown });
        follow.count += 1;
        follow.seen == Seen::Unknown
    };
    if first {
        // What anybody knows of it came from here, so news is what differs from that.
        let kept = endpoint.url(variables).ok().and_then(|url| inner.store.kept(&endpoint, &url));
        let seen = match kept {
            Some(answer) => Some(Seen::There(answer.digest)),
            None => timeout(WAIT, look(inner, uri, Want::Fresh)).await.ok().flatten(),
        };
        if let Some(seen) = seen {
            inner.followed.set(uri, seen);
        }
    }
    Interest::new(subscription)
}

/// How a resource stands; `None` where that cannot be known now.
async fn look(inner: &Arc<Inner>, uri: &Uri, want: Want) -> Option<Seen> {
    match inner.get(uri, want).await {
        Ok(hit) => Some(Seen::There(hit.answer.digest)),
        Err(Fault::Missing | Fault::Denied | Fault::Values) => Some(Seen::Missing),
        Err(Fault::Lacking(_) | Fault::Control(_)) => Some(Seen::Missing),
        Err(_) => None,
    }
}

/// Changes from now on.
pub(super) async fn changes(inner: Arc<Inner>) -> BoxStream<'static, Change> {
    let lists = stream::iter(inner.lists().map(|number| timeout(WAIT, inner.instances(number, Want::Fresh))));
    let lists = lists.buffered(AT_ONCE).map(|list| list.ok().and_then(Result::ok).unwrap_or_default());
    let watch = Watch { lists: lists.collect().await, inner: inner.clone(), changes: VecDeque::new() };
    stream::unfold(watch, async |mut watch| Some((watch.next().await, watch))).boxed()
}

struct Watch {
    inner: Arc<Inner>,
    /// What each list held when it was last seen.
    lists: Vec<Listed>,
    /// What was seen and is still to be told.
    changes: VecDeque<Change>,
}

impl Watch {
    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            sleep(jittered(self.inner.poll)).await;
            self.look_at_lists().await;
            self.look_at_followed().await;
        }
    }

    async fn look_at_lists(&mut self) {
        for number in 0..self.lists.len() {
            // A list that cannot be had is taken to be as it was.
            let Ok(now) = self.inner.instances(number, Want::Now).await else { continue };
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

    async fn look_at_followed(&mut self) {
        let uris: Vec<Uri> = self.inner.followed.lock().keys().cloned().collect();
        let inner = &self.inner;
        let looks = uris.into_iter().map(|uri| async move { (look(inner, &uri, Want::Now).await, uri) });
        let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
        while let Some((seen, uri)) = looks.next().await {
            let Some(seen) = seen else { continue };
            if inner.followed.set(&uri, seen).is_some_and(|before| before != seen) {
                self.changes.push_back(Change::Updated(uri));
            }
        }
    }
}

/// About this time: many servers that were started together should not ask together.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) as f64 / u64::MAX as f64;
    time.mul_f64(0.9 + 0.2 * random).max(Duration::from_millis(10))
}
