//! Telling what changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris_core::{Change, Proof, Result, Uri};
use tokio::sync::broadcast::{self, error::RecvError};

/// How many changes may wait to be taken. Whoever falls behind is told to look again.
const WAITING: usize = 1024;

/// Tells those who listen what changed. Cheap to clone; all clones are one.
///
/// ```
/// # fn main() -> libris::Result<()> {
/// let notifier = libris::Notifier::new();
/// notifier.updated("feed://news/latest")?;
/// notifier.added("feed://news/2026-07-28")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    changes: broadcast::Sender<Change>,
    /// How many changes there have been.
    count: AtomicU64,
}

impl Default for Notifier {
    fn default() -> Self {
        Self(Arc::new(Inner { changes: broadcast::Sender::new(WAITING), count: AtomicU64::new(0) }))
    }
}

impl Notifier {
    /// A notifier that nobody listens to yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What reading this resource gives is different now.
    pub fn updated(&self, uri: impl AsRef<str>) -> Result<()> {
        self.tell(Change::Updated(Uri::parse(uri.as_ref())?));
        Ok(())
    }

    /// This resource is listed now.
    pub fn added(&self, uri: impl AsRef<str>) -> Result<()> {
        self.tell(Change::Added(Uri::parse(uri.as_ref())?));
        Ok(())
    }

    /// This resource is gone.
    pub fn removed(&self, uri: impl AsRef<str>) -> Result<()> {
        self.tell(Change::Removed(Uri::parse(uri.as_ref())?));
        Ok(())
    }

    /// Anything may have changed.
    pub fn everything(&self) {
        self.tell(Change::Lost);
    }

    /// Tells of a change.
    pub fn tell(&self, change: Change) {
        self.0.count.fetch_add(1, Ordering::Release);
        // Nobody may listen.
        let _ = self.0.changes.send(change);
    }

    /// Changes from now on, as a [`Source`](crate::Source) gives them.
    pub fn watch(&self) -> BoxStream<'static, Change> {
        // It has no sender, which would keep the stream open for ever.
        let changes = self.0.changes.subscribe();
        stream::unfold(changes, async |mut changes| {
            let change = match changes.recv().await {
                Ok(change) => change,
                Err(RecvError::Lagged(_)) => Change::Lost,
                Err(RecvError::Closed) => return None,
            };
            Some((change, changes))
        })
        .boxed()
    }

    /// A proof that holds until the next change.
    pub fn proof(&self) -> Proof {
        let (inner, count) = (self.0.clone(), self.0.count.load(Ordering::Acquire));
        Proof::new(move || inner.count.load(Ordering::Acquire) == count)
    }
}
