//! The watch of a catalog: merges the watches of its sources, opens watches of new sources, and retries failed watches.

use std::future::poll_fn;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use libris_core::{Change, Result};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::catalog::Sources;
use crate::cluster::ChangeBus;
use crate::gate::{GatedSource, SourceRole};
use crate::health::{Backoff, Health, SourceFault};

/// The merged watch of all sources.
pub(crate) struct CatalogWatch {
    sources: watch::Receiver<Sources>,
    /// Decides which replica polls a source; `None` if there are no other replicas.
    bus: Option<Arc<dyn ChangeBus>>,
    /// Generation counter: bumped when an unavailable source recovers, so that watchers list its resources again.
    recoveries: watch::Receiver<u64>,
    open: Vec<SourceWatch>,
    /// The index of the watch that was polled last. Polling continues with the next one (round-robin), so that a busy
    /// source does not starve the others.
    last_polled: usize,
    /// Set when the sources were replaced. When all watches are open, or when this timer ends, the stream yields
    /// [`Change::Lost`].
    renewal: Option<Pin<Box<Sleep>>>,
}

/// The watch of one source.
struct SourceWatch {
    gated: GatedSource,
    state: SourceWatchState,
    backoff: Backoff,
    /// Yields whether this replica polls the source: first the current value, then each change. `None` if every replica
    /// watches the source.
    turns: Option<BoxStream<'static, bool>>,
}

enum SourceWatchState {
    /// The source is opening its watch.
    Opening {
        opening: OpeningWatch,
        since: Instant,
    },
    Open {
        changes: BoxStream<'static, Change>,
        since: Instant,
    },
    /// Opening failed; it is retried when this timer ends.
    Failed(Pin<Box<Sleep>>),
    /// Another replica polls the source.
    Standby,
    /// The source does not report changes, or its stream has ended.
    Closed,
}

type OpeningWatch = BoxFuture<'static, Result<Option<BoxStream<'static, Change>>, SourceFault>>;

/// How long the catalog waits for the sources to open their watches.
const OPENING_TIMEOUT: Duration = Duration::from_secs(5);

impl SourceWatch {
    fn new(gated: GatedSource, bus: Option<&Arc<dyn ChangeBus>>) -> Self {
        let bus = bus.filter(|_| gated.source().polls_shared_service());
        let turns = bus.map(|bus| turns(bus.poller(gated.health().name())));
        let state = match turns {
            Some(_) => SourceWatchState::Standby,
            None => SourceWatchState::opening(&gated),
        };
        Self { state, gated, backoff: Backoff::default(), turns }
    }

    /// Opens the watch when this replica becomes the one that polls the source, and closes it when another replica
    /// does.
    fn poll_turn(&mut self, context: &mut Context<'_>) {
        while let Some(turns) = &mut self.turns
            && let Poll::Ready(Some(is_poller)) = turns.poll_next_unpin(context)
        {
            if !is_poller {
                self.state = SourceWatchState::Standby;
                self.gated.health().record_watch(Ok(()));
            } else if matches!(self.state, SourceWatchState::Standby) {
                self.state = SourceWatchState::opening(&self.gated);
            }
        }
    }

    /// Polls the opening of the watch; ready when it has succeeded or failed, or if the watch is not being opened.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SourceFault>> {
        let SourceWatchState::Opening { opening, .. } = &mut self.state else { return Poll::Ready(Ok(())) };
        opening.poll_unpin(context).map(|opened| match opened {
            Ok(changes) => {
                let since = Instant::now();
                self.state = changes
                    .map_or(SourceWatchState::Closed, |changes| SourceWatchState::Open { changes, since });
                self.gated.health().record_watch(Ok(()));
                Ok(())
            }
            Err(fault) => {
                self.fail(&fault);
                Err(fault)
            }
        })
    }

    /// Records the fault and schedules a retry with backoff.
    fn fail(&mut self, fault: &SourceFault) {
        self.gated.health().record_watch(Err(fault));
        self.state = SourceWatchState::Failed(Box::pin(sleep(self.backoff.pause())));
    }

    /// Polls the next change. A watch that opens here, after [`CatalogWatch::open`] or [`CatalogWatch::next`] stopped
    /// waiting for it, yields [`Change::Lost`] first: earlier changes were missed.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Change> {
        self.poll_turn(context);
        if let SourceWatchState::Failed(pause) = &mut self.state {
            if pause.poll_unpin(context).is_pending() {
                return Poll::Pending;
            }
            self.state = SourceWatchState::opening(&self.gated);
        }
        if let SourceWatchState::Opening { .. } = self.state {
            if self.poll_open(context).is_ready() {
                match &mut self.state {
                    SourceWatchState::Open { .. } => return Poll::Ready(Change::Lost),
                    // Registers the waker with the new timer.
                    SourceWatchState::Failed(pause) => _ = pause.poll_unpin(context),
                    SourceWatchState::Opening { .. }
                    | SourceWatchState::Standby
                    | SourceWatchState::Closed => {}
                }
            }
            return Poll::Pending;
        }
        let SourceWatchState::Open { changes, since } = &mut self.state else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| changes.poll_next_unpin(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Some(change))) => Poll::Ready(change),
            Ok(Poll::Ready(None)) => {
                let source = self.gated.health().name();
                tracing::error!(source, "the watch of a source ended; its changes are no longer reported");
                self.state = SourceWatchState::Closed;
                Poll::Ready(Change::Lost)
            }
            Err(_) => {
                self.backoff.reset_if_worked_for(since.elapsed());
                self.fail(&SourceFault::Panicked);
                Poll::Ready(Change::Lost)
            }
        }
    }
}

