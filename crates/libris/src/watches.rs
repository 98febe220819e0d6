//! The watches of a catalog's sources as one, while sources come and go.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use libris_core::{Change, Error, Result, Source};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep, timeout};

use crate::catalog::Sources;

/// The watches of all sources.
pub(crate) struct Watches {
    sources: watch::Receiver<Sources>,
    open: Vec<Watch>,
    /// The watch that is looked at first, so that a busy one does not keep others from being heard.
    first: usize,
    /// Set when sources were replaced: once all have opened their watches, or this is over, whoever watches
    /// has to look again.
    renewal: Option<Pin<Box<Sleep>>>,
}

/// The watch of one source.
struct Watch {
    source: Arc<dyn Source>,
    state: State,
}

enum State {
    /// The source is still opening it.
    Opening(BoxFuture<'static, Result<Option<BoxStream<'static, Change>>>>),
    Open(BoxStream<'static, Change>),
    /// The source does not report changes, or could not be watched.
    Closed,
}

/// How long a source may take to open its watch before the others go on without it.
const PATIENCE: Duration = Duration::from_secs(5);

impl Watch {
    fn new(source: Arc<dyn Source>) -> Self {
        let opened = source.clone();
        Self { source, state: State::Opening(async move { opened.watch().await }.boxed()) }
    }

    /// Goes on opening; ready once the watch is open or failed.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let State::Opening(opening) = &mut self.state else { return Poll::Ready(Ok(())) };
        opening.poll_unpin(context).map(|opened| {
            self.state = State::Closed;
            if let Some(changes) = opened? {
                self.state = State::Open(changes);
            }
            Ok(())
        })
    }

    /// The next change. A watch that opened late may have missed anything before.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Change> {
        if let State::Opening(_) = self.state {
            match self.poll_open(context) {
                Poll::Ready(Ok(())) if matches!(self.state, State::Open(_)) => {
                    return Poll::Ready(Change::Lost);
                }
                Poll::Ready(Err(error)) => log(error),
                _ => {}
            }
            return Poll::Pending;
        }
        let State::Open(changes) = &mut self.state else { return Poll::Pending };
        changes.poll_next_unpin(context).map(|change| {
            change.unwrap_or_else(|| {
                tracing::error!("a source ended its watch; its changes are not reported any more");
                self.state = State::Closed;
                Change::Lost
            })
        })
    }
}

impl Watches {
    /// Watches the sources that there are, and those that there will be.
    pub(crate) async fn open(sources: watch::Receiver<Sources>) -> Result<Self> {
        let mut watches = Self { sources, open: Vec::new(), first: 0, renewal: None };
        watches.renew();
        let mut outcome = Ok(());
        let opened = poll_fn(|context| poll_open(&mut watches.open, context, |error| outcome = Err(error)));
        if timeout(PATIENCE, opened).await.is_err() {
            warn_late();
        }
        outcome.map(|()| watches)
    }

    /// Watches what is new, keeps what has stayed, and lets go of the rest.
    fn renew(&mut self) {
        let sources = self.sources.borrow_and_update().clone();
        let mut kept = mem::take(&mut self.open);
        for source in sources.iter().map(|gated| gated.source()) {
            let at = kept.iter().position(|watch| Arc::ptr_eq(&watch.source, source));
            self.open.push(at.map_or_else(|| Watch::new(source.clone()), |at| kept.swap_remove(at)));
        }
    }

    pub(crate) fn changes(self) -> BoxStream<'static, Change> {
        stream::unfold(self, async |mut watches| {
            let change = watches.next().await?;
            Some((change, watches))
        })
        .boxed()
    }

    /// The next change; `None` once the catalog is gone.
    async fn next(&mut self) -> Option<Change> {
        loop {
            let Self { open, first, sources, renewal } = self;
            let change = poll_fn(|context| {
                if let Some(patience) = renewal {
                    let is_open = poll_open(open, context, log).is_ready();
                    if is_open || patience.poll_unpin(context).is_ready() {
                        if !is_open {
                            warn_late();
                        }
                        *renewal = None;
                        return Poll::Ready(Change::Lost);
                    }
                }
                for _ in 0..open.len() {
                    *first = (*first + 1) % open.len();
                    if let Poll::Ready(change) = open[*first].poll_next(context) {
                        return Poll::Ready(change);
                    }
                }
                Poll::Pending
            });
            tokio::select! {
                biased;
                replaced = sources.changed() => replaced.ok()?,
                change = change => return Some(change),
            }
            self.renew();
            self.renewal = Some(Box::pin(sleep(PATIENCE)));
        }
    }
}

/// Goes on opening all watches; ready once none is being opened any more.
fn poll_open(watches: &mut [Watch], context: &mut Context<'_>, mut failed: impl FnMut(Error)) -> Poll<()> {
    let mut outcome = Poll::Ready(());
    for watch in watches {
        match watch.poll_open(context) {
            Poll::Pending => outcome = Poll::Pending,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => failed(error),
        }
    }
    outcome
}

fn log(error: Error) {
    tracing::error!(%error, "a source cannot be watched; its changes are not reported");
}

fn warn_late() {
    let seconds = PATIENCE.as_secs();
    tracing::warn!("a source could not be watched within {seconds} seconds; the others go on without it");
}
