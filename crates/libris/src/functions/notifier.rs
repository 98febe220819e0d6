//! Reports changes of resources from functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris_core::{Change, Proof, Result, Uri};
use tokio::sync::broadcast::{self, error::RecvError};

/// The capacity of the change queue. A watcher that falls behind receives [`Change::Lost`].
const QUEUE_CAPACITY: usize = 1024;

/// Reports changes to the watchers of a source. Cheap to clone; clones share their watchers.
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
pub struct Notifier(Arc<NotifierInner>);

#[derive(Debug)]
struct NotifierInner {
    changes: broadcast::Sender<Change>,
    /// Generation counter: incremented by each change.
    generation: AtomicU64,
    /// Generation counter of the list: incremented by each change but [`Change::Updated`].
    list_generation: AtomicU64,
}

impl Default for Notifier {
    fn default() -> Self {
        Self(Arc::new(NotifierInner {
            changes: broadcast::Sender::new(QUEUE_CAPACITY),
            generation: AtomicU64::new(0),
            list_generation: AtomicU64::new(0),
        }))
    }
}

impl Notifier {
    /// A notifier without watchers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports that the contents of this resource changed.
    pub fn updated(&self, uri: impl AsRef<str>) -> Result<()> {
        self.report(Change::Updated(Uri::parse(uri.as_ref())?));
        Ok(())
    }

    /// Reports that this resource was added to the list.
    pub fn added(&self, uri: impl AsRef<str>) -> Result<()> {
        self.report(Change::Added(Uri::parse(uri.as_ref())?));
        Ok(())
    }

    /// Reports that this resource was removed.
    pub fn removed(&self, uri: impl AsRef<str>) -> Result<()> {
        self.report(Change::Removed(Uri::parse(uri.as_ref())?));
        Ok(())
    }

    /// Reports that any resource may have changed.
    pub fn everything(&self) {
        self.report(Change::Lost);
    }

    /// Reports a change.
    pub fn report(&self, change: Change) {
        self.0.generation.fetch_add(1, Ordering::Release);
        if !matches!(change, Change::Updated(_)) {
            self.0.list_generation.fetch_add(1, Ordering::Release);
        }
        // `send` fails only if there are no watchers.
        let _ = self.0.changes.send(change);
    }

    /// A stream of the changes from now on, for [`Source::watch`](crate::Source::watch).
    pub fn watch(&self) -> BoxStream<'static, Change> {
        // A stream that owns a sender would never end, even after the notifier is dropped.
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
        let (inner, generation) = (self.0.clone(), self.0.generation.load(Ordering::Acquire));
        Proof::new(move || inner.generation.load(Ordering::Acquire) == generation)
    }

    /// A proof that holds until the next change of the list; [`updated`](Self::updated) does not end it.
    pub fn list_proof(&self) -> Proof {
        let (inner, generation) = (self.0.clone(), self.0.list_generation.load(Ordering::Acquire));
        Proof::new(move || inner.list_generation.load(Ordering::Acquire) == generation)
    }
}
