//! Telling what was edited, by asking Notion now and then while somebody listens.
//!
//! A search in the order of edits finds in one request what is new. It does not find what is gone, so
//! everything is searched as often as a listing would be.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_core::stream::BoxStream;
use futures_util::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use libris_core::{Change, Uri};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::Inner;
use super::found::{self, NotionObject, ObjectMap};
use super::listing::SEARCHED;
use super::text;

/// What Notion rounds the time of an edit to. Another edit in the same minute does not show.
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// When the minute of an edit is over.
fn over(edited: Timestamp) -> Timestamp {
    edited.checked_add(MINUTE).unwrap_or(Timestamp::MAX)
}

struct NotionWatch {
    inner: Arc<Inner>,
    ticks: Interval,
    opened: Timestamp,
    known: Option<ObjectMap>,
    /// When everything was last searched.
    searched: Option<Instant>,
    /// Edits whose minute is not over, which may be followed by others that do not show.
    young: BTreeMap<(bool, String), Timestamp>,
    changes: VecDeque<Change>,
}

/// Changes from now on.
pub(super) fn changes(inner: Arc<Inner>) -> BoxStream<'static, Change> {
    let mut ticks = tokio::time::interval(inner.config.poll);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watch = NotionWatch {
        known: inner.known(),
        inner,
        ticks,
        opened: Timestamp::now(),
        searched: None,
        young: BTreeMap::new(),
        changes: VecDeque::new(),
    };
    stream::unfold(watch, async |mut watch| Some((watch.next().await, watch))).boxed()
}

impl NotionWatch {
    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            self.ticks.tick().await;
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let often = self.inner.config.cache.max(self.inner.config.poll);
        let whole = self.searched.is_none_or(|when| when.elapsed() >= often);
        let newest = || self.known.iter().flat_map(ObjectMap::values).filter_map(|found| found.edited).max();
        let since = if whole { None } else { newest() };
        let now = Timestamp::now();
        let found = match found::search(&self.inner.client, since, SEARCHED).await {
            Ok(found) => found,
            // The next look finds what this one did not.
            Err(fault) => return tracing::warn!(?fault, "could not see what was edited in Notion"),
        };
        if whole {
            self.searched = Some(Instant::now());
        }
        let mut known = self.known.take().unwrap_or_else(|| {
            // What was edited since the watch began may have been read before it was.
            let old = |found: &&NotionObject| found.edited.is_none_or(|edited| over(edited) < self.opened);
            found.values().filter(old).map(|found| (found.key(), found.clone())).collect()
        });
        if whole {
            let gone: Vec<_> = known.keys().filter(|key| !found.contains_key(*key)).cloned().collect();
            for found in gone.iter().filter_map(|key| known.remove(key)) {
                self.tell(&found, Change::Removed);
            }
        }
        let settled: Vec<_> = self
            .young
            .iter()
            .filter(|(_, edited)| over(**edited) <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in settled {
            self.young.remove(&key);
            if let Some(found) = known.get(&key).cloned() {
                self.tell(&found, Change::Updated);
            }
        }
        for (key, found) in found {
            let edited = found.edited.unwrap_or(Timestamp::MIN);
            match known.insert(key.clone(), found.clone()) {
                Some(before) if found.reads_like(&before) => {
                    if !found.looks_like(&before) {
                        self.describe(&found);
                    }
                    continue;
                }
                Some(_) => {
                    self.tell(&found, Change::Updated);
                    self.describe(&found);
                }
                None => self.tell(&found, Change::Added),
            }
            if over(edited) > now {
                self.young.insert(key, edited);
            }
        }
        if whole || !self.changes.is_empty() {
            self.inner.found(known.clone());
        }
        self.known = Some(known);
    }

    /// Tells that the list says something else of it.
    fn describe(&mut self, found: &NotionObject) {
        self.changes.extend(found.uris().into_iter().map(Change::Described));
    }

    /// Tells of a change, and of that of the table that it is a row of.
    fn tell(&mut self, found: &NotionObject, change: fn(Uri) -> Change) {
        self.inner.edited(&found.id);
        self.changes.extend(found.uris().into_iter().map(change));
        if let Some(database) = &found.database {
            self.inner.edited(database);
            self.changes.extend(Uri::parse(&text::rows(database)).ok().map(Change::Updated));
        }
    }
}
