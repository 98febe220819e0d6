//! Telling when a command prints something else: it is run now and then while somebody listens.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use futures_core::stream::BoxStream;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use libris_core::uri_template::Variables;
use libris_core::{Change, Uri};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::entry::Entry;

/// A command that is run again and again.
struct Watched {
    uri: Uri,
    entry: Arc<Entry>,
    ticks: Interval,
    seen: Seen,
}

/// What tells one output from another; nothing for a failure.
type Seen = Option<u64>;

/// Changes from now on; nothing if no command is to be run for that.
pub(super) async fn changes(entries: Vec<(Uri, Arc<Entry>)>) -> Option<BoxStream<'static, Change>> {
    let polled = entries.into_iter().filter_map(|(uri, entry)| Some((uri, entry.config.poll?, entry)));
    let watched = join_all(polled.map(|(uri, poll, entry)| async move {
        let seen = look(&uri, &entry).await;
        let mut ticks = interval_at(Instant::now() + poll, poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Watched { uri, entry, ticks, seen }
    }));
    let watched = watched.await;
    if watched.is_empty() {
        return None;
    }
    let streams = watched.into_iter().map(|watched| {
        stream::unfold(watched, async |mut watched| Some((watched.next().await, watched))).boxed()
    });
    Some(stream::select_all(streams).boxed())
}

impl Watched {
    async fn next(&mut self) -> Change {
        loop {
            self.ticks.tick().await;
            let now = look(&self.uri, &self.entry).await;
            if std::mem::replace(&mut self.seen, now) != now {
                self.entry.changed();
                return Change::Updated(self.uri.clone());
            }
        }
    }
}

async fn look(uri: &Uri, entry: &Entry) -> Seen {
    let nothing = Variables::new();
    let (printed, _) = entry.output(uri, &nothing, entry.part(&nothing).ok()?).await.ok()?;
    let mut hasher = DefaultHasher::new();
    printed.hash(&mut hasher);
    Some(hasher.finish())
}