impl SourceWatchState {
    fn opening(gated: &GatedSource) -> Self {
        let source = gated.source().clone();
        let opening = AssertUnwindSafe(async move { source.watch().await }).catch_unwind();
        let opening = opening.map(|opened| match opened {
            Ok(opened) => opened.map_err(SourceFault::Error),
            Err(_) => Err(SourceFault::Panicked),
        });
        Self::Opening { opening: opening.boxed(), since: Instant::now() }
    }
}

impl CatalogWatch {
    /// Watches the current sources and those that are added later. A source that cannot be watched is retried; in
    /// strict mode, `open` fails instead.
    pub(crate) async fn open(
        sources: watch::Receiver<Sources>,
        health: &Arc<Health>,
        strict: bool,
        bus: Option<Arc<dyn ChangeBus>>,
    ) -> Result<Self> {
        let recoveries = health.recoveries();
        let mut watch = Self { sources, bus, recoveries, open: Vec::new(), last_polled: 0, renewal: None };
        watch.renew();
        let mut outcome = Ok(());
        let failed = |gated: &GatedSource, fault: SourceFault| {
            if strict {
                outcome = Err(fault.into_error(gated.health().name()));
            }
        };
        let opened = async {
            let mut failed = failed;
            poll_fn(|context| poll_open(&mut watch.open, context, &mut failed)).await;
        };
        if timeout(OPENING_TIMEOUT, opened).await.is_err() {
            warn_late();
        }
        outcome.map(|()| watch)
    }

    /// Opens watches of new sources and drops those of removed ones.
    fn renew(&mut self) {
        let sources = self.sources.borrow_and_update().clone();
        let mut previous = mem::take(&mut self.open);
        for gated in sources.iter() {
            let at = previous.iter().position(|watch| watch.gated.is(gated.source()));
            self.open.push(match at {
                Some(at) => previous.swap_remove(at),
                None => SourceWatch::new(gated.clone(), self.bus.as_ref()),
            });
        }
    }

    /// Opens failed watches again without a pause, and also watches that began to open before their source recovered.
    fn retry(&mut self) {
        for watch in &mut self.open {
            let is_to_be_opened = match watch.state {
                SourceWatchState::Failed(_) => true,
                SourceWatchState::Opening { since, .. } => watch.gated.health().has_recovered_since(since),
                SourceWatchState::Open { .. } | SourceWatchState::Standby | SourceWatchState::Closed => false,
            };
            if is_to_be_opened {
                watch.state = SourceWatchState::opening(&watch.gated);
            }
        }
    }

    /// Whether this replica watches a content source itself, instead of taking turns with the other replicas. While
    /// this replica is down, the others may not report the changes of such a source.
    pub(crate) fn watches_alone(&self) -> bool {
        self.open.iter().any(|watch| {
            watch.turns.is_none()
                && watch.gated.role() == SourceRole::Content
                && !matches!(watch.state, SourceWatchState::Closed)
        })
    }

    pub(crate) fn changes(self) -> BoxStream<'static, Change> {
        stream::unfold(self, async |mut watch| {
            let change = watch.next().await?;
            Some((change, watch))
        })
        .boxed()
    }

    /// The next change; `None` when the catalog was dropped.
    async fn next(&mut self) -> Option<Change> {
        loop {
            let Self { open, last_polled, sources, renewal, recoveries, .. } = self;
            let change = poll_fn(|context| {
                if let Some(timer) = renewal {
                    let is_open = poll_open(open, context, |_, _| {}).is_ready();
                    if is_open || timer.poll_unpin(context).is_ready() {
                        if !is_open {
                            warn_late();
                        }
                        *renewal = None;
                        return Poll::Ready(Change::Lost);
                    }
                }
                for _ in 0..open.len() {
                    *last_polled = (*last_polled + 1) % open.len();
                    if let Poll::Ready(change) = open[*last_polled].poll_next(context) {
                        return Poll::Ready(change);
                    }
                }
                Poll::Pending
            });
            tokio::select! {
                biased;
                replaced = sources.changed() => replaced.ok()?,
                Ok(()) = recoveries.changed() => {
                    self.retry();
                    return Some(Change::Lost);
                }
                change = change => return Some(change),
            }
            self.renew();
            self.renewal = Some(Box::pin(sleep(OPENING_TIMEOUT)));
        }
    }
}

/// Yields whether this replica polls a source: first the current value, then each change.
fn turns(poller: watch::Receiver<bool>) -> BoxStream<'static, bool> {
    stream::unfold((poller, true), async |(mut poller, is_first)| {
        if !is_first {
            poller.changed().await.ok()?;
        }
        let is_poller = *poller.borrow_and_update();
        Some((is_poller, (poller, false)))
    })
    .fuse()
    .boxed()
}

/// Polls the opening of all watches; ready when none is being opened.
fn poll_open(
    watches: &mut [SourceWatch],
    context: &mut Context<'_>,
    mut failed: impl FnMut(&GatedSource, SourceFault),
) -> Poll<()> {
    let mut outcome = Poll::Ready(());
    for watch in watches {
        match watch.poll_open(context) {
            Poll::Pending => outcome = Poll::Pending,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(fault)) => failed(&watch.gated, fault),
        }
    }
    outcome
}

fn warn_late() {
    let seconds = OPENING_TIMEOUT.as_secs();
    tracing::warn!(
        "a source did not open its watch within {seconds} seconds; continuing without it until it does"
    );
}
