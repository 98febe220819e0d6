//! Telling when a command prints something else: it is run now and then while somebody listens.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, PoisonError};

use futures_core::stream::BoxStream;
use futures_util::stream::{self, StreamExt as _};
use libris_core::uri_template::Variables;
use libris_core::{Change, Uri};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::entry::Entry;

/// A command that is run again and again.
struct Watched {
    uri: Uri,
    entry: Arc<Entry>,
    ticks: Interval,
    /// What was seen last; nothing before the first look.
    seen: Option<Seen>,
}

/// What tells one output from another; nothing for a failure.
type Seen = Option<u64>;

/// Changes from now on; nothing if no command is to be run for that.
pub(super) fn changes(
    entries: impl Iterator<Item = (Uri, Arc<Entry>)>,
) -> Option<BoxStream<'static, Change>> {
    let streams: Vec<_> = entries
        .filter_map(|(uri, entry)| {
            let mut ticks = interval(entry.config.poll?);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let watched = Watched { uri, entry, ticks, seen: None };
            Some(stream::unfold(watched, async |mut watched| Some((watched.next().await, watched))).boxed())
        })
        .collect();
    (!streams.is_empty()).then(|| stream::select_all(streams).boxed())
}

impl Watched {
    async fn next(&mut self) -> Change {
        loop {
            self.ticks.tick().await;
            let now = self.look().await;
            let before = self.seen.replace(now).or_else(|| {
                // It may have changed between the last read and this first look, which begins in its own
                // time: a slow program must not keep anybody from listening.
                let given = *self.entry.given.lock().unwrap_or_else(PoisonError::into_inner);
                given.map(Some)
            });
            if before.is_some_and(|before| before != now) {
                self.entry.changed();
                return Change::Updated(self.uri.clone());
            }
        }
    }

    async fn look(&self) -> Seen {
        let nothing = Variables::new();
        let part = self.entry.part(&nothing).ok()?;
        let (printed, _) = self.entry.output(&self.uri, &nothing, part).await.ok()?;
        Some(digest(&printed))
    }
}

/// What tells one output from another.
pub(super) fn digest(printed: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    printed.hash(&mut hasher);
    hasher.finish()
}
