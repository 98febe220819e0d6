//! Detects edits by polling while there are subscriptions.
//!
//! A search ordered by edit time finds edits in one request. Such a search does not find removed objects. So the first
//! poll after each period of the setting `cache` is a full search.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_core::stream::BoxStream;
use futures_util::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use libris_core::{Change, Uri};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::NotionInner;
use super::listing::MAX_SEARCH_BYTES;
use super::objects::{self, NotionObject, ObjectMap};
use super::text;

/// Notion rounds edit times down to minutes, so a second edit in the same minute is not visible.
const EDIT_TIME_GRANULARITY: SignedDuration = SignedDuration::from_mins(1);

/// The end of the minute of an edit.
fn end_of_minute(edited: Timestamp) -> Timestamp {
    edited.checked_add(EDIT_TIME_GRANULARITY).unwrap_or(Timestamp::MAX)
}

struct NotionWatch {
    inner: Arc<NotionInner>,
    ticks: Interval,
    /// When the watch was opened.
    opened: Timestamp,
    /// The objects at the last poll; before the first poll, those of the last listing, if there was one.
    known: Option<ObjectMap>,
    /// The time of the last full search.
    searched: Option<Instant>,
    /// The objects whose last edit is less than a minute old. A further edit in the same minute cannot be detected, so a
    /// change is reported once more at the end of that minute.
    recently_edited: BTreeMap<(bool, String), Timestamp>,
    changes: VecDeque<Change>,
}

/// The stream of changes from now on.
pub(super) fn changes(inner: Arc<NotionInner>) -> BoxStream<'static, Change> {
    let mut ticks = tokio::time::interval(inner.config.poll);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watch = NotionWatch {
        known: inner.last_objects(),
        inner,
        ticks,
        opened: Timestamp::now(),
        searched: None,
        recently_edited: BTreeMap::new(),
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
            self.poll().await;
        }
    }

    /// Searches for edits, or for all objects if a full search is due, and records the changes.
    async fn poll(&mut self) {
        let full_search_interval = self.inner.config.cache.max(self.inner.config.poll);
        let whole = self.searched.is_none_or(|when| when.elapsed() >= full_search_interval);
        let newest = || self.known.iter().flat_map(ObjectMap::values).filter_map(|found| found.edited).max();
        let since = if whole { None } else { newest() };
        let now = Timestamp::now();
        let found = match objects::search(&self.inner.client, since, MAX_SEARCH_BYTES).await {
            Ok(found) => found,
            // The next poll finds the missed edits.
            Err(fault) => return tracing::warn!(?fault, "could not poll Notion for edits"),
        };
        if whole {
            self.searched = Some(Instant::now());
        }
        let mut known = self.known.take().unwrap_or_else(|| {
            // A client may have read an object before it was edited. So an object that was edited after the watch
            // was opened counts as unknown, and its edit is reported.
            let old =
                |found: &&NotionObject| found.edited.is_none_or(|edited| end_of_minute(edited) < self.opened);
            found.values().filter(old).map(|found| (found.key(), found.clone())).collect()
        });
        if whole {
            let gone: Vec<_> = known.keys().filter(|key| !found.contains_key(*key)).cloned().collect();
            for found in gone.iter().filter_map(|key| known.remove(key)) {
                self.report_change(&found, Change::Removed);
            }
        }
        let settled: Vec<_> = self
            .recently_edited
            .iter()
            .filter(|(_, edited)| end_of_minute(**edited) <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in settled {
            self.recently_edited.remove(&key);
            if let Some(found) = known.get(&key).cloned() {
                self.report_change(&found, Change::Updated);
            }
        }
        for (key, found) in found {
            let edited = found.edited.unwrap_or(Timestamp::MIN);
            match known.insert(key.clone(), found.clone()) {
                Some(before) if found.has_same_content_as(&before) => {
                    if !found.has_same_icon_as(&before) {
                        self.report_described(&found);
                    }
                    continue;
                }
                Some(_) => {
                    self.report_change(&found, Change::Updated);
                    self.report_described(&found);
                }
                None => self.report_change(&found, Change::Added),
            }
            if end_of_minute(edited) > now {
                self.recently_edited.insert(key, edited);
            }
        }
        if whole || !self.changes.is_empty() {
            self.inner.replace_listing(known.clone());
        }
        self.known = Some(known);
    }

    /// Reports that the metadata of an object has changed.
    fn report_described(&mut self, found: &NotionObject) {
        self.changes.extend(found.uris().into_iter().map(Change::Described));
    }

    /// Reports a change of an object, and of the database that it is a row of.
    fn report_change(&mut self, found: &NotionObject, change: fn(Uri) -> Change) {
        self.inner.edited(&found.id);
        self.changes.extend(found.uris().into_iter().map(change));
        if let Some(database) = &found.database {
            self.inner.edited(database);
            self.changes.extend(Uri::parse(&text::rows(database)).ok().map(Change::Updated));
        }
    }
}
