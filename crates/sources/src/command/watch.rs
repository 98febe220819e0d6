//! Telling when a command prints something else: it is run now and then while somebody listens.
//!
//! Run are those that are listed, and those that somebody subscribes to. Of one command one is run at a time,
//! so where there are many, a round takes longer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_core::stream::BoxStream;
use futures_util::stream::{self, StreamExt as _};
use libris_core::{Change, Uri};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::entry::Entry;

/// How many URIs of one command are followed. Where there are more, everybody is told to look again.
pub(super) const MOST: usize = 1_000;

/// The URIs of a command that somebody subscribes to.
#[derive(Default)]
pub(super) struct Followed {
    uris: BTreeSet<Uri>,
    /// Whether there are too many.
    full: bool,
    /// How often there were.
    lost: u64,
}

/// Looks at this URI too, while there is a watch.
pub(super) fn follow(entry: &Entry, uri: &Uri) {
    if entry.followed.receiver_count() == 0 {
        return;
    }
    entry.followed.send_if_modified(|followed| {
        let is_new = !followed.uris.contains(uri);
        let has_room = followed.uris.len() < MOST;
        followed.full |= is_new && !has_room;
        is_new && has_room && followed.uris.insert(uri.clone())
    });
}

/// Looks at this URI no more.
pub(super) fn unfollow(entry: &Entry, uri: &Uri) {
    entry.followed.send_if_modified(|followed| {
        followed.uris.remove(uri);
        // Nothing is to be looked at for that.
        false
    });
}

/// A command that is run again and again.
struct Watched {
    entry: Arc<Entry>,
    listed: Option<Uri>,
    followed: watch::Receiver<Followed>,
    ticks: Interval,
    /// What is still to be looked at.
    due: BTreeSet<Uri>,
    /// What was seen last.
    seen: BTreeMap<Uri, Seen>,
    lost: u64,
}

/// What tells one output from another; nothing for a failure.
type Seen = Option<u64>;

/// Changes from now on; nothing if no command is to be run for that.
pub(super) fn changes<'e>(
    entries: impl Iterator<Item = &'e Arc<Entry>>,
) -> Option<BoxStream<'static, Change>> {
    let streams: Vec<_> = entries
        .filter_map(Watched::new)
        .map(|watched| {
            stream::unfold(watched, async |mut watched| Some((watched.next().await, watched))).boxed()
        })
        .collect();
    (!streams.is_empty()).then(|| stream::select_all(streams).boxed())
}

impl Watched {
    fn new(entry: &Arc<Entry>) -> Option<Self> {
        let mut ticks = interval(entry.config.poll?);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if entry.followed.receiver_count() == 0 {
            // Those who subscribed when there was last a watch are gone.
            entry.followed.send_replace(Followed::default());
        }
        let followed = entry.followed.subscribe();
        let lost = followed.borrow().lost;
        let (entry, listed) = (entry.clone(), entry.bare());
        Some(Self { entry, listed, followed, ticks, due: BTreeSet::new(), seen: BTreeMap::new(), lost })
    }

    async fn next(&mut self) -> Change {
        loop {
            while let Some(uri) = self.due.pop_first() {
                if self.is_another(&uri).await {
                    self.entry.changed();
                    return Change::Updated(uri);
                }
            }
            tokio::select! {
                _ = self.ticks.tick() => {
                    self.due = self.wanted();
                    self.seen.retain(|uri, _| self.due.contains(uri));
                    if self.has_lost() {
                        return Change::Lost;
                    }
                }
                Ok(()) = self.followed.changed() => {
                    self.due = self.wanted();
                    self.due.retain(|uri| !self.seen.contains_key(uri));
                }
            }
        }
    }

    fn wanted(&mut self) -> BTreeSet<Uri> {
        let mut uris = self.followed.borrow_and_update().uris.clone();
        uris.extend(self.listed.clone());
        uris
    }

    /// Whether there were too many. If so, all are forgotten: those that somebody still wants are followed again
    /// once changes are said to be lost.
    fn has_lost(&mut self) -> bool {
        self.entry.followed.send_if_modified(|followed| {
            if followed.full {
                *followed = Followed { lost: followed.lost + 1, ..Followed::default() };
            }
            false
        });
        let lost = self.followed.borrow().lost;
        std::mem::replace(&mut self.lost, lost) != lost
    }

    async fn is_another(&mut self, uri: &Uri) -> bool {
        let now = self.entry.look(uri).await.ok().flatten();
        // It may have changed between the last read and the first look, which begins in its own time: a slow
        // program must not keep anybody from listening.
        let before = self.seen.insert(uri.clone(), now).or_else(|| self.entry.given(uri).map(Some));
        before.is_some_and(|before| before != now)
    }
}
