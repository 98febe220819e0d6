//! The watches of a catalog's sources as one, while sources come and go.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris_core::{Change, Result, Source};
use tokio::sync::watch;

use crate::catalog::Sources;

/// The watches of all sources.
pub(crate) struct Watches {
    sources: watch::Receiver<Sources>,
    open: Vec<Watch>,
    /// The watch that is looked at first, so that a busy one does not keep others from being heard.
    first: usize,
}

struct Watch {
    source: Arc<dyn Source>,
    /// `None` where the source cannot tell of changes.
    changes: Option<BoxStream<'static, Change>>,
}

impl Watches {
    /// Watches the sources that there are, and those that there will be.
    pub(crate) async fn open(sources: watch::Receiver<Sources>) -> Result<Self> {
        let mut watches = Self { sources, open: Vec::new(), first: 0 };
        watches.renew().await?;
        Ok(watches)
    }

    /// Watches what is new, keeps what has stayed, and lets go of the rest.
    async fn renew(&mut self) -> Result<()> {
        let sources = self.sources.borrow_and_update().clone();
        let mut open = Vec::with_capacity(sources.len());
        let mut outcome = Ok(());
        for source in sources.iter().map(|gated| gated.source()) {
            let kept = self.open.iter().position(|watch| Arc::ptr_eq(&watch.source, source));
            open.push(match kept {
                Some(at) => self.open.swap_remove(at),
                None => {
                    let changes = source.watch().await.unwrap_or_else(|error| {
                        outcome = Err(error);
                        None
                    });
                    Watch { changes, source: source.clone() }
                }
            });
        }
        self.open = open;
        outcome
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
        let Self { open, first, sources } = self;
        let change = poll_fn(|context| {
            for _ in 0..open.len() {
                *first = (*first + 1) % open.len();
                let watch = &mut open[*first];
                let Some(changes) = &mut watch.changes else { continue };
                match changes.poll_next_unpin(context) {
                    Poll::Pending => {}
                    Poll::Ready(Some(change)) => return Poll::Ready(change),
                    Poll::Ready(None) => {
                        tracing::error!("a source ended its watch; its changes are not told any more");
                        watch.changes = None;
                        return Poll::Ready(Change::Lost);
                    }
                }
            }
            Poll::Pending
        });
        tokio::select! {
            biased;
            replaced = sources.changed() => replaced.ok()?,
            change = change => return Some(change),
        }
        if let Err(error) = self.renew().await {
            tracing::error!(%error, "a new source cannot be watched");
        }
        Some(Change::Lost)
    }
}
