//! Detects changes of outputs by polling while there are subscriptions.
//!
//! The listed URIs and the subscribed ones are polled. Each command runs for one URI at a time, so a round takes longer
//! the more URIs it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_core::stream::BoxStream;
use futures_util::stream::{self, StreamExt as _};
use libris_core::{Change, Uri};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::entry::RunnableCommand;
use crate::followed::FollowedWatch;

/// A command that is polled.
struct PolledCommand {
    entry: Arc<RunnableCommand>,
    listed: Option<Uri>,
    watching: FollowedWatch<()>,
    ticks: Interval,
    /// The URIs that are still to be polled in this round.
    due: BTreeSet<Uri>,
    /// The digests at the last poll.
    seen: BTreeMap<Uri, OutputDigest>,
}

/// The digest of an output; `None` for a failure.
type OutputDigest = Option<u64>;

/// The stream of changes; `None` if no command has a polling interval.
pub(super) fn changes<'e>(
    entries: impl Iterator<Item = &'e Arc<RunnableCommand>>,
) -> Option<BoxStream<'static, Change>> {
    let streams: Vec<_> = entries
        .filter_map(PolledCommand::new)
        .map(|watched| {
            stream::unfold(watched, async |mut watched| Some((watched.next().await, watched))).boxed()
        })
        .collect();
    (!streams.is_empty()).then(|| stream::select_all(streams).boxed())
}

impl PolledCommand {
    fn new(entry: &Arc<RunnableCommand>) -> Option<Self> {
        let mut ticks = interval(entry.config.poll?);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watching = entry.followed.watch();
        let (entry, listed) = (entry.clone(), entry.uri_without_variables());
        Some(Self { entry, listed, watching, ticks, due: BTreeSet::new(), seen: BTreeMap::new() })
    }

    /// Waits for the next change of an output.
    async fn next(&mut self) -> Change {
        loop {
            while let Some(uri) = self.due.pop_first() {
                if self.has_changed(&uri).await {
                    self.entry.changed();
                    return Change::Updated(uri);
                }
            }
            tokio::select! {
                _ = self.ticks.tick() => {
                    self.due = self.polled_uris();
                    self.seen.retain(|uri, _| self.due.contains(uri));
                    if self.watching.overflowed() {
                        return Change::Lost;
                    }
                }
                () = self.watching.added() => {
                    self.due = self.polled_uris();
                    self.due.retain(|uri| !self.seen.contains_key(uri));
                }
            }
        }
    }

    /// The subscribed URIs and the listed one.
    fn polled_uris(&self) -> BTreeSet<Uri> {
        let mut uris: BTreeSet<Uri> = self.entry.followed.collect(|(uri, ())| Some(uri.clone()));
        uris.extend(self.listed.clone());
        uris
    }

    /// Runs the command and compares its output with that of the last poll.
    async fn has_changed(&mut self, uri: &Uri) -> bool {
        let now = self.entry.digest_output(uri).await.ok().flatten();
        // The first poll compares with the output that a caller last read. The output may have changed between
        // that read and this poll, because a subscription does not wait for the first poll.
        let before =
            self.seen.insert(uri.clone(), now).or_else(|| self.entry.last_read_digest(uri).map(Some));
        before.is_some_and(|before| before != now)
    }
}
