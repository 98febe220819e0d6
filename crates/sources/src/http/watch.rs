//! Telling what changes in an API that does not tell itself: by asking again, from time to time.
//!
//! Asked again is only what somebody waits for: the lists, and the resources that somebody subscribes to. Few
//! requests are under way at once, so where there is much to ask for, a round takes longer. How a resource stands
//! when it begins to be followed is found out beside the rounds, so that a change during a long one is not missed.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::future::ready;
use futures_util::stream::{self, StreamExt as _};
use libris_core::{Change, Client, Uri};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::Inner;
use super::fault::Fault;
use super::list::Listed;
use super::store::Want;

/// How many requests of a round are under way at once.
const AT_ONCE: usize = 4;

/// How many resources are followed. Where there are more, everybody is told to look again.
const MOST: usize = 1_000;

/// How long somebody who begins to listen is kept waiting while it is found out how things stand.
const WAIT: Duration = Duration::from_secs(5);

/// The resources that somebody subscribes to.
#[derive(Default)]
pub(super) struct Followed {
    state: Mutex<State>,
    /// Told when there are new ones.
    new: Notify,
}

#[derive(Default)]
struct State {
    /// How many watches there are. Nothing is followed while there is none.
    watches: usize,
    /// How each was last seen.
    seen: BTreeMap<Uri, Seen>,
    /// Whether there were too many.
    full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It was not looked at yet.
    Unknown,
    /// It was looked at in vain.
    Unreachable,
    Missing,
    /// An answer with this digest.
    There(u64),
}

impl Followed {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the digest of an answer that was given to a caller. News to the caller is what differs from that, even if
    /// the first look at the resource comes later.
    pub(super) fn give(&self, uri: &Uri, digest: u64) {
        if let Some(seen @ Seen::Unknown) = self.lock().seen.get_mut(uri) {
            *seen = Seen::There(digest);
        }
    }

    /// Keeps how a resource stands now; `None` where that cannot be known. Says whether it has changed.
    fn update(&self, uri: &Uri, now: Option<Seen>) -> bool {
        let mut state = self.lock();
        // It is compared with what is known by now, which may be more than when this look began.
        let Some(known) = state.seen.get_mut(uri) else { return false };
        let before = *known;
        match now {
            Some(now) => *known = now,
            None if before == Seen::Unknown => *known = Seen::Unreachable,
            None => {}
        }
        before != Seen::Unknown && now.is_some_and(|now| now != before)
    }

    /// Whether there were too many. If so, all are forgotten: those that somebody still wants are followed again
    /// once changes are said to be lost.
    fn overflowed(&self) -> bool {
        let mut state = self.lock();
        if state.full {
            state.seen.clear();
        }
        std::mem::take(&mut state.full)
    }
}

/// Follows a resource while there is a watch.
pub(super) fn follow(inner: &Inner, uri: &Uri) {
    let Some((endpoint, variables)) = inner.endpoint(uri) else { return };
    // What anybody knows of it came from here, so news is what differs from that.
    let kept = endpoint.url(variables).ok().and_then(|url| inner.store.kept(&endpoint, &url));
    let seen = kept.map_or(Seen::Unknown, |answer| Seen::There(answer.digest));
    let mut state = inner.followed.lock();
    if state.watches == 0 || state.seen.contains_key(uri) {
        return;
    }
    if state.seen.len() >= MOST {
        state.full = true;
        return;
    }
    state.seen.insert(uri.clone(), seen);
    drop(state);
    inner.followed.new.notify_one();
}

/// Follows a resource no more.
pub(super) fn unfollow(inner: &Inner, uri: &Uri) {
    inner.followed.lock().seen.remove(uri);
}

/// How a resource stands; `None` where that cannot be known now.
async fn look(inner: &Arc<Inner>, uri: &Uri, want: Want) -> Option<Seen> {
    match inner.get(uri, want, Client::default()).await {
        Ok(hit) => Some(Seen::There(hit.answer.digest)),
        Err(Fault::Missing | Fault::Denied | Fault::Values) => Some(Seen::Missing),
        Err(Fault::Lacking(_) | Fault::Control(_)) => Some(Seen::Missing),
        Err(_) => None,
    }
}

/// Changes from now on.
pub(super) async fn changes(inner: Arc<Inner>) -> BoxStream<'static, Change> {
    let mut watch = Watch::new(inner.clone());
    let lists = stream::iter(
        inner.lists().map(|number| timeout(WAIT, inner.instances(number, Want::Fresh, Client::default()))),
    );
    let lists = lists.buffered(AT_ONCE).map(|list| list.ok().and_then(Result::ok).unwrap_or_default());
    watch.lists = lists.collect().await;
    let rounds = stream::unfold(watch, async |mut watch| Some((watch.next().await, watch)));
    let beside = stream::unfold(inner, async |inner| {
        inner.followed.new.notified().await;
        Some((stream::iter(look_at_followed(&inner, Which::New).await), inner))
    });
    stream::select(rounds, beside.flatten()).boxed()
}

/// Which of the followed resources have changed.
async fn look_at_followed(inner: &Arc<Inner>, which: Which) -> Vec<Change> {
    let wanted = |(_, seen): &(&Uri, &Seen)| which == Which::All || **seen == Seen::Unknown;
    let followed: Vec<Uri> =
        inner.followed.lock().seen.iter().filter(wanted).map(|(uri, _)| uri.clone()).collect();
    let looks = followed.into_iter().map(|uri| async move {
        let now = look(inner, &uri, Want::Now).await;
        inner.followed.update(&uri, now).then_some(Change::Updated(uri))
    });
    stream::iter(looks).buffer_unordered(AT_ONCE).filter_map(ready).collect().await
}

struct Watch {
    inner: Arc<Inner>,
    /// What each list held when it was last seen.
    lists: Vec<Listed>,
    /// When it is looked again.
    due: Instant,
    /// What was seen and is still to be told.
    changes: VecDeque<Change>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.inner.followed.lock();
        state.watches -= 1;
        if state.watches == 0 {
            state.seen.clear();
            state.full = false;
        }
    }
}

impl Watch {
    fn new(inner: Arc<Inner>) -> Self {
        inner.followed.lock().watches += 1;
        let due = Instant::now() + jittered(inner.poll);
        Self { inner, lists: Vec::new(), due, changes: VecDeque::new() }
    }

    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            sleep_until(self.due).await;
            self.look_at_lists().await;
            self.changes.extend(look_at_followed(&self.inner, Which::All).await);
            if self.inner.followed.overflowed() {
                self.changes.push_back(Change::Lost);
            }
            self.due = Instant::now() + jittered(self.inner.poll);
        }
    }

    async fn look_at_lists(&mut self) {
        for number in 0..self.lists.len() {
            // A list that cannot be had is taken to be as it was.
            let Ok(now) = self.inner.instances(number, Want::Now, Client::default()).await else { continue };
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

/// Which of the followed resources are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    New,
}

/// About this time: many servers that were started together should not ask together.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) as f64 / u64::MAX as f64;
    time.mul_f64(0.9 + 0.2 * random).max(Duration::from_millis(10))
}
